"""The attempt: no sign is believed alone, nothing is left behind, a request goes no further than it may."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from handlers import (
    NOW,
    POLICY,
    REPO,
    arrives,
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
from harness.core.journal import Record
from harness.domain import Absent, Ask, Beat, Control, Lane, Status
from harness.effects import Clone, OpenPull, OpenSocket, Publish, RemoveJob, StartWorker, StopJob
from harness.failures import Failure
from harness.machines.attempt.states import job_names, worker_name
from harness.machines.attempt.table import KIND

TICKET = f"{REPO}/ticket/12"
SHA, BASE = "a" * 40, "b" * 40
DATA: dict[str, Any] = {
    "code": "12.1",
    "ticket": TICKET,
    "issue": 12,
    "branch": "agent/12",
    "base": "release/0.4.0",
    "base_sha": BASE,
    "image": "img",
    "engine": "engine/1",
    "pull_title": "Add it",
    "pull_body": "Refs #12",
}


def attempt(state: str, *intents: Any, entered_s: float = 60.0, **data: Any) -> Item[Any]:
    return item("attempt", state, *intents, entered_s=entered_s, **{**DATA, **data})


JOB = worker_name(attempt("RUNNING"), REPO, "t")
HARVEST = "h-t-acme-widget-12-1-harvest"


def running(**facts: Any) -> dict[str, Any]:
    """A worker that lives, in a release that is open."""
    return {
        f"job/{JOB}": Status(JOB, "RUNNING", engine="engine/1", progress_at=NOW - 1),
        "beat/12.1": Beat(NOW - 1, "CODE", 1),
        "words/12.1": Beat(NOW, "", 0),
        "asked/12.1": (),
        "capped/12.1": "",
        "lane": Lane(f"{REPO}/release/0.5.0", "0.5.0", "release/0.5.0"),
        f"item/{TICKET}": peer("ticket", "ATTEMPTING"),
        "controls": (),
        **facts,
    }


def ended(exit: int | None, phase: str = "EXITED", **more: Any) -> Status:
    return Status(JOB, phase, exit, engine=more.pop("engine", "engine/1"), **more)


def beat(final: str = "", failure: str = "", reason: str = "", **more: Any) -> Beat:
    return Beat(NOW - 1, final or "CODE", 1, final=final, failure=failure, reason=reason, **more)


# ---------------------------------------------------------------- to RUNNING


def test_what_comes_before_any_outside_text_is_prepared_from_the_trusted_base() -> None:
    plain = arrives("attempt", "PREPARING", seen(), **DATA)
    assert names(plain) == "Clone, WriteBrief"
    with_dependencies = arrives(
        "attempt", "PREPARING", seen(prepare=("install",)), **DATA, prepare="prepare-1"
    )
    assert names(with_dependencies) == "StartPrepare, Clone, WriteBrief"
    assert with_dependencies[0].sha == BASE


def test_work_that_was_published_before_is_gone_on_with() -> None:
    effects = arrives("attempt", "PREPARING", seen(), **DATA, start_sha=SHA)
    assert effects[0] == Clone("12.1", SHA, "agent/12", "release/0.4.0")


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (None, "waits"),
        (Absent("prepare-1"), "failed -> HARVESTING"),
        (Status("prepare-1", "RUNNING"), "waits"),
        (Status("prepare-1", "EXITED", 0), "prepared -> STARTING"),
        (Status("prepare-1", "EXITED", 1), "failed -> HARVESTING"),
    ],
)
def test_dependencies(job: Any, expected: str) -> None:
    it = attempt("PREPARING", prepare="prepare-1")
    assert said(it, seen({"job/prepare-1": job} if job else {})) == expected


def test_without_dependencies_it_starts_at_once() -> None:
    to, effects = moved(attempt("PREPARING"), seen())
    assert to == "STARTING"
    assert effects == (OpenSocket("12.1", 1), StartWorker(JOB, "12.1", 1, "img"))


def test_each_state_has_its_time() -> None:
    slow = attempt("PREPARING", entered_s=1801, prepare="prepare-1")
    world = seen({"job/prepare-1": Status("prepare-1", "RUNNING")})
    assert said(slow, world) == "failed -> HARVESTING"
    assert note(slow, world)["failure"] == Failure.TIMEOUT


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (Failure.IMAGE_UNAVAILABLE, "failed -> HARVESTING"),
        (Failure.INTERNAL_ERROR, "internal_error -> HARVESTING"),
    ],
)
@pytest.mark.parametrize("state", ["PREPARING", "STARTING", "RUNNING"])
def test_an_effect_that_failed_is_harvested_with_its_class(
    state: str, failure: Failure, expected: str
) -> None:
    broken = failed(StartWorker(JOB, "12.1", 1, "img"), failure, "no such image")
    it = attempt(state, broken)
    assert said(it, seen(running())) == expected
    assert note(it, seen(running()))["failure"] == failure


# ---------------------------------------------------------------- how it ends


@pytest.mark.parametrize(
    ("job", "heard", "published", "expected", "outcome", "failure"),
    [
        (ended(0), beat("DONE"), True, "exited -> HARVESTING", "done", ""),
        # "Done" with nothing pushed is not done.
        (ended(0), beat("DONE"), False, "exited -> HARVESTING", "failed", "agent_no_changes"),
        (ended(10), beat("BLOCKED", "tests_failed"), False, "exited -> HARVESTING", "failed", "tests_failed"),
        (ended(11), beat("BLOCKED", "auth_failed"), False, "exited -> HARVESTING", "failed", "auth_failed"),
        (ended(70), beat(), False, "exited -> HARVESTING", "failed", "internal_error"),
        (ended(137, oom=True), beat(), False, "exited -> HARVESTING", "failed", "oom"),
        (ended(127), None, False, "exited -> HARVESTING", "failed", "config_invalid"),
        (ended(75), beat(), False, "upgrade -> STARTING", None, None),
        (ended(137), beat(), False, "infra_lost -> STARTING", None, None),
        (ended(None, "LOST"), beat(), False, "infra_lost -> STARTING", None, None),
        (ended(143, engine="engine/2"), beat(), False, "infra_lost -> STARTING", None, None),
        (Absent(JOB), beat(), False, "infra_lost -> STARTING", None, None),
    ],
)
def test_an_end(
    job: Any, heard: Beat | None, published: bool, expected: str, outcome: str | None, failure: str | None
) -> None:
    it = attempt("RUNNING", **({"head": SHA, "pull": 31} if published else {}))
    world = seen(running(**{f"job/{JOB}": job, "beat/12.1": heard}))
    assert said(it, world) == expected
    if outcome is not None:
        assert (note(it, world)["outcome"], note(it, world)["failure"]) == (outcome, failure)


def test_a_worker_that_is_done_is_not_given_the_reason_of_an_earlier_round() -> None:
    it = attempt("RUNNING", head=SHA, pull=31)
    heard = beat("DONE", "tests_failed", "test exited 1")
    world = seen(running(**{f"job/{JOB}": ended(0), "beat/12.1": heard}))
    assert why(it, world) == "it says that it is done"
    blocked = seen(running(**{f"job/{JOB}": ended(10), "beat/12.1": beat("BLOCKED", "oom", "too large")}))
    assert why(it, blocked) == "too large"


def test_the_words_of_an_earlier_incarnation_do_not_count() -> None:
    it = attempt("RUNNING", head=SHA, pull=31, incarnation=2)
    name = worker_name(it, REPO, "t")
    old = seen(running(**{f"job/{name}": Status(name, "EXITED", 137), "beat/12.1": beat("DONE")}))
    assert said(it, old) == "infra_lost -> STARTING"


def test_it_is_started_again_in_bounds_and_then_it_failed() -> None:
    killed = seen(running(**{f"job/{JOB}": ended(137)}), infra_retries=3)
    assert note(attempt("RUNNING", infra=1), killed)["infra"] == 2
    spent = attempt("RUNNING", infra=2)
    assert said(spent, killed) == "exited -> HARVESTING"
    assert note(spent, killed)["failure"] == Failure.INFRA_KILLED


def test_an_engine_that_restarted_is_charged_to_nobody() -> None:
    gone = seen(running(**{f"job/{JOB}": ended(143, engine="engine/2")}))
    assert note(attempt("RUNNING", infra=1), gone)["infra"] == 1


def test_a_question_is_a_question_whatever_the_exit_code() -> None:
    it = attempt("RUNNING", question="Which?")
    world = seen(running(**{f"job/{JOB}": ended(11), "beat/12.1": beat("BLOCKED", "question", "Which?")}))
    assert note(it, world)["outcome"] == "question"


def test_the_last_words_are_kept_as_testimony() -> None:
    it = attempt("RUNNING", head=SHA, pull=31)
    heard = beat("DONE", seq=57, head="h57", counters={"rework": 2})
    kept = note(it, seen(running(**{f"job/{JOB}": ended(0), "beat/12.1": heard})))
    assert (kept["witnessed"], kept["witnessed_seq"], kept["counters"]) == ("h57", 57, {"rework": 2})


# ---------------------------------------------------------------- while it lives


@pytest.mark.parametrize(
    ("beat_s", "progress_s", "began_s", "expected"),
    [
        (1, 1, 3600, "waits"),
        (91, 1, 3600, "waits"),
        (1, 3600, 3600, "waits"),
        (91, 91, 3600, "stalled -> HARVESTING"),
        # After a restart of the director the age of a heartbeat is counted anew.
        (91, 91, 30, "waits"),
        (None, 3600, 3600, "stalled -> HARVESTING"),
    ],
)
def test_stale_is_said_only_by_several_signs(
    beat_s: float | None, progress_s: float, began_s: float, expected: str
) -> None:
    it = attempt("RUNNING", entered_s=3000)
    job = Status(JOB, "RUNNING", engine="engine/1", progress_at=NOW - progress_s)
    heard = Beat(NOW - beat_s, "CODE", 1) if beat_s is not None else None
    world = seen(running(**{f"job/{JOB}": job, "beat/12.1": heard}), began=NOW - began_s)
    assert said(it, world) == expected


@pytest.mark.parametrize(
    ("looked_s", "expected"), [(119, "waits"), (31, "waits"), (1, "stalled -> HARVESTING")]
)
def test_a_look_from_before_a_standstill_of_ours_says_nothing_of_now(looked_s: float, expected: str) -> None:
    it = attempt("RUNNING", entered_s=3000)
    job = Status(JOB, "RUNNING", engine="engine/1", progress_at=NOW - 120, seen_at=NOW - looked_s)
    world = seen(running(**{f"job/{JOB}": job, "beat/12.1": Beat(NOW - 120, "CODE", 1)}), began=NOW - 3600)
    assert said(it, world) == expected


def test_its_time_is_up() -> None:
    it = attempt("RUNNING", entered_s=3601)
    assert said(it, seen(running())) == "timed_out -> HARVESTING"
    assert note(it, seen(running()))["asked_stop"] == "timeout"


@pytest.mark.parametrize(
    ("entered_s", "served_s", "published", "expected"),
    [
        (3601, 60, False, "timed_out -> HARVESTING"),
        (3601, 60, True, "waits"),  # the forge took that long, not the worker
        (9000, 3599, True, "waits"),
        (9000, 3601, True, "timed_out -> HARVESTING"),
        (86400 + 3601, 60, True, "timed_out -> HARVESTING"),
    ],
)
def test_the_time_that_a_delivery_took_is_not_its(
    entered_s: float, served_s: float, published: bool, expected: str
) -> None:
    it = replace(
        attempt("RUNNING", entered_s=entered_s, head=SHA if published else ""), changed_at=NOW - served_s
    )
    assert said(it, seen(running())) == expected


def test_a_container_that_cannot_be_looked_at_is_waited_for() -> None:
    assert said(attempt("RUNNING"), seen({**running(), f"job/{JOB}": seen()["x"]})) == "waits"


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({f"item/{TICKET}": peer("ticket", "GONE")}, "stop -> HARVESTING"),
        ({f"item/{TICKET}": peer("ticket", "DEFERRED")}, "stop -> HARVESTING"),
        ({f"item/{TICKET}": peer("ticket", "ATTEMPTING")}, "waits"),
        ({"controls": (Control(1, NOW - 5000, "stop-workers"),)}, "stop -> HARVESTING"),
        ({"controls": (Control(0, NOW + 9, "stop-workers"),)}, "waits"),
        ({"capped/12.1": "the attempt's budget of $5 is used up"}, "failed -> HARVESTING"),
    ],
)
def test_it_is_stopped_from_outside(facts: dict[str, Any], expected: str) -> None:
    assert said(attempt("RUNNING"), seen(running(**facts))) == expected


# ---------------------------------------------------------------- its requests


def asks(kind: str, **args: Any) -> dict[str, Any]:
    return running(**{"asked/12.1": (Ask(f"{kind}-1", kind, args),)})


def test_a_publish_goes_to_the_attempts_own_branch() -> None:
    it = attempt("RUNNING")
    world = seen(asks("publish", sha=SHA, base_sha=BASE, bundle="f" * 64, branch="main"))
    assert said(it, world) == "begins Publish"
    assert intents(it, world) == (Publish("12.1", 12, SHA, BASE, "agent/12", "f" * 64),)


def test_a_pull_is_opened_only_for_what_was_published() -> None:
    assert said(attempt("RUNNING"), seen(asks("open_pull"))) == "notes"
    assert note(attempt("RUNNING"), seen(asks("open_pull")))["answers"]["open_pull-1"]["ok"] is False


def test_a_pull_goes_to_the_release_that_is_open_now() -> None:
    it = attempt("RUNNING", head=SHA)
    world = seen(asks("open_pull"))
    assert intents(it, world) == (OpenPull("agent/12", "release/0.5.0", "Add it", "Refs #12", "pull-12"),)
    assert note(it, world)["base"] == "release/0.5.0"
    person = {f"item/{TICKET}": peer("ticket", "ATTEMPTING", lands="person")}
    assert intents(it, seen({**asks("open_pull"), **person}))[0].base == "release/0.4.0"


def test_between_two_releases_it_waits_and_is_still_watched_over() -> None:
    it = attempt("RUNNING", head=SHA)
    none = {**asks("open_pull"), "lane": Lane()}
    assert why(it, seen(none)) == "waiting for a release to open the pull for"
    died = seen({**none, f"job/{JOB}": ended(137)})
    assert said(it, died) == "infra_lost -> STARTING"
    late = replace(it, entered_at=NOW - 3601, changed_at=NOW - 3601)
    assert said(late, seen(none)) == "timed_out -> HARVESTING"


def test_a_question_is_kept_and_answered_at_once() -> None:
    kept = note(attempt("RUNNING"), seen(asks("ask", question="Which?")))
    assert kept["question"] == "Which?"
    assert kept["answers"] == {"ask-1": {"ok": True}}


def test_what_was_answered_is_not_served_twice() -> None:
    it = attempt("RUNNING", answers={"publish-1": {"ok": True}})
    assert said(it, seen(asks("publish", sha=SHA, base_sha=BASE, bundle="f"))) == "waits"


# ---------------------------------------------------------------- HARVESTING and CLEANING always run


def test_what_never_ran_is_not_harvested_from_a_container() -> None:
    assert arrives("attempt", "HARVESTING", replace(seen(), now=NOW), **{**DATA, "engine": ""}) == ()
    it = attempt("HARVESTING", engine="")
    assert said(it, seen()) == "harvested -> CLEANING"


def test_a_worker_whose_start_was_not_heard_of_is_ended_all_the_same() -> None:
    """The engine started it and its answer was lost, or the director died before it wrote that down."""
    body = {"from": "PREPARING", "event": "prepared", "to": "STARTING", "note": {}}
    begun = Record(f"{REPO}/attempt/12.1", 2, NOW, 1, "", "transition", body, "", "")
    data = KIND.fold(attempt("PREPARING", engine="").data, begun)
    kept = {name: getattr(data, name) for name in (*DATA, "tried")}
    assert KIND.table.rows["HARVESTING"].begin(attempt("HARVESTING", **kept), seen()) == (StopJob(JOB, 10.0),)
    effects = arrives("attempt", "CLEANING", seen(), **kept)
    assert {e.name for e in effects if isinstance(e, RemoveJob)} == {JOB, HARVEST}


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (Status(HARVEST, "RUNNING"), "waits"),
        (Status(HARVEST, "EXITED", 0), "harvested -> CLEANING"),
        (Status(HARVEST, "EXITED", 1), "harvested -> CLEANING"),
        (Absent(HARVEST), "harvested -> CLEANING"),
        (None, "waits"),
    ],
)
def test_harvesting(job: Any, expected: str) -> None:
    assert said(attempt("HARVESTING"), seen({f"job/{HARVEST}": job} if job else {})) == expected


def test_harvesting_is_bounded_in_time_and_by_failures() -> None:
    slow = attempt("HARVESTING", entered_s=301)
    assert said(slow, seen({f"job/{HARVEST}": Status(HARVEST, "RUNNING")})) == "harvested -> CLEANING"
    broken = attempt("HARVESTING", failed(StartWorker("x", "12.1", 1, "img"), Failure.DISK_FULL))
    assert said(broken, seen()) == "harvested -> CLEANING"


def test_cleaning_takes_away_every_incarnation_and_may_be_denied() -> None:
    effects = arrives("attempt", "CLEANING", seen(), **DATA, incarnation=3)
    assert names(effects) == (
        "KeepWork, SealBundle, RemoveJob, RemoveJob, RemoveJob, RemoveJob, ShutSocket, Discard"
    )
    it = attempt("CLEANING", incarnation=3)
    assert [e.name for e in effects if hasattr(e, "name")] == list(job_names(it, REPO, "t"))
    denied = attempt(
        "CLEANING", failed(Clone("12.1", SHA, "b", "m"), Failure.INFRA_KILLED, "permission denied")
    )
    assert said(denied, seen()) == "cleanup_denied -> CLOSED"
    assert "permission denied" in note(denied, seen())["warning"]


def test_nothing_stops_harvesting_and_cleaning() -> None:
    for state in ("HARVESTING", "CLEANING"):
        assert KIND.alarms(attempt(state), POLICY) == ()
        gone = seen(
            {f"item/{TICKET}": peer("ticket", "GONE"), "controls": (Control(1, NOW, "stop-workers"),)}
        )
        assert KIND.alarm(attempt(state), gone) is None
