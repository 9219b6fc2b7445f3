"""Starts that cannot work: one line that says what, where and what to do, and the right exit code."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_world import Demo, run

START_S = 30.0


def refused(demo: Demo, code: int, **more: str) -> str:
    """The one line of a director that does not start."""
    told = run(
        "director", "--until-idle", "--config", demo.config, cwd=demo.folder, timeout_s=START_S, **more
    )
    assert (told.code, told.out) == (code, ""), told.err
    assert "Traceback" not in told.err
    lines = told.err.splitlines()
    assert len(lines) == 1, told.err
    assert lines[0].startswith("harness director: ")
    return lines[0].removeprefix("harness director: ")


def test_an_unknown_key_names_the_nearest(copy):
    copy.change(director={"max_worker": 2})
    line = refused(copy, 2)
    assert "harness.toml:" in line
    assert line.endswith("director.max_worker: unknown key; did you mean max_workers?")
    checked = run("config", "check", "--config", copy.config, cwd=copy.folder)
    assert checked.code == 2 and checked.err.endswith("did you mean max_workers?\n")


MISTAKES = (
    ("[director]\nmax_workers = 'two'\n", "harness.toml:2: director.max_workers: expected a whole number"),
    ("[director]\nmax_workers = 0\n", "harness.toml:2: director.max_workers: expected at least 1"),
    (
        "[director]\nmax_workers = 2\nmax_workers = 3\n",
        "harness.toml:3: the same key twice: keep one of them",
    ),
    ("[director\n", "harness.toml:1: not TOML"),
    ('[forge]\ntoken = "ghp_secret"\n', "a secret is never written here: use token_env or token_file"),
    (
        '[git]\nauthor = "${NOBODY_SET_THIS}"\n',
        "git.author: the environment variable NOBODY_SET_THIS is not set",
    ),
)


@pytest.mark.parametrize(("text", "why"), MISTAKES)
def test_a_mistake_in_the_file_is_found_without_asking_anybody(text, why, tmp_path):
    (tmp_path / "harness.toml").write_text(text)
    for command in (("config", "check"), ("director",), ("status",), ("try", "3")):
        told = run(*command, cwd=tmp_path)
        assert (told.code, told.out) == (2, "")
        assert why in told.err and "ghp_secret" not in told.err
        assert len(told.err.splitlines()) == 1


def test_a_token_that_is_not_there(copy):
    copy.change(forge={"token_file": "", "token_env": "NO_SUCH_TOKEN"})
    assert refused(copy, 2) == "forge.token_env: the environment variable NO_SUCH_TOKEN is not set or empty"
    (copy.folder / "token").unlink()
    copy.change(forge={"token_file": str(copy.folder / "token")})
    assert refused(copy, 2) == f"forge.token_file: {copy.folder / 'token'}: No such file or directory"


def test_a_token_that_is_refused(copy, forge):
    (copy.folder / "token").write_text("another")
    line = refused(copy, 1)
    assert "credential" in line or "token" in line


def test_a_forge_that_is_not_there(copy):
    """The demo's forge has ended with the demo."""
    assert refused(copy, 1).startswith("the repository cannot be read: ")


def test_an_image_that_is_not_there(copy, engine):
    copy.change(containers={"runtime": "docker", "image": "harness-worker:nowhere"})
    line = refused(copy, 1)
    assert line.startswith("image harness-worker:nowhere is not on the engine at ")
    assert "set containers.image" in line


def test_an_engine_that_is_not_there(copy):
    copy.change(containers={"runtime": "docker", "image": "x", "docker_host": "unix:///nowhere/docker.sock"})
    line = refused(copy, 1)
    assert "/nowhere/docker.sock" in line and line.endswith("start one, or set containers.runtime")


def test_no_isolation_for_a_forge_that_is_not_local(copy):
    copy.change(forge={"url": "https://forge.example"})
    line = refused(copy, 1)
    assert line.startswith("containers.runtime: without a container engine workers are not isolated")
    assert "HARNESS_UNSAFE_PROCESS=1" in line


def test_a_port_in_use(copy, forge):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        copy.change(gateway={"listen": at})
        assert at in refused(copy, 1)


def test_a_play_that_is_not_there(copy, forge):
    copy.change(agent={"command": [str(copy.folder / "nowhere.json")]})
    assert refused(copy, 2) == f"agent.command: the play {copy.folder / 'nowhere.json'} is not there"


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A file system of 400 KiB."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0 or os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("free_kib", [2, 15, 60, 120])
def test_a_full_disk(free_kib, copy, forge, tiny):
    (tiny / "filler").write_bytes(b"\0" * ((400 - free_kib - 4) << 10))
    copy.change(director={"data_dir": str(tiny / "data")})
    line = refused(copy, 1).lower()
    # SQLite says of its shared memory only that there was an error.
    assert any(x in line for x in ("no space left", "the disk is full", "owner, mode and disk"))
    assert shutil.disk_usage(tiny).free < 130 << 10


def test_a_store_that_is_damaged_is_left_alone(copy):
    path = copy.folder / "data/store.db"
    for p in (path.with_name("store.db-wal"), path.with_name("store.db-shm")):
        p.unlink(missing_ok=True)
    raw = bytearray(path.read_bytes())
    raw[100:4096] = b"\xff" * 3996
    path.write_bytes(raw)
    for command in ("status", "pause", "director"):
        told = run(command, "--config", copy.config, cwd=copy.folder)
        assert told.code == 1, told.err
        assert "harness rebuild" in told.err and len(told.err.splitlines()) == 1
    assert path.read_bytes() == raw


def test_a_store_of_a_newer_version(copy):
    import sqlite3

    db = sqlite3.connect(copy.folder / "data/store.db")
    db.execute("UPDATE alembic_version SET version_num = '9999'")
    db.commit()
    db.close()
    for command in ("status", "director"):
        told = run(command, "--config", copy.config, cwd=copy.folder)
        assert told.code == 1
        assert "has schema 9999" in told.err and "install the newer version" in told.err
