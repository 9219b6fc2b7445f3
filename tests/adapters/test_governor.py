"""The governor: caps, spacing, penalties and what survives a restart. Time is an argument throughout."""

from __future__ import annotations

import json
import random
import threading
from typing import Any

import pytest

from harness.adapters.governor import GITHUB_LIMITS, READ, WRITE, Governor, Grant
from harness.adapters.store.errors import StoreError
from harness.core.budget import Limits
from harness.core.result import Err, Ok
from harness.failures import Failure

START = 1_800_000_000.0


class Hands:
    """A clock that a test moves."""

    def __init__(self, at: float = START) -> None:
        self.at = at

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


class Shelf:
    """A store that only takes what JSON can hold, and counts what is put."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.puts = 0

    def get(self, key: str) -> Any | None:
        return json.loads(self.kept[key]) if key in self.kept else None

    def put(self, key: str, value: Any) -> None:
        self.kept[key] = json.dumps(value, allow_nan=False)
        self.puts += 1


class Full(Shelf):
    """One that cannot be written to for a while."""

    full = False

    def put(self, key: str, value: Any) -> None:
        if self.full:
            raise StoreError("database or disk is full")
        super().put(key, value)


def make(
    clock: Hands, shelf: Shelf, limits: dict[str, Limits] | None = None, concurrent: int = 4
) -> Governor:
    return Governor(shelf.get, shelf.put, clock, limits or dict(GITHUB_LIMITS), concurrent)


def granted(g: Governor, resource: str = WRITE, priority: int = 1) -> Grant:
    r = g.enter(resource, priority)
    assert isinstance(r, Ok), r
    g.leave(r.value)
    return r.value


def refused(g: Governor, resource: str = WRITE, priority: int = 1) -> Err:
    r = g.enter(resource, priority)
    assert isinstance(r, Err), r
    assert r.failure == Failure.FORGE_RATE_LIMITED
    assert not r.maybe
    assert r.not_before is not None
    return r


def test_spacing_is_our_own_and_says_when() -> None:
    clock = Hands()
    g = make(clock, Shelf())
    granted(g)
    err = refused(g)
    assert err.detail.startswith("own:")
    assert err.not_before == START + 1.0
    clock.at = START + 1.0
    granted(g)


def test_a_resource_without_limits_is_granted() -> None:
    g = make(Hands(), Shelf())
    for _ in range(50):
        granted(g, "model.request")


@pytest.mark.parametrize(("cap", "span"), [("per_minute", 60.0), ("per_hour", 3600.0)])
def test_caps_free_up_as_grants_age(cap: str, span: float) -> None:
    clock = Hands()
    g = make(clock, Shelf(), {READ: Limits(reserve=0.0, **{cap: 3})})
    for _ in range(3):
        granted(g, READ)
        clock.at += 1
    err = refused(g, READ)
    assert err.not_before == START + span
    clock.at = err.not_before + 0.001
    granted(g, READ)


def test_the_reserve_is_for_priority_zero() -> None:
    g = make(Hands(), Shelf(), {READ: Limits(per_hour=10, reserve=0.2)})
    for _ in range(8):
        granted(g, READ)
    refused(g, READ)
    granted(g, READ, priority=0)
    granted(g, READ, priority=0)
    refused(g, READ, priority=0)


def test_concurrency_counts_all_resources_of_the_credential_and_a_lost_grant_expires() -> None:
    clock = Hands()
    g = make(clock, Shelf(), {READ: Limits()}, concurrent=2)
    first = g.enter(READ).unwrap()
    g.enter("model.request").unwrap()
    err = refused(g, READ)
    assert err.detail == "own: 2 calls are under way"
    g.leave(first)
    g.leave(first)
    g.enter(READ).unwrap()
    refused(g, READ)
    clock.at += 601
    g.enter(READ).unwrap()


def test_a_penalty_without_words_starts_at_a_minute_and_doubles() -> None:
    clock = Hands()
    g = make(clock, Shelf())
    waits = []
    for _ in range(8):
        grant = granted(g)
        until = g.penalty(WRITE, began=grant.at)
        err = refused(g)
        assert err.detail.startswith("forge:")
        assert err.not_before == until
        waits.append(until - clock.at)
        clock.at = until
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_the_other_sides_words_win() -> None:
    clock = Hands()
    g = make(clock, Shelf())
    assert g.penalty(WRITE, retry_after_s=7) == START + 7
    assert g.penalty([READ, WRITE], reset_at=START + 1465) == START + 1466
    assert refused(g, READ).not_before == START + 1466
    assert g.penalty(WRITE, retry_after_s=1) == START + 1466, "a penalty only ever moves later"


def test_calls_refused_together_are_one_strike() -> None:
    clock = Hands()
    g = make(clock, Shelf(), {READ: Limits()})
    grants = [g.enter(READ).unwrap() for _ in range(4)]
    ends = {g.penalty(READ, began=x.at) for x in grants}
    assert ends == {START + 60}


def test_success_starts_small_again_but_not_one_from_before() -> None:
    clock = Hands()
    g = make(clock, Shelf())
    early = granted(g)
    clock.at += 5
    g.penalty(WRITE)
    g.success(WRITE, began=early.at)
    clock.at += 60
    g.penalty(WRITE)
    assert refused(g).not_before == clock.at + 120
    clock.at += 120
    g.success(WRITE, began=granted(g).at)
    assert g.penalty(WRITE) == clock.at + 60


def test_a_penalty_of_one_resource_leaves_the_others_alone() -> None:
    g = make(Hands(), Shelf())
    g.penalty(WRITE)
    granted(g, READ)
    refused(g, WRITE)


def test_a_restart_knows_penalties_strikes_and_grants() -> None:
    clock, shelf = Hands(), Shelf()
    g = make(clock, shelf)
    granted(g)
    clock.at += 2
    g.penalty(WRITE)
    again = make(clock, shelf)
    assert refused(again).not_before == clock.at + 60
    clock.at += 60
    granted(again)
    assert again.penalty(WRITE) == clock.at + 120, "the strike was remembered"


def test_a_crash_loop_cannot_exceed_the_caps() -> None:
    """Every life is killed without a word after a few calls; the log of grants never exceeds a cap."""
    dice = random.Random(7)
    clock, shelf = Hands(), Shelf()
    limits = {READ: Limits(per_minute=40, per_hour=300, reserve=0.0), WRITE: Limits(gap_s=1.0, per_minute=20)}
    log: dict[str, list[float]] = {READ: [], WRITE: []}
    for _ in range(700):
        g = make(clock, shelf, limits)
        for _ in range(dice.randrange(1, 12)):
            resource = dice.choice([READ, READ, READ, WRITE])
            if isinstance(g.enter(resource), Ok):
                log[resource].append(clock.at)
            clock.at += dice.choice([0.0, 0.01, 0.3])
    for resource, cap, span in ((READ, 40, 60.0), (READ, 300, 3600.0), (WRITE, 20, 60.0)):
        times = log[resource]
        assert times
        for i in range(len(times) - cap):
            assert times[i + cap] - times[i] >= span - 1e-6
    assert all(b - a >= 1.0 - 1e-6 for a, b in zip(log[WRITE], log[WRITE][1:], strict=False))


def test_reads_are_written_down_cheaply_and_a_clean_stop_is_exact() -> None:
    clock, shelf = Hands(), Shelf()
    g = make(clock, shelf, {READ: Limits(per_minute=100, reserve=0.0)})
    for _ in range(9):
        granted(g, READ)
    assert shelf.puts == 1
    g.flush()
    again = make(clock, shelf, {READ: Limits(per_minute=100, reserve=0.0)})
    assert again.snapshot()["resources"][READ]["used_minute"] == 9


def test_a_clock_set_back_closes_nothing_for_longer_than_it_was_meant() -> None:
    clock, shelf = Hands(), Shelf()
    g = make(clock, shelf)
    granted(g)
    g.penalty(WRITE, retry_after_s=30)
    clock.at -= 86_400
    err = refused(g)
    assert err.not_before == clock.at + 30
    clock.at += 31
    granted(g)


def test_snapshot_says_what_a_person_wants_to_know() -> None:
    clock = Hands()
    g = make(clock, Shelf())
    g.enter(READ).unwrap()
    g.penalty(WRITE, retry_after_s=90)
    seen = g.snapshot()
    assert json.loads(json.dumps(seen)) == seen
    assert seen["active"] == 1
    assert seen["resources"][READ]["used_minute"] == 1
    assert seen["resources"][WRITE]["closed_until"] == START + 90
    assert seen["resources"][READ]["closed_until"] is None


def test_threads_together_get_no_more_than_the_cap() -> None:
    g = make(Hands(), Shelf(), {READ: Limits(per_minute=100, reserve=0.0)}, concurrent=64)
    got: list[int] = []

    def ask() -> None:
        for _ in range(50):
            r = g.enter(READ)
            if isinstance(r, Ok):
                got.append(r.value.id)
                g.leave(r.value)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(got) == 100
    assert len(set(got)) == 100


def test_a_full_disk_takes_no_leave_away_and_is_caught_up_with() -> None:
    clock, shelf = Hands(), Full()
    g = make(clock, shelf, concurrent=2)
    shelf.full = True
    for _ in range(5):
        granted(g, READ)
    g.penalty((READ,), retry_after_s=5.0)
    assert isinstance(g.enter(READ), Err)
    clock.at += 6.0
    granted(g, READ)
    g.success(READ)
    g.flush()
    shelf.full = False
    granted(g, READ)
    clock.at += 2.0
    granted(g, READ)
    assert make(clock, shelf).snapshot()["resources"][READ]["used_hour"] >= 8
