"""The door of one attempt: every request on its socket passes here first.

The one rule: the desk comes from the socket that was connected to; token and incarnation only confirm it, and
nothing that a caller sends can name another attempt.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from harness.gateway.desk import Counts, Desk
from harness.gateway.wire import INCARNATION_HEADER, TOKEN_HEADER

log = logging.getLogger(__name__)
App = Callable[[Any, Any, Any], Awaitable[None]]


class Door:
    def __init__(self, desk: Desk, inside: App, counts: Counts) -> None:
        self.desk = desk
        self.inside = inside
        self.counts = counts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] not in ("http", "websocket"):
            return
        token, incarnation = _credentials(scope["headers"])
        refusal = self.desk.refuses(token, incarnation)
        if refusal is None:
            try:
                await self.inside({**scope, "desk": self.desk}, receive, send)
            except Exception:  # a bug behind the door: reported, and the connection ends
                log.exception("a request of attempt %s failed", self.desk.attempt)
            return
        self.counts.refused += 1
        status, why = refusal
        prefix = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
        body = json.dumps({"error": {"type": "harness", "message": why}}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": f"{prefix}.start", "status": status, "headers": headers})
        await send({"type": f"{prefix}.body", "body": body, "more_body": False})


def _credentials(headers: list[tuple[bytes, bytes]]) -> tuple[str, str]:
    """Token and incarnation of a request. Our own header goes first: agents fill Authorization with their
    own."""
    found = {k.lower(): v.decode("latin-1") for k, v in headers}
    token = found.get(TOKEN_HEADER.encode(), "")
    if not token:
        scheme, _, value = found.get(b"authorization", "").partition(" ")
        token = value.strip() if scheme.lower() == "bearer" else ""
    return token, found.get(INCARNATION_HEADER.encode(), "")
