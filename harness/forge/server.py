"""Run the forge: in a thread for tests and the demo, or in the foreground for the command line.

The one rule: one server a data directory, held by a lock that dies with the process.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from harness.forge import acts, limits, snapshot, sync
from harness.forge.app import App
from harness.forge.errors import ForgeError
from harness.forge.faults import FaultPlan, Rule, load
from harness.forge.git_http import HOOK, Scope
from harness.forge.settings import Settings
from harness.forge.state import Call, State, Who, hash_token

if TYPE_CHECKING:
    import asyncio

    import uvicorn

log = logging.getLogger("harness.forge")
Faults = Path | str | FaultPlan | Iterable[Rule | Mapping[str, Any]] | None
START_S = 20.0
STOP_S = 5
CONNECTIONS_LIMIT = 256


@dataclass
class Forge:
    """A running forge, bound to ``port``. ``url`` has no trailing slash.

    PyGithub's base_url is ``url`` or ``url + "/api/v3"``.
    """

    url: str
    port: int
    state: State
    _server: uvicorn.Server
    _thread: threading.Thread | None
    _lock: IO[bytes]

    @property
    def faults(self) -> FaultPlan:
        return self.state.faults

    def set_faults(self, *rules: Rule | Mapping[str, Any]) -> None:
        with self.state.lock:
            self.state.faults.replace(rules)

    def clone_url(self, full_name: str, token: str | None = None) -> str:
        base = self.url if token is None else self.url.replace("://", f"://x-access-token:{token}@", 1)
        return f"{base}/{full_name}.git"

    def report(self) -> dict[str, Any]:
        with self.state.lock:
            return limits.report(self.state)

    def dump(self) -> dict[str, Any]:
        with self.state.lock:
            return snapshot.dump_state(self.state)

    def advance(self, seconds: float) -> None:
        """Move the forge's clock on: windows end, `mergeable` becomes known."""
        with self.state.lock:
            self.state.skew_s += seconds

    def delete_issue(self, full_name: str, number: int) -> None:
        with self.state.lock, self.state.db.transaction():
            acts.delete_issue(self.state, full_name, number)

    def transfer_issue(self, full_name: str, number: int, to: str) -> int:
        with self.state.lock, self.state.db.transaction():
            return acts.transfer_issue(self.state, full_name, number, to)

    def revoke(self, token: str) -> None:
        with self.state.lock, self.state.db.transaction():
            acts.revoke(self.state, hash_token(token))

    def close(self) -> None:
        """Stop, and leave the data directory to whoever comes next. Calling it again does nothing."""
        if self._lock.closed:
            return
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(STOP_S + 10)
        self.state.close()
        self._lock.close()

    def __enter__(self) -> Forge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(
    data_dir: Path,
    host: str = "127.0.0.1",
    port: int = 0,
    faults: Faults = None,
    settings: Settings | None = None,
    clock: Callable[[], float] | None = None,
) -> Forge:
    """Start a forge on a data directory in a thread; ``port`` 0 takes a free one."""
    forge, sock = _open(Path(data_dir), host, port, faults, settings, clock)
    thread = threading.Thread(target=forge._server.run, args=([sock],), name="forge", daemon=True)
    forge._thread = thread
    thread.start()
    waited = threading.Event()
    for _ in range(int(START_S / 0.01)):
        if forge._server.started:
            return forge
        if not thread.is_alive():
            break
        waited.wait(0.01)
    forge.close()
    raise ForgeError(f"the forge did not start on {forge.url}")


def main_serve(
    data: Path,
    host: str = "127.0.0.1",
    port: int = 8080,
    fault_plan: Path | None = None,
    settings: Settings | None = None,
    announce: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT. ``announce`` is told the URL once it is bound."""
    forge, sock = _open(Path(data), host, port, fault_plan, settings, None)
    # uvicorn raises the signal that ended it once more, to whatever handler there was before
    before = {name: signal.signal(name, _ended) for name in (signal.SIGTERM, signal.SIGINT)}
    try:
        if announce is not None:
            announce(forge.url)
        forge._server.run(sockets=[sock])
    finally:
        forge.close()
        for name, handler in before.items():
            signal.signal(name, handler)


def _ended(number: int, _frame: object) -> None:
    log.info("the forge was ended by signal %d", number)


def _open(
    data_dir: Path,
    host: str,
    port: int,
    faults: Faults,
    settings: Settings | None,
    clock: Callable[[], float] | None,
) -> tuple[Forge, socket.socket]:
    plan = _plan(faults)
    data_dir.mkdir(parents=True, exist_ok=True)
    lock = _lock(data_dir)
    try:
        sock = _bind(host, port)
    except ForgeError:
        lock.close()
        raise
    chosen = settings or Settings()
    shown = f"[{host}]" if ":" in host else host
    url = (chosen.public_url or f"http://{shown}:{sock.getsockname()[1]}").rstrip("/")
    state = State(data_dir, replace(chosen, public_url=url), plan, public_url=url)
    if clock is not None:
        state.clock = clock
    _install_hook(data_dir)
    _catch_up(state)
    return Forge(url, sock.getsockname()[1], state, _uvicorn(state), None, lock), sock


def _plan(faults: Faults) -> FaultPlan:
    if isinstance(faults, FaultPlan):
        return faults
    if isinstance(faults, Path | str):
        return FaultPlan(load(Path(faults)))
    return FaultPlan(list(faults or ()))


def _lock(data_dir: Path) -> IO[bytes]:
    handle = open(data_dir / "serve.lock", "ab")  # noqa: SIM115  held for the server's life
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        handle.close()
        raise ForgeError(f"{data_dir} is served already: stop that forge or choose another --data") from error
    return handle


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # with its protocol named, for asyncio turns Nagle's delay (40 ms an answer) off only then
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(512)
    except OSError as error:
        sock.close()
        raise ForgeError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another --port"
        ) from error
    return sock


def _install_hook(data_dir: Path) -> None:
    hook = data_dir / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    fresh = hook.with_name(f"pre-receive.{os.getpid()}")
    fresh.write_text(HOOK, encoding="utf-8")
    fresh.chmod(0o755)
    fresh.replace(hook)


def _catch_up(state: State) -> None:
    """Refs may have moved while no server ran, or as one died: judge pull requests now."""
    for repo in state.db.all("SELECT * FROM repos"):
        owner = state.user(repo["owner_id"])
        who = Who(owner, "admin", "pat", "", "start")
        params = {"owner": repo["owner"], "repo": repo["name"]}
        with state.db.transaction():
            sync.reconcile(Call(state, "POST", "/", params, {}, {}, who, state.public_url, {}))


def _uvicorn(state: State) -> uvicorn.Server:
    """A server whose connections can be closed without a word, for the drop faults."""
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    open_now: dict[tuple[Any, ...], asyncio.Transport] = {}

    class Protocol(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            open_now[tuple(transport.get_extra_info("peername")[:2])] = transport

        def connection_lost(self, exc: Exception | None) -> None:
            if self.client is not None:
                open_now.pop(tuple(self.client), None)
            super().connection_lost(exc)

    def drop(scope: Scope) -> None:
        transport = open_now.get(tuple(scope["client"]))
        if transport is not None:
            transport.abort()

    config = uvicorn.Config(
        App(state, drop),
        http=Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS_LIMIT,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=STOP_S,
    )
    return uvicorn.Server(config)
