"""The lock around what writes to a repository of ours, and the healing of locks that dead processes left.

The one rule: a lock is removed only if no live process works in that repository and the lock is older than
this process, or old enough that nobody can still be about to use it. A live holder is never robbed.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.adapters.git.errors import fail
from harness.failures import Failure

log = logging.getLogger(__name__)
_POLL_S = 0.02
OLD_S = 300.0


class RepositoryLock:
    """One writer per repository: among threads by a lock, among processes by `flock` on a file beside it.
    What `hold` yields is that file: a git that was given it keeps the lock even when we are killed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._thread = threading.Lock()
        self._wait = threading.Event()  # never set: waiting on it is how a poll yields

    @contextmanager
    def hold(self, wait_s: float) -> Iterator[int]:
        end = time.monotonic() + wait_s
        if not self._thread.acquire(timeout=wait_s):
            raise fail(Failure.INFRA_KILLED, f"{self.path.name} was held for {wait_s:g} s by another task")
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                while not _try_flock(fd):
                    if time.monotonic() > end:
                        text = (
                            f"{self.path} is held by another process: is another director or command running?"
                        )
                        raise fail(Failure.INFRA_KILLED, text)
                    self._wait.wait(_POLL_S)
                yield fd
            finally:
                os.close(fd)
        finally:
            self._thread.release()


def _try_flock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e:
        if e.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def heal(repository: Path, *, began: float, held: bool = False) -> tuple[Path, ...]:
    """Remove the stale lock files of a bare repository; answers which. `began` is when this process began to
    work with it (POSIX seconds): what is younger may only go when it is older than OLD_S, or when the caller has
    the repository `held`. Every writer of ours has that lock for as long as it lives, so whoever left a lock
    file then is dead, or a stranger; and what we run there meanwhile only reads."""
    stale = [lock for lock in _locks(repository) if held or _is_stale(lock, began)]
    if not stale or _in_use(repository, but_ours=held):
        return ()
    for lock in stale:
        _remove(lock)
    return tuple(stale)


def heal_clone(folder: Path) -> bool:
    """Remove an `index.lock` older than OLD_S from a worker's clone. Plain file calls on a folder's handle:
    it is not trusted, git is not run, no link is followed. Answers whether there was one."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(folder / ".git", flags)
    except OSError:
        return False
    try:
        age_s = time.time() - os.stat("index.lock", dir_fd=fd, follow_symlinks=False).st_mtime
        if age_s < OLD_S or _in_use(folder):
            return False
        os.unlink("index.lock", dir_fd=fd)
    except FileNotFoundError:
        return False
    finally:
        os.close(fd)
    log.warning("removed the stale lock %s, %.0f s old", folder / ".git" / "index.lock", age_s)
    return True


def free_clone(folder: Path) -> tuple[Path, ...]:
    """Remove the lock files of a clone whose agent has ended, however young: whoever made them was killed.
    Only where no git works there and nobody holds one of them open. Answers which."""
    locks = tuple(_locks(folder / ".git"))
    if not locks or _git_works(os.path.realpath(folder)):
        return ()
    for lock in locks:
        _remove(lock)
    return locks


def _git_works(root: str) -> bool:
    """Whether a live git has its current folder in `root`, or anybody one of its lock files open."""
    if not os.path.isdir("/proc/self/fd"):
        return True
    for pid in (p for p in os.listdir("/proc") if p.isdigit()):
        base = f"/proc/{pid}"
        try:
            with open(f"{base}/comm", "rb") as f:
                git = f.read(64).startswith(b"git")
            held = [os.readlink(f"{base}/fd/{fd}") for fd in os.listdir(f"{base}/fd")]
        except OSError:
            continue  # it has ended, or is another user's, who cannot write here
        if git and _inside(f"{base}/cwd", root):
            return True
        if any(target.startswith(root + os.sep) and target.endswith(".lock") for target in held):
            return True
    return False


def _locks(repository: Path) -> Iterator[Path]:
    yield from repository.glob("*.lock")
    for part in ("refs", "objects/info", "objects/pack"):
        yield from (repository / part).rglob("*.lock")


def _is_stale(lock: Path, began: float) -> bool:
    try:
        mtime = lock.lstat().st_mtime
    except FileNotFoundError:
        return False
    return mtime < began or time.time() - mtime > OLD_S


def _remove(lock: Path) -> None:
    try:
        age_s = time.time() - lock.lstat().st_mtime
        lock.unlink()
    except FileNotFoundError:
        return
    log.warning("removed the stale lock %s, %.0f s old", lock, age_s)


def _in_use(repository: Path, *, but_ours: bool = False) -> bool:
    """Whether another live process works there: an open file or its current folder inside, or the path of the
    repository among its arguments, as in every command of ours. Yes, to be safe, where /proc is missing.
    `but_ours`: commands that this process runs do not count."""
    root = os.path.realpath(repository)
    if not os.path.isdir("/proc/self/fd"):
        return True
    me = str(os.getpid())
    others = (pid for pid in os.listdir("/proc") if pid.isdigit() and pid != me)
    return any(_works_in(pid, root) and not (but_ours and _is_ours(pid, me)) for pid in others)


def _is_ours(pid: str, me: str) -> bool:
    """Whether we started it, or the leader of its group: each command of ours leads a group of its own."""
    parent, group = _lineage(pid)
    return me in (parent, _lineage(group)[0])


def _lineage(pid: str) -> tuple[str, str]:
    """Parent and process group as /proc tells them; empty texts when it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            fields = f.read().rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return "", ""
    return fields[1].decode(), fields[2].decode()


def _works_in(pid: str, root: str) -> bool:
    base = f"/proc/{pid}"
    try:
        with open(f"{base}/cmdline", "rb") as f:
            words = f.read(1 << 20).split(b"\0")
        # A command of ours, or a person's git; not whoever merely names the path (an editor, a pager).
        if any(os.path.basename(w).startswith(b"git") for w in words[:1]) and os.fsencode(root) in b"\0".join(
            words
        ):
            return True
        links = [f"{base}/cwd", *(f"{base}/fd/{fd}" for fd in os.listdir(f"{base}/fd"))]
    except OSError:
        return False  # it has ended, or is another user's, who cannot write here
    return any(_inside(link, root) for link in links)


def _inside(link: str, root: str) -> bool:
    try:
        target = os.readlink(link)
    except OSError:
        return False
    return target == root or target.startswith(root + os.sep)
