"""What people and their monitoring see: a status page, /healthz, /metrics. Read-only, on loopback.

The one rule: everything shown comes from the plain values of `status()` and is escaped; no request
changes a thing.
"""

from __future__ import annotations

import html
import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

DEPTH_LIMIT = 6
ROWS_LIMIT = 200
TEXT_LIMIT = 500
_NAME = re.compile(r"[^a-zA-Z0-9_]+")
_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}"
    "h1 b{color:#1a7f37}h1 b.bad{color:#b3261e}table{border-collapse:collapse;margin:.3rem 0}"
    "td,th{border:1px solid #8884;padding:.15rem .6rem;text-align:left;vertical-align:top}"
    "th{font-weight:600}@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}}"
)


class Shown(Protocol):
    """What the pages need of the gateway."""

    status: Callable[[], Mapping[str, Any]]

    def numbers(self) -> Mapping[str, float]: ...
    def today(self) -> Mapping[str, Any]: ...


def pages(gateway: Shown) -> Any:
    """`status()` answers {"ok": bool, …}: ok decides about /healthz, everything else is shown as it is."""

    def look() -> tuple[bool, Mapping[str, Any]]:
        try:
            status = gateway.status()
        except Exception as e:  # a bug of the director's must show as "degraded", not as a missing page
            return False, {"ok": False, "problem": f"the status cannot be told: {type(e).__name__}: {e}"}
        return bool(status.get("ok", False)), status

    async def healthz(request: Request) -> Response:
        ok, status = look()
        body = {"status": "ok" if ok else "degraded", **status}
        return _json(body, 200 if ok else 503)

    async def metrics(request: Request) -> Response:
        _, status = look()
        text = render(status, gateway.numbers(), gateway.today())
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def page(request: Request) -> Response:
        ok, status = look()
        return HTMLResponse(_page(ok, status), headers=_HEADERS)

    routes = [Route("/healthz", healthz), Route("/metrics", metrics), Route("/", page)]
    return _OwnNames(Starlette(routes=routes))


class _OwnNames:
    """Turns away requests by a name that is not ours: a web page elsewhere may point its own name at
    loopback."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        host = next((v.decode("latin-1") for k, v in scope["headers"] if k.lower() == b"host"), "")
        name = host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]
        if name == "localhost" or _address(name):
            await self.app(scope, receive, send)
            return
        await PlainTextResponse("not this host\n", 421)(scope, receive, send)


def _address(name: str) -> bool:
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def _json(body: Any, status: int) -> Response:
    text = json.dumps(body, default=str, ensure_ascii=False, indent=2)
    return Response(text + "\n", status, {"cache-control": "no-store"}, "application/json")


# ---------------------------------------------------------------- metrics


def render(status: Mapping[str, Any], counts: Mapping[str, float], today: Mapping[str, Any]) -> str:
    """Every number in `status` becomes a gauge named after its path; lists are counted."""
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry()
    found = {f"harness_{name}": value for name, value in _numbers(status, "")}
    found |= {f"harness_gateway_{name}": float(value) for name, value in counts.items()}
    found |= {f"harness_model_today_{name}": float(value) for name, value in today.items()}
    for name, value in sorted(found.items()):
        Gauge(name, name.replace("_", " "), registry=registry).set(value)
    return generate_latest(registry).decode()


def _numbers(status: Mapping[str, Any], prefix: str, depth: int = 0) -> Iterator[tuple[str, float]]:
    for key, value in status.items():
        name = f"{prefix}{_NAME.sub('_', str(key))}"
        if isinstance(value, bool | int | float):
            yield name, float(value)
        elif isinstance(value, Mapping) and depth < DEPTH_LIMIT:
            yield from _numbers(value, f"{name}_", depth + 1)
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            yield f"{name}_count", float(len(value))


# ---------------------------------------------------------------- the page


def _page(ok: bool, status: Mapping[str, Any]) -> str:
    word = "<b>ok</b>" if ok else '<b class="bad">degraded</b>'
    rest = {k: v for k, v in status.items() if k != "ok"}
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>harness</title>'
        '<meta http-equiv="refresh" content="10"><meta name="viewport" content="width=device-width">'
        f"<style>{_STYLE}</style></head>"
        f"<body><h1>harness: {word}</h1>{_show(rest, 0)}</body></html>"
    )


def _show(value: Any, depth: int) -> str:
    if depth > DEPTH_LIMIT:
        return "…"
    if isinstance(value, Mapping):
        return _table(value.items(), depth)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        rows = list(value[:ROWS_LIMIT])
        more = f"<p>and {len(value) - ROWS_LIMIT} more</p>" if len(value) > ROWS_LIMIT else ""
        if rows and all(isinstance(x, Mapping) for x in rows):
            return _grid(rows, depth) + more
        return "<br>".join(_show(x, depth + 1) for x in rows) + more
    return html.escape(str(value)[:TEXT_LIMIT])


def _table(items: Iterable[tuple[Any, Any]], depth: int) -> str:
    cells = "".join(f"<tr><th>{_label(k)}</th><td>{_show(v, depth + 1)}</td></tr>" for k, v in items)
    return f"<table>{cells}</table>" if cells else "–"


def _grid(rows: Sequence[Mapping[str, Any]], depth: int) -> str:
    names = list(dict.fromkeys(k for row in rows for k in row))
    head = "".join(f"<th>{_label(n)}</th>" for n in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{_show(row.get(n, ''), depth + 1)}</td>" for n in names) + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _label(key: Any) -> str:
    return html.escape(str(key)[:TEXT_LIMIT]).replace("_", " ")
