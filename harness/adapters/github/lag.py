"""What we made a moment ago and the forge may not show yet.

The one rule: a 404 for a thing of ours younger than a minute is a reason to ask again, five times at most; a
404 for anything else is final at once.
"""

from __future__ import annotations

import threading
from typing import TypeVar

from harness.adapters.github import refusals
from harness.core.result import Err, Result
from harness.failures import Failure
from harness.ports import Clock

T = TypeVar("T")

YOUNG_S = 60.0
TRIES = 5


class Recent:
    """Keys of things made or first missed within the last minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._young: dict[str, tuple[float, int]] = {}

    def born(self, key: str) -> None:
        with self._lock:
            now = self._clock.now()
            self._young = {k: v for k, v in self._young.items() if 0 <= now - v[0] < YOUNG_S}
            self._young[key] = (now, 0)

    def lag(self, key: str) -> Err | None:
        """An Err to wait with (1, 2, 4, 8, 16 s) when `key` was made within the last minute, else None."""
        with self._lock:
            now = self._clock.now()
            at, tries = self._young.get(key, (now, TRIES))
            if not 0 <= now - at < YOUNG_S or tries >= TRIES:
                return None
            self._young[key] = (at, tries + 1)
            not_before = min(now + 2.0**tries, at + YOUNG_S)
            return Err(Failure.FORGE_DOWN, f"the forge does not show {key} yet", not_before=not_before)

    def lagging(self, key: str, final: str) -> Err:
        """For what git pushed, of which nothing is known here: its first absence starts the minute of grace,
        after which it is Err(CONFLICT, final): somebody removed it."""
        with self._lock:
            known = key in self._young
        if not known:
            self.born(key)
        return self.lag(key) or Err(Failure.CONFLICT, final)

    def unless_young(self, key: str, r: Result[T]) -> Result[T]:
        """The result, but for a GONE that may be lag."""
        if isinstance(r, Err) and r.failure == Failure.GONE:
            return self.lag(key) or r
        return r

    def unless_unseen(self, sha: str, r: Result[T]) -> Result[T]:
        """The result, but for "no such commit", which may be lag after a push."""
        if isinstance(r, Err) and (r.failure == Failure.GONE or r.detail == refusals.UNSEEN):
            return self.lagging(f"commit {sha}", f"the commit {sha} is not on the forge")
        return r
