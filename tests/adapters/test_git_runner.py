"""How git is run: environment, deadlines, process groups, locks. Real git and real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import git_world as world

from harness.adapters.git import GitLimits, GitRepo
from harness.adapters.git.errors import FailedError, Ran, classify
from harness.adapters.git.locks import RepositoryLock, heal
from harness.adapters.git.runner import Runner
from harness.core.result import Err, Ok
from harness.failures import Failure

MAIN = "refs/heads/main"


class FixedClock:
    def now(self) -> float:
        return 1_700_000_000.0

    def monotonic(self) -> float:
        return 0.0


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(
        tmp_path / "home", remote="file:///none", token=None, limits=GitLimits(output_bytes=1 << 20)
    )


def repo_at(root: Path, **more: object) -> tuple[world.Origin, GitRepo]:
    origin = world.Origin(root / "forge")
    origin.push(MAIN, {"a": "1"})
    made = GitRepo(
        root / "data",
        remote=origin.url,
        token=None,
        author=("Harness", "harness@acme.example"),
        clock=FixedClock(),
        **more,  # type: ignore[arg-type]
    )
    return origin, made


# ---------------------------------------------------------------- the environment


def test_nothing_of_the_host_reaches_git(tmp_path: Path, runner: Runner) -> None:
    hostile = tmp_path / "hostile"
    hostile.write_text("[core]\n\tpager = false\n[user]\n\tname = Mallory\n")
    planted = {
        "GIT_DIR": "/nonexistent",
        "GIT_CONFIG_PARAMETERS": "'user.name=Mallory'",
        "GIT_CONFIG_GLOBAL": str(hostile),
        "GIT_EXTERNAL_DIFF": "false",
        "GIT_SSH_COMMAND": "false",
        "MODEL_API_KEY": "canary",
    }
    old = dict(os.environ)
    os.environ.update(planted)
    try:
        seen = runner.run("-c", "alias.env=!env", "env").text
        assert runner.run("config", "--get", "user.name").code == 1
    finally:
        os.environ.clear()
        os.environ.update(old)
    names = {line.partition("=")[0] for line in seen.splitlines()}
    assert not names & {"GIT_CONFIG_PARAMETERS_", "GIT_EXTERNAL_DIFF", "GIT_SSH_COMMAND", "MODEL_API_KEY"}
    assert "Mallory" not in seen and "canary" not in seen
    for must in (
        "GIT_OPTIONAL_LOCKS=0",
        "GIT_TERMINAL_PROMPT=0",
        "GIT_CONFIG_NOSYSTEM=1",
        "GIT_ATTR_NOSYSTEM=1",
    ):
        assert must in seen


def test_every_command_runs_without_optional_locks_and_without_a_shell(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    log = tmp_path / "log"
    git = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
    (tools / "git").write_text(
        f'#!/bin/sh\necho "${{GIT_OPTIONAL_LOCKS:-none}} $*" >> {log}\nexec {git} "$@"\n'
    )
    (tools / "git").chmod(0o755)
    origin, repo = repo_at(tmp_path)
    main = origin.ref(MAIN)
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{tools}:{path}"
    try:
        results = [
            repo.prepare(),
            repo.fetch(),
            repo.clone(tmp_path / "clone", main, "agent/1", "main"),
            repo.checkout(tmp_path / "gate", main),
            repo.push("refs/heads/agent/1", main, ""),
            repo.read_file(main, "a"),
            repo.changes(main, main),
        ]
    finally:
        os.environ["PATH"] = path
    assert all(isinstance(r, Ok) for r in results), results
    lines = [line for line in log.read_text().splitlines() if line != "none version"]
    assert len(lines) > 10
    assert all(line.startswith("0 ") for line in lines), lines
    assert not any(" --force " in line or line.endswith(" -f") for line in lines)


def test_a_repository_of_another_uid_is_no_hindrance(tmp_path: Path) -> None:
    """git's own test switch: every repository counts as somebody else's."""
    origin, repo = repo_at(tmp_path, env={"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"})
    main = origin.ref(MAIN)
    assert repo.prepare() == Ok(None)
    assert repo.fetch() == Ok({MAIN: main})
    folder = tmp_path / "data/clones/1.1"
    assert repo.clone(folder, main, "agent/1", "main") == Ok(None)
    assert repo.checkout(tmp_path / "data/gate", main) == Ok(None)
    sha = world.commit(folder, {"b": "2"})
    world.bundle(folder, main, tmp_path / "b.bundle")
    assert isinstance(repo.import_bundle(tmp_path / "b.bundle", sha, main), Ok)
    assert repo.push("refs/heads/agent/1", sha, "") == Ok(sha)
    assert "*" not in (tmp_path / "data/git/home/gitconfig").read_text().split("directory")[-1]


# ---------------------------------------------------------------- deadlines and groups


def test_a_deadline_ends_the_whole_group(tmp_path: Path, runner: Runner) -> None:
    mark = str(tmp_path / "mark")
    began = time.monotonic()
    nest = f"alias.x=!sh -c 'sh -c \"trap : TERM; sleep 31; : {mark}\" & wait' #"
    ran = runner.run("-c", nest, "x", deadline_s=0.5)
    assert ran.late and time.monotonic() - began < 5
    assert classify(ran).failure == Failure.TIMEOUT
    assert not alive(mark)


def test_what_stays_behind_after_an_exit_is_ended_too(tmp_path: Path, runner: Runner) -> None:
    mark = str(tmp_path / "mark")
    began = time.monotonic()
    ran = runner.run("-c", f"alias.x=!sh -c 'sleep 31; : {mark}' & echo done #", "x", deadline_s=20)
    assert (ran.code, ran.text) == (0, "done") and time.monotonic() - began < 5
    assert not alive(mark)


def test_too_much_output_ends_it(runner: Runner) -> None:
    ran = runner.run("-c", "alias.x=!yes", "x", deadline_s=20)
    assert ran.flooded and len(ran.out) < 2 << 20


def test_much_input_and_no_reader(runner: Runner) -> None:
    assert runner.run("version", feed=b"x" * (4 << 20)).code == 0
    ran = runner.run("hash-object", "--stdin", feed=b"x" * (4 << 20))
    assert ran.code == 0 and len(ran.text) == 40


def alive(mark: str) -> bool:
    """Whether a process with that word lives on. One that was killed is given a moment to be gone."""
    end = time.monotonic() + 3
    while named(mark):
        if time.monotonic() > end:
            return True
        time.sleep(0.01)
    return False


def named(mark: str) -> bool:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                return True
        except OSError:
            continue  # it has ended meanwhile
    return False


def test_missing_git_is_told(tmp_path: Path, runner: Runner) -> None:
    assert classify(Ran(("version",), 127, err="env: 'git': No such file or directory")) == Err(
        Failure.CONFIG_INVALID, "git is not installed: install git 2.39.4 or newer"
    )


@pytest.mark.parametrize(
    ("version", "fits"), [("2.39.3", False), ("2.25.1", False), ("2.39.4", True), ("2.50.1", True)]
)
def test_old_git_is_refused(tmp_path: Path, version: str, fits: bool) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    git = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
    script = (
        f'#!/bin/sh\n[ "$2" = version ] && echo "git version {version} (Acme)" && exit\nexec {git} "$@"\n'
    )
    (tools / "git").write_text(script)
    (tools / "git").chmod(0o755)
    _, repo = repo_at(tmp_path)
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{tools}:{path}"
    try:
        result = repo.prepare()
    finally:
        os.environ["PATH"] = path
    if fits:
        assert result == Ok(None)
    else:
        assert (
            isinstance(result, Err) and result.failure == Failure.CONFIG_INVALID and version in result.detail
        )


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("stderr", "failure"),
    [
        ("error: unable to write file: No space left on device", Failure.DISK_FULL),
        ("fatal: write error: Disk quota exceeded", Failure.DISK_FULL),
        ("fatal: Authentication failed for 'https://x/'", Failure.AUTH_FAILED),
        ("fatal: could not read Username for 'https://x': terminal prompts disabled", Failure.AUTH_FAILED),
        ("remote: Permission to acme/widget.git denied to bot.\nerror: 403", Failure.AUTH_FAILED),
        ("remote: Repository not found.\nfatal: repository 'https://x/' not found", Failure.CONFIG_INVALID),
        ("fatal: unable to access 'https://x/': Could not resolve host: x", Failure.FORGE_DOWN),
        ("fatal: unable to access 'https://x/': The requested URL returned error: 503", Failure.FORGE_DOWN),
        ("error: RPC failed; curl 56 GnuTLS recv error", Failure.FORGE_DOWN),
        ("fatal: the remote end hung up unexpectedly", Failure.FORGE_DOWN),
        ("fatal: transport 'ext' not allowed", Failure.CONFIG_INVALID),
        ("fatal: cannot create thread: Resource temporarily unavailable", Failure.INFRA_KILLED),
        ('error: open("objects/pack"): Too many open files', Failure.INFRA_KILLED),
        ("fatal: attempting to allocate 9 over limit 5", Failure.OOM),
        ("fatal: something new", Failure.INTERNAL_ERROR),
    ],
)
def test_last_words_have_a_class(stderr: str, failure: Failure) -> None:
    err = classify(Ran(("fetch",), 128, err=stderr))
    assert err.failure == failure
    assert "\n" not in err.detail


def test_a_full_disk_is_told_as_such(tmp_path: Path) -> None:
    _, repo = repo_at(tmp_path)
    tiny = tmp_path / "data"
    tiny.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(tiny)], capture_output=True
    )
    if mounted.returncode != 0:
        # Where nothing may be mounted, the class of the words is all that can be shown.
        assert classify(Ran(("fetch",), 128, err="No space left on device")).failure == Failure.DISK_FULL
        return
    try:
        world.Origin(tmp_path / "big").push(MAIN, {"a": os.urandom(600_000)})
        big = GitRepo(
            tiny, remote=(tmp_path / "big/widget.git").as_uri(), token=None, author=("H", "h@x.example"),
            clock=FixedClock(),
        )  # fmt: skip
        assert big.prepare() == Ok(None)
        result = big.fetch()
        assert isinstance(result, Err) and result.failure == Failure.DISK_FULL, result
    finally:
        subprocess.run(["umount", str(tiny)], check=True)
    assert isinstance(repo.prepare(), Ok)


# ---------------------------------------------------------------- locks


def test_stale_locks_go_and_held_ones_stay(tmp_path: Path) -> None:
    origin, repo = repo_at(tmp_path)
    assert repo.prepare() == Ok(None)
    assert isinstance(repo.fetch(), Ok)
    mirror = tmp_path / "data/git/mirror.git"
    locks = [mirror / "packed-refs.lock", mirror / "refs/heads/main.lock", mirror / "config.lock"]
    old = time.time() - 1000

    def leave() -> None:
        for lock in locks:
            lock.touch()
            os.utime(lock, (old, old))

    leave()
    with locks[0].open() as held:
        holder = subprocess.Popen(["sleep", "60"], stdin=held)
        try:
            assert heal(mirror, began=time.time()) == ()
            assert all(lock.exists() for lock in locks)
        finally:
            holder.kill()
            holder.wait()
    tip = origin.push(MAIN, {"b": "2"})
    assert repo.fetch() == Ok({MAIN: tip}), "healed on the way"
    leave()
    assert repo.prepare() == Ok(None)
    assert not any(lock.exists() for lock in locks)


def test_young_locks_stay(tmp_path: Path) -> None:
    _, repo = repo_at(tmp_path)
    repo.prepare()
    lock = tmp_path / "data/git/mirror.git/packed-refs.lock"
    lock.touch()
    assert heal(lock.parent, began=time.time() - 100) == ()
    assert heal(lock.parent, began=time.time() + 100) == (lock,)


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    lock, other = RepositoryLock(tmp_path / "lock"), RepositoryLock(tmp_path / "lock")
    inside: list[int] = []
    most: list[int] = []

    def work(mine: RepositoryLock) -> None:
        for _ in range(20):
            with mine.hold(30):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work, args=(each,)) for each in (lock, other, lock, other)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert max(most) == 1 and len(most) == 80
    with lock.hold(1), pytest.raises(FailedError, match="another process"), other.hold(0.1):
        pass


FETCH = """
import sys
from pathlib import Path
from harness.adapters.git import GitRepo
class Clock:
    def now(self): return 0.0
    def monotonic(self): return 0.0
repo = GitRepo(Path(sys.argv[1]), remote=sys.argv[2], token=None, author=("H", "h@x.example"), clock=Clock())
repo.prepare()
print("go", flush=True)
repo.fetch()
"""


def test_killed_in_the_middle_of_a_fetch_the_mirror_goes_on(tmp_path: Path) -> None:
    """SIGKILL at several moments: afterwards everything is as if nothing had been."""
    origin, repo = repo_at(tmp_path)
    assert repo.prepare() == Ok(None)
    tip = ""
    for n in range(6):
        tip = origin.push(MAIN, {f"f{n}": os.urandom(400_000).hex()})
        child = subprocess.Popen(
            [sys.executable, "-c", FETCH, str(tmp_path / "data"), origin.url],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        assert child.stdout is not None and child.stdout.readline() == b"go\n"
        time.sleep(0.004 * n)
        child.kill()
        child.wait()
        child.stdout.close()
    assert repo.prepare() == Ok(None)
    assert repo.fetch() == Ok({MAIN: tip})
    world.git("fsck", "--connectivity-only", cwd=tmp_path / "data/git/mirror.git")


def test_tidying_drops_nothing(tmp_path: Path) -> None:
    """What no ref of the mirror names may still be borrowed by a clone."""
    origin, repo = repo_at(tmp_path)
    assert repo.prepare() == Ok(None)
    gone = [origin.push(MAIN, {"a": str(n)}) for n in range(3) if isinstance(repo.fetch(), Ok)]
    assert isinstance(repo.fetch(), Ok)
    note = repo.note_commit("no ref names me")
    assert isinstance(note, Ok)
    fresh = origin.push("refs/heads/other", {"b": "1"}, start="")
    origin.set(MAIN, fresh)
    for _ in range(2):
        assert repo.fetch() == Ok({MAIN: fresh, "refs/heads/other": fresh})
        assert repo.tidy() == Ok(None)
    for sha in (*gone, note.value):
        assert isinstance(repo.tree(sha), Ok)
