"""The worker's end of the bus: threads that keep the line up, and calls that never wait for it.

The one rule: nothing here raises into the worker, and what must not be lost (records, requests) is kept
until it is acknowledged or answered, and said again on each new connection.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.adapters.answer import outcome
from harness.core.result import Err, Pass, Result
from harness.core.retry import Backoff
from harness.domain import News
from harness.failures import Failure
from harness.gateway import wire
from harness.gateway.outbox import Outbox
from harness.gateway.upload import send_bundle
from harness.ports import Clock

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

RECONNECT = Backoff(initial_s=0.1, max_s=5.0, jitter_s=0.5)
REFUSED_PAUSE_S = 30.0
OPEN_S = 10.0
CLOSE_S = 2.0
REPEAT_S = 5.0
BATCH = 64
PROBLEM_LIMIT = 500
_REASON_LIMIT = 2000
log = logging.getLogger(__name__)


class Refused(Exception):
    """The director does not let us in; asking again at once is pointless."""

    def __init__(self, state: str, why: str) -> None:
        super().__init__(why)
        self.state = state


class BusClient:
    """`state` is connecting, up, stale (a later incarnation runs: stop), refused, incompatible or closed,
    and `problem` says why in words. `replay(n)` answers the journal's lines from record n on: with it,
    whatever the director lacks is sent again, also what an earlier incarnation wrote; without it only
    what this one kept."""

    def __init__(
        self,
        socket: Path,
        token: str,
        attempt: str,
        incarnation: int,
        clock: Clock,
        *,
        replay: Callable[[int], Iterable[bytes]] | None = None,
        protocol: int = wire.PROTOCOL,
    ) -> None:
        self.socket = socket
        self.attempt = attempt
        self.clock = clock
        self.state = "connecting"
        self.problem = ""
        self._headers = {wire.TOKEN_HEADER: token, wire.INCARNATION_HEADER: str(incarnation)}
        self._protocol = self._speaking = protocol
        self._changed = threading.Condition()
        self._outbox = Outbox(replay)
        self._asks: dict[str, str] = {}
        self._unasked: set[str] = set()
        self._answers: dict[str, Mapping[str, Any]] = {}
        self._beat: tuple[str, wire.Detail, float] | None = None
        self._beat_due = False
        self._beat_sent = 0.0
        self._beats = 0
        self._beats_heard = 0
        self._news: News | None = None
        self._session = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="bus", daemon=True)
        self._thread.start()

    # ---------------------------------------------------------------- the port

    def news(self) -> News | None:
        """What was last heard; a stale incarnation is told to stop."""
        return News(stop=True) if self.state == "stale" else self._news

    def beat(self, state: str, detail: Mapping[str, Any]) -> None:
        """Say how it goes: at once when it says something new, else every few seconds."""
        said = wire.Detail(
            output_bytes=max(0, int(detail.get("output_bytes", 0) or 0)),
            cpu_s=max(0.0, float(detail.get("cpu_s", 0.0) or 0.0)),
            final=str(detail.get("final", ""))[:64],
            reason=str(detail.get("reason", ""))[:_REASON_LIMIT],
            failure=str(detail.get("failure", ""))[:64],
            counters={str(k)[:32]: int(v) for k, v in dict(detail.get("counters", {})).items()},
        )
        now = self.clock.monotonic()
        with self._changed:
            news = self._beat is None or self._beat[0] != state or self._beat[1].failure != said.failure
            news = news or self._beat is None or self._beat[1].final != said.final
            self._beat = (state[:64], said, now)
            if news or now - self._beat_sent >= REPEAT_S:
                self._beat_due = True
                self._changed.notify_all()

    def record(self, line: bytes) -> None:
        with self._changed:
            if why := self._outbox.add(line):
                self._complain(why)
            self._changed.notify_all()

    def request(self, key: str, kind: str, args: Mapping[str, Any]) -> Result[Mapping[str, Any]]:
        with self._changed:
            if key in self._answers:
                return outcome(self._answers[key])
            if self.state in ("stale", "refused"):
                return Err(Failure.AUTH_FAILED, self.problem)
            if self.state == "incompatible":
                return Err(Failure.INFRA_GATEWAY, self.problem)
            if key not in self._asks:
                try:
                    text = wire.Question(key=key, kind=kind, args=dict(args)).model_dump_json()
                except ValueError as e:
                    return Err(Failure.INTERNAL_ERROR, f"request {key[:80]} cannot be said: {e}")
                if len(text) > wire.TEXT_LIMIT_BYTES:
                    why = f"request {key[:80]} has {len(text)} bytes, at most {wire.TEXT_LIMIT_BYTES}"
                    return Err(Failure.POLICY_VIOLATION, why)
                self._asks[key] = text
                self._unasked.add(key)
                self._changed.notify_all()
            up = self.state == "up"
        return Pass("waiting for the director's answer" if up else "the director cannot be reached")

    def upload(self, bundle: Path) -> Result[str]:
        return send_bundle(self.socket, bundle, self._headers)

    def close(self, drain_s: float = CLOSE_S) -> None:
        """Say goodbye, with a little time for what is on its way; the rest goes with the next incarnation."""
        if self.state == "up":
            self.drained(drain_s)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(2 * CLOSE_S)
        self.state = "closed"

    def drained(self, timeout_s: float) -> bool:
        """Wait until every record is acknowledged and the last beat was heard; False when it took too
        long."""

        def done() -> bool:
            heard = not self._beat_due and self._beats_heard >= self._beats
            return self._closed or (heard and not self._outbox.waiting())

        with self._changed:
            return self._changed.wait_for(done, timeout_s) and not self._closed

    # ---------------------------------------------------------------- the line

    def _run(self) -> None:
        tries = 0
        while not self._closed:
            began = self._session
            try:
                self._converse()
            except Refused as e:
                self._set(e.state, str(e))
            except Exception as e:  # any trouble of the line: the worker goes on without it
                log.debug("bus: %s", e)
                self._set("connecting", str(e) or type(e).__name__)
            if self._closed:
                return
            tries = 1 if self._session != began else tries + 1
            pause_s = RECONNECT.delay_s(min(tries, 16), f"{self.attempt}/{self._session}")
            if self.state in ("stale", "refused", "incompatible"):
                pause_s = REFUSED_PAUSE_S
            with self._changed:
                self._changed.wait_for(lambda: self._closed, pause_s)

    def _converse(self) -> None:
        """One connection, from hello to its end."""
        from websockets.exceptions import InvalidStatus
        from websockets.sync.client import unix_connect

        try:
            with unix_connect(
                str(self.socket),
                "ws://gateway/bus",
                additional_headers=self._headers,
                compression=None,
                open_timeout=OPEN_S,
                close_timeout=CLOSE_S,
                ping_interval=None,
                max_size=wire.FRAME_LIMIT_BYTES,
            ) as line:
                self._listen(line)
        except InvalidStatus as e:
            why = _reason(e.response.body)
            if e.response.status_code == 409:
                raise Refused("stale", why) from e
            if e.response.status_code in (401, 403):
                raise Refused("refused", why) from e
            raise

    def _listen(self, line: ClientConnection) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            self._greet(line)
            up = threading.Thread(target=self._write, args=(line, self._session), name="bus-up", daemon=True)
            up.start()
            for frame in line:
                self._heard(wire.DOWN.validate_json(frame))
        except ConnectionClosed as e:
            log.debug("bus: %s", e)
        finally:
            with self._changed:
                self._session += 1
                self._changed.notify_all()
            self._set("connecting", "the line to the director is down")

    def _greet(self, line: ClientConnection) -> None:
        from harness import __version__

        line.send(wire.Hello(v=self._speaking, code=__version__).model_dump_json())
        first = wire.DOWN.validate_json(line.recv(timeout=OPEN_S))
        if isinstance(first, wire.Incompatible):
            if wire.speaks(first.v, self._protocol) and first.v != self._speaking:
                self._speaking = first.v
                raise ConnectionError(f"the director speaks protocol {first.v}: so do we")
            self._speaking = self._protocol
            raise Refused("incompatible", first.why)
        if not isinstance(first, wire.Welcome):
            raise ConnectionError(f"a welcome was expected, not {first.type}")
        with self._changed:
            self._session += 1
            self._news = first.news.value()
            self._unasked = set(self._asks)
            self._beat_due = self._beat is not None
        self._set("up", "")
        self._rewind(first.seq + 1)

    def _rewind(self, seq: int) -> None:
        """Go on with record `seq`. The journal is read outside the lock: the worker must not wait for it."""
        with self._changed:
            oldest = self._outbox.oldest()
        history = self._outbox.history(seq, oldest)
        with self._changed:
            if why := self._outbox.rewind(seq, history):
                self._complain(why)
            self._changed.notify_all()

    def _heard(self, message: wire.Message) -> None:
        more = 0
        with self._changed:
            if isinstance(message, wire.Notice):
                self._news = message.news.value()
                self._beats_heard = max(self._beats_heard, message.n)
            elif isinstance(message, wire.Ack):
                more = self._outbox.acked(message.seq)
            elif isinstance(message, wire.Reply):
                self._answers[message.key] = message.reply
                self._asks.pop(message.key, None)
                self._unasked.discard(message.key)
            elif isinstance(message, wire.Refused):
                self._outbox.halt()
                self._complain(message.why)
            elif isinstance(message, wire.SyncRequired):
                more = message.seq
            self._changed.notify_all()
        if more:
            self._rewind(more)

    def _write(self, line: ClientConnection, session: int) -> None:
        """The sending half of one connection."""
        from websockets.exceptions import WebSocketException

        try:
            while True:
                with self._changed:
                    while not (self._closed or self._session != session or (batch := self._batch())):
                        self._changed.wait()
                    if self._session != session:
                        return
                    if self._closed:
                        break
                for frame in batch:
                    line.send(frame)
        except (OSError, WebSocketException) as e:
            log.debug("bus: %s", e)
        line.close()

    def _batch(self) -> list[str | bytes]:
        """What is to be said now, the lock being held."""
        batch: list[str | bytes] = [self._asks[key] for key in sorted(self._unasked)]
        self._unasked.clear()
        batch += self._outbox.take(BATCH)
        if self._beat_due and self._beat is not None:
            state, detail, at = self._beat
            now = self.clock.monotonic()
            self._beats += 1
            self._beat_due, self._beat_sent = False, now
            age_s = max(0.0, now - at)
            pulse = wire.Pulse(n=self._beats, state=state, age_s=age_s, detail=detail)
            batch.append(pulse.model_dump_json())
        return batch

    def _set(self, state: str, problem: str) -> None:
        with self._changed:
            self.state, self.problem = state, problem[:PROBLEM_LIMIT]
            self._changed.notify_all()

    def _complain(self, why: str) -> None:
        self.problem = why[:PROBLEM_LIMIT]
        log.warning("bus of attempt %s: %s", self.attempt, why)


def _reason(body: bytes | bytearray | None) -> str:
    try:
        return str(json.loads(body or b"")["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return "the director does not let us in"
