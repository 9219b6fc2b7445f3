"""Git through the gateway: a worker fetches from the mirror, and hands a bundle over. It never pushes.

The one rule: only `git upload-pack` is ever run, on the director's own mirror, with a clean environment and a
deadline; a bundle is only put down here, what is in it is judged elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from harness.gateway.desk import Counts, Desk

BUNDLE_LIMIT_BYTES = 50 << 20
INBOX_LIMIT_BYTES = 500 << 20
INBOX_LIMIT_FILES = 100
WANTS_LIMIT_BYTES = 8 << 20
FETCHES_AT_ONCE = 4
FETCH_S = 600.0
CHUNK_BYTES = 64 << 10
MIRROR = "mirror.git"
log = logging.getLogger(__name__)
_VERSIONS = frozenset({"", "version=1", "version=2"})


class BundleUpload:
    """POST: the bytes go to attempts/<attempt>/inbox/<sha256>.bundle; the answer is {"sha256", "bytes"}."""

    def __init__(self, data: Path, counts: Counts, limit_bytes: int = BUNDLE_LIMIT_BYTES) -> None:
        self.data = data
        self.counts = counts
        self.limit_bytes = limit_bytes

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        try:
            response = await self._take(scope["desk"], request)
        except ClientDisconnect:
            return
        except OSError as e:
            response = _no(507, f"the bundle could not be kept: {e.strerror or e}")
        await response(scope, receive, send)

    async def _take(self, desk: Desk, request: Request) -> Response:
        declared = request.headers.get("content-length", "0")
        if not declared.isdigit() or int(declared) > self.limit_bytes:
            return _no(413, f"a bundle may have {self.limit_bytes} bytes")
        inbox = self.data / "attempts" / desk.attempt / "inbox"
        inbox.mkdir(parents=True, exist_ok=True)
        _make_room(inbox)
        temp = inbox / f".{os.urandom(8).hex()}.part"
        try:
            return await self._write(request, inbox, temp)
        finally:
            temp.unlink(missing_ok=True)

    async def _write(self, request: Request, inbox: Path, temp: Path) -> Response:
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        seen, size = hashlib.sha256(), 0
        with os.fdopen(fd, "wb") as f:
            async for chunk in request.stream():
                size += len(chunk)
                if size > self.limit_bytes:
                    return _no(413, f"a bundle may have {self.limit_bytes} bytes")
                seen.update(chunk)
                f.write(chunk)
            f.flush()
            await asyncio.to_thread(os.fsync, f.fileno())
        if not size:
            return _no(400, "the bundle is empty")
        temp.replace(inbox / f"{seen.hexdigest()}.bundle")
        self.counts.uploads += 1
        return JSONResponse({"sha256": seen.hexdigest(), "bytes": size})


def _make_room(inbox: Path) -> None:
    """The oldest bundles go first: a worker that hands its work over again and again means the last one."""
    kept = sorted(((x.stat().st_mtime, x.stat().st_size, x) for x in inbox.iterdir()), reverse=True)
    total = 0
    for i, (_, size, path) in enumerate(kept):
        total += size
        if i >= INBOX_LIMIT_FILES - 1 or total > INBOX_LIMIT_BYTES:
            path.unlink(missing_ok=True)


class Fetch:
    """The two requests of a fetch over HTTP, and nothing else, of `mirror.git` in the folder given."""

    def __init__(self, root: Path, counts: Counts) -> None:
        self.root = root
        self.counts = counts
        self.places = asyncio.Semaphore(FETCHES_AT_ONCE)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        path, query = scope["path_params"]["path"], request.url.query
        if not (self.root / MIRROR).is_dir():
            await PlainTextResponse("the mirror is not there yet\n", 503)(scope, receive, send)
        elif request.method == "GET" and path == f"{MIRROR}/info/refs" and query == "service=git-upload-pack":
            await self._refs(request, send)
        elif request.method == "POST" and path == f"{MIRROR}/git-upload-pack" and not query:
            await self._pack(request, receive, send)
        else:
            await PlainTextResponse("only a fetch from the mirror is served\n", 403)(scope, receive, send)

    async def _refs(self, request: Request, send: Any) -> None:
        version = request.headers.get("git-protocol", "")
        head = b"" if version == "version=2" else b"001e# service=git-upload-pack\n0000"
        args = ("--stateless-rpc", "--http-backend-info-refs")
        await self._run(args, version, b"", send, "advertisement", head)

    async def _pack(self, request: Request, receive: Any, send: Any) -> None:
        try:
            wants = await _body(request)
        except ClientDisconnect:
            return
        except ValueError as e:
            await PlainTextResponse(f"{e}\n", 413)(request.scope, receive, send)
            return
        self.counts.fetches += 1
        version = request.headers.get("git-protocol", "")
        await self._run(("--stateless-rpc",), version, wants, send, "result", b"")

    async def _run(
        self, args: tuple[str, ...], version: str, stdin: bytes, send: Any, kind: str, head: bytes
    ) -> None:
        start = {
            "type": "http.response.start",
            "status": 200,
            "headers": [
                (b"content-type", f"application/x-git-upload-pack-{kind}".encode()),
                (b"cache-control", b"no-cache"),
            ],
        }
        async with self.places:
            await send(start)
            if head:
                await send({"type": "http.response.body", "body": head, "more_body": True})
            try:
                async for chunk in _upload_pack(self.root / MIRROR, args, version, stdin):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            except TimeoutError:  # the client's git says that the pack ended early
                log.warning("git upload-pack took more than %.0f s", FETCH_S)
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _body(request: Request) -> bytes:
    """What the client wants and has; it packs longer lists with gzip. Raises ValueError above the limit."""
    packed = request.headers.get("content-encoding", "") in ("gzip", "x-gzip")
    unzip = zlib.decompressobj(31) if packed else None
    out = bytearray()
    async for chunk in request.stream():
        try:
            out += unzip.decompress(chunk, WANTS_LIMIT_BYTES + 1) if unzip else chunk
        except zlib.error as e:
            raise ValueError("the request is not gzip") from e
        if len(out) > WANTS_LIMIT_BYTES or (unzip is not None and unzip.unconsumed_tail):
            raise ValueError(f"a fetch may ask with {WANTS_LIMIT_BYTES} bytes")
    return bytes(out)


async def _upload_pack(
    mirror: Path, args: tuple[str, ...], version: str, stdin: bytes
) -> AsyncIterator[bytes]:
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_PROTOCOL": version if version in _VERSIONS else "",
        "GIT_NO_LAZY_FETCH": "1",
    }
    command = (
        "git", "-c", "uploadpack.hideRefs=refs/harness", "-c", "uploadpack.allowFilter=false",
        "-c", f"safe.directory={mirror}", "upload-pack", "--strict", *args, str(mirror),
    )  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *command,
        env=env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdin is not None and process.stdout is not None
    feeding = asyncio.create_task(_feed(process.stdin, stdin))
    try:
        async with asyncio.timeout(FETCH_S):
            while chunk := await process.stdout.read(CHUNK_BYTES):
                yield chunk
            await process.wait()
    finally:
        feeding.cancel()
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _feed(pipe: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(ConnectionError):  # it ended early and its output says why
        pipe.write(data)
        await pipe.drain()
    pipe.close()


def _no(status: int, why: str) -> Response:
    return JSONResponse({"error": {"type": "harness", "message": why}}, status)
