"""Pushes that are cut, by the client or by the forge's own death: no git of the forge outlives them.

The one rule: what is looked for is the processes themselves, by the folder that they serve.
"""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from seeded_forge import REPO, World

from harness.forge import Settings, serve

SERVE = """
import sys
from pathlib import Path
from harness.forge import main_serve
main_serve(Path(sys.argv[1]), "127.0.0.1", 0, announce=lambda url: print(url, flush=True))
"""
# The first lines of a push of a new ref, and a pack that never comes to its end.
OLD, NEW = "0" * 40, "1" * 40
COMMAND = f"{OLD} {NEW} refs/heads/cut\0 report-status agent=git/2.39.5"
BODY = f"{len(COMMAND) + 4:04x}{COMMAND}0000".encode() + b"PACK\0\0\0\2\0\0\0\3" + b"\x95" * 10


def push(url: str, *, chunked: bool) -> socket.socket:
    """A push that has said much of what it announced, and is silent now."""
    host, port = url.removeprefix("http://").split(":")
    told = "Transfer-Encoding: chunked" if chunked else "Content-Length: 100000"
    auth = base64.b64encode(b"x-access-token:t-maker").decode()
    head = (
        f"POST /{REPO}.git/git-receive-pack HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Basic {auth}\r\n"
        f"Content-Type: application/x-git-receive-pack-request\r\n{told}\r\n\r\n"
    )
    body = b"%x\r\n%s\r\n" % (len(BODY), BODY) if chunked else BODY
    line = socket.create_connection((host, int(port)), timeout=30)
    line.sendall(head.encode() + body)
    return line


def gits(data: Path) -> list[int]:
    """Live processes that serve this folder's repositories."""
    mark, found = f"GIT_PROJECT_ROOT={(data / 'repos').resolve()}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue  # it has ended meanwhile
    return found


def until(true: Callable[[], bool], what: str, within_s: float = 60.0) -> None:
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.05)


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_a_push_that_its_client_cuts_leaves_no_git(world: World, chunked: bool) -> None:
    data = world.forge.state.data_dir
    line = push(world.forge.url, chunked=chunked)
    until(lambda: len(gits(data)) >= 2, "it is received")
    line.close()
    until(lambda: not gits(data), "its git ends")
    git = world.clone()
    git("push", "-q", "origin", "HEAD:refs/heads/cut")
    assert [p.name for p in data.rglob("*.lock")] == ["serve.lock"]


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_a_forge_that_is_killed_in_a_push_leaves_no_git(world: World, chunked: bool) -> None:
    data = world.forge.state.data_dir
    world.forge.close()
    command = [sys.executable, "-c", SERVE, str(data)]
    forge = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert forge.stdout is not None
        line = push(forge.stdout.readline().strip(), chunked=chunked)
        until(lambda: len(gits(data)) >= 2, "it is received")
        forge.kill()
        until(lambda: not gits(data), "its git ends, and does not read an end that never comes")
        line.close()
    finally:
        forge.kill()
        forge.communicate()
        for pid in gits(data):
            os.kill(pid, signal.SIGKILL)
    with serve(data) as again:
        assert "refs/heads/cut" not in again.dump()["repos"][REPO]["refs"]


def test_a_push_that_hangs_ends_in_time_and_with_what_it_started(world: World) -> None:
    data = world.forge.state.data_dir
    port = world.forge.port
    world.forge.close()
    with serve(data, port=port, settings=Settings(git_timeout_s=1.0)) as forge:
        line = push(forge.url, chunked=False)
        until(lambda: len(gits(data)) >= 2, "it is received")
        until(lambda: not gits(data), "its git ends")
        line.close()
