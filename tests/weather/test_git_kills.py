"""git is killed in the middle of things: no lock stays, and the same thing works at once.

`benchmarks/git_weather.py` does it two hundred times.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import git_world as world
import pytest
from git_kills import Killed, WallClock

from harness.adapters.git import GitLimits, GitRepo
from harness.adapters.git.locks import heal
from harness.core.result import Err, Ok
from harness.failures import Failure

MAIN = "refs/heads/main"


@pytest.mark.timeout(300)
def test_kills_leave_nothing_that_stays(tmp_path: Path) -> None:
    """Fifteen, or as many as a loaded machine gets through in a minute."""
    tally = Killed(tmp_path, seed=7).play(kills=15, within_s=60.0)
    assert tally.wrong == []
    assert min(tally.kills.values()) > 0, tally
    assert tally.failed > 0, "some were in the middle of it"


@pytest.fixture
def place(tmp_path: Path) -> Killed:
    return Killed(tmp_path, seed=1)


def leave(mirror: Path, *names: str) -> list[Path]:
    """Lock files as young as can be, as a git that was killed a moment ago leaves them."""
    locks = [mirror / name for name in names]
    for lock in locks:
        lock.touch()
    return locks


LOCKS = ("packed-refs.lock", "refs/heads/b0.lock", "refs/heads/main.lock")


def test_young_locks_of_the_dead_go_on_the_way(place: Killed) -> None:
    """Nobody waits until a lock is old: who holds the repository's own lock knows that its writers are dead."""
    locks = leave(place.mirror, *LOCKS)
    do = place._command("fetch", 1)
    assert isinstance(do(), Ok)
    assert not any(lock.exists() for lock in locks[1:2]), "the one that was in the way"
    leave(place.mirror, *LOCKS)
    assert place.repo.prepare() == Ok(None)
    assert place._locks() == []


def test_what_we_run_there_ourselves_is_no_hindrance(place: Killed) -> None:
    """A command of ours that only reads does not keep the dead's locks alive."""
    reading = subprocess.Popen(
        ["git", f"--git-dir={place.mirror}", "cat-file", "--batch"], env=world.CLEAN, stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        leave(place.mirror, *LOCKS)
        assert heal(place.mirror, began=0.0) == (), "who does not hold the repository knows nothing"
        assert len(heal(place.mirror, began=0.0, held=True)) == len(LOCKS)
    finally:
        reading.kill()
        reading.communicate()


def test_a_strangers_live_lock_is_never_robbed(place: Killed) -> None:
    """A person's git in the mirror: not a child of ours, and its lock stays as long as it lives."""
    # A shell in between that ends at once, so that the one that holds it open has another parent.
    hold = f"exec 9>>{place.mirror}/refs/heads/b0.lock; (sleep 60 & echo $! >{place.root}/pid) </dev/null >&- 2>&-"
    subprocess.run(["setsid", "sh", "-c", hold], check=True, timeout=60)
    pid = int((place.root / "pid").read_text())
    try:
        lock = place.mirror / "refs/heads/b0.lock"
        got = place._command("fetch", 1)()
        assert isinstance(got, Err) and got.failure == Failure.INFRA_KILLED and "lock" in got.detail
        assert lock.exists()
    finally:
        os.kill(pid, 9)
    end = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
        time.sleep(0.02)
    assert isinstance(place._command("fetch", 1)(), Ok)
    assert not lock.exists()


def test_another_director_of_the_same_folder_is_waited_for(place: Killed, tmp_path: Path) -> None:
    """The lock files of a live writer in another process: it holds the repository, so we never get to heal."""
    locks = leave(place.mirror, *LOCKS)
    hold = f"exec 9>>{place.mirror.with_suffix('.lock')}; flock 9; echo held; exec sleep 60"
    other = subprocess.Popen(["sh", "-c", hold], stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        ours = GitRepo(
            tmp_path / "data", remote=place.origin.url, token=None, author=("H", "h@acme.example"),
            clock=WallClock(), limits=GitLimits(lock_s=0.5),
        )  # fmt: skip
        got = ours.fetch()
        assert isinstance(got, Err) and got.failure == Failure.INFRA_KILLED
        assert all(lock.exists() for lock in locks)
    finally:
        other.kill()
        other.communicate()
    assert isinstance(place._command("fetch", 1)(), Ok)
