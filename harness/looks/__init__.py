"""Looks: reads of the outside on their own rhythm, and what our own machines say of each other.

The one rule: a look counts for a machine only if it was begun after that machine's last record; else, or when
it failed, it is `Unknown`. A hung engine or a limited forge never stops the loop: reads run in a pool.
Queries are texts, `kind` or `kind/what`; each kind has one line in `READERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from harness.core.item import Item
from harness.core.result import Err, Ok, Result
from harness.domain import Unknown
from harness.failures import Failure
from harness.looks.own import LOCAL, Own, entry
from harness.looks.readers import READERS, Reading, trusted
from harness.ports import World

KEPT_LIMIT = 5_000
# An answer that nobody wanted for so long belongs to what is over; whoever wants it after all reads it again.
UNWANTED_S = 300.0
# What says of a port, and not of what was asked for, that it cannot be used now.
DOWN = frozenset({Failure.INFRA_ENGINE, Failure.FORGE_DOWN, Failure.AUTH_FAILED})
SILENT_S = 5.0  # an engine answers at once, or hangs


@dataclass
class _Kept:
    value: Any = None
    begun: float = -1.0
    ended: float = -1.0
    reading: bool = False
    asked: float = 0.0
    wanted: float = 0.0
    bad: int = 0
    not_before: float = 0.0


@dataclass
class Looks:
    """Answers queries from what was read last, and reads again what is due. `start(port, do)` runs a read in
    a pool (or at once); `rhythm_s` is how old the answers of readers with age 0 may get."""

    world: World
    own: Own
    start: Callable[[str, Callable[[], None]], bool]
    rhythm_s: Callable[[str], float]
    wake: Callable[[], None] = lambda: None
    kept: dict[str, _Kept] = field(default_factory=dict)
    down: dict[str, tuple[float, str]] = field(default_factory=dict)
    tidied: float = 0.0

    def see(self, item: Item[Any], query: str) -> Any:
        head, _, rest = query.partition("/")
        if head in LOCAL:
            return self.own.answer(query)
        head = _head(query)
        reading = READERS[head]
        now = self.world.clock.now()
        self._tidy(now)
        if query not in self.kept and len(self.kept) >= KEPT_LIMIT:
            self._forget()
        kept = self.kept.setdefault(query, _Kept())
        kept.wanted = now
        # A record from the future was written before the clock was set back: every look of ours is younger.
        changed = item.changed_at if item.changed_at <= now else self.world.epoch_began
        after = changed if reading.fresh else -1.0
        age = reading.age_s or self.rhythm_s(head)
        stale = kept.begun < 0 or kept.bad > 0 or now - kept.begun >= age or kept.begun <= after
        if reading.final(kept.value) and kept.begun >= max(after, 0.0) and not kept.bad:
            stale = False
        if stale and not kept.reading and now >= kept.not_before:
            self._read(query, reading, rest, kept)
        if kept.begun < 0 or kept.begun <= after:
            return Unknown(kept.value.why if isinstance(kept.value, Unknown) else "not read yet")
        return kept.value if isinstance(kept.value, Unknown) else reading.joined(self.own, kept.value)

    def _read(self, query: str, reading: Reading, rest: str, kept: _Kept) -> None:
        began = self.world.clock.now()
        kept.reading, kept.asked = True, began

        def do() -> None:
            try:
                result = reading.read(self.world, rest)
            except Exception as e:
                result = Err("internal_error", f"{type(e).__name__}: {e}")
            self._keep(kept, result, began)
            self._note(reading.port, result, began)
            self.wake()

        if not self.start(reading.port, do):
            kept.reading = False

    def _keep(self, kept: _Kept, result: Result[Any], began: float) -> None:
        now = self.world.clock.now()
        if isinstance(result, Ok):
            kept.value, kept.bad, kept.not_before = result.value, 0, 0.0
        else:
            kept.bad += 1
            why = result.detail if isinstance(result, Err) else result.message
            later = result.not_before if isinstance(result, Err) and result.not_before else 0.0
            own = isinstance(result, Err) and why.startswith("own:")
            kept.not_before = max(later, now + (0.05 if own else min(0.5 * 2**kept.bad, 30.0)))
            kept.value = Unknown(why or "could not be read")
        kept.begun, kept.ended, kept.reading = began, now, False

    def _note(self, port: str, result: Result[Any], began: float) -> None:
        if isinstance(result, Ok):
            self.down.pop(port, None)
        elif isinstance(result, Err) and result.failure in DOWN:
            self.down.setdefault(port, (began, result.detail))

    def outages(self) -> dict[str, tuple[float, str]]:
        """By port: since when it cannot be used, and why. A runtime that is silent does not wait for our deadline."""
        found, before = dict(self.down), self.world.clock.now() - SILENT_S
        for query, kept in self.kept.items():
            if kept.reading and kept.asked < before and READERS[_head(query)].port == "runtime":
                found.setdefault("runtime", (kept.asked, f"no answer for more than {SILENT_S:g} s"))
        return found

    def _tidy(self, now: float) -> None:
        if 0.0 <= now - self.tidied < UNWANTED_S:
            return
        self.tidied = now
        self.kept = {q: k for q, k in self.kept.items() if k.reading or now - k.wanted < UNWANTED_S}

    def _forget(self) -> None:
        """Bounded: the half that was read longest ago goes; who still wants it reads it again."""
        newest = sorted(self.kept, key=lambda q: (self.kept[q].reading, self.kept[q].begun))
        self.kept = {q: self.kept[q] for q in newest[len(newest) // 2 :]}


def _head(query: str) -> str:
    return "worktree" if query == "tree" else query.partition("/")[0]


__all__ = ["LOCAL", "READERS", "Looks", "Own", "Reading", "entry", "trusted"]
