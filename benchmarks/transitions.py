"""How fast a transition becomes durable, beside SQLite's own loop, and whether a long history slows it.

    python benchmarks/transitions.py [--count N] [--history N] [--folder DIR]

The one rule: both sides of a ratio run in turns in the same call on the same disk, since absolute figures
drift. It prints, and never fails.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from harness.adapters.store import lines
from harness.adapters.store.file import FileStore
from harness.adapters.store.sql import SqlStore
from harness.core import journal
from harness.core.journal import Draft

MACHINE = "acme/widget/attempt/12.1"
ROUNDS = 50
BODY = {
    "from": "STARTING",
    "event": "started",
    "to": "RUNNING",
    "reason": "the container runs",
    "seen": {
        "$": "Seen",
        "status": {"name": "h-acme-widget-12-1-i1", "phase": "RUNNING", "started_at": 17e8},
    },
    "intents": [{"$": "Comment", "issue": 12, "body": "Working on it.", "key": "status"}],
}


class Now:
    """The real clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


def rate(step: Callable[[int], object], first: int, count: int) -> float:
    """Steps a second."""
    begun = time.perf_counter()
    for n in range(first, first + count):
        step(n)
    return count / (time.perf_counter() - begun)


def ratio(ours: list[float], floor: list[float]) -> float:
    """The median of the rounds' own ratios: what else the machine does in a round slows both sides."""
    return statistics.median(a / b for a, b in zip(ours, floor, strict=True))


def raw_sqlite(folder: Path) -> Callable[[int], object]:
    """The floor: one insert a transaction, write-ahead log, synced, nothing else."""
    db = sqlite3.connect(folder / "raw.db", isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE records (machine TEXT, seq INTEGER, line BLOB, PRIMARY KEY (machine, seq))")
    draft = Draft("transition", BODY)
    line = lines.seal(draft, machine=MACHINE, seq=1, at=1.0, epoch=1, code="0", prev=journal.GENESIS)[1]

    def step(n: int) -> None:
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO records VALUES (?, ?, ?)", (MACHINE, n, line))
        db.execute("COMMIT")

    return step


def raw_file(folder: Path) -> Callable[[int], object]:
    """The floor of a file: one write and one fdatasync."""
    fd = os.open(folder / "raw.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    line = b"x" * 550 + b"\n"

    def step(n: int) -> None:
        os.write(fd, line)
        os.fdatasync(fd)

    return step


def appender(store: SqlStore | FileStore, machine: str = MACHINE) -> Callable[[int], object]:
    draft = Draft("transition", BODY)
    return lambda n: store.append(machine, draft, expect_seq=n).unwrap()


def durable(folder: Path, count: int) -> None:
    sql = SqlStore.open(folder / "store.db", clock=Now(), code="0")
    file = FileStore.open(folder / "journal", clock=Now(), code="0")
    sides = {
        "SQLite WAL FULL, raw loop": raw_sqlite(folder),
        "SqlStore.append": appender(sql),
        "write + fdatasync, raw loop": raw_file(folder),
        "FileStore.append": appender(file),
    }
    found: dict[str, list[float]] = {name: [] for name in sides}
    for n in range(ROUNDS):
        for name, step in sides.items():
            found[name].append(rate(step, 1 + n * count, count))
    middle = {name: statistics.median(rates) for name, rates in found.items()}
    print(f"durable transitions, median of {ROUNDS} rounds of {count}")
    for name, value in middle.items():
        print(f"  {name:<34} {value:>8.0f}/s")
    raw, ours, floor, files = found.values()
    print(f"  SqlStore / raw SQLite              {ratio(ours, raw):>8.2f}    goal >= 0.50")
    print(f"  FileStore / raw file               {ratio(files, floor):>8.2f}")
    sql.close()
    file.close()


def fill(store: SqlStore, history: int) -> None:
    """A machine with a long journal, written in one transaction: only its length matters here."""
    draft = Draft("transition", BODY)
    prev, rows = journal.GENESIS, []
    for seq in range(1, history + 1):
        record, line = lines.seal(draft, machine="long", seq=seq, at=1.0, epoch=0, code="0", prev=prev)
        rows.append((1 << 32 | seq, 1.0, 0, "transition", line))
        prev = record.hash
    db = sqlite3.connect(store.path, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO streams VALUES (1, 'long', ?, ?, 0)", (history, prev))
    db.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?)", rows)
    db.execute("COMMIT")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


def long_history(folder: Path, count: int, history: int) -> None:
    """Two stores, one nearly empty, one with a long journal; the same machine grows in each."""
    sides = {}
    for name, length in (("short", 10), ("long", history)):
        store = SqlStore.open(folder / f"{name}.db", clock=Now(), code="0")
        fill(store, length)
        sides[name] = (appender(store, "long"), length + 1)
    found: dict[str, list[float]] = {name: [] for name in sides}
    for n in range(ROUNDS):
        for name, (step, first) in sides.items():
            found[name].append(rate(step, first + n * count, count))
    short, long = (statistics.median(rates) for rates in found.values())
    ours = ratio(found["long"], found["short"])
    print(f"a long history, median of {ROUNDS} rounds of {count}")
    print(f"  at 10 records                      {short:>8.0f}/s")
    print(f"  at {history:<7} records                 {long:>8.0f}/s")
    print(f"  long / short                       {ours:>8.2f}    goal >= 0.90")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="transitions a round")
    parser.add_argument("--history", type=int, default=100_000, help="records of the long history")
    parser.add_argument("--folder", help="where to write (default: the temporary folder)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        durable(Path(name), given.count)
        long_history(Path(name), given.count, given.history)


if __name__ == "__main__":
    main()
