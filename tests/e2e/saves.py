"""Workers that end in every way while their agent is in the middle of its work: killed, lost, hanging, endless,
cancelled, stopped.

The one rule: as in `worlds`: played once a session, it tells what it saw; the tests say what must be.
"""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from demo_world import Stage, bundles, left_over, wait_for
from director_world import PERSON, World

from harness.demo.run import REPO

KILLED, LOST, IDLE, ENDLESS, CANCELLED, COMMITTED, BROKEN, STOPPED = range(1, 9)
TITLES = (
    "Lose the worker", "Lose its keeper", "Hang", "Never end", "Change a mind", "Commit and go on", "Break git",
)  # fmt: skip
# Text, bytes that are no text, a change, a removal, a folder, something staged and taken back: nothing of it
# is committed but what the sixth commits.
WORK = r"""
echo "half of $HARNESS_ISSUE" >half.txt; mkdir -p new/folder; printf 'a\r\nb\0\377' >new/folder/data.bin
echo more >>README.md; rm tests/__init__.py 2>/dev/null || git rm -q tests/test_tally.py
echo staged >staged.txt; git add staged.txt; echo later >>staged.txt; ln -s half.txt link
"""
AGENT = f"""
{WORK}
case $HARNESS_ISSUE in
{COMMITTED}) git add -A; git -c user.name=a -c user.email=a@a.example commit -q -m done; echo on >>half.txt ;;
esac
touch MARKS/$HARNESS_ISSUE
case $HARNESS_ISSUE in
{IDLE}) exec sleep 600 ;;
{COMMITTED}) exec sleep 600 ;;
{BROKEN}) rm -rf .git; exec sleep 600 ;;
*) while :; do echo still at it; echo x >>"$HOME/log"; sleep 0.3; done ;;
esac
"""


WITHIN_S = 240.0


@dataclass
class Kept:
    """`left` is what was left when the director had ended, `alive` the processes of the agents that were."""

    folder: Path
    code: int
    told: str
    left: list[str]
    alive: list[int]


def _worker(world: World, attempt: str) -> list[int]:
    """The worker's own process: the child of its shim, in this world and no other, that is a worker."""
    shim, found = _shim(world, attempt), []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if b"worker" in words and int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == shim:
                found.append(int(entry.name))
        except OSError:
            continue  # it ended meanwhile
    return found


def _shim(world: World, attempt: str) -> int:
    end = f"-{attempt.replace('.', '-')}-i1"
    (folder,) = [p for p in (world.folder / "data" / "jobs").iterdir() if p.name.endswith(end)]
    return int(json.loads((folder / "started.json").read_text())["pid"])


def _open(world: World, title: str) -> None:
    body = json.dumps({"title": title, "body": "Please.", "labels": ["harness"]}).encode()
    request = urllib.request.Request(
        f"{world.forge.url}/repos/{REPO}/issues", data=body, headers={"Authorization": f"Bearer {PERSON}"}
    )
    urllib.request.urlopen(request, timeout=10).close()


def agents(marks: Path) -> list[int]:
    """Live processes whose command names the folder of the marks, as only the agents' does."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.fsencode(f"{marks}/") in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue  # it ended meanwhile
    return found


def kept(stage: Stage) -> Kept:
    """Each is struck as soon as its agent has done half of its work; the last one ends with the director."""
    marks = stage.folder / "marks"
    marks.mkdir(parents=True)
    script = AGENT.replace("MARKS", str(marks)).replace("$", "$$")
    config = {
        "director": {"max_workers": 8, "max_retries": 1, "max_attempts": 1, "max_infra_retries": 1},
        "agent": {"kind": "command", "command": ["sh", "-c", script]},
        "timeouts": {"idle_seconds": 10, "worker_watchdog_seconds": 45, "stop_grace_seconds": 1},
    }
    with World(stage, stage.folder / "world", "process", TITLES, config=config) as world:
        director = world.start("director")

        def half(issue: int) -> None:
            wait_for((marks / str(issue)).exists, WITHIN_S, f"the agent of {issue} is at it")

        half(KILLED)
        for pid in wait_for(lambda: _worker(world, f"{KILLED}.1"), 20, "its process"):
            os.kill(pid, signal.SIGKILL)
        half(LOST)
        os.kill(_shim(world, f"{LOST}.1"), signal.SIGKILL)
        half(CANCELLED)
        assert world.run("cancel", str(CANCELLED)).code == 0
        wait_for((world.folder / "audits").is_dir, WITHIN_S, "the first bundle is there")
        wait_for(lambda: len(bundles(world.folder)) == len(TITLES), WITHIN_S, "all bundles are there")
        _open(world, "Be stopped")
        half(STOPPED)
        stopped = world.run("stop", "--workers")
        assert stopped.code == 0, stopped.told
        wait_for(lambda: len(bundles(world.folder)) == STOPPED, WITHIN_S, "its bundle is there")
        director.end(WITHIN_S)
        left = left_over(world.folder, "process")
        return Kept(world.folder, director.process.returncode, director.told(), left, agents(marks))
