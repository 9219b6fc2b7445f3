"""The model endpoint against a scripted provider: real HTTP on both sides."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway_world import TOKEN, Place, client, until
from scripted_upstream import (
    Answer,
    Upstream,
    anthropic_stream,
    chat_stream,
    responses_stream,
    sse,
    whole,
)

from harness.gateway.settings import ModelSettings, Price

KEY = "sk-real-key-0123456789-abcdef"
ATTEMPT = "12.1"
PRICES = {"m": Price(10.0, 100.0), "m-cached": Price(10.0, 100.0, cache_read_usd=1.0)}
CHAT = "/model/v1/chat/completions"
MESSAGES = "/model/v1/messages"
RESPONSES = "/model/v1/responses"


class World:
    def __init__(self, place: Place) -> None:
        self.place = place
        self.upstream = Upstream(whole({"ok": True}))
        self.options: dict[str, Any] = {"prices": PRICES, "per_minute": 1000}
        self.gateway: Any = None

    def start(self, *script: Answer, **options: Any) -> httpx.Client:
        if script:
            self.upstream.script = list(script)
        extra = {k: options.pop(k) for k in ("redact", "load", "save") if k in options}
        settings = ModelSettings(
            options.pop("base_url", self.upstream.url),
            key=lambda: KEY,
            **{**self.options, **options},
        )
        self.gateway = self.place.gateway(model=settings, **extra)
        return self.open()

    def open(self, attempt: str = ATTEMPT) -> httpx.Client:
        return client(self.gateway.open(attempt, TOKEN, 1))

    def notes(self, attempt: str = ATTEMPT) -> list[dict[str, Any]]:
        folder = self.place.data / "attempts" / attempt / "ledger"
        return [json.loads(x.read_bytes()) for x in sorted(folder.glob("*.json"))]

    def settled(self, count: int = 1) -> list[dict[str, Any]]:
        return until(lambda: len(n := self.notes()) == count and all(x["status"] for x in n) and n, "settled")


@pytest.fixture
def world(place: Place) -> Iterator[World]:
    made = World(place)
    yield made
    made.upstream.close()


def body(**more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}], **more}


@pytest.mark.parametrize(
    ("path", "answer", "tokens_in"),
    [(MESSAGES, anthropic_stream(), 150), (CHAT, chat_stream(), 100), (RESPONSES, responses_stream(), 100)],
)
def test_a_stream_passes_untouched_and_is_counted(
    world: World, path: str, answer: Answer, tokens_in: int
) -> None:
    c = world.start(answer)
    with c.stream("POST", path, json=body(stream=True)) as reply:
        got = b"".join(reply.iter_raw())
    assert reply.status_code == 200 and reply.headers["content-type"].startswith("text/event-stream")
    assert got == b"".join(answer.chunks)
    world.settled()
    spent = world.gateway.spent(ATTEMPT)
    assert (spent["tokens_in"], spent["tokens_out"], spent["requests"]) == (tokens_in, 20, 1)
    assert spent["usd"] == pytest.approx((tokens_in * 10 + 20 * 100) / 1e6)


def test_a_stream_is_not_held_back(world: World) -> None:
    go = threading.Event()
    answer = anthropic_stream()
    answer.between = lambda i: None if i else (go.wait(10), None)[1]
    c = world.start(answer)
    with c.stream("POST", MESSAGES, json=body(stream=True)) as reply:
        parts = reply.iter_raw()
        assert next(parts) == answer.chunks[0]
        go.set()
        rest = b"".join(parts)
    assert rest == b"".join(answer.chunks[1:])


@pytest.mark.parametrize(
    ("path", "usage"),
    [
        (MESSAGES, {"input_tokens": 60, "output_tokens": 7, "cache_read_input_tokens": 40}),
        (
            CHAT,
            {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 40}},
        ),
        (RESPONSES, {"input_tokens": 100, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 40}}),
    ],
)
def test_a_whole_reply_is_counted_in_each_shape(world: World, path: str, usage: dict[str, Any]) -> None:
    c = world.start(whole({"usage": usage}))
    reply = c.post(path, json=body(model="m-cached"))
    assert reply.json() == {"usage": usage}
    world.settled()
    spent = world.gateway.spent(ATTEMPT)
    assert (spent["tokens_in"], spent["tokens_out"]) == (100, 7)
    assert spent["usd"] == pytest.approx((60 * 10 + 40 * 1 + 7 * 100) / 1e6)


@pytest.mark.parametrize("auth", ["bearer", "x-api-key", "none"])
def test_the_key_is_put_in_and_what_the_client_says_is_left_out(world: World, auth: str) -> None:
    c = world.start(auth=auth, headers={"X-Operator": "acme"})
    own = {"authorization": "Bearer mine", "x-api-key": "mine", "cookie": "a=b", "openai-organization": "x"}
    c.post(
        CHAT, json=body(), headers={**own, "anthropic-version": "2023-06-01", "x-forwarded-for": "1.2.3.4"}
    )
    sent = world.upstream.seen[0].headers
    assert sent.get("authorization") == (f"Bearer {KEY}" if auth == "bearer" else None)
    assert sent.get("x-api-key") == (KEY if auth == "x-api-key" else None)
    assert sent["anthropic-version"] == "2023-06-01" and sent["x-operator"] == "acme"
    assert sent["host"] == world.upstream.url.removeprefix("http://")
    assert not {"cookie", "openai-organization", "x-forwarded-for", "x-harness-token"} & set(sent)


def test_the_key_is_in_nothing_that_comes_back(world: World) -> None:
    half = len(KEY) // 2
    echo = Answer(
        401,
        {"content-type": "application/json", "x-request-id": f"r {KEY}", "x-key": KEY},
        [json.dumps({"error": f"bad key {KEY}"}).encode()],
    )
    text = f"data: {KEY}\n\n".encode()
    stream = Answer(
        200, {"content-type": "text/event-stream"}, [text[: 6 + half], text[6 + half :], b"data: sk"]
    )
    c = world.start(echo, stream)
    first = c.post(CHAT, json=body())
    with c.stream("POST", CHAT, json=body(stream=True)) as second:
        got = b"".join(second.iter_raw())
    assert first.status_code == 401 and first.json() == {"error": "bad key [redacted]"}
    assert got == b"data: [redacted]\n\ndata: sk"
    world.settled(2)
    kept = b"".join(x.read_bytes() for x in world.place.data.rglob("*") if x.is_file())
    sent_back = repr(first.headers) + repr(second.headers)
    assert KEY.encode() not in kept and KEY not in sent_back


def test_only_listed_paths_of_the_one_upstream_are_reached(world: World) -> None:
    c = world.start()
    for method, path in [
        ("POST", "/model/v1/files"),
        ("GET", "/model/v1/messages"),
        ("DELETE", "/model/v1/models"),
        ("POST", "/model/v1/messages/../files"),
        ("POST", "/model/v1/messages/%2e%2e/files"),
        ("POST", "/model//v1/messages"),
        ("POST", "/model/http://elsewhere/v1/messages"),
        ("GET", "/model/"),
    ]:
        reply = c.request(method, path, json=body())
        assert reply.status_code == 404, path
        assert reply.json()["error"]["message"].startswith("harness: ") or reply.status_code == 404
    assert world.upstream.seen == []
    assert c.get("/model/v1/models").json() == {"ok": True}
    assert c.post("/model/v1/messages/count_tokens?beta=true", json=body()).status_code == 200
    assert [s.path for s in world.upstream.seen] == ["/v1/models", "/v1/messages/count_tokens?beta=true"]
    assert world.gateway.spent(ATTEMPT)["requests"] == 0


def test_a_base_url_may_end_in_v1(world: World) -> None:
    c = world.start(base_url=world.upstream.url + "/openai/v1/")
    c.post(CHAT, json=body())
    assert world.upstream.seen[0].path == "/openai/v1/chat/completions"


def test_a_redirect_is_not_followed(world: World) -> None:
    elsewhere = Upstream(whole({}))
    try:
        c = world.start(whole({}, 307, location=elsewhere.url + "/v1/messages"))
        assert c.post(MESSAGES, json=body()).status_code == 502
        assert elsewhere.seen == []
    finally:
        elsewhere.close()


def test_a_cap_per_attempt_is_hard(world: World) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 90}
    # An estimate is about 0.0103: 100 tokens out at 100 dollars a million, and the body.
    c = world.start(whole({"usage": usage}), per_attempt_usd=0.019)
    assert c.post(CHAT, json=body()).status_code == 200
    world.settled()
    reply = c.post(CHAT, json=body())
    assert reply.status_code == 429 and reply.headers["x-harness-reason"] == "budget_exhausted"
    assert reply.headers["x-should-retry"] == "false"
    assert reply.json()["error"]["code"] == "rate_limit_exceeded"
    assert len(world.upstream.seen) == 1
    assert "per attempt" in world.gateway.capped(ATTEMPT)
    assert world.gateway.capped("12.2") == ""
    other = world.open("12.2")
    assert other.post(CHAT, json=body()).status_code == 200


def test_caps_hold_against_calls_at_once(world: World) -> None:
    gate = threading.Event()
    usage = {"prompt_tokens": 10, "completion_tokens": 90}
    answer = whole({"usage": usage})
    answer.before = lambda: (gate.wait(10), None)[1]
    c = world.start(answer, per_attempt_usd=0.05, max_concurrent=16)
    replies: list[int] = []
    threads = [
        threading.Thread(target=lambda: replies.append(c.post(CHAT, json=body()).status_code))
        for _ in range(12)
    ]
    for t in threads:
        t.start()
    until(lambda: replies.count(429) == 8)
    gate.set()
    for t in threads:
        t.join(10)
    assert sorted(replies) == [200] * 4 + [429] * 8
    assert world.gateway.spent(ATTEMPT)["usd"] <= 0.05


def test_a_days_cap_is_for_all_and_survives_a_restart(world: World) -> None:
    usage = {"prompt_tokens": 0, "completion_tokens": 70}
    c = world.start(whole({"usage": usage}), per_day_usd=0.015)
    assert c.post(CHAT, json=body()).status_code == 200
    world.settled()
    world.gateway.close()
    c = world.start(per_day_usd=0.015)
    assert world.gateway.spent(ATTEMPT)["requests"] == 1
    other = world.open("13.1")
    reply = other.post(MESSAGES, json=body())
    assert reply.status_code == 429 and reply.headers["x-harness-reason"] == "budget_exhausted"
    assert reply.json()["type"] == "error" and reply.json()["error"]["type"] == "rate_limit_error"
    assert "per day" in world.gateway.capped("13.1")


def test_a_cap_of_tokens(world: World) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 90}
    c = world.start(whole({"usage": usage}), per_attempt_tokens=200)
    assert [c.post(CHAT, json=body()).status_code for _ in range(3)] == [200, 429, 429]


def test_a_reply_without_usage_counts_with_the_default(world: World) -> None:
    c = world.start(chat_stream(usage=False), whole({}), default_cost_usd=0.07)
    with c.stream("POST", CHAT, json=body(stream=True)) as reply:
        reply.read()
    c.post(CHAT, json=body())
    world.settled(2)
    assert world.gateway.spent(ATTEMPT)["usd"] == pytest.approx(0.14)
    assert world.gateway.spent(ATTEMPT)["tokens_out"] > 0


def test_a_model_without_a_price_counts_with_the_default(world: World) -> None:
    c = world.start(whole({"usage": {"prompt_tokens": 5, "completion_tokens": 5}}), default_cost_usd=0.07)
    c.post(CHAT, json=body(model="unheard-of"))
    world.settled()
    assert world.gateway.spent(ATTEMPT) == {"tokens_in": 5, "tokens_out": 5, "usd": 0.07, "requests": 1}


@pytest.mark.parametrize("status", [400, 401, 500, 503, 529])
def test_the_providers_errors_pass_and_cost_nothing(world: World, status: int) -> None:
    c = world.start(whole({"error": {"type": "x"}}, status, retry_after="7", x_should_retry="true"))
    reply = c.post(MESSAGES, json=body(stream=True))
    assert (reply.status_code, reply.json()) == (status, {"error": {"type": "x"}})
    assert reply.headers["retry-after"] == "7" and reply.headers["x-should-retry"] == "true"
    assert world.settled()[0]["status"] == status
    assert world.gateway.spent(ATTEMPT)["requests"] == 0
    assert c.post(MESSAGES, json=body()).status_code == status and len(world.upstream.seen) == 2


def test_while_the_provider_asks_for_a_pause_nobody_calls(world: World) -> None:
    c = world.start(whole({"error": {}}, 429, retry_after="2"), whole({"ok": 1}))
    first = c.post(CHAT, json=body())
    assert first.status_code == 429 and first.headers["retry-after"] == "2"
    second = world.open("13.1").post(CHAT, json=body())
    assert second.status_code == 429 and second.headers["x-harness-reason"] == "cooldown"
    assert int(second.headers["retry-after"]) in (1, 2)
    assert len(world.upstream.seen) == 1
    until(lambda: c.post(CHAT, json=body()).status_code == 200)
    assert len(world.upstream.seen) == 2


def test_a_hot_loop_is_stopped(world: World) -> None:
    c = world.start(per_minute=20)
    statuses = [c.post(CHAT, json=body()).status_code for _ in range(25)]
    assert statuses == [200] * 20 + [429] * 5
    last = c.post(CHAT, json=body())
    assert last.headers["x-harness-reason"] == "rate_guard" and int(last.headers["retry-after"]) > 30
    assert world.open("13.1").post(CHAT, json=body()).status_code == 200


def test_what_cannot_be_read_is_refused(world: World) -> None:
    c = world.start(body_limit_bytes=1000)
    assert c.post(CHAT, content=b"not json").status_code == 400
    assert c.post(CHAT, content=b"[1]").status_code == 400
    assert c.post(CHAT, content=b"{" + b" " * 2000).status_code == 413
    assert c.post(CHAT, content=iter([b"{" + b" " * 600] * 3)).status_code == 413
    assert c.post(CHAT, content=b"\x1f\x8b", headers={"content-encoding": "gzip"}).status_code == 415
    assert c.post(CHAT, content=b"[" * 900).status_code == 400
    assert world.upstream.seen == []


def test_a_provider_that_is_not_there(world: World) -> None:
    world.upstream.close()
    c = world.start()
    reply = c.post(CHAT, json=body())
    assert reply.status_code == 502 and "cannot be reached" in reply.json()["error"]["message"]
    assert world.settled()[0]["reason"] == "upstream"
    assert world.gateway.spent(ATTEMPT)["usd"] == 0


def test_a_provider_that_stalls(world: World) -> None:
    gate = threading.Event()
    silent, stalls = whole({}), anthropic_stream()
    silent.before = lambda: (gate.wait(20), None)[1]
    stalls.between = lambda i: (gate.wait(20), None)[1]
    try:
        c = world.start(silent, stalls, request_timeout_s=0.4)
        reply = c.post(CHAT, json=body())
        assert reply.status_code == 504 and reply.json()["error"]["code"] == "server_error"
        with c.stream("POST", MESSAGES, json=body(stream=True)) as stream:
            got = b"".join(stream.iter_raw())
        assert got.startswith(stalls.chunks[0]) and b"event: error" in got
        world.settled(2)
        assert world.gateway.spent(ATTEMPT)["requests"] == 2, "nobody knows what they came to"
    finally:
        gate.set()


def test_a_stream_that_breaks_ends_with_an_error(world: World) -> None:
    answer = anthropic_stream()
    answer.chunks, answer.cut = answer.chunks[:2], True
    c = world.start(answer)
    with c.stream("POST", MESSAGES, json=body(stream=True)) as reply:
        got = b"".join(reply.iter_raw())
    assert got.startswith(b"".join(answer.chunks)) and b"event: error" in got
    note = world.settled()[0]
    assert note["reason"] == "upstream" and note["tokens_in"] == 150


def test_an_agent_that_goes_away_frees_its_place_and_pays(world: World) -> None:
    gate = threading.Event()
    slow = anthropic_stream()
    slow.between = lambda i: (gate.wait(20), None)[1]
    try:
        c = world.start(slow, whole({"ok": 1}), max_concurrent=1)
        with c.stream("POST", MESSAGES, json=body(stream=True)) as reply:
            next(reply.iter_raw())
        assert world.settled()[0]["reason"] == "agent_gone"
        assert c.post(CHAT, json=body()).status_code == 200
        assert world.gateway.spent(ATTEMPT)["tokens_in"] >= 150
    finally:
        gate.set()


def test_places_are_shared_and_a_queue_ends(world: World) -> None:
    gate = threading.Event()
    slow = whole({"ok": 1})
    slow.before = lambda: (gate.wait(20), None)[1]
    c = world.start(slow, max_concurrent=1, queue_s=0.3)
    first = threading.Thread(target=lambda: c.post(CHAT, json=body()))
    first.start()
    try:
        until(lambda: world.upstream.seen)
        reply = world.open("13.1").post(CHAT, json=body())
        assert reply.status_code == 429 and reply.headers["x-harness-reason"] == "busy"
    finally:
        gate.set()
        first.join(10)
    assert c.post(CHAT, json=body()).status_code == 200


def test_output_beyond_the_estimate_meets_the_cap(world: World) -> None:
    events = [{"choices": [{"delta": {"content": "x"}}]}] * 9000
    answer = Answer(200, {"content-type": "text/event-stream"}, sse(*events))
    c = world.start(answer, per_attempt_tokens=5000, default_output_tokens=2000)
    request = {"model": "m", "stream": True, "messages": []}
    with c.stream("POST", CHAT, json=request) as reply:
        got = b"".join(reply.iter_raw())
    assert b"tokens per attempt" in got and got.count(b"\n\n") < 4000
    assert world.settled()[0]["reason"] == "budget_exhausted"
    assert world.gateway.spent(ATTEMPT)["tokens_out"] <= 5000


def test_reservations_of_a_dead_director_count_in_full(world: World) -> None:
    gate = threading.Event()
    slow = whole({"ok": 1})
    slow.before = lambda: (gate.wait(20), None)[1]
    saved: list[Any] = []
    c = world.start(slow, load=lambda: None, save=saved.append)
    call = threading.Thread(target=lambda: c.post(CHAT, json=body()))
    call.start()
    try:
        until(lambda: world.upstream.seen)
        at_death = json.loads(json.dumps(saved[-1]))
        assert len(at_death["open"]) == 1
        world.start(load=lambda: at_death, save=lambda s: None)
        spent = world.gateway.spent(ATTEMPT)
        assert spent["requests"] == 1 and spent["tokens_out"] == 100 and spent["usd"] > 0.01
    finally:
        gate.set()
        call.join(10)


def test_a_ledger_that_cannot_be_kept_stops_calls(world: World) -> None:
    def full(state: Any) -> None:
        raise OSError(28, "No space left on device")

    c = world.start(load=lambda: None, save=full)
    reply = c.post(CHAT, json=body())
    assert reply.status_code == 503 and reply.headers["x-harness-reason"] == "not_recorded"
    assert world.upstream.seen == [] and world.gateway.spent(ATTEMPT)["usd"] == 0


def test_every_prompt_and_reply_is_kept_redacted_and_cut(world: World) -> None:
    long = "y" * 600_000
    c = world.start(
        whole({"said": "canary-2", "usage": {"prompt_tokens": 1, "completion_tokens": 1}}),
        redact=lambda text: text.replace("canary", "[gone]"),
    )
    c.post(CHAT, json=body(messages=[{"role": "user", "content": "canary-1 " + long}]))
    note = world.settled()[0]
    assert note["n"] == 1 and note["status"] == 200 and note["model"] == "m" and note["incarnation"] == 1
    assert "[gone]-1" in note["request"] and len(note["request"]) < 300_000 and "left out" in note["request"]
    assert "[gone]-2" in note["reply"] and note["tokens_in"] == 1 and note["seconds"] >= 0
    assert "canary" not in json.dumps(note)
    world.gateway.close()
    c = world.start(whole({}))
    c.post(CHAT, json=body())
    assert [n["n"] for n in world.settled(2)] == [1, 2]


def test_calls_that_run_when_the_director_stops_are_told_so(world: World) -> None:
    gate = threading.Event()
    slow = whole({"ok": 1})
    slow.before = lambda: (gate.wait(20), None)[1]
    c = world.start(slow)
    replies: list[httpx.Response] = []
    call = threading.Thread(target=lambda: replies.append(c.post(CHAT, json=body())))
    call.start()
    try:
        until(lambda: world.upstream.seen)
        began = time.monotonic()
        world.gateway.close()
        assert time.monotonic() - began < 5
        call.join(10)
    finally:
        gate.set()
    assert replies[0].status_code == 503 and replies[0].headers["x-harness-reason"] == "restarting"
    assert world.settled()[0]["reason"] == "restarting"


def test_without_a_model_there_is_a_clear_answer(place: Place) -> None:
    gateway = place.gateway()
    reply = client(gateway.open(ATTEMPT, TOKEN, 1)).post(CHAT, json=body())
    assert reply.status_code == 503 and reply.json()["error"]["message"] == "harness: no model is configured"


def test_a_key_that_cannot_be_read_is_a_clear_answer(place: Place, tmp_path: Path) -> None:
    settings = ModelSettings("http://127.0.0.1:9", key=lambda: (tmp_path / "missing").read_text())
    c = client(place.gateway(model=settings).open(ATTEMPT, TOKEN, 1))
    reply = c.post(CHAT, json=body())
    assert reply.status_code == 503 and reply.headers["x-harness-reason"] == "no_key"
