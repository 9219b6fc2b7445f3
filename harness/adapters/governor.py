"""One governor per credential: may this call be made now, and if not, when should it be asked again?

The one rule: it never sleeps and never forgets. A refusal is an `Err` with `not_before`; what was granted and
what the other side forbade is kept as plain JSON, so a crash loop cannot spend more than the caps allow.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Protocol

from harness.adapters.store.errors import StoreError
from harness.core.budget import HOUR_S, MINUTE_S, Budget, Limits
from harness.core.result import Err, Ok, Result
from harness.failures import Failure

READ = "github.read"
WRITE = "github.write"

# GitHub's own words: at least a second between writes, at most 80 a minute and 500 an hour that create
# content, 900 points a minute (a write counts 5), 5,000 requests an hour. We stay well below each of them.
GITHUB_LIMITS: Mapping[str, Limits] = {
    READ: Limits(per_minute=300, per_hour=4500),
    WRITE: Limits(gap_s=1.0, per_minute=60, per_hour=400),
}

SAVE_EVERY_S = 1.0
UNSAVED_LIMIT = 10
"""Grants without spacing are written in groups of at most this many; a start without a clean stop counts a
whole group as spent, because so many may have been granted after the last write."""
GRANT_LIFE_S = 600.0
"""A grant that was never given back (its thread died) stops counting as concurrent after this."""
BUSY_RETRY_S = 0.1


class Ticking(Protocol):
    """The part of a clock that is needed here."""

    def now(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Grant:
    """Leave for one call, to be given back with `leave`."""

    id: int
    resource: str
    at: float


@dataclass(frozen=True, slots=True)
class Penalty:
    """When the last penalty of a resource was given and how long it was meant to last."""

    at: float = 0.0
    span_s: float = 0.0


class Governor:
    """Budgets of one credential, shared by all threads. `name` tells credentials apart in the store."""

    def __init__(
        self,
        store_get: Callable[[str], Any | None],
        store_put: Callable[[str, Any], None],
        clock: Ticking,
        limits: Mapping[str, Limits],
        max_concurrent: int = 4,
        name: str = "forge",
    ) -> None:
        self._put = store_put
        self._clock = clock
        self._limits = dict(limits)
        self._max_concurrent = max(1, max_concurrent)
        self._key = f"governor/{name}"
        self._lock = threading.Lock()
        self._next_id = 1
        self._active: dict[int, Grant] = {}
        self._penalties: dict[str, Penalty] = {}
        self._unsaved: dict[str, int] = {}
        self._saved_at = -math.inf
        self._budgets: dict[str, Budget] = {r: Budget(r, lim) for r, lim in self._limits.items()}
        self._load(store_get(self._key))

    # ------------------------------------------------------------ asking

    def enter(self, resource: str, priority: int = 1) -> Result[Grant]:
        """Leave for one call now, or Err(FORGE_RATE_LIMITED, not_before). `detail` starts with "forge:" when
        the other side imposed the wait, with "own:" when we space it. Priority 0 may use the reserve."""
        with self._lock:
            now = self._clock.now()
            budget = self._settled(resource, now)
            if budget.closed_until > now:
                return _wait("forge: asked to slow down", budget.closed_until)
            self._active = {i: g for i, g in self._active.items() if now - g.at < GRANT_LIFE_S}
            if len(self._active) >= self._max_concurrent:
                return _wait(f"own: {self._max_concurrent} calls are under way", now + BUSY_RETRY_S)
            spent, ready_at = budget.take(now, priority)
            if ready_at is not None:
                return _wait(f"own: {resource} is spaced", ready_at)
            self._budgets[resource] = spent
            grant = Grant(self._next_id, resource, now)
            self._next_id += 1
            self._active[grant.id] = grant
            self._note_grant(resource, now)
            return Ok(grant)

    def leave(self, grant: Grant) -> None:
        """The call is over, whatever came of it. Giving back twice is harmless."""
        with self._lock:
            self._active.pop(grant.id, None)

    # ------------------------------------------------------------ what the other side said

    def penalty(
        self,
        resources: str | Iterable[str],
        retry_after_s: float | None = None,
        reset_at: float | None = None,
        began: float | None = None,
    ) -> float:
        """The other side said "not now" for these; answers the time before which asking is pointless.

        `began` is when the refused call was granted: several calls under way at once that are all refused
        count as one strike, because the later ones had no chance to know of the first refusal."""
        names = [resources] if isinstance(resources, str) else list(resources)
        with self._lock:
            now = self._clock.now()
            until = now
            for name in names:
                before = self._settled(name, now)
                after = before.penalty(now, retry_after_s, reset_at)
                last = self._penalties.get(name, Penalty())
                if began is not None and last.at >= began and before.closed_until > now:
                    stated = retry_after_s is not None or reset_at is not None
                    closed = after.closed_until if stated else before.closed_until
                    after = replace(before, closed_until=closed)
                self._budgets[name] = after
                self._penalties[name] = Penalty(now, max(0.0, after.closed_until - now))
                until = max(until, after.closed_until)
            self._save(now)
            return until

    def success(self, resource: str, began: float | None = None) -> None:
        """A call went through: the next penalty starts small again. One that was granted before the last
        penalty proves nothing about now and is ignored."""
        with self._lock:
            budget = self._budgets.get(resource)
            if budget is None or budget.strikes == 0:
                return
            if began is not None and began <= self._penalties.get(resource, Penalty()).at:
                return
            self._budgets[resource] = budget.success()
            self._save(self._clock.now())

    # ------------------------------------------------------------ looking

    def snapshot(self) -> dict[str, Any]:
        """Plain values for status and metrics: per resource its use in both spans, its caps, any penalty."""
        with self._lock:
            now = self._clock.now()
            resources = {}
            for name in sorted(self._budgets):
                b = self._settled(name, now)
                resources[name] = {
                    "used_minute": sum(1 for g in b.grants if g > now - MINUTE_S),
                    "used_hour": sum(1 for g in b.grants if g > now - HOUR_S),
                    "per_minute": b.limits.per_minute,
                    "per_hour": b.limits.per_hour,
                    "closed_until": b.closed_until if b.closed_until > now else None,
                    "strikes": b.strikes,
                    "ready_at": b.ready_at(now),
                }
            return {"active": len(self._active), "resources": resources}

    def flush(self) -> None:
        """Write everything: a start after this knows every grant."""
        with self._lock:
            self._save(self._clock.now(), clean=True)

    # ------------------------------------------------------------ inside

    def _settled(self, resource: str, now: float) -> Budget:
        """The budget of a resource, corrected when the clock was set back: nothing was granted in the future,
        and a penalty never lasts longer than it was given."""
        budget = self._budgets.get(resource)
        if budget is None:
            budget = Budget(resource, self._limits.get(resource, Limits()))
        if budget.grants and budget.grants[-1] > now:
            budget = replace(budget, grants=tuple(min(g, now) for g in budget.grants))
        span_s = self._penalties.get(resource, Penalty()).span_s
        if budget.closed_until > now + span_s:
            budget = replace(budget, closed_until=now + span_s)
        self._budgets[resource] = budget
        return budget

    def _note_grant(self, resource: str, now: float) -> None:
        self._unsaved[resource] = self._unsaved.get(resource, 0) + 1
        spaced = self._budgets[resource].limits.gap_s > 0
        due = now - self._saved_at >= SAVE_EVERY_S or now < self._saved_at
        if spaced or due or self._unsaved[resource] >= UNSAVED_LIMIT:
            self._save(now)

    def _save(self, now: float, clean: bool = False) -> None:
        resources = {}
        for name, b in self._budgets.items():
            recent = [g for g in b.grants if g > now - HOUR_S]
            seconds = [[s, len(list(same))] for s, same in groupby(recent, key=math.ceil)]
            resources[name] = {
                "seconds": seconds,
                "last": recent[-1] if recent else None,
                "closed_until": b.closed_until,
                "strikes": b.strikes,
                "span_s": self._penalties.get(name, Penalty()).span_s,
            }
        try:
            self._put(self._key, {"v": 1, "at": now, "clean": clean, "resources": resources})
        except StoreError:
            # On a full disk calls are governed from memory; the next grant tries to write all of it again.
            return
        self._unsaved = {}
        self._saved_at = now

    def _load(self, state: Any | None) -> None:
        if not isinstance(state, Mapping) or state.get("v") != 1:
            return
        saved_at = float(state["at"])
        for name, kept in state["resources"].items():
            limits = self._limits.get(name, Limits())
            last = kept["last"]
            grants = [min(float(s), float(last)) for s, n in kept["seconds"] for _ in range(n)]
            capped = bool(limits.per_minute or limits.per_hour)
            if grants and capped and not limits.gap_s and not state.get("clean"):
                grants.extend([saved_at + SAVE_EVERY_S] * (UNSAVED_LIMIT - 1))
            self._budgets[name] = Budget(
                name, limits, tuple(grants), float(kept["closed_until"]), int(kept["strikes"])
            )
            span_s = float(kept["span_s"])
            self._penalties[name] = Penalty(float(kept["closed_until"]) - span_s, span_s)


def _wait(detail: str, not_before: float) -> Err:
    return Err(Failure.FORGE_RATE_LIMITED, detail, not_before=not_before)
