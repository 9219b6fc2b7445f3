"""Directors that are killed with workers alive: in containers, with their store lost as well, and as processes.

The one rule: as in `worlds`: played once a session, it tells what it saw; the tests say what must be.
"""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo_world import Finished, Stage, bundles, docker, journals, left_over, wait_for
from director_world import World

from harness.core.journal import Record

WORK = """
touch "$HOME/works"
while [ ! -e "$HOME/go" ]; do sleep 0.2; done
echo $HARNESS_ISSUE >work$HARNESS_ISSUE.txt
"""


@dataclass
class LostInDocker:
    """Two workers at work when the director was killed: one lives on, the other's container was removed.
    `before` and `after` are ids of containers by name, around the loss of the store."""

    folder: Path
    before: dict[str, str]
    after: dict[str, str]
    told: Finished
    last: Finished
    repo: dict[str, Any]


def lost_in_docker(stage: Stage) -> LostInDocker:
    config = {
        "director": {"max_infra_retries": 1},
        "agent": {"kind": "command", "command": ["sh", "-c", WORK.replace("$", "$$")]},
    }
    titles, image = ["Live on", "Be removed"], stage.images["dev"]
    with World(stage, stage.folder / "world", "docker", titles, config=config, image=image) as w:
        first = w.start("director")
        homes = [w.folder / "data" / "attempts" / f"{n}.1" / "home" for n in (1, 2)]
        wait_for(lambda: all((h / "works").exists() for h in homes), 200, "two agents at work")
        first.kill()
        before = {n: i for n, i in w.live().items() if n.endswith("-i1")}
        docker("rm", "-f", next(i for n, i in before.items() if "-2-1-" in n))
        for path in (w.folder / "data").glob("store.db*"):
            path.unlink()
        told = w.run("rebuild", "--json")
        second = w.start("director", "--until-idle", "--json")
        audits = w.folder / "audits"
        wait_for(lambda: list(audits.glob("*-2.1")), 200, "the removed worker's attempt is sealed")
        after = {n: i for n, i in w.live().items() if n.endswith("-i1")}
        (homes[0] / "go").touch()
        last = second.end()
        return LostInDocker(w.folder, before, after, told, last, w.repo())


# ---------------------------------------------------------------- four workers as processes


# The first two are at work until they may go on, the third fails at once when it may, the fourth hangs.
FOUR = """
case $HARNESS_ISSUE in
3) while [ ! -e MARKS/fail ]; do sleep 0.2; done; exit 1 ;;
4) while [ ! -e MARKS/again ]; do sleep 0.2; done; echo four >four.txt ;;
*) while [ ! -e MARKS/go ]; do sleep 0.2; done; echo $HARNESS_ISSUE >work$HARNESS_ISSUE.txt ;;
esac
"""
TITLES = ["Go on", "Go on as well", "Fail alone", "Vanish"]


@dataclass
class TakenOver:
    """`before`, `between` and `after` are the lives of the workers: at the kill, when the third had ended, and
    once the next director had adopted what it found. `left` is what was left over at the end."""

    folder: Path
    before: dict[str, str]
    between: dict[str, str]
    after: dict[str, str]
    last: Finished
    left: list[str]


def tree(pid: int) -> list[int]:
    """A process and all below it, by /proc."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(entry.name))
    found, left = [], [pid]
    while left:
        found.append(left.pop())
        left += parents.get(found[-1], [])
    return found


def vanish(job: Path) -> None:
    """The whole process tree of a job dies at once, its shim too, and its folder is gone."""
    life = next(f for f in Path("/proc").iterdir() if f.name.isdigit() and str(job) in _argv(f))
    for pid in tree(int(life.name)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(job)


def _argv(entry: Path) -> list[str]:
    try:
        return (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _workers(w: World) -> dict[str, str]:
    return {n: life for n, life in w.live().items() if n.endswith("-i1")}


def _journalled(w: World, code: str) -> bool:
    """Whether the director has heard of that attempt's agent at work."""
    witness = w.folder / "data" / "attempts" / code / "witness.jsonl"
    return witness.exists() and b'"StartAgent"' in witness.read_bytes()


def taken(stage: Stage) -> TakenOver:
    marks = stage.folder / "marks"
    marks.mkdir(parents=True)
    config = {
        "director": {"max_workers": 4, "max_retries": 1, "max_infra_retries": 1, "max_attempts": 1},
        "agent": {"kind": "command", "command": ["sh", "-c", _script(marks)]},
    }
    with World(stage, stage.folder / "world", "process", TITLES, config=config) as w:
        first = w.start("director")
        wait_for(lambda: all(_journalled(w, f"{n}.1") for n in (1, 2, 3, 4)), 200, "four agents at work")
        first.kill()
        before = _workers(w)
        (marks / "fail").touch()
        third = next(n for n in before if "-3-1-" in n)
        exited = w.folder / "data" / "jobs" / third / "exit.json"
        wait_for(exited.exists, 200, "the third worker ends")
        between = _workers(w)
        second = w.start("director", "--until-idle", "--json")
        wait_for(lambda: adopted(w.folder), 200, "the next director adopts")
        after = _workers(w)
        fourth = next(n for n in before if "-4-1-" in n)
        vanish(w.folder / "data" / "jobs" / fourth)
        wait_for(lambda: sealed(w.folder, "4.1"), 200, "the fourth attempt is sealed")
        (marks / "again").touch()
        (marks / "go").touch()
        last = second.end()
        return TakenOver(w.folder, before, between, after, last, left_over(w.folder, "process"))


def _script(marks: Path) -> str:
    return FOUR.replace("MARKS", str(marks)).replace("$", "$$")


def adopted(folder: Path) -> list[tuple[float, Record]]:
    """The records in which a director after the first says what it adopted, and how long after its first."""
    found = []
    for machine, records in journals(folder, "/director/").items():
        if not machine.endswith("/1"):
            found += [(r.at - records[0].at, r) for r in records if r.body.get("note", {}).get("adopted")]
    return found


def sealed(folder: Path, code: str) -> list[Path]:
    there = (folder / "audits").exists()
    return [b for b in bundles(folder) if b.name.endswith(f"-{code}")] if there else []
