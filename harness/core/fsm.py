"""Machines as literal tables, checked when they are imported.

The one rule: what may follow a state stands in its row and nowhere else. A table is copied and frozen;
no caller can change a machine's rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from harness.core.result import Code, Err, Ok, Result


class TableError(Exception):
    """A table that cannot work: the message names the machine and the states."""


@dataclass(frozen=True, slots=True)
class Move:
    """What `watch` says when its state has ended: the event, the reason for people, and what to remember."""

    event: str
    why: str = ""
    note: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stay:
    """What `watch` says when the state goes on but something new is to be begun (or remembered): a transition
    without a move. Its record has no event, and `from` equals `to`."""

    intents: tuple[Any, ...] = ()
    why: str = ""
    note: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """One state: what entering it begins, how to watch for its end, which moves may follow, within what time.

    `begin(item, seen) -> tuple[Effect, ...]` and `watch(item, seen) -> Result[Move | Stay]` are pure.
    `within` names a timeout of the policy; the core measures it, so that no handler handles time.
    """

    begin: Callable[..., tuple[Any, ...]] | None = None
    watch: Callable[..., Result[Any]] | None = None
    moves: Mapping[str, str] = field(default_factory=dict)
    within: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A machine's rules. `final` states have empty rows;
    `anywhere` moves are allowed from every other state."""

    name: str
    states: tuple[str, ...]
    start: str
    final: frozenset[str]
    rows: Mapping[str, Row]
    anywhere: Mapping[str, str]

    def targets(self, state: str) -> Mapping[str, str]:
        """Event to next state, for everything that may happen in `state`."""
        if state in self.final:
            return {}
        return {**self.anywhere, **self.rows[state].moves}

    def moves(self) -> list[tuple[str, str, str]]:
        """All (from, event, to), in the order of the table; `*` stands for "any"."""
        rows = [(s, e, t) for s in self.states for e, t in self.rows[s].moves.items()]
        return rows + [("*", e, t) for e, t in self.anywhere.items()]


def table(
    name: str,
    states: type[StrEnum],
    start: str,
    rows: Mapping[Any, Row],
    *,
    final: Iterable[str],
    anywhere: Mapping[Any, Any] | None = None,
) -> Table:
    """Build and check a table; raises `TableError` with one clear line naming the states."""
    names = tuple(str(s.value) for s in states)
    frozen_rows = {
        str(s): Row(
            r.begin, r.watch, MappingProxyType({str(e): str(t) for e, t in r.moves.items()}), r.within
        )
        for s, r in rows.items()
    }
    made = Table(
        name,
        names,
        str(start),
        frozenset(str(s) for s in final),
        MappingProxyType(frozen_rows),
        MappingProxyType({str(e): str(t) for e, t in (anywhere or {}).items()}),
    )
    _check(made)
    return made


def _check(t: Table) -> None:
    def refuse(what: str, states: Iterable[str]) -> None:
        found = sorted(states)
        if found:
            raise TableError(f"machine {t.name}: {what}: {', '.join(found)}")

    known = set(t.states)
    refuse("state with no row", known - set(t.rows))
    refuse("row for an unknown state", set(t.rows) - known)
    refuse("unknown start state", {t.start} - known)
    refuse("unknown final state", t.final - known)
    refuse("final state with moves", {s for s in t.final if t.rows[s].moves})
    refuse("state that only ends but is not final", {s for s in known - t.final if not t.targets(s)})
    nowhere = {
        f"{s} --{e}--> {to}" for s in known - t.final for e, to in t.targets(s).items() if to not in known
    }
    refuse("event leading nowhere", nowhere)
    refuse("unreachable state", known - _closure(t.start, lambda s: t.targets(s).values()))
    back: dict[str, set[str]] = {s: set() for s in known}
    for s in known - t.final:
        for to in t.targets(s).values():
            back[to].add(s)
    ends: set[str] = set()
    for f in t.final:
        ends |= _closure(f, lambda s: back[s])
    refuse("state that cannot reach a final state", known - ends)


def _closure(start: str, after: Callable[[str], Iterable[str]]) -> set[str]:
    seen, todo = {start}, [start]
    while todo:
        for nxt in after(todo.pop()):
            if nxt not in seen:
                seen.add(nxt)
                todo.append(nxt)
    return seen


def step(t: Table, state: str, event: str) -> Result[str]:
    """The table decides: the next state, or an `Err` with one of the codes of `harness.core.result.Code`."""
    if state not in t.rows:
        return Err(Code.MISSING_TRANSITION_DEFINITION, f"{t.name} has no state {state}")
    if state in t.final:
        return Err(Code.TERMINAL_STATE_VIOLATION, f"{t.name} ended in {state}; {event} cannot follow")
    to = t.rows[state].moves.get(event) or t.anywhere.get(event)
    if to is None:
        valid = ", ".join(sorted(t.targets(state)))
        return Err(Code.INVALID_TRANSITION, f"{t.name} in {state} does not know {event}; valid: {valid}")
    return Ok(to)


@dataclass(frozen=True, slots=True)
class Machine:
    """A table with a state and a history, as a value: `send` returns the next one."""

    table: Table
    state: str
    history: tuple[tuple[str, str, str], ...] = ()

    @classmethod
    def new(cls, t: Table) -> Machine:
        return cls(t, t.start)

    @property
    def is_final(self) -> bool:
        return self.state in self.table.final

    def can(self, event: str) -> bool:
        return str(event) in self.table.targets(self.state)

    def send(self, event: str) -> Result[Machine]:
        return step(self.table, self.state, str(event)).map(
            lambda to: Machine(self.table, to, (*self.history, (self.state, str(event), to)))
        )
