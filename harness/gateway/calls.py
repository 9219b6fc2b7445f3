"""The attempt's ledger folder: every prompt and every reply, one numbered JSON file a call.

The one rule: a call's file is there before the call is made, its texts are redacted before they are cut, and
cut to a head and a tail, so that no file grows with what an agent sends.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.core import journal
from harness.gateway.desk import Desk
from harness.gateway.ledger import Cost
from harness.gateway.meter import Meter

HEAD_BYTES = 192 << 10
TAIL_BYTES = 64 << 10
KEPT_BYTES = 1 << 20
FOLDER_LIMIT_BYTES = 256 << 20


class Clip:
    """The beginning and the end of what passes, at most `KEPT_BYTES` of it."""

    def __init__(self) -> None:
        self.head = bytearray()
        self.tail = bytearray()
        self.size = 0

    def feed(self, chunk: bytes) -> None:
        self.size += len(chunk)
        room = KEPT_BYTES // 2 - len(self.head)
        self.head += chunk[:room]
        if len(chunk) > room:
            self.tail += chunk[room:]
            del self.tail[: -KEPT_BYTES // 2]

    def text(self) -> str:
        lost = self.size - len(self.head) - len(self.tail)
        gap = f"\n[{lost} bytes left out]\n".encode() if lost else b""
        return bytes(self.head + gap + self.tail).decode("utf-8", "replace")


@dataclass(slots=True)
class Call:
    """One call on its way. `key` is its reservation and `reserved` the output tokens set aside with it;
    `spent` says that it counts although its usage was not told."""

    desk: Desk
    path: str
    query: str
    body: bytes
    headers: list[tuple[str, str]]
    model: str = ""
    streams: bool = False
    paid: bool = True
    number: int = 0
    began: float = 0.0
    key: str = ""
    secret: str = ""
    reserved: int = 0
    status: int | None = None
    reason: str = ""
    cost: Cost | None = None
    spent: bool = False
    begun: bool = False
    request: Clip = field(default_factory=Clip)
    reply: Clip = field(default_factory=Clip)
    meter: Meter = field(default_factory=Meter)

    def facts(self, status: int | None, now: float) -> dict[str, Any]:
        """What its file says beside the texts. `status` is None while it runs."""
        cost = self.cost or Cost()
        return {
            "at": journal.iso(self.began), "attempt": self.desk.attempt, "incarnation": self.desk.incarnation,
            "path": self.path, "model": self.model, "stream": self.streams, "status": status,
            "reason": self.reason, "seconds": None if status is None else round(now - self.began, 3),
            "tokens_in": cost.tokens_in, "tokens_out": cost.tokens_out, "usd": cost.usd,
        }  # fmt: skip


class CallFolder:
    """attempts/<attempt>/ledger/NNNN.json. Numbers go on after a restart. `redact` is applied to both
    texts."""

    def __init__(self, folder: Path, redact: Callable[[str], str]) -> None:
        self.folder = folder
        self.redact = redact
        folder.mkdir(parents=True, exist_ok=True)
        files = [x for x in folder.iterdir() if x.stem.isdigit() and x.suffix == ".json"]
        self.last = max((int(x.stem) for x in files), default=0)
        self.size = sum(x.stat().st_size for x in files)

    async def write(self, n: int, facts: dict[str, Any], request: Clip, reply: Clip | None) -> None:
        """Write or rewrite call `n`. Raises OSError."""
        await asyncio.to_thread(self._write, n, facts, request, reply)

    def next(self) -> int:
        self.last += 1
        return self.last

    def _write(self, n: int, facts: dict[str, Any], request: Clip, reply: Clip | None) -> None:
        full = self.size >= FOLDER_LIMIT_BYTES
        texts = {
            "request": "" if full else self._cut(request),
            "reply": "" if full or reply is None else self._cut(reply),
        }
        data = json.dumps({"n": n, **facts, **texts, "left_out": full}, ensure_ascii=False).encode()
        temp = self.folder / f".{n:04d}.new"
        temp.write_bytes(data)
        temp.replace(self.folder / f"{n:04d}.json")
        if facts.get("status") is not None:  # the file's last writing
            self.size += len(data)

    def _cut(self, clip: Clip) -> str:
        text = self.redact(clip.text())
        if len(text) <= HEAD_BYTES + TAIL_BYTES:
            return text
        lost = len(text) - HEAD_BYTES - TAIL_BYTES
        return f"{text[:HEAD_BYTES]}\n[{lost} characters left out]\n{text[-TAIL_BYTES:]}"
