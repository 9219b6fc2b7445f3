"""Tables are checked when they are made, cannot be changed by anybody, and decide every step."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest

from harness.core.fsm import Machine, Row, Table, TableError, step, table
from harness.core.result import Code, Err, IllegalTransitionError, Ok


class S(StrEnum):
    NEW = "NEW"
    BUSY = "BUSY"
    STUCK = "STUCK"
    DONE = "DONE"


class E(StrEnum):
    BEGIN = "begin"
    END = "end"
    STOP = "stop"


def made(rows: dict[Any, Row] | None = None, **changed: Any) -> Table:
    good = {
        S.NEW: Row(moves={E.BEGIN: S.BUSY}),
        S.BUSY: Row(moves={E.END: S.DONE, "fail": S.STUCK}),
        S.STUCK: Row(moves={E.BEGIN: S.BUSY}),
        S.DONE: Row(),
    }
    return table(
        "toy",
        changed.pop("states", S),
        changed.pop("start", S.NEW),
        {**good, **(rows or {})},
        **{"final": (S.DONE,), **changed},
    )


class One(StrEnum):
    NEW = "NEW"
    DONE = "DONE"
    LOST = "LOST"


@pytest.mark.parametrize(
    ("rows", "changed", "message"),
    [
        ({S.BUSY: Row(moves={E.END: S.DONE})}, {}, "machine toy: unreachable state: STUCK"),
        (
            {S.STUCK: Row(moves={"again": S.STUCK})},
            {},
            "machine toy: state that cannot reach a final state: STUCK",
        ),
        ({S.STUCK: Row()}, {}, "machine toy: state that only ends but is not final: STUCK"),
        ({S.DONE: Row(moves={E.BEGIN: S.BUSY})}, {}, "machine toy: final state with moves: DONE"),
        (
            {S.NEW: Row(moves={E.BEGIN: "NOWHERE"})},
            {},
            "machine toy: event leading nowhere: NEW --begin--> NOWHERE",
        ),
        ({"EXTRA": Row()}, {}, "machine toy: row for an unknown state: EXTRA"),
        ({}, {"start": "ELSEWHERE"}, "machine toy: unknown start state: ELSEWHERE"),
        ({}, {"final": (S.DONE, "OVER")}, "machine toy: unknown final state: OVER"),
        ({}, {"anywhere": {E.STOP: "OVER"}}, "machine toy: event leading nowhere: BUSY --stop--> OVER, "),
    ],
)
def test_a_table_that_cannot_work_is_refused_by_name(rows: Any, changed: Any, message: str) -> None:
    with pytest.raises(TableError) as refused:
        made(rows, **changed)
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


def test_a_state_without_a_row_is_refused() -> None:
    with pytest.raises(TableError, match=r"^machine toy: state with no row: LOST$"):
        table(
            "toy", One, One.NEW, {One.NEW: Row(moves={"end": One.DONE}), One.DONE: Row()}, final=(One.DONE,)
        )


def test_an_event_from_anywhere_reaches_too() -> None:
    rows = {S.BUSY: Row(moves={E.END: S.DONE})}
    t = made(rows, anywhere={E.STOP: S.STUCK})
    assert step(t, "NEW", "stop") == Ok("STUCK")
    assert t.targets("NEW") == {"begin": "BUSY", "stop": "STUCK"}
    assert t.targets("DONE") == {}


def test_a_caller_cannot_change_the_rules() -> None:
    mine = {E.BEGIN: S.BUSY}
    anywhere: dict[Any, Any] = {E.STOP: S.DONE}
    t = made({S.NEW: Row(moves=mine)}, anywhere=anywhere)
    mine[E.BEGIN] = S.DONE
    anywhere.clear()
    assert step(t, "NEW", "begin") == Ok("BUSY")
    assert step(t, "NEW", "stop") == Ok("DONE")
    for change in (
        lambda: t.rows.__setitem__("NEW", Row()),  # type: ignore[attr-defined]
        lambda: t.rows["NEW"].moves.__setitem__("x", "DONE"),  # type: ignore[attr-defined]
        lambda: t.anywhere.__setitem__("x", "DONE"),  # type: ignore[attr-defined]
        lambda: setattr(t, "start", "DONE"),
        lambda: setattr(t.rows["NEW"], "moves", {}),
    ):
        with pytest.raises((TypeError, AttributeError)):
            change()
    assert t == made({S.NEW: Row(moves={E.BEGIN: S.BUSY})}, anywhere={E.STOP: S.DONE})


def test_targets_are_a_copy() -> None:
    t = made()
    dict(t.targets("NEW")).clear()
    t.targets("NEW").clear()  # type: ignore[attr-defined]
    assert t.targets("NEW") == {"begin": "BUSY"}


def test_an_unknown_event_is_refused_with_the_valid_ones_in_order() -> None:
    t = made(anywhere={E.STOP: S.DONE})
    refused = step(t, "BUSY", "begin")
    assert refused == Err(Code.INVALID_TRANSITION, "toy in BUSY does not know begin; valid: end, fail, stop")
    with pytest.raises(IllegalTransitionError, match="INVALID_TRANSITION"):
        refused.unwrap()


def test_nothing_follows_an_end() -> None:
    refused = step(made(anywhere={E.STOP: S.DONE}), "DONE", "stop")
    assert isinstance(refused, Err) and refused.failure == Code.TERMINAL_STATE_VIOLATION
    assert refused.detail == "toy ended in DONE; stop cannot follow"


def test_a_state_that_is_none() -> None:
    refused = step(made(), "LOST", "end")
    assert refused == Err(Code.MISSING_TRANSITION_DEFINITION, "toy has no state LOST")


def test_a_machine_is_a_value() -> None:
    first = Machine.new(made())
    second = first.send(E.BEGIN).unwrap()
    third = second.send("end").unwrap()
    assert (first.state, second.state, third.state) == ("NEW", "BUSY", "DONE")
    assert first.history == ()
    assert third.history == (("NEW", "begin", "BUSY"), ("BUSY", "end", "DONE"))
    assert (first.can(E.BEGIN), first.can(E.END), third.can(E.BEGIN)) == (True, False, False)
    assert (first.is_final, third.is_final) == (False, True)
    assert isinstance(third.send("begin"), Err)
    assert isinstance(first.send("end"), Err)


def test_moves_are_listed_in_the_order_of_the_table() -> None:
    t = made(anywhere={E.STOP: S.DONE})
    assert t.moves() == [
        ("NEW", "begin", "BUSY"),
        ("BUSY", "end", "DONE"),
        ("BUSY", "fail", "STUCK"),
        ("STUCK", "begin", "BUSY"),
        ("*", "stop", "DONE"),
    ]
