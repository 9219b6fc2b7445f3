"""What every effect says of itself: its key, the pool that performs it, and whether its source lags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Effect:
    """What every effect says of itself. Not to be used alone."""

    port: ClassVar[str] = "local"
    lags: ClassVar[bool] = False

    @property
    def key(self) -> str:
        """The natural key, for people and for the ledger of effects."""
        raise AssertionError(f"{type(self).__name__} names no key")
