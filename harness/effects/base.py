"""What every effect says of itself: its key, the pool that performs it, and whether its source lags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Effect:
    """What every effect says of itself. Not to be used alone.

    `tells` marks one that only tells people something: where it fails for good that is written down and the
    machine goes on. A label that cannot be set must not decide what becomes of an issue."""

    port: ClassVar[str] = "local"
    lags: ClassVar[bool] = False
    tells: ClassVar[bool] = False

    @property
    def key(self) -> str:
        """The natural key, for people and for the ledger of effects."""
        raise AssertionError(f"{type(self).__name__} names no key")
