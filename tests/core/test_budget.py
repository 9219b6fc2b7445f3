"""Budgets: replaying what was granted, no cap is ever exceeded, and a penalty only moves later."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.budget import HOUR_S, MINUTE_S, Budget, Limits

NOW = 1_800_000_000.0
STEPS = st.lists(
    st.tuples(st.floats(0.0, 40.0), st.integers(0, 2), st.sampled_from(["take", "take", "take", "penalty", "success"])),
    min_size=1,
    max_size=80,
)  # fmt: skip
CAPS = st.builds(
    Limits,
    gap_s=st.sampled_from([0.0, 2.0]),
    per_minute=st.sampled_from([0, 1, 5, 10]),
    per_hour=st.sampled_from([0, 3, 20]),
    cooldown_s=st.just(60.0),
    reserve=st.sampled_from([0.0, 0.1, 0.5]),
)


def played(limits: Limits, steps: list[tuple[float, int, str]]) -> tuple[Budget, list[tuple[float, int]]]:
    budget, at, granted = Budget("github.write", limits), NOW, []
    for passed_s, priority, what in steps:
        at += passed_s
        if what == "take":
            budget, again = budget.take(at, priority)
            if again is None:
                granted.append((at, priority))
            else:
                assert again > at
        elif what == "penalty":
            budget = budget.penalty(at)
        else:
            budget = budget.success()
    return budget, granted


@given(limits=CAPS, steps=STEPS)
def test_no_cap_is_ever_exceeded(limits: Limits, steps: Any) -> None:
    _, granted = played(limits, steps)
    times = [at for at, _ in granted]
    for i, at in enumerate(times):
        for cap, span in ((limits.per_minute, MINUTE_S), (limits.per_hour, HOUR_S)):
            if cap:
                assert sum(1 for t in times[: i + 1] if t > at - span) <= cap
        if limits.gap_s and i:
            assert at - times[i - 1] >= limits.gap_s


@given(limits=CAPS, steps=STEPS)
def test_the_last_part_of_a_cap_is_kept_for_what_matters(limits: Limits, steps: Any) -> None:
    _, granted = played(limits, steps)
    for i, (at, priority) in enumerate(granted):
        if priority > 0 and limits.per_minute:
            usable = int(limits.per_minute * (1 - limits.reserve)) or limits.per_minute
            assert sum(1 for t, _ in granted[:i] if t > at - MINUTE_S) < usable


@given(limits=CAPS, steps=STEPS)
def test_asking_again_when_told_to_is_granted(limits: Limits, steps: Any) -> None:
    budget, _ = played(limits, steps)
    at = NOW + sum(s for s, _, _ in steps)
    again = budget.take(at, 1)[1]
    for _ in range(200):
        if again is None:
            return
        at = again
        again = budget.take(at, 1)[1]
    raise AssertionError(f"it never becomes ready: {budget}")


@given(st.lists(st.tuples(st.floats(0, 100), st.sampled_from([None, 0.0, 5.0, 90.0])), max_size=10))
def test_a_penalty_only_moves_later(penalties: list[tuple[float, float | None]]) -> None:
    budget, at = Budget("r", Limits()), NOW
    for passed_s, after_s in penalties:
        at += passed_s
        worse = budget.penalty(at, after_s)
        assert worse.closed_until >= budget.closed_until
        assert worse.take(at)[1] is None or worse.take(at)[1] >= worse.closed_until  # type: ignore[operator]
        budget = worse


def test_the_forges_own_words_win_and_without_them_the_wait_doubles() -> None:
    b = Budget("r", Limits(cooldown_s=60.0, cooldown_max_s=200.0))
    assert b.penalty(NOW, retry_after_s=7.0).closed_until == NOW + 7
    assert b.penalty(NOW, reset_at=NOW + 30).closed_until == NOW + 31
    waits = []
    for _ in range(4):
        b = b.penalty(NOW)
        waits.append(b.closed_until - NOW)
    assert waits == [60, 120, 200, 200]
    assert b.success().strikes == 0
    assert b.success().closed_until == b.closed_until


def test_what_is_old_is_forgotten() -> None:
    b = Budget("r", Limits(per_hour=2), grants=(NOW - 3700, NOW - 3601))
    b, again = b.take(NOW)
    assert again is None and b.grants == (NOW,)


@pytest.mark.parametrize(("priority", "expected"), [(0, None), (1, NOW + 60)])
def test_liveness_does_not_starve_behind_polling(priority: int, expected: float | None) -> None:
    b = Budget("r", Limits(per_minute=10, reserve=0.1), grants=tuple([NOW] * 9))
    assert b.take(NOW, priority)[1] == expected
