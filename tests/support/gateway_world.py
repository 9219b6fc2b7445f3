"""What the gateway's tests stand on: a real clock, short socket folders, journals, a client of a socket."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from harness.core import journal
from harness.core.journal import Draft
from harness.gateway import wire
from harness.gateway.server import Gateway

TOKEN = "token-of-the-attempt-0123456789"


class RealClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


def until(true: Callable[[], Any], what: str = "", timeout_s: float = 10.0) -> Any:
    """What `true` answers, as soon as it is true."""
    end = time.monotonic() + timeout_s
    while True:
        found = true()
        if found:
            return found
        assert time.monotonic() < end, f"not within {timeout_s} s: {what}"
        time.sleep(0.005)


class Place:
    """Folders for one test; the runtime folder's path is short, as unix sockets want it."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.runtime = Path(tempfile.mkdtemp(prefix="hg", dir="/tmp")) / "r"
        self.gateways: list[Gateway] = []

    def gateway(self, **options: Any) -> Gateway:
        made = Gateway(self.runtime, self.data, RealClock(), **options)
        made.start()
        self.gateways.append(made)
        return made

    def clean(self) -> None:
        for made in self.gateways:
            made.close()
        shutil.rmtree(self.runtime.parent, ignore_errors=True)


def lines(
    count: int, machine: str = "acme/widget/worker/12.1", start: int = 1, note: str = ""
) -> list[bytes]:
    """A journal of `count` records, each line with its newline."""
    prev, out = journal.GENESIS, []
    for seq in range(start, start + count):
        draft = Draft("transition", {"to": "CODE", "n": seq, "note": note})
        record = journal.seal(draft, machine=machine, seq=seq, at=1e9 + seq, epoch=1, code="0", prev=prev)
        out.append(journal.line(record))
        prev = record.hash
    return out


def client(folder: Path, token: str = TOKEN, incarnation: int = 1, **options: Any) -> httpx.Client:
    transport = httpx.HTTPTransport(uds=str(folder / "gateway.sock"))
    headers = {wire.TOKEN_HEADER: token, wire.INCARNATION_HEADER: str(incarnation)}
    return httpx.Client(
        transport=transport,
        base_url="http://gateway",
        headers=headers,
        timeout=20,
        trust_env=False,
        **options,
    )


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
