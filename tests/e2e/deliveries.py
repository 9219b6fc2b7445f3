"""A push that the forge does not take, in every way, until after its worker's time is up.

The one rule: as in `worlds`: played once a session, it tells what it saw; the tests say what must be.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from demo_world import Finished, Stage, bare_of, git, journals, left_over, terminate, wait_for
from director_world import World

from harness.core.journal import Record

WITHIN_S = 240.0
WALL_S = 45
PUSH = "^(GET|POST) /acme/tally(.git)?/(info/refs|git-receive-pack)"
DOWN = {"match": PUSH, "kind": "status-before", "status": 503, "times": 0}
CUT = {"match": PUSH, "kind": "drop-before", "times": 0}
REFUSED = {"match": PUSH, "kind": "status-before", "status": 401, "times": 0}
DECLINED = {"match": PUSH, "kind": "push-reject", "times": 0}
PROTECTED = {**DECLINED, "reason": "error: GH006: Protected branch update failed for refs/heads/agent/1."}


@dataclass
class Delivered:
    """`early` are the forge's refs before it took anything; `rounds` one line a run of the agent."""

    ended: Finished
    attempts: list[tuple[Record, ...]]
    early: str
    rounds: list[str]
    comments: list[str]
    pulls: list[str]
    left: list[str]


def attempt(world: World) -> tuple[Record, ...]:
    return next(iter(journals(world.folder, "/attempt/").values()), ())


def tries(records: tuple[Record, ...]) -> list[dict[str, Any]]:
    return [r.body for r in records if r.kind == "outcome" and r.body.get("effect") == "Publish"]


def wait_for_a_try(world: World) -> None:
    before = len(tries(attempt(world)))
    wait_for(lambda: len(tries(attempt(world))) > before, WITHIN_S, "a push that fails")


def delivered(stage: Stage) -> Delivered:
    rounds, go = stage.folder / "rounds", stage.folder / "go"
    script = f"echo $HARNESS_ROUND >>{rounds}; echo x >done.txt; until [ -e {go} ]; do sleep 0.1; done"
    config = {
        "director": {"max_retries": 1, "max_attempts": 1, "max_infra_retries": 1, "max_rework_rounds": 1},
        "agent": {"kind": "command", "command": ["sh", "-c", script.replace("$", "$$")]},
        "validation": {"commands": ["true"]},
        "timeouts": {"worker_watchdog_seconds": WALL_S},
    }
    with World(stage, stage.folder / "world", "process", ["Do it"], config=config) as world:
        director = world.start("director", "--until-idle", "--json")
        wait_for(rounds.exists, WITHIN_S, "the agent works")
        began = time.monotonic()
        world.forge.set_faults(DOWN)
        go.touch()
        for fault in (CUT, REFUSED):
            wait_for_a_try(world)
            world.forge.set_faults(fault)
        wait_for_a_try(world)
        terminate(director, 60)
        # The first one passes: a director that cannot push its epoch does not begin.
        world.forge.set_faults({**DECLINED, "skip": 1})
        director = world.start("director", "--until-idle", "--json")
        wait_for_a_try(world)
        world.forge.set_faults(PROTECTED)
        wait_for_a_try(world)
        wait_for(lambda: time.monotonic() - began > WALL_S + 5, WALL_S * 2, "the worker's time is up")
        early = git(bare_of(world.folder), "for-each-ref")
        world.forge.set_faults()
        ended = director.end()
        return Delivered(
            ended, list(journals(world.folder, "/attempt/").values()), early, rounds.read_text().split(),
            world.comments(1), [p["head_ref"] for p in world.repo()["pulls"]],
            left_over(world.folder, "process"),
        )  # fmt: skip
