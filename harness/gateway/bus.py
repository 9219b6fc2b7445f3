"""The bus endpoint: one WebSocket of a worker, raw ASGI.

The one rule: what goes down is computed when it is sent (news, answers, the last number on the disk), never
queued, so that a slow or returning worker costs no memory and misses nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import ValidationError

from harness.gateway import wire
from harness.gateway.desk import LINES_LIMIT, Counts, Desk
from harness.gateway.wire import Hello, Pulse, Question
from harness.gateway.witness import Taken
from harness.ports import Clock

HELLO_S = 10.0
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
log = logging.getLogger(__name__)


class Closing(Exception):
    """Ends a connection with a code that tells the client why."""

    def __init__(self, code: int, why: str = "") -> None:
        super().__init__(why)
        self.code = code


class Line:
    """What a connection still has to be told, as flags: setting one twice tells it once."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.news = False
        self.records = False
        self.sync_from = 0
        self.refused: wire.Refused | None = None
        self.direct: dict[str, Any] = {}
        self.close: Closing | None = None

    def poke(self) -> None:
        self.ready.set()


class Bus:
    """`wake` tells the director's loop that something new was heard; losing a wake-up costs latency only."""

    def __init__(self, clock: Clock, counts: Counts, wake: Callable[[], None]) -> None:
        self.clock = clock
        self.counts = counts
        self.wake = wake

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        desk: Desk = scope["desk"]
        await receive()  # websocket.connect
        if len(desk.lines) >= LINES_LIMIT:
            await send({"type": "websocket.close", "code": wire.CLOSE_LATER})
            return
        await send({"type": "websocket.accept"})
        line = Line()
        desk.lines.add(line)
        try:
            await self._talk(desk, line, receive, send)
        except Closing as e:
            await send({"type": "websocket.close", "code": e.code, "reason": str(e)[:120]})
        except OSError as e:  # the peer is gone (uvicorn's ClientDisconnected is one)
            log.debug("bus of %s: %s", desk.attempt, e)
        finally:
            desk.lines.discard(line)

    async def _talk(self, desk: Desk, line: Line, receive: Receive, send: Send) -> None:
        hello = await self._hello(receive)
        if hello is None:
            return
        if not wire.speaks(hello.v):
            self.counts.refused += 1
            ours = f"{wire.PROTOCOL - 1} and {wire.PROTOCOL}"
            why = f"the worker speaks protocol {hello.v}, this director {ours}"
            no = wire.Incompatible(v=wire.PROTOCOL, why=why)
            await send({"type": "websocket.send", "text": no.model_dump_json()})
            raise Closing(wire.CLOSE_INCOMPATIBLE, why)
        news = wire.Bulletin.of(desk.news())
        welcome = wire.Welcome(v=hello.v, seq=desk.witness.synced, news=news)
        await send({"type": "websocket.send", "text": welcome.model_dump_json()})
        reader = asyncio.create_task(self._read(desk, line, receive, send))
        writer = asyncio.create_task(self._write(desk, line, send))
        try:
            await asyncio.wait({reader, writer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            reader.cancel()
            writer.cancel()
            ends = await asyncio.gather(reader, writer, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _hello(self, receive: Receive) -> Hello | None:
        try:
            async with asyncio.timeout(HELLO_S):
                event = await receive()
        except TimeoutError:
            raise Closing(wire.CLOSE_MALFORMED, f"no hello within {HELLO_S:.0f} s") from None
        if event["type"] == "websocket.disconnect":
            return None
        message = self._parse(event.get("text"))
        if not isinstance(message, Hello):
            raise Closing(wire.CLOSE_MALFORMED, "the first message must be a hello")
        return message

    def _parse(self, text: str | None) -> Hello | Pulse | Question:
        if text is None:
            raise Closing(wire.CLOSE_MALFORMED, "a text frame was expected")
        if len(text) > wire.TEXT_LIMIT_BYTES:
            self.counts.refused += 1
            raise Closing(wire.CLOSE_MALFORMED, f"a message may have {wire.TEXT_LIMIT_BYTES} bytes")
        try:
            return wire.UP.validate_json(text)
        except ValidationError as e:
            self.counts.refused += 1
            first = e.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(x) for x in first["loc"])
            raise Closing(wire.CLOSE_MALFORMED, f"{where}: {first['msg']}") from None

    # ---------------------------------------------------------------- up

    async def _read(self, desk: Desk, line: Line, receive: Receive, send: Send) -> None:
        while True:
            event = await receive()
            if event["type"] == "websocket.disconnect":
                return
            wait_s = desk.pace.wait_s(self.clock.monotonic())
            if wait_s > 0:  # not reading pushes back on the worker's own socket
                await asyncio.sleep(min(wait_s, 10.0))
            raw = event.get("bytes")
            if raw is not None:
                self._record(desk, line, raw)
                continue
            message = self._parse(event.get("text"))
            if isinstance(message, Pulse):
                await self._beat(desk, message, send)
            elif isinstance(message, Question):
                self._ask(desk, line, message)

    def _record(self, desk: Desk, line: Line, raw: bytes) -> None:
        try:
            taken = desk.witness.take(raw)
        except OSError as e:
            desk.witness.why = f"the director cannot write the journal: {e.strerror or e}"
            raise Closing(wire.CLOSE_LATER, desk.witness.why) from e
        if taken is Taken.GAP:
            line.sync_from = desk.witness.seq + 1
        elif taken is Taken.WRONG:
            self.counts.refused += 1
            line.refused = wire.Refused(seq=desk.witness.seq + 1, why=desk.witness.why)
            self.wake()
        else:
            self.counts.records += taken is Taken.NEW
            line.records = True
        line.poke()

    async def _beat(self, desk: Desk, pulse: Pulse, send: Send) -> None:
        """Answered at once: the one message that comes often does not pass through the writer."""
        self.counts.beats += 1
        if desk.hear(pulse, self.clock.now()):
            self.wake()
        await self._say(send, wire.Notice(n=pulse.n, news=wire.Bulletin.of(desk.news())))

    def _ask(self, desk: Desk, line: Line, question: Question) -> None:
        self.counts.asks += 1
        reply = desk.ask(question)
        if reply is None:
            self.wake()
            return
        line.direct[question.key] = dict(reply)
        line.poke()

    # ---------------------------------------------------------------- down

    async def _write(self, desk: Desk, line: Line, send: Send) -> None:
        asked_from = 0
        while True:
            await line.ready.wait()
            line.ready.clear()
            if line.close is not None:
                raise line.close
            if line.news:
                line.news = False
                await self._say(send, wire.Notice(news=wire.Bulletin.of(desk.news())))
            while line.direct:
                key = next(iter(line.direct))
                await self._say(send, wire.Reply(key=key, reply=line.direct.pop(key)))
            if line.refused is not None:
                refused, line.refused = line.refused, None
                await self._say(send, refused)
            if line.sync_from:
                start, line.sync_from = line.sync_from, 0
                if start != asked_from:  # a burst behind one gap is one gap
                    asked_from = start
                    await self._say(send, wire.SyncRequired(seq=start))
            if line.records:
                line.records = False
                try:
                    await self._say(send, wire.Ack(seq=await desk.witness.sync()))
                except OSError as e:
                    raise Closing(wire.CLOSE_LATER, f"the journal is not on the disk: {e.strerror}") from e

    async def _say(self, send: Send, message: wire.Message) -> None:
        await send({"type": "websocket.send", "text": message.model_dump_json()})
