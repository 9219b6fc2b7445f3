"""The server itself: one at a time, clean ends, state that survives, what `dump` sees, import cost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
from seeded_forge import REPO, World, start

from harness.forge import ForgeError, Issue, User, dump, main_serve, seed, serve

SERVE = """
import sys
from pathlib import Path
from harness.forge import ForgeError, main_serve
try:
    main_serve(Path(sys.argv[1]), "127.0.0.1", int(sys.argv[2]), announce=lambda url: print(url, flush=True))
except ForgeError as error:
    sys.exit(str(error))
print("ended", flush=True)
"""


def run_server(data: Path, port: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SERVE, str(data), str(port)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_state_survives_a_restart_on_the_same_port(world: World) -> None:
    git = world.clone()
    pull = world.pull(git, "feature", {"a.txt": "a\n"})
    world.repo("POST", "/issues/1/comments", {"body": "kept"})
    before, port = world.forge.dump(), world.forge.port
    used = world.forge.report()["total"]
    world.forge.close()
    world.forge.close()
    assert dump(world.forge.state.data_dir) == before
    with serve(world.forge.state.data_dir, port=port) as again:
        assert again.dump() == before
        assert again.report()["total"] == used
        got = httpx.get(f"{again.url}/repos/{REPO}/pulls/{pull['number']}").json()
        assert (got["url"], got["mergeable"]) == (pull["url"], True)


def test_refs_that_moved_while_it_was_down_are_judged_on_start(world: World) -> None:
    git = world.clone()
    pull = world.pull(git, "feature", {"a.txt": "a\n"}, body="Fixes #1")
    data = world.forge.state.data_dir
    world.forge.close()
    git("push", "-q", str(data / "repos" / f"{REPO}.git"), "feature:main")
    with serve(data) as again:
        parts = again.dump()["repos"][REPO]
        assert parts["pulls"][0]["merged"] == 1
        assert {issue["number"]: issue["state"] for issue in parts["issues"]} == {
            1: "closed",
            2: "open",
            pull["number"]: "closed",
        }


def test_one_server_a_directory_and_a_port(world: World, tmp_path: Path) -> None:
    with pytest.raises(ForgeError, match="is served already"):
        serve(world.forge.state.data_dir)
    with pytest.raises(
        ForgeError, match=f"cannot listen on 127.0.0.1:{world.forge.port}: Address already in use"
    ):
        main_serve(tmp_path / "other", "127.0.0.1", world.forge.port)
    with serve(tmp_path / "other"):
        pass


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
def test_the_foreground_server_ends_cleanly(tmp_path: Path, name: signal.Signals) -> None:
    world = start(tmp_path)
    world.forge.close()
    process = run_server(world.forge.state.data_dir)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert httpx.get(f"{url}/repos/{REPO}").status_code == 200
        second = run_server(world.forge.state.data_dir)
        _, said = second.communicate(timeout=30)
        assert (second.returncode, said.count("\n"), "is served already" in said) == (1, 1, True)
        process.send_signal(name)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out, err) == (0, "ended\n", "")
    finally:
        process.kill()


def test_a_killed_server_leaves_its_state_whole(tmp_path: Path) -> None:
    world = start(tmp_path)
    world.forge.close()
    data = world.forge.state.data_dir
    process = run_server(data)
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    headers = {"Authorization": "Bearer t-maker"}
    stop = threading.Event()
    done: list[int] = []

    def write() -> None:
        while not stop.is_set():
            try:
                body = {"body": str(len(done))}
                done.append(
                    httpx.post(
                        f"{url}/repos/{REPO}/issues/1/comments", json=body, headers=headers
                    ).status_code
                )
            except httpx.TransportError:
                return

    writer = threading.Thread(target=write)
    writer.start()
    time.sleep(1.0)
    process.kill()
    process.communicate(timeout=10)
    stop.set()
    writer.join(10)
    kept = len(dump(data)["repos"][REPO]["comments"]) - 1
    assert len(done) <= kept <= len(done) + 1
    assert set(done) == {201}
    with serve(data) as again:
        assert httpx.get(f"{again.url}/repos/{REPO}").status_code == 200


def test_a_client_that_goes_away_harms_nobody(world: World) -> None:
    for request in (
        b"POST /repos/acme/widgets/issues HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{",
        b"GARBAGE\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", world.forge.port), timeout=5) as raw:
            raw.sendall(request)
    assert world.repo("GET", "").status_code == 200


def test_many_at_once_get_numbers_of_their_own(world: World) -> None:
    answers: list[int] = []

    def create() -> None:
        for _ in range(5):
            answers.append(world.repo("POST", "/issues", {"title": "T"}).json()["number"])

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(answers) == list(range(3, 43))


def test_seeding_from_a_directory_heeds_its_gitignore(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "src").mkdir(parents=True)
    (tree / ".gitignore").write_text("*.pyc\n")
    (tree / "src" / "a.py").write_text("A = 1\n")
    (tree / "src" / "a.pyc").write_text("x")
    (tree / "run").write_text("#!/bin/sh\n")
    (tree / "run").chmod(0o755)
    data = tmp_path / "data"
    one = seed(
        data, repo="acme/one", tree=tree, users=[User("acme", token="t")], labels=["go"], at=1_700_000_000
    )
    two = seed(data, repo="acme/two", tree=tree, issues=[Issue("T", labels=("go",))], at=1_700_000_000)
    assert one == two
    path = data / "repos" / "acme" / "one.git"
    listed = subprocess.run(
        ["git", f"--git-dir={path}", "ls-tree", "-r", "main"], capture_output=True, text=True
    )
    assert [(line.split()[0], line.split("\t")[1]) for line in listed.stdout.splitlines()] == [
        ("100644", ".gitignore"),
        ("100755", "run"),
        ("100644", "src/a.py"),
    ]
    (data / "repos" / "acme" / "three.git" / "objects").mkdir(parents=True)
    assert seed(data, repo="acme/three", tree=tree, at=1_700_000_000) == one
    with pytest.raises(ForgeError, match="acme/two exists"):
        seed(data, repo="acme/two")
    with pytest.raises(ForgeError, match="is not a directory"):
        seed(data, repo="acme/four", tree=tmp_path / "nothing")
    with pytest.raises(ForgeError, match="owner/name"):
        seed(data, repo="../x/y")
    assert dump(data)["repos"].keys() == {"acme/one", "acme/two", "acme/three"}
    assert dump(data)["repos"]["acme/two"]["issues"][0]["labels"] == ["go"]


def test_reading_changes_nothing_that_dump_shows(world: World) -> None:
    pull = world.pull(world.clone(), "feature", {"a.txt": "a\n"})
    before = world.forge.dump()
    for path in ("", "/issues", "/pulls", f"/pulls/{pull['number']}", "/commits/main", "/labels"):
        assert world.repo("GET", path).status_code == 200
    assert world.forge.dump() == before
    world.repo("POST", "/issues/1/comments", {"body": "b"})
    assert world.forge.dump() != before
    with pytest.raises(ForgeError, match="holds no forge"):
        dump(world.home)


def test_importing_the_package_is_cheap() -> None:
    heavy = {"uvicorn", "asyncio", "sqlite3", "github"}
    code = f"import sys, harness.forge; print(sorted(set(sys.modules) & {heavy}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert done.stdout == "[]\n"
