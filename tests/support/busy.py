"""A director that is told to end while many workers work, and the one after it.

The one rule: what becomes of the workers is read from their jobs and journals; nothing is asked of a director.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo_world import Finished, Stage, Started, journals, wait_for
from director_world import World
from soak_tasks import CHECK

WITHIN_S = 300.0


@dataclass
class Ended:
    """`before` and `after` are the lives of the jobs around the end; `adopted` those of the next director's
    start. `last` is that one, which went on until nothing was left to do."""

    folder: Path
    workers: int
    seconds: float
    code: int
    told: str
    before: dict[str, str]
    after: dict[str, str]
    adopted: dict[str, str]
    last: Finished
    repo: dict[str, Any]


@contextmanager
def busy_world(
    stage: Stage, runtime: str, workers: int, image: str = "", sleep_s: float = 600.0
) -> Iterator[World]:
    """Agents that sleep so long, or until the file `go` is there."""
    go = stage.folder / "go"
    stage.folder.mkdir(parents=True, exist_ok=True)
    wait = f"i=0; while [ ! -e {go} ] && [ $$i -lt {sleep_s:.0f} ]; do sleep 1; i=$$((i+1)); done; "
    # In a container that file is out of reach: there it is so many seconds.
    if runtime == "docker":
        wait = f"sleep {sleep_s:.0f}; "
    config = {
        "director": {"max_workers": workers, "interval_seconds": 1.0},
        "release": {"batch_size": workers},
        "agent": {"kind": "command", "command": ["sh", "-c", wait + "echo x >$$HARNESS_ISSUE.txt"]},
    }
    files = {".harness.toml": f"[validation]\ncommands = ['{CHECK}']\n"}
    titles = [f"Write {n}.txt" for n in range(1, workers + 1)]
    with World(
        stage, stage.folder / "world", runtime, titles, config=config, files=files, image=image
    ) as world:  # fmt: skip
        yield world


def working(world: World) -> dict[str, str]:
    """The workers that run, and not gates or agents."""
    return {n: life for n, life in world.live().items() if n.endswith("-i1")}


def all_work(world: World, started: Started, workers: int) -> None:
    def look() -> bool:
        assert started.process.poll() is None, started.told()[-4000:]
        # Workers, and beside each its agent where agents are jobs of their own.
        return len(working(world)) == workers

    wait_for(look, WITHIN_S, f"{workers} workers work")


def end_and_go_on(stage: Stage, runtime: str, workers: int, image: str = "", sleep_s: float = 600.0) -> Ended:
    with busy_world(stage, runtime, workers, image, sleep_s) as world:
        started = world.start("director")
        all_work(world, started, workers)
        before = working(world)
        began = time.monotonic()
        started.process.send_signal(signal.SIGTERM)
        code = started.process.wait(60)
        seconds = time.monotonic() - began
        after = working(world)
        going = world.start("director", "--until-idle", "--json")
        wait_for(
            lambda: "DISCOVER" in going.told() or "MONITOR" in going.told(), 120, "the next one is at work"
        )
        adopted = working(world)
        (stage.folder / "go").touch()
        last = going.end()
        return Ended(
            world.folder, workers, seconds, code, started.told(), before, after, adopted, last, world.repo()
        )  # fmt: skip


def adopted_by(folder: Path) -> set[str]:
    """Names of jobs that any director said it had adopted."""
    return {
        name
        for records in journals(folder, "/director/").values()
        for record in records
        for name in record.body.get("note", {}).get("adopted", ())
    }
