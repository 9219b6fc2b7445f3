"""What is concluded from what the outside shows when the store is lost: one state for each thing seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from workshop import Workshop

from harness.compose.errors import StartError
from harness.compose.evidence import Bundle, Evidence, Folder, Thread, Version, _reached
from harness.compose.rebuild import conclude
from harness.core.result import Err
from harness.domain import Gone, Issue, Pull, Reply, Status, container_name
from harness.failures import Failure
from harness.machines.attempt.states import Attempt
from harness.machines.ticket.waiting import asked_as
from harness.policy import Policy
from harness.texts import issues as texts

NOW, INSTANCE = 1_000_000.0, "0badcafe"
POLICY = Policy(repo="acme/widget", instance=INSTANCE, commands=("true",))
TIP, HEAD, BASE = "a" * 40, "b" * 40, "c" * 40
LANE = Version("0.1.0", "release/0.1.0", "v0.1.0", TIP, ours=True)
BRIEF: dict[str, Any] = {
    "attempt": "7.1", "issue": 7, "title": "Seven", "text": "# Seven", "base": "release/0.1.0",
    "base_sha": BASE, "branch": "agent/7", "counters": {"agent": 1}, "answers": [], "commands": ["true"],
}  # fmt: skip


def issue(*labels: str, open_: bool = True) -> Issue:
    return Issue(7, "Seven", "Do it.", "ada", labels=("harness", *labels), open=open_, updated_at=NOW - 60)


def mark(name: str, body: str = "", n: int = 1) -> Reply:
    return Reply(n, "bot", body, NOW - 1000 + n, name, INSTANCE, ours=True, trusted=True)


def status(body: str = "**Working on it.**") -> Reply:
    return mark("status", body)


def pull(open_: bool = True, merged: bool = False) -> Pull:
    return Pull(3, "agent/7", "release/0.1.0", HEAD, open_, merged, merge_sha=TIP if merged else "")


def bundle(outcome: str = "done", failure: str = "", n: int = 1, answers: tuple[Any, ...] = ()) -> Bundle:
    brief = {**BRIEF, "attempt": f"7.{n}", "answers": list(answers)}
    start = Attempt(code=f"7.{n}", ticket="acme/widget/ticket/7", issue=7, base_sha=BASE, brief=brief)
    meta = {"outcome": outcome, "failure": failure, "detail": "as told", "pull": 3, "head": HEAD}
    return Bundle(f"audit-{n}", f"7.{n}", meta, start)


def see(thread: Thread | None = None, lane: Version = LANE, **more: Any) -> dict[str, Any]:
    """The items that are concluded, by kind and last part of the name."""
    threads = {thread.number: thread} if thread else {}
    o = Evidence(NOW, POLICY, "main", {"refs/heads/main": BASE, "refs/heads/agent/7": HEAD}, threads)
    o = replace(o, versions={lane.version: lane}, **more)
    return {m.item.id.removeprefix("acme/widget/"): m for m in conclude(o, INSTANCE)}


def test_what_git_could_not_tell_of_a_release_ends_the_rebuild(tmp_path: Path) -> None:
    """A ticket that has landed would land again."""
    w = Workshop.open(tmp_path)
    head = w.branch("agent/7")
    w.remote.set("refs/heads/release/0.1.0", head)
    tip = w.remote.write("refs/heads/release/0.1.0", {"more": "1"}, "more", w.clock.now())
    w.repo.fetch()
    o = Evidence(NOW, POLICY, "main", {}, versions={"0.1.0": replace(LANE, tip=tip)})
    mine = replace(pull(), head_sha=head)
    assert _reached(w.world, o, mine) == "0.1.0"
    assert _reached(w.world, o, replace(mine, head_sha="f" * 40)) == "", (
        "what was never fetched is in nothing"
    )
    w.repo.is_ancestor = lambda old, new: Err(Failure.TIMEOUT, "git merge-base took longer than allowed")  # type: ignore[method-assign]
    with pytest.raises(StartError, match="cannot be read: git merge-base took longer"):
        _reached(w.world, o, mine)


def ticket(thread: Thread, **more: Any) -> Any:
    return see(thread, **more)["ticket/7"].item


def begun(item: Any) -> list[str]:
    return [i.effect["$"] for i in item.intents]


def test_an_issue_that_was_never_taken_is_left_to_the_director() -> None:
    assert "ticket/7" not in see(Thread(7, issue()))


def test_a_claim_without_an_attempt_is_read_back_like_any_claim() -> None:
    item = ticket(Thread(7, issue(), (status(),)))
    assert (item.state, begun(item)) == ("CLAIMING", ["Comment", "Label"])


def test_an_attempt_that_failed_is_charged_and_the_next_has_the_frozen_text() -> None:
    item = ticket(
        Thread(7, issue("harness:working"), (status(),)), bundles=(bundle("failed", "agent_failed"),)
    )
    assert (item.state, item.data.text, item.data.attempts) == ("ATTEMPTING", "# Seven", 1)
    assert item.data.counters == {"agent": 2} and item.data.feedback == "as told" and not item.intents


def test_an_open_pull_whose_attempt_is_done_is_reviewed() -> None:
    item = ticket(Thread(7, issue("harness:working"), (status(),), pull(), review=True), bundles=(bundle(),))
    assert (item.state, item.data.pull, item.data.head, item.data.review) == ("REVIEWING", 3, HEAD, True)


@pytest.mark.parametrize("by", ["merged", "reached"])
def test_what_has_landed_stays_landed(by: str) -> None:
    thread = Thread(7, issue("harness:working"), (status(),), pull(by != "merged", by == "merged"), "0.1.0")
    found = see(thread, bundles=(bundle(),))
    item = found["ticket/7"].item
    assert (item.state, item.data.landed_in) == ("LANDED", "acme/widget/release/0.1.0")
    assert found["release/0.1.0"].item.state == "OPEN" and "attempt/7.1" not in found


def test_released_is_what_the_publication_closed() -> None:
    lane = replace(LANE, tag=TIP, published="v0.1.0", pull=replace(pull(False, True), head="release/0.1.0"))
    thread = Thread(7, issue(open_=False), (status(),), pull(False, True), "0.1.0")
    found = see(thread, lane, bundles=(bundle(),))
    assert found["ticket/7"].item.state == "RELEASED" and found["release/0.1.0"].item.state == "TAGGING"


@pytest.mark.parametrize(("mode", "state"), [("train", "RELEASED"), ("pulls", "LANDED")])
def test_a_pull_that_was_merged_long_ago_is_not_worked_on_again(mode: str, state: str) -> None:
    old = replace(pull(False, True), base="main")
    thread = Thread(7, issue(open_=False), (), old)
    item = ticket(thread, bundles=(bundle(),), policy=replace(POLICY, mode=mode))
    assert item.state == state and bool(item.intents) == (mode == "pulls")


def test_a_question_without_an_answer_is_waited_for_under_its_own_name() -> None:
    asked = mark("question-9", texts.question("Red or blue?\nOr green?"), 5)
    found = see(Thread(7, issue("harness:needs-you"), (status(), asked)), bundles=(bundle("question"),))
    item = found["ticket/7"].item
    assert (item.state, asked_as(item.data), begun(item)) == ("WAITING", asked.name, ["Label"])
    assert item.data.question == "Red or blue?\nOr green?" and item.entered_at == 9.0


def test_a_question_that_was_answered_and_used_is_over() -> None:
    asked = mark("question-9", texts.question("Red?"), 5)
    answered = bundle("failed", "agent_failed", 2, ({"question": "Red?", "answer": "yes", "by": "ada"},))
    item = ticket(
        Thread(7, issue("harness:working"), (status(), asked)), bundles=(bundle("question"), answered)
    )
    assert item.state == "ATTEMPTING" and item.data.answers[0]["answer"] == "yes"


@pytest.mark.parametrize(
    ("labels", "marks", "state"),
    [
        (("harness:deferred",), (), "DEFERRED"),
        (("harness:needs-you",), (mark("blocked-4", n=4),), "BLOCKED"),
        (("harness:working",), (), "DEFERRED"),
    ],
)
def test_what_is_parked_stays_parked(labels: tuple[str, ...], marks: tuple[Reply, ...], state: str) -> None:
    told = status(texts.deferred("tests_failed", "as told", "harness", ("audit-1",)))
    thread = Thread(7, issue(*labels), (told, *marks))
    item = ticket(thread, bundles=(bundle("failed", "tests_failed"),))
    assert (item.state, item.data.failure, item.data.detail) == (state, "tests_failed", "as told")


def test_why_it_was_deferred_is_read_from_the_comment_where_no_bundle_says_it() -> None:
    told = status(texts.deferred("conflict", "a.py differs", "harness", ()))
    item = ticket(Thread(7, issue("harness:deferred"), (told,)))
    assert (item.data.failure, item.data.detail) == ("conflict", "a.py differs")


def test_a_label_that_a_person_took_off_is_another_try() -> None:
    told = status(texts.deferred("tests_failed", "as told", "harness", ("audit-1",)))
    item = ticket(Thread(7, issue(), (told,)), bundles=(bundle("failed", "tests_failed"),))
    assert (item.state, item.data.attempts, item.data.offset, item.data.counters) == ("ATTEMPTING", 0, 1, {})


@pytest.mark.parametrize(
    ("body", "state"),
    [("**Released** in v0.0.9, with #3.", "RELEASED"), ("**Not worked on any more.** Cancelled.", "GONE")],
)
def test_what_has_ended_is_over(body: str, state: str) -> None:
    assert ticket(Thread(7, issue(open_=False), (status(body),))).state == state


def test_an_issue_that_is_gone_ends() -> None:
    assert ticket(Thread(7, Gone("deleted")), bundles=(bundle("failed", "oom"),)).state == "GONE"


# ---------------------------------------------------------------- attempts


def job(phase: str, part: str = "i1", code: int | None = None) -> dict[str, Status]:
    name = container_name(POLICY.repo, "7.1", part, INSTANCE)
    return {name: Status(name, phase, code, started_at=NOW - 50, engine="boot-1", image="sha256:1")}


def attempt(jobs: dict[str, Status], folder: Folder, thread: Thread | None = None, **more: Any) -> Any:
    thread = thread or Thread(7, issue("harness:working"), (status(),))
    found = see(thread, folders=(folder,), jobs=jobs, **more)
    assert found["ticket/7"].item.data.attempt == "acme/widget/attempt/7.1"
    assert found["ticket/7"].item.state == "ATTEMPTING"
    return found["attempt/7.1"].item


def test_a_worker_that_runs_is_adopted_with_its_incarnation() -> None:
    item = attempt({**job("EXITED"), **job("RUNNING", "i2")}, Folder("7.1", BRIEF, ran=True))
    assert (item.state, item.data.incarnation, item.data.engine) == ("RUNNING", 2, "boot-1")
    assert item.entered_at == NOW - 50 and item.data.counters == {"agent": 1} and not item.data.head


def test_what_a_worker_was_told_is_published_counts_where_the_branch_has_it() -> None:
    thread = Thread(7, issue("harness:working"), (status(),), pull())
    item = attempt(job("RUNNING"), Folder("7.1", BRIEF, frozenset({HEAD}), True), thread)
    assert (item.data.head, item.data.pull) == (HEAD, 3)
    item = attempt(job("RUNNING"), Folder("7.1", BRIEF, frozenset({TIP}), True), thread)
    assert (item.data.head, item.data.pull) == ("", 0)


def test_a_worker_whose_brief_is_lost_ends_with_its_work_saved() -> None:
    item = attempt(job("RUNNING"), Folder("7.1", None))
    assert (item.state, begun(item)) == ("HARVESTING", ["StopJob", "StartHarvest"])


def test_what_never_ran_is_prepared_again() -> None:
    item = attempt({}, Folder("7.1", BRIEF))
    assert (item.state, begun(item)) == ("PREPARING", ["Clone", "WriteBrief"])


def test_what_is_sealed_is_only_cleaned_away() -> None:
    item = attempt(job("EXITED", code=0), Folder("7.1", BRIEF, ran=True), bundles=(bundle(),))
    assert (item.state, item.data.outcome, item.data.pull, item.data.audit) == (
        "CLEANING",
        "done",
        3,
        "audit-1",
    )


# ---------------------------------------------------------------- releases


def release(**more: Any) -> Any:
    return see(None, replace(LANE, **more))["release/0.1.0"].item


def theirs(open_: bool = True, merged: bool = False) -> Pull:
    return Pull(8, "release/0.1.0", "main", TIP, open_, merged, merge_sha=HEAD if merged else "")


def test_a_branch_that_is_none_of_ours_is_left_alone() -> None:
    assert see(None, replace(LANE, ours=False)) == {}


@pytest.mark.parametrize(
    ("more", "state"),
    [
        ({}, "OPEN"),
        ({"pull": theirs()}, "OPEN"),
        (
            {"pull": theirs(), "asked": 12, "asked_text": "**Release 0.1.0 needs a person.** X."},
            "NEEDS_PERSON",
        ),
        ({"pull": theirs(False, True)}, "MERGING"),
        ({"pull": theirs(False, True), "tag": HEAD}, "TAGGING"),
        ({"pull": theirs(False, True), "tag": HEAD, "published": "v0.1.0", "tip": ""}, "PUBLISHED"),
        ({"pull": theirs(False)}, "ABANDONED"),
    ],
)
def test_a_release_goes_on_from_what_is_seen(more: dict[str, Any], state: str) -> None:
    assert release(**more).state == state


def test_what_was_merged_without_a_tag_is_gated_again() -> None:
    data = release(pull=theirs(False, True)).data
    assert (data.gated, data.merge_sha, data.pull) == ("", "", 8)


def test_a_call_for_a_person_is_not_made_twice() -> None:
    item = release(pull=theirs(), asked=12, asked_text="**Release 0.1.0 needs a person.** X.")
    assert item.state == "NEEDS_PERSON" and not item.intents
