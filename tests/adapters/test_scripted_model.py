"""The scripted model speaks each provider's shape, so that what is tested with it is tested at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.scripted_model import ScriptedModel, Step

PLAY = [Step("I look.", shell="ls"), Step("Done.")]
TOOLS: dict[str, list[dict[str, Any]]] = {
    "messages": [{"name": "bash", "input_schema": {"properties": {"command": {}}}}],
    "chat/completions": [{"type": "function", "function": {"name": "bash", "parameters": {}}}],
    "responses": [{"type": "function", "name": "exec_command", "parameters": {}}],
}


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(
        {"default": PLAY, "bad": [Step("late", fault=429, times=2, retry_after="7")]}
    ) as server:
        yield server


def post(model: ScriptedModel, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(
        f"{model.url}/{path}", json=body, headers={"x-api-key": "k"}, timeout=10, trust_env=False
    )


def asked(path: str, **more: Any) -> dict[str, Any]:
    said = [{"role": "user", "content": "go"}]
    return {
        "model": "m",
        "tools": TOOLS[path],
        ("input" if path == "responses" else "messages"): said,
        **more,
    }


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


def test_anthropic_messages_and_their_stream(model: ScriptedModel) -> None:
    whole = post(model, "v1/messages", asked("messages")).json()
    assert [part["type"] for part in whole["content"]] == ["text", "tool_use"]
    assert whole["content"][1]["input"] == {"command": "ls"} and whole["stop_reason"] == "tool_use"
    stream = events(post(model, "v1/messages", asked("messages", stream=True)))
    assert [e["type"] for e in stream][:2] == ["message_start", "content_block_start"]
    deltas = [e["delta"] for e in stream if e["type"] == "content_block_delta"]
    assert deltas == [
        {"type": "text_delta", "text": "I look."},
        {"type": "input_json_delta", "partial_json": '{"command": "ls"}'},
    ]
    assert stream[-1]["type"] == "message_stop" and stream[-2]["usage"]["output_tokens"] == 50


def test_chat_completions_and_their_stream(model: ScriptedModel) -> None:
    choice = post(model, "v1/chat/completions", asked("chat/completions")).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"] == {
        "name": "bash",
        "arguments": '{"command": "ls"}',
    }
    answer = post(model, "v1/chat/completions", asked("chat/completions", stream=True))
    assert answer.text.endswith("data: [DONE]\n\n")
    assert events(answer)[-1]["usage"]["completion_tokens"] == 50


def test_responses_and_their_stream(model: ScriptedModel) -> None:
    whole = post(model, "v1/responses", asked("responses")).json()
    assert [item["type"] for item in whole["output"]] == ["message", "function_call"]
    stream = events(post(model, "v1/responses", asked("responses", stream=True)))
    assert stream[0]["type"] == "response.created" and stream[-1]["type"] == "response.completed"
    assert stream[-1]["response"]["usage"]["input_tokens"] == 1000


def test_the_step_follows_the_conversation_and_a_retry_gets_the_same(model: ScriptedModel) -> None:
    body = asked("messages")
    first = post(model, "v1/messages", body).json()["content"]
    assert post(model, "v1/messages", body).json()["content"][0] == first[0]
    result = {"type": "tool_result", "tool_use_id": first[1]["id"], "content": "a.py"}
    body["messages"] += [{"role": "assistant", "content": first}, {"role": "user", "content": [result]}]
    assert post(model, "v1/messages", body).json()["content"] == [{"type": "text", "text": "Done."}]


def test_faults_are_counted_and_requests_kept(model: ScriptedModel) -> None:
    answers = [post(model, "bad/v1/messages", asked("messages")) for _ in range(3)]
    assert [a.status_code for a in answers] == [429, 429, 200]
    assert answers[0].headers["retry-after"] == "7"
    assert answers[0].json()["error"]["type"] == "rate_limit_error"
    kept = model.requests[0]
    assert (kept.play, kept.api, kept.headers["x-api-key"]) == ("bad", "anthropic", "k")
    assert kept.body["messages"] == [{"role": "user", "content": "go"}]
