"""What the director cannot reach now, and what keeps it from planning a release, for `harness status` and the
page: written down when it changes.

The one rule: it tells and decides nothing. Who waits for what is the machines' affair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harness.adapters.store.errors import StoreError
from harness.ports import Store
from harness.texts.issues import first_line

KEY = "outages"
HELD_KEY = "plan-waits"
PLANS = frozenset({"BOOT", "RELEASE_PLAN"})
EVERY_S = 1.0
NAMES = {
    "runtime": "the container engine",
    "forge": "the forge",
    "git": "the forge's git",
    "model": "the model",
}
Found = Mapping[str, tuple[float, str]]


class Outages:
    """`look` answers what cannot be reached, by port, `held` for what the next release's planning waits. What the
    store says of an earlier director is forgotten."""

    def __init__(self, store: Store, look: Callable[[], Found], held: Callable[[], str] = str) -> None:
        self._store, self._look, self._held = store, look, held
        self._told: dict[str, Any] = {}
        self._next = 0.0

    def take(self, now: float) -> None:
        if 0.0 <= self._next - now <= EVERY_S:
            return
        self._next = now + EVERY_S
        found = {
            port: {"since": at, "why": first_line(why)} for port, (at, why) in sorted(self._look().items())
        }
        for key, value in ((KEY, found), (HELD_KEY, first_line(self._held()))):
            if key in self._told and self._told[key] == value:
                continue
            try:
                self._store.put(key, value)
            except StoreError:
                return  # the loop tells of that itself, and asks again
            self._told[key] = value


def lines(kept: Any, now: float) -> list[str]:
    """For people: what has been out of reach, for how long, and why."""
    told = kept if isinstance(kept, Mapping) else {}
    return [
        f"{NAMES.get(port, port)} is out of reach for {max(int(now - float(x['since'])), 0)} s: {x['why']}"
        for port, x in told.items()
    ]
