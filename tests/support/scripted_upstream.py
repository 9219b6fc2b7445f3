"""A provider of models for tests: real HTTP, three API shapes, scripted replies, a memory of what it got."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Answer:
    """`chunks` are sent one by one; after each, `between(i)` may wait. `cut` ends without the last chunk."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[bytes] = field(default_factory=list)
    between: Callable[[int], None] = lambda i: None
    cut: bool = False
    before: Callable[[], None] = lambda: None


def sse(*events: dict[str, Any], done: bool = False) -> list[bytes]:
    out = [
        (f"event: {e['type']}\n" if "type" in e else "").encode()
        + b"data: "
        + json.dumps(e).encode()
        + b"\n\n"
        for e in events
    ]
    return [*out, b"data: [DONE]\n\n"] if done else out


def anthropic_stream(tokens_in: int = 100, tokens_out: int = 20) -> Answer:
    usage = {"input_tokens": tokens_in, "output_tokens": 1, "cache_read_input_tokens": 50}
    events = [
        {"type": "message_start", "message": {"id": "m", "usage": usage}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "hello"}},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": tokens_out},
        },
        {"type": "message_stop"},
    ]
    return Answer(headers={"content-type": "text/event-stream"}, chunks=sse(*events))


def chat_stream(tokens_in: int = 100, tokens_out: int = 20, usage: bool = True) -> Answer:
    events: list[dict[str, Any]] = [{"choices": [{"delta": {"content": "hello"}}], "usage": None}]
    if usage:
        details = {"cached_tokens": 40}
        used = {
            "prompt_tokens": tokens_in,
            "completion_tokens": tokens_out,
            "prompt_tokens_details": details,
        }
        events.append({"choices": [], "usage": used})
    return Answer(
        headers={"content-type": "text/event-stream; charset=utf-8"}, chunks=sse(*events, done=True)
    )


def responses_stream(tokens_in: int = 100, tokens_out: int = 20) -> Answer:
    details = {"cached_tokens": 40}
    used = {"input_tokens": tokens_in, "output_tokens": tokens_out, "input_tokens_details": details}
    events = [
        {"type": "response.created", "response": {"usage": None}},
        {"type": "response.output_text.delta", "delta": "hello"},
        {"type": "response.completed", "response": {"status": "completed", "usage": used}},
    ]
    return Answer(headers={"content-type": "text/event-stream"}, chunks=sse(*events))


def whole(body: Any, status: int = 200, **headers: str) -> Answer:
    fixed = {"content-type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
    return Answer(status, fixed, [json.dumps(body).encode()])


class Upstream:
    """`script` answers each call; the last answer repeats."""

    def __init__(self, *script: Answer) -> None:
        self.script = list(script)
        self.seen: list[Seen] = []
        self.lock = threading.Lock()
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                size = int(self.headers.get("content-length", "0"))
                body = self.rfile.read(size)
                headers = {k.lower(): v for k, v in self.headers.items()}
                with upstream.lock:
                    upstream.seen.append(Seen(self.command, self.path, headers, body))
                    answer = upstream.script.pop(0) if len(upstream.script) > 1 else upstream.script[0]
                answer.before()
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                try:
                    for i, chunk in enumerate(answer.chunks):
                        self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                        self.wfile.flush()
                        answer.between(i)
                    if not answer.cut:
                        self.wfile.write(b"0\r\n\r\n")
                except OSError:
                    self.close_connection = True
                if answer.cut:
                    self.close_connection = True

            do_GET = do_POST = _serve

            def log_message(self, format: str, *args: Any) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def running(*script: Answer) -> Iterator[Upstream]:
    upstream = Upstream(*script)
    try:
        yield upstream
    finally:
        upstream.close()
