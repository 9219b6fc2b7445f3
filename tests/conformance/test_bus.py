"""The Bus port, and the gateway's calls behind it: one suite over the memory adapter and the real one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from gateway_world import TOKEN, Place, RealClock, lines, sha, until

from harness.adapters.memory.bus import MemoryBus, MemoryGateway
from harness.core.result import Err, Ok, Pass
from harness.domain import Ask, News
from harness.failures import Failure
from harness.gateway.client import BusClient

ATTEMPT = "12.1"


class MemoryPair:
    def __init__(self) -> None:
        self.woken = 0
        self.gateway = MemoryGateway(RealClock(), self._wake)

    def _wake(self) -> None:
        self.woken += 1

    def bus(self, attempt: str = ATTEMPT, token: str = TOKEN, incarnation: int = 1) -> MemoryBus:
        return MemoryBus(self.gateway, attempt, token, incarnation)

    def restart(self) -> None:
        self.gateway.restart()

    def settle(self, bus: Any, true: Any, what: str = "") -> Any:
        """The memory bus hears when it is called, as a worker calls it on each tick."""
        bus.beat("CODE", {})
        return until(true, what, 0.1)

    def witnessed(self) -> bytes:
        return self.gateway.witnessed(ATTEMPT)

    def clean(self) -> None:
        """Nothing is left."""


class RealPair:
    def __init__(self, place: Place) -> None:
        self.place = place
        self.woken = 0
        self.gateway = place.gateway(wake=self._wake)
        self.buses: list[BusClient] = []

    def _wake(self) -> None:
        self.woken += 1

    def bus(self, attempt: str = ATTEMPT, token: str = TOKEN, incarnation: int = 1) -> BusClient:
        from harness.gateway.sockets import SOCKET_NAME, folder_of

        path = folder_of(self.place.runtime, attempt) / SOCKET_NAME
        made = BusClient(path, token, attempt, incarnation, RealClock())
        self.buses.append(made)
        return made

    def restart(self) -> None:
        self.gateway.close()
        self.gateway = self.place.gateway(wake=self._wake)

    def settle(self, bus: Any, true: Any, what: str = "") -> Any:
        return until(true, what)

    def witnessed(self) -> bytes:
        path = self.place.data / "attempts" / ATTEMPT / "witness.jsonl"
        return path.read_bytes() if path.exists() else b""

    def clean(self) -> None:
        for bus in self.buses:
            bus.close()


@pytest.fixture(params=["memory", "real"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MemoryPair | RealPair]:
    if request.param == "memory":
        yield MemoryPair()
        return
    place = Place(tmp_path / "data")
    made = RealPair(place)
    yield made
    made.clean()
    place.clean()


Pair = MemoryPair | RealPair


def test_nothing_is_known_of_an_attempt_that_is_not_open(pair: Pair) -> None:
    assert pair.gateway.asked(ATTEMPT) == ()
    assert pair.gateway.beat(ATTEMPT) is None
    assert pair.gateway.spent(ATTEMPT) == {"tokens_in": 0, "tokens_out": 0, "usd": 0.0, "requests": 0}
    pair.gateway.answer(ATTEMPT, "k", {"ok": True})
    pair.gateway.tell(ATTEMPT, stop=True)
    pair.gateway.shut(ATTEMPT)


def test_open_is_idempotent_and_names_the_same_folder(pair: Pair) -> None:
    first = pair.gateway.open(ATTEMPT, TOKEN, 1)
    assert pair.gateway.open(ATTEMPT, TOKEN, 1) == first
    assert pair.gateway.open(ATTEMPT, TOKEN, 2) == first
    assert pair.gateway.open("12.2", TOKEN, 1) != first
    pair.restart()
    assert pair.gateway.open(ATTEMPT, TOKEN, 2) == first


def test_a_beat_is_heard_and_answered_with_the_news(pair: Pair) -> None:
    pair.gateway.open(ATTEMPT, TOKEN, 1)
    pair.gateway.publish(News(tag="v1", main_sha="ab", image="img@sha256:1"))
    bus = pair.bus()
    detail = {"output_bytes": 12, "cpu_s": 1.5, "final": "BLOCKED", "reason": "why", "failure": "oom"}
    bus.beat("CODE", detail)
    beat = until(lambda: pair.gateway.beat(ATTEMPT))
    assert (beat.state, beat.incarnation, beat.output_bytes, beat.cpu_s) == ("CODE", 1, 12, 1.5)
    assert (beat.final, beat.reason, beat.failure) == ("BLOCKED", "why", "oom")
    assert abs(beat.at - RealClock().now()) < 5
    until(lambda: bus.news() == News(tag="v1", main_sha="ab", image="img@sha256:1"))
    assert pair.woken


def test_news_reach_who_is_there_and_who_comes_later(pair: Pair) -> None:
    pair.gateway.open(ATTEMPT, TOKEN, 1)
    pair.gateway.open("13.1", TOKEN, 1)
    bus, other = pair.bus(), pair.bus("13.1")
    pair.settle(bus, lambda: bus.news() is not None)
    pair.gateway.publish(News(tag="v2"))
    pair.gateway.tell(ATTEMPT, stop=True)
    pair.gateway.tell(ATTEMPT, pause=True)
    pair.settle(bus, lambda: bus.news() == News(tag="v2", stop=True, paused=True))
    pair.settle(other, lambda: other.news() == News(tag="v2"))
    pair.gateway.tell(ATTEMPT, stop=False)
    pair.settle(bus, lambda: bus.news() == News(tag="v2", paused=True))


def test_a_request_is_asked_once_and_answered(pair: Pair) -> None:
    pair.gateway.open(ATTEMPT, TOKEN, 1)
    bus = pair.bus()
    assert isinstance(bus.request("publish ab", "publish", {"sha": "ab"}), Pass)
    assert isinstance(bus.request("publish ab", "publish", {"sha": "ab"}), Pass)
    asked = until(lambda: pair.gateway.asked(ATTEMPT))
    assert asked == (Ask("publish ab", "publish", {"sha": "ab"}),)
    assert pair.woken
    pair.gateway.answer(ATTEMPT, "publish ab", {"ok": True, "url": "u"})
    assert pair.gateway.asked(ATTEMPT) == ()
    answer = until(lambda: _ended(bus.request("publish ab", "publish", {"sha": "ab"})))
    assert answer == Ok({"ok": True, "url": "u"})
    assert pair.gateway.asked(ATTEMPT) == ()


def test_a_refusal_is_an_err_of_its_class(pair: Pair) -> None:
    pair.gateway.open(ATTEMPT, TOKEN, 1)
    bus = pair.bus()
    bus.request("k", "open_pull", {})
    until(lambda: pair.gateway.asked(ATTEMPT))
    reply = {"ok": False, "failure": "policy_violation", "detail": "protected", "not_before": 5.0}
    pair.gateway.answer(ATTEMPT, "k", reply)
    answer = until(lambda: _ended(bus.request("k", "open_pull", {})))
    assert answer == Err(Failure.POLICY_VIOLATION, "protected", not_before=5.0)


def test_a_second_incarnation_joins_the_asking_and_gets_the_answer(pair: Pair) -> None:
    pair.gateway.open(ATTEMPT, TOKEN, 1)
    pair.bus().request("k", "ask", {"q": 1})
    until(lambda: pair.gateway.asked(ATTEMPT))
    pair.gateway.answer(ATTEMPT, "k", {"ok": True, "n": 1})
    pair.gateway.open(ATTEMPT, TOKEN, 2)
    later = pair.bus(incarnation=2)
    assert until(lambda: _ended(later.request("k", "ask", {"q": 1}))) == Ok({"ok": True, "n": 1})
    assert pair.gateway.asked(ATTEMPT) == ()


def test_records_are_witnessed_in_order_and_once(pair: Pair) -> None:
    pair.gateway.open(ATTEMPT, TOKEN, 1)
    bus, journal = pair.bus(), lines(20)
    for line in journal:
        bus.record(line)
    bus.beat("CODE", {})
    until(lambda: pair.witnessed() == b"".join(journal))
    beat = until(lambda: (b := pair.gateway.beat(ATTEMPT)) and b.seq == 20 and b)
    assert beat.head and beat.reason == ""
    for line in journal[10:]:
        bus.record(line)
    bus.beat("VALIDATE", {})
    until(lambda: pair.gateway.beat(ATTEMPT).state == "VALIDATE")
    assert pair.witnessed() == b"".join(journal)


def test_a_wrong_record_is_refused_and_shown(pair: Pair) -> None:
    pair.gateway.open(ATTEMPT, TOKEN, 1)
    bus, journal, forged = pair.bus(), lines(3), lines(3, note="forged")
    bus.record(journal[0])
    bus.record(journal[1])
    bus.record(forged[2])
    bus.beat("CODE", {})
    until(lambda: (b := pair.gateway.beat(ATTEMPT)) and "refused" in b.reason)
    assert pair.witnessed() == b"".join(journal[:2])


def test_a_bundle_is_handed_over(pair: Pair, tmp_path: Path) -> None:
    pair.gateway.open(ATTEMPT, TOKEN, 1)
    bundle = tmp_path / "work.bundle"
    bundle.write_bytes(b"# v2 git bundle\n" + b"x" * 300_000)
    assert pair.bus().upload(bundle) == Ok(sha(bundle.read_bytes()))
    kept = pair.gateway.bundle(ATTEMPT, sha(bundle.read_bytes()))
    assert kept is not None and kept.read_bytes() == bundle.read_bytes()
    assert pair.gateway.bundle("13.1", sha(bundle.read_bytes())) is None


@pytest.mark.parametrize("who", ["token", "incarnation"])
def test_who_may_not_come_in_is_told_so(pair: Pair, tmp_path: Path, who: str) -> None:
    pair.gateway.open(ATTEMPT, TOKEN, 2)
    bus = pair.bus(token="another-token-of-length") if who == "token" else pair.bus(incarnation=1)
    refused = until(lambda: _ended(bus.request("k", "ask", {})))
    assert isinstance(refused, Err) and refused.failure == Failure.AUTH_FAILED
    bundle = tmp_path / "b"
    bundle.write_bytes(b"x")
    sent = bus.upload(bundle)
    assert isinstance(sent, Err) and sent.failure == Failure.AUTH_FAILED
    bus.beat("CODE", {})
    assert pair.gateway.asked(ATTEMPT) == () and pair.gateway.beat(ATTEMPT) is None


def test_a_stale_incarnation_is_told_to_stop(pair: Pair) -> None:
    pair.gateway.open(ATTEMPT, TOKEN, 1)
    bus = pair.bus()
    pair.settle(bus, lambda: bus.news() == News())
    pair.gateway.open(ATTEMPT, TOKEN, 2)
    pair.settle(bus, lambda: bus.news() == News(stop=True))


def test_a_director_that_restarts_loses_nothing(pair: Pair) -> None:
    pair.gateway.open(ATTEMPT, TOKEN, 1)
    bus, journal = pair.bus(), lines(30)
    for line in journal[:10]:
        bus.record(line)
    bus.request("answered", "ask", {})
    bus.request("open", "ask", {"n": 1})
    until(lambda: len(pair.gateway.asked(ATTEMPT)) == 2)
    pair.gateway.answer(ATTEMPT, "answered", {"ok": True})
    until(lambda: _ended(bus.request("answered", "ask", {})))
    pair.restart()
    for line in journal[10:]:
        bus.record(line)
    assert isinstance(bus.request("later", "ask", {}), Pass)
    assert pair.gateway.open(ATTEMPT, TOKEN, 1)
    pair.gateway.answer(ATTEMPT, "answered", {"ok": True})
    bus.beat("COMMIT", {})
    bus.request("open", "ask", {"n": 1})
    bus.request("later", "ask", {})
    until(lambda: {a.key for a in pair.gateway.asked(ATTEMPT)} == {"open", "later"})
    until(lambda: pair.witnessed() == b"".join(journal))
    until(lambda: (b := pair.gateway.beat(ATTEMPT)) and b.state == "COMMIT")
    pair.gateway.answer(ATTEMPT, "open", {"ok": True, "n": 2})
    assert until(lambda: _ended(bus.request("open", "ask", {"n": 1}))) == Ok({"ok": True, "n": 2})
    assert [a.key for a in pair.gateway.asked(ATTEMPT)] == ["later"]


def test_nobody_there_is_a_wait_and_no_error(pair: Pair) -> None:
    bus = pair.bus()
    bus.beat("CODE", {})
    bus.record(lines(1)[0])
    assert bus.news() is None
    assert isinstance(bus.request("k", "ask", {}), Pass)


def test_what_is_shut_lets_nobody_in(pair: Pair, tmp_path: Path) -> None:
    pair.gateway.open(ATTEMPT, TOKEN, 1)
    bus = pair.bus()
    pair.settle(bus, lambda: bus.news() is not None)
    pair.gateway.shut(ATTEMPT)
    pair.gateway.shut(ATTEMPT)
    bundle = tmp_path / "b"
    bundle.write_bytes(b"x")
    sent = bus.upload(bundle)
    assert isinstance(sent, Err) and sent.failure == Failure.INFRA_GATEWAY
    assert pair.gateway.asked(ATTEMPT) == ()


def _ended(result: Any) -> Any:
    return None if isinstance(result, Pass) else result
