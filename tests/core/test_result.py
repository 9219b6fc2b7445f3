"""Results compose, and only what may be unwrapped is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.result import Code, Err, IllegalTransitionError, Ok, Pass, Result, UnwrapError

VALUES = st.integers()
FUNCTIONS: st.SearchStrategy[Callable[[int], int]] = st.sampled_from([lambda x: x + 1, lambda x: x * 2, abs])
STEPS: st.SearchStrategy[Callable[[int], Result[int]]] = st.sampled_from(
    [lambda x: Ok(x + 1), lambda x: Err("infra_engine", "no"), lambda x: Pass("later"), lambda x: Ok(-x)]
)
RESULTS = st.one_of(VALUES.map(Ok), st.just(Err("oom", "137")), st.just(Pass("not yet")))


@given(r=RESULTS)
def test_mapping_the_identity_changes_nothing(r: Any) -> None:
    assert r.map(lambda x: x) == r


@given(r=RESULTS, f=FUNCTIONS, g=FUNCTIONS)
def test_mapping_twice_is_mapping_both(r: Any, f: Any, g: Any) -> None:
    assert r.map(f).map(g) == r.map(lambda x: g(f(x)))


@given(x=VALUES, f=STEPS)
def test_binding_a_value_is_calling(x: int, f: Any) -> None:
    assert Ok(x).bind(f) == f(x)


@given(r=RESULTS)
def test_binding_ok_changes_nothing(r: Any) -> None:
    assert r.bind(Ok) == r


@given(r=RESULTS, f=STEPS, g=STEPS)
def test_binding_is_associative(r: Any, f: Any, g: Any) -> None:
    assert r.bind(f).bind(g) == r.bind(lambda x: f(x).bind(g))


@given(r=st.one_of(st.just(Err("oom")), st.just(Pass("later"))))
def test_what_did_not_happen_is_not_gone_on_with(r: Any) -> None:
    def never(x: Any) -> Any:
        raise AssertionError("called")

    assert r.map(never) is r
    assert r.bind(never) is r


def test_fold_takes_the_one_road() -> None:
    def told(r: Any) -> str:
        return str(r.fold(lambda v: f"ok {v}", lambda e: f"err {e.failure}", lambda p: f"wait {p.message}"))

    assert [told(r) for r in (Ok(1), Err("oom"), Pass("x"))] == ["ok 1", "err oom", "wait x"]
    with pytest.raises(UnwrapError, match="waiting: x"):
        Pass("x").fold(lambda v: v, lambda e: e)


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (Code.INVALID_TRANSITION, IllegalTransitionError),
        (Code.TERMINAL_STATE_VIOLATION, IllegalTransitionError),
        (Code.MISSING_TRANSITION_DEFINITION, IllegalTransitionError),
        (Code.TRANSIENT_ERROR, UnwrapError),
        ("oom", UnwrapError),
    ],
)
def test_unwrapping_a_failure_says_which(code: str, raised: type[Exception]) -> None:
    with pytest.raises(raised, match=f"{code}: why"):
        Err(code, "why").unwrap()


def test_unwrapping() -> None:
    assert Ok(3).unwrap() == 3
    with pytest.raises(UnwrapError, match="waiting: soon"):
        Pass("soon").unwrap()


def test_only_the_transient_code_is_retryable() -> None:
    assert [c for c in Code if Err(c).retryable] == [Code.TRANSIENT_ERROR]
    assert (Ok(1).is_ok, Err("x").is_ok, Pass().is_ok) == (True, False, False)
    assert {c.value for c in Code} == {
        "INVALID_TRANSITION",
        "TERMINAL_STATE_VIOLATION",
        "MISSING_TRANSITION_DEFINITION",
        "TRANSIENT_ERROR",
    }
