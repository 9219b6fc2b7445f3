"""How long it takes to verify ten thousand records: as a file, in a sealed bundle, and in a store.

    python benchmarks/verify.py [--records N] [--folder DIR]

The one rule: records are as large as those of a real attempt, with what was seen. It prints, and
never fails.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from harness.adapters.store.sql import SqlStore
from harness.audit.bundle import seal
from harness.audit.verify import verify_bundle, verify_journal, verify_store
from harness.core import journal
from harness.core.journal import Draft, Record
from harness.machines.all import CODEC
from harness.policy import Policy

GOAL_S = 1.0
ROUNDS = 5
MACHINE = "acme/widget/worker/12.1"


class Now:
    """The real clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


def chain(count: int, machine: str) -> list[Record]:
    """Turns of a transition with its facts and policy, and an outcome."""
    seen = {
        "now": 1_795_745_200.25,
        "epoch_began": 1_795_700_000.5,
        "policy": {"value": CODEC.encode(Policy(commands=("scripts/test.sh",)))},
        "facts": {"news": {"value": {"$": "News", "tag": "", "main_sha": "9f3c" * 10}}},
    }
    move = {"from": "CODE", "event": "coded", "to": "VALIDATE", "reason": "3 files changed", "note": {}}
    bodies = [
        Draft("transition", {**move, "intents": [{"$": "StartValidation", "run": "run-9"}], "seen": seen}),
        Draft("outcome", {"intent": 0, "effect": "StartValidation", "status": "done", "value": {}}),
    ]
    records: list[Record] = []
    prev = journal.GENESIS
    for n in range(1, count + 1):
        at = 1_795_745_200.25 + n
        r = journal.seal(bodies[n % 2], machine=machine, seq=n, at=at, epoch=1, code="0.1.0", prev=prev)
        records.append(r)
        prev = r.hash
    return records


def fill(path: Path, records: list[Record]) -> SqlStore:
    """A store with these records, written in one transaction."""
    store = SqlStore.open(path, clock=Now(), code="0.1.0")
    rows = [(1 << 32 | r.seq, r.at, r.epoch, r.kind, journal.line(r)) for r in records]
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    db.execute(
        "INSERT INTO streams VALUES (1, ?, ?, ?, 0)", (records[0].machine, len(records), records[-1].hash)
    )
    db.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?)", rows)
    db.execute("COMMIT")
    db.close()
    return store


def best(what: str, do: Callable[[], list[object]]) -> None:
    """The best of some rounds, wall clock and processor: the machine may have other work."""
    walls, cpus = [], []
    for _ in range(ROUNDS):
        wall, cpu = time.perf_counter(), time.process_time()
        findings = do()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
        assert findings == [], findings
    print(f"  {what:<34} {min(walls):>8.2f} s   {min(cpus):>6.2f} s of processor")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--folder", help="where to write (default: the temporary folder)")
    given = parser.parse_args()
    records = chain(given.records, MACHINE)
    data = b"".join(journal.line(r) for r in records)
    size = f"{len(data) / len(records):.0f} bytes each, {len(data) / 1e6:.1f} MB"
    print(f"verify {given.records} records, {size}, best of {ROUNDS}    goal < {GOAL_S:.0f} s")
    best("a journal's file", lambda: list(verify_journal(data, machine=MACHINE)))
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        audits = Path(name) / "audits"
        meta = {"machine": MACHINE.replace("worker", "attempt"), "attempt": "12.1"}
        made = audits / seal(audits, meta=meta, journal_lines=data, blobs={}, extra={}, at=1.0)
        best("a sealed bundle", lambda: list(verify_bundle(made)))
        store = fill(Path(name) / "store.db", records)
        best("a store, read and checked twice", lambda: list(verify_store(store)))
        store.close()


if __name__ == "__main__":
    main()
