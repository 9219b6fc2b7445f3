"""What every machine's folder offers, and what its handlers are given.

The one rule: everything a decision needs is in its arguments. `Seen` is a plain value that a journal can
keep, so a decision can be replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.core.codec import Codec
from harness.core.fsm import Move, Stay, Table
from harness.core.item import Item
from harness.core.journal import Record
from harness.core.result import Err, Ok, Pass, Result
from harness.domain import VALUES, Control, Gate, Peer, Unknown
from harness.effects import EFFECTS
from harness.policy import VALUES as POLICY_VALUES
from harness.policy import Policy

NOT_ASKED = Unknown("not read yet")


@dataclass(frozen=True, slots=True)
class Seen:
    """What a handler may know: the time, the policy,
    and facts by query (see `harness.looks` for the queries)."""

    now: float
    policy: Policy
    epoch_began: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, query: str) -> Any:
        return self.facts.get(query, NOT_ASKED)


Watch = Result[Move | Stay]


@dataclass(frozen=True, slots=True)
class Kind:
    """One machine's rules and readings.

    `wants(item, policy)` names the queries that `watch` needs in this state, `alarms` those of the moves that
    are allowed from anywhere; `alarm(item, seen)` answers such a move or None; `fails(item, seen, err)` turns
    a failure into the move that its class asks for. `rest(data)` is what others may still ask of one that is
    over; the remainder is in its journal.
    """

    name: str
    table: Table
    data: type
    fold: Callable[[Any, Record], Any]
    wants: Callable[[Item[Any], Policy], tuple[str, ...]]
    fails: Callable[[Item[Any], Seen, Err], Move]
    alarms: Callable[[Item[Any], Policy], tuple[str, ...]] = lambda item, policy: ()
    alarm: Callable[[Item[Any], Seen], Move | None] = lambda item, seen: None
    rest: Callable[[Any], Any] = lambda data: data


def ok(event: str, why: str = "", **note: Any) -> Ok[Move | Stay]:
    return Ok(Move(str(event), why, note))


def stay(*intents: Any, why: str = "", **note: Any) -> Ok[Move | Stay]:
    return Ok(Stay(intents, why, note))


def asked(seen: Seen, data: Any, *verbs: str) -> tuple[Control, ...]:
    """The commands of these verbs that this machine has not heard yet (`data.control` is the last it has)."""
    controls = seen["controls"]
    return tuple(c for c in controls if c.verb in verbs and c.id > data.control) if known(controls) else ()


def known(value: Any) -> bool:
    return not isinstance(value, Unknown)


def wait(what: str, value: Any = None) -> Pass:
    return Pass(f"{what}: {value.why}" if isinstance(value, Unknown) and value.why else what)


def codec(*data: type) -> Codec:
    """The codec of journals: the nouns, the verbs, what handlers see, and the machines' own data."""
    return Codec((*VALUES, *EFFECTS, *POLICY_VALUES, *data))


__all__ = ["Gate", "Kind", "Peer", "Seen", "Watch", "asked", "codec", "known", "ok", "stay", "wait"]
