"""The gateway: one listening socket per attempt, and a page for people, served by one thread.

The one rule: what the director reads here are plain values under one lock; no call waits for a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.domain import Ask, Beat, News
from harness.gateway.settings import ModelSettings
from harness.ports import Clock


class Gateway:
    def __init__(
        self,
        runtime_dir: Path,
        data: Path,
        clock: Clock,
        *,
        model: ModelSettings | None = None,
        wake: Callable[[], None] = lambda: None,
        status: Callable[[], Mapping[str, Any]] = dict,
        listen: tuple[str, int] | None = None,
        load: Callable[[], Any | None] | None = None,
        save: Callable[[Any], None] | None = None,
        redact: Callable[[str], str] = str,
    ) -> None: ...

    def start(self) -> None: ...
    def close(self) -> None: ...
    def open(self, attempt: str, token: str, incarnation: int) -> Path: ...
    def shut(self, attempt: str) -> None: ...
    def asked(self, attempt: str) -> tuple[Ask, ...]: ...
    def answer(self, attempt: str, key: str, reply: Mapping[str, Any]) -> None: ...
    def beat(self, attempt: str) -> Beat | None: ...
    def publish(self, news: News) -> None: ...
    def tell(self, attempt: str, *, stop: bool | None = None, pause: bool | None = None) -> None: ...
    def spent(self, attempt: str) -> Mapping[str, Any]: ...
    def capped(self, attempt: str) -> str: ...
    def bundle(self, attempt: str, sha256: str) -> Path | None: ...
