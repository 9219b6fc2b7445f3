"""The sweep: kill at one boundary after another, and compare each world with that of a run without a crash.

The one rule: a crashed run is compared only with a calm world that two runs agree on, and every outcome is told as
it comes, so that a sweep that is cut short has lost nothing.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from crash_case import LIMIT_S, Case, fork, learn, make_seed, run_case
from crash_kills import CALM, LIVES_LIMIT, Kills, covered_file, place_of
from crash_paths import Route
from crash_tree import adopt_orphans, end_all

Mode = tuple[str, Kills]
QUIET: Mode = ("calm", CALM)
STAIRS = 60
STEPS = 4


def single(n: int) -> Mode:
    """One kill, at boundary n of the first director."""
    return f"single {n}", Kills((n,))


def stairs(first: int = 1, last: int = STAIRS) -> Mode:
    """The n-th director dies at its own n-th boundary, until one comes to the end before that."""
    return f"stairs {first}-{last}", Kills(tuple(range(first, last + 1)))


def steps(n: int) -> Mode:
    """Every director dies at the n-th boundary from where the world has moved on in its life."""
    return f"steps {n}", Kills(steps=n)


def cover(n: int, most: int = LIVES_LIMIT) -> Mode:
    """Every one, up to `most`, dies at the first place that none has died at yet on this path; `n` tells runs apart."""
    return f"cover {n}", Kills(cover=True, most=most)


def at(*kinds: str) -> Mode:
    """One dies at the first boundary of each of these kinds, as they come."""
    return f"at {', '.join(kinds)}", Kills(kinds=kinds)


@dataclass
class Swept:
    """A path's calm world and what its crashed runs came to, each as a plain document."""

    route: Route
    calm: dict[str, Any] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)
    unfit: bool = False


def difference(calm: dict[str, int], crashed: dict[str, int]) -> tuple[list[str], list[str]]:
    """(duplicates, losses): what there is too much of, and too little of, once for each time."""
    one, other = Counter(calm), Counter(crashed)
    return sorted((other - one).elements()), sorted((one - other).elements())


@dataclass
class Sweep:
    """Runs cases, `at_once` at a time, each in a process of its own forked from this warm one."""

    root: Path
    at_once: int
    say: Callable[[str], None]
    keep: Callable[[dict[str, Any]], None] = lambda document: None
    running: dict[int, tuple[Case, Swept]] = field(default_factory=dict)
    limit_s: float = LIMIT_S
    calm_runs: int = 2
    image: str = ""
    number: int = 0
    earlier: Sequence[Mapping[str, Any]] = ()

    def run(self, wanted: Mapping[Route, Sequence[Mode]], who: str = "director") -> list[Swept]:
        """All modes of all paths, the paths in turn, so that one that is cut short has seen of each. A path's runs
        of mode cover end with the first that came upon no place to die at. What `earlier` outcomes died at stays
        covered. However it ends, no process is left of it, and no world but those that differ."""
        adopt_orphans()
        try:
            return self._run(wanted, who)
        finally:
            end_all()
            for case, _ in self.running.values():
                case.sweep()
                shutil.rmtree(case.folder, ignore_errors=True)
            self.running.clear()

    def _run(self, wanted: Mapping[Route, Sequence[Mode]], who: str) -> list[Swept]:
        swept = [Swept(r) for r in wanted]
        for s in swept:
            make_seed(self.root / "seeds" / s.route.name, s.route)
            earlier = [d for d in self.earlier if d["route"] == s.route.name]
            died = {place_of(k) for d in earlier for k in d["kills"]}
            covered_file(self.root, s.route).write_text("".join(f"{p}\n" for p in sorted(died)))
            calm = [d for d in earlier if d["mode"] == "calm"]
            s.calm = dict(calm[-1]) if len(calm) >= self.calm_runs else {}
        self._warm(swept[0], who)
        self._calm(swept, who)
        fit = [s for s in swept if not s.unfit]
        turns = zip_longest(*([(s, m) for m in wanted[s.route]] for s in fit))
        todo = [x for turn in turns for x in turn if x is not None]
        while todo or self.running:
            while todo and len(self.running) < self.at_once:
                s, mode = todo.pop(0)
                self._start(self._case(s.route, who, mode), s)
            case, s, document = self._end()
            s.runs.append(document)
            if case.kills.cover and not document["kills"] and not document["trouble"]:
                todo = [(other, m) for other, m in todo if other is not s or not m[1].cover]
            if not document["duplicates"] and not document["losses"] and not document["trouble"]:
                shutil.rmtree(case.folder)
            self.keep(document)
        return swept

    def _case(self, route: Route, who: str, mode: Mode) -> Case:
        self.number += 1
        seeded, folder = self.root / "seeds" / route.name, self.root / f"{self.number}"
        return Case(folder, seeded, route, who, mode[1], mode[0], self.limit_s, self.image)

    def _warm(self, swept: Swept, who: str) -> None:
        """The first run without a crash: what its processes have imported in the end, this one imports now."""
        case = self._case(swept.route, who, QUIET)
        case.modules = self.root / "modules"
        self._start(case, swept)
        self._judge(*self._end())
        if not case.modules.is_file():
            raise AssertionError(f"the first run failed: {self._answer(case).read_text()}")
        learn(case.modules)
        gc.collect()
        gc.freeze()

    def _calm(self, swept: list[Swept], who: str) -> None:
        """The worlds without a crash: a path that has none, or two that differ, is not swept."""
        new = [s for s in swept if not s.calm or s is swept[0]]
        cases = [(self._case(s.route, who, QUIET), s) for s in new for _ in range(self.calm_runs)][1:]
        while cases or self.running:
            while cases and len(self.running) < self.at_once:
                self._start(*cases.pop(0))
            self._judge(*self._end())

    def _judge(self, case: Case, s: Swept, document: dict[str, Any]) -> None:
        """A calm world: the path's, or its own fault and no other path's."""
        if not document["trouble"]:
            both = difference(s.calm.get("facts", document["facts"]), document["facts"])
            document["duplicates"], document["losses"] = both
        if document["trouble"] or any(both):
            s.unfit = True
            self.keep(document)
            return
        s.calm = document
        shutil.rmtree(case.folder)
        self.keep(document)
        self.say(f"{s.route.name}: calm, {sum(len(x) for x in document['lives'])} boundaries")

    # ------------------------------------------------------------ processes

    def _answer(self, case: Case) -> Path:
        return case.folder.with_suffix(".json")

    def _start(self, case: Case, swept: Swept) -> None:
        self.running[fork(lambda: run_case(case, self._answer(case)))] = (case, swept)

    def _end(self) -> tuple[Case, Swept, dict[str, Any]]:
        """Wait for any one; its document, with what differs from the calm world."""
        pid, status, used = os.wait3(0)
        while pid not in self.running:  # an orphan of one of them
            pid, status, used = os.wait3(0)
        case, swept = self.running.pop(pid)
        answer = self._answer(case)
        if status or not answer.is_file():
            raise AssertionError(f"{case.route.name} {case.mode}: its process ended with {status}")
        document: dict[str, Any] = json.loads(answer.read_text())
        document["cpu_s"] = round(used.ru_utime + used.ru_stime, 2)
        document["folder"] = str(case.folder)
        document["duplicates"], document["losses"] = [], []
        if swept.calm and case.kills != CALM and not document["trouble"]:
            both = difference(swept.calm["facts"], document["facts"])
            document["duplicates"], document["losses"] = both
        return case, swept, document


def new_root() -> Path:
    """A short path: there are sockets below it."""
    return Path(tempfile.mkdtemp(prefix="crash-"))
