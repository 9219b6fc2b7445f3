"""Finished work that cannot be delivered waits, and is delivered once, however long the forge takes.

The one rule: only what the forge got, what the journals say and how often the agent ran is looked at.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from demo_world import Stage, bare_of, events, git, journals, left_over, terminate, wait_for
from director_world import World

from harness.core.journal import Record

pytestmark = pytest.mark.nightly

WALL_S = 25
PUSH = "^(GET|POST) /acme/tally(.git)?/(info/refs|git-receive-pack)"
DOWN = {"match": PUSH, "kind": "status-before", "status": 503, "times": 0}
CUT = {"match": PUSH, "kind": "drop-before", "times": 0}
REFUSED = {"match": PUSH, "kind": "status-before", "status": 401, "times": 0}
DECLINED = {"match": PUSH, "kind": "push-reject", "times": 0}
PROTECTED = {**DECLINED, "reason": "error: GH006: Protected branch update failed for refs/heads/agent/1."}


def attempt(world: World) -> tuple[Record, ...]:
    return next(iter(journals(world.folder, "/attempt/").values()), ())


def tries(world: World) -> list[dict[str, Any]]:
    return [r.body for r in attempt(world) if r.kind == "outcome" and r.body.get("effect") == "Publish"]


def wait_for_a_try(world: World) -> None:
    before = len(tries(world))
    wait_for(lambda: len(tries(world)) > before, 60, "a push that fails")


def test_a_push_waits_out_the_forge_and_the_wall_and_the_agent_runs_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    rounds = tmp_path / "rounds"
    script = (
        f"echo $HARNESS_ROUND >>{rounds}; echo x >done.txt; until [ -e {tmp_path}/go ]; do sleep 0.1; done"
    )
    config = {
        "director": {"max_retries": 1, "max_attempts": 1, "max_infra_retries": 1, "max_rework_rounds": 1},
        "agent": {"kind": "command", "command": ["sh", "-c", script.replace("$", "$$")]},
        "validation": {"commands": ["true"]},
        "timeouts": {"worker_watchdog_seconds": WALL_S},
    }
    with World(stage, tmp_path / "world", "process", ["Do it"], config=config) as world:
        director = world.start("director", "--until-idle", "--json")
        wait_for(rounds.exists, 60, "the agent works")
        began = time.monotonic()
        world.forge.set_faults(DOWN)
        (tmp_path / "go").touch()
        for fault in (CUT, REFUSED):
            wait_for_a_try(world)
            world.forge.set_faults(fault)
        wait_for_a_try(world)
        terminate(director, 30)
        world.forge.set_faults(
            {**DECLINED, "skip": 1}
        )  # a director that cannot push its epoch does not begin
        director = world.start("director", "--until-idle", "--json")
        wait_for_a_try(world)
        world.forge.set_faults(PROTECTED)
        wait_for_a_try(world)
        wait_for(lambda: time.monotonic() - began > WALL_S + 5, 60, "the worker's time is up")
        assert "agent/1" not in git(bare_of(world.folder), "for-each-ref")
        world.forge.set_faults()
        ended = director.end()
        assert ended.code == 0, ended.told[-4000:]
        said = "\n".join(world.comments(1))
        assert [t["state"] for t in ended.document["tickets"]] == ["RELEASED"], said
        assert rounds.read_text().split() == ["1"]
        assert len(journals(world.folder, "/attempt/")) == 1
        assert [t["status"] for t in tries(world)].count("done") == 1
        assert not {"failed", "exception"} & {t["status"] for t in tries(world)}
        assert "timed_out" not in events(attempt(world)) and "infra_lost" not in events(attempt(world))
        assert [p["head_ref"] for p in world.repo()["pulls"]].count("agent/1") == 1
        assert left_over(world.folder, "process") == []
    stage.close()
