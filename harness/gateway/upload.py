"""Hand a git bundle to the gateway: one HTTP request over its unix socket, with the standard library.

The one rule: it counts as handed over when the director answers with the same SHA-256 that was sent.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import socket
from collections.abc import Mapping
from pathlib import Path

from harness.core.result import Err, Ok, Result
from harness.failures import Failure

TIMEOUT_S = 120.0
ANSWER_LIMIT_BYTES = 64 << 10


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("gateway", timeout=timeout_s)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


def send_bundle(path: Path, bundle: Path, headers: Mapping[str, str]) -> Result[str]:
    """Err(INFRA_GATEWAY) where the gateway cannot be reached or cannot keep it, Err(POLICY_VIOLATION)
    where it is too large, Err(AUTH_FAILED) where we are not let in."""
    connection = _UnixConnection(path, TIMEOUT_S)
    try:
        with bundle.open("rb") as f:
            sent = hashlib.file_digest(f, "sha256").hexdigest()
            size = f.tell()
            f.seek(0)
            all_headers = {**headers, "Content-Length": str(size), "Connection": "close"}
            # A gateway that refuses answers at once and reads no further.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request("POST", "/git/bundle", body=f, headers=all_headers)
            answer = connection.getresponse()
            body = answer.read(ANSWER_LIMIT_BYTES)
    except (OSError, http.client.HTTPException) as e:
        return Err(Failure.INFRA_GATEWAY, f"the bundle was not handed over: {e or type(e).__name__}")
    finally:
        connection.close()
    return _judge(answer.status, body, sent)


def _judge(status: int, body: bytes, sent: str) -> Result[str]:
    try:
        said = json.loads(body)
        if status == 200:
            if said["sha256"] == sent:
                return Ok(sent)
            return Err(Failure.INFRA_GATEWAY, f"the director has {said['sha256']}, {sent} was sent")
        why = str(said["error"]["message"])
    except (ValueError, KeyError, TypeError):
        why = f"status {status}"
    if status in (401, 403, 409):
        return Err(Failure.AUTH_FAILED, why)
    return Err(Failure.POLICY_VIOLATION if status in (400, 413) else Failure.INFRA_GATEWAY, why)
