"""As much of HTTP/1.1 as the forwarder must see: a request's head to rewrite, and whether a reply came whole.

The one rule: bodies pass as bytes; one request a connection, so that each head is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

HEAD_LIMIT_BYTES = 64 << 10
SERVED = ("/model/", "/git/")
_OURS = (b"x-harness-", b"connection:", b"proxy-connection:", b"keep-alive:", b"upgrade:")


def rewrite(head: bytes, extra: Mapping[str, str]) -> bytes:
    """The head with our headers in place of what a client may not say. Raises ValueError for what is not
    served."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    parts = first.split(b" ")
    if len(parts) != 3 or not parts[2].startswith(b"HTTP/1."):
        raise ValueError("not an HTTP request")
    target = parts[1].decode("latin-1")
    if not target.startswith(SERVED):
        raise ValueError(f"only {' and '.join(SERVED)} are served here")
    kept = [x for x in lines if not x.lower().startswith(_OURS) and not x.startswith((b" ", b"\t"))]
    added = [f"{name}: {value}".encode("latin-1") for name, value in extra.items()]
    return b"\r\n".join([first, *kept, *added, b"connection: close"]) + b"\r\n\r\n"


class ReplyFrame:
    """Watches a reply pass. `begun`: its final head was seen; `whole()`: what was seen is all of it;
    `marked`: its head says that the director restarts, which is told to `on_mark` before the head goes on."""

    def __init__(self, on_mark: Callable[[], None] = lambda: None) -> None:
        self.on_mark = on_mark
        self.begun = False
        self.marked = False
        self._head = b""
        self._left: int | None = None
        self._chunked = False
        self._tail = b""

    def feed(self, data: bytes) -> None:
        if not self.begun:
            self._head += data
            while not self.begun and (end := self._head.find(b"\r\n\r\n")) >= 0:
                head, self._head = self._head[: end + 2], self._head[end + 4 :]
                self._read(head)
            if not self.begun:
                return
            data, self._head = self._head, b""
        if self._left is not None:
            self._left -= len(data)
        self._tail = (self._tail + data)[-7:]

    def _read(self, head: bytes) -> None:
        status = head[9:12]
        if status.startswith(b"1"):  # 100 Continue: the reply's own head is still to come
            return
        self.begun = True
        lower = head.lower()
        self.marked = b"\r\nx-harness-reason: restarting\r\n" in lower
        if self.marked:
            self.on_mark()
        self._chunked = b"\r\ntransfer-encoding: chunked\r\n" in lower
        at = lower.find(b"\r\ncontent-length:")
        if at >= 0:
            self._left = int(lower[at + 17 : lower.find(b"\r\n", at + 2)])
        elif status in (b"204", b"304"):
            self._left = 0

    def whole(self) -> bool:
        if not self.begun:
            return False
        if self._chunked:
            return self._tail.endswith(b"0\r\n\r\n")
        return self._left is None or self._left <= 0
