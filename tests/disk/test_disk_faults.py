"""The n-th write, sync or rename of a store or an audit folder fails: nothing is torn, nothing answered is lost.

The faults are the kernel's (strace makes them). This is a sample; scripts/disk-faults.py plays every n.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from disk_faults import faults, play

# scenario, call, error, whether it stays, each how many-th n
SAMPLE = (
    ("sql", "pwrite64", "ENOSPC", False, 19),
    ("sql", "pwrite64", "EIO", True, 29),
    ("sql", "fdatasync", "EIO", False, 6),
    ("sql", "fsync", "ENOSPC", False, 2),
    ("file", "write", "ENOSPC", False, 2),
    ("file", "write", "ENOSPC", True, 5),
    ("file", "fdatasync", "EIO", False, 2),
    ("file", "fsync", "EIO", False, 4),
    ("file", "rename", "ENOSPC", False, 2),
    ("audit", "write", "ENOSPC", False, 4),
    ("audit", "write", "ENOSPC", True, 6),
    ("audit", "fsync", "EIO", False, 7),
    ("audit", "rename", "EIO", False, 2),
)


@pytest.mark.parametrize(
    ("scenario", "call", "error", "lasting", "step"), SAMPLE,
    ids=lambda x: {True: "lasting", False: "once"}.get(x) if isinstance(x, bool) else str(x),
)  # fmt: skip
def test_the_nth_call_fails(
    scenario: str, call: str, error: str, lasting: bool, step: int, tmp_path: Path
) -> None:
    runs = play(scenario, call, error, tmp_path / "runs", lasting=lasting, step=step)
    assert sum(bool(r.errors) for r in runs) >= 1, "the fault was noticed at least once"
    assert [f"n = {r.folder.name}: {f}" for r in runs for f in faults(r, lasting=lasting)] == []
