"""Git's smart HTTP, served by `git http-backend` as a CGI of this ASGI app.

The one rule: the request body goes straight into the process and its output straight out. No wrapper may
read `receive()` besides: Starlette's StreamingResponse eats chunks of pushes over 1 MB. A body ends where its
pipe is closed, whoever closes it: a client, this server, or its death.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sqlite3
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote

from harness.forge import limits, sync
from harness.forge.auth import identify
from harness.forge.bare import CONFIG, environment
from harness.forge.errors import ApiError
from harness.forge.faults import Rule
from harness.forge.state import ROLES, Call, State, Who
from harness.forge.statuses import green_contexts

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

PATH = re.compile(
    r"/(?P<owner>[^/]+)/(?P<repo>[^/]+?)(?:\.git)?/(?P<rest>info/refs|git-upload-pack|git-receive-pack)"
)
CHUNK = 65_536
ENDING_S = 2.0
HEADERS_LIMIT = 65_536
HOOK = """#!/bin/sh
# Refuse what branch protection or a fault forbids. Rules: branch, mode, allowed commits, reason; one a line.
if [ -n "$FORGE_PUSH_REJECT" ]; then printf '%s\\n' "$FORGE_PUSH_REJECT" >&2; exit 1; fi
zero=0000000000000000000000000000000000000000
tab=$(printf '\\t')
refuse() {
  printf 'error: GH006: Protected branch update failed for %s.\\nerror: %s\\n' "$1" "$2" >&2
  exit 1
}
while read -r old new ref; do
  while IFS="$tab" read -r name mode allowed reason; do
    [ "$name" = "$ref" ] || continue
    case "$mode" in
      nodelete) [ "$new" != "$zero" ] || refuse "$ref" "Cannot delete this protected branch" ;;
      noforce)
        case "$old $new" in *$zero*) continue ;; esac
        git merge-base --is-ancestor "$old" "$new" ||
          refuse "$ref" "Cannot force-push to this protected branch" ;;
      only) case " $allowed " in *" $new "*) ;; *) refuse "$ref" "$reason" ;; esac ;;
    esac
  done <<RULES
$FORGE_RULES
RULES
done
"""


@dataclass
class _Visit:
    """One git request, judged: where, by whom, for what; ``env`` goes to the CGI."""

    state: State
    scope: Scope
    repo: sqlite3.Row
    who: Who | None
    service: str
    rest: str
    rule: Rule | None
    begun: float = field(default_factory=time.perf_counter)

    @property
    def pushes(self) -> bool:
        return self.rest == "git-receive-pack"


async def serve(
    state: State, scope: Scope, receive: Receive, send: Send, drop: Callable[[Scope], None]
) -> None:
    """Answer one request whose path matches PATH. ``drop`` closes its connection without a word."""
    found = PATH.fullmatch(scope["path"])
    if found is None:
        raise LookupError(f"not a git path: {scope['path']}")
    headers = {key.decode().lower(): value.decode("latin-1") for key, value in scope["headers"]}
    try:
        visit = await asyncio.to_thread(_admit, state, scope, found, headers)
    except ApiError as error:
        await _refuse(send, error)
        return
    rule = visit.rule
    if rule is not None and rule.kind == "drop-before":
        await asyncio.to_thread(_note, visit, None)
        await drop_connection(scope, receive, drop)
    elif rule is not None and rule.kind == "status-before":
        await asyncio.to_thread(_note, visit, rule.status)
        await _refuse(send, ApiError(rule.status, rule.message or "Server Error"))
    else:
        await _run(visit, headers, receive, send, drop)


async def drop_connection(scope: Scope, receive: Receive, drop: Callable[[Scope], None]) -> None:
    """Close the connection, and stay until the server has seen that it is gone."""
    drop(scope)
    while (await receive())["type"] != "http.disconnect":
        pass


def _admit(state: State, scope: Scope, found: re.Match[str], headers: dict[str, str]) -> _Visit:
    """Who may do what here: anonymous reads of public repositories, writes with a token of role write."""
    with state.lock:
        rest = found["rest"]
        query = parse_qs(scope["query_string"].decode("latin-1"))
        service = query.get("service", [""])[0] if rest == "info/refs" else rest
        who = identify(state, headers)
        repo = state.repo(unquote(found["owner"]), unquote(found["repo"]))
        role = "none" if repo is None else state.role(repo, who)
        if repo is None or role == "none":
            raise ApiError(404 if who else 401, "Repository not found.")
        if service == "git-receive-pack":
            if who is None:
                raise ApiError(401, "Authentication required")
            if ROLES.index(role) < ROLES.index("write") or repo["archived"]:
                name = f"{repo['owner']}/{repo['name']}"
                raise ApiError(403, f"Write access to {name}.git not granted to {who.user['login']}.")
        elif service != "git-upload-pack":
            raise ApiError(403, "Please upgrade your git client.")
        return _Visit(
            state, scope, repo, who, service, rest, state.faults.pick(scope["method"], scope["path"])
        )


async def _refuse(send: Send, error: ApiError) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    if error.status == 401:
        headers.append((b"www-authenticate", b'Basic realm="GitHub"'))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": (error.body["message"] + "\n").encode()})


def _environment(visit: _Visit, headers: dict[str, str]) -> dict[str, str]:
    """The CGI variables (RFC 3875) that http-backend reads, over an otherwise clean environment."""
    scope, repo = visit.scope, visit.repo
    rules, reject = (
        _rules(visit),
        visit.rule.reason if visit.rule and visit.rule.kind == "push-reject" else "",
    )
    config: tuple[tuple[str, str], ...] = CONFIG
    if visit.pushes and (rules or reject):
        hooks = str((visit.state.data_dir / "hooks").resolve())
        config = (("core.hooksPath", hooks), *[pair for pair in CONFIG if pair[0] != "core.hooksPath"])
    env = environment(config)
    env |= {
        "GIT_PROJECT_ROOT": str((visit.state.data_dir / "repos").resolve()),
        "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": f"/{repo['owner']}/{repo['name']}.git/{visit.rest}",
        "REQUEST_METHOD": scope["method"],
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "CONTENT_TYPE": headers.get("content-type", ""),
        "REMOTE_ADDR": "127.0.0.1",
        "FORGE_RULES": rules,
        "FORGE_PUSH_REJECT": reject,
    }
    if visit.who is not None:
        env["REMOTE_USER"] = visit.who.user["login"]
    # No CONTENT_LENGTH: with one, http-backend reads a push until so many bytes came, and where its pipe is closed
    # before (this server was killed) it reads that end again and again for ever. Without, the end is the end.
    for name, variable in (("content-encoding", "HTTP_CONTENT_ENCODING"), ("git-protocol", "GIT_PROTOCOL")):
        if name in headers:
            env[variable] = headers[name]
    return env


def _rules(visit: _Visit) -> str:
    """Branch protection as lines for the hook; an admin passes reviews and checks if not enforced."""
    state, lines = visit.state, []
    if not visit.pushes:
        return ""
    with state.lock:
        call = _call(visit)
        for row in state.db.all("SELECT * FROM protections WHERE repo_id = ?", visit.repo["id"]):
            ref = f"refs/heads/{row['branch']}"
            if not row["allow_deletions"]:
                lines.append(f"{ref}\tnodelete\t-\t-")
            if not row["allow_force_pushes"]:
                lines.append(f"{ref}\tnoforce\t-\t-")
            if call.may("admin") and not row["enforce_admins"]:
                continue
            if row["locked"]:
                lines.append(f"{ref}\tonly\t-\tCannot change this locked branch")
            if row["required_reviews"]:
                lines.append(f"{ref}\tonly\t-\tChanges must be made through a pull request.")
            for name in json.loads(row["required_checks"]):
                sql = "SELECT DISTINCT sha FROM statuses WHERE repo_id = ? AND context = ?"
                shas = [item["sha"] for item in state.db.all(sql, visit.repo["id"], name)]
                green = [sha for sha in shas if green_contexts(call, sha).get(name) == "success"]
                lines.append(
                    f'{ref}\tonly\t{" ".join(green) or "-"}\tRequired status check "{name}" is expected.'
                )
    return "\n".join(lines)


def _call(visit: _Visit) -> Call:
    params = {"owner": visit.repo["owner"], "repo": visit.repo["name"]}
    path, base = visit.scope["path"], visit.state.public_url
    return Call(visit.state, visit.scope["method"], path, params, {}, {}, visit.who, base, {})


async def _run(
    visit: _Visit, headers: dict[str, str], receive: Receive, send: Send, drop: Callable[[Scope], None]
) -> None:
    env = await asyncio.to_thread(_environment, visit, headers)
    process = await asyncio.create_subprocess_exec(
        "git",
        "http-backend",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=env,
        limit=HEADERS_LIMIT,
        start_new_session=True,  # a group of its own: what it started is ended with it
    )
    feeding = asyncio.create_task(_feed(visit.state, process, receive))
    try:
        async with asyncio.timeout(visit.state.settings.git_timeout_s):
            answered = await _relay(visit, process, send)
    finally:
        feeding.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await feeding
        if process.stdin is not None:
            process.stdin.close()
        await _reap(process)
        if visit.pushes:  # whatever became of the answer
            await asyncio.to_thread(_pushed, visit)
    if not answered:
        await drop_connection(visit.scope, receive, drop)


async def _reap(process: asyncio.subprocess.Process) -> None:
    """Wait for the process, a moment if it is ending by itself, else after SIGTERM, and at last SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            async with asyncio.timeout(ENDING_S):
                await process.wait()
            return
        except TimeoutError:
            _end(process, number)
    await process.wait()


def _end(process: asyncio.subprocess.Process, number: int = signal.SIGTERM) -> None:
    """End it and what it started. By SIGTERM, git takes its lock files away; nobody else would.

    Not by ``process.terminate()``: that polls, and may take the exit status from asyncio's watcher.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):  # it ended by itself just now
            os.killpg(process.pid, number)


async def _feed(state: State, process: asyncio.subprocess.Process, receive: Receive) -> None:
    """The body into the process; a client that goes away ends it."""
    stdin = process.stdin
    if stdin is None:
        raise RuntimeError("the CGI has no stdin")
    total = 0
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has exited: its answer says why
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                stdin.close()
                _end(process)
                return
            chunk = message.get("body", b"")
            total += len(chunk)
            if total > state.settings.push_limit_bytes:
                stdin.close()
                _end(process)
                return
            stdin.write(chunk)
            await stdin.drain()
            if not message.get("more_body"):
                break
        stdin.close()


async def _relay(visit: _Visit, process: asyncio.subprocess.Process, send: Send) -> bool:
    """The process's answer to the client; faults that act "after" let the work end, then spoil it.

    False when nothing was sent, because a fault says to drop the connection.
    """
    stdout = process.stdout
    if stdout is None:
        raise RuntimeError("the CGI has no stdout")
    status, headers = await _head(stdout)
    rule = visit.rule
    if (rule is not None and rule.kind in ("status-after", "drop-after", "slow")) or visit.pushes:
        whole = await stdout.read()
        await process.wait()
        if visit.pushes:  # pull requests have moved before the client hears that its push is done
            await asyncio.to_thread(_pushed, visit)
        if rule is not None and rule.kind == "slow":
            await asyncio.sleep(rule.seconds)
        if rule is not None and rule.kind == "drop-after":
            await asyncio.to_thread(_note, visit, None)
            return False
        if rule is not None and rule.kind == "status-after":
            await asyncio.to_thread(_note, visit, rule.status)
            await _refuse(send, ApiError(rule.status, rule.message or "Server Error"))
            return True
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": whole})
    else:
        await send({"type": "http.response.start", "status": status, "headers": headers})
        while chunk := await stdout.read(CHUNK):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    await asyncio.to_thread(_note, visit, status)
    return True


async def _head(stdout: asyncio.StreamReader) -> tuple[int, list[tuple[bytes, bytes]]]:
    """The CGI's header block: its Status line and the headers to pass on."""
    status, headers = 200, []
    while True:
        line = (await stdout.readline()).rstrip(b"\r\n")
        if not line:
            break
        name, _, value = line.partition(b":")
        if name.lower() == b"status":
            status = int(value.split()[0])
        else:
            headers.append((name.lower(), value.strip()))
    return (status, headers) if headers or status != 200 else (500, [])


def _pushed(visit: _Visit) -> None:
    """Pull requests and issues follow the refs; harmless when nothing moved."""
    with visit.state.lock, visit.state.db.transaction():
        sync.reconcile(_call(visit))


def _note(visit: _Visit, status: int | None) -> None:
    state = visit.state
    with state.lock:
        limits.note(
            state,
            at=state.now(),
            method=visit.scope["method"],
            path=visit.scope["path"],
            status=status,
            who=visit.who,
            fault=visit.rule.kind if visit.rule else None,
            inside=False,
            took_s=time.perf_counter() - visit.begun,
            is_git=True,
        )
