"""A forge's git for tests: a real bare repository over file:// or http, and a person who pushes.

The one rule: every git here is real and has a clean environment; nothing of the product is used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

CLEAN = {
    "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@acme.example",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@acme.example",
    "GIT_AUTHOR_DATE": "@1700000000 +0000",
    "GIT_COMMITTER_DATE": "@1700000000 +0000",
}
Files = Mapping[str, "str | bytes | None"]


def git(*args: str | bytes, cwd: Path, feed: bytes = b"", env: Mapping[str, str] | None = None) -> bytes:
    done = subprocess.run(
        ["git", *args], cwd=cwd, input=feed, capture_output=True, env=CLEAN | dict(env or {}), timeout=120
    )
    assert done.returncode == 0, (args, done.stderr.decode(errors="replace"))
    return done.stdout


def text(*args: str, cwd: Path, feed: bytes = b"") -> str:
    return git(*args, cwd=cwd, feed=feed).decode().strip()


def write(folder: Path, files: Files) -> None:
    for name, content in files.items():
        path = folder / name
        if content is None:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def commit(folder: Path, files: Files, message: str = "work") -> str:
    """Write files into a working copy and commit everything in it."""
    write(folder, files)
    git("add", "-A", cwd=folder)
    git("commit", "-q", "--allow-empty", "-m", message, cwd=folder)
    return text("rev-parse", "HEAD", cwd=folder)


def bundle(folder: Path, base: str, to: Path, tip: str = "HEAD") -> str:
    """A thin bundle of `base..tip`; answers the tip's SHA."""
    git("bundle", "create", "-q", str(to), tip, f"^{base}", cwd=folder)
    return text("rev-parse", tip, cwd=folder)


class Origin:
    """The bare repository at the forge, and the clone of a person who pushes to it."""

    def __init__(self, root: Path, name: str = "widget") -> None:
        self.path = root / f"{name}.git"
        self.person = root / f"{name}-person"
        root.mkdir(parents=True, exist_ok=True)
        git("init", "-q", "--bare", "-b", "main", str(self.path), cwd=root)
        git("config", "http.receivepack", "true", cwd=self.path)
        git("config", "uploadpack.allowAnySHA1InWant", "true", cwd=self.path)
        git("init", "-q", "-b", "main", str(self.person), cwd=root)

    @property
    def url(self) -> str:
        return self.path.as_uri()

    def push(self, ref: str, files: Files, message: str = "person", start: str = "") -> str:
        """A person's commit on top of what `ref` has now (or of `start`), pushed by force."""
        parent = start or self.ref(ref)
        if parent:
            git("fetch", "-q", str(self.path), "+refs/*:refs/origin/*", cwd=self.person)
            git("checkout", "-q", "-f", "--detach", parent, cwd=self.person)
        else:
            shutil.rmtree(self.person)
            git("init", "-q", "-b", "main", str(self.person), cwd=self.path.parent)
        sha = commit(self.person, files, message)
        git("push", "-q", "-f", str(self.path), f"{sha}:{ref}", cwd=self.person)
        return sha

    def ref(self, ref: str) -> str:
        return self.refs().get(ref, "")

    def refs(self) -> dict[str, str]:
        lines = text("for-each-ref", "--format=%(refname) %(objectname)", cwd=self.path).splitlines()
        return dict(line.split(" ") for line in lines)  # type: ignore[misc]

    def set(self, ref: str, sha: str) -> None:
        git("update-ref", ref, sha, cwd=self.path) if sha else git("update-ref", "-d", ref, cwd=self.path)

    def hook(self, name: str, script: str) -> None:
        (self.path / "hooks").mkdir(exist_ok=True)
        path = self.path / "hooks" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)


@dataclass
class Seen:
    """One HTTP request as the server saw it."""

    method: str
    path: str
    authorization: str = ""


@dataclass
class Plan:
    """How the server behaves: `passwords` it accepts (None: everybody's), and `fault`, which may answer in
    its place by returning True."""

    passwords: set[str] | None = None
    fault: Callable[[BaseHTTPRequestHandler], bool] | None = None
    seen: list[Seen] = field(default_factory=list)


class GitServer:
    """`git http-backend` behind Python's HTTP server, on loopback."""

    def __init__(self, root: Path) -> None:
        self.plan = Plan()
        plan = self.plan

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                return

            def do_GET(self) -> None:
                _serve(self, plan, root)

            do_POST = do_GET

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self._thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def url(self, origin: Origin) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}/{origin.path.name}"

    def close(self) -> None:
        self.http.shutdown()
        self._thread.join()
        self.http.server_close()


def _serve(request: BaseHTTPRequestHandler, plan: Plan, root: Path) -> None:
    import base64

    header = request.headers.get("Authorization", "")
    plan.seen.append(Seen(request.command, request.path, header))
    body = _body(request)
    if plan.fault is not None and plan.fault(request):
        return
    if plan.passwords is not None:
        given = base64.b64decode(header.removeprefix("Basic ") or "").decode().partition(":")[2]
        if given not in plan.passwords:
            request.send_response(401)
            request.send_header("WWW-Authenticate", 'Basic realm="forge"')
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
    path, _, query = request.path.partition("?")
    env = CLEAN | {
        "GIT_PROJECT_ROOT": str(root),
        "GIT_HTTP_EXPORT_ALL": "1",
        "REQUEST_METHOD": request.command,
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "CONTENT_TYPE": request.headers.get("Content-Type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "REMOTE_USER": "someone",
        "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
        "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
    }
    done = subprocess.run(["git", "http-backend"], input=body, capture_output=True, env=env, timeout=60)
    head, _, content = done.stdout.partition(b"\r\n\r\n")
    fields = [line.decode().partition(": ")[::2] for line in head.split(b"\r\n") if line]
    status = next((value for name, value in fields if name == "Status"), "200 OK")
    request.send_response(int(status.split()[0]))
    for name, value in fields:
        if name != "Status":
            request.send_header(name, value)
    request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    request.wfile.write(content)


def _body(request: BaseHTTPRequestHandler) -> bytes:
    if request.headers.get("Transfer-Encoding", "") != "chunked":
        return request.rfile.read(int(request.headers.get("Content-Length", "0")))
    parts = []
    while True:
        size = int(request.rfile.readline().split(b";")[0], 16)
        parts.append(request.rfile.read(size))
        request.rfile.readline()
        if not size:
            return b"".join(parts)


def answer(request: BaseHTTPRequestHandler, status: int, body: bytes = b"") -> bool:
    """For fault plans: answer with a status and nothing of git."""
    request.send_response(status)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)
    return True


def tree_of(cwd: Path, entries: Sequence[tuple[str, str, str]]) -> str:
    """A tree object by `git mktree`, of (mode, SHA, name): also of names that git would never write."""
    kinds = {"040000": "tree", "160000": "commit"}
    rows = b"".join(
        f"{mode} {kinds.get(mode, 'blob')} {sha}\t{name}\0".encode() for mode, sha, name in entries
    )
    return text("mktree", "-z", "--missing", cwd=cwd, feed=rows)


def blob_of(cwd: Path, content: bytes) -> str:
    return text("hash-object", "-w", "--stdin", cwd=cwd, feed=content)


def commit_of(cwd: Path, tree: str, *parents: str) -> str:
    return text("commit-tree", tree, *(x for p in parents for x in ("-p", p)), "-m", "crafted", cwd=cwd)
