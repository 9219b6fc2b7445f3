"""Where the gateway listens: a short folder with one unix socket per attempt, or a loopback port for people.

The one rule: the folder is what a container mounts, so its name depends on the attempt alone and it stays the
same folder when the director restarts; only the socket file in it is made anew.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import os
import shutil
import socket
import stat
from pathlib import Path
from typing import Any

from harness.gateway.settings import GatewayError
from harness.gateway.wire import FRAME_LIMIT_BYTES

SOCKET_NAME = "gateway.sock"
# The kernel takes 107 bytes of a unix socket's path (unix(7)); other systems 103.
PATH_LIMIT_BYTES = 100
BACKLOG = 64
CONNECTIONS_LIMIT = 64
HEAD_LIMIT_BYTES = 64 << 10
KEEP_ALIVE_S = 30


def folder_of(runtime_dir: Path, attempt: str) -> Path:
    return runtime_dir / hashlib.sha256(attempt.encode()).hexdigest()[:10]


def listen_unix(folder: Path) -> socket.socket:
    """Make the folder and listen in it. The worker may run as another uid, so folder and socket are open
    to all; nobody else gets to them, because the runtime folder above is the director's alone."""
    path = folder / SOCKET_NAME
    size = len(os.fsencode(path))
    if size >= PATH_LIMIT_BYTES:
        raise GatewayError(
            f"socket path {path} has {size} bytes, under {PATH_LIMIT_BYTES} are possible: "
            "choose a shorter runtime folder"
        )
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _ours(folder.parent)
        folder.mkdir(mode=0o755, exist_ok=True)
        folder.chmod(0o755)
        path.unlink(missing_ok=True)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.bind(str(path))
            path.chmod(0o666)
            sock.listen(BACKLOG)
            sock.setblocking(False)
        except OSError:
            sock.close()
            raise
    except OSError as e:
        raise GatewayError(f"cannot listen on {path}: {e.strerror or e}") from e
    return sock


def remove(folder: Path) -> None:
    """Take the folder away, with whatever was put beside the socket. What cannot be removed now is found and
    reused by its name."""
    shutil.rmtree(folder, ignore_errors=True)


def _ours(runtime_dir: Path) -> None:
    """In a shared folder somebody else may have made it first, and could put a socket of his own there."""
    seen = runtime_dir.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_mode & 0o022:
        raise GatewayError(
            f"the runtime folder {runtime_dir} is not a folder that only this user can write to: remove it"
        )


def listen_tcp(host: str, port: int) -> socket.socket:
    """Listen for people on a loopback address; anything else would show the page to the network."""
    if not _loopback(host):
        raise GatewayError(f"gateway.listen {host}:{port} is not a loopback address: use 127.0.0.1")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except (OSError, OverflowError) as e:
        sock.close()
        why = getattr(e, "strerror", None) or e
        raise GatewayError(
            f"cannot listen on {host}:{port}: {why}; choose another gateway.listen port"
        ) from e
    return sock


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _TurnAway(asyncio.Protocol):
    """Too many connections at once: one worker must not use up the director's descriptors."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class Listener:
    """One listening socket whose connections speak uvicorn's protocols to one ASGI application.

    uvicorn's own Server listens on a fixed list of sockets and wakes ten times a second for each;
    attempts come and go, so the protocols are used without it. To be used inside the loop.
    """

    def __init__(self, sock: socket.socket, app: Any) -> None:
        from uvicorn.config import Config
        from uvicorn.server import ServerState

        self.sock = sock
        self.config = Config(
            app, http="h11", ws="auto", lifespan="off", interface="asgi3", log_config=None,
            log_level="critical", access_log=False, ws_max_size=FRAME_LIMIT_BYTES,
            ws_per_message_deflate=False, ws_ping_interval=None, proxy_headers=False, server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_S, h11_max_incomplete_event_size=HEAD_LIMIT_BYTES,
        )  # fmt: skip
        self.config.load()
        self.state = ServerState()
        self.server: asyncio.Server | None = None
        self.coming: list[asyncio.Protocol] = []

    def _protocol(self) -> asyncio.Protocol:
        # A burst is accepted in one go, before any of it counts as a connection.
        self.coming = [p for p in self.coming if getattr(p, "transport", None) is None]
        if len(self.state.connections) + len(self.coming) >= CONNECTIONS_LIMIT:
            return _TurnAway()
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.state, app_state={}
        )
        self.coming.append(made)
        return made

    async def start(self) -> None:
        self.server = await asyncio.get_running_loop().create_server(self._protocol, sock=self.sock)

    async def close(self, grace_s: float) -> None:
        """Stop listening, say goodbye, and cut what has not ended after `grace_s`."""
        if self.server is not None:
            self.server.close()
        self.sock.close()
        for connection in list(self.state.connections):
            connection.shutdown()
        tasks = set(self.state.tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=grace_s)
        for connection in list(self.state.connections):
            connection.transport.abort()
