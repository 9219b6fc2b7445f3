"""Files of the audit: sources that a worker could have made, read safely; our own, written whole.

The one rule: nothing is followed and nothing waited for. A link, a pipe, a device, a folder too deep: each is
left out by its name, with the reason, and never opened twice.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
DEPTH_LIMIT = 8
NAME_LIMIT_BYTES = 240
LINE_SLACK_BYTES = 4096
# No secret that a redactor knows is longer; what it saw half of at a cut is dropped with the margin.
MARGIN_BYTES = 16384

Redact = Callable[[bytes], bytes]
ReadAt = Callable[[int, int], bytes]


class AuditError(Exception):
    """The audit folder or a bundle cannot be used: one line that says what, where, and what to do."""

    def __init__(self, message: str, number: int = 0) -> None:
        super().__init__(message)
        self.errno = number


@dataclass(frozen=True, slots=True)
class Found:
    """A regular file, open for reading. `name` is its path below the source, empty for the source itself."""

    name: str
    fd: int
    size: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Sample:
    """What was kept of a file of `size` bytes: all of it, or its head and tail."""

    data: bytes
    size: int
    cut: bool


# ---------------------------------------------------------------- reading


def gather(source: Path, within: Path | None = None, limit: int = 2000) -> Iterator[Found | LeftOut]:
    """Every regular file at or below `source`, in order of names, at most `limit` of them.

    `within` is a trusted folder: no part of the path below it may be a link. A descriptor is open until the
    next step of the iteration.
    """
    try:
        fd = _open(source, within)
    except OSError as e:
        yield LeftOut("", _why(e))
        return
    yield from _visit(fd, "", [limit], 0)


def _open(source: Path, within: Path | None) -> int:
    if within is None:
        return os.open(source, READ)
    if not source.is_relative_to(within) or ".." in source.parts:
        raise OSError(errno.EINVAL, f"not below {within}")
    parts = source.relative_to(within).parts
    fd = os.open(within, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in parts:
        try:
            deeper = os.open(part, READ, dir_fd=fd)
        finally:
            os.close(fd)
        fd = deeper
    return fd


def _visit(fd: int, name: str, left: list[int], depth: int) -> Iterator[Found | LeftOut]:
    """Takes over `fd`. `left` counts down what may still be found."""
    try:
        seen = os.fstat(fd)
        if stat.S_ISREG(seen.st_mode):
            left[0] -= 1
            yield Found(name, fd, seen.st_size)
        elif stat.S_ISDIR(seen.st_mode):
            yield from _children(fd, name, left, depth)
        else:
            yield LeftOut(name, "not a regular file")
    finally:
        os.close(fd)


def _children(fd: int, name: str, left: list[int], depth: int) -> Iterator[Found | LeftOut]:
    if depth >= DEPTH_LIMIT:
        yield LeftOut(name, f"more than {DEPTH_LIMIT} folders deep")
        return
    names: list[str] = []
    with os.scandir(fd) as entries:
        for entry in entries:
            names.append(entry.name)
            if len(names) > left[0]:
                break
    for child in sorted(names):
        path = f"{name}/{child}" if name else child
        if left[0] <= 0:
            yield LeftOut(name, "more files than are kept")
            return
        if not _tame(child):
            left[0] -= 1
            yield LeftOut(ascii(path)[1:-1][:NAME_LIMIT_BYTES], "its name is not plain text")
            continue
        try:
            deeper = os.open(child, READ, dir_fd=fd)
        except OSError as e:
            left[0] -= 1
            yield LeftOut(path, _why(e))
            continue
        yield from _visit(deeper, path, left, depth + 1)


def _tame(name: str) -> bool:
    return name.isprintable() and len(name.encode(errors="replace")) <= NAME_LIMIT_BYTES


def _why(error: OSError) -> str:
    known = {errno.ELOOP: "a link", errno.ENOENT: "not there", errno.ENXIO: "not a regular file"}
    return known.get(error.errno or 0) or str(error.strerror or error)


def sample(fd: int, limit_bytes: int, redact: Redact | None) -> Sample:
    """The file's bytes, redacted and shortened."""
    return shorten(
        lambda offset, count: read_at(fd, offset, count), os.fstat(fd).st_size, limit_bytes, redact
    )


def shorten(read: ReadAt, size: int, limit_bytes: int, redact: Redact | None) -> Sample:
    """The bytes, redacted; above the limit a quarter of it from the head and the rest from the tail, cut at
    line ends where there are any. A secret that a cut would halve is dropped with the edge. What is read at
    once is bounded by the limit. `read(offset, count)` answers fewer bytes only at the end."""
    clean = redact or bytes
    if size <= limit_bytes:
        return Sample(clean(read(0, size)), size, False)
    head_bytes = limit_bytes // 4
    tail_bytes = limit_bytes - head_bytes
    head = clean(read(0, min(size, head_bytes + MARGIN_BYTES)))
    start = max(0, size - tail_bytes - MARGIN_BYTES)
    tail = clean(read(start, size - start))
    head = _whole_lines(head[: max(0, min(head_bytes, len(head) - MARGIN_BYTES))])
    tail = _from_line(tail[max(MARGIN_BYTES, len(tail) - tail_bytes) :])
    note = f"\n[about {size - len(head) - len(tail)} bytes of {size} left out here]\n"
    return Sample(head + note.encode() + tail, size, True)


def _whole_lines(data: bytes) -> bytes:
    end = data.rfind(b"\n", max(0, len(data) - LINE_SLACK_BYTES))
    return data[:end] if end >= 0 else data


def _from_line(data: bytes) -> bytes:
    start = data.find(b"\n", 0, LINE_SLACK_BYTES)
    return data[start + 1 :] if start >= 0 else data


def read_at(fd: int, offset: int, count: int) -> bytes:
    """At most `count` bytes from there on; fewer only at the end of the file."""
    parts: list[bytes] = []
    while count > 0:
        part = os.pread(fd, min(count, 1 << 20), offset)
        if not part:
            break
        parts.append(part)
        offset, count = offset + len(part), count - len(part)
    return b"".join(parts)


def read_files(paths: Sequence[Path], offset: int, count: int) -> bytes:
    """The same of several files as if they were one. What is no regular file has no bytes."""
    parts: list[bytes] = []
    for path in paths:
        try:
            fd = os.open(path, READ)
        except OSError:
            continue
        try:
            seen = os.fstat(fd)
            size = seen.st_size if stat.S_ISREG(seen.st_mode) else 0
            if count > 0 and offset < size:
                parts.append(read_at(fd, offset, min(count, size - offset)))
                count -= len(parts[-1])
            offset = max(offset - size, 0)
        finally:
            os.close(fd)
    return b"".join(parts)


def read_own(path: Path, limit_bytes: int, within: Path | None = None) -> bytes | None:
    """A regular file as a whole; None when it is not there. Raises AuditError for anything else."""
    try:
        fd = _open(path, within)
    except FileNotFoundError:
        return None
    except OSError as e:
        raise AuditError(f"{path} cannot be read: {_why(e)}", e.errno or 0) from e
    try:
        seen = os.fstat(fd)
        if not stat.S_ISREG(seen.st_mode):
            raise AuditError(f"{path} is not a regular file")
        if seen.st_size > limit_bytes:
            raise AuditError(f"{path} has {seen.st_size} bytes, at most {limit_bytes} are read")
        return read_at(fd, 0, seen.st_size)
    finally:
        os.close(fd)


# ---------------------------------------------------------------- writing


def safe_name(name: str) -> bool:
    """Whether a name stays inside its folder and is plain text."""
    path = PurePosixPath(name)
    inside = bool(path.parts) and not path.is_absolute() and not {"..", "."} & set(name.split("/"))
    return inside and "" not in name.split("/") and all(_tame(x) for x in path.parts)


def write_new(path: Path, data: bytes) -> None:
    """A new file, durable except for its name: whoever made the folder syncs it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with os.fdopen(fd, "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(fd)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
