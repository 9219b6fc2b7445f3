"""What may stand where a look delivers something else: not known, or surely not there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unknown:
    """Not read, not readable, or not recently enough."""

    why: str = "not read yet"


@dataclass(frozen=True, slots=True)
class Absent:
    """Surely not there: the source was read and does not have it."""

    name: str = ""
