"""What a check of `harness doctor` came to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harness.core.result import Err, Result

OK, WARNING, PROBLEM = "ok", "warning", "problem"
CONNECT_S = 5.0


@dataclass(frozen=True, slots=True)
class Check:
    """`name` is what was looked at, `level` ok, warning or problem, `do` what to do about it."""

    name: str
    level: str
    text: str
    do: str = ""


Checks = Iterator[Check]


def why(result: Result[Any]) -> str:
    """What a result that is not Ok says."""
    return result.detail if isinstance(result, Err) else getattr(result, "message", "")
