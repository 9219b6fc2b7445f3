"""The loop: ticks every live machine, waits for a wake-up, and watches the clock.

The one rule: one thread, no tick waits. Messages and events only wake it; losing all of them costs latency.
An exception in one machine is a record of that machine, and the others go on.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Any

from harness.core.item import Item
from harness.failures import Failure
from harness.machines.all import kind_of
from harness.perform.outcome import Outcome
from harness.tick import Fenced, StoreUnavailable, Ticker

PORTS: Mapping[str, int] = {"forge": 2, "git": 2, "runtime": 4, "local": 2, "bus": 2, "store": 1}
QUEUE_LIMIT = 200
IDLE_WAIT_S = 0.5
JUMP_S = 5.0
STRUCK_S = 1.0  # how long a machine rests after its first exception; twice as long after each further one
UNWRITTEN = frozenset({Failure.DISK_FULL, Failure.INFRA_ENGINE})


class SteadyClock:
    """POSIX seconds that never jump: the wall clock at the start plus what the monotonic clock says since. A
    suspended host, a set clock and a summer time take nothing from any deadline."""

    def __init__(self) -> None:
        self._wall, self._mono = time.time(), time.monotonic()

    def now(self) -> float:
        return self._wall + (time.monotonic() - self._mono)

    def monotonic(self) -> float:
        return time.monotonic()

    def jump_s(self) -> float:
        """By how much the wall clock has moved against ours since the start."""
        return time.time() - self.now()


class Pools:
    """A small pool per port, each with a bounded queue. `start` refuses (False) rather than wait.

    Its threads are daemons, which an executor's are not: a port that hangs must not hold up our own end. What
    it was doing then counts as sent, as after a crash.
    """

    def __init__(self, sizes: Mapping[str, int] = PORTS) -> None:
        self._sizes = dict(sizes)
        self._jobs: dict[str, SimpleQueue[Callable[[], None] | None]] = {p: SimpleQueue() for p in sizes}
        self._queued = dict.fromkeys(sizes, 0)
        self._lock = threading.Lock()
        self._closed = False
        for port, n in sizes.items():
            for i in range(n):
                name = f"{port}_{i}"
                threading.Thread(target=self._work, args=(port,), name=name, daemon=True).start()

    def start(self, port: str, do: Callable[[], None]) -> bool:
        with self._lock:
            if self._closed or self._queued[port] >= QUEUE_LIMIT:
                return False
            self._queued[port] += 1
        self._jobs[port].put(do)
        return True

    def _work(self, port: str) -> None:
        while (do := self._jobs[port].get()) is not None:
            if self._closed:
                continue
            try:
                do()
            except Exception:
                # What is started here tells of its own failures; this one is a bug, and the thread is needed.
                traceback.print_exc()
            finally:
                with self._lock:
                    self._queued[port] -= 1

    def close(self) -> None:
        """Begin nothing more. What runs is not waited for."""
        with self._lock:
            self._closed = True
        for port, n in self._sizes.items():
            for _ in range(n):
                self._jobs[port].put(None)


class Inline:
    """Does everything at once, in the caller: for the simulator and for tests."""

    def start(self, port: str, do: Callable[[], None]) -> bool:
        do()
        return True

    def close(self) -> None:
        """Nothing is left over."""


class Performer:
    """Performs effects through pools; what an exception in there was is a failed outcome with its text."""

    def __init__(self, pools: Any, wake: Callable[[], None] = lambda: None) -> None:
        self._pools, self._wake = pools, wake
        self._busy: set[tuple[Any, ...]] = set()
        self._done: dict[tuple[Any, ...], Outcome] = {}
        self._lock = threading.Lock()

    def start(self, key: tuple[Any, ...], port: str, do: Callable[[], Outcome]) -> None:
        with self._lock:
            self._busy.add(key)

        def run() -> None:
            try:
                outcome = do()
            except Exception as e:
                text = "".join(traceback.format_exception(e, limit=-6))
                outcome = Outcome.failed("internal_error", f"{type(e).__name__}: {e}\n{text}")
            with self._lock:
                self._done[key] = outcome
                self._busy.discard(key)
            self._wake()

        if not self._pools.start(port, run):
            with self._lock:
                self._busy.discard(key)

    def take(self, key: tuple[Any, ...]) -> Outcome | None:
        with self._lock:
            return self._done.pop(key, None)

    def busy(self, key: tuple[Any, ...]) -> bool:
        with self._lock:
            return key in self._busy

    def idle(self) -> bool:
        with self._lock:
            return not self._busy and not self._done


@dataclass
class Loop:
    """All machines of one process. `items` are folded at the start and after every record of ours.

    `after` is called after each pass (feeding the watchdog, answering workers); `ended(loop)` says when to
    stop. `slowest_s` is the longest that one step of any of these held the loop's thread.
    """

    ticker: Ticker
    items: dict[str, Item[Any]] = field(default_factory=dict)
    wake: threading.Event = field(default_factory=threading.Event)
    after: Callable[[Loop], None] = lambda loop: None
    report: Callable[[str, Item[Any], str], None] = lambda what, item, text: None
    strikes: dict[str, int] = field(default_factory=dict)
    resting: dict[str, float] = field(default_factory=dict)
    out: set[str] = field(default_factory=set)
    trouble: str = ""
    slowest_s: float = 0.0
    ticks: int = 0

    def load(self, machines: tuple[str, ...]) -> None:
        """Fold these machines. One that cannot be folded is named and left out; the others start."""
        for machine in machines:
            item = self.ticker.load(machine)
            if item is None:
                continue
            self.items[machine] = self._kept(item)
            if self._moves(item) and (struck := self._struck(machine)):
                self.strikes[machine] = struck

    def live(self) -> list[str]:
        """Machines that can still do something, directors first, then by age of their state."""
        return [k for k, i in self.items.items() if k not in self.out and self._moves(i)]

    @staticmethod
    def _moves(item: Item[Any]) -> bool:
        return item.open_intent is not None or item.state not in kind_of(item.id).table.final

    def _kept(self, item: Item[Any]) -> Item[Any]:
        """What is over stays for as long as the process lives: only as much of it as others ask for."""
        if self._moves(item):
            return item
        return replace(item, data=kind_of(item.id).rest(item.data), intents=())

    def _struck(self, machine: str) -> int:
        """Exceptions in a row at the end of its journal: a restart must not grant a poisoned machine more."""
        n = 0
        for record in self.ticker.world.store.since_snapshot(machine):
            n = n + 1 if record.body.get("status") == "exception" else 0
        return n

    def turn(self) -> bool:
        """One pass over all live machines; answers whether anything moved."""
        moved = False
        for name in self.live():
            if self.resting.get(name, 0.0) > self.ticker.world.clock.monotonic():
                continue
            item = self.items[name]
            began = time.perf_counter()
            new = self._tick(item)
            self._held(began)
            self.ticks += 1
            if new is not item:
                moved = True
                self.items[name] = self._kept(new)
                self.report(name, new, "")
            for opened in self.ticker.opened:
                self.items[opened.id] = opened
                self.report(opened.id, opened, "opened")
            self.ticker.opened.clear()
        began = time.perf_counter()
        self.after(self)
        self._held(began)
        return moved

    def _held(self, since: float) -> None:
        """The loop's thread was held by one step since then: a tick, or what is done between passes."""
        self.slowest_s = max(self.slowest_s, time.perf_counter() - since)

    def _tick(self, item: Item[Any]) -> Item[Any]:
        try:
            new = self.ticker.tick(item)
            self.trouble = "" if new is not item else self.trouble
            if new is not item:
                self.strikes.pop(item.id, None)
                self.resting.pop(item.id, None)
            return new
        except Fenced:
            raise
        except StoreUnavailable as e:
            self.trouble = str(e)
            return item
        except Exception as e:
            if getattr(e, "failure", "") in UNWRITTEN:  # the disk's trouble, no machine's: it comes again
                self.trouble = str(e)
                return item
            return self._strike(item, e)

    def _strike(self, item: Item[Any], error: Exception) -> Item[Any]:
        """A machine that raised is given time, ever more of it: what is wrong with it may pass."""
        text = "".join(traceback.format_exception(error, limit=-8))
        n = self.strikes[item.id] = self.strikes.get(item.id, 0) + 1
        self.resting[item.id] = self.ticker.world.clock.monotonic() + STRUCK_S * 2 ** min(n - 1, 5)
        self.report(item.id, item, f"exception {n}: {text}")
        try:
            item = self.ticker.note_exception(item, f"{type(error).__name__}: {error}\n{text}")
            if n >= self.ticker.policy().quarantine_after:
                self.strikes.pop(item.id, None)
                self.resting.pop(item.id, None)
                return self.ticker.quarantine(item, f"{type(error).__name__}: {error}")
        except Fenced:
            raise
        except Exception as again:
            if n >= self.ticker.policy().quarantine_after:
                self.out.add(item.id)
                self.report(item.id, item, f"left out: {type(again).__name__}: {again}")
        return item

    def run(self, ended: Callable[[Loop], bool]) -> None:
        """Until `ended` says so. Waits at most `IDLE_WAIT_S` between passes that moved nothing."""
        while not self._over(ended):
            self.wake.clear()
            if not self.turn():
                self.wake.wait(IDLE_WAIT_S)

    def _over(self, ended: Callable[[Loop], bool]) -> bool:
        began = time.perf_counter()
        over = ended(self)
        self._held(began)
        return over
