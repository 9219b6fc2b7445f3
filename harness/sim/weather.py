"""What goes wrong, and when: drawn from one seeded random source, alone and together, until it is quiet again.

The one rule: everything is frozen and released in any order, but only for a time; after `quiet_at` nothing of
it happens any more, and then the harness has no excuse left.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from harness.sim.clock import Time
from harness.sim.night import Night
from harness.sim.outside import WORKS, Fate, Killed

CLASSES: Mapping[str, str] = {
    "kill": "the director is killed around appends, effects and single calls",
    "worker": "workers are killed, by others, by memory, between two of their own steps",
    "container": "containers are lost or removed by somebody else",
    "engine": "the engine hangs, or restarts with and without live-restore",
    "forge": "the forge fails before and after the work, or does it later",
    "git": "the git remote fails before and after the work",
    "limits": "the forge refuses for a while, with and without saying for how long",
    "lists": "the forge's lists are a few seconds old",
    "messages": "messages between workers and director are lost or come twice",
    "slow": "effects and reads take their time",
    "clock": "the wall clock jumps, the forge's clock is off",
    "disk": "the director's disk is full",
    "base": "a person moves the default branch",
    "people": "people close, relabel, edit, push, merge, delete and command",
    "late": "workers of an older incarnation go on talking",
    "agents": "agents fail, hang, do nothing, loop or ask",
    "poison": "one machine raises on every tick",
}
HORIZON_S = 500.0
JUMP_S = 7200.0
LAG_S = 5.9
IN_FLIGHT_S = 4.5


@dataclass(frozen=True, slots=True)
class Spell:
    """From when to when something is wrong, and how likely it strikes."""

    name: str
    start: float
    end: float
    odds: float = 1.0
    kind: Any = None


@dataclass
class Weather:
    """One seed's troubles. `classes` are those that this seed has."""

    rng: random.Random
    classes: frozenset[str]
    spells: list[Spell] = field(default_factory=list)
    events: list[tuple[float, str, Callable[[], None]]] = field(default_factory=list)
    kill_bounds: list[int] = field(default_factory=list)
    kill_calls: list[int] = field(default_factory=list)
    kill_writes: list[int] = field(default_factory=list)
    worker_bounds: list[int] = field(default_factory=list)
    zombies: list[Any] = field(default_factory=list)
    past: tuple[Spell, ...] = ()
    jumped: bool = False
    quiet_at: float = 0.0
    night: Night = field(init=False)

    @property
    def now(self) -> float:
        return self.night.clock.at

    # ------------------------------------------------------------ drawing

    def draw(self, night: Night) -> None:
        """Decide everything that can be decided beforehand."""
        self.night = night
        self.began = night.clock.at
        self.quiet_at = self.began
        for name in CLASSES:
            if name in self.classes:
                getattr(self, f"_draw_{name}", lambda: None)()

    def seal(self) -> None:
        """All is drawn: from here on it only happens."""
        self.events.sort(key=lambda e: e[0])
        ends = [s.end for s in self.spells] + [e[0] for e in self.events]
        kills = bool(self.kill_bounds or self.kill_calls or self.kill_writes or self.worker_bounds)
        self.quiet_at = max([self.began, *ends, *([self.began + HORIZON_S] if kills else [])])
        self.past = tuple(self.spells)
        self.events.append((self.quiet_at + 0.001, "it is quiet", self._release))

    def at(self, what: str, do: Callable[[], None], when: float | None = None) -> None:
        """Something happens once, at a time that is drawn unless given."""
        self.events.append(
            (self.began + self.rng.uniform(0.0, HORIZON_S) if when is None else when, what, do)
        )

    def _spell(
        self, name: str, longest_s: float, kinds: Iterable[Any] = (None,), odds: Iterable[float] = (1.0,)
    ) -> Spell:
        start = self.began + self.rng.uniform(0.0, HORIZON_S)
        made = Spell(
            name,
            start,
            start + self.rng.uniform(1.0, longest_s),
            self.rng.choice(list(odds)),
            self.rng.choice(list(kinds)),
        )
        self.spells.append(made)
        return made

    def _draw_kill(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            numbers = self.rng.choice((self.kill_bounds, self.kill_calls, self.kill_writes))
            often = 8 if numbers is self.kill_writes else 60
            numbers.append(1 + int(self.rng.expovariate(1 / often)))

    def _draw_worker(self) -> None:
        for _ in range(self.rng.randint(1, 3)):
            if self.rng.random() < 0.5:
                self.worker_bounds.append(1 + int(self.rng.expovariate(1 / 20)))
            else:
                self.at("a worker is killed", self._kill_worker)

    def _draw_container(self) -> None:
        for _ in range(self.rng.randint(1, 2)):
            self.at("a container is lost", self._lose)

    def _draw_engine(self) -> None:
        for _ in range(self.rng.randint(1, 2)):
            how = self.rng.choice(("hang", "restart", "live"))
            if how == "hang":
                spell = self._spell("engine", 120.0)
                self.at("the engine hangs", lambda: self.night.runtime.hang(True), spell.start)
                self.at("the engine answers again", lambda: self.night.runtime.hang(False), spell.end)
            else:
                self.at(
                    f"the engine restarts ({how})",
                    partial(self.night.runtime.restart_engine, how == "live"),
                )

    def _draw_forge(self) -> None:
        for _ in range(self.rng.randint(1, 3)):
            self._spell("forge", 90.0, ("before", "after", "late", "any"), (0.2, 0.5, 1.0))

    def _draw_git(self) -> None:
        for _ in range(self.rng.randint(1, 2)):
            self._spell("git", 90.0, ("before", "after", "any"), (0.2, 0.5, 1.0))

    def _draw_limits(self) -> None:
        for _ in range(self.rng.randint(1, 2)):
            self._spell("limits", 60.0, (0.0, 5.0, 30.0, 90.0))

    def _draw_lists(self) -> None:
        self.spells.append(Spell("lists", self.began, self.began + HORIZON_S, 1.0))

    def _draw_messages(self) -> None:
        for _ in range(self.rng.randint(1, 3)):
            self._spell("bus", 120.0, (None,), (0.3, 0.6))

    def _draw_slow(self) -> None:
        self.spells.append(Spell("slow", self.began, self.began + HORIZON_S, self.rng.choice((0.1, 0.3))))

    def skew(self) -> None:
        """The forge's clock is off from the beginning."""
        if "clock" in self.classes:
            clock = Skewed(self.night.clock, self.rng.choice((0.0, 0.0, -240.0, 240.0)))
            self.night.hub.clock = self.night.forge.clock = clock

    def _draw_clock(self) -> None:
        for _ in range(self.rng.randint(1, 2)):
            self.at("the wall clock jumps and the director restarts", self._jump)

    def _draw_disk(self) -> None:
        self._spell("disk", 90.0)

    def _draw_late(self) -> None:
        for _ in range(2):
            self.at("a worker is cut off and goes on talking", self._haunt)

    def _draw_poison(self) -> None:
        number = self.rng.randint(1, max(1, len(self.night.hub.issues)))
        name = self.rng.choice((f"/ticket/{number}", f"/attempt/{number}.1"))

        def poison() -> None:
            self.night.poison = self.night.turns.poison = name

        self.at(f"{name} is poisoned", poison, self.began + self.rng.uniform(0.0, 60.0))

    # ------------------------------------------------------------ happening

    def turn(self) -> None:
        """What is due happens."""
        while self.events and self.events[0][0] <= self.now:
            _, what, do = self.events.pop(0)
            self.night.tell(what)
            do()
        for zombie in self.zombies:
            desk = self.night.gateway.desks.get(zombie.attempt)
            if desk is not None and desk.incarnation == zombie.bus.incarnation:
                continue  # its own word while it is the one that counts would not be a ghost's
            zombie.bus.beat("DONE", {"final": "DONE", "reason": "from beyond"})
            zombie.bus.request("pull-beyond", "open_pull", {"sha": "f" * 40})

    def due(self) -> list[float]:
        return [self.events[0][0]] if self.events else []

    def _release(self) -> None:
        """Whatever is still held is let go."""
        self.kill_bounds.clear()
        self.kill_calls.clear()
        self.kill_writes.clear()
        self.worker_bounds.clear()
        self.spells.clear()
        self.zombies.clear()
        self.night.runtime.hang(False)

    def _on(self, name: str) -> Spell | None:
        for s in self.spells:
            if (
                s.name == name
                and s.start <= self.now < s.end
                and (s.odds >= 1.0 or self.rng.random() < s.odds)
            ):
                return s
        return None

    def ask(self, port: str, name: str, write: bool) -> Fate:
        """The fate of one call of the director's."""
        written = port == "forge" and write and self._counts(self.kill_writes)
        if written or (port != "bus" and self._counts(self.kill_calls)):
            return Fate(
                self.rng.choice(("kill", "kill-after", "kill-late")), self.rng.uniform(0.2, IN_FLIGHT_S)
            )
        if port == "forge":
            limit = self._on("limits")
            if limit is not None:
                return Fate("limit", float(limit.kind))
        spell = self._on(port) if port != "runtime" else None
        if spell is None:
            return WORKS
        kind = (
            spell.kind if spell.kind in ("before", "after", "late") else self.rng.choice(("before", "after"))
        )
        return Fate(kind, self.rng.uniform(0.2, IN_FLIGHT_S))

    def _counts(self, numbers: list[int]) -> bool:
        if not numbers:
            return False
        numbers[0] -= 1
        if numbers[0] > 0:
            return False
        numbers.pop(0)
        return True

    def boundary(self, what: str) -> None:
        if self._counts(self.kill_bounds):
            raise Killed(what)

    def worker_boundary(self, what: str) -> None:
        if self._counts(self.worker_bounds):
            self.night.tell(f"a worker dies {what}")
            raise Killed(what)

    def down_s(self) -> float:
        return self.rng.choice((0.0, 0.0, 1.0, 3.0, 60.0, 900.0))

    def lag(self, name: str, args: Mapping[str, Any]) -> float:
        return self.rng.uniform(0.0, LAG_S) if self._on("lists") else 0.0

    def delay(self, port: str) -> float:
        return self.rng.uniform(0.05, 8.0) if self._on("slow") else 0.0

    def late_work(self) -> bool:
        return self.rng.random() < 0.5

    def full(self) -> bool:
        return self._on("disk") is not None

    # ------------------------------------------------------------ single strokes

    def _kill_worker(self) -> None:
        living = self.night.crew.pick(self.rng)
        if living is None:
            return
        runtime = self.night.runtime
        how = self.rng.choice(("kill", "term", "oom", "crash"))
        self.night.tell(f"{living.name}: {how}")
        if how == "oom":
            runtime.finish(living.name, 137, oom=True)
        else:
            runtime.kill(living.name, {"kill": 137, "term": 143, "crash": 139}[how])

    def _lose(self) -> None:
        names = sorted(self.night.runtime.entries())
        if not names:
            return
        name = self.rng.choice(names)
        how = self.rng.choice(("lose", "vanish", "kill"))
        self.night.tell(f"{name}: {how}")
        if how == "kill":
            self.night.runtime.kill(name, self.rng.choice((137, 143)))
        else:
            getattr(self.night.runtime, how)(name)

    def _jump(self) -> None:
        by = self.rng.choice((-1.0, 1.0)) * self.rng.uniform(60.0, JUMP_S)
        self.night.clock.wall_s += by
        self.jumped = True
        self.night.tell(f"by {by:.0f} s")
        if by > 0:
            # A director that starts cannot know that its clock was set forward: a penalty seems to be over.
            self.night.forge.closed_until = 0.0
        if not self.night.down_until:
            self.night.crash(self.down_s())

    def _haunt(self) -> None:
        living = self.night.crew.pick(self.rng)
        if living is None:
            return
        self.night.tell(f"{living.name} is a ghost")
        self.zombies.append(living)
        getattr(self.night.runtime, self.rng.choice(("kill", "lose", "vanish")))(living.name)


@dataclass(frozen=True, slots=True)
class Skewed:
    """A clock that is off by so much."""

    time: Time
    by_s: float

    def now(self) -> float:
        return self.time.at + self.by_s

    def monotonic(self) -> float:
        return self.time.at


def mix(rng: random.Random, allowed: tuple[str, ...]) -> frozenset[str]:
    """The classes of one seed: one alone, a few, or many together."""
    if len(allowed) <= 1:
        return frozenset(allowed)
    how = rng.random()
    if how < 0.25:
        return frozenset([rng.choice(allowed)])
    share = 0.25 if how < 0.75 else 0.6
    return frozenset(c for c in allowed if rng.random() < share)
