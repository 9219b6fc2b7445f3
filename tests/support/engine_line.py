"""A line to the machine's container engine that can be made to hang: a proxy on a unix socket of its own.

The one rule: while it hangs it accepts and never answers, on old connections as on new ones, as a frozen
engine does; afterwards everything that waited goes on.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from pathlib import Path

ENGINE = Path("/var/run/docker.sock")
BLOCK_BYTES = 1 << 16


class EngineLine:
    """`host` is what containers.docker_host takes. `asked` counts connections that came while it hung."""

    def __init__(self, path: Path, engine: Path = ENGINE) -> None:
        self.path, self.engine = path, engine
        self.host = f"unix://{path}"
        self.asked = 0
        self._free = threading.Event()
        self._free.set()
        self._over = threading.Event()
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen(128)
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def hang(self) -> None:
        self._free.clear()

    def answer(self) -> None:
        self._free.set()

    def __enter__(self) -> EngineLine:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._free.set()
        for s in (self._server, *self._open):
            _end(s)
        self.path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            self.asked += not self._free.is_set()
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        self._free.wait()
        far = socket.socket(socket.AF_UNIX)
        try:
            far.connect(str(self.engine))
        except OSError:
            near.close()
            return
        self._open += [near, far]
        back = threading.Thread(target=self._copy, args=(far, near), daemon=True)
        back.start()
        self._copy(near, far)
        back.join()
        for s in (near, far):
            s.close()
            self._open.remove(s)

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(BLOCK_BYTES):
                self._free.wait()
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            return  # one side is gone; the other one is closed by who began this


def _end(s: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it was never connected, or has ended
        s.shutdown(socket.SHUT_RDWR)
    s.close()


def reachable(engine: Path = ENGINE) -> bool:
    return engine.exists() and os.access(engine, os.W_OK)
