"""A director that tells how its loop goes: `python watched_director.py HARNESS.toml [until-idle]`, a line a second.

Each line is {"at": seconds since the start, "passes", "ticks": so far, "slowest_s": the longest that one tick
held the loop since the line before, "gap_s": the longest time between two passes since then, "state",
"trouble"}. The one rule: the director's own code runs, with nothing in it replaced; SIGTERM ends it as ever.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from demo_world import ROOT, Started
from director_world import World

from harness.compose import director, ends
from harness.config.reader import load

EVERY_S = 1.0


def start(world: World, *args: str) -> Started:
    """The director of that world as a process that tells how its loop goes."""
    path = os.pathsep.join((str(ROOT), str(ROOT / "tests" / "support")))
    program = (sys.executable, str(Path(__file__)))
    config = str(world.folder / "harness.toml")
    return world.stage.start(config, *args, program=program, env={**world.env, "PYTHONPATH": path})


def lines(started: Started) -> list[dict[str, Any]]:
    """What it told so far."""
    whole = started.out.read_text().rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines() if line]


def watch(config: Path, until_idle: bool) -> int:
    running = director.start(load(config))
    began = last = told = time.monotonic()
    passes, gap = 0, 0.0
    after = running.loop.after

    def each(loop: Any) -> None:
        nonlocal last, told, passes, gap
        after(loop)
        now = time.monotonic()
        passes, gap, last = passes + 1, max(gap, now - last), now
        if now - told < EVERY_S:
            return
        line = {
            "at": round(now - began, 2), "passes": passes, "ticks": loop.ticks,
            "slowest_s": round(loop.slowest_s, 4), "gap_s": round(gap, 4),
            "state": loop.items[running.machine].state, "trouble": loop.trouble,
        }  # fmt: skip
        print(json.dumps(line), flush=True)
        told, gap, loop.slowest_s = now, 0.0, 0.0

    running.loop.after = each
    signal.signal(signal.SIGTERM, lambda number, _: running.signals.append("SIGTERM"))
    try:
        running.loop.run(lambda loop: ends.ended(running, until_idle=until_idle))
    finally:
        running.close()
    return 0


if __name__ == "__main__":
    sys.exit(watch(Path(sys.argv[1]), "until-idle" in sys.argv[2:]))
