"""The loop goes on while the engine hangs, the forge refuses everything and the disk is full, all at once.

The one rule: nothing here is a stopwatch. A tick that waited for a port that hangs would hold the loop for that
port's whole time limit; what is asserted is that no pass took a good part of it, and that passes went on.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import watched_director
from demo_world import Late, Stage, Started, wait_for
from director_world import World
from disk_world import fill, small_disk
from stub_engine import StubEngine, silence

IMAGE = "harness-worker"
ENGINE_LIMIT_S = 20.0  # DockerRuntime's for one call
LINES = 6
LIMITS = [
    {"match": "^POST|^PATCH|^DELETE", "kind": "secondary-limit", "times": 0},
    {"match": "^GET", "kind": "secondary-limit", "status": 429, "retry_after": 1, "times": 0},
]


@dataclass
class Seen:
    """A line a second of how the loop went in the trouble, how the director ended, and what it was asked."""

    lines: list[dict[str, Any]]
    code: int
    told: str
    hung: int


def scene(folder: Path) -> Seen:
    folder.mkdir()
    stage = Stage(folder / "runs")
    answers: dict[str, Any] = {
        f"GET /images/{IMAGE}/json": (200, {"Id": "sha256:" + "1" * 64, "Os": "linux", "Config": {}}),
        "GET /containers/json": (200, []),
    }
    config = {"containers": {"docker_host": f"unix://{folder}/engine.sock"}}
    with (
        StubEngine(folder / "engine.sock", **answers) as engine,
        small_disk(folder / "world" / "data", "96m") as data,
        World(stage, folder / "world", "process", ["Wait"], config=config) as world,
    ):
        text = (world.folder / "harness.toml").read_text()
        (world.folder / "harness.toml").write_text(
            text.replace('runtime = "process"', 'runtime = "docker"').replace(
                'image = ""', f'image = "{IMAGE}"'
            )
        )
        started = watched_director.start(world)
        try:
            # The director is past its start: it looks for, and cannot find, what its first gate runs in.
            wait_for(lambda: _began(engine, started), 120, "the first container is asked for")
            return _suffer(world, engine, data, started)
        finally:
            engine.over.set()
            stage.close()


def _began(engine: StubEngine, started: Started) -> bool:
    if started.process.poll() is not None:
        raise Late(started.told()[-4000:])
    return "POST /containers/create" in engine.asked


def _suffer(world: World, engine: StubEngine, data: Path, started: Started) -> Seen:
    state = world.forge.state
    state.settings = replace(state.settings, secondary_penalty_s=2.0)
    for key in (*engine.answers, "POST /containers/create"):
        engine.answers[key] = silence
    engine.asked.clear()
    world.forge.set_faults(*LIMITS)
    fill(data)
    first = len(watched_director.lines(started)) + 1  # the line in which it began tells of before, too
    wait_for(
        lambda: len(watched_director.lines(started)) >= first + LINES or started.process.poll(),
        120,
        "the loop goes on",
    )
    hung = len(engine.asked)
    started.process.send_signal(signal.SIGTERM)
    code = started.process.wait(60)
    return Seen(watched_director.lines(started)[first:], code, started.told(), hung)


def test_passes_go_on_and_none_waits_for_the_port_that_hangs(seen: Seen) -> None:
    assert len(seen.lines) >= LINES, seen.told[-4000:]
    assert seen.hung > 0, "nobody asked the engine"
    ticks = [line["ticks"] for line in seen.lines]
    assert ticks == sorted(set(ticks)), ticks
    assert max(line["gap_s"] for line in seen.lines) < ENGINE_LIMIT_S / 4, seen.lines


def test_it_ends_when_told_to_without_waiting_for_that_port(seen: Seen) -> None:
    assert seen.code == 0, seen.told[-4000:]
