"""An engine on a unix socket that answers what a test wants: refusals, full disks, silence, broken lines.

The one rule: it speaks real HTTP to the real client. What it answers was copied from real engines.
"""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

Answer = tuple[int, Any] | Callable[[BaseHTTPRequestHandler], None]

CALM: dict[str, Answer] = {
    "GET /version": (200, {"ApiVersion": "1.41", "Version": "20.10.24"}),
    "GET /info": (200, {"ID": "STUB", "ServerVersion": "20.10.24", "NCPU": 2}),
    "GET /networks/bridge": (200, {"Id": "b1", "Name": "bridge"}),
}


class StubEngine(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """`answers` maps "METHOD /path" (without version and query) to a status and a body, or to a function."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, path: Path, **answers: Answer) -> None:
        self.answers: dict[str, Answer] = {**CALM, **answers}
        self.asked: list[str] = []
        self.bodies: list[Any] = []
        self.over = threading.Event()
        super().__init__(str(path), _Handler)
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    def __enter__(self) -> StubEngine:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: StubEngine

    def handle_any(self) -> None:
        path = self.path.partition("?")[0]
        if path.startswith("/v1."):
            path = path[path.index("/", 1) :]
        key = f"{self.command} {path}"
        size = int(self.headers.get("Content-Length") or 0)
        self.server.asked.append(key)
        if size:
            self.server.bodies.append(json.loads(self.rfile.read(size)))
        answer = self.server.answers.get(key, (404, {"message": f"No such thing: {path}"}))
        if callable(answer):
            answer(self)
            return
        status, body = answer
        data = b"" if status in (204, 304) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        if status not in (204, 304):
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = handle_any

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: what was asked is in `asked`."""


def silence(handler: BaseHTTPRequestHandler) -> None:
    """Never answers, until the stub is closed."""
    server = handler.server
    assert isinstance(server, StubEngine)
    server.over.wait(60)
    handler.close_connection = True


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    """Closes the line in the middle."""
    handler.close_connection = True


def trickle(handler: BaseHTTPRequestHandler) -> None:
    """Sends a log of which one byte comes every 0.1 s: no single read is slow, and it never ends."""
    server = handler.server
    assert isinstance(server, StubEngine)
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    try:
        while not server.over.wait(0.1):
            handler.wfile.write(b"9\r\n\x01\0\0\0\0\0\0\x01x\r\n")
    except OSError:
        handler.close_connection = True
