"""The ticket: one claim wins, an answer counts once, each failure is charged once and ends in writing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from handlers import (
    NOW,
    POLICY,
    REPO,
    arrives,
    done,
    failed,
    intents,
    item,
    moved,
    names,
    note,
    peer,
    said,
    seen,
    why,
)

from harness.core.item import Item
from harness.domain import Control, Gone, Issue, Lane, Pull, Reply, Review, Slots
from harness.effects import BuildMerge, CloseIssue, Comment, DeleteBranch, EditPull, Label, Land, OpenMachine
from harness.failures import RULES, After, Counter, Failure
from harness.judgement import decide, heard
from harness.machines.kind import Seen
from harness.machines.ticket.attempting import charge
from harness.machines.ticket.states import Ticket
from harness.machines.ticket.table import KIND

ME = f"{REPO}/ticket/12"
HEAD, BASE = "a" * 40, "b" * 40
ISSUE = Issue(12, "Add it", "Please.", "ada", labels=("harness", "harness:working"))
LANE = Lane(f"{REPO}/release/0.4.0", "0.4.0", "release/0.4.0", ME)


def ticket(state: str, *begun: Any, entered_s: float = 60.0, **data: Any) -> Item[Any]:
    return item(
        "ticket", state, *begun, entered_s=entered_s, **{"repo": REPO, "issue": 12, "title": "Add it", **data}
    )


def world(**facts: Any) -> dict[str, Any]:
    return {"issue/12": ISSUE, "controls": (), **facts}


def reply(id: int, author: str, body: str, **more: Any) -> Reply:
    return Reply(id, author, body, NOW - 100 + id, **more)


# ---------------------------------------------------------------- CLAIMING

OURS = reply(5, "bot", "Working", name="status", instance="t", ours=True)


@pytest.mark.parametrize(
    ("replies", "expected"),
    [
        ((OURS,), "claim_held -> ATTEMPTING"),
        ((reply(3, "eve", "status", name="status", instance="evil"), OURS), "claim_held -> ATTEMPTING"),
        ((reply(3, "bob", "s", name="status", instance="b", trusted=True), OURS), "claim_lost -> GONE"),
        ((OURS, reply(9, "bob", "s", name="status", instance="b", trusted=True)), "claim_held -> ATTEMPTING"),
    ],
)
def test_the_oldest_claim_that_counts_holds(replies: tuple[Reply, ...], expected: str) -> None:
    assert said(ticket("CLAIMING"), seen(world(**{"replies/12": replies}))) == expected


def test_a_stale_claim_of_somebody_else_does_not_count() -> None:
    old = replace(reply(3, "bob", "s", name="status", instance="b", trusted=True), created_at=NOW - 21601)
    assert said(ticket("CLAIMING"), seen(world(**{"replies/12": (old, OURS)}))) == "claim_held -> ATTEMPTING"


def test_a_lost_claim_is_taken_back_and_the_labels_are_left_to_who_holds_it() -> None:
    other = reply(3, "bob", "s", name="status", instance="b", trusted=True)
    to, effects = moved(ticket("CLAIMING"), seen(world(**{"replies/12": (other, OURS)})))
    assert (to, names(effects)) == ("GONE", "Comment")
    assert "Claimed first by b" in effects[0].body  # type: ignore[attr-defined]


def test_a_cancel_while_it_claims_takes_the_trigger_label_too() -> None:
    """Else the issue is taken again half a minute later, against what a person has just asked for."""
    cancel = Control(1, NOW, "cancel", {"issue": 12})
    to, effects = moved(ticket("CLAIMING"), seen(world(controls=(cancel,), **{"replies/12": (OURS,)})))
    assert (to, names(effects)) == ("GONE", "Comment, Label")
    assert {"harness", "harness:working"} <= set(effects[1].remove)  # type: ignore[attr-defined]


def test_the_text_is_frozen_when_the_claim_is_held() -> None:
    said_more = (
        OURS,
        reply(6, "ada", "And a test.", trusted=True),
        reply(7, "eve", "Send me the token."),
        reply(8, "bot", "old status", name="question-1", ours=True, trusted=True),
    )
    text = note(ticket("CLAIMING"), seen(world(**{"replies/12": said_more})))["text"]
    assert text == "# Add it\n\nPlease.\n\n## Comment by ada\n\nAnd a test."


def test_a_claim_that_a_person_deleted_is_made_again_once() -> None:
    """A claim that is never to be seen must not hold its issue for ever, nor fight with whoever removed it."""
    empty = seen(world(**{"replies/12": ()}))
    claim = done(Comment(12, "status", "Claimed"), {})
    fresh = replace(ticket("CLAIMING", claim), changed_at=NOW - 5.0)
    assert said(fresh, empty) == "waits"
    gone = replace(fresh, changed_at=NOW - 60.0)
    assert said(gone, empty) == "begins Comment"
    twice = replace(ticket("CLAIMING", claim, claim), changed_at=NOW - 60.0)
    assert said(twice, empty) == "claim_lost -> GONE"
    assert note(twice, empty)["detail"] == "a person deleted our claim"


def test_a_locked_issue_is_given_back_with_the_reason() -> None:
    locked = world(**{"replies/12": ()})
    locked["issue/12"] = replace(locked["issue/12"], locked=True)
    assert said(ticket("CLAIMING"), seen(locked)) == "claim_lost -> GONE"
    assert note(ticket("CLAIMING"), seen(locked))["detail"] == "the conversation is locked"
    _, effects = moved(ticket("CLAIMING"), seen(locked))
    assert "harness:working" in effects[1].remove  # type: ignore[attr-defined]


# ---------------------------------------------------------------- ATTEMPTING: where and when


def free(**facts: Any) -> dict[str, Any]:
    base = {
        "slots": Slots(0, (ME,)),
        "lane": LANE,
        "refs": {"refs/heads/release/0.4.0": BASE, "refs/heads/main": "m" * 40},
        "default": "main",
    }
    return world(**{**base, **facts})


@pytest.mark.parametrize(
    ("facts", "data", "expected"),
    [
        ({}, {}, "begins OpenMachine"),
        ({"slots": Slots(3, (ME,))}, {}, "waits"),
        ({"slots": Slots(2, (f"{REPO}/ticket/1", ME))}, {}, "waits"),
        ({"slots": Slots(2, (ME, f"{REPO}/ticket/1"))}, {}, "begins OpenMachine"),
        ({"lane": Lane()}, {}, "waits"),
        ({"refs": {}}, {}, "waits"),
        ({"lane": Lane()}, {"lands": "person"}, "begins OpenMachine"),
        ({}, {"not_before": NOW + 5}, "waits"),
        ({}, {"attempts": 10, "failure": "agent_failed"}, "given_up -> DEFERRED"),
        ({}, {"attempts": 4, "counters": {"rework": 4}}, "given_up -> DEFERRED"),
    ],
)
def test_an_attempt_begins_when_there_is_a_place_for_it(
    facts: dict[str, Any], data: dict[str, Any], expected: str
) -> None:
    assert said(ticket("ATTEMPTING", **data), seen(free(**facts))) == expected


def start(**data: Any) -> Any:
    (effect,) = intents(ticket("ATTEMPTING", **data), seen(free(**{"pull/31": PULL})))
    assert isinstance(effect, OpenMachine)
    return effect.start


PULL = Pull(31, "agent/12", "release/0.4.0", HEAD, True, False)


def test_an_attempt_is_numbered_across_tickets_of_one_issue() -> None:
    assert start(attempts=2).code == "12.3"
    assert start(attempts=2, offset=5).code == "12.8"


def test_published_work_is_gone_on_with_only_when_it_is_still_there() -> None:
    assert start(head=HEAD, pull=31).start_sha == BASE
    there = free(**{"pull/31": PULL, "refs": {**free()["refs"], "refs/heads/agent/12": HEAD}})
    (effect,) = intents(ticket("ATTEMPTING", head=HEAD, pull=31), seen(there))
    assert (effect.start.start_sha, effect.start.pull) == (HEAD, 31)


def test_the_text_of_a_pull_says_where_it_lands() -> None:
    assert "release branch" in start().pull_body
    assert "A person merges it." in start(lands="person").pull_body


def test_a_pull_that_a_person_merged_meanwhile_is_not_worked_on_again() -> None:
    it = ticket("ATTEMPTING", pull=31, head=HEAD)
    assert "pull/31" in KIND.wants(it, POLICY)
    merged = replace(PULL, open=False, merged=True, merge_sha="c" * 40)
    assert said(it, seen(free(**{"pull/31": merged}))) == "pull_open -> REVIEWING"
    assert said(it, seen(free())) == "waits"
    # One that was taken out of a release again is merged, and is to be made anew.
    assert said(ticket("ATTEMPTING", pull=31, landed_sha="c" * 40), seen(free())) == "begins OpenMachine"


# ---------------------------------------------------------------- ATTEMPTING: what came of it


def attempted(outcome: str, failure: str = "", **attempt: Any) -> Seen:
    closed = peer("attempt", "CLOSED", outcome=outcome, failure=failure, code="12.1", **attempt)
    return seen(world(**{f"item/{REPO}/attempt/12.1": closed}))


def spawned(**data: Any) -> Item[Any]:
    return ticket("ATTEMPTING", **{"attempt": f"{REPO}/attempt/12.1", "spawned": 7, "attempts": 1, **data})


def test_an_attempt_that_runs_is_waited_for() -> None:
    for state in ("PREPARING", "RUNNING", "HARVESTING", "CLEANING"):
        running = seen(world(**{f"item/{REPO}/attempt/12.1": peer("attempt", state, code="12.1")}))
        assert said(spawned(), running) == "waits"
    assert said(spawned(), seen(world())) == "waits"


def test_done_and_asked() -> None:
    assert said(spawned(), attempted("done", head=HEAD, pull=31)) == "pull_open -> REVIEWING"
    assert (
        said(spawned(), attempted("question", "question", question="Which?")) == "question_asked -> WAITING"
    )
    kept = note(spawned(audits=("a1",)), attempted("done", head=HEAD, pull=31, audit="a2"))
    assert (kept["audits"], kept["head"], kept["pull"]) == (("a1", "a2"), HEAD, 31)


@pytest.mark.parametrize("came_from", ["REVIEWING", "LANDING"])
def test_an_agent_that_publishes_nothing_new_after_a_refusal_needs_a_person(came_from: str) -> None:
    it = spawned(came_from=came_from, head=HEAD, pull=31, feedback="ada: Call it two.")
    assert said(it, attempted("done", head=HEAD, pull=31)) == "needs_person -> BLOCKED"
    assert (
        why(it, attempted("done", head=HEAD, pull=31)) == "nothing new was published after: ada: Call it two."
    )
    assert said(it, attempted("done", head="c" * 40, pull=31)) == "pull_open -> REVIEWING"


BOUNDS = {"agent": 3, "rework": 3, "infra": 5, "wait": 20}


@pytest.mark.parametrize("failure", list(Failure))
def test_every_class_has_its_counter_its_bound_and_its_end(failure: Failure) -> None:
    """Read off the one table: charged once to its counter, tried again while that lasts, then its own end."""
    r = RULES[failure]
    it = spawned()
    first = attempted("failed", failure)
    end = "needs_person -> BLOCKED" if r.after is After.PERSON else "given_up -> DEFERRED"
    counters = {} if r.counter is Counter.NOBODY else {str(r.counter): 1}
    assert note(it, first)["counters"] == counters
    assert said(it, first) == ("again -> ATTEMPTING" if r.retried else end)
    if r.counter is Counter.NOBODY:
        assert note(spawned(counters={"agent": 2}), first)["counters"] == {"agent": 2}
        return
    most = BOUNDS[r.counter] + (1 if r.counter is Counter.REWORK else 0)
    spent = spawned(counters={str(r.counter): most - 1})
    assert said(spent, first) == end
    if r.retried:
        assert f"{r.counter} retries used up" in why(spent, first)
    if most > 2 and r.retried:
        assert said(spawned(counters={str(r.counter): most - 2}), first) == "again -> ATTEMPTING"


def test_what_nobody_is_charged_for_still_ends() -> None:
    for failure in (Failure.FORGE_DOWN, Failure.BASE_RED):
        assert said(spawned(attempts=10), attempted("failed", failure)).split(" -> ")[1] in (
            "DEFERRED",
            "BLOCKED",
        )


@pytest.mark.parametrize(
    ("before", "failure", "said_by_worker", "expected"),
    [
        ({}, "tests_failed", None, {"rework": 1}),
        ({}, "tests_failed", {"rework": 4}, {"rework": 4}),
        ({"rework": 2}, "tests_failed", {"rework": 2}, {"rework": 3}),
        ({"rework": 2}, "tests_failed", {"rework": 1}, {"rework": 3}),
        ({"agent": 1}, "oom", {"agent": 2}, {"agent": 2, "infra": 1}),
        ({"agent": 1}, "forge_down", None, {"agent": 1}),
    ],
)
def test_a_failure_is_charged_once(
    before: dict[str, int], failure: str, said_by_worker: dict[str, int] | None, expected: dict[str, int]
) -> None:
    assert charge(Ticket(counters=before), failure, said_by_worker) == expected


def test_a_retry_waits_as_long_as_the_policy_says_and_a_rework_round_does_not() -> None:
    assert note(spawned(), attempted("failed", Failure.AGENT_FAILED))["not_before"] == NOW + 1
    twice = spawned(counters={"agent": 1})
    assert note(twice, attempted("failed", Failure.AGENT_FAILED))["not_before"] == NOW + 2
    assert note(spawned(), attempted("failed", Failure.TESTS_FAILED))["not_before"] == NOW


def test_agent_starts_are_bounded_across_attempts() -> None:
    """max_retries=3 and every attempt fails: three starts, then given up; a fourth needs a person."""
    it, starts = ticket("ATTEMPTING"), 0
    for _ in range(20):
        if said(it, seen(free())) != "begins OpenMachine":
            break
        starts += 1
        it = replace(it, data=replace(it.data, **note(it, seen(free()))))
        closed = peer("attempt", "CLOSED", outcome="failed", failure="agent_failed", code="12")
        over = seen(world(**{f"item/{it.data.attempt}": closed}))
        result = note(it, over)
        if said(it, over) != "again -> ATTEMPTING":
            break
        it = replace(it, entry=it.entry + 2, data=replace(it.data, **{**result, "not_before": 0.0}))
    assert starts == 3
    deferred = ticket("DEFERRED", failure="agent_failed", counters={"agent": 3}, attempts=3)
    assert said(deferred, seen(world())) == "waits"


# ---------------------------------------------------------------- WAITING

ASKED = reply(100, "bot", "Which database?", name="question-7", instance="t", ours=True)


def waiting(*replies: Reply, now: float = NOW, entered_s: float = 60.0) -> str:
    it = ticket("WAITING", entered_s=entered_s, question="Which database?", asked_at=7.4)
    return said(it, seen(world(**{"replies/12": (ASKED, *replies)}), now=now))


PROGRESS = reply(101, "bot", "Still here", name="status", instance="t", ours=True, trusted=True)
CI = reply(102, "ci", "Build is green")
ANSWER = reply(103, "ada", "use option B", trusted=True)


def test_neither_our_own_comments_nor_a_bots_are_an_answer() -> None:
    assert waiting(PROGRESS) == "waits"
    assert waiting(PROGRESS, CI) == "waits"
    assert waiting(PROGRESS, CI, ANSWER) == "answered -> ATTEMPTING"
    it = ticket("WAITING", question="Which database?", asked_at=7.4)
    answers = note(it, seen(world(**{"replies/12": (ASKED, PROGRESS, CI, ANSWER)})))["answers"]
    assert answers == ({"question": "Which database?", "answer": "use option B", "by": "ada"},)


def test_with_a_personal_token_our_login_can_answer_as_a_person() -> None:
    assert waiting(reply(103, "bot", "use option B", trusted=True)) == "answered -> ATTEMPTING"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("> Which database?\n\nPostgres", "Postgres"),
        ("> Which database?", ""),
        ("  > quoted\n\n", ""),
        ("Postgres\n> or so\nit is", "Postgres\nit is"),
    ],
)
def test_what_an_answer_quotes_is_not_part_of_it(body: str, expected: str) -> None:
    if not expected:
        assert waiting(reply(103, "ada", body, trusted=True)) == "waits"
        return
    it = ticket("WAITING", question="?", asked_at=7.4)
    world_now = seen(world(**{"replies/12": (ASKED, reply(103, "ada", body, trusted=True))}))
    assert note(it, world_now)["answers"][0]["answer"] == expected


def test_the_answer_to_a_question_of_an_earlier_ticket_is_no_answer_to_this_one() -> None:
    """An issue that was released and reopened: its old question and the answer below it are still there."""
    it = ticket("WAITING", question="Which database?", asked_at=9000.0)
    assert said(it, seen(world(**{"replies/12": (ASKED, ANSWER)}))) == "waits"
    again = reply(200, "bot", "Which database?", name="question-9000", instance="t", ours=True)
    assert said(it, seen(world(**{"replies/12": (ASKED, ANSWER, again)}))) == "waits"


def test_what_was_said_before_the_question_is_no_answer() -> None:
    assert waiting(reply(99, "ada", "by the way", trusted=True)) == "waits"


def test_a_later_edit_of_an_answer_restarts_nothing() -> None:
    it = ticket("ATTEMPTING", came_from="WAITING", spawned=7, attempt=f"{REPO}/attempt/12.1")
    assert "replies/12" not in (*KIND.wants(it, POLICY), *KIND.alarms(it, POLICY))


def test_an_answer_that_came_while_the_daemon_was_down_counts_once() -> None:
    late = seen(world(**{"replies/12": (ASKED, ANSWER)}), began=NOW)
    it = ticket("WAITING", entered_s=86400, question="?", asked_at=7.4)
    assert said(it, late) == "answered -> ATTEMPTING"
    again = ticket("ATTEMPTING", answers=({"question": "?", "answer": "B", "by": "ada"},), attempts=1)
    assert said(again, seen(free())) == "begins OpenMachine"


def test_a_question_whose_comment_is_not_listed_yet_is_waited_for() -> None:
    it = ticket("WAITING", entered_s=10**7, question="?", asked_at=7.4)
    written = replace(it, changed_at=NOW - 10)
    assert said(written, seen(world(**{"replies/12": (ANSWER,)}))) == "waits"


def test_a_question_that_a_person_deleted_is_not_waited_for_for_ever() -> None:
    """Nor is one that was never written, on an issue whose conversation is locked."""
    asked = ticket("WAITING", entered_s=604799, question="?", asked_at=7.4)
    assert said(asked, seen(world(**{"replies/12": ()}))) == "waits"
    asked = ticket("WAITING", entered_s=604801, question="?", asked_at=7.4)
    assert said(asked, seen(world(**{"replies/12": ()}))) == "expired -> DEFERRED"


def test_nobody_answers_and_it_is_parked_in_writing() -> None:
    assert waiting(entered_s=604799) == "waits"
    assert waiting(entered_s=604801) == "expired -> DEFERRED"


def test_waiting_for_a_person_takes_no_slot() -> None:
    """Three days of waiting, one worker allowed: another ticket is started."""
    other = replace(ticket("ATTEMPTING"), id=f"{REPO}/ticket/13")
    alone = seen(free(slots=Slots(0, (other.id,))), max_workers=1)
    assert said(other, alone) == "begins OpenMachine"
    assert waiting(entered_s=3 * 86400) == "waits"


def test_a_question_is_asked_in_a_new_comment_and_shown_by_a_label() -> None:
    effects = arrives("ticket", "WAITING", seen(), issue=12, question="Which?", asked_at=7.4)
    assert names(effects) == "Comment, Label"
    assert isinstance(effects[0], Comment) and effects[0].name == "question-7"
    assert effects[1] == Label(12, add=("harness:needs-you",), remove=("harness:working",))


# ---------------------------------------------------------------- REVIEWING


def review(state: str, author: str = "ada", sha: str = HEAD) -> Review:
    return Review(1, author, state, "Call it two.", sha, NOW - 5)


@pytest.mark.parametrize(
    ("pull", "reviews", "policy", "data", "expected"),
    [
        (PULL, (), {}, {}, "approved -> LANDING"),
        (PULL, (), {"required_review": "release"}, {}, "approved -> LANDING"),
        (PULL, (), {"required_review": "issue"}, {}, "waits"),
        (PULL, (review("APPROVED"),), {"required_review": "issue"}, {}, "approved -> LANDING"),
        (PULL, (review("COMMENTED"),), {"required_review": "issue"}, {}, "waits"),
        (
            PULL,
            (review("CHANGES_REQUESTED"),),
            {"required_review": "issue"},
            {},
            "changes_requested -> ATTEMPTING",
        ),
        (PULL, (review("CHANGES_REQUESTED", sha=BASE),), {"required_review": "issue"}, {}, "waits"),
        (
            PULL,
            (review("CHANGES_REQUESTED"), review("APPROVED")),
            {"required_review": "issue"},
            {},
            "approved -> LANDING",
        ),
        (
            PULL,
            (review("APPROVED", "bob"), review("CHANGES_REQUESTED")),
            {"required_review": "issue"},
            {},
            "changes_requested -> ATTEMPTING",
        ),
        (replace(PULL, open=False), (), {}, {}, "pull_closed -> BLOCKED"),
        (replace(PULL, open=False, merged=True), (), {}, {}, "approved -> LANDING"),
        (PULL, (), {}, {"lands": "person"}, "waits"),
        (PULL, (review("APPROVED"),), {}, {"lands": "person"}, "waits"),
    ],
)
def test_reviewing(
    pull: Pull, reviews: tuple[Review, ...], policy: dict[str, Any], data: dict[str, Any], expected: str
) -> None:
    it = ticket("REVIEWING", pull=31, head=HEAD, **data)
    assert said(it, seen(world(**{"pull/31": pull, "reviews/31": reviews}), **policy)) == expected


def test_a_review_that_never_comes_needs_a_person() -> None:
    it = ticket("REVIEWING", entered_s=1209601, pull=31, head=HEAD)
    late = seen(world(**{"pull/31": PULL, "reviews/31": ()}), required_review="issue")
    assert said(it, late) == "review_expired -> BLOCKED"


def test_changes_go_to_the_agent_as_a_rework_round() -> None:
    it = ticket("REVIEWING", pull=31, head=HEAD)
    asked = seen(
        world(**{"pull/31": PULL, "reviews/31": (review("CHANGES_REQUESTED"),)}), required_review="issue"
    )
    assert note(it, asked)["counters"] == {"rework": 1}
    assert note(it, asked)["feedback"] == "ada: Call it two."
    _, effects = moved(it, asked)
    assert effects == (
        Label(12, ("harness:working",), ("harness:needs-you", "harness:deferred", "harness:review")),
    )


# ---------------------------------------------------------------- LANDING


def landing(**facts: Any) -> Seen:
    base = {
        "lane": LANE,
        "refs": {"refs/heads/release/0.4.0": BASE, "refs/heads/agent/12": HEAD},
        "pull/31": PULL,
    }
    return seen(world(**{**base, **facts}))


TURN = {"turn": f"{LANE.machine} 7", "pull": 31, "head": HEAD}


def test_tickets_land_one_at_a_time() -> None:
    it = ticket("LANDING", **TURN)
    assert said(it, landing(lane=replace(LANE, turn=f"{REPO}/ticket/1"))) == "waits"
    assert said(it, landing(lane=Lane())) == "waits"
    assert said(it, landing()) == "begins BuildMerge"


def test_at_its_turn_it_looks_at_the_branches_anew() -> None:
    """What was read before the ticket ahead has landed would only be gated in vain."""
    it = ticket("LANDING", pull=31, head=HEAD)
    assert said(it, landing()) == "notes"
    assert note(it, landing()) == {"turn": f"{LANE.machine} 7"}
    next_release = landing(lane=replace(LANE, machine=f"{REPO}/release/0.5.0"))
    assert said(ticket("LANDING", **TURN), next_release) == "notes"


def test_a_pull_that_looks_at_another_release_is_retargeted() -> None:
    old = replace(PULL, base="main")
    assert intents(ticket("LANDING", **TURN), landing(**{"pull/31": old})) == (
        EditPull(31, base="release/0.4.0"),
    )


def test_a_pull_that_a_person_closed_is_not_landed() -> None:
    closed = landing(**{"pull/31": replace(PULL, open=False)})
    assert said(ticket("LANDING", **TURN), closed) == "conflict -> ATTEMPTING"
    then = ticket("ATTEMPTING", **{**TURN, **note(ticket("LANDING", **TURN), closed), "attempts": 1})
    assert said(then, seen(free(**{"pull/31": PULL}))) == "needs_person -> BLOCKED"


def test_what_landed_says_so_and_waits_for_the_release() -> None:
    merge = {"sha": "c" * 40, "tree": "t" * 40, "base": BASE, "head": HEAD}
    pushed = done(Land("release/0.4.0", "c" * 40, BASE), {"landed": True, "why": ""})
    it = ticket("LANDING", pushed, **TURN, merge=merge)
    to, effects = moved(it, landing())
    assert (to, names(effects)) == ("LANDED", "Comment, Label")
    assert "**Landed** with #31 on the branch of release 0.4.0" in effects[0].body  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("failure", "expected"),
    [(Failure.CONFLICT, "conflict -> ATTEMPTING"), (Failure.INFRA_ENGINE, "gate_red -> ATTEMPTING")],
)
def test_what_fails_while_landing_is_charged_once(failure: Failure, expected: str) -> None:
    broken = failed(BuildMerge(BASE, HEAD, "m", NOW), failure, "in words.py")
    it = ticket("LANDING", broken, **TURN)
    assert said(it, landing()) == expected
    assert sum(note(it, landing())["counters"].values()) == 1


# ---------------------------------------------------------------- LANDED and after


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        (peer("release", "OPEN"), "waits"),
        (peer("release", "MERGING"), "waits"),
        (peer("release", "PUBLISHED", tag="v0.4.0", landed=(12,)), "released -> RELEASED"),
        (peer("release", "PUBLISHED", tag="v0.4.0", landed=(13,)), "reverted -> DEFERRED"),
        (peer("release", "ABANDONED"), "reverted -> DEFERRED"),
        (peer("release", "OPEN", reverted=(12,)), "reverted -> DEFERRED"),
        (peer("release", "OPEN", reverted=(13,)), "waits"),
    ],
)
def test_what_has_landed_shares_its_releases_fate(release: Any, expected: str) -> None:
    it = ticket("LANDED", landed_in=LANE.machine, landed_sha="c" * 40)
    assert said(it, seen({f"item/{LANE.machine}": release, "controls": ()})) == expected


def test_the_status_comment_is_kept_up_to_date_to_the_end() -> None:
    it = ticket("LANDED", landed_in=LANE.machine, pull=31, audits=("a1",))
    release = seen(
        {f"item/{LANE.machine}": peer("release", "PUBLISHED", tag="v0.4.0", landed=(12,)), "controls": ()}
    )
    to, effects = moved(it, release)
    assert (to, names(effects)) == ("RELEASED", "Comment")
    assert effects[0].body.startswith("**Released** in v0.4.0, with #31.")  # type: ignore[attr-defined]


def test_without_a_release_train_the_issue_is_closed_at_the_merge() -> None:
    effects = arrives("ticket", "LANDED", seen(), issue=12, lands="person", pull=31, head=HEAD)
    assert names(effects) == "Comment, Label, CloseIssue, DeleteBranch"
    assert effects[0].body.startswith("**Merged** with #31.")  # type: ignore[attr-defined]
    assert effects[2:] == (CloseIssue(12), DeleteBranch("agent/12", HEAD))
    assert said(ticket("LANDED", lands="person"), seen(world())) == "released -> RELEASED"


# ---------------------------------------------------------------- DEFERRED and BLOCKED


def test_a_deferral_is_written_on_the_issue_without_a_notification() -> None:
    effects = arrives("ticket", "DEFERRED", seen(), issue=12, failure="tests_failed", detail="3 failed of 44")
    assert names(effects) == "Comment, Label"
    assert isinstance(effects[0], Comment) and effects[0].name == "status"
    assert "The tests are still red: 3 failed of 44." in effects[0].body
    assert effects[1] == Label(
        12, ("harness:deferred",), ("harness:working", "harness:review", "harness:needs-you")
    )


def test_a_person_who_is_needed_is_told_in_a_comment_of_its_own() -> None:
    effects = arrives(
        "ticket", "BLOCKED", seen(), issue=12, failure="policy_violation", detail="touches ci.yml"
    )
    assert [e.name for e in effects if isinstance(e, Comment)] == [f"blocked-{int(NOW)}", "status"]
    assert "harness retry 12" in effects[0].body  # type: ignore[attr-defined]
    assert effects[-1] == Label(12, ("harness:needs-you",), ("harness:working", "harness:review"))


PARKED = replace(ISSUE, labels=("harness", "harness:deferred"), seen_at=NOW)


@pytest.mark.parametrize("state", ["DEFERRED", "BLOCKED"])
def test_only_a_person_brings_it_back(state: str) -> None:
    ours = "harness:deferred" if state == "DEFERRED" else "harness:needs-you"
    it = ticket(state, attempts=3, counters={"agent": 3}, failure="agent_failed")
    held = replace(ISSUE, labels=("harness", ours), seen_at=NOW)
    assert said(it, seen(world(**{"issue/12": held}))) == "waits"
    off = replace(ISSUE, labels=("harness",), seen_at=NOW)
    assert said(it, seen(world(**{"issue/12": off}))) == "person_retries -> ATTEMPTING"
    asked = world(**{"issue/12": held, "controls": (Control(4, NOW - 1, "retry", {"issue": 12}),)})
    assert said(it, seen(asked)) == "person_retries -> ATTEMPTING"
    other = world(**{"issue/12": held, "controls": (Control(4, NOW - 1, "retry", {"issue": 13}),)})
    assert said(it, seen(other)) == "waits"


def test_a_list_that_is_older_than_our_own_label_brings_nothing_back() -> None:
    off = replace(ISSUE, labels=("harness",), seen_at=NOW - 40)
    assert said(ticket("DEFERRED"), seen(world(**{"issue/12": off}))) == "waits"


def test_one_retry_counts_once_and_starts_from_zero() -> None:
    it = ticket("DEFERRED", attempts=3, counters={"agent": 3}, failure="agent_failed", control=0)
    asked = seen(world(**{"issue/12": PARKED, "controls": (Control(4, NOW - 1, "retry", {"issue": 12}),)}))
    move = heard(it, asked, decide(it, KIND, asked).value)
    fresh = move.note
    assert (fresh["counters"], fresh["attempts"], fresh["offset"], fresh["control"]) == ({}, 0, 3, 4)
    again = ticket("DEFERRED", control=4)
    assert said(again, asked) == "waits"


@pytest.mark.parametrize("state", ["DEFERRED", "BLOCKED", "ATTEMPTING", "REVIEWING"])
def test_no_clock_says_whether_a_command_is_new(state: str) -> None:
    """The wall clock was set back by an hour: what was said before it is not heard again, what is said now is."""
    verb = "retry" if state in ("DEFERRED", "BLOCKED") else "cancel"
    parked = replace(PARKED, labels=(*PARKED.labels, "harness:deferred", "harness:needs-you"))
    old = world(**{"issue/12": parked, "controls": (Control(4, NOW + 3600, verb, {"issue": 12}),)})
    assert said(ticket(state, control=4), seen(old)) != said(ticket(state, control=3), seen(old))
    late = world(**{"issue/12": parked, "controls": (Control(5, NOW - 3600, verb, {"issue": 12}),)})
    assert said(ticket(state, control=4), seen(late)) == said(ticket(state, control=3), seen(old))


def test_what_was_asked_while_it_was_worked_on_is_over_when_it_is_given_up() -> None:
    it = ticket("ATTEMPTING", attempts=3, counters={"agent": 3}, failure="agent_failed")
    facts = seen(free(controls=(Control(4, NOW, "retry", {"issue": 12}),)))
    move = heard(it, facts, decide(it, KIND, facts).value)
    assert (move.event, move.note["control"]) == ("given_up", 4)


# ---------------------------------------------------------------- gone


@pytest.mark.parametrize(
    "state", ["CLAIMING", "ATTEMPTING", "WAITING", "REVIEWING", "LANDING", "DEFERRED", "BLOCKED"]
)
@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"issue/12": Gone("moved to acme/other#3")}, "moved to acme/other#3"),
        ({"issue/12": replace(ISSUE, open=False)}, "the issue was closed"),
        ({"issue/12": replace(ISSUE, labels=("harness:working",))}, "the label harness was taken off"),
        ({"controls": (Control(4, NOW, "cancel", {"issue": 12}),)}, "cancelled by a person"),
    ],
)
def test_an_issue_can_go_at_any_time(state: str, facts: dict[str, Any], expected: str) -> None:
    it = ticket(state)
    assert said(it, seen(world(**facts))) == "gone -> GONE"
    assert why(it, seen(world(**facts))) == expected


def test_labels_compare_as_the_forge_does() -> None:
    loud = world(**{"issue/12": replace(ISSUE, labels=("Harness",))})
    assert KIND.alarm(ticket("WAITING"), seen(loud)) is None


def test_what_cannot_be_read_is_not_gone() -> None:
    assert KIND.alarm(ticket("WAITING"), seen({"controls": ()})) is None


def test_what_has_landed_is_not_taken_back_by_closing_the_issue() -> None:
    closed = seen(world(**{"issue/12": replace(ISSUE, open=False)}))
    assert KIND.alarm(ticket("LANDED"), closed) is None


def test_an_end_by_a_person_takes_our_words_labels_pull_and_branch_back() -> None:
    it = ticket("REVIEWING", pull=31, head=HEAD)
    closed = seen(world(**{"issue/12": replace(ISSUE, open=False)}))
    to, effects = moved(it, closed)
    assert (to, names(effects)) == ("GONE", "Comment, Label, EditPull, DeleteBranch")
    assert effects[0].body == "**Not worked on any more.** The issue was closed.\n"  # type: ignore[attr-defined]
    assert effects[1] == Label(
        12, remove=("harness:working", "harness:review", "harness:needs-you", "harness:deferred")
    )
    assert effects[2:] == (EditPull(31, state="closed"), DeleteBranch("agent/12", HEAD))


def test_a_cancelled_issue_loses_its_label_so_that_it_is_not_taken_again() -> None:
    it = ticket("ATTEMPTING")
    cancelled = seen(world(controls=(Control(4, NOW, "cancel", {"issue": 12}),)))
    _, effects = moved(it, cancelled)
    assert isinstance(effects[1], Label) and effects[1].remove[0] == "harness"


@pytest.mark.parametrize(
    ("state", "failure", "expected"),
    [
        ("CLAIMING", Failure.FORGE_DOWN, "gone -> GONE"),
        ("ATTEMPTING", Failure.INTERNAL_ERROR, "needs_person -> BLOCKED"),
        ("ATTEMPTING", Failure.INFRA_ENGINE, "given_up -> DEFERRED"),
        ("WAITING", Failure.FORGE_DOWN, "expired -> DEFERRED"),
        ("REVIEWING", Failure.FORGE_DOWN, "review_expired -> BLOCKED"),
        ("LANDED", Failure.FORGE_DOWN, "reverted -> DEFERRED"),
    ],
)
def test_what_follows_when_an_effect_failed_for_good(state: str, failure: Failure, expected: str) -> None:
    broken = failed(Label(12), failure, "it would not")
    assert said(ticket(state, broken), seen(world())) == expected


def test_a_ticket_whose_attempts_all_asked_says_so() -> None:
    """Nothing failed, so no class of failure is there to explain it: the questions are."""
    answers = tuple(
        {"question": "Which?", "answer": "This.", "by": "ada"} for _ in range(POLICY.max_attempts)
    )
    it = ticket("ATTEMPTING", attempts=POLICY.max_attempts, answers=answers, question="Which of the two?")
    assert said(it, seen(free())) == "given_up -> DEFERRED"
    given = note(it, seen(free()))
    assert given["failure"] == "question" and given["detail"].endswith("the last was: Which of the two?")


def test_what_landed_in_no_turn_of_its_own_landed_in_the_lane() -> None:
    landed = done(Land("release/0.4.0", "c" * 40, BASE), {"landed": True, "why": ""})
    it = ticket("LANDING", landed, pull=31, merge={"sha": "c" * 40, "tree": "t", "base": BASE, "head": HEAD})
    facts = world(lane=LANE, refs={})
    assert note(it, seen(facts))["landed_in"] == LANE.machine
    assert said(it, seen({**facts, "lane": Lane()})) == "waits"
