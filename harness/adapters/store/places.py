"""What the stores ask of a file system: safe reads, whole writes, and whether it is local at all.

The one rule: a file is replaced by temporary file, sync and rename, never written over.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from harness.adapters.store.errors import StoreError
from harness.failures import Failure

READ_LIMIT_BYTES = 256 << 20

# A file-size limit of the process and a quota are for us what a full disk is.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
MOUNTS = Path("/proc/self/mountinfo")

# Locks of these are advisory at best between hosts, and SQLite's shared memory does not work on them at all.
_FUSE = ("sshfs", "s3fs", "rclone", "glusterfs", "gcsfuse", "davfs")
_REMOTE = (
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "afs",
    "ceph",
    "glusterfs",
    "lustre",
    "9p",
    "ocfs2",
    "gfs2",
)
_NETWORK = frozenset(_REMOTE) | {f"fuse.{name}" for name in _FUSE}


def network_filesystem(path: Path, mounts: Path = MOUNTS) -> str | None:
    """The type of the network file system that `path` lies on; None where it is local or cannot be told."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    target = os.path.realpath(path)
    best, kind = -1, ""
    for line in lines:
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:
            continue
        point = _unescape(fields[4])
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        # A later mount on the same point hides the earlier one, hence >=.
        if inside and len(point) >= best:
            best, kind = len(point), right.split(" ")[0]
    return kind if kind in _NETWORK else None


def _unescape(text: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text


def refuse_network(folder: Path, mounts: Path = MOUNTS) -> None:
    kind = network_filesystem(folder, mounts)
    if kind:
        what = f"{folder} is on a network file system ({kind})"
        raise StoreError(f"{what}: put the data folder on a local disk")


def read_file(path: Path, limit_bytes: int = READ_LIMIT_BYTES) -> bytes | None:
    """The bytes of a regular file, None when it is not there. No link is followed and no pipe waited for:
    a worker may have put anything at that place."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as e:
        raise StoreError(f"{path} cannot be read: {e.strerror}") from e
    try:
        seen = os.fstat(fd)
        if not stat.S_ISREG(seen.st_mode):
            raise StoreError(f"{path} is not a regular file: remove it")
        if seen.st_size > limit_bytes:
            raise StoreError(f"{path} has {seen.st_size} bytes, at most {limit_bytes} are read")
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read(limit_bytes)
    finally:
        os.close(fd)


def write_file(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Replace a file as a whole, durably. Raises OSError and leaves no temporary file behind."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable: a new or renamed file is not safe before."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def free_name(path: Path) -> Path:
    """`path` with the first number behind it that is not taken: journal.torn-1, journal.torn-2, …"""
    number = 1
    while os.path.lexists(candidate := path.with_name(f"{path.name}-{number}")):
        number += 1
    return candidate


def unwritten(path: Path, error: OSError) -> StoreError:
    """What it means that a file could not be written."""
    full = error.errno in FULL
    return StoreError(f"{path}: {error.strerror}", Failure.DISK_FULL if full else Failure.INFRA_ENGINE)
