"""A sample of the crash matrix: on two paths a director dies at each of a few kinds of boundaries.

The one rule: that it died there is seen, and the world at the end is that of a run without a crash, with nothing twice
and nothing lost. All of it is `scripts/crash-matrix.py`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from crash_table import table
from demo_world import wait_for

ROOT = Path(__file__).parents[2]
WITHIN_S = 600
PATHS = ("happy", "release")
DEATHS = ("after OpenPull", "after Comment", "before append outcome", "after append transition", "after Tag")
Documents = list[dict[str, Any]]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Documents:
    """In a process of its own: it forks, and must have no threads."""
    log = tmp_path_factory.mktemp("crash") / "log.jsonl"
    command = [sys.executable, str(ROOT / "scripts" / "crash-matrix.py"), "--no-table", "--log", str(log)]
    paths = [x for p in PATHS for x in ("--path", p)]
    done = subprocess.run(
        [*command, *paths, "--mode", f"at:{','.join(DEATHS)}", "--sample", "--jobs", str(len(PATHS))], cwd=ROOT,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=WITHIN_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]
    assert "every world is that of a run without a crash" in done.stderr
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.mark.timeout(WITHIN_S)
@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_there_twice_and_nothing_is_lost(swept: Documents, path: str) -> None:
    calm, run = (d for d in swept if d["route"] == path)
    assert [d["mode"].split()[0] for d in (calm, run)] == ["calm", "at"]
    died = Counter(next(k for k in DEATHS if f"{kill} ".startswith(f"{k} ")) for kill in run["kills"])
    assert died == Counter(DEATHS), run["kills"]
    assert len(run["lives"]) == len(DEATHS) + 1, "each death is followed by another director's life"
    assert (run["trouble"], run["duplicates"], run["losses"]) == ("", [], [])
    assert run["facts"] == calm["facts"]
    assert run["facts"]["ref refs/tags/v0.1.0"] == 1
    assert run["facts"]["machine ticket 1: RELEASED"] == 1


def test_the_table_counts_what_was_written_down(swept: Documents) -> None:
    made = table(swept)
    assert f"{len(PATHS)} runs (at), {len(PATHS) * len(DEATHS)} kills" in made
    assert "| Tag | 0 | 2 |" in made
    assert "Nothing differed." in made


def test_the_worlds_are_removed_in_the_end(swept: Documents) -> None:
    assert [d["folder"] for d in swept if Path(d["folder"]).exists()] == []


@pytest.mark.timeout(WITHIN_S)
def test_a_sweep_that_is_ended_leaves_nothing_behind(tmp_path: Path) -> None:
    """No process of it, not even those that left their starters, and no folder."""
    command = [sys.executable, str(ROOT / "scripts" / "crash-matrix.py"), "--no-table", "--path", "happy"]
    mark = f"CRASH_SWEEP={tmp_path}"
    process = subprocess.Popen(
        [*command, "--log", str(tmp_path / "log.jsonl")], cwd=ROOT, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path), "CRASH_SWEEP": str(tmp_path)},
    )  # fmt: skip
    try:
        begun = "crash-*/*/data/attempts/1.1/audit/journal.jsonl"
        wait_for(lambda: list(tmp_path.glob(begun)), WITHIN_S / 2, "a worker")
        assert len(_marked(mark)) >= 4, "the sweep, a run, its forge and its director at least"
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(WITHIN_S / 4)
    assert code == 143
    assert _marked(mark) == []
    assert [p.name for p in tmp_path.iterdir()] == ["log.jsonl"]


def _marked(mark: str) -> list[int]:
    """Processes that were begun with it, also by fork."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found
