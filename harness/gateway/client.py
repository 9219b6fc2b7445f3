"""The worker's end of the bus: a thread that keeps the line up, and calls that never wait for it.

The one rule: nothing here raises into the worker, and what must not be lost is kept until it is acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.core.result import Result
from harness.domain import News
from harness.ports import Clock


class BusClient:
    state: str
    problem: str

    def __init__(
        self,
        socket: Path,
        token: str,
        attempt: str,
        incarnation: int,
        clock: Clock,
        *,
        replay: Callable[[int], Iterable[bytes]] | None = None,
    ) -> None: ...

    def news(self) -> News | None: ...
    def beat(self, state: str, detail: Mapping[str, Any]) -> None: ...
    def record(self, line: bytes) -> None: ...
    def request(self, key: str, kind: str, args: Mapping[str, Any]) -> Result[Mapping[str, Any]]: ...
    def upload(self, bundle: Path) -> Result[str]: ...
    def close(self) -> None: ...
