"""When a release is settled: everything in it has landed, or is deferred with a written reason,
or time is up."""

from __future__ import annotations

from harness.core.item import Item
from harness.domain import Entry
from harness.machines.release.states import Release
from harness.policy import Policy

ACTIVE = frozenset({"CLAIMING", "ATTEMPTING", "REVIEWING", "LANDING"})
PARKED = frozenset({"DEFERRED", "BLOCKED"})


def landed_in(machine: str, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    return tuple(e for e in entries if e.landed_in == machine and e.state in ("LANDED", "RELEASED"))


def not_in(machine: str, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """What people must be told about: every ticket that is still alive and not in this release."""
    return tuple(e for e in entries if not e.landed_in and e.state not in ("RELEASED", "GONE"))


def settled(item: Item[Release], entries: tuple[Entry, ...], now: float, policy: Policy) -> bool:
    """Something landed, nothing is under way any more;
    after the cut-off what is under way is carried over."""
    if not landed_in(item.id, entries):
        return False
    cut = now - item.entered_at > policy.cutoff_s
    waiting = any(e.state == "WAITING" for e in entries)
    active = any(e.state in ACTIVE for e in entries)
    return cut or not (active or waiting)
