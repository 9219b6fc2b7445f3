"""The loop's pass without threads: ticks the machines of one process, and lets effects and reads take time.

The one rule: a machine is left alone only where a tick of it surely changes nothing: handlers are pure, so
the same item and the same facts at the same moment give the same answer.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.core.item import Item
from harness.effects import Effect
from harness.looks import LOCAL, READERS, Looks, Own, Reading
from harness.machines.all import kind_of
from harness.perform import perform
from harness.perform.local import feed
from harness.perform.outcome import Outcome, Sent
from harness.ports import World
from harness.tick import Fenced, StoreUnavailable, Ticker

Key = tuple[Any, ...]
Delay = Callable[[str], float]
Perform = Callable[[Effect, Sent, World], Outcome]
Mark = Callable[[float], Any]
PERIOD_S = 10.0
SHOWS: Mapping[str, tuple[str, ...]] = {
    "entries": ("ticket", "attempt moves"),
    "slots": ("ticket", "attempt moves"),
    "lane": ("release", "ticket"),
    "releases": ("release",),
}


def at_once(port: str) -> float:
    return 0.0


class AtOnce:
    """Performs where it stands."""

    def __init__(self) -> None:
        self.done: dict[Key, Outcome] = {}

    def start(self, key: Key, port: str, do: Callable[[], Outcome]) -> None:
        self.done[key] = do()

    def take(self, key: Key) -> Outcome | None:
        return self.done.pop(key, None)

    def busy(self, key: Key) -> bool:
        return False


@dataclass
class Slowly:
    """Performs with the delays it is given: the answer comes later, or the work itself is done later.

    What a bug raises in there is a failed outcome, as in `loop.Performer`; a disk that is full raises too."""

    world: World
    delay: Delay = at_once
    late_work: Callable[[], bool] = lambda: False
    flying: dict[Key, tuple[float, Outcome | Callable[[], Outcome]]] = field(default_factory=dict)
    bugs: list[str] = field(default_factory=list)

    def start(self, key: Key, port: str, do: Callable[[], Outcome]) -> None:
        wait_s = self.delay(port)
        work: Outcome | Callable[[], Outcome] = do if wait_s and self.late_work() else self._run(do)
        self.flying[key] = (self.world.clock.monotonic() + wait_s, work)

    def take(self, key: Key) -> Outcome | None:
        due, work = self.flying.get(key, (0.0, None))
        if work is None or due > self.world.clock.monotonic():
            return None
        del self.flying[key]
        return work if isinstance(work, Outcome) else self._run(work)

    def busy(self, key: Key) -> bool:
        return key in self.flying

    def due(self) -> Iterable[float]:
        return (at for at, _ in self.flying.values())

    def _run(self, do: Callable[[], Outcome]) -> Outcome:
        try:
            return do()
        except OSError as e:
            return Outcome.failed("internal_error", f"{type(e).__name__}: {e}")
        except Exception as e:
            self.bugs.append("".join(traceback.format_exception(e, limit=-4)))
            return Outcome.failed("internal_error", f"{type(e).__name__}: {e}")


class LateLooks(Looks):
    """Reads that are made at once and known later: what arrives may be older than what has happened since."""

    delay: Delay = staticmethod(at_once)
    reads = 0
    on_way: list[tuple[float, Callable[[], None]]]

    def _read(self, query: str, reading: Reading, rest: str, kept: Any) -> None:
        self.reads += 1
        wait_s = self.delay(reading.port)
        if not wait_s:
            super()._read(query, reading, rest, kept)
            return
        kept.reading = True
        began = self.world.clock.now()
        result = reading.read(self.world, rest)
        self.on_way.append((self.world.clock.monotonic() + wait_s, lambda: self._keep(kept, result, began)))

    def arrive(self) -> int:
        """Answers how many came in."""
        now = self.world.clock.monotonic()
        ready = [x for x in self.on_way if x[0] <= now]
        if ready:
            self.on_way = [x for x in self.on_way if x[0] > now]
            for _, keep in ready:
                keep()
        return len(ready)

    def due(self, since: float) -> Iterable[float]:
        yield from (at for at, _ in self.on_way)
        offset = self.world.clock.now() - self.world.clock.monotonic()
        yield from (k.not_before - offset for k in self.kept.values() if k.not_before > since + offset)


@dataclass
class Turns:
    """The machines of one process. `out` are left out; `bugs` are exceptions that a machine raised."""

    ticker: Ticker
    items: dict[str, Item[Any]] = field(default_factory=dict)
    out: set[str] = field(default_factory=set)
    strikes: dict[str, int] = field(default_factory=dict)
    bugs: list[str] = field(default_factory=list)
    quiet: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    depends: dict[str, tuple[Item[Any], Any, tuple[Mark, ...]]] = field(default_factory=dict)
    changes: dict[str, int] = field(default_factory=dict)
    troubled: bool = False
    moment: int = 0
    ticks: int = 0
    poison: str = ""
    word: Callable[[str], Any] = lambda attempt: ()
    outside: Callable[[], Any] | None = None
    still: tuple[Any, ...] | None = None
    arrived: int = 0

    @classmethod
    def of(
        cls, world: World, signal: Callable[[], str], rhythm: Callable[[str], float],
        boundary: Callable[[str], None], *, delay: Delay = at_once, late_work: Callable[[], bool] = lambda: False,
        do: Perform = perform, limits: Callable[[], tuple[Any, ...]] = tuple,
    ) -> Turns:  # fmt: skip
        items: dict[str, Item[Any]] = {}
        looks = LateLooks(world, Own(world, items, signal, limits), _now, rhythm)
        looks.delay, looks.on_way = delay, []
        ticker = Ticker(world, looks, Slowly(world, delay, late_work), do, world.policy, boundary)
        return cls(ticker, items)

    @property
    def looks(self) -> LateLooks:
        assert isinstance(self.ticker.looks, LateLooks)
        return self.ticker.looks

    @property
    def performer(self) -> Slowly:
        assert isinstance(self.ticker.performer, Slowly)
        return self.ticker.performer

    def load(self, machines: tuple[str, ...]) -> None:
        for m in machines:
            item = self.ticker.load(m)
            if item is not None:
                self.items[m] = item

    def open(self, machine: str, data: Any) -> None:
        self.items[machine] = self.ticker.open(machine, data)

    def live(self, name: str) -> bool:
        item = self.items[name]
        return name not in self.out and (
            item.open_intent is not None or item.state not in kind_of(name).table.final
        )

    # ------------------------------------------------------------ one pass

    def turn(self) -> bool:
        """One pass over what can do something; answers whether anything moved."""
        moved = False
        self.arrived += self.looks.arrive()
        if self.still is not None and self.still == self._stamp():
            return False
        for name in list(self.items):
            if not self.live(name):
                continue
            item = self.items[name]
            marks, reads = self._marks(item), self.looks.reads
            if self.quiet.get(name) == marks:
                continue
            new = self._tick(item)
            self.ticks += 1
            if new is item:
                # What was read just now is in the marks of this very answer: looks are read while ticking.
                same = item.open_intent is None and self.looks.reads == reads
                self.quiet[name] = marks if same else self._marks(item)
                continue
            moved = True
            self._keep(new)
            for opened in self.ticker.opened:
                self._keep(opened)
            self.ticker.opened.clear()
        feed([i for k, i in self.items.items() if "/attempt/" in k], self.ticker.world)
        self.still = None if moved or self.outside is None else self._stamp()
        return moved

    def _stamp(self) -> tuple[Any, ...]:
        """What a whole pass depends on: while it is the same, a pass that moved nothing need not be made again."""
        period = int(self.ticker.world.clock.monotonic() / PERIOD_S)
        outside = self.outside() if self.outside is not None else ()
        return (self.moment, period, self.arrived, self.troubled, self.poison, len(self.items), outside)

    def _keep(self, new: Item[Any]) -> None:
        """Others see of an item its state, its entry and its data: only when these change it counts for them."""
        old = self.items.get(new.id)
        self.items[new.id] = new
        kind = new.id.rsplit("/", 2)[1]
        moved = old is None or (old.state, old.entry) != (new.state, new.entry)
        if moved or (old is not None and old.data != new.data):
            for name in (new.id, kind, *([kind + " moves"] if moved else ())):
                self.changes[name] = self.changes.get(name, 0) + 1

    def _tick(self, item: Item[Any]) -> Item[Any]:
        """As `loop.Loop`: a bug in one machine is a record of it, too many end in quarantine."""
        try:
            if self.poison and item.id.endswith(self.poison):
                raise ValueError("a poisoned record")
            new = self.ticker.tick(item)
            if new is not item:
                self.strikes.pop(item.id, None)
            self.troubled = self.troubled and new is item
            return new
        except Fenced:
            raise
        except StoreUnavailable:
            self.troubled = True
            return item
        except Exception as e:
            if "poisoned" not in str(e):
                self.bugs.append("".join(traceback.format_exception(e, limit=-6)))
            return self._strike(item, e)

    def _strike(self, item: Item[Any], error: Exception) -> Item[Any]:
        n = self.strikes[item.id] = self.strikes.get(item.id, 0) + 1
        try:
            item = self.ticker.note_exception(item, f"{type(error).__name__}: {error}")
            if n >= self.ticker.policy().quarantine_after:
                self.strikes.pop(item.id, None)
                self.poison = ""
                return self.ticker.quarantine(item, f"{type(error).__name__}: {error}")
        except StoreUnavailable:
            self.troubled = True
        return item

    # ------------------------------------------------------------ what a tick depends on

    def _marks(self, item: Item[Any]) -> tuple[Any, ...]:
        """Everything that could make a tick answer otherwise, by numbers that change when it does. Time alone
        counts in periods, and where this process had something due: a loop promises no more."""
        clock = self.ticker.world.clock
        steady, now = clock.monotonic(), clock.now()
        intent, data = item.open_intent, item.data
        if intent is not None:
            key = (item.id, item.entry, intent.n, intent.tries)
            at = self.performer.flying.get(key, (0.0, None))[0]
            due = max(intent.not_before, self.ticker.later.get(key, 0.0)) <= now
            flies: Any = (at, at <= steady, due)
        else:
            flies = (getattr(data, "not_before", 0.0) <= now, getattr(data, "cooldown_until", 0.0) <= now)
        period = int(steady / PERIOD_S)
        return (
            item.seq,
            self.moment,
            period,
            flies,
            self.troubled,
            *[mark(now) for mark in self._depends(item)],
        )

    def _depends(self, item: Item[Any]) -> tuple[Mark, ...]:
        """The marks of what a tick of this item asks for: the same as long as item and policy are."""
        policy = self.ticker.policy()
        kept = self.depends.get(item.id)
        if kept is not None and kept[0] is item and kept[1] is policy:
            return kept[2]
        kind = kind_of(item.id)
        wants = () if item.state in kind.table.final else tuple(kind.alarms(item, policy))
        if item.open_intent is None:
            wants = (*kind.wants(item, policy), *wants)
        marks = tuple([self._mark(q) for q in wants])
        self.depends[item.id] = (item, policy, marks)
        return marks

    def _mark(self, query: str) -> Mark:
        head, _, rest = query.partition("/")
        if head not in LOCAL:
            return lambda now: self._read(query, now)
        if head == "item":
            return lambda now: self.changes.get(rest)
        shown = SHOWS.get(head)
        if shown is not None:
            return lambda now: [self.changes.get(k) for k in shown]
        own, store = self.looks.own, self.ticker.world.store
        match head:
            case "controls":
                return lambda now: len(store.controls())
            case "beat":
                return lambda now: self.word(rest)
            case "asked":
                return lambda now: len(own.answer(query))
            case _:
                return lambda now: own.answer(query)

    def _read(self, query: str, now: float) -> Any:
        kept = self.looks.kept.get(query)
        return None if kept is None else (kept.begun, kept.bad, kept.reading, kept.not_before <= now)

    # ------------------------------------------------------------ when something is next to be done

    def due(self) -> Iterable[float]:
        """True times at which this process may have something to do, the past left out by the caller."""
        now = self.ticker.world.clock.monotonic()
        offset = self.ticker.world.clock.now() - now
        yield from self.performer.due()
        yield from self.looks.due(now)
        yield from (at - offset for at in self.ticker.later.values())
        for name, item in self.items.items():
            if not self.live(name):
                continue
            if item.open_intent is not None:
                yield item.open_intent.not_before - offset
            yield getattr(item.data, "not_before", 0.0) - offset
            yield getattr(item.data, "cooldown_until", 0.0) - offset


def _now(port: str, do: Callable[[], None]) -> bool:
    do()
    return True


__all__ = ["READERS", "AtOnce", "LateLooks", "Slowly", "Turns", "at_once"]
