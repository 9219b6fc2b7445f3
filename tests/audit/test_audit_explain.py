"""What `harness explain` says, as prose that is read and approved: tests/audit/golden/*.txt.

The one rule: a golden text is changed by hand, after reading it as somebody would who was woken up by it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from audit_stage import (
    BASE,
    ISSUES,
    MERGE,
    RELEASE,
    REPO,
    START,
    TREE,
    WORK,
    Clock,
    Stage,
    begun,
    candidates,
    director,
    ended,
)

from harness.adapters.memory.store import MemoryStore
from harness.audit.explain import explain
from harness.domain import Ask, Gone, Pull, Reply
from harness.machines.kind import Gate, Peer
from harness.perform.outcome import Outcome
from harness.policy import Policy

GOLDEN = Path(__file__).parent / "golden"
PULL = Pull(31, "agent/12", "release/0.4.0", WORK, open=True, merged=False)


@pytest.fixture
def stage() -> Stage:
    """Director 7 has taken 12 and 21, attempts 12.1 and 21.1 run, and there is no room for 15."""
    stage = Stage(policy=Policy(commands=("scripts/test.sh",), image="sha256:41d0", max_workers=2))
    director(stage)
    stage.at("02:07:00")
    begun(stage)
    return stage


def approve(stage: Stage, name: str, issue: int) -> None:
    """The text is the one that was read and approved."""
    assert stage.store is not None
    found = explain(stage.store, issue)
    assert found.text == (GOLDEN / f"{name}.txt").read_text()
    assert found.known == (found.decision != "unknown")
    assert json.loads(json.dumps(found.data)) == found.data
    assert found.data["decision"] == found.decision and found.data["reason"] == found.reason


def asks(stage: Stage) -> None:
    """12.1 wants a person to say which colour."""
    stage.at("02:15:20")
    stage.facts["candidates"] = candidates(*ISSUES[:2])
    stage.facts["asked/12.1"] = (Ask("ask-9", "ask", {"question": "Blue or green?\nThe issue says both."}),)
    stage.go("attempt/12.1")
    ended(
        stage, "12.1", 11, "20261127-0215-12.1", 0.11, state="BLOCKED", final="BLOCKED", failure="question",
        reason="Blue or green?",
    )  # fmt: skip


def answered(stage: Stage) -> None:
    ticket = stage.items[f"{REPO}/ticket/12"]
    asked = Reply(900, "bot", "?", START, f"question-{int(ticket.data.asked_at)}", "local", ours=True)
    said = Reply(901, "ada", "> Blue or green?\n\nBlue, please.", START, trusted=True)
    stage.facts["replies/12"] = (*stage.facts["replies/12"], asked, said)
    stage.at("02:40:00")
    begun(stage)


def published(stage: Stage) -> None:
    """12.2 has pushed its work and its pull is open."""
    stage.values |= {"Publish": {"sha": WORK, "files": ["widget.py"]}, "OpenPull": {"number": 31}}
    stage.at("02:55:10")
    args = {"sha": WORK, "base_sha": BASE, "bundle": "b"}
    stage.facts["asked/12.2"] = (Ask("publish-1", "publish", args), Ask("pull-1", "open_pull", {"sha": WORK}))
    stage.go("attempt/12.2")


def landed(stage: Stage) -> None:
    gates = {"gate/": lambda q: Gate(q[5:], "green")}
    stage.facts |= {"pull/31": PULL, **gates}
    merge = {"sha": MERGE, "tree": TREE, "base": BASE, "head": WORK}
    stage.values |= {"BuildMerge": merge, "Land": {"landed": True}}
    ended(stage, "12.2", 0, "20261127-0255-12.2", 0.2, state="DONE", final="DONE")


def gives_up(stage: Stage) -> None:
    stage.at("02:31:05")
    log = "scripts/test.sh exited 1\nFAILED tests/test_parser.py::test_speed\n3 failed, 41 passed"
    ended(
        stage, "21.1", 10, "20261127-0231-21.1", 0.31, state="BLOCKED", final="BLOCKED",
        failure="tests_failed", reason=log, counters={"rework": 4},
    )  # fmt: skip


def test_a_deferred_issue(stage: Stage) -> None:
    gives_up(stage)
    approve(stage, "deferred", 21)


def test_an_issue_in_work(stage: Stage) -> None:
    approve(stage, "in-work", 12)


def test_an_issue_that_waits_for_an_answer(stage: Stage) -> None:
    asks(stage)
    approve(stage, "waiting", 12)


def test_a_released_issue_from_first_sight_to_its_end(stage: Stage) -> None:
    asks(stage)
    answered(stage)
    published(stage)
    landed(stage)
    approve(stage, "landed", 12)
    release = stage.items[RELEASE]
    stage.at("03:30:00")
    stage.facts[f"item/{RELEASE}"] = Peer(RELEASE, "PUBLISHED", START, 1, replace(release.data, landed=(12,)))
    stage.go("ticket/12")
    approve(stage, "released", 12)


def test_a_pull_that_the_forge_does_not_take(stage: Stage) -> None:
    asks(stage)
    answered(stage)
    refused = Outcome(
        "deferred", failure="forge_rate_limited", detail="secondary limit", not_before=START + 3600
    )
    stage.values["OpenPull"] = refused
    stage.values["Publish"] = {"sha": WORK, "files": []}
    stage.at("02:55:10")
    args = {"sha": WORK, "base_sha": BASE, "bundle": "b"}
    stage.facts["asked/12.2"] = (Ask("publish-1", "publish", args), Ask("pull-1", "open_pull", {"sha": WORK}))
    stage.go("attempt/12.2")
    approve(stage, "held-up", 12)


def test_an_issue_that_needs_a_person(stage: Stage) -> None:
    stage.at("02:20:00")
    said = {"failure": "policy_violation", "reason": ".github/workflows/ci.yml is protected"}
    ended(stage, "21.1", 11, "20261127-0220-21.1", 0.0, state="BLOCKED", final="BLOCKED", **said)
    approve(stage, "blocked", 21)


def test_an_issue_that_was_deleted_meanwhile(stage: Stage) -> None:
    stage.at("02:09:00")
    stage.facts["issue/21"] = Gone("the issue was deleted")
    stage.go("ticket/21")
    stage.go("attempt/21.1")
    approve(stage, "gone", 21)


def test_a_candidate_without_a_slot(stage: Stage) -> None:
    approve(stage, "no-free-slot", 15)


def test_a_candidate_of_a_bot(stage: Stage) -> None:
    approve(stage, "bot", 19)


def test_an_issue_that_nobody_ever_saw(stage: Stage) -> None:
    approve(stage, "unknown", 99)
    found = explain(MemoryStore(Clock()), 99)
    assert not found.known and "no director has run with this data yet" in found.text


def test_the_newest_director_that_knows_something_is_asked(stage: Stage) -> None:
    assert stage.store is not None
    stage.store.set_epoch(8)
    later = Stage(policy=stage.policy, epoch=8, store=stage.store)
    later.items |= stage.items
    director(later, candidates=candidates(*ISSUES[:2]))
    found = explain(stage.store, 15)
    assert found.data["director"]["machine"] == f"{REPO}/director/7"
    assert "no candidate any more: it was closed, or the label harness was taken off" in found.text
    stage.store.set_epoch(9)
    last = Stage(policy=stage.policy, epoch=9, store=stage.store)
    last.items |= later.items
    director(last, candidates=candidates(replace(ISSUES[2], locked=True)))
    found = explain(stage.store, 15)
    assert found.data["director"]["machine"] == f"{REPO}/director/9"
    assert found.reason == "The conversation is locked." and "Unlock" in found.text


def test_an_issue_that_is_no_candidate_any_more(stage: Stage) -> None:
    """The same director saw it before its label was taken off, and looks on."""
    stage.clock.at += 600
    stage.go("director/7", candidates=candidates(*ISSUES[:2]))
    approve(stage, "no-candidate-any-more", 15)


def test_a_ticket_taken_up_again_is_the_one_that_is_explained(stage: Stage) -> None:
    gives_up(stage)
    old = stage.items[f"{REPO}/ticket/21"]
    stage.open("ticket/21~2", replace(old.data, attempts=0, offset=1, attempt="", spawned=0))
    assert stage.store is not None
    found = explain(stage.store, 21)
    assert found.data["ticket"] == f"{REPO}/ticket/21~2" and found.state == "CLAIMING"
    assert found.data["earlier"] == [{"ticket": f"{REPO}/ticket/21", "state": "DEFERRED"}]


def test_another_repository_in_the_same_store_is_left_out(stage: Stage) -> None:
    assert stage.store is not None
    assert explain(stage.store, 21, REPO).known
    assert not explain(stage.store, 21, "acme/other").known


def test_an_issue_whose_number_begins_alike_is_another_one(stage: Stage) -> None:
    assert stage.store is not None
    assert not explain(stage.store, 1).known and not explain(stage.store, 2).known


def test_the_json_form_has_every_key_always(stage: Stage) -> None:
    assert stage.store is not None
    keys = [set(explain(stage.store, n).data) for n in (12, 15, 19, 21, 99)]
    assert all(k == keys[0] for k in keys)


def test_hostile_text_of_an_issue_stays_text(stage: Stage) -> None:
    """Titles and questions come from anybody: no control character, no second line gets out."""
    gives_up(stage)
    assert stage.store is not None
    odd = "x\x1b[31m\r\n\r\nIt was released.\u202e"
    start: Any = replace(stage.items[f"{REPO}/ticket/21"].data, title=odd, issue=77, attempts=0, spawned=0)
    stage.open("ticket/77", start)
    text = explain(stage.store, 77).text
    assert "\x1b" not in text and "\u202e" not in text and "\r" not in text
    assert text.splitlines()[0].startswith("Issue 77: x")


def test_the_answer_of_one_night_reads_the_same_after_a_restart(stage: Stage) -> None:
    gives_up(stage)
    assert stage.store is not None
    before = explain(stage.store, 21).text
    assert explain(stage.store.reopen(), 21).text == before
