"""A soak: many tasks with things going wrong, on a real forge and real git, one director after the other.

    python benchmarks/soak.py --tasks 200 --runtime process --faults 0.2 --json

A share of the tasks goes wrong in one of a dozen ways (`tests/support/soak_tasks.py`), the same share of the
forge's writes fails before or after it was done, workers and directors are killed. The one rule: a director is
only started, killed and waited for; what came of it is read from the world (`soak_orphans.py`, `soak_life.py`,
`tests/support/remains.py`). Exit code 1 where something was left behind, done twice, lost, or grew.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import remains  # noqa: E402
import soak_orphans  # noqa: E402
from demo_world import Finished, Stage, Started, docker, journals  # noqa: E402
from director_world import World  # noqa: E402
from soak_life import Life, grown, growth  # noqa: E402
from soak_tasks import CHECK, LANDS, Task, forge_faults, play, tasks  # noqa: E402

SETTLED = frozenset({"LANDED", "RELEASED", "DEFERRED", "BLOCKED"})
STATE = re.compile(r'machine"?[=:] ?"?ticket/(\d+)"?.*?state"?[=:] ?"?([A-Z]+)')
# The repository's own file comes before the operator's: the demo's would run its tests.
PROJECT = {".harness.toml": f"[validation]\ncommands = [{json.dumps(CHECK)}]\n"}
# More requests than the forge allows in an hour are made in one; its limits are played by its faults.
FORGE: dict[str, Any] = {"secondary_penalty_s": 1.0, "primary_limit": 1_000_000}
LOOK_S = 0.2
SAMPLE_S = 1.0
KILLS_WITHIN = 0.2  # the last director lives through the rest of the tasks, and is the one that is measured
STALL_S = 600.0


@dataclass
class Soak:
    """One soak in one folder. `killed` counts what was killed by kind."""

    folder: Path
    runtime: str
    count: int
    faults: float
    forge_faults: float
    seed: int
    kills: int
    workers: int
    image: str
    within_s: float
    chosen: tuple[Task, ...] = ()
    states: dict[int, str] = field(default_factory=dict)
    read: int = 0
    victims: set[str] = field(default_factory=set)
    lives: list[Life] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:7.1f} s  {text}", file=sys.stderr, flush=True)

    def config(self) -> dict[str, Any]:
        return {
            "director": {"max_workers": self.workers, "interval_seconds": 1.0},
            "timeouts": {"idle_seconds": 15, "stop_grace_seconds": 1},
            # Large enough that the lane of a release is not often waited for.
            "release": {"batch_size": max(self.count // 4, 4)},
            "validation": {"commands": [CHECK]},
            "retry": {"initial_seconds": 0.2, "max_seconds": 2.0, "jitter": 0.2},
            "log": {"format": "json"},
        }

    # ------------------------------------------------------------ the night

    def run(self) -> dict[str, Any]:
        dice = random.Random(self.seed)
        self.chosen = tasks(self.count, self.faults, dice)
        (self.folder / "tmp").mkdir(parents=True)
        stage = Stage(self.folder / "runs")
        world = World(
            stage, self.folder, self.runtime, [t.title for t in self.chosen],
            {str(t.number): play(t) for t in self.chosen}, self.config(), PROJECT, image=self.image,
            env={"TMPDIR": str(self.folder / "tmp")},
        )  # fmt: skip
        try:
            with world:
                state = world.forge.state
                state.settings = replace(state.settings, **FORGE)
                world.forge.set_faults(*forge_faults(self.forge_faults, self.seed))
                last = self._directors(world, dice)
                fired = sum(rule["fired"] for rule in world.forge.faults.show())
                return self._document(world, last, fired)
        finally:
            stage.close()

    def _directors(self, world: World, dice: random.Random) -> Finished:
        marks = [round(self.count * KILLS_WITHIN * (i + 1) / max(self.kills, 1)) for i in range(self.kills)]
        for n, mark in enumerate(marks, 1):
            started = self._start(world)
            if not self._until(world, started, lambda mark=mark: len(self.settled()) >= mark):
                break
            time.sleep(dice.uniform(0.0, 2.0))
            started.kill()
            self.say(f"director {n} killed; {len(self.settled())} of {self.count} settled")
        started = self._start(world)
        self._until(world, started, lambda: False)
        return started.end(60)

    def _start(self, world: World) -> Started:
        self.read = 0
        started = world.start("director", "--until-idle", "--json")
        self.lives.append(Life(started.process.pid))
        return started

    def _until(self, world: World, started: Started, done: Any) -> bool:
        """Looks on until that is so; False when the director ended by itself. Raises when nothing moves."""
        moved, before, sampled, said = time.monotonic(), 0, 0.0, 0.0
        while started.process.poll() is None:
            now = time.monotonic()
            settled = len(self.settled())
            if now - sampled >= SAMPLE_S:
                sampled = now
                self.lives[-1].look(now - self.began, settled, name_files=settled == self.count)
            self._hear(started)
            if self.runtime == "process" or sampled == now:
                self._murder(world)
            if done():
                return True
            if self.read != before:
                moved, before = now, self.read
            if now - said >= 30:
                said = now
                self.say(f"{settled} of {self.count} settled, {self.lives[-1].looks[-1:]}")
            if now - moved > STALL_S or now - self.began > self.within_s:
                started.kill()
                raise SystemExit(f"soak: stuck; {self._open()}\n{started.told()[-3000:]}")
            time.sleep(LOOK_S)
        return False

    def settled(self) -> list[int]:
        return [n for n, state in self.states.items() if state in SETTLED]

    def _open(self) -> dict[int, str]:
        return {n: state for n, state in self.states.items() if state not in SETTLED}

    def _hear(self, started: Started) -> None:
        """What the director's log says of tickets since the last look."""
        with started.err.open("rb") as log:
            log.seek(self.read)
            new = log.read()
        whole = new[: new.rfind(b"\n") + 1]
        self.read += len(whole)
        for number, state in STATE.findall(whole.decode("utf-8", "replace")):
            self.states[int(number)] = state

    def _murder(self, world: World) -> None:
        """SIGKILL for the first worker of each task that is meant for it, once its agent works."""
        over = {str(n) for n in self.settled()} | self.victims
        meant = {str(t.number) for t in self.chosen if t.kind == "killed"} - over
        if not meant:
            return  # with an engine, each look for them costs as much as a worker's second
        for name, life in world.live().items():
            end = re.search(r"-(\d+)-1-i1$", name)
            if end is None or end[1] not in meant:
                continue
            if self.runtime == "docker":
                docker("kill", life, check=False)
            elif not _kill_worker(world.folder / "data", f"{end[1]}.1", int(life.split("/")[0])):
                continue
            self.victims.add(end[1])

    # ------------------------------------------------------------ what came of it

    def _document(self, world: World, last: Finished, fired: int) -> dict[str, Any]:
        self.say("all is settled; a director that finds nothing to do")
        world.forge.set_faults()
        before = _writes(world)
        calm = world.run("director", "--until-idle", "--json")
        given_up = [t.number for t in self.chosen if t.end != LANDS]
        looks = self.lives[-1].looks
        (self.folder / "looks.json").write_text(json.dumps([asdict(x) for x in looks]))
        life = growth(looks, self.count)
        orphans = self._orphans(given_up, life)
        problems = {
            "left_behind": [line for lines in orphans.values() for line in lines],
            "twice": remains.twice(self.folder),
            "lost": remains.lost(self.folder, self.chosen),
            "grown": grown(life),
            "exit": [f"code {x.code}: {x.told[-500:]}" for x in (last, calm) if x.code],
            "written_when_idle": _writes(world)[len(before) :],
        }
        counts = _counts(self.folder)
        return {
            "ok": not any(problems.values()), "tasks": self.count, "runtime": self.runtime,
            "faults": self.faults, "forge_rate": self.forge_faults, "seed": self.seed,
            "seconds": round(time.monotonic() - self.began, 1),
            "wrong": sum(1 for t in self.chosen if t.kind), "forge_faults": fired,
            "workers_killed": len(self.victims), "directors": len(self.lives), "director": life, **counts,
            "store_kib": (self.folder / "data" / "store.db").stat().st_size >> 10,
            "orphans": {kind: len(lines) for kind, lines in orphans.items()}, "problems": problems,
        }  # fmt: skip

    def _orphans(self, given_up: list[int], life: dict[str, Any]) -> dict[str, list[str]]:
        """By kind. Threads and descriptors are those of the last director, at its last look."""
        found = soak_orphans.found(self.folder, self.runtime, given_up)
        found["descriptors"] = soak_orphans.files_of_what_is_over(self.folder, self.lives[-1].names)
        over = life["threads"]["peak"] - life["threads"]["most"]
        found["threads"] = [f"{over} threads more than all pools together have"] if over > 0 else []
        return found


def _kill_worker(data: Path, attempt: str, shim: int) -> bool:
    """The worker below its shim, once its agent runs."""
    if not any((data / "attempts" / attempt / "audit" / "jobs").glob("*/started.json")):
        return False
    argv = ["pgrep", "--parent", str(shim)]
    found = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False).stdout.split()
    for pid in found:
        with contextlib.suppress(OSError):
            os.kill(int(pid), signal.SIGKILL)
    return bool(found)


def _writes(world: World) -> list[str]:
    """What the director asked the forge to change, git apart."""
    import sqlite3

    with contextlib.closing(sqlite3.connect(world.folder / "forge" / "forge.db")) as db:
        rows = db.execute(
            "SELECT method, path FROM requests WHERE NOT is_git AND method != 'GET' AND user = 'harness-bot'"
        )
        return [f"{method} {path}" for method, path in rows]


def _counts(folder: Path) -> dict[str, Any]:
    """From the journals: how much was done, and how often again."""
    attempts = journals(folder, "/attempt/")
    return {
        "attempts": len(attempts),
        "records": sum(len(r) for r in journals(folder).values()),
        "releases": len(journals(folder, "/release/")),
    }


@contextlib.contextmanager
def _folder(given: str | None) -> Iterator[Path]:
    if given:
        Path(given).mkdir(parents=True)
        yield Path(given).absolute()
        return
    with tempfile.TemporaryDirectory(prefix="soak-") as made:
        yield Path(made)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--runtime", choices=("process", "docker"), default="process")
    parser.add_argument("--faults", type=float, default=0.2, help="share of tasks that go wrong")
    parser.add_argument("--forge-faults", type=float, help="share of the forge's writes; default: the same")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, help="directors that are killed; default: one for 20 tasks")
    parser.add_argument("--workers", type=int, default=6, help="at the same time")
    parser.add_argument("--image", default="harness-worker:dev", help="for --runtime docker")
    parser.add_argument("--keep", help="a new folder for everything, kept; default: a temporary one")
    parser.add_argument("--within", type=float, default=3600.0, help="seconds for all of it")
    parser.add_argument("--json", action="store_true", help="one document on stdout")
    given = parser.parse_args(argv)
    for number in (signal.SIGTERM, signal.SIGINT):  # the world is swept when it ends early
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    kills = given.kills if given.kills is not None else max(given.tasks // 20, 1)
    forge = given.faults if given.forge_faults is None else given.forge_faults
    image = given.image if given.runtime == "docker" else ""
    with _folder(given.keep) as folder:
        document = Soak(
            folder, given.runtime, given.tasks, given.faults, forge, given.seed, kills, given.workers, image,
            given.within,
        ).run()  # fmt: skip
    if given.json:
        print(json.dumps(document, indent=2))
    else:
        for key, value in document.items():
            print(f"{key:<16} {value}")
    return 0 if document["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
