"""What a director uses while it lives, looked at from outside, and whether that grew with the tasks it did.

The one rule: what is compared is two windows of *tasks*, medians of a look a second. The first begins at a
quarter of all tasks: before, a director loads its modules at their first use, starts the threads of its pools
and finds the size of its heap, which it does once and not for every task. What ended children used is not in it.
"""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.gateway.server import DISK_THREADS
from harness.loop import PORTS

BASE = (0.25, 0.40)  # shares of all tasks that are settled
LATE = (0.85, 1.00)
LOOKS_MIN = 20  # in each window: fewer say nothing about a median
TASKS_MIN = 20  # a director of fewer is still finding its size when they are done
GROWTH = 1.05
# The loop, the gateway's own, a thread for each place in a port's pool, and what waits for the gateway's disk.
# Those start when they are first needed, so a director may have fewer for long; it never may have more.
POOLED = sum(PORTS.values())
THREADS_MAX = 2 + POOLED + DISK_THREADS
# Connections to the store and to the forge are opened when they are first needed, and then kept.
DESCRIPTORS_SLACK = 4


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a process. `settled` is how many of all tasks were; sizes in KiB. `children` are those alive,
    `children_kib` what they use together; `zombies` ended and were not waited for."""

    at: float
    settled: int
    rss_kib: int
    threads: int
    descriptors: int
    children: int
    children_kib: int
    zombies: int


@dataclass
class Life:
    """One director, while it has its threads. `names` are its open files, by their paths, at the last look that
    asked for them."""

    pid: int
    looks: list[Look] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def look(self, at: float, settled: int, name_files: bool = False) -> None:
        """Nothing is added while it starts and when it ends."""
        with contextlib.suppress(OSError, KeyError, ValueError):
            mine = _status(self.pid)
            if int(mine["Threads"]) <= POOLED:
                return  # it is just starting, or closing: less than what it has while it works
            opened = [f"/proc/{self.pid}/fd/{n}" for n in os.listdir(f"/proc/{self.pid}/fd")]
            below = [_status(pid) for pid in _children(self.pid)]
            living = [s for s in below if "VmRSS" in s]
            rss, ended = sum(_kib(s) for s in living), len(below) - len(living)
            self.looks.append(
                Look(at, settled, _kib(mine), int(mine["Threads"]), len(opened), len(living), rss, ended)
            )
            if name_files:
                self.names = [path for link in opened if (path := _path_of(link))]


def _path_of(link: str) -> str:
    """Empty when it was closed since it was listed."""
    try:
        return os.readlink(link)
    except FileNotFoundError:
        return ""


def _status(pid: int) -> dict[str, str]:
    """Empty when that process is not there any more; without VmRSS when it is a zombie."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return {}
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


def _kib(status: dict[str, str]) -> int:
    return int(status["VmRSS"].split()[0])


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found


# ---------------------------------------------------------------- windows


def _within(looks: Sequence[Look], window: tuple[float, float], tasks: int) -> list[Look]:
    return [x for x in looks if window[0] * tasks <= x.settled <= window[1] * tasks]


def growth(looks: Sequence[Look], tasks: int) -> dict[str, Any]:
    """Medians of both windows and how they compare. `measured` is False where there are too few looks or
    tasks to say it.

    Of descriptors it is the fewest in each window: every worker has some, and how many work at a time differs.
    """
    base, late = (_within(looks, window, tasks) for window in (BASE, LATE))
    found: dict[str, Any] = {"looks": [len(base), len(late)]}
    found["measured"] = min(found["looks"]) >= LOOKS_MIN and tasks >= TASKS_MIN
    if not looks:
        return found
    found["seconds"] = round(looks[-1].at - looks[0].at, 1)
    found["settled"] = [looks[0].settled, looks[-1].settled]
    for name, middle in (
        ("rss_kib", statistics.median), ("threads", statistics.median), ("descriptors", min),
        ("children", statistics.median), ("children_kib", statistics.median),
    ):  # fmt: skip
        values = [[getattr(x, name) for x in window] for window in (base, late)]
        found[name] = {"peak": max(getattr(x, name) for x in looks)}
        if all(values):
            early, end = (float(middle(v)) for v in values)
            found[name] |= {"base": early, "late": end, "ratio": round(end / early, 3) if early else None}
    found["threads"]["most"] = THREADS_MAX
    last = looks[-LOOKS_MIN:]  # one that has just ended is a zombie for a moment; fewest, as of descriptors
    found["zombies"] = {"peak": max(x.zombies for x in looks), "left": min(x.zombies for x in last)}
    return found


def grown(found: dict[str, Any]) -> list[str]:
    """What is too much, a line each."""
    lines = []
    threads, peak = found.get("threads", {}), found.get("threads", {}).get("peak", 0)
    if peak > THREADS_MAX:
        lines.append(f"threads: {peak}, all pools together have {THREADS_MAX}: {threads}")
    if found.get("zombies", {}).get("left"):
        lines.append(f"children that nobody waited for: {found['zombies']}")
    if not found.get("measured"):
        return lines
    memory, files = found["rss_kib"], found["descriptors"]
    if memory["ratio"] >= GROWTH:
        lines.append(f"memory: {memory}")
    if files["late"] > files["base"] * GROWTH + DESCRIPTORS_SLACK:
        lines.append(f"descriptors: {files}")
    return lines
