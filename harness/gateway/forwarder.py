"""127.0.0.1:PORT inside the container to the gateway's socket outside, for agents and git.

The one rule: a request that finds the director restarting is held, not failed, and each gap is counted.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import random
import threading
from pathlib import Path

from harness.gateway import wire
from harness.gateway.framing import HEAD_LIMIT_BYTES, ReplyFrame, rewrite
from harness.gateway.settings import GatewayError

HOST = "127.0.0.1"
CONNECTIONS_LIMIT = 128
CHUNK_BYTES = 64 << 10
HEAD_S = 60.0
START_S = 10.0
RETRY_FIRST_S = 0.05
RETRY_MOST_S = 1.0


class Forwarder:
    """`gaps` counts requests that were held, cut or turned away because the director was not there: a run
    during which it grew met an infrastructure's failure, not its own. `url` is what agents take as OpenAI
    base URL (the Anthropic one is without its `/v1`), `git_url` the mirror to fetch from."""

    def __init__(
        self, socket: Path, token: str, incarnation: int, *, port: int = 0, hold_s: float = 600.0
    ) -> None:
        self.socket = socket
        self.port = port
        self.hold_s = hold_s
        self.gaps = 0
        self._headers = {wire.TOKEN_HEADER: token, wire.INCARNATION_HEADER: str(incarnation)}
        self._open = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/model/v1"

    @property
    def git_url(self) -> str:
        return f"http://{HOST}:{self.port}/git/mirror.git"

    def start(self) -> None:
        if self._thread is not None:
            return
        started: concurrent.futures.Future[int] = concurrent.futures.Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._main(started)), name="forwarder", daemon=True
        )
        self._thread.start()
        try:
            self.port = started.result(START_S)
        except OSError as e:
            self._thread = None
            raise GatewayError(f"the forwarder cannot listen on {HOST}:{self.port}: {e.strerror or e}") from e

    def close(self) -> None:
        if self._loop is not None and self._thread is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(START_S)
            self._thread = None

    async def _main(self, started: concurrent.futures.Future[int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            server = await asyncio.start_server(self._serve, HOST, self.port, limit=HEAD_LIMIT_BYTES)
        except OSError as e:
            started.set_exception(e)
            return
        started.set_result(int(server.sockets[0].getsockname()[1]))
        await self._stop.wait()
        server.close()  # asyncio.run cancels the connections

    # ---------------------------------------------------------------- one request

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open > CONNECTIONS_LIMIT:
                await self._say(writer, 503, "too many connections")
                return
            async with asyncio.timeout(HEAD_S):
                head = rewrite(await reader.readuntil(b"\r\n\r\n"), self._headers)
            await self._forward(head, reader, writer)
        except asyncio.LimitOverrunError:
            await self._say(writer, 431, f"a request's head may have {HEAD_LIMIT_BYTES} bytes")
        except ValueError as e:
            await self._say(writer, 404, str(e))
        except (asyncio.IncompleteReadError, TimeoutError, ConnectionError):
            return  # the client went away, or never came
        finally:
            self._open -= 1
            writer.close()

    async def _forward(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pair = await self._connect()
        if pair is None:
            await self._say(writer, 503, f"the director was not there for {self.hold_s:.0f} s")
            return
        from_director, to_director = pair
        frame = ReplyFrame(self._count)
        up = asyncio.create_task(_pump(reader, to_director))
        down = asyncio.create_task(_pump(from_director, writer, frame))
        try:
            to_director.write(head)
            done, _ = await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            if up in done and not up.result():  # the director stopped reading; it may have answered
                await asyncio.wait({down})
            if down.done():
                await self._end(frame, writer)
        finally:
            for task in (up, down):
                task.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
            to_director.close()

    async def _end(self, frame: ReplyFrame, writer: asyncio.StreamWriter) -> None:
        """The director's side has ended: whole, or in the middle of things."""
        if frame.whole():
            return
        if not frame.marked:
            self._count()
        if frame.begun:
            writer.transport.abort()  # a cut reply must not look like a short one
        else:
            await self._say(writer, 503, "the director went away")

    def _count(self) -> None:
        """Before the agent has the answer: it may end at once, and must not be charged for it."""
        self.gaps += 1

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Connect, and hold the request while nobody listens. None after `hold_s`."""
        loop = asyncio.get_running_loop()
        end, pause_s, held = loop.time() + self.hold_s, RETRY_FIRST_S, False
        while True:
            try:
                return await asyncio.open_unix_connection(str(self.socket), limit=HEAD_LIMIT_BYTES)
            except OSError:
                if not held:
                    self._count()
                held = True
                left = end - loop.time()
                if left <= 0:
                    return None
                await asyncio.sleep(min(left, pause_s * random.uniform(0.5, 1.0)))
                pause_s = min(pause_s * 2, RETRY_MOST_S)

    async def _say(self, writer: asyncio.StreamWriter, status: int, why: str) -> None:
        body = json.dumps({"error": {"type": "harness", "message": f"harness: {why}"}}).encode()
        head = (
            f"HTTP/1.1 {status} Refused\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
        )
        with contextlib.suppress(ConnectionError):
            writer.write(head.encode("ascii", "replace") + body)
            await writer.drain()


async def _pump(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, frame: ReplyFrame | None = None
) -> bool:
    """Copy until the source ends (True) or the sink is gone (False)."""
    while True:
        try:
            data = await source.read(CHUNK_BYTES)
        except ConnectionError:
            return True
        if not data:
            return True
        if frame is not None:
            frame.feed(data)
        try:
            sink.write(data)
            await sink.drain()
        except ConnectionError:
            return False
