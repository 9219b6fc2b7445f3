"""When a process of a run dies, and where it has been.

The one rule: where a process died is written down by who kills it, and by nobody else.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from crash_paths import Route
from demo_world import containers, docker

LIVES_LIMIT = 400
KILLED = "killed"


@dataclass(frozen=True)
class Kills:
    """When a life ends. `at[i]` is the boundary of life i that it dies at; 0, or none, is undisturbed. With `steps`
    every life dies: at the boundary of that number, counted from where the world first moved on in it. With
    `cover` every life dies at the first place that no life of this path has died at yet. With `kinds` one dies at
    the first boundary of each of these kinds ("after Tag", "before append"). No more than `most` die."""

    at: tuple[int, ...] = ()
    steps: int = 0
    cover: bool = False
    kinds: tuple[str, ...] = ()
    most: int = LIVES_LIMIT

    def of(self, life: int) -> Kills:
        """Lives are counted from 0."""
        if life >= self.most:
            return Kills()
        return self if self.steps or self.cover or self.kinds else Kills(self.at[life : life + 1])


CALM = Kills()


def place_of(boundary: str) -> str:
    """A boundary as it is written down, without the numbers of issues, attempts, versions and tries."""
    return re.sub(r"~?\d+(\.\d+)*", "N", boundary)


def covered_file(root: Path, route: Route) -> Path:
    return root / f"covered-{route.name}"


@dataclass
class Covered:
    """The places of a path that were died at, in a file that all its runs of a sweep share."""

    path: Path
    known: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.known = set(self.path.read_text().splitlines()) if self.path.exists() else set()

    def take(self, boundary: str) -> bool:
        """Whether it is new. It is then no more: of two who find it at once both may take it."""
        place = place_of(boundary)
        if place in self.known:
            return False
        self.__post_init__()
        if place in self.known:
            return False
        with self.path.open("a") as f:
            f.write(f"{place}\n")
        return True


def crossing(
    log: Path, kills: Kills, look: Callable[[str], tuple[str, str | None]], covered: Path
) -> Callable[[str], None]:
    """Writes down each boundary with its place, and dies (SIGKILL) where it shall. `look(machine)` answers where
    that machine is, and where all are (None: not known yet)."""
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    places = Covered(covered)
    count = moved = 0
    began: str | None = None

    def cross(what: str) -> None:
        nonlocal count, moved, began
        kind, _, machine = what.partition(" of ")
        where, world = look(machine)
        began = world if began is None else began
        count += 1
        moved += moved > 0 or (world is not None and world != began)
        boundary = f"{kind} of {where}"
        os.write(fd, f"{boundary}\n".encode())
        new = kills.cover and places.take(boundary)
        new = new or any(f"{kind} ".startswith(f"{k} ") and places.take(k) for k in kills.kinds)
        if new or count == (kills.at or (0,))[0] or (moved and moved == kills.steps):
            os.write(fd, f"{KILLED}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    return cross


def stands(attempt: str, journal: Path) -> str:
    """A worker by the last transition of its journal, which another process may be writing to."""
    lines = journal.read_bytes().split(b"\n")[:-1] if journal.exists() else []
    records = (json.loads(line) for line in reversed(lines))
    return f"worker {attempt} {next((r['to'] for r in records if r['kind'] == 'transition'), 'that begins')}"


def numbers(path: Path) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", path.name)]


@dataclass
class Strikes:
    """Kills workers that are containers from outside, by the engine, each at the first state of its journal that none
    of this path has died in yet; notes the states that they were seen in. `place` is "in worker 1.1 CODING"."""

    folder: Path
    kills: Kills
    places: Covered
    seen: dict[str, str] = field(default_factory=dict)
    deaths: Counter[str] = field(default_factory=Counter)

    def look(self) -> None:
        for journal in sorted(self.folder.glob("data/attempts/*/audit/journal.jsonl")):
            attempt = journal.parents[1].name
            try:
                place = f"in {stands(attempt, journal)}"
            except FileNotFoundError:  # removed just now
                continue
            if self.seen.get(attempt) != place:
                self.seen[attempt] = place
                self._meet(attempt, place)

    def _meet(self, attempt: str, place: str) -> None:
        log = self.folder / f"worker-{attempt}-{self.deaths[attempt] + 1}.crossed"
        with log.open("a") as f:
            f.write(f"{place}\n")
        spared = not self.kills.cover or self.deaths[attempt] >= self.kills.most
        if spared or place_of(place) in self.places.known or not self._kill(attempt):
            return
        self.places.take(place)
        self.deaths[attempt] += 1
        with log.open("a") as f:
            f.write(f"{KILLED}\n")

    def _kill(self, attempt: str) -> bool:
        """Whether there was one to kill."""
        name = f"-{attempt.replace('.', '-')}-i"
        found = containers(self.folder, "--filter", f"name={name}", "--filter", "status=running")
        return bool(found) and docker("kill", *found, check=False) != ""
