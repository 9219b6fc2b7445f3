"""A TCP line to a server on loopback that goes bad: it stalls, is reset, or crawls.

The one rule: a fault happens at an exact byte of one direction, once; nothing that comes after it arrives, and
later connections are good. So a test knows what either side can have seen.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from dataclasses import dataclass

BLOCK_BYTES = 1 << 14
UP, DOWN = "up", "down"


@dataclass
class Fault:
    """After `at_bytes` in direction `way` (all connections since it was set), `kind` happens to the connection:
    stall (nothing more passes there until `mend`) or reset (both ends get a TCP reset)."""

    kind: str
    way: str
    at_bytes: int
    passed: int = 0
    fired: bool = False


class BadLine:
    """Use it as a context manager; `url` is where to go instead of the server's own http://HOST:PORT.

    `delay_s` is slept before every block of at most BLOCK_BYTES, in both directions."""

    def __init__(self, server_url: str, delay_s: float = 0.0) -> None:
        host, _, port = server_url.removeprefix("http://").rstrip("/").partition(":")
        self._far = (host, int(port))
        self.delay_s = delay_s
        self.fault: Fault | None = None
        self.connections = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._good = threading.Event()
        self._open: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def __enter__(self) -> BadLine:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.mend()
        _end(self._listening)
        for s in tuple(self._open):
            _end(s)

    def break_at(self, kind: str, way: str, at_bytes: int) -> Fault:
        self._good.clear()
        self.fault = Fault(kind, way, at_bytes)
        return self.fault

    def mend(self) -> None:
        self.fault = None
        self._good.set()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                near, _ = self._listening.accept()
                far = socket.create_connection(self._far, timeout=30)
            except OSError:
                return  # closed: the test is over
            far.settimeout(None)
            self.connections += 1
            self._open |= {near, far}
            for source, sink, way in ((near, far, UP), (far, near, DOWN)):
                threading.Thread(target=self._pump, args=(source, sink, way), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, way: str) -> None:
        try:
            while data := source.recv(BLOCK_BYTES):
                if self.delay_s:
                    self._over.wait(self.delay_s)
                before, kind, after = self._cut(data, way)
                sink.sendall(before)
                if kind == "reset":
                    _reset(source)
                    _reset(sink)
                    return
                if kind == "stall":
                    self._good.wait()
                    sink.sendall(after)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return  # one end hung up

    def _cut(self, data: bytes, way: str) -> tuple[bytes, str, bytes]:
        """What passes, what happens then, and what would have come after it."""
        with self._lock:
            fault = self.fault
            if fault is None or fault.fired or fault.way != way:
                return data, "", b""
            room = fault.at_bytes - fault.passed
            if len(data) < room:
                fault.passed += len(data)
                return data, "", b""
            fault.fired = True
            return data[:room], fault.kind, data[room:]


def _reset(s: socket.socket) -> None:
    """Close with RST in place of FIN, also for a thread that is reading from it."""
    with contextlib.suppress(OSError):  # its other end was faster
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.shutdown(socket.SHUT_RD)
    s.close()


def _end(s: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has ended already, or never began
        s.shutdown(socket.SHUT_RDWR)
    s.close()
