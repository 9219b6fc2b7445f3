"""A model that plays what a test wrote, as Anthropic Messages, OpenAI Chat Completions or Responses.

The one rule: which step comes next is read from the conversation in the request (how often the assistant has
spoken in it), so a retry gets the same step again; only faults are counted here.

`ScriptedModel({"fix": [Step(shell="make"), Step("done")]})` serves that play below `.url + "/fix/v1"`;
without a play in the path it is "default". Every request is kept in `.requests`. It listens on loopback only.
Whole and streamed; step `fault`, `hang` and `cut` (a stream that breaks off) are what goes wrong.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
TOKENS_IN, TOKENS_OUT = 1000, 50
FOR_EVER = 1 << 30
HANG_S = 600.0
_SHELLS = ("Bash", "bash", "exec_command", "shell_command", "shell", "run_shell_command", "local_shell")


@dataclass(frozen=True)
class Step:
    """One reply: words, and a call of the agent's shell tool or of any tool. Before it, `times` faults."""

    text: str = ""
    shell: str = ""
    call: tuple[str, Json] | None = None
    fault: int = 0
    times: int = FOR_EVER
    message: str = ""
    retry_after: str = "2"
    hang: bool = False
    cut: bool = False


@dataclass(frozen=True)
class Request:
    play: str
    api: str
    path: str
    headers: dict[str, str]
    body: Json


class ScriptedModel:
    """The server, in a thread of its own. Use it as a context, or call `close`."""

    def __init__(self, plays: Mapping[str, Sequence[Step]] | None = None, *, port: int = 0) -> None:
        self.plays: dict[str, Sequence[Step]] = dict(plays or {"default": [Step("done")]})
        self.requests: list[Request] = []
        self.closing = threading.Event()
        self._faults: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()
        handler: type[_Handler] = type("Handler", (_Handler,), {"model": self})
        self._server = _Server(("127.0.0.1", port), handler)
        self.port = int(self._server.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> ScriptedModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, request: Request) -> tuple[Step, bool]:
        """The step of this request, and whether it is its fault's turn."""
        steps = self.plays.get(request.play) or [Step("no such play")]
        number = min(turns(request.api, request.body), len(steps) - 1)
        step = steps[number]
        with self._lock:
            self.requests.append(request)
            seen = self._faults.get((request.play, number), 0)
            faulty = bool(step.fault or step.hang) and seen < step.times
            if faulty:
                self._faults[request.play, number] = seen + 1
        return step, faulty


# ---------------------------------------------------------------- the conversation


def turns(api: str, body: Json) -> int:
    """How often the assistant has spoken: runs of its items between those of others."""
    said, before = 0, False
    for mine in _speakers(api, body):
        said += mine and not before
        before = mine
    return said


def _speakers(api: str, body: Json) -> Iterator[bool]:
    if api != "responses":
        yield from (m.get("role") == "assistant" for m in body.get("messages", []))
        return
    items = body.get("input", [])
    for item in items if isinstance(items, list) else []:
        kind = item.get("type", "message")
        yield item.get("role") == "assistant" if kind == "message" else not kind.endswith("_output")


def tools(api: str, body: Json) -> dict[str, tuple[str, Json]]:
    """Name to (kind, JSON schema of its arguments). A Responses namespace is `ns:NAME`."""
    found: dict[str, tuple[str, Json]] = {}
    for tool in body.get("tools") or []:
        if api == "anthropic":
            found[tool["name"]] = ("function", tool.get("input_schema", {}))
        elif api == "chat":
            found[tool["function"]["name"]] = ("function", tool["function"].get("parameters", {}))
        elif tool.get("type") == "namespace":
            for inner in tool.get("tools", []):
                found[inner["name"]] = (f"ns:{tool['name']}", inner.get("parameters", {}))
        else:
            found[tool.get("name", tool["type"])] = (tool["type"], tool.get("parameters", {}))
    return found


def call_of(step: Step, offered: Mapping[str, tuple[str, Json]]) -> tuple[str, Json] | None:
    """The step's tool call in the words of the tools that were offered."""
    if step.call is not None:
        return step.call
    name = next((n for n in _SHELLS if n in offered), "")
    if not step.shell or not name:
        return None
    if name == "exec_command":
        return name, {"cmd": step.shell}
    if name == "shell":
        return name, {"command": ["bash", "-lc", step.shell]}
    known = offered[name][1].get("properties", {})
    return name, {"command": step.shell, **({"description": "run it"} if "description" in known else {})}


# ---------------------------------------------------------------- replies


def fault_body(api: str, step: Step) -> Json:
    code = step.fault
    if api == "anthropic":
        kinds = {
            429: "rate_limit_error",
            529: "overloaded_error",
            401: "authentication_error",
            400: "invalid_request_error",
        }
        return {
            "type": "error",
            "error": {"type": kinds.get(code, "api_error"), "message": step.message or "scripted"},
        }
    codes = {429: "rate_limit_exceeded", 401: "invalid_api_key", 400: "context_length_exceeded"}
    return {
        "error": {
            "message": step.message or "scripted",
            "type": "error",
            "code": codes.get(code),
            "param": None,
        }
    }


def anthropic(
    body: Json, step: Step, call: tuple[str, Json] | None, number: int
) -> tuple[Json, list[tuple[str, Json]]]:
    """The whole message, and the same as events."""
    content: list[Json] = [{"type": "text", "text": step.text}] if step.text else []
    if call:
        content.append({"type": "tool_use", "id": f"toolu_{number}", "name": call[0], "input": call[1]})
    usage = {"input_tokens": TOKENS_IN, "output_tokens": TOKENS_OUT}
    stop = {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
    whole = {
        "id": f"msg_{number}", "type": "message", "role": "assistant", "model": body.get("model"),
        "content": content, "usage": usage, **stop,
    }  # fmt: skip
    events: list[tuple[str, Json]] = [
        ("message_start", {"message": {**whole, "content": [], "stop_reason": None}})
    ]
    for i, part in enumerate(content):
        if part["type"] == "text":
            empty: Json = {"type": "text", "text": ""}
            delta: Json = {"type": "text_delta", "text": part["text"]}
        else:
            empty = {**part, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(part["input"])}
        events += [
            ("content_block_start", {"index": i, "content_block": empty}),
            ("content_block_delta", {"index": i, "delta": delta}),
            ("content_block_stop", {"index": i}),
        ]
    events += [("message_delta", {"delta": stop, "usage": usage}), ("message_stop", {})]
    return whole, [(name, {"type": name, **value}) for name, value in events]


def chat(
    body: Json, step: Step, call: tuple[str, Json] | None, number: int
) -> tuple[Json, list[tuple[str, Json]]]:
    base = {"id": f"chatcmpl-{number}", "created": int(time.time()), "model": body.get("model")}
    usage = {
        "prompt_tokens": TOKENS_IN,
        "completion_tokens": TOKENS_OUT,
        "total_tokens": TOKENS_IN + TOKENS_OUT,
    }
    calls = []
    if call:
        function = {"name": call[0], "arguments": json.dumps(call[1])}
        calls = [{"index": 0, "id": f"call_{number}", "type": "function", "function": function}]
    end = "tool_calls" if calls else "stop"
    message = {"role": "assistant", "content": step.text or None, **({"tool_calls": calls} if calls else {})}
    whole = {
        **base, "object": "chat.completion", "usage": usage,
        "choices": [{"index": 0, "message": message, "finish_reason": end}],
    }  # fmt: skip

    def chunk(delta: Json, reason: str | None = None) -> tuple[str, Json]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return "", {**base, "object": "chat.completion.chunk", "choices": [choice]}

    events = [chunk({"role": "assistant", "content": ""}), chunk({"content": step.text})]
    events += [chunk({"tool_calls": calls})] if calls else []
    events += [
        chunk({}, end),
        ("", {**base, "object": "chat.completion.chunk", "choices": [], "usage": usage}),
    ]
    return whole, events


def responses(
    body: Json, step: Step, call: tuple[str, Json] | None, number: int
) -> tuple[Json, list[tuple[str, Json]]]:
    items: list[Json] = []
    if step.text:
        part = {"type": "output_text", "text": step.text, "annotations": []}
        items.append(
            {
                "type": "message",
                "id": f"msg_{number}",
                "role": "assistant",
                "status": "completed",
                "content": [part],
            }
        )
    if call:
        item: Json = {
            "type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": call[0],
            "arguments": json.dumps(call[1]), "status": "completed",
        }  # fmt: skip
        kind = tools("responses", body).get(call[0], ("", {}))[0]
        items.append({**item, "namespace": kind[3:]} if kind.startswith("ns:") else item)
    usage = {
        "input_tokens": TOKENS_IN, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": TOKENS_OUT,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": TOKENS_IN + TOKENS_OUT,
    }  # fmt: skip
    whole = {
        "id": f"resp_{number}", "object": "response", "created_at": int(time.time()), "status": "completed",
        "model": body.get("model"), "output": items, "usage": usage, "error": None,
    }  # fmt: skip
    events: list[tuple[str, Json]] = [
        ("response.created", {"response": {**whole, "status": "in_progress", "output": [], "usage": None}})
    ]
    for i, it in enumerate(items):
        events.append(
            ("response.output_item.added", {"output_index": i, "item": {**it, "status": "in_progress"}})
        )
        if it["type"] == "message":
            words = {"item_id": it["id"], "output_index": i, "content_index": 0}
            events.append(("response.output_text.delta", {**words, "delta": step.text}))
        events.append(("response.output_item.done", {"output_index": i, "item": it}))
    events.append(("response.completed", {"response": whole}))
    return whole, [(n, {"type": n, "sequence_number": i, **v}) for i, (n, v) in enumerate(events)]


REPLIES = {"anthropic": anthropic, "chat": chat, "responses": responses}
ENDS = (("/messages", "anthropic"), ("/chat/completions", "chat"), ("/responses", "responses"))


# ---------------------------------------------------------------- HTTP


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """An agent that was killed hangs up; anything else is a bug of this file and is shown."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: ScriptedModel

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: a test reads `requests`."""

    def do_GET(self) -> None:
        if self.path.split("?")[0].endswith("/models"):
            self._json(
                200, {"object": "list", "data": [{"id": "scripted-1", "object": "model"}], "has_more": False}
            )
        else:
            self._json(404, {"error": {"message": "not found"}})

    def do_POST(self) -> None:
        body = json.loads(self._body() or b"{}")
        path = self.path.split("?")[0]
        api = next((a for end, a in ENDS if path.endswith(end)), "")
        first = path.strip("/").split("/")[0]
        play = first if first in self.model.plays else "default"
        headers = {k.lower(): v for k, v in self.headers.items()}
        if not api:
            self._json(404, {"error": {"message": f"not found: {path}"}})
            return
        step, faulty = self.model.take(Request(play, api, path, headers, body))
        if faulty and step.hang:
            self.model.closing.wait(HANG_S)
            self.close_connection = True
            return
        if faulty:
            more: dict[str, str] = {"retry-after": step.retry_after} if step.fault in (429, 503, 529) else {}
            self._json(step.fault, fault_body(api, step), more)
            return
        number = len(self.model.requests)
        whole, events = REPLIES[api](body, step, call_of(step, tools(api, body)), number)
        if not body.get("stream"):
            self._json(200, whole)
        else:
            self._stream(
                events[: len(events) // 2] if step.cut else events, done=api == "chat" and not step.cut
            )

    def _body(self) -> bytes:
        if "chunked" not in (self.headers.get("transfer-encoding") or ""):
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        data = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _json(self, code: int, value: Json, more: Mapping[str, str] | None = None) -> None:
        data = json.dumps(value).encode()
        self.send_response(code)
        for name, text in {
            "content-type": "application/json",
            "content-length": str(len(data)),
            **(more or {}),
        }.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, events: Sequence[tuple[str, Json]], *, done: bool) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for name, value in events:
            self._chunk((f"event: {name}\n" if name else "") + f"data: {json.dumps(value)}\n\n")
        if done:
            self._chunk("data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()
