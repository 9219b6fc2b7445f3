"""SIGKILL to git in the middle of fetches, clones and pushes of one mirror; then the same once more.

The one rule: only git processes that this process started for this folder are killed, each by its id.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import git_world as world

from harness.adapters.git import GitRepo
from harness.core.result import Err, Ok, Result
from harness.failures import Failure

MAIN = "refs/heads/main"
BRANCHES = 40  # moved before each fetch: a transaction of refs that takes a moment
KINDS = ("fetch", "clone", "push")
ALLOWED = frozenset({Failure.INFRA_KILLED, Failure.FORGE_DOWN})


class WallClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


@dataclass
class Tally:
    """`kills` by what was killed, `failed` how many commands ended with an error by it, `locks` how many lock
    files the kills left, and `wrong` what must not be, in words."""

    kills: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    failed: int = 0
    locks: int = 0
    wrong: list[str] = field(default_factory=list)


class Killed:
    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.random = root, random.Random(seed)
        self.origin = world.Origin(root / "forge")
        self.tip = self.origin.push(MAIN, {f"d/{n}": f"{n}\n" * 200 for n in range(300)})
        self.tips = [self.tip, self.origin.push(MAIN, {"more": self.random.randbytes(200_000).hex()})]
        self.repo = GitRepo(
            root / "data", remote=self.origin.url, token=None, author=("Harness", "harness@acme.example"),
            clock=WallClock(),
        )  # fmt: skip
        assert self.repo.prepare() == Ok(None) and isinstance(self.repo.fetch(), Ok)
        self.mirror = root / "data" / "git" / "mirror.git"
        self.tally = Tally()

    def play(self, kills: int, within_s: float) -> Tally:
        """Until each kind of command was killed its share; one that was faster than we is played again."""
        until, n, share = time.monotonic() + within_s, 0, kills // len(KINDS)
        while time.monotonic() < until:
            open_kinds = [k for k in KINDS if self.tally.kills[k] < share]
            if not open_kinds:
                break
            self._round(open_kinds[n % len(open_kinds)], n)
            n += 1
        return self.tally

    def _round(self, kind: str, n: int) -> None:
        do = self._command(kind, n)
        got: list[Result[object]] = []
        thread = threading.Thread(target=lambda: got.append(do()))
        thread.start()
        killed = self._kill(thread)
        thread.join()
        if not killed:
            return
        self.tally.kills[kind] += 1
        self.tally.locks += len(self._locks())
        if isinstance(got[0], Err):
            self.tally.failed += 1
            if got[0].failure not in ALLOWED:
                self.tally.wrong.append(f"{kind} {n}: {got[0]}")
        again = do()
        # The forge may still be at the push whose sender was killed; it says so, and is asked again.
        for _ in range(40):
            if not (isinstance(again, Err) and again.failure == Failure.FORGE_DOWN):
                break
            time.sleep(0.25)
            again = do()
        if not isinstance(again, Ok):
            self.tally.wrong.append(f"{kind} {n}, once more: {again}")
        if kind == "fetch" and (left := self._locks()):
            self.tally.wrong.append(f"{kind} {n} leaves {[p.name for p in left]}")

    def _command(self, kind: str, n: int) -> Callable[[], Result[object]]:
        if kind == "fetch":
            sha = self.tips[n % 2]
            lines = "".join(f"update refs/heads/b{i} {sha}\n" for i in range(BRANCHES))
            world.git("update-ref", "--stdin", cwd=self.origin.path, feed=lines.encode())
            return self.repo.fetch
        if kind == "clone":
            folder = self.root / "data" / "clones" / f"{n}.1"
            return lambda: self.repo.clone(folder, self.tip, f"agent/{n}", "main")
        return lambda: self.repo.push(f"refs/heads/agent/{n}", self.tip, "")

    def _locks(self) -> list[Path]:
        return sorted(self.mirror.rglob("*.lock"))

    def _kill(self, thread: threading.Thread) -> bool:
        """One git of the command, or with it its whole group, at some moment of its first 60 ms."""
        while thread.is_alive():
            found = _gits(self.root / "data", self.origin.path)
            if not found:
                time.sleep(0.001)
                continue
            time.sleep(self.random.uniform(0.0, 0.06))
            if not (found := _gits(self.root / "data", self.origin.path)):
                continue
            chosen = [self.random.choice(found)] if self.random.random() < 0.5 else found
            return sum(_end(pid) for pid in chosen) > 0
        return False


def _end(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _gits(folder: Path, forge: Path) -> list[int]:
    """Live git processes that have this data folder's HOME, which only our own have. Those that work in the
    forge's repository inherit it, and are the forge's: nobody here kills its server."""
    mark, found = f"HOME={folder}/git/home\0".encode(), []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm", "rb") as f:
                if not f.read(16).startswith(b"git"):
                    continue
            with open(f"/proc/{pid}/environ", "rb") as f:
                if mark in f.read() + b"\0" and Path(os.readlink(f"/proc/{pid}/cwd")) != forge:
                    found.append(int(pid))
        except OSError:
            continue  # it has ended meanwhile
    return found
