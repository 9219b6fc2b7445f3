"""The sweep: kill at one boundary after another, and compare each world with that of a run without a crash.

The one rule: a path is swept until a run comes to its end unkilled, and every outcome is written down as it comes,
so that a sweep that is cut short has lost nothing.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crash_case import Case, fork, learn, make_seed, run_case
from crash_paths import Route

CALM_RUNS = 2


@dataclass(frozen=True)
class Plan:
    """Which kills one run gets. `single`: one kill, at boundary n. `chain`: the first life dies at n, each later
    one at its own boundary `gap`."""

    who: str = "director"
    gap: int = 0
    first: int = 1
    step: int = 1
    last: int = 100_000

    def at(self, n: int) -> tuple[int, ...]:
        return (n, self.gap) if self.gap else (n,)


@dataclass
class Swept:
    """A path's calm world and what its crashed runs came to, each as a plain document."""

    route: Route
    calm: dict[str, Any] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)
    over: bool = False


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
    number: int = 0

    def run(self, routes: list[Route], plan: Plan) -> list[Swept]:
        swept = [Swept(r) for r in routes]
        for s in swept:
            make_seed(self.root / "seeds" / s.route.name, s.route)
        self._warm(swept[0].route)
        self._calm(swept, plan.who)
        todo = self._cases([s for s in swept if not s.over], plan)
        while True:
            while len(self.running) < self.at_once and (case := next(todo, None)) is not None:
                self._start(*case)
            if not self.running:
                return swept
            case_, s, document = self._end()
            s.runs.append(document)
            s.over = s.over or not document["kills"]
            if not document["duplicates"] and not document["losses"] and not document["trouble"]:
                shutil.rmtree(case_.folder)
            self.keep(document)

    def _cases(self, swept: list[Swept], plan: Plan) -> Iterator[tuple[Case, Swept]]:
        """All paths in turn, so that a sweep that is cut short has seen something of each."""
        n = plan.first
        while n <= plan.last and any(not s.over for s in swept):
            for s in swept:
                if not s.over:
                    yield self._case(s.route, plan.who, plan.at(n), bool(plan.gap)), s
            n += plan.step

    def _case(self, route: Route, who: str, at: tuple[int, ...], again: bool = False) -> Case:
        self.number += 1
        seeded = self.root / "seeds" / route.name
        return Case(self.root / f"{self.number}", seeded, route, who, at, again)

    def _warm(self, route: Route) -> None:
        """One run for nothing: what its processes have imported in the end, this one imports now."""
        case = self._case(route, "director", ())
        case.modules = self.root / "modules"
        os.waitpid(fork(lambda: run_case(case, self._answer(case))), 0)
        if not case.modules.is_file():
            raise AssertionError(f"the first run failed: {self._answer(case).read_text()}")
        learn(case.modules)
        shutil.rmtree(case.folder)
        gc.collect()
        gc.freeze()

    def _calm(self, swept: list[Swept], who: str) -> None:
        """The worlds without a crash, twice: one that differs from itself proves nothing."""
        cases = [(self._case(s.route, who, ()), s) for s in swept for _ in range(CALM_RUNS)]
        while cases or self.running:
            while cases and len(self.running) < self.at_once:
                self._start(*cases.pop(0))
            case, s, document = self._end()
            if document["trouble"]:
                raise AssertionError(f"{s.route.name} without a crash: {document['trouble']}")
            more, less = difference(s.calm.get("facts", document["facts"]), document["facts"])
            if more or less:
                raise AssertionError(f"{s.route.name}: two calm runs differ: {more} {less}")
            s.calm = document
            shutil.rmtree(case.folder)
            self.say(f"{s.route.name}: calm, {sum(len(x) for x in document['lives'])} boundaries")

    # ------------------------------------------------------------ processes

    def _answer(self, case: Case) -> Path:
        return case.folder.with_suffix(".json")

    def _start(self, case: Case, swept: Swept) -> None:
        self.running[fork(lambda: run_case(case, self._answer(case)))] = (case, swept)

    def _end(self) -> tuple[Case, Swept, dict[str, Any]]:
        """Wait for any one; its document, with what differs from the calm world."""
        pid, status, used = os.wait3(0)
        case, swept = self.running.pop(pid)
        answer = self._answer(case)
        if status or not answer.is_file():
            raise AssertionError(f"{case.route.name} {case.at}: its process ended with {status}")
        document: dict[str, Any] = json.loads(answer.read_text())
        document["cpu_s"] = round(used.ru_utime + used.ru_stime, 2)
        document["folder"] = str(case.folder)
        document["duplicates"], document["losses"] = [], []
        if swept.calm and case.at and not document["trouble"]:
            both = difference(swept.calm["facts"], document["facts"])
            document["duplicates"], document["losses"] = both
        return case, swept, document


def new_root() -> Path:
    """A short path: there are sockets below it."""
    return Path(tempfile.mkdtemp(prefix="crash-", dir="/tmp"))
