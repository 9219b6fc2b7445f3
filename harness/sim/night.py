"""A whole night in memory: director and workers tick in one process, and time jumps to when something is due.

The one rule: everything here is deterministic; the same play and weather give the same journals, to the byte.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.adapters.governor import Governor
from harness.adapters.memory.hub import Hub
from harness.adapters.memory.repo import MemoryRemote
from harness.adapters.memory.store import Disk
from harness.core.item import Item
from harness.core.result import Ok, Result
from harness.domain import Imported, Limited, News
from harness.effects import Effect
from harness.machines.director.states import Director
from harness.marks import Marks
from harness.perform import perform
from harness.perform.outcome import Outcome, Sent
from harness.policy import Policy
from harness.ports import Screened, Tools, World
from harness.sim.clock import ProcessClock, Time
from harness.sim.crew import Crew, Green, NightAgent, Play
from harness.sim.outside import LIMITS, Killed, SimForge, SimGateway, SimRepo, SimRuntime, SimStore, Switch
from harness.sim.turns import Delay, Turns, at_once
from harness.tick import BLOB_ABOVE_BYTES, StoreUnavailable

REPO = "acme/widget"
OURS = "harness-bot"
PASSES = 2000
REST_S = 20.0
RESTART_S = 10.0
FILES = frozenset({"WriteBrief", "StartGate", "StartPrepare", "StartWorker"})


def no_bug(tree: Mapping[str, str]) -> bool:
    """What the project's own validation thinks of a tree."""
    return not any("BUG" in text for text in tree.values())


class NightArchive:
    """Where bundles go. `sealed` counts how often each was asked for."""

    def __init__(self) -> None:
        self.sealed: dict[str, Mapping[str, Any]] = {}

    def seal(
        self, attempt: str, machine: str, meta: Mapping[str, Any], logs: Mapping[str, bytes]
    ) -> Result[str]:
        self.sealed.setdefault(attempt, dict(meta))
        return Ok(f"audit-{attempt}")


@dataclass
class Night:
    """The world and everything in it. `play` says what the agent does per issue and round; `green(tree)` what
    the validation thinks of a tree; what is not `thorough` has journals without
    hashes; `rest_s` is how far time jumps when nothing is due, and `longest_rest_s` to how far that grows while
    nothing happens and nobody works."""

    policy: Policy
    play: Play
    green: Green = no_bug
    clock: Time = field(default_factory=Time)
    agent: Any = field(default_factory=NightAgent)
    work_s: float = 30.0
    rest_s: float = REST_S
    longest_rest_s: float = 0.0
    switch: Switch = field(default_factory=Switch)
    delay: Delay = at_once
    late_work: Callable[[], bool] = lambda: False
    lag: Callable[[str, Mapping[str, Any]], float] = lambda name, args: 0.0
    full: Callable[[], bool] = lambda: False
    boundary: Callable[[str], None] = lambda what: None
    due: Callable[[], Iterable[float]] = tuple
    down_s: Callable[[], float] = lambda: 0.0
    poison: str = ""
    thorough: bool = True

    def __post_init__(self) -> None:
        shm = "/dev/shm"
        self.tmp = tempfile.TemporaryDirectory(prefix="night-", dir=shm if os.access(shm, os.W_OK) else None)
        self.data = Path(self.tmp.name)
        self.remote = MemoryRemote()
        self.remote.write("refs/heads/main", {"README.md": "widget"}, "first", self.clock.now())
        self.hub = Hub(self.remote, self.clock, REPO, people={OURS: "admin", "ada": "write"})
        self.repo = SimRepo(self.remote)
        self.repo.switch = self.switch
        self.runtime = SimRuntime(self.clock)
        self.runtime.attach(self.clock, self.switch)
        self.gateway = SimGateway(self.clock, self._heard)
        self.gateway.switch, self.gateway.folder = self.switch, self.data / "sockets"
        self.forge = SimForge(
            self.remote, self.clock, hub=self.hub, lag=lambda name, args: self.lag(name, args)
        )
        self.forge.attach(self.clock, self.switch)
        self.archive = NightArchive()
        self.disk = Disk()
        self.marks = Marks(b"s" * 32, "night", REPO)
        self.epoch = 0
        self.signal = ""
        self.down_until = 0.0
        self.downs: list[tuple[float, float]] = []
        self.ticks = 0
        self.words = 0
        self.bugs: list[str] = []
        self.story: list[tuple[float, str]] = []
        self.steps = 0
        self.pause_s = self.rest_s
        self.before_step: Callable[[], None] = lambda: None
        self.after_step: Callable[[], None] = lambda: None
        self.crew = Crew(
            lambda: self.policy, self.play, self.green, self.clock, self.repo, self.runtime, self.gateway, self.marks,
            self.data, REPO, self.work_s, self.delay, self.switch, agent=self.agent,
            thorough=self.thorough,
        )  # fmt: skip
        self.runtime.script = self.crew.script
        self.start()

    def close(self) -> None:
        self.tmp.cleanup()

    def _heard(self) -> None:
        """A worker said something new."""
        self.words += 1

    def tell(self, what: str) -> None:
        """A line of the transcript."""
        self.story.append((self.clock.at, what))

    # ------------------------------------------------------------ the director

    def start(self) -> None:
        """A director begins a new epoch on what the last one left."""
        self.epoch += 1
        self.disk.epoch = self.epoch
        clock = ProcessClock.started(self.clock)
        self.process_clock = clock
        self.store = SimStore(clock, code="0", epoch=self.epoch, disk=self.disk)
        self.store.time, self.store.full, self.store.chained = self.clock, self.full, self.thorough
        self.gateway.clock = clock
        self.runtime.clock = clock
        self.forge.governor = Governor(self.store.get, self.store.put, clock, LIMITS, 4)
        world = World(
            clock, self.store, lambda: self.policy, self.data, self.epoch, clock.now(), forge=self.forge,
            repo=self.repo, runtime=self.runtime, gateway=self.gateway, archive=self.archive, screen=screen_nothing,
            marks=self.marks, tools=Tools("python", "/harness", ("harness",)), agents={"scripted": self.agent},
        )  # fmt: skip
        self.turns = Turns.of(
            world, lambda: self.signal, self.rhythm, lambda what: self.boundary(what), delay=self.delay,
            late_work=self.late_work, do=self._perform, limits=self._limits,
        )  # fmt: skip
        self.turns.ticker.blob_above_bytes = BLOB_ABOVE_BYTES if self.thorough else None
        self.turns.poison, self.turns.word = self.poison, self.gateway.word
        self.turns.outside = lambda: (self.words, len(self.disk.controls), self.signal)
        names = tuple(self.store.machines())
        self.turns.load(names)
        mine = [n for n in names if "/director/" in n]
        before = max(mine, key=lambda n: int(n.rsplit("/", 1)[1]), default="")
        head = self.turns.items[before].head if before else ""
        self.turns.out.update(mine)
        for item in self.turns.items.values():
            if "/attempt/" in item.id and item.state in ("STARTING", "RUNNING"):
                token = self.marks.token(item.data.code, item.data.incarnation)
                self.gateway.open(item.data.code, token, item.data.incarnation)
        published = [i for i in self.turns.items.values() if "/release/" in i.id and i.state == "PUBLISHED"]
        newest = max(published, key=lambda i: i.entered_at, default=None)
        self.gateway.publish(
            News(
                newest.data.tag if newest else "", newest.data.merge_sha if newest else "", self.policy.image
            )
        )
        self.turns.open(f"{REPO}/director/{self.epoch}", Director(REPO, before, head))

    def crash(self, down_s: float = 0.0) -> None:
        """kill -9 of the director; what its threads had in hand is done or not done. It comes back after `down_s`."""
        self.ticks += self.turns.ticks
        self.bugs += [*self.turns.bugs, *self.turns.performer.bugs]
        self.poison = self.turns.poison
        self.turns.items.clear()
        self.gateway.restart()
        self.down_until = self.clock.at + max(down_s, 1e-5)
        self.downs.append((self.clock.at, self.down_until))

    def _perform(self, effect: Effect, sent: Sent, world: World) -> Outcome:
        """The real performer on a disk that may be full, each effect a moment after the last."""
        self.clock.touch()
        if self.full() and type(effect).__name__ in FILES:
            return perform(effect, sent, _on_full_disk(world))
        return perform(effect, sent, world)

    def _limits(self) -> tuple[Limited, ...]:
        governor, now = self.forge.governor, self.process_clock.now()
        if all(b.closed_until <= now for b in governor._budgets.values()):
            return ()
        resources = governor.snapshot()["resources"]
        return tuple(
            Limited(k, r["closed_until"], "asked to slow down")
            for k, r in resources.items()
            if r["closed_until"]
        )

    def rhythm(self, head: str) -> float:
        return min(self.policy.interval_s, 15.0) if head == "refs" else self.policy.interval_s

    # ------------------------------------------------------------ time

    def step(self) -> None:
        """Everything that can be done now is done; then time jumps to what is next."""
        self.steps += 1
        self.before_step()
        moved = False
        for _ in range(PASSES):
            if not self._pass():
                break
            moved = True
        else:
            raise AssertionError("the night does not come to rest: something moves for ever")
        self.after_step()
        busy = moved or self.crew.at_work()
        self.pause_s = self.rest_s if busy else min(1.5 * self.pause_s, max(self.rest_s, self.longest_rest_s))
        self.clock.at = self._next()
        self._late()

    def _pass(self) -> bool:
        moved = False
        if self.down_until:
            if self.clock.at < self.down_until:
                return self.crew.turn()
            self.down_until = 0.0
            moved = self._guard(self.start)
            if self.down_until:
                return moved
        moved = self._guard(self.turns.turn) or moved
        return self.crew.turn() or moved

    def _guard(self, do: Callable[[], Any]) -> bool:
        try:
            return bool(do())
        except Killed as e:
            self.tell(f"director {self.epoch} is killed {e}")
            self.crash(self.down_s())
            return True
        except StoreUnavailable as e:
            # Only a start raises it: the process ends, and its supervisor starts it again.
            self.tell(f"director {self.epoch} cannot start: {e}")
            self.crash(RESTART_S)
            return True

    def _late(self) -> None:
        """Requests that were on their way arrive."""
        ready = [x for x in self.switch.later if x[0] <= self.clock.at]
        if ready:
            self.switch.later[:] = [x for x in self.switch.later if x[0] > self.clock.at]
            for _, do in ready:
                do()

    def _next(self) -> float:
        """When something is next: of the director's, of a worker's, or of the world around them."""
        now = self.clock.at
        limit = now + self.pause_s
        offset = self.process_clock.offset_s
        mine = [self.down_until] if self.down_until else [*self.turns.due(), limit]
        mine += [at - offset for at in self.runtime.ends()]
        others = [*self.crew.due(), *(at for at, _ in self.switch.later), *self.due()]
        first = min((at for at in mine if at > now + 1e-9), default=limit)
        then = min((at for at in others if at > now + 1e-9), default=limit)
        if first <= then:
            self.turns.moment += 1
        else:
            self.pause_s = self.rest_s  # something happens: it is looked at soon after
        return min(first, then, limit) + 1e-4

    def run(self, until: Callable[[Night], bool], limit_s: float = 7200.0) -> None:
        end = self.clock.at + limit_s
        while not until(self):
            if self.clock.at > end:
                raise AssertionError(
                    f"after {limit_s:.0f} s: {self.states()}; waiting: {self.turns.ticker.waiting}"
                )
            self.step()

    def states(self) -> dict[str, str]:
        return {k.removeprefix(REPO + "/"): i.state for k, i in self.turns.items.items()}

    def item(self, name: str) -> Item[Any]:
        return self.turns.items[f"{REPO}/{name}"]

    def all_bugs(self) -> list[str]:
        """Exceptions that machines or performers raised, of every process so far."""
        inner = [b for x in self.crew.living.values() for b in (*x.turns.bugs, *x.turns.performer.bugs)]
        return [*self.bugs, *self.turns.bugs, *self.turns.performer.bugs, *self.crew.bugs, *inner]


class FullDisk:
    """A folder in which nothing can be made."""

    def __truediv__(self, name: str) -> Path:
        raise OSError(28, "No space left on device")


def _on_full_disk(world: World) -> World:
    return replace(world, data=FullDisk())  # type: ignore[arg-type]


def screen_nothing(imported: Imported) -> Screened:
    return Screened()


__all__ = ["OURS", "REPO", "Night", "NightArchive", "Result", "no_bug", "screen_nothing"]
