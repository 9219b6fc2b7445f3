"""Where things lie below the data folder, and the few file operations on what a worker could write.

The one rule: nothing that a worker could have made is followed: no links, no special files, sizes capped.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.ports import World

JSON_LIMIT_BYTES = 1 << 20
HARVESTED = "harvested"  # in the audit folder: all that was in the clone has been saved
ASIDE_KEPT = 5
# Of the system and not of the file: too many files are open, no memory, a disk that fails.
NOT_NOW = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO})


class NoRoom(Exception):
    """Nothing new may be started on this disk: one line that says why."""


def attempt_dir(data: Path, attempt: str) -> Path:
    return data / "attempts" / attempt


def clone_dir(data: Path, attempt: str) -> Path:
    return attempt_dir(data, attempt) / "clone"


def audit_dir(data: Path, attempt: str) -> Path:
    return attempt_dir(data, attempt) / "audit"


def set_aside(data: Path, attempt: str, *, lost: bool = False) -> Path | None:
    """Keep the clone of a worker that worked and whose harvest did not end well (no memory, no disk, no engine),
    or is `lost`, the newest few of them; None where there is nothing to keep."""
    audit, clone, to = audit_dir(data, attempt), clone_dir(data, attempt), data / "aside" / attempt
    if to.exists():
        return to
    if (
        (os.path.lexists(audit / HARVESTED) and not lost)
        or not os.path.lexists(audit / "journal.jsonl")
        or not clone.is_dir()
    ):
        return None
    to.parent.mkdir(parents=True, exist_ok=True)
    older = sorted(to.parent.iterdir(), key=lambda p: p.lstat().st_mtime, reverse=True)
    for folder in older[ASIDE_KEPT - 1 :]:
        remove(folder)
    os.rename(clone, to)
    return to


def gate_dir(data: Path, name: str) -> Path:
    return data / "gates" / name


def prepare_dir(data: Path, name: str) -> Path:
    return data / "prepared" / name


def need_room(world: World) -> None:
    """Whatever starts something calls this first. Raises NoRoom below the floor of free space."""
    free, need = world.free(), world.policy().min_free_bytes
    if free is not None and free < need:
        raise NoRoom(f"only {free >> 20} MiB free on disk; {need >> 20} MiB are needed to start work")


def own(folder: Path, world: World) -> None:
    """Hand a folder to the user that jobs run as, where that is another one (the director runs as root)."""
    uid, gid = getattr(world.runtime, "uid", None), getattr(world.runtime, "gid", None)
    if uid is None or gid is None or os.geteuid() != 0 or uid == 0 or not folder.exists():
        return
    for at, dirs, files in os.walk(folder):
        for name in (*dirs, *files):
            os.chown(os.path.join(at, name), uid, gid, follow_symlinks=False)
    os.chown(folder, uid, gid, follow_symlinks=False)


def make(folder: Path, world: World) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    own(folder, world)
    return folder


def write(path: Path, data: bytes) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tmp = path.with_name(path.name + ".new")
    with open(tmp, "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    os.replace(tmp, path)


def read(path: Path, limit_bytes: int = JSON_LIMIT_BYTES) -> bytes | None:
    """A regular file's bytes, at most so many; None when it is anything else or not there. Raises OSError where
    it cannot be told now: no worker can bring that about."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as e:
        if e.errno in NOT_NOW:
            raise
        return None
    with os.fdopen(fd, "rb") as f:
        return f.read(limit_bytes) if stat.S_ISREG(os.fstat(f.fileno()).st_mode) else None


def read_json(path: Path) -> Mapping[str, Any] | None:
    raw = read(path)
    if raw is None:
        return None
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(raw)
        return found if isinstance(found, dict) else None
    return None


def remove(folder: Path) -> None:
    """Best effort on our own folder; links inside are unlinked, not followed."""
    shutil.rmtree(folder, ignore_errors=True)
