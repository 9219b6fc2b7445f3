"""The worker: the class of a failure decides where it goes on, and every way is bounded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from handlers import NOW, POLICY, done, failed, intents, item, note, said, seen, why

from harness.core.item import Item
from harness.domain import AgentResult, News, Run, Unknown, WorkTree
from harness.effects import (
    Commit,
    Exit,
    LoadContext,
    Request,
    SaveWork,
    StartAgent,
    StartValidation,
    StopRun,
    Sync,
)
from harness.failures import RULES, After, Counter, Failure
from harness.machines.worker.states import Worker
from harness.machines.worker.table import KIND

SHA, BASE = "a" * 40, "b" * 40
CLEAN = WorkTree(SHA, BASE, 0)
DIRTY = WorkTree(SHA, BASE, 3, ("a", "b", "c"))
RUN = "run/run-7"


def worker(state: str, *begun: Any, entered_s: float = 60.0, **data: Any) -> Item[Any]:
    return item(
        "worker", state, *begun, entered_s=entered_s, **{"issue": 12, "base": "main", "image": "img1", **data}
    )


def world(**facts: Any) -> dict[str, Any]:
    return {"news": News("v1", "", "img1"), "tree": CLEAN, **facts}


# ---------------------------------------------------------------- UPGRADE_CHECKPOINT


@pytest.mark.parametrize(
    ("news", "tree", "data", "expected"),
    [
        (News("v1", "", "img1"), CLEAN, {}, "current -> SYNC_MAIN"),
        (News("v1", "", ""), CLEAN, {}, "current -> SYNC_MAIN"),
        (News("v1", "", "img2"), CLEAN, {}, "begins Exit"),
        (News("v1", "", "img2"), DIRTY, {}, "begins SaveWork, Exit"),
        (News("v1", "", "img2"), replace(DIRTY, merging=True), {}, "upgrade_deferred -> SYNC_MAIN"),
        (News("v1", "", "img2"), CLEAN, {"checked": "img2"}, "current -> SYNC_MAIN"),
        (News("v1", "", "img3"), CLEAN, {"checked": "img2"}, "begins Exit"),
        (Unknown(), CLEAN, {}, "waits"),
        (News("v1", "", "img2"), Unknown(), {}, "waits"),
    ],
)
def test_the_checkpoint(news: Any, tree: Any, data: dict[str, Any], expected: str) -> None:
    assert said(worker("UPGRADE_CHECKPOINT", **data), seen({"news": news, "tree": tree})) == expected


def test_it_leaves_with_75_and_asks_once_per_digest() -> None:
    it = worker("UPGRADE_CHECKPOINT")
    news = seen(world(news=News("v2", "", "img2"), tree=DIRTY))
    save, leave = intents(it, news)
    assert (save, leave) == (SaveWork("upgrade-9"), Exit(75, "img2"))
    kept = note(it, news)
    assert (kept["checked"], kept["image"], kept["tag"]) == ("img2", "img2", "v2")
    # Going back to the image before is an upgrade like any other.
    there = worker("UPGRADE_CHECKPOINT", image="img2", checked="img2")
    assert said(there, seen(world(news=News("v2", "", "img2")))) == "current -> SYNC_MAIN"
    assert said(there, seen(world(news=News("v3", "", "img1")))) == "begins Exit"


# ---------------------------------------------------------------- SYNC_MAIN, CONTEXT_LOAD


def test_what_a_sync_found_is_told() -> None:
    synced = done(Sync("main"), {"what": "merged", "base_sha": BASE, "conflicts": ("words.py",)})
    assert said(worker("SYNC_MAIN", synced), seen()) == "synced -> CONTEXT_LOAD"
    assert "conflicts left for the agent in words.py" in why(worker("SYNC_MAIN", synced), seen())
    assert said(worker("SYNC_MAIN"), seen()) == "waits"


def test_the_context() -> None:
    loaded = done(LoadContext(12), {"bytes": 100, "hidden": 1})
    assert said(worker("CONTEXT_LOAD", loaded), seen()) == "context_loaded -> CODE"
    assert said(worker("CONTEXT_LOAD"), seen()) == "waits"


# ---------------------------------------------------------------- CODE


def ran(status: str = "done", exit: int = 0, **result: Any) -> Run:
    return Run("run-7", False, exit, result=AgentResult(status, "did it", **result))


@pytest.mark.parametrize(
    ("run", "tree", "expected"),
    [
        (Unknown(), DIRTY, "waits"),
        (Run("run-7", True, progress_at=NOW), DIRTY, "waits"),
        (ran(), DIRTY, "coded -> VALIDATE"),
        (ran(exit=3), DIRTY, "coded -> VALIDATE"),
        (ran(), replace(CLEAN, ahead=1), "coded -> VALIDATE"),
        (ran(), CLEAN, "retryable -> RETRY_WAIT"),
        (ran(), Unknown(), "waits"),
        (ran(question="Which?"), CLEAN, "begins Request"),
        (Run("run-7", False, lost=True), DIRTY, "retryable -> RETRY_WAIT"),
        (Run("run-7", True, started_at=NOW - 1201, progress_at=NOW - 1201), DIRTY, "retryable -> RETRY_WAIT"),
        (Run("run-7", True, started_at=NOW - 1201, progress_at=NOW - 1100), DIRTY, "waits"),
    ],
)
def test_the_agents_run(run: Any, tree: Any, expected: str) -> None:
    assert said(worker("CODE"), seen({RUN: run, "tree": tree})) == expected


@pytest.mark.parametrize(
    ("run", "failure", "word"),
    [
        (Run("run-7", True, started_at=NOW - 1201), Failure.AGENT_STALLED, "no progress for 1201 s"),
        (replace(ran("interrupted", 143), limit="wall"), Failure.TIMEOUT, "longer than it may"),
        (replace(ran("interrupted", 143), limit="output"), Failure.AGENT_FAILED, "OUTPUT_LIMIT"),
        (replace(ran("done", 0), limit="output"), Failure.AGENT_FAILED, "OUTPUT_LIMIT"),
        (ran("interrupted", 143), Failure.INFRA_KILLED, "interrupted"),
    ],
)
def test_each_limit_has_a_reason_of_its_own(run: Run, failure: Failure, word: str) -> None:
    told = note(worker("CODE"), seen({RUN: run, "tree": DIRTY}))
    assert told["failure"] == failure and word in told["detail"]


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        ("rate_limited", Failure.AGENT_RATE_LIMITED),
        ("overloaded", Failure.AGENT_RATE_LIMITED),
        ("quota", Failure.BUDGET_EXHAUSTED),
        ("auth", Failure.AUTH_FAILED),
        ("connection", Failure.INFRA_GATEWAY),
        ("interrupted", Failure.INFRA_KILLED),
        ("timeout", Failure.TIMEOUT),
        ("looped", Failure.AGENT_LOOPED),
        ("error", Failure.AGENT_FAILED),
        ("max_turns", Failure.AGENT_FAILED),
        ("context", Failure.AGENT_FAILED),
        ("sandbox", Failure.AGENT_FAILED),
        ("something new", Failure.AGENT_FAILED),
    ],
)
def test_a_status_of_the_agent_names_a_class(status: str, failure: Failure) -> None:
    assert note(worker("CODE"), seen({RUN: ran(status), "tree": DIRTY}))["failure"] == failure


def test_a_limit_of_the_provider_is_waited_out() -> None:
    it = worker("CODE")
    limited = seen({RUN: ran("rate_limited", retry_after_s=300.0), "tree": DIRTY})
    assert note(it, limited)["not_before"] == NOW + 300
    assert note(it, limited)["counters"] == {"wait": 1}


def test_a_run_that_met_a_gap_is_not_the_agents_failure() -> None:
    started = done(StartAgent("run-7", "scripted", 1), {"gaps": 1})
    gap = replace(ran("error"), gaps=2)
    assert note(worker("CODE", started), seen({RUN: gap, "tree": DIRTY}))["failure"] == Failure.INFRA_GATEWAY
    none = replace(ran("error"), gaps=1)
    assert note(worker("CODE", started), seen({RUN: none, "tree": DIRTY}))["failure"] == Failure.AGENT_FAILED


def test_a_question_is_asked_and_then_a_person_is_needed() -> None:
    it = worker("CODE")
    (ask,) = intents(it, seen({RUN: ran(question="Which?"), "tree": CLEAN}))
    assert ask == Request("ask-7", "ask", {"question": "Which?"})
    asked = worker("CODE", done(ask, {"ok": True}), question="Which?")
    assert said(asked, seen({RUN: ran(question="Which?"), "tree": CLEAN})) == "needs_human -> BLOCKED"


def test_each_entry_starts_a_run_of_its_own_with_the_last_log() -> None:
    row = KIND.table.rows["CODE"]
    assert row.begin is not None
    again = replace(worker("CODE", feedback="3 failed", session="s1", round=1), entry=14)
    assert row.begin(again, seen()) == (StartAgent("run-14", "scripted", 2, "3 failed", "s1"),)


def test_an_agent_that_runs_for_ever_is_out_of_time() -> None:
    it = worker("CODE", entered_s=3601)
    assert (
        said(it, seen({RUN: Run("run-7", True, progress_at=NOW), "tree": DIRTY})) == "retryable -> RETRY_WAIT"
    )
    assert (
        note(it, seen({RUN: Run("run-7", True, progress_at=NOW), "tree": DIRTY}))["failure"]
        == Failure.TIMEOUT
    )


def test_what_hangs_is_ended_before_anything_else_begins() -> None:
    hung = seen({RUN: Run("run-7", True, started_at=NOW - 3000, progress_at=NOW - 2000), "tree": DIRTY})
    endless = seen({RUN: Run("run-7", True, progress_at=NOW)})
    assert note(worker("CODE"), hung)["stop"] == "run-7"
    assert note(worker("VALIDATE", entered_s=7200), endless)["stop"] == "run-7"
    assert note(worker("CODE", stop="run-3"), seen({RUN: ran("error"), "tree": DIRTY}))["stop"] == ""
    row = KIND.table.rows["RETRY_WAIT"]
    assert row.begin is not None
    assert row.begin(worker("RETRY_WAIT", stop="run-7"), seen()) == (StopRun("run-7", POLICY.grace_s),)
    assert row.begin(worker("RETRY_WAIT"), seen()) == ()


# ---------------------------------------------------------------- VALIDATE


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (Unknown(), "waits"),
        (Run("run-7", True), "waits"),
        (Run("run-7", False, 0, commands_run=2), "validated -> COMMIT"),
        (Run("run-7", False, 1, commands_run=2, failed_command="test"), "retryable -> RETRY_WAIT"),
        (Run("run-7", False, 0, commands_run=0), "needs_human -> BLOCKED"),
        (Run("run-7", False, lost=True), "retryable -> RETRY_WAIT"),
        (Run("run-7", False, None, commands_run=1), "retryable -> RETRY_WAIT"),
        # Killed before it said anything: nobody knows what the commands would have come to.
        (Run("run-7", False, 137), "retryable -> RETRY_WAIT"),
        (Run("run-7", False, 143, limit="output"), "retryable -> RETRY_WAIT"),
        (Run("run-7", False, 143, limit="wall"), "retryable -> RETRY_WAIT"),
    ],
)
def test_validation(run: Any, expected: str) -> None:
    assert said(worker("VALIDATE"), seen({RUN: run})) == expected


def test_a_red_validation_goes_back_to_the_agent_at_once_with_its_log() -> None:
    it = worker("VALIDATE")
    red = seen({RUN: Run("run-7", False, 1, commands_run=1, failed_command="make test", log_tail="3 failed")})
    kept = note(it, red)
    assert kept["feedback"] == "make test exited 1\n3 failed"
    assert (kept["back"], kept["not_before"], kept["counters"]) == ("retry_code", NOW, {"rework": 1})


def test_three_rework_rounds_and_no_fourth() -> None:
    red = seen({RUN: Run("run-7", False, 1, commands_run=1, failed_command="test")})
    assert said(worker("VALIDATE", counters={"rework": 2}), red) == "retryable -> RETRY_WAIT"
    assert said(worker("VALIDATE", counters={"rework": 3}), red) == "retries_exhausted -> BLOCKED"


def test_validation_is_what_the_trusted_base_says() -> None:
    row = KIND.table.rows["VALIDATE"]
    assert row.begin is not None
    assert row.begin(worker("VALIDATE", commands=("make",)), seen()) == (StartValidation("run-7", ("make",)),)


# ---------------------------------------------------------------- COMMIT to DONE


def test_a_commit_without_a_change_is_none() -> None:
    empty = done(Commit("m", ("h", "h@x"), NOW), {"sha": SHA, "changed": False})
    assert said(worker("COMMIT", empty), seen()) == "retryable -> RETRY_WAIT"
    full = done(Commit("m", ("h", "h@x"), NOW), {"sha": SHA, "changed": True})
    assert said(worker("COMMIT", full), seen()) == "committed -> PR_CREATE"
    assert said(worker("COMMIT"), seen()) == "waits"


def test_the_worker_asks_the_director_for_everything_outside() -> None:
    begin = KIND.table.rows["PR_CREATE"].begin
    assert begin is not None
    asked = begin(worker("PR_CREATE", sha=SHA, base_sha=BASE), seen())
    assert [(r.name, r.kind) for r in asked] == [(f"publish-{SHA}", "publish"), (f"pull-{SHA}", "open_pull")]
    assert said(worker("PR_CREATE"), seen()) == "waits"
    assert said(worker("PR_CREATE", pull=31), seen()) == "pr_opened -> REVIEW_REQUEST"
    assert said(worker("REVIEW_REQUEST", pull=31), seen()) == "review_requested -> DONE"


# ---------------------------------------------------------------- RETRY_WAIT and the ends

ORDER = [
    "retry_upgrade",
    "retry_sync",
    "retry_context",
    "retry_code",
    "retry_validate",
    "retry_commit",
    "retry_pr",
]
STATES = ["UPGRADE_CHECKPOINT", "SYNC_MAIN", "CONTEXT_LOAD", "CODE", "VALIDATE", "COMMIT", "PR_CREATE"]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("failure", [f for f in Failure if RULES[f].retried])
def test_a_retry_goes_back_to_the_earlier_of_here_and_what_its_class_asks_for(
    state: str, failure: Failure
) -> None:
    it = worker(state, failed(Sync("main"), failure, "it would not"))
    back = note(it, seen(world()))["back"]
    here, asked = ORDER[STATES.index(state)], RULES[failure].back_to
    assert back == min((here, asked), key=ORDER.index)
    ready = worker("RETRY_WAIT", back=back, not_before=NOW, tag="v1")
    assert said(ready, seen(world())) == f"{back} -> {STATES[ORDER.index(back)]}"


@pytest.mark.parametrize("failure", list(Failure))
def test_every_class_ends_as_its_rule_says(failure: Failure) -> None:
    r = RULES[failure]
    ends = {After.FATAL: "fatal", After.PERSON: "needs_human", After.GIVE_UP: "fatal"}
    broken = failed(Sync("main"), failure, "it would not")
    if not r.retried:
        assert said(worker("CODE", broken), seen(world())) == f"{ends[r.after]} -> BLOCKED"
        return
    assert said(worker("CODE", broken), seen(world())) == "retryable -> RETRY_WAIT"
    if r.counter is Counter.NOBODY:
        spent = worker("CODE", broken, counters={"nobody": 1000})
        assert said(spent, seen(world())) == "retryable -> RETRY_WAIT"
        return
    spent = worker("CODE", broken, counters={str(r.counter): POLICY.bound(r.counter)})
    last = "needs_human" if r.after is After.PERSON else "retries_exhausted"
    assert said(spent, seen(world())) == f"{last} -> BLOCKED"


def test_it_waits_as_long_as_it_must() -> None:
    it = worker("RETRY_WAIT", back="retry_code", not_before=NOW + 4, tag="v1")
    assert said(it, seen(world())) == "waits"
    assert why(it, seen(world())) == "again in 5 s"
    assert said(it, seen(world(), now=NOW + 4)) == "retry_code -> CODE"


def test_after_a_release_it_goes_through_the_checkpoint() -> None:
    it = worker("RETRY_WAIT", back="retry_code", not_before=NOW, tag="v0")
    assert said(it, seen(world())) == "retry_upgrade -> UPGRADE_CHECKPOINT"
    assert note(it, seen(world()))["tag"] == "v1"
    unheard = worker("RETRY_WAIT", back="retry_code", not_before=NOW, tag="v0")
    assert said(unheard, seen({})) == "retry_code -> CODE"


@pytest.mark.parametrize("state", [*STATES, "RETRY_WAIT"])
def test_it_stops_when_it_is_told_to(state: str) -> None:
    told = seen(world(news=News("v1", "", "img1", stop=True)))
    assert said(worker(state), told) == "fatal -> BLOCKED"
    assert note(worker(state), told)["failure"] == Failure.GONE


def test_what_the_outcomes_say_is_remembered() -> None:
    from harness.core.journal import Record
    from harness.machines.worker.states import fold

    def outcome(effect: str, value: Any, status: str = "done") -> Record:
        body = {"intent": 0, "effect": effect, "status": status, "value": value}
        return Record("m", 1, NOW, 1, "0", "outcome", body, "", "")

    d = fold(Worker(), outcome("Sync", {"base_sha": BASE, "conflicts": ("x",)}))
    assert (d.base_sha, d.conflicts) == (BASE, ("x",))
    assert fold(Worker(), outcome("Commit", {"sha": SHA})).sha == SHA
    assert fold(Worker(), outcome("StartAgent", {})).round == 1
    assert fold(Worker(), outcome("Request", {"pull": 31})).pull == 31
    assert fold(Worker(), outcome("Commit", {"sha": SHA}, "failed")).sha == ""
