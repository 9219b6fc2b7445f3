"""Each kind of orphan, and each kind of growth, is found by the soak's own looks when there is one.

The one rule: what is looked for is really there: a process that leaks, a lock that is held, a branch on a forge.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from demo_world import ROOT, bare_of, docker, git, instance, sweep
from director_world import BOT

from harness.compose.parts import runtime_dir
from harness.demo.run import REPO
from harness.forge import Issue, User, seed

sys.path.insert(0, str(ROOT / "benchmarks"))
import soak_life
import soak_orphans

TASKS = 100
GIVEN_UP = [1]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What a soak's folder looks like when all is well: a forge, a data folder, both repositories."""
    folder = tmp_path_factory.mktemp("ended")
    (folder / "tree").mkdir()
    (folder / "tree" / "README.md").write_text("x\n")
    users = (User("acme", role="admin"), User("harness-bot", BOT, "admin"))
    seed(folder / "forge", repo=REPO, tree=folder / "tree", users=users, issues=(Issue("One"),))
    data = folder / "data"
    for name in ("mirror", "quarantine"):
        subprocess.run(["git", "init", "-q", "--bare", data / "git" / f"{name}.git"], check=True, timeout=60)
    (folder / "audits").mkdir()
    (data / "lock").touch()
    (data / "instance").write_text("ab12cd34" * 4)
    git(bare_of(folder), "update-ref", "refs/heads/agent/1", "main")  # a person was told of that one
    yield folder
    sweep(folder, "process")


def counted(folder: Path, runtime: str = "process") -> dict[str, int]:
    found = soak_orphans.found(folder, runtime, GIVEN_UP)
    return {kind: len(lines) for kind, lines in found.items() if lines}


# ---------------------------------------------------------------- one of each


def _ref(ref: str, repo: Callable[[Path], Path]) -> Callable[[Path, ExitStack], object]:
    def plant(folder: Path, undo: ExitStack) -> None:
        sha = git(bare_of(folder), "rev-parse", "main")
        where = repo(folder)
        if where != bare_of(folder):
            git(where, "fetch", "-q", str(bare_of(folder)), "main")
        git(where, "update-ref", ref, sha)
        undo.callback(git, where, "update-ref", "-d", ref)

    return plant


def _folder(name: str) -> Callable[[Path, ExitStack], object]:
    def plant(folder: Path, undo: ExitStack) -> None:
        (folder / name).mkdir(parents=True)
        undo.callback((folder / name).rmdir)

    return plant


def _file(name: str) -> Callable[[Path, ExitStack], object]:
    def plant(folder: Path, undo: ExitStack) -> None:
        (folder / name).touch()
        undo.callback((folder / name).unlink)

    return plant


def _held(folder: Path, undo: ExitStack) -> None:
    file = undo.enter_context((folder / "data" / "lock").open("rb"))
    fcntl.flock(file, fcntl.LOCK_EX)


def _socket(folder: Path, undo: ExitStack) -> None:
    path = runtime_dir(folder / "data") / "gateway.sock"
    path.parent.mkdir(parents=True, exist_ok=True)
    undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)).bind(str(path))
    undo.callback(path.unlink)


def _process(folder: Path, undo: ExitStack) -> None:
    argv = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"]
    env = {**os.environ, "OF": str(folder)}
    p = undo.enter_context(subprocess.Popen(argv, env=env, stdout=subprocess.PIPE))
    undo.callback(p.kill)
    assert p.stdout is not None
    p.stdout.readline()


def _mirror(folder: Path) -> Path:
    return folder / "data" / "git" / "mirror.git"


ORPHANS: dict[str, tuple[str, Callable[[Path, ExitStack], object]]] = {
    "the clone of an attempt": ("clones", _folder("data/attempts/7.1")),
    "the tree of a gate": ("clones", _folder("data/gates/gate-1")),
    "the folder of a job": ("jobs", _folder("data/jobs/h-ab12cd34-acme-tally-7-1-i1")),
    "a branch of an agent": ("branches", _ref("refs/heads/agent/7", bare_of)),
    "the branch of a release": ("branches", _ref("refs/heads/release/0.2.0", bare_of)),
    "a ref of ours": ("refs", _ref("refs/harness/odd", _mirror)),
    "a lock that is held": ("locks", _held),
    "a lock of git": ("locks", _file("data/git/mirror.git/HEAD.lock")),
    "a socket": ("sockets", _socket),
    "a half of a file": ("files", _file("data/.new-1")),
    "a process": ("processes", _process),
}


@pytest.mark.parametrize("what", ORPHANS)
def test_an_orphan_is_counted_by_name(ended: Path, what: str) -> None:
    kind, plant = ORPHANS[what]
    assert counted(ended) == {}
    with ExitStack() as undo:
        plant(ended, undo)
        assert counted(ended) == {kind: 1}
    assert counted(ended) == {}


@pytest.mark.docker
def test_a_container_is_counted_by_name(ended: Path) -> None:
    if subprocess.run(["docker", "version"], capture_output=True, timeout=60, check=False).returncode:
        assert not os.environ.get("HARNESS_REQUIRE_DOCKER"), "no container engine answers"
        pytest.skip("no container engine answers")
    image = os.environ.get("HARNESS_TEST_IMAGE", "harness-base:bookworm")
    made = docker("create", "--label", f"harness.instance={instance(ended)[:8]}", image, "true")
    try:
        assert counted(ended, "docker") == {"containers": 1}
    finally:
        docker("rm", made)
    assert counted(ended, "docker") == {}


def test_open_files_of_what_is_over_are_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fine = [str(data / "store.db"), "socket:[1]", "/dev/null", str(tmp_path / "runs" / "1.err")]
    assert soak_orphans.files_of_what_is_over(tmp_path, fine) == []
    for bad in (str(data / "attempts/7.1/witness.jsonl"), str(data / "store.db-wal (deleted)")):
        assert soak_orphans.files_of_what_is_over(tmp_path, [*fine, bad]) == [f"descriptor of {bad}"]


# ---------------------------------------------------------------- growth

# As a director: threads from the start on, and with each line it is told, a bit more of something.
LEAKS = """
import os, subprocess, sys, threading, time
kept = []
def rest():
    time.sleep(600)
for _ in range({threads}):
    threading.Thread(target=rest, daemon=True).start()
print(flush=True)
for line in sys.stdin:
    {leak}
    print(flush=True)
"""
KINDS = {
    "nothing": ("pass", ""),
    "memory": ("kept.append(bytes(range(256)) * 64)", "memory"),
    "descriptors": ("int(line) % 8 or kept.append(open('/dev/null'))", "descriptors"),
    "threads": ("int(line) % 8 or threading.Thread(target=rest, daemon=True).start()", "threads"),
    "children": ("int(line) % 30 or kept.append(subprocess.Popen(['true']))", "children"),
}


@contextmanager
def leaking(leak: str) -> Iterator[Callable[[int], None]]:
    script = LEAKS.format(threads=soak_life.POOLED + 2, leak=leak)
    argv = [sys.executable, "-c", script]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        life = soak_life.Life(process.pid)
        assert process.stdin is not None and process.stdout is not None

        def settle(n: int) -> None:
            print(n, file=process.stdin, flush=True)
            process.stdout.readline()  # type: ignore[union-attr]
            life.look(float(n), n, name_files=n == TASKS)
            life.look(n + 0.5, n)

        process.stdout.readline()
        settle.life = life  # type: ignore[attr-defined]
        yield settle
        process.kill()


@pytest.mark.parametrize("what", KINDS)
def test_what_grows_with_its_tasks_is_told(what: str) -> None:
    leak, told = KINDS[what]
    with leaking(leak) as settle:
        for n in range(1, TASKS + 1):
            settle(n)
        life: Any = settle.life  # type: ignore[attr-defined]
    found = soak_life.growth(life.looks, TASKS)
    lines = soak_life.grown(found)
    assert found["measured"], found
    assert [line.partition(":")[0].split()[0] for line in lines] == ([told] if told else []), json.dumps(
        found
    )


def test_of_a_short_life_only_what_needs_no_window_is_told() -> None:
    found = soak_life.growth([], TASKS)
    assert found["measured"] is False and soak_life.grown(found) == []


def test_it_looks_only_while_a_director_works() -> None:
    with tempfile.TemporaryFile() as out:
        argv = [sys.executable, "-c", "import time; time.sleep(60)"]
        with subprocess.Popen(argv, stdout=out) as process:
            life = soak_life.Life(process.pid)
            for _ in range(3):
                life.look(time.monotonic(), 1)
            process.kill()
        life.look(time.monotonic(), 1)
    assert life.looks == []
