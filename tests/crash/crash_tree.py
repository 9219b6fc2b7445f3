"""All processes of a sweep, whoever of them forked which: none outlives it.

The one rule: what is ended is what descends from this process, found anew before each signal; orphans come to it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
ROUNDS, LOOK_S = 200, 0.05


def adopt_orphans() -> None:
    """A shim leaves its starter, and a director that is killed leaves its git: they become children of this one."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def below(pid: int) -> list[int]:
    """What descends from it and has not ended."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in "ZX":
            children.setdefault(int(parent), []).append(int(stat.parent.name))
    found = list(children.get(pid, ()))
    for one in found:
        found += children.get(one, ())
    return found


def end_all() -> None:
    """Kill what descends from this process, until nothing does."""
    for _ in range(ROUNDS):
        left = below(os.getpid())
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if not left:
            return
        time.sleep(LOOK_S)
        reap()
    raise AssertionError(f"still there: {below(os.getpid())}")


def reap() -> None:
    """Take note of children that have ended."""
    while True:
        try:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                return
        except ChildProcessError:
            return
