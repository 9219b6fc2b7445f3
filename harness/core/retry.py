"""The one retry policy: how long to wait before the next try, and when to stop. Nothing here sleeps.

The one rule: delays and bounds are values computed from the number of tries by tenacity's own wait and stop
strategies; whoever retries writes the result down as a `not_before`.
"""

from __future__ import annotations

from dataclasses import dataclass

import tenacity
from tenacity.wait import wait_base


@dataclass(frozen=True, slots=True)
class Backoff:
    """A policy. `jitter_s` is the most that is added;
    where 0 the delay is exact (the simulator wants that)."""

    mode: str = "exponential"
    initial_s: float = 1.0
    max_s: float = 30.0
    jitter_s: float = 0.0

    def strategy(self) -> wait_base:
        if self.mode == "fixed":
            return tenacity.wait_fixed(self.initial_s)
        if self.mode == "linear":
            return tenacity.wait_incrementing(start=self.initial_s, increment=self.initial_s, max=self.max_s)
        if self.mode == "exponential":
            return tenacity.wait_exponential(multiplier=self.initial_s, max=self.max_s)
        raise ValueError(f"retry mode {self.mode!r}: expected exponential, linear or fixed")

    def delay_s(self, tries: int, seed: str = "") -> float:
        """Seconds to wait after `tries` tries (1 or more).
        The jitter comes from `seed`, so a replay gets the same."""
        state = _state(max(tries, 1))
        spread = _fraction(seed, tries) * self.jitter_s if self.jitter_s else 0.0
        return float(self.strategy()(state)) + spread


def exhausted(tries: int, most: int) -> bool:
    """Whether a bound of `most` tries is used up."""
    return bool(tenacity.stop_after_attempt(most)(_state(max(tries, 0)))) if most > 0 else True


def _state(tries: int) -> tenacity.RetryCallState:
    state = tenacity.RetryCallState(retry_object=tenacity.Retrying(), fn=None, args=(), kwargs={})
    state.attempt_number = tries
    return state


def _fraction(seed: str, tries: int) -> float:
    import hashlib

    raw = hashlib.sha256(f"{seed}/{tries}".encode()).digest()[:8]
    return int.from_bytes(raw, "big") / 2**64
