"""The checkout under test, and the shapes of the two things that the packaging tests call.

The one rule: tests run the scripts that people run, in the checkout itself.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

CHECKOUT = Path(__file__).resolve().parents[2]


class RunScript(Protocol):
    def __call__(
        self, *command: str, env: Mapping[str, str] | None = None, timeout_s: float = 240
    ) -> subprocess.CompletedProcess[str]: ...


class Docker(Protocol):
    def __call__(
        self, arguments: Sequence[str], timeout_s: float = 60
    ) -> subprocess.CompletedProcess[str]: ...
