"""Disks that fill up for tests: a small file system of its own, and a clock that is set by hand.

The one rule: the fault is the kernel's own. Nothing of ours knows that it is tested.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Time:
    """Stands where it is set."""

    at: float = 1_700_000_000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


@contextmanager
def small_disk(at: Path, size: str, *more: str) -> Iterator[Path]:
    """A tmpfs of that size ("2m"), `more` options beside it ("nr_inodes=20"); gone at the end. It needs root,
    as the tests of containers do."""
    at.mkdir(parents=True, exist_ok=True)
    options = ",".join((f"size={size}", *more))
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(at)], check=True, timeout=30)
    try:
        yield at
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True, timeout=30)


def fill(folder: Path, leave_bytes: int = 0) -> Path:
    """Use up what is free in a folder's file system, but for `leave_bytes`; answers the file that does."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as f:
        try:
            while True:
                f.write(b"\0" * (1 << 16))
        except OSError:
            pass
        if leave_bytes:
            f.truncate(max(f.tell() - leave_bytes, 0))
    return path
