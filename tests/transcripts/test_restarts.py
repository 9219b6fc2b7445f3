"""Nights in which the director dies again and again: bounds hold, and an answer counts once."""

from __future__ import annotations

import pytest
from plays import ada, doing, in_state, published
from story import Story


def agent_starts(s: Story) -> int:
    """Runs of the agent in all workers' journals."""
    stores = [x.turns.ticker.world.store for x in s.crew.living.values()]
    records = [r for store in stores for m in store.machines() for r in store.read(m)]
    return sum(1 for r in records if r.body.get("effect") == "StartAgent" and r.body["status"] == "done")


@pytest.mark.parametrize("every_s", [7, 20, 45])
def test_agent_starts_are_bounded_across_restarts(every_s: int) -> None:
    """The agent fails whenever it runs, and the director is restarted all the time."""
    s = Story({1: [{"exit": 1, "status": "error", "say": "no"}]}, max_retries=3)
    ada(s, "Add a parser")
    for _ in range(200):
        if in_state("ticket/1", "DEFERRED")(s):
            break
        s.wait(every_s)
        s.crash()
        s.wait(1)
    s.run(lambda n: n.item("ticket/1").open_intent is None)
    assert agent_starts(s) == 3
    ours = [c.body for _, c in s.hub.comments.values()]
    assert len(ours) == 1 and ours[0].startswith("**Not in this release.**")
    assert "harness:deferred" in s.hub.issues[1].labels
    s.wait(600)
    assert agent_starts(s) == 3
    s.store.control("retry", {"issue": 1})
    s.run(lambda n: agent_starts(s) == 4)


def test_an_answer_given_while_the_director_is_down_counts_once() -> None:
    s = Story({1: [{"question": "Which?"}, {"write": {"db": "1"}}]})
    ada(s, "Add a store")
    s.run(in_state("ticket/1", "WAITING"))
    s.wait(30)
    s.crash(down_s=60.0)
    s.hub.person_comments("ada", 1, "Postgres")
    s.wait(70)
    s.crash()
    s.run(published())
    answered = [r for r in s.store.read("acme/widget/ticket/1") if r.body.get("event") == "answered"]
    assert len(answered) == 1
    assert agent_starts(s) == 2


def test_a_person_who_takes_days_holds_no_slot() -> None:
    """One worker allowed: the other issue is done while this one waits for its answer."""
    s = Story({1: [{"question": "Which?"}]}, max_workers=1)
    ada(s, "Add a store", "Add a printer")
    s.run(in_state("ticket/2", "LANDED"))
    assert in_state("ticket/1", "WAITING")(s)
    s.rest_s = 3600.0
    s.run(in_state("ticket/1", "DEFERRED"), limit_s=8 * 86400.0)
    assert s.item("ticket/1").data.detail == "nobody answered in time"


@pytest.mark.parametrize("state", ["CODE", "VALIDATE", "PR_CREATE", "REVIEW_REQUEST"])
def test_a_worker_outlives_its_director(state: str) -> None:
    s = Story()
    ada(s, "Add a parser")
    s.run(doing("1.1", state))
    s.crash(down_s=20.0)
    s.run(published())
    assert agent_starts(s) == 1
    assert [r.body["to"] for r in s.store.read("acme/widget/attempt/1.1") if r.body.get("event")] == [
        "STARTING",
        "RUNNING",
        "HARVESTING",
        "CLEANING",
        "CLOSED",
    ]
