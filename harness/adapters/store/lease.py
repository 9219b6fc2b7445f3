"""The lease on a data folder: one director at a time, and a name for the folder that lasts.

The one rule: the lock is the operating system's, held for life and gone with the process. What is written in
the file only tells people whose it is; no process id in it is ever believed.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.adapters.store import places
from harness.adapters.store.errors import StoreError
from harness.failures import Failure
from harness.ports import Clock


class LeaseHeld(Exception):
    """Another director has this data folder. The text is one line that names it."""


class Lease:
    """Take one with `Lease.take`. Given back by `release`, or by the end of the process, however it ends."""

    def __init__(self, fd: int, path: Path) -> None:
        self._fd: int | None = fd
        self.path = path

    @classmethod
    def take(
        cls, data: Path, *, clock: Clock, take_over: bool = False, mounts: Path = places.MOUNTS
    ) -> Lease:
        """Lock `data`/lock, at once or not at all: raises LeaseHeld when another process has it.

        On a network file system the lock cannot be trusted between hosts: there a name of another host in the
        file is taken for its owner too, unless `take_over` says that a person has made sure.
        """
        path = data / "lock"
        try:
            data.mkdir(parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        except OSError as e:
            raise StoreError(f"{path}: {e.strerror}: the data folder must be writable") from e
        try:
            _lock(fd, path)
            remote = places.network_filesystem(data, mounts)
            owner = owner_of(path)
            if remote and not take_over and owner.get("host") not in (None, socket.gethostname()):
                text = f"{_who(path, owner)} ({remote}: locks may not reach it)"
                raise LeaseHeld(f"{text}; when you are sure that it is gone, start with --take-over")
            _write(fd, {"pid": os.getpid(), "host": socket.gethostname(), "since": _iso(clock.now())})
        except OSError as e:
            os.close(fd)
            full = Failure.DISK_FULL if e.errno in places.FULL else Failure.INFRA_ENGINE
            raise StoreError(f"{path}: {e.strerror}", full) from e
        except LeaseHeld:
            os.close(fd)
            raise
        return cls(fd, path)

    def release(self) -> None:
        """Give it back. The file stays: removing it would let two processes lock two different files."""
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()


def _lock(fd: int, path: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as e:
        raise _held(path) from e


def _held(path: Path) -> LeaseHeld:
    text = _who(path, owner_of(path))
    return LeaseHeld(f"{text}; stop it first (`harness stop`), or use another data folder")


def owner_of(path: Path) -> Mapping[str, Any]:
    """What the lock file says of its holder: pid, host, since. Empty when nobody holds it."""
    try:
        found = json.loads(places.read_file(path, 4096) or b"{}")
    except (ValueError, StoreError):
        return {}
    return found if isinstance(found, dict) else {}


def is_held(data: Path) -> bool:
    """Whether a process holds the lease right now; does not take it. Raises StoreError where that cannot be told."""
    path = data / "lock"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as e:
        text = f"{path} cannot be read, so nobody knows whether a director runs: {e.strerror}"
        raise StoreError(text) from e
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def refuse_held(data: Path) -> None:
    """Raises LeaseHeld where somebody has the lease now: for a start that wants to know before it loads much.
    Only `Lease.take` decides."""
    if is_held(data):
        raise _held(data / "lock")


def _who(path: Path, owner: Mapping[str, Any]) -> str:
    if not owner:
        return f"another director holds {path}"
    pid, host, since = (owner.get(key, "?") for key in ("pid", "host", "since"))
    return f"another director holds {path}: process {pid} on {host} since {since}"


def _write(fd: int, owner: Mapping[str, Any]) -> None:
    os.ftruncate(fd, 0)
    os.pwrite(fd, json.dumps(owner).encode() + b"\n", 0)
    os.fsync(fd)


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def instance_id(data: Path) -> str:
    """Eight hex digits that name this data folder for good, made on first use. They are a part of container
    names, so that two directors on one engine leave each other's alone."""
    path = data / "instance"
    text = (places.read_file(path, 64) or b"").decode("ascii", "replace").strip()
    if not text and not path.exists():
        data.mkdir(parents=True, exist_ok=True)
        mine = data / f".instance.{os.getpid()}.tmp"
        places.write_file(mine, secrets.token_hex(4).encode() + b"\n")
        try:
            # A link, unlike a rename, does not replace what another process made meanwhile.
            os.link(mine, path)
        except FileExistsError:
            pass
        finally:
            mine.unlink()
        places.sync_folder(data)
        text = (places.read_file(path, 64) or b"").decode("ascii", "replace").strip()
    if len(text) != 8 or set(text) - set("0123456789abcdef"):
        raise StoreError(
            f"{path} is damaged: write back its eight hex digits (they are in the containers' names)"
        )
    return text
