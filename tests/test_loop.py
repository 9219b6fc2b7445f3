"""The loop: one thread, one bad machine never stops the others, and a full disk or a fence is not a bug."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench import Bench, Facts
from workshop import REPO, Workshop

from harness.core.item import Item
from harness.core.result import Err, Ok
from harness.domain import Status
from harness.failures import Failure
from harness.loop import PORTS, QUEUE_LIMIT, Inline, Loop, Performer, Pools, SteadyClock
from harness.machines.attempt.states import Attempt
from harness.machines.ticket.states import Ticket
from harness.perform.outcome import Outcome
from harness.tick import Fenced

WAIT_S = 20.0


@pytest.fixture
def w(tmp_path: Path) -> Workshop:
    made = Workshop.open(tmp_path)
    made.issue()
    made.issue()
    return made


class Poisoned(Facts):
    """Looks that raise for one machine."""

    bad = ""

    def see(self, item: Item[Any], query: str) -> Any:
        if item.id == self.bad:
            raise ValueError("a record that nobody can read")
        return super().see(item, query)


def night(w: Workshop) -> tuple[Loop, Bench, Poisoned]:
    looks = Poisoned(controls=(), **{"issue/1": w.hub.issues[1], "issue/2": w.hub.issues[2]})
    b = Bench(w, looks)
    loop = Loop(b.ticker)
    for n in (1, 2):
        item = b.ticker.open(f"{REPO}/ticket/{n}", Ticket(repo=REPO, issue=n, title="Add it"))
        loop.items[item.id] = item
    return loop, b, looks


def passes(loop: Loop, w: Workshop, times: int, every_s: float = 20.0) -> None:
    for _ in range(times):
        loop.turn()
        w.clock.at += every_s


ONE, TWO = f"{REPO}/ticket/1", f"{REPO}/ticket/2"


def exceptions(w: Workshop, machine: str) -> int:
    return sum(1 for r in w.store.read(machine) if r.body.get("status") == "exception")


# ---------------------------------------------------------------- one bad machine


def test_an_exception_is_a_record_and_the_others_go_on(w: Workshop) -> None:
    loop, _, looks = night(w)
    looks.bad = ONE
    told: list[str] = []
    loop.report = lambda what, item, text: told.append(text) if "exception" in text else None
    passes(loop, w, 2)
    assert exceptions(w, ONE) == 2
    assert loop.items[TWO].open_intent is None
    assert "ValueError: a record that nobody can read" in told[0]
    assert "see" in w.store.read(ONE)[-1].body["detail"]


def test_a_machine_that_raised_is_given_time_and_ever_more_of_it(w: Workshop) -> None:
    loop, _, looks = night(w)
    looks.bad = ONE
    passes(loop, w, 400, every_s=0.01)
    assert exceptions(w, ONE) == 3, "at once, after one second, and after two more"
    assert loop.items[TWO].open_intent is None
    looks.bad = ""
    passes(loop, w, 4)
    assert loop.items[ONE].open_intent is None and loop.resting == {}


def test_after_five_in_a_row_it_is_quarantined_and_stays_so(w: Workshop) -> None:
    loop, _, looks = night(w)
    passes(loop, w, 4)
    looks.bad = ONE
    passes(loop, w, 20)
    assert exceptions(w, ONE) == 5
    looks.bad = ""
    passes(loop, w, 5)
    assert loop.items[ONE].state == "GONE"
    assert loop.items[TWO].state == "CLAIMING"


def test_restarts_grant_a_bad_machine_no_more_than_one_life_would(w: Workshop) -> None:
    loop, b, looks = night(w)
    passes(loop, w, 4)
    looks.bad = ONE
    for _ in range(4):
        loop = Loop(b.ticker)
        loop.load(tuple(w.store.machines()))
        passes(loop, w, 2)
    assert exceptions(w, ONE) == 5
    looks.bad = ""
    loop = Loop(b.ticker)
    loop.load(tuple(w.store.machines()))
    assert loop.strikes == {}
    passes(loop, w, 5)
    assert loop.items[ONE].state == "GONE"


def test_an_attempt_that_is_quarantined_is_harvested(w: Workshop) -> None:
    looks = Poisoned(controls=(), **{"job/prepare-1": Status("prepare-1", "RUNNING")})
    b = Bench(w, looks)
    loop = Loop(b.ticker)
    data = Attempt(code="1.1", ticket=ONE, base_sha=w.main, base="main", prepare="prepare-1", image="img")
    item = b.ticker.open(f"{REPO}/attempt/1.1", data)
    loop.items[item.id] = item
    passes(loop, w, 5)
    looks.bad = item.id
    passes(loop, w, 5)
    looks.bad = ""
    passes(loop, w, 1)
    found = loop.items[item.id]
    assert (found.state, found.data.failure) in [
        ("HARVESTING", Failure.INTERNAL_ERROR),
        ("CLEANING", Failure.INTERNAL_ERROR),
    ]


def test_a_good_tick_in_between_begins_the_counting_anew(w: Workshop) -> None:
    loop, b, looks = night(w)
    passes(loop, w, 4)
    for _ in range(4):
        looks.bad = ONE
        passes(loop, w, 3)
        looks.bad = ""
        loop.items[ONE] = b.ticker.note_exception(loop.items[ONE], "makes it move")
        loop.strikes.pop(ONE, None)
        passes(loop, w, 1)
    assert loop.items[ONE].state == "CLAIMING"


def test_one_that_cannot_even_be_quarantined_is_left_out(w: Workshop) -> None:
    loop, b, looks = night(w)
    passes(loop, w, 4)
    looks.bad = ONE

    def broken(item: Item[Any], text: str) -> Item[Any]:
        raise RuntimeError("cannot be recorded either")

    b.ticker.note_exception = broken  # type: ignore[method-assign]
    told: list[str] = []
    loop.report = lambda what, item, text: told.append(text)
    passes(loop, w, 6)
    assert loop.out == {ONE}
    assert ONE not in loop.live() and TWO in loop.live()
    assert any("left out: RuntimeError" in t for t in told)


# ---------------------------------------------------------------- the store


def test_a_full_disk_is_a_trouble_that_passes(w: Workshop) -> None:
    loop, b, _ = night(w)
    append, full = w.store.append, [True]

    def refusing(machine: str, draft: Any, *, expect_seq: int) -> Any:
        if full[0]:
            return Err(Failure.DISK_FULL, "disk is full")
        return append(machine, draft, expect_seq=expect_seq)

    w.store.append = refusing  # type: ignore[method-assign]
    passes(loop, w, 5)
    assert loop.trouble == "disk is full"
    assert loop.strikes == {} and exceptions(w, ONE) == 0
    full[0] = False
    passes(loop, w, 3)
    assert loop.trouble == ""
    assert b.performed.count("Comment") == 2
    assert loop.items[ONE].open_intent is None


def test_a_fence_ends_the_loop(w: Workshop) -> None:
    loop, _, _ = night(w)
    w.store.disk.epoch = 9
    with pytest.raises(Fenced):
        loop.turn()


def test_machines_are_folded_at_the_start(w: Workshop) -> None:
    loop, b, _ = night(w)
    passes(loop, w, 4)
    again = Loop(b.ticker)
    again.load(tuple(w.store.machines()))
    assert again.items == loop.items


def test_what_has_ended_is_not_ticked(w: Workshop) -> None:
    loop, _, looks = night(w)
    passes(loop, w, 4)
    looks.facts["issue/1"] = replace(w.hub.issues[1], open=False)
    passes(loop, w, 10)
    assert loop.items[ONE].state == "GONE"
    before = loop.ticks
    passes(loop, w, 1)
    assert loop.ticks - before == 1


def test_of_what_has_ended_only_what_others_ask_for_stays_in_memory(w: Workshop) -> None:
    """A director runs for months: the text of every issue that was ever done must not stay with it."""
    loop, b, looks = night(w)
    text = "a long story " * 5000
    three = b.ticker.open(
        f"{REPO}/ticket/3", Ticket(repo=REPO, issue=3, title="Told", text=text, base="main")
    )
    loop.items[three.id] = three
    looks.facts["issue/3"] = replace(w.hub.issues[1], number=3, open=False)
    passes(loop, w, 30)
    over = loop.items[three.id]
    assert (over.state, over.data.title, over.data.base) == ("GONE", "Told", "main")
    assert over.data.text == "" and over.intents == ()
    assert len(loop.items[ONE].intents) > 0
    again = Loop(b.ticker)
    again.load((three.id,))
    assert again.items[three.id] == over
    kept = b.ticker.load(three.id)
    assert kept is not None and kept.data.text == text, "its journal has all of it"


def test_it_runs_until_it_is_told_and_wakes_when_something_happens(w: Workshop) -> None:
    loop, _, _ = night(w)
    turns: list[int] = []
    loop.after = lambda lp: turns.append(lp.ticks)
    loop.wake.set()
    loop.run(lambda lp: len(turns) >= 4)
    assert len(turns) == 4
    assert loop.slowest_s < 1.0


# ---------------------------------------------------------------- pools


def test_a_pool_refuses_rather_than_waits() -> None:
    pools, gate, started = Pools({"forge": 1}), threading.Event(), threading.Event()

    def slow() -> None:
        started.set()
        gate.wait(WAIT_S)

    assert pools.start("forge", slow)
    assert started.wait(WAIT_S)
    taken = sum(pools.start("forge", lambda: None) for _ in range(QUEUE_LIMIT + 20))
    assert taken == QUEUE_LIMIT - 1
    gate.set()
    pools.close()


def test_what_hangs_in_a_pool_does_not_hold_up_the_end() -> None:
    program = (
        "import threading\n"
        "from harness.loop import Pools\n"
        "pools, begun = Pools({'runtime': 1}), threading.Event()\n"
        "pools.start('runtime', lambda: (begun.set(), threading.Event().wait(600)))\n"
        "begun.wait(); pools.close(); print(pools.start('runtime', begun.set))\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "False\n", "")


def test_a_bug_in_a_pool_leaves_its_thread(capsys: pytest.CaptureFixture[str]) -> None:
    pools, done = Pools({"forge": 1}), threading.Event()
    pools.start("forge", lambda: 1 // 0)
    pools.start("forge", done.set)
    assert done.wait(WAIT_S)
    pools.close()
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_every_port_has_a_small_pool() -> None:
    assert all(0 < n <= 4 for n in PORTS.values())


def test_a_performer_gives_each_outcome_once_and_wakes_the_loop() -> None:
    woken: list[int] = []
    p = Performer(Inline(), lambda: woken.append(1))
    p.start(("m", 1, 0, 0), "forge", lambda: Outcome.done({"n": 1}))
    assert not p.busy(("m", 1, 0, 0))
    assert p.take(("m", 1, 0, 0)) == Outcome.done({"n": 1})
    assert p.take(("m", 1, 0, 0)) is None
    assert woken == [1] and p.idle()


def test_what_is_under_way_is_busy() -> None:
    pools, gate, done = Pools({"forge": 1}), threading.Event(), threading.Event()
    p = Performer(pools, done.set)

    def slow() -> Outcome:
        gate.wait(WAIT_S)
        return Outcome.done()

    p.start(("k",), "forge", slow)
    assert p.busy(("k",)) and p.take(("k",)) is None and not p.idle()
    gate.set()
    assert done.wait(WAIT_S)
    assert p.take(("k",)) == Outcome.done()
    pools.close()


def test_a_bug_in_an_effect_is_a_failed_outcome_with_its_text() -> None:
    p = Performer(Inline())

    def broken() -> Outcome:
        raise ValueError("no such thing")

    p.start(("k",), "forge", broken)
    outcome = p.take(("k",))
    assert outcome is not None
    assert (outcome.status, outcome.failure) == ("failed", Failure.INTERNAL_ERROR)
    assert "ValueError: no such thing" in outcome.detail


def test_an_effect_that_no_pool_takes_is_tried_again() -> None:
    class Full:
        def start(self, port: str, do: Any) -> bool:
            return False

    p = Performer(Full())
    p.start(("k",), "forge", lambda: Outcome.done())
    assert not p.busy(("k",)) and p.take(("k",)) is None


def test_a_steady_clock_never_jumps() -> None:
    clock = SteadyClock()
    first = clock.now()
    assert 0 <= clock.now() - first < 5.0
    assert abs(clock.jump_s()) < 5.0
    assert Ok(clock.monotonic()).value > 0
