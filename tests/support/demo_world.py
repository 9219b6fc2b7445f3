"""Demos and small worlds for end-to-end tests: the command line as processes of its own, over a real forge.

The one rule: nothing is looked at from inside the director. What a test reads is what anybody can: the forge,
the engine, the files that are left, the journals, and what the command printed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from harness import __version__
from harness.adapters.store.sql import SqlStore
from harness.compose.parts import runtime_dir
from harness.core.journal import Record
from harness.demo.run import REPO
from harness.forge import dump
from harness.loop import SteadyClock

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "harness" / "demo" / "project"
RUN_LIMIT_S = 400.0
LOOK_S = 0.1
T = TypeVar("T")


class Late(AssertionError):
    """Something that had to happen did not, in time."""


def wait_for(look: Callable[[], T | None], within_s: float, what: str) -> T:
    """The first answer of `look` that is true. Generous: the machine may be loaded."""
    end = time.monotonic() + within_s
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > end:
            raise Late(f"not within {within_s:.0f} s: {what}")
        time.sleep(LOOK_S)


# ---------------------------------------------------------------- processes


@dataclass(frozen=True)
class Finished:
    """A command that ended. `document` is its JSON, empty when it printed none."""

    code: int
    out: str
    told: str
    seconds: float

    @property
    def document(self) -> dict[str, Any]:
        found = json.loads(self.out) if self.out.strip() else {}
        assert isinstance(found, dict), self.out
        return found


@dataclass
class Started:
    """A command that runs. Its output goes to files, so that nothing blocks on a pipe."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path
    began: float

    def told(self) -> str:
        return self.err.read_text(errors="replace")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def end(self, within_s: float = RUN_LIMIT_S) -> Finished:
        try:
            code = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Late(f"still running after {within_s:.0f} s:\n{self.told()[-4000:]}") from None
        return Finished(code, self.out.read_text(), self.told(), time.monotonic() - self.began)


@dataclass
class Stage:
    """Where the runs of one scene live: starts commands and sees that none outlives the session. `images` are
    names of worker images by kind: dev, codex."""

    folder: Path
    images: dict[str, str] = field(default_factory=dict)
    running: list[Started] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)

    def start(self, *args: str, env: Mapping[str, str] | None = None, program: Sequence[str] = ()) -> Started:
        """`harness ARGS` (or another program) of this checkout."""
        if self.closing.is_set():
            raise Late("the session is over")
        self.folder.mkdir(parents=True, exist_ok=True)
        stem = self.folder / f"run-{len(self.running)}-{time.monotonic_ns()}"
        out, err = stem.with_suffix(".out"), stem.with_suffix(".err")
        command = [*(program or (sys.executable, "-m", "harness")), *args]
        with out.open("wb") as o, err.open("wb") as e:
            process = subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL, stdout=o,
                stderr=e,
            )  # fmt: skip
        started = Started(process, out, err, time.monotonic())
        self.running.append(started)
        return started

    def run(
        self, *args: str, env: Mapping[str, str] | None = None, within_s: float = RUN_LIMIT_S,
        program: Sequence[str] = (),
    ) -> Finished:  # fmt: skip
        return self.start(*args, env=env, program=program).end(within_s)

    def close(self) -> None:
        self.closing.set()
        for started in self.running:
            if started.process.poll() is None:
                started.kill()


def demo_args(stage: Stage, runtime: str) -> tuple[str, ...]:
    """The demo in the stage's own folder."""
    image = ("--image", stage.images["dev"]) if runtime == "docker" else ()
    return ("demo", "--runtime", runtime, *image, "--keep", str(stage.folder / "demo"), "--json")


# ---------------------------------------------------------------- what is left behind


def repo_of(folder: Path) -> dict[str, Any]:
    """All that can be seen of the repository on the forge in `folder`."""
    found: dict[str, Any] = dump(folder / "forge")["repos"][REPO]
    return found


def bare_of(folder: Path) -> Path:
    return folder / "forge" / "repos" / f"{REPO}.git"


def git(repo: Path, *args: str) -> str:
    argv = ["git", "--git-dir", str(repo), *args]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


@contextmanager
def store_of(folder: Path) -> Iterator[SqlStore]:
    """The director's store, read-only: also while a director writes to it."""
    store = SqlStore.open(
        folder / "data" / "store.db", clock=SteadyClock(), code=__version__, read_only=True, create=False
    )
    try:
        yield store
    finally:
        store.close()


def journals(folder: Path, kind: str = "") -> dict[str, tuple[Record, ...]]:
    """Every machine of the store (of one kind: "/attempt/") with its records."""
    with store_of(folder) as store:
        return {m: tuple(store.read(m)) for m in store.machines() if kind in m}


def done(records: Sequence[Record], effect: str) -> list[dict[str, Any]]:
    """What the outcomes of an effect say, of those that were done."""
    return [
        r.body.get("value") or {}
        for r in records
        if r.kind == "outcome" and r.body.get("effect") == effect and r.body.get("status") == "done"
    ]


def events(records: Sequence[Record]) -> list[str]:
    return [r.body["event"] for r in records if r.kind == "transition" and r.body["event"]]


def bundles(folder: Path) -> list[Path]:
    return sorted(p for p in (folder / "audits").iterdir() if p.is_dir())


def instance(folder: Path) -> str:
    path = folder / "data" / "instance"
    return path.read_text().strip() if path.is_file() else ""


def docker(*args: str, check: bool = True) -> str:
    done = subprocess.run(
        ["docker", *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
    )
    if check and done.returncode:
        raise AssertionError(f"docker {' '.join(args)}: {done.stderr.strip()}")
    return done.stdout.strip()


def relabel(image: str, tell: Callable[[str], None] = lambda new: None) -> str:
    """Another image of the same content under the same name; its id, told before it gets that name."""
    made = docker("create", image, "true")
    try:
        new = docker("commit", "--change", f"LABEL tests={uuid.uuid4().hex}", made)
    finally:
        docker("rm", made)
    tell(new)
    docker("tag", new, image)
    return new


def containers(folder: Path, *more: str) -> list[str]:
    """Ids of our instance's containers, dead ones too unless `more` filters say otherwise."""
    ours = instance(folder)
    if not ours:
        return []
    return docker(
        "ps", "-a", "-q", "--no-trunc", "--filter", f"label=harness.instance={ours[:8]}", *more
    ).split()


def inspect(*ids: str) -> list[dict[str, Any]]:
    """Of those that are still there; one may be removed between a list and this."""
    out = docker("inspect", *ids, check=False) if ids else ""
    found: list[dict[str, Any]] = json.loads(out or "[]")
    return found


def live(folder: Path, runtime: str) -> dict[str, str]:
    """Names of the jobs that run now, with what tells one life of a job from another."""
    if runtime == "docker":
        found = inspect(*containers(folder, "--filter", "status=running"))
        return {c["Name"].lstrip("/"): c["Id"] for c in found}
    lives = {}
    for job in (folder / "data" / "jobs").glob("*/started.json"):
        if not job.with_name("exit.json").exists():
            try:
                told = json.loads(job.read_text())
            except FileNotFoundError:
                continue
            lives[job.parent.name] = f"{told['pid']}/{told['start_ticks']}"
    return lives


def left_over(folder: Path, runtime: str) -> list[str]:
    """Containers, job folders, clones, sockets and held locks of ours that outlive a director that ended."""
    data = folder / "data"
    left = [f"container {c}" for c in containers(folder)] if runtime == "docker" else []
    for part in ("jobs", "attempts", "gates"):
        left += [f"{part}/{p.name}" for p in (data / part).glob("*")]
    left += [str(p) for p in runtime_dir(data).rglob("*")]
    left += [
        str(p) for p in data.rglob("*.lock") if p.name.endswith((".git.lock", "index.lock", "HEAD.lock"))
    ]
    left += [f"lock {p}" for p in (data / "lock", *data.glob("git/*.lock")) if _held(p)]
    return left


def _held(path: Path) -> bool:
    import fcntl

    with path.open("rb") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def sweep(folder: Path, runtime: str) -> None:
    """Remove what a broken run left: its jobs, its containers, its socket folder. By id and name only."""
    if runtime == "docker":
        ids = containers(folder)
        if ids:
            docker("rm", "-f", *ids, check=False)
    else:
        from harness.adapters.process import ProcessRuntime

        data = folder / "data"
        jobs = ProcessRuntime(data / "jobs", data=data, clock=SteadyClock())
        for status in jobs.ours().unwrap():
            jobs.remove(status.name)
    shutil.rmtree(runtime_dir(folder / "data"), ignore_errors=True)


def terminate(started: Started, within_s: float) -> float:
    """SIGTERM; answers how long it took to end."""
    began = time.monotonic()
    started.process.send_signal(signal.SIGTERM)
    started.process.wait(within_s)
    return time.monotonic() - began
