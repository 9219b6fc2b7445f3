"""Records over real sockets: gaps, replays, torn files, a director that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gateway_world import TOKEN, Place, RealClock, lines, until

from harness.core import journal
from harness.core.result import Ok, Pass
from harness.gateway.client import BusClient
from harness.gateway.outbox import HISTORY_LINES, Outbox
from harness.gateway.sockets import folder_of
from harness.gateway.witness import Taken, Witness

ATTEMPT = "12.1"


def bus_of(place: Place, **options: Any) -> BusClient:
    path = folder_of(place.runtime, ATTEMPT) / "gateway.sock"
    return BusClient(path, TOKEN, ATTEMPT, options.pop("incarnation", 1), RealClock(), **options)


def witnessed(place: Place) -> bytes:
    path = place.data / "attempts" / ATTEMPT / "witness.jsonl"
    return path.read_bytes() if path.exists() else b""


class Journal:
    """A worker's own journal, as it can be read again."""

    def __init__(self, kept: list[bytes]) -> None:
        self.kept = kept
        self.reads: list[int] = []

    def replay(self, seq: int) -> list[bytes]:
        self.reads.append(seq)
        return self.kept[seq - 1 :]


def test_what_the_last_incarnation_could_not_send_is_read_again(place: Place) -> None:
    kept = lines(50)
    gateway = place.gateway()
    gateway.open(ATTEMPT, TOKEN, 2)
    bus = bus_of(place, incarnation=2, replay=Journal(kept).replay)
    try:
        until(lambda: witnessed(place) == b"".join(kept))
    finally:
        bus.close()


def test_a_director_that_lost_its_copy_gets_it_again(place: Place) -> None:
    kept = lines(30)
    first = place.gateway()
    first.open(ATTEMPT, TOKEN, 1)
    own = Journal(kept[:20])
    bus = bus_of(place, replay=own.replay)
    try:
        for line in kept[:20]:
            bus.record(line)
        until(lambda: witnessed(place) == b"".join(kept[:20]))
        first.close()
        (place.data / "attempts" / ATTEMPT / "witness.jsonl").unlink()
        place.gateway().open(ATTEMPT, TOKEN, 1)
        own.kept = kept
        for line in kept[20:]:
            bus.record(line)
        until(lambda: witnessed(place) == b"".join(kept))
    finally:
        bus.close()


def test_a_long_journal_is_replayed_piece_by_piece(place: Place) -> None:
    kept = lines(2 * HISTORY_LINES + 500)
    place.gateway().open(ATTEMPT, TOKEN, 1)
    own = Journal(kept)
    bus = bus_of(place, replay=own.replay)
    try:
        until(lambda: witnessed(place) == b"".join(kept), timeout_s=60)
        assert len(own.reads) >= 3
    finally:
        bus.close()


def test_without_a_journal_to_read_a_gap_is_said_and_nothing_is_forged(place: Place) -> None:
    kept = lines(10)
    place.gateway().open(ATTEMPT, TOKEN, 1)
    bus = bus_of(place)
    try:
        until(lambda: bus.state == "up")
        for line in kept[5:]:
            bus.record(line)
        until(lambda: "lacks record 1" in bus.problem)
        for line in kept[:5]:
            bus.record(line)
        assert witnessed(place) in (b"", b"".join(kept[:5]))
    finally:
        bus.close()


def test_a_record_is_acknowledged_only_after_it_is_on_the_disk(place: Place) -> None:
    kept = lines(200)
    place.gateway().open(ATTEMPT, TOKEN, 1)
    bus = bus_of(place)
    try:
        for line in kept:
            bus.record(line)
        bus.beat("DONE", {"final": "DONE"})
        assert bus.drained(10)
        assert witnessed(place) == b"".join(kept)
    finally:
        bus.close()


def test_the_last_words_are_heard_before_the_goodbye(place: Place) -> None:
    gateway = place.gateway()
    gateway.open(ATTEMPT, TOKEN, 1)
    bus = bus_of(place)
    until(lambda: bus.state == "up")
    bus.record(lines(1)[0])
    bus.beat("DONE", {"final": "DONE"})
    bus.close()
    beat = gateway.beat(ATTEMPT)
    assert beat is not None and beat.final == "DONE" and beat.seq == 1 and bus.state == "closed"


SERVER = """
import sys, time, threading
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from gateway_world import TOKEN, RealClock
from harness.gateway.server import Gateway
g = Gateway(Path(sys.argv[1]), Path(sys.argv[2]), RealClock())
g.start()
g.open("12.1", TOKEN, 1)
print("ready", flush=True)
for line in sys.stdin:
    what, *args = line.split()
    if what == "asked":
        print(*[a.key for a in g.asked("12.1")], flush=True)
    elif what == "answer":
        g.answer("12.1", args[0], {"ok": True})
        print("answered", flush=True)
"""


class Director:
    """A gateway in a process of its own, which can be killed."""

    def __init__(self, place: Place) -> None:
        support = str(Path(__file__).parents[1] / "support")
        place.runtime.parent.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(place.runtime), str(place.data), support],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert self.heard() == "ready"

    def heard(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def say(self, text: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        return self.heard()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


def test_a_director_killed_again_and_again_loses_and_doubles_nothing(place: Place) -> None:
    kept = lines(400)
    own = Journal([])
    bus = bus_of(place, replay=own.replay)
    try:
        for round_ in range(4):
            director = Director(place)
            for line in kept[round_ * 100 : round_ * 100 + 100]:
                own.kept.append(line)
                bus.record(line)
            assert isinstance(bus.request("the-one", "publish", {"n": 1}), Pass)
            until(lambda d=director: d.say("asked") == "the-one")  # type: ignore[misc]
            if round_ == 3:
                assert director.say("answer the-one") == "answered"
                until(lambda: bus.request("the-one", "publish", {"n": 1}) == Ok({"ok": True}))
                assert director.say("asked") == ""
                until(lambda: witnessed(place) == b"".join(kept))
            director.kill()
    finally:
        bus.close()
    records, fault = journal.read(witnessed(place))
    assert fault is None and [r.seq for r in records] == list(range(1, 401))


# ---------------------------------------------------------------- the file


def test_a_torn_last_line_is_cut_and_taken_again(tmp_path: Path) -> None:
    kept = lines(5)
    path = tmp_path / "witness.jsonl"
    path.write_bytes(b"".join(kept[:3]) + kept[3][:-10])
    w = Witness(path)
    assert (w.seq, w.synced, path.read_bytes()) == (3, 3, b"".join(kept[:3]))
    assert [w.take(x) for x in kept[3:]] == [Taken.NEW, Taken.NEW]
    assert path.read_bytes() == b"".join(kept)


@pytest.mark.parametrize("cut", [1, 100])
def test_a_file_with_nothing_but_a_torn_line_is_begun_anew(tmp_path: Path, cut: int) -> None:
    kept = lines(1)
    path = tmp_path / "witness.jsonl"
    path.write_bytes(kept[0][:cut])
    w = Witness(path)
    assert w.seq == 0 and w.take(kept[0]) is Taken.NEW and path.read_bytes() == kept[0]


def test_a_file_that_somebody_changed_is_not_continued(tmp_path: Path) -> None:
    kept = lines(3)
    path = tmp_path / "witness.jsonl"
    changed = kept[1].replace(b"CODE", b"DONE")
    path.write_bytes(kept[0] + changed)
    w = Witness(path)
    assert w.take(kept[2]) is Taken.WRONG and "cannot be continued" in w.why
    assert path.read_bytes() == kept[0] + changed


def test_each_wrong_line_is_told_apart(tmp_path: Path) -> None:
    kept, other = lines(5), lines(5, note="other")
    w = Witness(tmp_path / "w")
    assert w.take(kept[1]) is Taken.GAP
    assert w.take(b"{}") is Taken.WRONG and w.why == "record refused: not a record"
    assert w.take(kept[0].replace(b"CODE", b"DONE")) is Taken.WRONG and "hash" in w.why
    assert w.take(kept[0]) is Taken.NEW and w.why == ""
    assert w.take(kept[0]) is Taken.SEEN
    assert w.take(other[0]) is Taken.WRONG and w.take(other[1]) is Taken.WRONG
    assert w.take(kept[1]) is Taken.NEW
    stranger = json.loads(kept[2]) | {"machine": "acme/widget/worker/13.1"}
    stranger.pop("hash")
    stranger["hash"] = journal.digest(stranger)
    assert w.take(journal.canonical(stranger)) is Taken.WRONG and "belongs to" in w.why
    assert w.take(kept[2].removesuffix(b"\n")) is Taken.NEW


def test_a_disk_that_is_full_takes_nothing_and_forgets_nothing(tmp_path: Path) -> None:
    kept = lines(2)
    w = Witness(tmp_path / "w")
    assert w.take(kept[0]) is Taken.NEW
    os.close(w.fd)
    w.fd = os.open("/dev/full", os.O_RDWR)
    with pytest.raises(OSError):
        w.take(kept[1])
    assert w.seq == 1
    w.forget()
    w.fd = os.open(tmp_path / "w", os.O_RDWR | os.O_APPEND)
    assert w.take(kept[1]) is Taken.NEW and (tmp_path / "w").read_bytes() == b"".join(kept)
    w.forget()


# ---------------------------------------------------------------- the outbox


def test_an_outbox_without_a_journal_is_bounded() -> None:
    box = Outbox(None)
    big = lines(70, note="x" * 1_000_000)
    said = [box.add(x) for x in big]
    assert "is not sent" in said[-1] and box.size <= 64 << 20 and said[0] == ""


def test_an_outbox_with_a_journal_lets_go_and_reads_again() -> None:
    big = lines(70, note="x" * 1_000_000)
    own = Journal(big)
    box = Outbox(own.replay)
    assert {box.add(x) for x in big} == {""} and box.size <= 64 << 20
    sent: list[bytes] = []
    box.rewind(1, box.history(1, box.oldest()))
    for _ in range(30):
        batch = box.take(64)
        sent += batch
        if batch and (again := box.acked(len(sent))):
            box.rewind(again, box.history(again, box.oldest()))
        elif not batch and len(sent) < 70:
            box.rewind(len(sent) + 1, box.history(len(sent) + 1, box.oldest()))
    assert sent == [x.removesuffix(b"\n") for x in big]
