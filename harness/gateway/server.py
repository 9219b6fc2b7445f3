"""The gateway: one listening socket per attempt, and a page for people, served by one thread.

The one rule: what the director reads here are plain values under one lock; no call waits for a worker.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import re
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from harness.core import journal
from harness.domain import Ask, Beat, News
from harness.gateway import sockets
from harness.gateway.bus import Bus, Closing
from harness.gateway.desk import Board, Counts, Desk
from harness.gateway.door import Door
from harness.gateway.ledger import Ledger, file_load, file_save
from harness.gateway.settings import GatewayError, ModelSettings
from harness.gateway.wire import CLOSE_REPLACED
from harness.gateway.witness import Witness
from harness.ports import Clock

if TYPE_CHECKING:
    from harness.gateway.model import ModelProxy

T = TypeVar("T")
ATTEMPTS_LIMIT = 1000
CALL_S = 10.0
CLOSE_GRACE_S = 2.0
# For what waits for the disk or for a name. Without a number of ours it would follow the machine's cores.
DISK_THREADS = 8
_ATTEMPT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Gateway:
    """`wake` is called from the gateway's thread when something was heard, `status` when a person looks:
    both must be quick and safe to call from there. `load` and `save` keep the model's ledger (a file in
    `data` by default), `redact` is applied to every prompt and reply before it is kept. Problems of the
    setup raise GatewayError."""

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
    ) -> None:
        self.runtime_dir = runtime_dir
        self.data = data
        self.clock = clock
        self.settings = model
        self.status = status
        self.listen = listen
        self.redact = redact
        self.counts = Counts()
        self.board = Board()
        self.bus = Bus(clock, self.counts, wake)
        kept = data / "model-ledger.json"
        self.ledger = Ledger(
            model, clock, load or (lambda: file_load(kept)), save or (lambda state: file_save(kept, state))
        )
        self.port = 0
        self._desks: dict[str, Desk] = {}
        self._listeners: dict[str, sockets.Listener] = {}
        self._people: sockets.Listener | None = None
        self._model: ModelProxy | None = None
        self._inside: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    # ---------------------------------------------------------------- life

    def start(self) -> None:
        if self._thread is not None:
            return
        self.ledger.open()
        people = sockets.listen_tcp(*self.listen) if self.listen else None
        started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._main(started, people)), name="gateway", daemon=True
        )
        self._thread.start()
        try:
            started.result(CALL_S)
        except BaseException:
            self._loop = self._thread = None
            if people is not None:
                people.close()
            raise

    def close(self) -> None:
        """Stop listening and say goodbye; workers go on and come back to the next director."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(self._stop.set)
        thread.join(4 * CLOSE_GRACE_S)
        self._loop = self._thread = None

    async def _main(self, started: concurrent.futures.Future[None], people: Any) -> None:
        try:
            self._loop = asyncio.get_running_loop()
            self._loop.set_default_executor(
                concurrent.futures.ThreadPoolExecutor(DISK_THREADS, thread_name_prefix="gateway-disk")
            )
            self._stop = asyncio.Event()
            self._inside = self._routes()
            if people is not None:
                from harness.gateway.people import pages

                self._people = sockets.Listener(people, pages(self))
                self.port = people.getsockname()[1]
                await self._people.start()
        except Exception as e:  # whoever starts the gateway gets it
            started.set_exception(e)
            return
        started.set_result(None)
        await self._stop.wait()
        await self._close()

    def _routes(self) -> Any:
        from starlette.applications import Starlette
        from starlette.routing import Route, WebSocketRoute

        from harness.gateway.git import BundleUpload, Fetch
        from harness.gateway.model import ModelProxy

        self._model = ModelProxy(self.settings, self.ledger, self.data, self.clock, self.redact)
        fetch = Fetch(self.data / "git", self.counts)
        upload = BundleUpload(self.data, self.counts)
        return Starlette(
            routes=[
                WebSocketRoute("/bus", self.bus),
                Route("/git/bundle", upload, methods=["POST"]),
                Route("/git/{path:path}", fetch, methods=["GET", "POST"]),
                Route("/model/{path:path}", self._model),
            ]
        )

    async def _close(self) -> None:
        if self._model is not None:
            self._model.end()
        listeners = [*self._listeners.values(), *([self._people] if self._people else [])]
        await asyncio.gather(*(x.close(CLOSE_GRACE_S) for x in listeners))
        if self._model is not None:
            await self._model.close()
        for attempt, desk in self._desks.items():
            await desk.witness.close()
            (sockets.folder_of(self.runtime_dir, attempt) / sockets.SOCKET_NAME).unlink(missing_ok=True)
        self._desks.clear()
        self._listeners.clear()
        self._people = None

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a short piece inside the server's loop and wait for it."""
        if self._loop is None:
            coroutine.close()
            raise GatewayError("the gateway is not running")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(CALL_S)

    def _soon(self, do: Callable[[], None]) -> None:
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just closed: whoever returns is told again
                loop.call_soon_threadsafe(do)

    # ---------------------------------------------------------------- attempts

    def open(self, attempt: str, token: str, incarnation: int) -> Path:
        """Serve an attempt; answers the folder to mount. Again with the same arguments: nothing changes. With
        another token or incarnation: the one before is over, its connections end, its answers stay."""
        if not _ATTEMPT.fullmatch(attempt):
            raise GatewayError(f"attempt {attempt!r} cannot be a folder's name")
        if len(token) < 8:
            raise GatewayError(f"the token of attempt {attempt} is shorter than 8 characters")
        folder = sockets.folder_of(self.runtime_dir, attempt)
        desk = self._desks.get(attempt)
        if desk is not None:
            self._again(desk, token, incarnation, folder)
            return folder
        if len(self._desks) >= ATTEMPTS_LIMIT:
            raise GatewayError(f"more than {ATTEMPTS_LIMIT} attempts are open")
        try:
            witness = Witness(self.data / "attempts" / attempt / "witness.jsonl")
        except OSError as e:
            raise GatewayError(f"cannot write {e.filename}: {e.strerror}") from e
        desk = Desk(attempt, token, incarnation, self.board, witness)
        try:
            self._call(self._serve(desk, folder))
        except BaseException:
            witness.forget()
            raise
        self._desks[attempt] = desk
        return folder

    def _again(self, desk: Desk, token: str, incarnation: int, folder: Path) -> None:
        if desk.admit(token, incarnation):
            self._soon(lambda: self._end_lines(desk, "another incarnation runs"))
        if not (folder / sockets.SOCKET_NAME).is_socket():  # a worker can remove it
            self._call(self._unserve(desk.attempt))
            self._call(self._serve(desk, folder))

    async def _serve(self, desk: Desk, folder: Path) -> None:
        sock = sockets.listen_unix(folder)
        listener = sockets.Listener(sock, Door(desk, self._inside, self.counts))
        await listener.start()
        self._listeners[desk.attempt] = listener

    async def _unserve(self, attempt: str) -> None:
        listener = self._listeners.pop(attempt, None)
        if listener is not None:
            await listener.close(CLOSE_GRACE_S)

    def shut(self, attempt: str) -> None:
        """No more of it; also when it is not open. What was witnessed and uploaded stays on the disk."""
        desk = self._desks.pop(attempt, None)
        if desk is not None and self._loop is not None:
            self._call(self._unserve(attempt))
            self._call(desk.witness.close())
        sockets.remove(sockets.folder_of(self.runtime_dir, attempt))

    def _end_lines(self, desk: Desk, why: str) -> None:
        for line in desk.lines:
            line.close = Closing(CLOSE_REPLACED, why)
            line.poke()

    # ---------------------------------------------------------------- what the director asks

    def asked(self, attempt: str) -> tuple[Ask, ...]:
        """Requests without an answer, in the order they came."""
        desk = self._desks.get(attempt)
        return desk.asked() if desk else ()

    def answer(self, attempt: str, key: str, reply: Mapping[str, Any]) -> None:
        """Answer a request, or one that will come again (after a restart). See harness.adapters.answer."""
        desk = self._desks.get(attempt)
        if desk is not None and desk.answer(key, reply):
            self._soon(lambda: self._push(desk, key, dict(reply)))

    def _push(self, desk: Desk, key: str, reply: dict[str, Any]) -> None:
        for line in desk.lines:
            line.direct[key] = reply
            line.poke()

    def beat(self, attempt: str) -> Beat | None:
        desk = self._desks.get(attempt)
        return desk.beat() if desk else None

    def publish(self, news: News) -> None:
        """What every worker is told from now on, at once where it is connected."""
        self.board.news = news
        self._soon(lambda: self._announce(tuple(self._desks.values())))

    def tell(self, attempt: str, *, stop: bool | None = None, pause: bool | None = None) -> None:
        """What this one worker is told from now on; None leaves it as it is."""
        desk = self._desks.get(attempt)
        if desk is not None:
            desk.tell(stop, pause)
            self._soon(lambda: self._announce((desk,)))

    def _announce(self, desks: tuple[Desk, ...]) -> None:
        for desk in desks:
            for line in desk.lines:
                line.news = True
                line.poke()

    def spent(self, attempt: str) -> Mapping[str, Any]:
        """tokens_in, tokens_out, usd and requests of the attempt's model calls, settled and reserved."""
        return self.ledger.spent(attempt)

    def capped(self, attempt: str) -> str:
        """The cap that the attempt's last model call ran into, as a sentence; empty when it did not."""
        return self.ledger.capped(attempt)

    def bundle(self, attempt: str, sha256: str) -> Path | None:
        """Where an uploaded bundle lies; None when it was not uploaded."""
        if not _ATTEMPT.fullmatch(attempt) or not _SHA256.fullmatch(sha256):
            return None
        path = self.data / "attempts" / attempt / "inbox" / f"{sha256}.bundle"
        return path if path.is_file() else None

    def witnessed(self, attempt: str) -> tuple[int, str]:
        """Number and hash of the last record witnessed; 0 and the genesis hash when there is none."""
        desk = self._desks.get(attempt)
        return (desk.witness.seq, desk.witness.head) if desk else (0, journal.GENESIS)

    def today(self) -> Mapping[str, Any]:
        """The same four numbers for all attempts of this day (UTC)."""
        return self.ledger.today()

    def numbers(self) -> Mapping[str, float]:
        """What this process counted, for /metrics."""
        lines = sum(len(d.lines) for d in tuple(self._desks.values()))
        return {**asdict(self.counts), "attempts_open": len(self._desks), "lines": lines}
