"""Many attempts that start at the same moment on one mirror, round after round, while the forge moves on.

The one rule: a start is what an attempt's is, a fetch and then a clone, by threads that share one `GitRepo`; what
counts is what is in the clones.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import git_world as world
from git_kills import MAIN, WallClock

from harness.adapters.git import GitRepo
from harness.core.result import Ok

FILES = 200
MOVED = 20  # branches that move at the forge between two rounds, so that each has refs to write


@dataclass
class Tally:
    """`starts` that were tried; `seconds` of each, sorted; `wrong` what must not be, in words."""

    starts: int = 0
    seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Starts:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.origin = world.Origin(root / "forge")
        self.tip = self.origin.push(MAIN, {f"d{n % 7}/{n}": f"{n}\n" * 50 for n in range(FILES)})
        self.repo = GitRepo(
            root / "data", remote=self.origin.url, token=None, author=("Harness", "harness@acme.example"),
            clock=WallClock(),
        )  # fmt: skip
        assert self.repo.prepare() == Ok(None)
        self.tally = Tally()

    def play(self, parallel: int, rounds: int) -> Tally:
        with ThreadPoolExecutor(parallel) as pool:
            for number in range(rounds):
                self._move(number)
                gate = threading.Barrier(parallel)
                folders = [self.root / "data" / "clones" / f"{number}-{n}.1" for n in range(parallel)]
                list(pool.map(lambda folder, gate=gate: self._start(folder, gate), folders))
                self._look(number, folders)
        self.tally.seconds.sort()
        return self.tally

    def _move(self, number: int) -> None:
        """What people do between two rounds: main gets a commit, branches come, move and go."""
        self.tip = self.origin.push(MAIN, {"round": f"{number}\n"})
        lines = [f"update refs/heads/topic-{(number + n) % (2 * MOVED)} {self.tip}\n" for n in range(MOVED)]
        gone = f"refs/heads/topic-{(number - 1) % (2 * MOVED)}"
        if self.origin.ref(gone):
            lines.append(f"delete {gone}\n")
        world.git("update-ref", "--stdin", cwd=self.origin.path, feed="".join(lines).encode())

    def _start(self, folder: Path, gate: threading.Barrier) -> None:
        gate.wait(60)
        began = time.monotonic()
        branch = f"agent/{folder.name.removesuffix('.1')}"
        made = self.repo.fetch().bind(lambda _: self.repo.clone(folder, self.tip, branch, "main"))
        self.tally.seconds.append(time.monotonic() - began)
        self.tally.starts += 1
        if not isinstance(made, Ok):
            self.tally.wrong.append(f"{folder.name}: {made}")

    def _look(self, number: int, folders: list[Path]) -> None:
        """Each clone is on its own branch at the tip, and clean; the mirror has the forge's refs and no lock."""
        wrong = self.tally.wrong
        for folder in folders:
            if folder.is_dir():
                seen = world.text("status", "--porcelain=v2", "--branch", cwd=folder).splitlines()
                branch = f"agent/{folder.name.removesuffix('.1')}"
                if seen[:2] != [f"# branch.oid {self.tip}", f"# branch.head {branch}"] or seen[2:]:
                    wrong.append(f"{folder.name} is {seen[:4]}")
            assert self.repo.discard(folder) == Ok(None)
        mirror = self.root / "data" / "git" / "mirror.git"
        if self.repo.mirror.refs("refs/heads/") != self.origin.refs():
            wrong.append(f"round {number}: the mirror's branches are not the forge's")
        if locks := [p.name for p in mirror.rglob("*.lock")]:
            wrong.append(f"round {number} leaves {locks}")
