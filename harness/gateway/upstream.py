"""What goes to the model's provider and what comes back: paths, headers, the key, errors in each API's
shape.

The one rule: only the paths of the list, only to the configured upstream; headers pass by an allow-list
in both directions, and the key appears in nothing that goes back.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from harness.gateway.settings import GatewayError, ModelSettings
from harness.gateway.wire import REASON_HEADER

# path -> (method, whether it costs anything)
PATHS: Mapping[str, tuple[str, bool]] = {
    "/v1/messages": ("POST", True),
    "/v1/messages/count_tokens": ("POST", False),
    "/v1/chat/completions": ("POST", True),
    "/v1/responses": ("POST", True),
    "/v1/models": ("GET", False),
}
REQUEST_HEADERS = frozenset(
    {"content-type", "accept", "user-agent", "anthropic-version", "anthropic-beta", "openai-beta"}
)
REPLY_HEADERS = frozenset(
    {"content-type", "retry-after", "retry-after-ms", "request-id", "x-request-id", "x-should-retry"}
)
REPLY_PREFIXES = ("anthropic-ratelimit-", "x-ratelimit-")
KEY_SHORTEST = 8
QUERY_LIMIT = 200


def base_of(settings: ModelSettings) -> str:
    """The upstream without `/v1`, which the paths bring along."""
    base = settings.base_url.rstrip("/").removesuffix("/v1")
    if not base.startswith(("http://", "https://")):
        raise GatewayError(f"the model's upstream {settings.base_url!r} is not an http(s) URL")
    if settings.auth not in ("bearer", "x-api-key", "none"):
        raise GatewayError(f"the model's auth {settings.auth!r}: expected bearer, x-api-key or none")
    return base


def request_headers(settings: ModelSettings, key: str, given: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Ours for theirs: nothing that a client says about who it is goes on."""
    headers = {
        name: value
        for name, value in ((n.lower(), v) for n, v in given)
        if name in REQUEST_HEADERS or name.startswith("x-stainless-")
    }
    headers["accept-encoding"] = "identity"
    headers.update({k.lower(): v for k, v in settings.headers.items()})
    if settings.auth == "bearer":
        headers["authorization"] = f"Bearer {key}"
    elif settings.auth == "x-api-key":
        headers["x-api-key"] = key
    return headers


def reply_headers(given: Iterable[tuple[str, str]], key: str) -> list[tuple[bytes, bytes]]:
    out = []
    for name, value in ((n.lower(), v) for n, v in given):
        wanted = name in REPLY_HEADERS or name.startswith(REPLY_PREFIXES)
        if wanted and not (len(key) >= KEY_SHORTEST and key in value):
            out.append((name.encode("latin-1"), value.encode("latin-1", "replace")))
    return out


class Scrub:
    """Takes the key out of bytes that pass, also where it is cut over two chunks. Only bytes that may be the
    beginning of the key are held back."""

    def __init__(self, key: str) -> None:
        self.key = key.encode() if len(key) >= KEY_SHORTEST else b""
        self.held = b""

    def feed(self, chunk: bytes) -> bytes:
        if not self.key:
            return chunk
        data = (self.held + chunk).replace(self.key, b"[redacted]")
        keep = next(
            (n for n in range(min(len(self.key) - 1, len(data)), 0, -1) if self.key.startswith(data[-n:])), 0
        )
        self.held = data[len(data) - keep :]
        return data[: len(data) - keep]

    def end(self) -> bytes:
        held, self.held = self.held, b""
        return held


def error_body(path: str, kind: str, why: str) -> bytes:
    """An error as the API of `path` would give it. `kind` is limit, request, size, path or upstream."""
    if path.startswith("/v1/messages"):
        names = {"limit": "rate_limit_error", "request": "invalid_request_error", "size": "request_too_large"}
        names |= {"path": "not_found_error"}
        body: dict[str, Any] = {
            "type": "error",
            "error": {"type": names.get(kind, "api_error"), "message": f"harness: {why}"},
        }
    else:
        names = {"limit": "rate_limit_exceeded", "request": "invalid_request_error"}
        names |= {"size": "invalid_request_error", "path": "invalid_request_error"}
        name = names.get(kind, "server_error")
        body = {"error": {"message": f"harness: {why}", "type": name, "code": name, "param": None}}
    return json.dumps(body).encode()


def error_event(path: str, why: str) -> bytes:
    """The same inside a stream that has begun."""
    body = error_body(path, "upstream", why)
    return (b"event: error\n" if path != "/v1/chat/completions" else b"") + b"data: " + body + b"\n\n"


class Refusal(Exception):
    """A call that ends here. `reason` goes into x-harness-reason."""

    def __init__(
        self, status: int, kind: str, reason: str, why: str, retry_after_s: float | None = None
    ) -> None:
        super().__init__(why)
        self.status = status
        self.kind = kind
        self.reason = reason
        self.retry_after_s = retry_after_s


async def refuse(send: Any, path: str, e: Refusal) -> None:
    body = error_body(path, e.kind, str(e))
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (REASON_HEADER.encode(), e.reason.encode()),
    ]
    if e.retry_after_s is not None:
        headers.append((b"retry-after", str(max(1, math.ceil(e.retry_after_s))).encode()))
    if e.reason == "budget_exhausted":
        headers.append((b"x-should-retry", b"false"))
    await send({"type": "http.response.start", "status": e.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def asked(body: bytes) -> dict[str, Any]:
    found = parsed(body)
    if not isinstance(found, dict):
        raise Refusal(400, "request", "request", "the request's body is not a JSON object")
    return found


def parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
