"""Fetches and pushes over a line that stalls, is reset or crawls, against the embedded forge.

What must hold whatever the byte at which it breaks: the deadline, refs of before or after and nothing between,
the forge's own list of refs decides what a push came to, and the next try simply works.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import git_world as world
import pytest
from bad_line import DOWN, UP, BadLine

from harness.adapters.git import GitLimits, GitRepo
from harness.core.result import Err, Ok, Result
from harness.failures import Failure
from harness.forge import User, seed, serve

NAME = "acme/widget"
MAIN = "refs/heads/main"
TOKEN = "70ce" * 10
DEADLINE_S = 6.0  # of what breaks
EASY_S = 120.0  # of what has to work
# From the first bytes of the discovery into the middle of a pack of 400 kB, and beyond its end.
BYTES = (0, 300, 20_000, 150_000, 100_000_000)
KINDS = ("stall", "reset")
AT_ONCE = 8


class WallClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


def noise(seed_: int, size: int = 200_000) -> str:
    """Text that does not compress."""
    return random.Random(seed_).randbytes(size).hex()


@dataclass
class Forge:
    """The embedded forge with one commit on main, and the folder of a test."""

    served: Any
    root: Path
    first: str

    def repo(self, name: str, url: str, **limits: float) -> GitRepo:
        limits = {"fetch_s": DEADLINE_S, "push_s": DEADLINE_S, **limits}
        made = GitRepo(
            self.root / name, remote=f"{url}/{NAME}.git", token=lambda: TOKEN, clock=WallClock(),
            author=("Harness", "harness@acme.example"), limits=GitLimits(**limits),  # type: ignore[arg-type]
        )  # fmt: skip
        assert made.prepare() == Ok(None)
        return made

    def refs(self) -> dict[str, str]:
        found: dict[str, str] = self.served.dump()["repos"][NAME]["refs"]
        return found


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[Forge]:
    users = (User("acme", role="admin"), User("harness-bot", TOKEN, "admin"))
    first = seed(tmp_path / "forge", repo=NAME, files={"README.md": "widget\n"}, users=users)
    served = serve(tmp_path / "forge")
    try:
        yield Forge(served, tmp_path, str(first))
    finally:
        served.close()


def everywhere(forge: Forge, ways: tuple[str, ...], one: Any) -> list[Any]:
    """Each kind of fault, each way, at each byte; a few at a time, since most of them only wait."""
    cases = list(itertools.product(KINDS, ways, BYTES))

    def play(case: tuple[str, str, int]) -> Any:
        with BadLine(forge.served.url) as line:
            return one(line, *case)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(play, cases))


def settled(folder: Path, repo: GitRepo) -> None:
    """Nothing is left of a command that broke: no process, no lock of git; what is there is whole."""
    mirror = folder / "git" / "mirror.git"
    assert not list(mirror.rglob("*.lock"))
    assert not working_in(folder)
    world.git("fsck", "--connectivity-only", "--no-dangling", cwd=mirror)


def working_in(folder: Path) -> list[str]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            home = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue  # it has ended meanwhile
        if line.startswith("git") and os.fsencode(f"{folder}/") in home:
            found.append(line)
    return found


# ---------------------------------------------------------------- fetch


def test_a_fetch_that_breaks_anywhere_is_all_or_nothing(forge: Forge) -> None:
    origin = person(forge)
    names = {f"refs/heads/topic-{n}": origin.push(n) for n in range(2)}
    wanted = {MAIN: forge.first, **names}

    def one(line: BadLine, kind: str, way: str, at_bytes: int) -> tuple[bool, bool]:
        name = f"{kind}-{way}-{at_bytes}"
        repo = forge.repo(name, line.url)
        fault = line.break_at(kind, way, at_bytes)
        began = time.monotonic()
        got = repo.fetch()
        assert time.monotonic() - began < 4 * DEADLINE_S, name
        here = repo.mirror.refs("refs/heads/")
        assert here in ({}, wanted), name
        if isinstance(got, Err):
            assert (got.failure, got.maybe) == (Failure.FORGE_DOWN, False), (name, got)
        else:
            assert here == wanted, name
        settled(forge.root / name, repo)
        line.mend()
        repo = forge.repo(name, line.url, fetch_s=EASY_S)
        assert repo.fetch() == Ok(wanted), name
        settled(forge.root / name, repo)
        return fault.fired, isinstance(got, Err)

    seen = everywhere(forge, (UP, DOWN), one)
    assert sum(broke for _, broke in seen) > len(seen) // 3 and not all(fired for fired, _ in seen)


# ---------------------------------------------------------------- push


def test_a_push_that_breaks_anywhere_happened_or_not_and_the_forge_says_which(forge: Forge) -> None:
    def one(line: BadLine, kind: str, way: str, at_bytes: int) -> tuple[bool, bool, bool]:
        name = f"{kind}-{way}-{at_bytes}"
        ref = f"refs/heads/agent/{name}"
        good = forge.repo(name, forge.served.url, fetch_s=EASY_S, push_s=EASY_S)
        assert isinstance(good.fetch(), Ok)
        sha = work(forge.root / name, forge.first, name)
        bad = forge.repo(name, line.url)
        fault = line.break_at(kind, way, at_bytes)
        began = time.monotonic()
        got = bad.push(ref, sha, "")
        assert time.monotonic() - began < 8 * DEADLINE_S, name
        there = forge.refs().get(ref, "")
        assert there in ("", sha), name
        said(got, there, sha, name)
        line.mend()
        assert good.push(ref, sha, "") == Ok(sha), name
        assert forge.refs()[ref] == sha
        settled(forge.root / name, bad)
        return fault.fired, isinstance(got, Ok), bool(there)

    seen = everywhere(forge, (UP, DOWN), one)
    assert any(fired and fine for fired, fine, _ in seen), "an answer was lost, and the list of refs told"
    assert any(fired and not fine for fired, fine, _ in seen)
    expected = {f"refs/heads/agent/{k}-{w}-{n}" for k, w, n in itertools.product(KINDS, (UP, DOWN), BYTES)}
    assert set(forge.refs()) == {MAIN, *expected}, "each there once, and nothing else"


def said(got: Result[str], there: str, sha: str, name: str) -> None:
    """What a push may answer, given what the forge has now."""
    if isinstance(got, Ok):
        assert there == sha, name
        return
    assert isinstance(got, Err) and got.failure == Failure.FORGE_DOWN, (name, got)
    assert got.maybe or not there, (name, "it happened, and was denied")


# ---------------------------------------------------------------- slow, and not broken


def test_a_line_that_crawls_and_goes_on_is_no_fault(forge: Forge) -> None:
    """Each block is late; together they take longer than the time in which nothing may come."""
    origin = person(forge)
    tip = origin.push(0)
    with BadLine(forge.served.url, delay_s=0.05) as line:
        repo = forge.repo("slow", line.url, fetch_s=120.0, push_s=120.0, stall_s=2)
        assert repo.fetch() == Ok({MAIN: forge.first, "refs/heads/topic-0": tip})
        sha = work(forge.root / "slow", forge.first, "slow")
        assert repo.push("refs/heads/agent/1", sha, "") == Ok(sha)
    assert forge.refs()["refs/heads/agent/1"] == sha


def test_a_stall_ends_before_the_deadline(forge: Forge) -> None:
    """Silence is noticed by itself: the deadline is for the whole of a large fetch."""
    person(forge).push(0)
    with BadLine(forge.served.url) as line:
        repo = forge.repo("stalled", line.url, fetch_s=100.0, stall_s=2)
        line.break_at("stall", DOWN, 100_000)
        began = time.monotonic()
        got = repo.fetch()
        assert time.monotonic() - began < 50.0
        assert isinstance(got, Err) and got.failure == Failure.FORGE_DOWN
        assert repo.mirror.refs("refs/heads/") == {}


# ---------------------------------------------------------------- people and work


@dataclass
class Person:
    """Somebody with a clone of their own, who pushes topics."""

    forge: Forge
    folder: Path

    def push(self, number: int) -> str:
        world.git("checkout", "-q", "-f", "--detach", self.forge.first, cwd=self.folder)
        sha = world.commit(self.folder, {f"topic-{number}": noise(number)})
        address = self.forge.served.url.replace("http://", f"http://x-access-token:{TOKEN}@")
        spec = f"{sha}:refs/heads/topic-{number}"
        world.git("push", "-q", f"{address}/{NAME}.git", spec, cwd=self.folder)
        return sha


def person(forge: Forge) -> Person:
    folder = forge.root / "person"
    world.git("clone", "-q", f"{forge.served.url}/{NAME}.git", str(folder), cwd=forge.root)
    return Person(forge, folder)


def work(data: Path, base: str, name: str) -> str:
    """A commit of 400 kB on top of `base`, in the mirror, as an imported bundle would leave it."""
    mirror = data / "git" / "mirror.git"
    blob = world.blob_of(mirror, noise(len(name) * 1000 + sum(name.encode())).encode())
    return world.commit_of(mirror, world.tree_of(mirror, [("100644", blob, name)]), base)
