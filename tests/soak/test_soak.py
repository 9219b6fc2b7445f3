"""A small soak: half of its tasks go wrong, a tenth of the forge's writes fails, one director is killed.

The one rule: it is the command of the large one. What it looks for is said in `tests/support/remains.py`.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from demo_world import ROOT
from soak_tasks import KINDS, forge_faults, play, tasks

TASKS, SEED, FAULTS = 8, 3, 0.5


def scene(folder: Path) -> dict[str, Any]:
    command = [sys.executable, str(ROOT / "benchmarks" / "soak.py"), "--json", "--tasks", str(TASKS)]
    more = [
        "--faults",
        str(FAULTS),
        "--forge-faults",
        "0.1",
        "--seed",
        str(SEED),
        "--keep",
        str(folder),
        "--within",
        "600",
    ]
    done = subprocess.run([*command, *more], capture_output=True, text=True, timeout=700, check=False)
    assert done.stdout, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return {**found, "folder": folder}


@pytest.mark.parametrize("what", ["left_behind", "twice", "lost", "grown", "exit", "written_when_idle"])
def test_nothing_is(seen: dict[str, Any], what: str) -> None:
    assert seen["problems"][what] == []


def test_things_did_go_wrong(seen: dict[str, Any]) -> None:
    assert (seen["tasks"], seen["wrong"], seen["directors"]) == (TASKS, TASKS // 2, 2)
    assert seen["forge_faults"] > 0 and seen["attempts"] >= TASKS


def test_what_it_left_behind_is_counted_by_name(seen: dict[str, Any]) -> None:
    assert {"clones", "branches", "locks", "threads", "descriptors", "processes"} <= set(seen["orphans"])
    assert set(seen["orphans"].values()) == {0}
    assert 0 < seen["director"]["threads"]["peak"] <= seen["director"]["threads"]["most"]


def test_every_kind_of_trouble_is_played_equally_often() -> None:
    chosen = tasks(120, 0.2, random.Random(1))
    wrong = [t for t in chosen if t.kind]
    assert sorted(t.kind for t in wrong) == sorted([*KINDS] * 2)
    assert all(play(t) for t in chosen)
    assert all(0 < rule["rate"] <= 0.2 for rule in forge_faults(0.2, 1))
