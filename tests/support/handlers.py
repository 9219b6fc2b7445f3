"""Handlers as tables: an item in a state, what it sees, and in one line what follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from harness.core.fsm import Move, Stay, step
from harness.core.item import Intent, Item
from harness.core.result import Err, Pass
from harness.effects import Effect
from harness.judgement import begin, decide
from harness.machines.all import CODEC, KINDS
from harness.machines.kind import Peer, Seen
from harness.policy import Policy

REPO = "acme/widget"
NOW = 1_800_000_000.0
POLICY = Policy(repo=REPO, instance="t", commands=("test",), image="img", merge="auto", lag_s=5.0)
NAMES = {"director": "1", "ticket": "12", "attempt": "12.1", "release": "0.4.0", "worker": "12.1"}


def item(kind: str, state: str, *intents: Intent, entered_s: float = 60.0, **data: Any) -> Item[Any]:
    """A machine that has been in its state for `entered_s`; entry and number are 7 and 9."""
    made = KINDS[kind].data(**data)
    at = NOW - entered_s
    name = f"{REPO}/{kind}/{NAMES[kind]}"
    return Item(name, state, made, entered_at=at, entry=7, seq=9, head="h9", changed_at=at, intents=intents)


def done(effect: Effect, value: Any = None, n: int = 0) -> Intent:
    return Intent(n, CODEC.encode(effect), "done", value=value)


def failed(effect: Effect, failure: str, detail: str = "") -> Intent:
    return Intent(0, CODEC.encode(effect), "failed", failure=failure, detail=detail)


def seen(
    facts: Mapping[str, Any] | None = None, *, now: float = NOW, began: float = 0.0, **policy: Any
) -> Seen:
    return Seen(now, replace(POLICY, **policy), began, dict(facts or {}))


def peer(kind: str, state: str, name: str = "", entered_s: float = 60.0, **data: Any) -> Peer:
    made = KINDS[kind].data(**data)
    return Peer(f"{REPO}/{kind}/{name or NAMES[kind]}", state, NOW - entered_s, 7, made)


def judged(it: Item[Any], sn: Seen) -> Move | Stay | Pass:
    """What the machine would do now, a failure already turned into its move."""
    kind = KINDS[it.id.split("/")[-2]]
    alarm = kind.alarm(it, sn)
    if alarm is not None:
        return alarm
    result = decide(it, kind, sn)
    if isinstance(result, Err):
        return kind.fails(it, sn, result)
    return result if isinstance(result, Pass) else result.value


def said(it: Item[Any], sn: Seen) -> str:
    """`event -> STATE`, `begins Effect, Effect`, `notes`, or `waits`."""
    kind = KINDS[it.id.split("/")[-2]]
    result = judged(it, sn)
    if isinstance(result, Pass):
        return "waits"
    if isinstance(result, Stay):
        names = ", ".join(type(e).__name__ for e in result.intents)
        return f"begins {names}" if names else "notes"
    return f"{result.event} -> {step(kind.table, it.state, result.event).unwrap()}"


def intents(it: Item[Any], sn: Seen) -> tuple[Any, ...]:
    """What a state that goes on begins anew."""
    result = judged(it, sn)
    assert isinstance(result, Stay), result
    return result.intents


def note(it: Item[Any], sn: Seen) -> Mapping[str, Any]:
    result = judged(it, sn)
    assert not isinstance(result, Pass), result.message
    return result.note


def why(it: Item[Any], sn: Seen) -> str:
    result = judged(it, sn)
    return result.message if isinstance(result, Pass) else result.why


def arrives(kind: str, state: str, sn: Seen, **data: Any) -> tuple[Effect, ...]:
    """What arriving in this state begins."""
    row = KINDS[kind].table.rows[state]
    it = item(kind, state, entered_s=0.0, **data)
    return tuple(row.begin(it, sn)) if row.begin else ()


def moved(it: Item[Any], sn: Seen) -> tuple[str, tuple[Effect, ...]]:
    """The state after the move, and what arriving there begins."""
    kind = KINDS[it.id.split("/")[-2]]
    move = judged(it, sn)
    assert isinstance(move, Move), move
    to = step(kind.table, it.state, move.event).unwrap()
    return to, begin(it, kind, sn, move, to)


def names(effects: tuple[Effect, ...]) -> str:
    return ", ".join(type(e).__name__ for e in effects)
