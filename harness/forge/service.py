"""One REST request from bytes to bytes: who calls, what fault, which handler, which headers, what record.

The one rule: the work is one transaction, and what is answered is decided after it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from harness.forge import admin, bodies, limits, repos, routes
from harness.forge.auth import identify
from harness.forge.errors import ApiError
from harness.forge.faults import Rule
from harness.forge.merges import BASE_MODIFIED
from harness.forge.state import Call, Reply, State, Who

log = logging.getLogger("harness.forge")
WORDS = {
    401: "Bad credentials",
    404: "Not Found",
    500: "Server Error",
    502: "Server Error",
    503: "Service Unavailable",
}


@dataclass(frozen=True)
class Request:
    """``path`` is percent-encoded and without ``prefix`` ("" or "/api/v3")."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    prefix: str = ""


@dataclass
class Outcome:
    """What to send. ``status`` of None: drop the connection instead. ``delay_s``: wait first."""

    status: int | None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    delay_s: float = 0.0


def serve(state: State, request: Request) -> Outcome:
    with state.lock:
        at, begun = state.now(), time.perf_counter()
        try:
            who = identify(state, request.headers)
        except ApiError as error:
            outcome = _finish(state, request, None, Reply(error.status, error.body, error.headers))
            limits.note(
                state,
                at=at,
                method=request.method,
                path=request.path,
                status=error.status,
                who=None,
                fault=None,
                inside=False,
                took_s=time.perf_counter() - begun,
            )
            return outcome
        if request.path.startswith("/_forge/"):
            return _finish(
                state, request, who, _guarded(lambda: admin.handle(_call(state, request, who, {})))
            )
        inside, enforced, left = limits.penalty(state, who)
        rule = state.faults.pick(request.method, request.path) if enforced is None else None
        outcome = _answer(state, request, who, rule, enforced, left)
        limits.note(
            state,
            at=at,
            method=request.method,
            path=request.path,
            status=outcome.status,
            who=who,
            fault=rule.kind if rule else None,
            inside=inside,
            took_s=time.perf_counter() - begun,
        )
        return outcome


def _answer(
    state: State, request: Request, who: Who | None, rule: Rule | None, enforced: str | None, left: float
) -> Outcome:
    if enforced is not None:
        return _finish(state, request, who, _still_punished(who, enforced, left))
    if rule is not None and rule.kind == "drop-before":
        return Outcome(None)
    early = _before(state, who, rule) if rule is not None else None
    if early is not None:
        return _finish(state, request, who, early)
    reply = _guarded(lambda: _work(state, request, who))
    outcome = _finish(state, request, who, reply)
    if rule is None:
        return outcome
    if rule.kind == "drop-after":
        return Outcome(None)
    if rule.kind == "status-after":
        return _finish(state, request, who, Reply(rule.status, _words(rule)))
    if rule.kind == "slow":
        outcome.delay_s = rule.seconds
    return outcome


def _words(rule: Rule) -> dict[str, str]:
    return {"message": rule.message or WORDS.get(rule.status, "Server Error")}


def _before(state: State, who: Who | None, rule: Rule) -> Reply | None:
    """The answer of a fault that spares the work; None for one that acts later."""
    if rule.kind == "status-before":
        return Reply(rule.status, _words(rule))
    if rule.kind == "base-modified":
        return Reply(405, {"message": BASE_MODIFIED, "status": "405"})
    if rule.kind == "primary-limit":
        limits.exhaust(state, who, rule.reset_s)
        limits.punish(state, who, "primary", rule.reset_s, enforced=rule.enforce is not False)
        return Reply(rule.status if rule.status in (403, 429) else 403, limits.primary(who).body)
    if rule.kind == "secondary-limit":
        wait = rule.retry_after_s
        window = state.settings.secondary_penalty_s if wait is None else wait
        limits.punish(state, who, "secondary", window, enforced=rule.enforce is True)
        headers = {} if wait is None else {"Retry-After": str(int(wait))}
        status = rule.status if rule.status in (403, 429) else 403
        return Reply(
            status, {"message": rule.message or limits.SECONDARY_WORDS, "status": str(status)}, headers
        )
    return None


def _still_punished(who: Who | None, enforced: str, left: float) -> Reply:
    if enforced == "primary":
        return Reply(403, limits.primary(who).body)
    body = {"message": limits.SECONDARY_WORDS, "status": "403"}
    return Reply(403, body, {"Retry-After": str(int(left) + 1)})


def _guarded(work: Any) -> Reply:
    try:
        reply: Reply = work()
    except ApiError as error:
        return Reply(error.status, error.body, error.headers)
    except Exception:
        log.exception("the forge failed on a request")
        return Reply(500, {"message": "Server Error"})
    return reply


def _call(state: State, request: Request, who: Who | None, params: Mapping[str, str]) -> Call:
    query = dict(parse_qsl(request.query, keep_blank_values=True))
    if not all(bodies.clean(text) for text in (*params.values(), *query.values())):
        raise ApiError(404, "Not Found")
    return Call(
        state=state,
        method=request.method,
        path=request.path,
        params=params,
        query=query,
        body=bodies.parse(request.body),
        who=who,
        api=state.public_url + request.prefix,
        headers=request.headers,
    )


def _work(state: State, request: Request, who: Who | None) -> Reply:
    if request.path != "/rate_limit":
        limits.charge(state, who)
    if state.faults.hidden(request.method, unquote(request.path)):
        raise ApiError(404, "Not Found")
    handler, params = routes.find(request.method, request.path)
    call = _call(state, request, who, params)
    if request.method in ("GET", "HEAD"):
        return handler(call)
    if who is None:
        raise ApiError(401, "Requires authentication")
    with state.db.transaction():
        if "repo" in params and call.repo["archived"] and handler is not repos.update:
            raise ApiError(403, "Repository was archived so is read-only.")
        reply = handler(call)
    if reply.status == 201 and isinstance(reply.body, dict):
        state.faults.created(request.method, request.path, _places(call, reply.body))
    return reply


def _places(call: Call, body: Mapping[str, Any]) -> list[str]:
    """Under which paths a new object can be read."""
    path = unquote(urlsplit(str(body.get("url", ""))).path).removeprefix("/api/v3")
    if not path.startswith("/repos/"):
        return []
    repo = "/".join(path.split("/")[:4])
    places = [path]
    ref = str(body.get("ref", ""))
    if ref.startswith("refs/"):
        places += [
            path.replace("/git/refs/", "/git/ref/"),
            f"{repo}/branches/{ref.removeprefix('refs/heads/')}",
        ]
    if "/pulls/" in path and "number" in body:
        places.append(f"{repo}/issues/{body['number']}")
    if "tag_name" in body:
        places.append(f"{repo}/releases/tags/{body['tag_name']}")
    return places


def _finish(state: State, request: Request, who: Who | None, reply: Reply) -> Outcome:
    """Body and headers; a GET that the client already has becomes a 304, which is not counted."""
    get = request.method in ("GET", "HEAD")
    body, status = reply.body, reply.status
    if get and status == 200 and state.faults.nulls_mergeable(request.method, request.path):
        body = {**body, "mergeable": None, "rebaseable": None, "mergeable_state": "unknown"}
    raw = b"" if body is None else json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    headers = dict(reply.headers)
    if get and status == 200:
        if not request.path.startswith("/_forge/"):
            url = f"{limits.key_of(who)} {request.prefix}{request.path}?{request.query}"
            raw = state.faults.outdated(request.path, url, raw)
        tag = hashlib.sha256(raw + headers.get("Link", "").encode()).hexdigest()[:40]
        headers |= {"ETag": f'W/"{tag}"', "Cache-Control": "private, max-age=60, s-maxage=60"}
        if tag in request.headers.get("if-none-match", ""):
            status, raw = 304, b""
            limits.refund(state, who)
    headers |= limits.headers(state, who) | _common(state, who)
    if raw:
        headers["Content-Type"] = "application/json; charset=utf-8"
    return Outcome(status, headers, raw)


def _common(state: State, who: Who | None) -> dict[str, str]:
    found = {
        "Date": format_datetime(datetime.fromtimestamp(state.now(), UTC), usegmt=True),
        "Server": "harness-forge",
        "X-GitHub-Media-Type": "github.v3; format=json",
        "X-GitHub-Request-Id": uuid.uuid4().hex.upper(),
    }
    if who is not None and who.kind == "pat":
        found["X-OAuth-Scopes"] = who.scopes
    if who is not None and who.expires_at is not None:
        moment = datetime.fromtimestamp(who.expires_at, UTC)
        found["GitHub-Authentication-Token-Expiration"] = moment.strftime("%Y-%m-%d %H:%M:%S UTC")
    return found
