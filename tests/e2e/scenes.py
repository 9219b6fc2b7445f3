"""The expensive runs that end-to-end tests look at: each is played once a session and tells what it saw.

The one rule: a scene asserts only what it needs to go on; what must be true is said in the tests.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from demo_world import (
    ROOT,
    Finished,
    Stage,
    Started,
    demo_args,
    inspect,
    live,
    sweep,
)

# ---------------------------------------------------------------- the demo, undisturbed


@dataclass
class Seen:
    """A worker's container while it ran: what the engine says, and every text within its reach."""

    attrs: dict[str, Any]
    processes: list[bytes]
    files: dict[str, bytes]


@dataclass
class Played:
    """A demo that ended. `workers` are containers that were looked at while they ran."""

    folder: Path
    runtime: str
    finished: Finished
    workers: list[Seen] = field(default_factory=list)

    @property
    def document(self) -> dict[str, Any]:
        return self.finished.document


def process_demo(stage: Stage) -> Played:
    folder = stage.folder / "demo"
    try:
        return Played(folder, "process", stage.run(*demo_args(stage, "process")))
    finally:
        sweep(folder, "process")


def docker_demo(stage: Stage) -> Played:
    folder = stage.folder / "demo"
    try:
        started = stage.start(*demo_args(stage, "docker"))
        seen = watch(folder, started)
        return Played(folder, "docker", started.end(), seen)
    finally:
        sweep(folder, "docker")


def watch(folder: Path, started: Started) -> list[Seen]:
    """Look at workers while they work, each container once."""
    seen: dict[str, Seen] = {}
    while started.process.poll() is None:
        for name, ident in live(folder, "docker").items():
            if name.endswith("-i1") and ident not in seen:
                look = _look(ident)
                if look is not None:
                    seen[ident] = look
        time.sleep(0.3)
    return list(seen.values())


FILE_LIMIT_BYTES = 8 << 20


def _look(ident: str) -> Seen | None:
    found = inspect(ident)
    if not found or not found[0]["State"]["Running"]:
        return None
    attrs = found[0]
    pids = subprocess.run(
        ["docker", "top", ident, "-eo", "pid"], capture_output=True, text=True, timeout=60, check=False
    ).stdout.split()[1:]
    processes = []
    for pid in pids:
        for name in ("environ", "cmdline"):
            try:
                processes.append(Path(f"/proc/{pid}/{name}").read_bytes())
            except OSError:
                continue  # it ended meanwhile
    files: dict[str, bytes] = {}
    for mount in attrs["Mounts"]:
        for at, _, names in os.walk(mount["Source"]):
            for name in names:
                path = Path(at) / name
                try:
                    if path.is_file() and path.stat().st_size < FILE_LIMIT_BYTES:
                        files[f"{mount['Destination']}/{path.relative_to(mount['Source'])}"] = (
                            path.read_bytes()
                        )
                except OSError:
                    continue  # it is a worker's folder: files come and go
    return Seen(attrs, processes, files)


# ---------------------------------------------------------------- the demo, killed again and again


@dataclass
class Chain:
    """A demo that was killed. `lives` are all lives that were seen of each job, `at_kill` the jobs that ran
    when the director died and `after` those of them that still ran when the next one began."""

    folder: Path
    finished: Finished
    kills: int
    lives: dict[str, set[str]]
    at_kill: list[dict[str, str]]
    after: list[dict[str, str]]


# Together about six sevenths of all boundaries that an undisturbed demo crosses.
PROCESS_KILLS = (40, 95, 70, 110, 85, 100, 65, 120, 80, 90)
DOCKER_KILLS = (150, 300, 250)


def crashed_process_demo(stage: Stage) -> Chain:
    return _chain(stage, "process", PROCESS_KILLS)


def crashed_docker_demo(stage: Stage) -> Chain:
    return _chain(stage, "docker", DOCKER_KILLS)


def _chain(stage: Stage, runtime: str, boundaries: tuple[int, ...]) -> Chain:
    """Dies (SIGKILL, of itself) at a boundary of each run: before or after a record or an effect."""
    folder = stage.folder / "demo"
    lives: dict[str, set[str]] = {}
    chain = Chain(folder, Finished(-1, "", "", 0.0), 0, lives, [], [])
    over = threading.Event()
    watcher = threading.Thread(target=_follow, args=(folder, runtime, lives, over), daemon=True)
    watcher.start()
    try:
        for at in boundaries:
            ended = stage.run(*demo_args(stage, runtime), env={"HARNESS_CRASH_AT": str(at)})
            if ended.code != -signal.SIGKILL:
                chain.finished = ended
                return chain
            chain.kills += 1
            chain.at_kill.append(live(folder, runtime))
            chain.after.append(live(folder, runtime))
        chain.finished = stage.run(*demo_args(stage, runtime))
        return chain
    finally:
        over.set()
        watcher.join(60)
        sweep(folder, runtime)


def _follow(folder: Path, runtime: str, lives: dict[str, set[str]], over: threading.Event) -> None:
    while not over.wait(0.4):
        if (folder / "data" / "instance").exists():
            for name, life in live(folder, runtime).items():
                lives.setdefault(name, set()).add(life)


# ---------------------------------------------------------------- the demo on a forge that misbehaves


@dataclass
class Faulty:
    folder: Path
    finished: Finished
    rules: list[dict[str, Any]]
    report: dict[str, Any]


REST = "^(POST|PATCH|PUT|DELETE) /repos/"
OURS = "^GET /repos/acme/tally/(issues$|issues/[1235]/|pulls/)"  # what the demo's person does not read
LOST_WRITES: dict[str, Any] = {
    "penalty_s": 1.0,
    "config": {},
    "faults": [
        # What was written although the answer says, or does not even say, that it failed.
        {
            "match": "^POST .*/issues/[0-9]+/comments$",
            "kind": "status-after",
            "status": 502,
            "times": 2,
            "skip": 1,
        },
        {"match": "^POST .*/pulls$", "kind": "status-after", "status": 502, "times": 1},
        {"match": "^POST .*/releases$", "kind": "status-after", "status": 502, "times": 1},
        {"match": "^POST .*/pulls$", "kind": "drop-after", "times": 2, "skip": 1},
        {"match": "^POST .*/issues/[0-9]+/comments$", "kind": "drop-after", "times": 2, "skip": 3},
        {"match": "^(POST|DELETE) .*/labels", "kind": "drop-after", "times": 2, "skip": 4},
        {"match": "git-receive-pack$", "kind": "drop-after", "times": 3, "skip": 2},
        {"match": "^GET .*/pulls/", "kind": "mergeable-null", "n": 3},
        {"match": "^GET .*/issues/[0-9]+/comments$", "kind": "stale", "times": 3, "n": 2},
    ],
}
LIMITED: dict[str, Any] = {
    "penalty_s": 1.0,
    "protected": True,
    # One call at a time: of two under way at once the second one cannot know of the first one's penalty.
    "config": {
        "release": {"required_review": "release"},
        "budget": {"github": {"max_concurrent_requests": 1}},
    },
    "faults": [
        {"match": f"{REST}.*/(comments|labels|pulls)", "kind": "secondary-limit", "times": 2, "skip": 4},
        {"match": OURS, "kind": "secondary-limit", "times": 2, "skip": 40},
        {"match": f"{REST}.*/(comments|labels)", "kind": "secondary-limit", "status": 429, "retry_after": 1,
         "times": 2, "skip": 9},
        {"match": OURS, "kind": "secondary-limit", "status": 429, "retry_after": 1, "times": 1, "skip": 70},
        {"match": "/merge$", "kind": "base-modified", "n": 2},
    ],
}  # fmt: skip


def demo_with_lost_writes(stage: Stage) -> Faulty:
    return _faulty(stage, LOST_WRITES)


def demo_with_limits(stage: Stage) -> Faulty:
    return _faulty(stage, LIMITED)


def _faulty(stage: Stage, settings: dict[str, Any]) -> Faulty:
    folder = stage.folder / "demo"
    folder.mkdir(parents=True)
    (stage.folder / "settings.json").write_text(json.dumps(settings))
    program = (sys.executable, str(ROOT / "tests" / "support" / "faulty_demo.py"))
    path = os.pathsep.join((str(ROOT), str(ROOT / "tests" / "support")))
    try:
        ended = stage.run(
            str(folder), str(stage.folder / "settings.json"), program=program, env={"PYTHONPATH": path}
        )
        assert ended.out, ended.told[-4000:]
        d = ended.document
        return Faulty(folder, replace(ended, out=json.dumps(d["demo"])), d["rules"], d["report"])
    finally:
        sweep(folder, "process")
