"""Folders that we made for others to write in: whose they are, and how they go away again.

The one rule: only what an ownership file beside it calls ours is ever removed, and no link is followed.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from harness.adapters.git.errors import fail
from harness.failures import Failure

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OWNER_BYTES = 64 << 10


def owner_path(folder: Path) -> Path:
    return folder.with_name(folder.name + ".owner.json")


def read_owner(folder: Path) -> dict[str, object] | None:
    """What the ownership file says; None when there is none. One that is cut off counts as an empty one of
    ours: it stands where only we write."""
    path = owner_path(folder)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(fd, "rb") as f:
        try:
            value = json.loads(f.read(_OWNER_BYTES))
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}


def write_owner(folder: Path, value: Mapping[str, object]) -> None:
    path = owner_path(folder)
    partial = path.with_name(path.name + ".new")
    with partial.open("w", encoding="utf-8") as f:
        json.dump(dict(value), f, sort_keys=True)
        f.flush()
        os.fsync(f.fileno())
    partial.replace(path)


def discard(folder: Path) -> None:
    """Remove a folder of ours and then its ownership file. Nothing there at all is fine. Raises INFRA_KILLED
    when it is not ours, or when the system denies it."""
    if read_owner(folder) is None:
        if os.path.lexists(folder):
            text = f"{folder} has no ownership file beside it, so it is not ours to remove"
            raise fail(Failure.INFRA_KILLED, text)
        return
    try:
        empty_out(folder)
        owner_path(folder).unlink(missing_ok=True)
    except OSError as e:
        raise fail(Failure.INFRA_KILLED, f"removing {folder} was denied: {e.strerror} ({e.filename})") from e


def empty_out(folder: Path) -> None:
    """Remove a tree of any depth, also of folders without permissions. Folders that are not empty are moved
    up to the top one by one, so that neither recursion nor path length nor open files grow with the depth."""
    try:
        top = _open_dir(os.fspath(folder), None)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        os.unlink(folder)  # a file or a link stands there: the link itself goes
        return
    mark = secrets.token_hex(8)  # a name that nobody can have put there before
    try:
        count = _clear(top, top, mark, 0)
        done = 0
        while done < count:
            name = f".{mark}-{done}"
            fd = _open_dir(name, top)
            try:
                count = _clear(fd, top, mark, count)
            finally:
                os.close(fd)
            os.rmdir(name, dir_fd=top)
            done += 1
    finally:
        os.close(top)
    os.rmdir(folder)


def _clear(fd: int, top: int, mark: str, count: int) -> int:
    """Empty one folder: files go, empty folders go, others are moved to the top; answers the new count."""
    for name in os.listdir(fd):
        if not stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=fd)
            continue
        try:
            os.rmdir(name, dir_fd=fd)
        except OSError as e:
            if e.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            os.close(_open_dir(name, fd))  # gives us the right to move it
            os.rename(name, f".{mark}-{count}", src_dir_fd=fd, dst_dir_fd=top)
            count += 1
    return count


def _open_dir(name: str, parent: int | None) -> int:
    """Open a folder for removal; make it readable and writable first. Never through a link."""
    try:
        fd = os.open(name, _FLAGS, dir_fd=parent)
    except PermissionError:
        if not hasattr(os, "O_PATH"):
            raise
        handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
        finally:
            os.close(handle)
        fd = os.open(name, _FLAGS, dir_fd=parent)
    if stat.S_IMODE(os.fstat(fd).st_mode) & 0o700 != 0o700:
        os.fchmod(fd, 0o700)
    return fd
