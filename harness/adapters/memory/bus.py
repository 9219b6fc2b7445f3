"""A gateway and its bus in memory: no threads, no sockets, the same calls, for tests and the simulator.

The one rule: what the real gateway loses when it dies (what was asked, answered, said and heard) is lost by
`restart` here too; what it keeps on disk (witnessed records, uploaded bundles) stays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.adapters.answer import outcome
from harness.core import journal
from harness.core.result import Err, Ok, Pass, Result
from harness.domain import Ask, Beat, News
from harness.failures import Failure
from harness.ports import Clock

NOT_HEARD: Mapping[str, Any] = {"tokens_in": 0, "tokens_out": 0, "usd": 0.0, "requests": 0}


@dataclass(slots=True)
class Kept:
    """What is on disk of one attempt: its witnessed lines, the end of their chain, its bundles by SHA-256."""

    lines: list[bytes] = field(default_factory=list)
    seq: int = 0
    head: str = journal.GENESIS
    bundles: dict[str, Path] = field(default_factory=dict)


@dataclass(slots=True)
class Desk:
    """What lives in the gateway's memory about one open attempt."""

    token: str
    incarnation: int
    asks: dict[str, Ask] = field(default_factory=dict)
    answers: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    beat: Beat | None = None
    stop: bool = False
    pause: bool = False
    fault: str = ""


class MemoryGateway:
    """The director's side. `spend` is how a scripted agent's cost is made known to it."""

    def __init__(self, clock: Clock, wake: Callable[[], None] = lambda: None) -> None:
        self.clock = clock
        self.wake = wake
        self.desks: dict[str, Desk] = {}
        self.disk: dict[str, Kept] = {}
        self.costs: dict[str, dict[str, Any]] = {}
        self.news = News()

    def start(self) -> None:
        """There is nothing to start."""

    def close(self) -> None:
        self.restart()

    def restart(self) -> None:
        """What a director's death does: everything open must be opened, answered and told again."""
        self.desks.clear()
        self.news = News()

    def open(self, attempt: str, token: str, incarnation: int) -> Path:
        desk = self.desks.get(attempt)
        if desk is None:
            self.desks[attempt] = Desk(token, incarnation)
        elif (desk.token, desk.incarnation) != (token, incarnation):
            desk.token, desk.incarnation, desk.beat = token, incarnation, None
        return Path("/run/harness") / hashlib.sha256(attempt.encode()).hexdigest()[:10]

    def shut(self, attempt: str) -> None:
        self.desks.pop(attempt, None)

    def asked(self, attempt: str) -> tuple[Ask, ...]:
        desk = self.desks.get(attempt)
        return tuple(desk.asks.values()) if desk else ()

    def answer(self, attempt: str, key: str, reply: Mapping[str, Any]) -> None:
        if desk := self.desks.get(attempt):
            desk.answers[key] = dict(reply)
            desk.asks.pop(key, None)

    def beat(self, attempt: str) -> Beat | None:
        desk = self.desks.get(attempt)
        if desk is None or desk.beat is None:
            return None
        kept = self.kept(attempt)
        return replace(desk.beat, seq=kept.seq, head=kept.head, reason=desk.fault or desk.beat.reason)

    def publish(self, news: News) -> None:
        self.news = news

    def tell(self, attempt: str, *, stop: bool | None = None, pause: bool | None = None) -> None:
        if desk := self.desks.get(attempt):
            desk.stop = desk.stop if stop is None else stop
            desk.pause = desk.pause if pause is None else pause

    def spent(self, attempt: str) -> Mapping[str, Any]:
        return dict(self.costs.get(attempt, NOT_HEARD))

    def capped(self, attempt: str) -> str:
        return ""

    def bundle(self, attempt: str, sha256: str) -> Path | None:
        return self.kept(attempt).bundles.get(sha256)

    def witnessed(self, attempt: str) -> bytes:
        return b"".join(self.kept(attempt).lines)

    def spend(self, attempt: str, tokens_in: int, tokens_out: int, usd: float) -> None:
        """One model call of a scripted agent."""
        cost = self.costs.setdefault(attempt, dict(NOT_HEARD))
        cost["tokens_in"] += tokens_in
        cost["tokens_out"] += tokens_out
        cost["usd"] += usd
        cost["requests"] += 1

    def kept(self, attempt: str) -> Kept:
        return self.disk.setdefault(attempt, Kept())

    def desk(self, attempt: str, token: str, incarnation: int) -> Desk | Err | None:
        """The desk of a caller: None while the attempt is not open, Err when he is not who may call."""
        desk = self.desks.get(attempt)
        if desk is None:
            return None
        if desk.token != token:
            return Err(Failure.AUTH_FAILED, "the token is not that of this attempt")
        if desk.incarnation != incarnation:
            return Err(Failure.AUTH_FAILED, f"incarnation {incarnation} is over, {desk.incarnation} runs")
        return desk

    def told(self, desk: Desk) -> News:
        return replace(self.news, stop=self.news.stop or desk.stop, paused=self.news.paused or desk.pause)


class MemoryBus:
    """The worker's side. `up` set to False is a line that is cut: records wait, beats are lost."""

    def __init__(
        self,
        gateway: MemoryGateway,
        attempt: str,
        token: str = "",
        incarnation: int = 1,
        read: Callable[[Path], bytes] = Path.read_bytes,
    ) -> None:
        self.gateway = gateway
        self.attempt = attempt
        self.token = token
        self.incarnation = incarnation
        self.read = read
        self.up = True
        self.outbox: list[bytes] = []
        self.heard: News | None = None
        self.answers: dict[str, Mapping[str, Any]] = {}

    def news(self) -> News | None:
        return self.heard

    def beat(self, state: str, detail: Mapping[str, Any]) -> None:
        desk = self._desk()
        if not isinstance(desk, Desk):
            return
        changed = desk.beat is None or desk.beat.state != state
        desk.beat = Beat(
            self.gateway.clock.now(),
            state,
            self.incarnation,
            output_bytes=int(detail.get("output_bytes", 0)),
            cpu_s=float(detail.get("cpu_s", 0.0)),
            final=str(detail.get("final", "")),
            reason=str(detail.get("reason", "")),
            failure=str(detail.get("failure", "")),
            counters=dict(detail.get("counters", {})),
        )
        if changed:
            self.gateway.wake()

    def record(self, line: bytes) -> None:
        self.outbox.append(line if line.endswith(b"\n") else line + b"\n")
        self._desk()

    def request(self, key: str, kind: str, args: Mapping[str, Any]) -> Result[Mapping[str, Any]]:
        if key in self.answers:
            return outcome(self.answers[key])
        desk = self._desk()
        if isinstance(desk, Err):
            return desk
        if desk is None:
            return Pass("the director cannot be reached")
        if key in desk.answers:
            self.answers[key] = desk.answers[key]
            return outcome(self.answers[key])
        if key not in desk.asks:
            desk.asks[key] = Ask(key, kind, dict(args))
            self.gateway.wake()
        return Pass("waiting for the director's answer")

    def upload(self, bundle: Path) -> Result[str]:
        desk = self._desk()
        if isinstance(desk, Err):
            return desk
        if desk is None:
            return Err(Failure.INFRA_GATEWAY, "the director cannot be reached")
        sha256 = hashlib.sha256(self.read(bundle)).hexdigest()
        self.gateway.kept(self.attempt).bundles[sha256] = bundle
        return Ok(sha256)

    def close(self) -> None:
        self.up = False

    def _desk(self) -> Desk | Err | None:
        """Be heard: whoever is let in hears the news and hands over what waits."""
        desk = self.gateway.desk(self.attempt, self.token, self.incarnation) if self.up else None
        if isinstance(desk, Err):
            self.heard = News(stop=True)
        if isinstance(desk, Desk):
            self.heard = self.gateway.told(desk)
            self._flush(desk)
        return desk

    def _flush(self, desk: Desk) -> None:
        kept = self.gateway.kept(self.attempt)
        for line in self.outbox:
            try:
                record = journal.parse(line.rstrip(b"\n"))
            except ValueError as e:
                desk.fault = f"record refused: {e}"
                continue
            if record.seq <= kept.seq:
                continue
            if record.seq != kept.seq + 1 or record.prev != kept.head:
                desk.fault = f"record {record.seq} refused: it does not follow record {kept.seq}"
                continue
            kept.lines.append(line)
            kept.seq, kept.head, desk.fault = record.seq, record.hash, ""
        self.outbox.clear()
