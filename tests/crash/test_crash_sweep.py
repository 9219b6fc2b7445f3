"""A sample of the crash matrix: every director of every path dies at each of its 45th boundaries.

The one rule: the world at the end is that of a run without a crash, with nothing twice and nothing lost. All of it
is `scripts/crash-matrix.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from crash_paths import ROUTES
from crash_sweep import difference
from crash_table import kind_of, table

ROOT = Path(__file__).parents[2]
WITHIN_S = 900
Documents = list[dict[str, Any]]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Documents:
    """In a process of its own: it forks, and must have no threads."""
    log = tmp_path_factory.mktemp("crash") / "log.jsonl"
    command = [sys.executable, str(ROOT / "scripts" / "crash-matrix.py"), "--sample", "--no-table"]
    done = subprocess.run(
        [*command, "--jobs", str(len(ROUTES)), "--log", str(log)], cwd=ROOT, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=WITHIN_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.mark.nightly
@pytest.mark.timeout(WITHIN_S)
@pytest.mark.parametrize("path", [r.name for r in ROUTES])
def test_nothing_is_there_twice_and_nothing_is_lost(swept: Documents, path: str) -> None:
    run = next(d for d in swept if d["route"] == path and d["mode"] != "calm")
    assert (run["trouble"], run["duplicates"], run["losses"]) == ("", [], [])
    assert len(run["kills"]) >= 3
    assert len(run["lives"]) == len(run["kills"]) + 1


@pytest.mark.nightly
def test_the_table_counts_what_was_written_down(swept: Documents) -> None:
    made = table(swept)
    kills = [k for d in swept for k in d["kills"]]
    assert f"{len(ROUTES)} runs (steps), {len(kills)} kills" in made
    assert {kind_of(k) for k in kills} <= {
        f"{w} an {x}" for w in ("before", "after") for x in ("append", "effect")
    }
    assert "Nothing differed." in made


def test_what_differs_is_told_apart() -> None:
    calm = {"comment by bot: done": 1, "ref refs/heads/main": 1}
    assert difference(calm, dict(calm)) == ([], [])
    assert difference(calm, {**calm, "comment by bot: done": 2}) == (["comment by bot: done"], [])
    assert difference(calm, {"ref refs/heads/main": 1}) == ([], ["comment by bot: done"])


def test_a_difference_and_a_run_without_an_end_are_in_the_table() -> None:
    run = {
        "route": "happy", "who": "director", "mode": "steps 1", "kills": ["after Comment of ticket 1 LANDED"],
        "lives": [["after Comment of ticket 1 LANDED"], []], "duplicates": ["comment x"], "losses": [],
        "trouble": "no end within 1 s:\nmore", "cpu_s": 1.0,
    }  # fmt: skip
    made = table([run])
    assert "* happy, steps 1: one too many: comment x" in made
    assert "* happy, steps 1: no end: no end within 1 s:" in made
    assert "| Comment | 0 | 1 |" in made
