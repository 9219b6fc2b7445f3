"""Delays and bounds are values: the same tries give the same delay, and nothing here waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.retry import Backoff, exhausted

MODES = ("exponential", "linear", "fixed")


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("exponential", [1, 2, 4, 8, 16, 30, 30]),
        ("linear", [1, 2, 3, 4, 5, 6, 7]),
        ("fixed", [1, 1, 1, 1, 1, 1, 1]),
    ],
)
def test_delays(mode: str, expected: list[float]) -> None:
    assert [Backoff(mode, 1.0, 30.0).delay_s(n) for n in range(1, 8)] == expected


def test_a_first_delay_and_a_cap_of_ones_own() -> None:
    assert [Backoff("exponential", 0.5, 3.0).delay_s(n) for n in range(1, 6)] == [0.5, 1, 2, 3, 3]
    assert [Backoff("linear", 2.0, 5.0).delay_s(n) for n in range(1, 5)] == [2, 4, 5, 5]


@given(
    mode=st.sampled_from(MODES),
    tries=st.integers(0, 10_000),
    seed=st.text(max_size=5),
    jitter=st.floats(0.0, 10.0),
)
def test_a_delay_is_bounded_and_the_same_for_the_same_seed(
    mode: str, tries: int, seed: str, jitter: float
) -> None:
    backoff = Backoff(mode, 1.0, 30.0, jitter)
    delay = backoff.delay_s(tries, seed)
    assert 0 < delay <= 30.0 + jitter
    assert delay == backoff.delay_s(tries, seed)


@given(mode=st.sampled_from(MODES), tries=st.integers(1, 500))
def test_a_later_try_never_waits_less(mode: str, tries: int) -> None:
    backoff = Backoff(mode, 1.0, 30.0)
    assert backoff.delay_s(tries) <= backoff.delay_s(tries + 1)


def test_jitter_spreads_machines() -> None:
    backoff = Backoff("fixed", 1.0, 30.0, 5.0)
    assert len({backoff.delay_s(1, f"machine/{n}") for n in range(20)}) > 15


def test_an_unknown_mode_is_named() -> None:
    with pytest.raises(ValueError, match="retry mode 'fibonacci': expected exponential, linear or fixed"):
        Backoff("fibonacci").delay_s(1)


@pytest.mark.parametrize(
    ("tries", "most", "expected"),
    [(0, 3, False), (2, 3, False), (3, 3, True), (4, 3, True), (0, 0, True), (0, -1, True), (1, 1, True)],
)
def test_a_bound_is_used_up(tries: int, most: int, expected: bool) -> None:
    assert exhausted(tries, most) is expected
