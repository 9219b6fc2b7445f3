"""The ASGI application: git paths to `git_http`, everything else to `service`.

Raw ASGI on purpose (see `git_http`); the body of a REST request is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from harness.forge import git_http, service
from harness.forge.git_http import Receive, Scope, Send
from harness.forge.state import State

API_PREFIX = "/api/v3"


class App:
    """``drop`` closes a request's connection without an answer; the server gives it."""

    def __init__(self, state: State, drop: Callable[[Scope], None]) -> None:
        self.state = state
        self.drop = drop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"the forge does not speak {scope['type']}")
        if git_http.PATH.fullmatch(scope["path"]) and not scope["path"].startswith("/repos/"):
            await git_http.serve(self.state, scope, receive, send, self.drop)
            return
        body = await _read(receive, self.state.settings.body_limit_bytes)
        if body is None:
            await _send(
                send, service.Outcome(413, {"Content-Type": "application/json"}, b'{"message":"Too large"}')
            )
            return
        request = _request(scope, body)
        outcome = await asyncio.to_thread(service.serve, self.state, request)
        if outcome.delay_s:
            await asyncio.sleep(outcome.delay_s)
        if outcome.status is None:
            await git_http.drop_connection(scope, receive, self.drop)
            return
        if scope["method"] == "HEAD":
            outcome.body = b""
        await _send(send, outcome)


def _request(scope: Scope, body: bytes) -> service.Request:
    path = scope.get("raw_path", scope["path"].encode()).decode("latin-1")
    prefix = API_PREFIX if path == API_PREFIX or path.startswith(API_PREFIX + "/") else ""
    return service.Request(
        method=scope["method"],
        path=path.removeprefix(prefix),
        query=scope["query_string"].decode("latin-1"),
        headers={key.decode().lower(): value.decode("latin-1") for key, value in scope["headers"]},
        body=body,
        prefix=prefix,
    )


async def _read(receive: Receive, limit_bytes: int) -> bytes | None:
    """The whole body, None when it is over the limit or the client went away."""
    parts: list[bytes] = []
    total = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunk = message.get("body", b"")
        total += len(chunk)
        if total > limit_bytes:
            return None
        parts.append(chunk)
        if not message.get("more_body"):
            return b"".join(parts)


async def _send(send: Send, outcome: service.Outcome) -> None:
    headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in outcome.headers.items()]
    if outcome.status not in (204, 304):
        headers.append((b"content-length", str(len(outcome.body)).encode()))
    await send({"type": "http.response.start", "status": outcome.status, "headers": headers})
    await send({"type": "http.response.body", "body": outcome.body})
