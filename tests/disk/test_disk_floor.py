"""A director whose disk fills up and has room again: nothing new starts, nobody pays, all goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from demo_world import Finished, Stage, journals, terminate, wait_for
from director_world import World
from disk_world import fill, small_disk

PLAYS = {
    "1": [{"sleep_s": 10, "say": "Slow.", "write": {"slow.txt": "slow\n"}}],
    "2": [{"say": "Late.", "write": {"late.txt": "late\n"}}],
}


@dataclass
class Night:
    """What was seen below the floor, and what came of it."""

    below: dict[str, Any] = field(default_factory=dict)
    full: dict[str, Any] = field(default_factory=dict)
    issues: dict[int, str] = field(default_factory=dict)
    counters: dict[str, dict[str, int]] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    finished: Finished | None = None


def started(world: World) -> set[str]:
    """What takes room: clones, gates and jobs that are there."""
    data = world.folder / "data"
    found = {f"{part}/{p.name}" for part in ("gates", "jobs") for p in (data / part).glob("[!.]*")}
    return found | {f"clone/{p.parent.name}" for p in (data / "attempts").glob("*/clone")}


def look(world: World) -> dict[str, Any]:
    """What a person is told now."""
    return {
        "status": world.run("status", "--json", within_s=60).document,
        "explain": world.run("explain", "2", within_s=60).out,
        "doctor": world.run("doctor", "--json", within_s=60).out,
    }


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    folder = tmp_path_factory.mktemp("floor")
    stage = Stage(folder)
    root = folder / "world"
    root.mkdir()
    seen = Night()
    config = {
        "director": {"data_dir": str(root / "data"), "min_free": "32MiB", "max_workers": 1},
        "audit": {"dir": str(root / "data" / "audits")},
    }
    try:
        with small_disk(root / "data", "96m") as disk:
            world = World(stage, root, "process", ["Slow", "Late"], PLAYS, config)
            with world:
                director = world.start("director")
                wait_for(lambda: world.live(), 90, "the first worker runs")
                wait_for(lambda: world.states("/attempt/").get("1.1") == "RUNNING", 60, "it runs")
                filler = fill(disk, leave_bytes=16 << 20)
                wait_for(lambda: _reason(world, 2), 90, "the floor is written down")
                seen.below["started"] = started(world)
                seen.below |= look(world)
                wait_for(lambda: world.states("/attempt/").get("1.1") == "CLOSED", 120, "the first one ends")
                seen.below["later"] = started(world) | {f"state/{m}" for m in world.states("/attempt/")}
                wait_for(lambda: held(world), 90, "the gate waits for room")
                brim = fill(disk / "audits")
                seen.full = look(world) | {"alive": director.process.poll() is None}
                brim.unlink()
                filler.unlink()
                wait_for(lambda: released(world), 240, "both are released")
                terminate(director, 60)
                seen.finished = director.end()
                _end(world, seen)
        yield seen
    finally:
        stage.close()


def _reason(world: World, issue: int) -> bool:
    """Whether the director has written down that there is no room for this issue."""
    notes = (r.body.get("note") or {} for _, x in journals(world.folder, "/director/").items() for r in x)
    return any("MiB free on disk" in n.get("reasons", {}).get(str(issue), "") for n in notes)


def held(world: World) -> bool:
    """Whether it is written down that the landing's gate waits for room."""
    records = [r for x in journals(world.folder, "/ticket/").values() for r in x]
    return any(r.body.get("effect") == "StartGate" and r.body.get("status") == "deferred" for r in records)


def released(world: World) -> bool:
    return set(world.states("/ticket/").values()) == {"RELEASED"} and len(world.states("/ticket/")) == 2


def _end(world: World, seen: Night) -> None:
    seen.issues = {n: world.issue(n)["state"] for n in (1, 2)}
    for machine, records in journals(world.folder, "/ticket/").items():
        name = machine.rsplit("/", 1)[1]
        last = [r.body["note"]["counters"] for r in records if (r.body.get("note") or {}).get("counters")]
        seen.counters[name] = dict(last[-1]) if last else {}
        seen.attempts[name] = sum(
            1 for r in records for i in r.body.get("intents", ()) if i.get("$") == "OpenMachine"
        )


def test_below_the_floor_nothing_new_is_started(night: Night) -> None:
    assert {s for s in night.below["started"] if s.startswith("clone/")} == {"clone/1.1"}
    assert not {s for s in night.below["later"] if s.startswith(("clone/2", "gates/", "state/2"))}


def test_people_are_told_why(night: Night) -> None:
    for seen in (night.below, night.full):
        assert any("MiB free in" in line for line in seen["status"]["trouble"])
        checks = json.loads(seen["doctor"])
        assert "make room, or lower director.min_free" in json.dumps(checks)
    (gate,) = (h for h in night.full["status"]["held"] if h["effect"] == "StartGate")
    assert "MiB free on disk; 32 MiB are needed to start work" in gate["why"] and gate["tries"] == 1
    assert "MiB free on disk; 32 MiB are needed to start work" in night.below["explain"]
    assert "Make room on the director's disk." in night.below["explain"]


def test_a_disk_that_is_full_ends_no_director(night: Night) -> None:
    assert night.full["alive"] and night.finished is not None
    assert night.finished.code == 0 and "Traceback" not in night.finished.told


def test_all_is_released_when_there_is_room_again_and_nobody_paid(night: Night) -> None:
    assert night.finished is not None
    assert set(night.issues.values()) == {"closed"}, night.finished.told[-3000:]
    assert night.counters == {"1": {}, "2": {}}
    assert night.attempts == {"1": 1, "2": 1}
