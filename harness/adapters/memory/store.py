"""A Store that lives in memory: for tests and the simulator, held to the same suite as the real ones.

The one rule: what was appended stays. A handle may die at any hook; another handle on the same `Disk` finds
every record that was written before it died, and no other.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from harness.core import journal
from harness.core.journal import Draft, Fault, Record
from harness.core.result import Err, Ok, Result
from harness.domain import Control
from harness.failures import Failure
from harness.ports import Clock

BeforeAppend = Callable[[str, Draft], None]
AfterAppend = Callable[[Record], None]

# Below this a body surely fits a line, so that the line need not be written out to be measured.
_SMALL_BYTES = journal.LINE_LIMIT_BYTES // 2


@dataclass(slots=True)
class Disk:
    """What survives a crash. `snapshots` holds the place (from 0) of each machine's last snapshot."""

    records: dict[str, list[Record]] = field(default_factory=dict)
    snapshots: dict[str, int] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    controls: list[Control] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    epoch: int = 0


class MemoryStore:
    """One handle on a `Disk`. `before` and `after` are called around each append and may raise, as a crash
    would: raised before, nothing is written; raised after, it is written and the caller does not know."""

    def __init__(
        self,
        clock: Clock,
        code: str = "0",
        epoch: int = 0,
        *,
        disk: Disk | None = None,
        before: BeforeAppend | None = None,
        after: AfterAppend | None = None,
    ) -> None:
        self.clock = clock
        self.code = code
        self.disk = Disk(epoch=epoch) if disk is None else disk
        self.before = before
        self.after = after
        self._epoch = epoch
        self._lock = threading.RLock()

    @property
    def epoch(self) -> int:
        """The epoch that this handle writes in."""
        return self._epoch

    def stored_epoch(self) -> int:
        """The newest epoch that the disk knows."""
        return self.disk.epoch

    def set_epoch(self, epoch: int) -> Result[None]:
        """Begin a newer epoch; every other handle is fenced from here on."""
        with self._lock:
            if epoch <= self.disk.epoch:
                return Err(Failure.AUTH_FAILED, f"epoch {epoch} is not newer than {self.disk.epoch}")
            self.disk.epoch = self._epoch = epoch
            return Ok(None)

    def reopen(self, epoch: int | None = None, code: str | None = None) -> MemoryStore:
        """Another handle on the same disk, without hooks: what a restarted process would see."""
        code = self.code if code is None else code
        epoch = self._epoch if epoch is None else epoch
        return MemoryStore(self.clock, code, epoch, disk=self.disk)

    def clone(self) -> MemoryStore:
        """A handle on a copy of the disk: the two go separate ways from here."""
        d = self.disk
        copy = Disk(
            {m: list(r) for m, r in d.records.items()},
            dict(d.snapshots),
            dict(d.blobs),
            deepcopy(d.controls),
            dict(d.facts),
            d.epoch,
        )
        return MemoryStore(self.clock, self.code, self._epoch, disk=copy)

    def append(self, machine: str, draft: Draft, *, expect_seq: int) -> Result[Record]:
        with self._lock:
            if self.before is not None:
                self.before(machine, draft)
            if self._epoch != self.disk.epoch:
                newer = f"a newer director has epoch {self.disk.epoch}, this one has {self._epoch}"
                return Err(Failure.AUTH_FAILED, newer)
            records = self.disk.records.get(machine, [])
            seq = len(records) + 1
            if seq != expect_seq:
                return Err(Failure.INTERNAL_ERROR, f"{machine}: the next record is {seq}, not {expect_seq}")
            record = self._seal(machine, draft, seq, records[-1].hash if records else journal.GENESIS)
            self.disk.records.setdefault(machine, records).append(record)
            if record.kind == "snapshot":
                self.disk.snapshots[machine] = seq - 1
            if self.after is not None:
                self.after(record)
            return Ok(record)

    def _seal(self, machine: str, draft: Draft, seq: int, prev: str) -> Record:
        # The trip through JSON keeps later changes of the caller's values out of the journal, and gives
        # readers what they would get from a file: lists, never tuples.
        text = json.dumps(draft.body, ensure_ascii=False)
        plain = Draft(draft.kind, json.loads(text))
        record = journal.seal(
            plain, machine=machine, seq=seq, at=self.clock.now(), epoch=self._epoch, code=self.code, prev=prev
        )
        if len(text) * 4 > _SMALL_BYTES:
            journal.line(record)
        return record

    def read(self, machine: str, after: int = 0) -> Sequence[Record]:
        with self._lock:
            return self.disk.records.get(machine, [])[max(after, 0) :]

    def since_snapshot(self, machine: str) -> Sequence[Record]:
        with self._lock:
            return self.disk.records.get(machine, [])[self.disk.snapshots.get(machine, 0) :]

    def machines(self, prefix: str = "") -> Sequence[str]:
        with self._lock:
            return sorted(m for m in self.disk.records if m.startswith(prefix))

    def put_blob(self, data: bytes) -> str:
        sha = hashlib.sha256(data).hexdigest()
        with self._lock:
            self.disk.blobs.setdefault(sha, bytes(data))
        return sha

    def get_blob(self, sha256: str) -> bytes | None:
        return self.disk.blobs.get(sha256)

    def verify(self, machine: str) -> Fault | None:
        return journal.check(self.read(machine))

    def control(self, verb: str, args: Mapping[str, Any]) -> int:
        with self._lock:
            number = len(self.disk.controls) + 1
            plain = json.loads(json.dumps(dict(args)))
            self.disk.controls.append(Control(number, self.clock.now(), verb, plain))
            return number

    def controls(self, after: int = 0) -> Sequence[Control]:
        with self._lock:
            return self.disk.controls[max(after, 0) :]

    def get(self, key: str) -> Any | None:
        with self._lock:
            text = self.disk.facts.get(key)
        return None if text is None else json.loads(text)

    def put(self, key: str, value: Any) -> None:
        """Keep a JSON value; None forgets the key."""
        with self._lock:
            if value is None:
                self.disk.facts.pop(key, None)
            else:
                self.disk.facts[key] = json.dumps(value)
