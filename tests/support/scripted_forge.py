"""A real HTTP server that answers what a test tells it: for answers that no well-kept forge gives.

The one rule: it keeps every request it got, so a test can say how many there were.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Got:
    """One request as it came in."""

    verb: str
    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass
class Says:
    """What to answer. `body` is JSON unless it is text; `times` 0 means always."""

    match: str
    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    times: int = 0
    when: Callable[[Got], bool] | None = None


class ScriptedForge:
    """The first rule that fits a request answers it; without one it is a 404."""

    def __init__(self, *rules: Says) -> None:
        self.rules = list(rules)
        self.got: list[Got] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                size = int(self.headers.get("content-length") or 0)
                raw = self.rfile.read(size)
                told = Got(self.command, self.path, dict(self.headers), json.loads(raw) if raw else None)
                status, headers, data = outer.reply(told)
                self.send_response_only(status)
                for k, v in headers.items():
                    self.send_header(k, v)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = answer

            def log_message(self, format: str, *args: Any) -> None:
                """Silent: the test looks at `got`."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def reply(self, told: Got) -> tuple[int, dict[str, str], bytes]:
        self.got.append(told)
        for rule in self.rules:
            if not re.search(rule.match, f"{told.verb} {told.path}") or rule.times < 0:
                continue
            if rule.when is not None and not rule.when(told):
                continue
            if rule.times:
                rule.times = rule.times - 1 or -1
            text = rule.body if isinstance(rule.body, str) else json.dumps(rule.body)
            return rule.status, dict(rule.headers), text.encode()
        return 404, {}, b'{"message": "Not Found"}'

    def count(self, match: str) -> int:
        return sum(1 for g in self.got if re.search(match, f"{g.verb} {g.path}"))

    def __enter__(self) -> ScriptedForge:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
