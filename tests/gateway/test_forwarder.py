"""The forwarder inside the container: holding, framing, counting gaps, and nothing but model and git."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway_world import TOKEN, Place, until
from scripted_upstream import Answer, Upstream, anthropic_stream, whole

from harness.gateway.forwarder import Forwarder
from harness.gateway.framing import ReplyFrame, rewrite
from harness.gateway.settings import GatewayError, ModelSettings
from harness.gateway.sockets import folder_of

BODY = {"model": "m", "max_tokens": 10, "messages": []}


class World:
    def __init__(self, place: Place) -> None:
        self.place = place
        self.upstream = Upstream(whole({"ok": 1}))
        self.forwarder: Any = None

    def director(self) -> Any:
        gateway = self.place.gateway(model=ModelSettings(self.upstream.url, key=lambda: "the-real-key"))
        gateway.open("12.1", TOKEN, 1)
        return gateway

    def forward(self, **options: Any) -> Forwarder:
        path = folder_of(self.place.runtime, "12.1") / "gateway.sock"
        self.forwarder = Forwarder(path, TOKEN, 1, **options)
        self.forwarder.start()
        return self.forwarder

    def post(self, stream: bool = False, **options: Any) -> httpx.Response:
        url = self.forwarder.url + "/messages"
        headers = {"x-api-key": "dummy", "x-harness-token": "forged", "x-harness-incarnation": "7"}
        body = {**BODY, "stream": stream}
        return httpx.post(url, json=body, headers=headers, timeout=20, trust_env=False, **options)


@pytest.fixture
def world(place: Place) -> Iterator[World]:
    made = World(place)
    yield made
    if made.forwarder is not None:
        made.forwarder.close()
    made.upstream.close()


def test_an_agents_calls_go_through_whatever_it_says_of_itself(world: World) -> None:
    world.director()
    forwarder = world.forward()
    assert world.post().json() == {"ok": 1}
    world.upstream.script = [anthropic_stream()]
    assert world.post(stream=True).content == b"".join(anthropic_stream().chunks)
    assert world.upstream.seen[0].headers["authorization"] == "Bearer the-real-key"
    assert forwarder.gaps == 0


def test_a_kept_connection_is_used_for_one_request_only(world: World) -> None:
    world.director()
    forwarder = world.forward()
    with httpx.Client(trust_env=False) as c:
        for _ in range(3):
            reply = c.post(forwarder.url + "/messages", json=BODY)
            assert reply.status_code == 200 and reply.headers["connection"] == "close"


def test_large_bodies_pass_in_both_directions(world: World) -> None:
    big = {"text": "y" * (3 << 20)}
    world.upstream.script = [whole(big)]
    world.director()
    forwarder = world.forward()
    reply = httpx.post(
        forwarder.url + "/messages", json={**BODY, "big": "x" * (3 << 20)}, timeout=20, trust_env=False
    )
    assert reply.json() == big and len(world.upstream.seen[0].body) > 3 << 20


def test_a_request_waits_for_a_director_that_is_not_there_yet(world: World) -> None:
    forwarder = world.forward(hold_s=20.0)
    replies: list[httpx.Response] = []
    callers = [threading.Thread(target=lambda: replies.append(world.post())) for _ in range(4)]
    for t in callers:
        t.start()
    until(lambda: forwarder.gaps == 4)
    assert replies == []
    world.director()
    for t in callers:
        t.join(20)
    assert [r.status_code for r in replies] == [200] * 4
    assert forwarder.gaps == 4


def test_a_director_that_restarts_is_waited_for(world: World) -> None:
    first = world.director()
    forwarder = world.forward(hold_s=20.0)
    assert world.post().status_code == 200
    first.close()
    replies: list[httpx.Response] = []
    caller = threading.Thread(target=lambda: replies.append(world.post()))
    caller.start()
    until(lambda: forwarder.gaps == 1)
    world.director()
    caller.join(20)
    assert replies[0].status_code == 200


def test_a_request_is_not_held_for_ever(world: World) -> None:
    forwarder = world.forward(hold_s=0.2)
    reply = world.post()
    assert reply.status_code == 503 and reply.headers["retry-after"] == "1"
    assert "was not there" in reply.json()["error"]["message"] and forwarder.gaps == 1


def test_a_call_that_the_restart_cuts_is_a_gap(world: World) -> None:
    gate = threading.Event()
    slow = whole({"ok": 1})
    slow.before = lambda: (gate.wait(20), None)[1]
    world.upstream.script = [slow]
    gateway, forwarder = world.director(), world.forward()
    replies: list[httpx.Response] = []
    caller = threading.Thread(target=lambda: replies.append(world.post()))
    caller.start()
    try:
        until(lambda: world.upstream.seen)
        gateway.close()
        caller.join(20)
    finally:
        gate.set()
    assert replies[0].status_code == 503 and replies[0].headers["x-harness-reason"] == "restarting"
    assert forwarder.gaps == 1


def test_a_stream_that_the_restart_cuts_does_not_look_whole(world: World) -> None:
    gate = threading.Event()
    slow = anthropic_stream()
    slow.between = lambda i: (gate.wait(20), None)[1]
    world.upstream.script = [slow]
    gateway, forwarder = world.director(), world.forward()
    try:
        with httpx.stream(
            "POST", forwarder.url + "/messages", json={**BODY, "stream": True}, timeout=20, trust_env=False
        ) as reply:
            parts = reply.iter_raw()
            assert next(parts) == slow.chunks[0]
            gateway.close()
            with pytest.raises(httpx.HTTPError):
                b"".join(parts)
    finally:
        gate.set()
    until(lambda: forwarder.gaps == 1)


def test_an_agent_that_goes_away_is_no_gap_and_ends_the_call(world: World) -> None:
    gate = threading.Event()
    slow = anthropic_stream()
    slow.between = lambda i: (gate.wait(20), None)[1]
    world.upstream.script = [slow]
    gateway, forwarder = world.director(), world.forward()
    try:
        with httpx.stream(
            "POST", forwarder.url + "/messages", json={**BODY, "stream": True}, timeout=20, trust_env=False
        ) as reply:
            next(reply.iter_raw())
        until(lambda: gateway.spent("12.1")["requests"] == 1)
        note = world.place.data / "attempts" / "12.1" / "ledger" / "0001.json"
        until(lambda: json.loads(note.read_bytes())["reason"] == "agent_gone")
    finally:
        gate.set()
    assert forwarder.gaps == 0


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST /git HTTP/1.1\r\n\r\n",
        b"GET /bus HTTP/1.1\r\nupgrade: websocket\r\n\r\n",
        b"GET http://elsewhere/model/v1/models HTTP/1.1\r\n\r\n",
        b"CONNECT elsewhere:443 HTTP/1.1\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\r\n\r\n",
    ],
)
def test_nothing_else_is_forwarded(world: World, head: bytes) -> None:
    world.director()
    forwarder = world.forward()
    with socket.create_connection(("127.0.0.1", forwarder.port), 10) as s:
        s.sendall(head)
        assert s.recv(1000).startswith(b"HTTP/1.1 404")


def test_a_head_is_bounded(world: World) -> None:
    world.director()
    forwarder = world.forward()
    with socket.create_connection(("127.0.0.1", forwarder.port), 10) as s:
        s.sendall(b"GET /model/v1/models HTTP/1.1\r\nx: " + b"y" * (80 << 10) + b"\r\n\r\n")
        assert s.recv(1000).startswith(b"HTTP/1.1 431")


def test_a_port_in_use_is_one_clear_line(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(GatewayError, match=f"cannot listen on 127.0.0.1:{port}"):
            Forwarder(Path("x.sock"), TOKEN, 1, port=port).start()


# ---------------------------------------------------------------- framing


def test_a_head_is_rewritten() -> None:
    head = (
        b"POST /model/v1/messages?beta=true HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n"
        b"X-Harness-Token: forged\r\nx-harness-new: forged\r\nUpgrade: websocket\r\nContent-Length: 3\r\n"
        b"Authorization: Bearer dummy\r\n\tfolded\r\n\r\n"
    )
    assert rewrite(head, {"x-harness-token": "t"}) == (
        b"POST /model/v1/messages?beta=true HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"
        b"Authorization: Bearer dummy\r\nx-harness-token: t\r\nconnection: close\r\n\r\n"
    )


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
SIZED = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\nx: y\r\n\r\nhello"
EMPTY = b"HTTP/1.1 204 No Content\r\nx-harness-reason: restarting\r\n\r\n"


@pytest.mark.parametrize("reply", [CHUNKED, SIZED, EMPTY])
@pytest.mark.parametrize("step", [1, 3, 1000])
def test_a_reply_is_whole_at_its_last_byte_and_not_before(reply: bytes, step: int) -> None:
    told: list[bool] = []
    frame = ReplyFrame(lambda: told.append(True))
    for i in range(0, len(reply) - 1, step):
        frame.feed(reply[i : min(i + step, len(reply) - 1)])
    assert not frame.whole()
    frame.feed(reply[-1:])
    assert frame.whole() and frame.marked == (reply is EMPTY) == bool(told)


def test_answers_are_scripted_as_they_are_sent() -> None:
    assert Answer().chunks == []
