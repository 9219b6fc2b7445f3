"""Agents that touch what they may not, do nothing, hang or never end: each is told apart, and told to people."""

from __future__ import annotations

import pytest
from demo_world import bare_of, done, events, git, left_over
from worlds import ENDLESS, GOOD, NOTHING, POLICY, STALLS, Refused


@pytest.fixture
def refused(refusals: Refused) -> Refused:
    assert refusals.finished.code == 0, refusals.finished.told[-4000:]
    return refusals


def test_a_protected_path_blocks_and_the_comment_names_it(refused: Refused) -> None:
    assert refused.ticket(POLICY)["state"] == "BLOCKED"
    assert ".github/workflows/x.yml" in refused.comments(POLICY)
    assert refused.issue(POLICY)["state"] == "open"
    assert {"harness:needs-you"} <= set(refused.issue(POLICY)["labels"])


def test_an_agent_that_changes_nothing_needs_a_person(refused: Refused) -> None:
    assert refused.ticket(NOTHING)["state"] == "BLOCKED"
    assert "without changing anything" in refused.comments(NOTHING)
    assert "harness:needs-you" in refused.issue(NOTHING)["labels"]


def test_what_was_refused_was_never_pushed(refused: Refused) -> None:
    assert {p["head_ref"] for p in refused.repo["pulls"]} == {"agent/3", "agent/4", "release/0.1.0"}
    refs = git(bare_of(refused.folder), "for-each-ref", "--format=%(refname)")
    assert not any(f"agent/{n}" in refs for n in (POLICY, NOTHING, ENDLESS))
    for n in (POLICY, NOTHING, ENDLESS):
        for code, records in refused.attempts.items():
            assert code.split(".")[0] != str(n) or not done(records, "OpenPull")


def test_a_hung_agent_is_ended_before_the_next_one_begins(refused: Refused) -> None:
    assert refused.ticket(STALLS)["state"] == "RELEASED"
    assert refused.marks["second"] == "alone"
    waits = [r.body["reason"] for r in refused.workers["3.1"] if r.body.get("event") == "retryable"]
    assert len(waits) == 1 and "no sign of progress" in waits[0]


def test_an_agent_that_never_ends_is_stopped_when_its_time_is_up(refused: Refused) -> None:
    assert refused.ticket(ENDLESS)["state"] == "DEFERRED"
    assert "time allowed for it has passed" in refused.comments(ENDLESS)


def test_the_others_are_released_as_if_nothing_were(refused: Refused) -> None:
    assert refused.ticket(GOOD)["state"] == "RELEASED"
    assert events(refused.attempts["4.1"])[-2:] == ["harvested", "clean"]
    main = git(bare_of(refused.folder), "ls-tree", "-r", "--name-only", "main").split()
    assert {"good.txt", "mended.txt"} <= set(main) and ".github/workflows/x.yml" not in main
    assert git(bare_of(refused.folder), "rev-parse", "v0.1.0^{}") == git(
        bare_of(refused.folder), "rev-parse", "main"
    )


def test_nothing_is_left_over(refused: Refused) -> None:
    assert left_over(refused.folder, "process") == []
