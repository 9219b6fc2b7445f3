"""Budgets as values: what may be spent now, what is in use, and when to ask again.

The one rule: a budget never waits and never forgets. `take` answers with a new budget or with the time before
which asking is pointless; a penalty only ever moves later, and the state is plain data that survives a
restart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

MINUTE_S = 60.0
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps of one resource of one credential; 0 means no cap. `reserve` is the part of a cap that only calls
    of the highest priorities may use (finishing and reporting must not starve behind polling)."""

    gap_s: float = 0.0
    per_minute: int = 0
    per_hour: int = 0
    cooldown_s: float = 60.0
    cooldown_max_s: float = 3600.0
    reserve: float = 0.1


@dataclass(frozen=True, slots=True)
class Budget:
    """State of one resource: recent grants (POSIX seconds, an hour at most), the end of a penalty,
    its strikes."""

    resource: str
    limits: Limits
    grants: tuple[float, ...] = ()
    closed_until: float = 0.0
    strikes: int = 0

    def ready_at(self, now: float, priority: int = 1) -> float:
        """The earliest time at which a call of this priority (0 is the highest) may be made."""
        at = max(now, self.closed_until)
        recent = [g for g in self.grants if g > now - HOUR_S]
        if self.limits.gap_s and recent:
            at = max(at, recent[-1] + self.limits.gap_s)
        for cap, span in ((self.limits.per_minute, MINUTE_S), (self.limits.per_hour, HOUR_S)):
            usable = cap if priority == 0 else int(cap * (1 - self.limits.reserve)) or cap
            inside = [g for g in recent if g > now - span]
            if cap and len(inside) >= usable:
                at = max(at, inside[-usable] + span)
        return at

    def take(self, now: float, priority: int = 1) -> tuple[Budget, float | None]:
        """Grant one call now, or say when to ask again (POSIX seconds)."""
        at = self.ready_at(now, priority)
        if at > now:
            return self, at
        kept = tuple(g for g in self.grants if g > now - HOUR_S)
        return replace(self, grants=(*kept, now)), None

    def penalty(
        self, now: float, retry_after_s: float | None = None, reset_at: float | None = None
    ) -> Budget:
        """The forge said "not now". Its own words win; without them the cool-down doubles with every strike.
        (GitHub's documentation: wait Retry-After; else until the reset; else at least a minute, then
        longer.)"""
        strikes = self.strikes + 1
        if retry_after_s is not None:
            until = now + retry_after_s
        elif reset_at is not None:
            until = reset_at + 1.0
        else:
            wait = self.limits.cooldown_s * 2 ** (strikes - 1)
            until = now + min(wait, self.limits.cooldown_max_s)
        return replace(self, closed_until=max(self.closed_until, until), strikes=strikes)

    def success(self) -> Budget:
        return self if self.strikes == 0 else replace(self, strikes=0)
