"""A worker's store: one machine's journal as a synced file of lines, with blobs beside it.

The one rule: a record that was answered is on the disk, and nothing else is. A torn last line was never
answered and is cut off (and kept aside); anything else that is broken is set aside and never written to. After
an error that leaves the file in doubt it is cut back to what was answered, and read again, before it goes on.

    FOLDER/journal.jsonl           the segment that is written
    FOLDER/journal-000001.jsonl    sealed segments, oldest first, one chain through all of them
    FOLDER/blobs/SHA256            large parts, once each
    FOLDER/facts.json              what `put` and `control` keep
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.adapters.store import lines, places
from harness.adapters.store.errors import StoreError
from harness.adapters.store.facts import Facts
from harness.core import journal
from harness.core.journal import Draft, Fault, Record
from harness.core.result import Err, Ok, Result
from harness.domain import Control
from harness.failures import Failure
from harness.ports import Clock

SEGMENT_BYTES = 16 << 20
ACTIVE = "journal.jsonl"

OnAppend = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of the journal: where its first record stands in the chain, and how many it has."""

    path: Path
    first: int
    count: int
    prev: str


class FileStore:
    """Open one with `FileStore.open`. Safe to use from several threads; one process writes at a time."""

    def __init__(self, folder: Path, clock: Clock, code: str, epoch: int, on_append: OnAppend | None) -> None:
        self.folder = folder
        self.clock = clock
        self.code = code
        self.epoch = epoch
        self.on_append = on_append
        self.segment_bytes = SEGMENT_BYTES
        self.read_only = False
        self.machine = ""
        self._facts = Facts(folder / "facts.json")
        self._lock = threading.RLock()
        self._flock: int | None = None
        self._fd: int | None = None
        self._sealed: list[Segment] = []
        self._active = Segment(folder / ACTIVE, 1, 0, journal.GENESIS)
        self._size = 0
        self._seq, self._head, self._snapshot = 0, journal.GENESIS, 0
        self._named = False
        self._lost = ""

    @classmethod
    def open(
        cls,
        folder: Path | str,
        *,
        clock: Clock,
        code: str,
        epoch: int = 0,
        machine: str = "",
        read_only: bool = False,
        on_append: OnAppend | None = None,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> FileStore:
        """Open or begin the journal of one machine. `on_append` gets each line once it is durable.

        `machine` "" takes whichever machine the journal is of. Raises StoreError when another process writes
        there, when the disk does not let it, or when the journal is broken (it is then renamed to
        `journal.broken-N` and stays so).
        """
        store = cls(Path(folder), clock, code, epoch, on_append)
        store.machine, store.read_only, store.segment_bytes = machine, read_only, segment_bytes
        try:
            if not read_only:
                store.folder.mkdir(parents=True, exist_ok=True)
                store._claim()
            store._load()
        except OSError as e:
            store.close()
            raise places.unwritten(Path(e.filename or folder), e) from e
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        with self._lock:
            for fd in (self._fd, self._flock):
                if fd is not None:
                    os.close(fd)
            self._fd = self._flock = None
            self._lost = self._lost or "the store was closed"

    # ------------------------------------------------------------ opening

    def _claim(self) -> None:
        path = self.folder / "journal.lock"
        self._flock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._flock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            raise StoreError(f"{self.folder} is written by another process: wait for its end") from e

    def _load(self) -> None:
        names = sorted(p for p in self.folder.glob("journal-[0-9]*.jsonl"))
        active = self.folder / ACTIVE
        broken = sorted(self.folder.glob("journal*.broken-*"))
        if broken:
            raise StoreError(f"{broken[-1]} is a broken journal that was set aside: start a new attempt")
        for path in names:
            self._sealed.append(self._take(path, sealed=True))
        self._active = Segment(active, self._seq + 1, 0, self._head)
        if os.path.lexists(active):
            self._active = self._take(active, sealed=False)

    def _take(self, path: Path, *, sealed: bool) -> Segment:
        """Check one file and advance the chain over it."""
        data = places.read_file(path) or b""
        first, prev = self._seq + 1, self._head
        if self._seq == 0 and (start := _start(data)):
            # The oldest segments may have expired; the chain then begins where the first one left begins.
            first, prev = start
        records, fault = journal.read(data, prev=prev, first=first)
        if fault is not None and (sealed or not fault.torn):
            self._quarantine(path, fault)
        if records and self.machine and records[0].machine != self.machine:
            raise StoreError(f"{path} is the journal of {records[0].machine}, not of {self.machine}")
        if records:
            last = records[-1]
            self.machine, self._seq, self._head = last.machine, last.seq, last.hash
            self._snapshot = max([r.seq for r in records if r.kind == "snapshot"], default=self._snapshot)
        if not sealed:
            self._size = len(data) if fault is None else fault.offset
            if fault is not None and not self.read_only:
                self._cut(path, data)
        return Segment(path, first, len(records), prev)

    def _quarantine(self, path: Path, fault: Fault) -> None:
        what = f"record {fault.seq} at byte {fault.offset}: {fault.what}"
        if self.read_only:
            raise StoreError(f"{path} is broken ({what})", Failure.INTERNAL_ERROR)
        aside = places.free_name(path.with_name(path.name.removesuffix(".jsonl") + ".broken"))
        os.rename(path, aside)
        places.sync_folder(self.folder)
        text = f"{path} is broken ({what}): it was set aside as {aside.name}; start a new attempt"
        raise StoreError(text, Failure.INTERNAL_ERROR)

    def _cut(self, path: Path, data: bytes) -> None:
        """Take the torn end off, having kept it aside first."""
        places.write_file(places.free_name(path.with_name("journal.torn")), data[self._size :])
        os.truncate(path, self._size)
        self._open_active()
        self._sync()

    # ------------------------------------------------------------ appending

    def append(self, machine: str, draft: Draft, *, expect_seq: int) -> Result[Record]:
        with self._lock:
            refused = self._refusal(machine, expect_seq)
            if refused is not None:
                return refused
            record, line = lines.seal(
                draft,
                machine=machine,
                seq=self._seq + 1,
                at=self.clock.now(),
                epoch=self.epoch,
                code=self.code,
                prev=self._head,
            )
            try:
                if self._size and self._size + len(line) > self.segment_bytes:
                    self._rotate()
                self._write(line)
            except OSError as e:
                return self._undo(e)
            self._size += len(line)
            self.machine, self._seq, self._head = machine, record.seq, record.hash
            a = self._active
            self._active = Segment(a.path, a.first, a.count + 1, a.prev)
            if record.kind == "snapshot":
                self._snapshot = record.seq
            if self.on_append is not None:
                self.on_append(line)
            return Ok(record)

    def _refusal(self, machine: str, expect_seq: int) -> Err | None:
        if self.read_only:
            return Err(Failure.INTERNAL_ERROR, f"{self.folder} was opened for reading only")
        if self._lost and not self._take_up():
            return Err(Failure.INFRA_ENGINE, f"{self.folder} cannot be written: {self._lost}")
        if self.machine and machine != self.machine:
            whose = f"{self.folder} is the journal of {self.machine}, not of {machine}"
            return Err(Failure.INTERNAL_ERROR, whose)
        if expect_seq != self._seq + 1:
            number = f"{machine}: the next record is {self._seq + 1}, not {expect_seq}"
            return Err(Failure.INTERNAL_ERROR, number)
        return None

    def _take_up(self) -> bool:
        """Go on after an error that left the file in doubt: back to what was answered, and all of it read
        again. Where that fails too, nothing has changed, and the next append tries again."""
        if self._flock is None:
            return False
        before = (self._sealed, self._active, self._seq, self._head, self._snapshot, self._size)
        try:
            fd, self._fd = self._fd, None
            if fd is not None:
                os.close(fd)
            if os.path.lexists(self._active.path):
                os.truncate(self._active.path, self._size)
            self._sealed, self._seq, self._head, self._snapshot, self._size = [], 0, journal.GENESIS, 0, 0
            self._named = False
            self._load()
            self._sync()
        except (OSError, StoreError) as e:
            self._sealed, self._active, self._seq, self._head, self._snapshot, self._size = before
            self._lost = str(e)
            return False
        self._lost = ""
        return True

    def _open_active(self) -> int:
        if self._fd is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(self._active.path, flags, 0o644)
        if not self._named:
            places.sync_folder(self.folder)
            self._named = True
        return self._fd

    def _write(self, line: bytes) -> None:
        fd = self._open_active()
        written = 0
        while written < len(line):
            written += os.write(fd, line[written:])
        self._sync()

    def _sync(self) -> None:
        # fdatasync also syncs the size of the file, which is all of its metadata that matters here.
        getattr(os, "fdatasync", os.fsync)(self._open_active())

    def _undo(self, error: OSError) -> Err:
        """Back to the last good offset. When that fails too, nothing is written before `_take_up`: what is on
        the disk is then only known by reading it."""
        full = error.errno in places.FULL
        try:
            if self._fd is not None:
                os.ftruncate(self._fd, self._size)
                self._sync()
        except OSError as e:
            self._lost = f"after {error.strerror}: {e.strerror}"
        if not full:
            # A sync that failed may have dropped pages that a second sync would call clean.
            self._lost = self._lost or f"{error.strerror}"
        text = f"{self._active.path}: {error.strerror}"
        return Err(Failure.DISK_FULL if full else Failure.INFRA_ENGINE, text, maybe=bool(self._lost))

    def _rotate(self) -> None:
        number = 1 + max((int(s.path.stem.partition("-")[2]) for s in self._sealed), default=0)
        sealed = self.folder / f"journal-{number:06d}.jsonl"
        os.rename(self._active.path, sealed)
        a = self._active
        self._sealed.append(Segment(sealed, a.first, a.count, a.prev))
        self._active = Segment(a.path, self._seq + 1, 0, self._head)
        fd, self._fd, self._size, self._named = self._fd, None, 0, False
        if fd is not None:
            os.close(fd)
        places.sync_folder(self.folder)

    # ------------------------------------------------------------ reading

    def read(self, machine: str, after: int = 0) -> Sequence[Record]:
        with self._lock:
            if not self._seq or machine != self.machine:
                return []
            records: list[Record] = []
            for segment in (*self._sealed, self._active):
                if segment.first + segment.count - 1 > after and segment.count:
                    records += self._read_segment(segment, after)
            return records

    def _read_segment(self, segment: Segment, after: int) -> list[Record]:
        raw = (places.read_file(segment.path) or b"").split(b"\n")[: segment.count]
        try:
            return [lines.load(line) for line in raw[max(0, after + 1 - segment.first) :]]
        except ValueError as e:
            text = f"{segment.path} was changed while it was open: {e}"
            raise StoreError(text, Failure.INTERNAL_ERROR) from e

    def since_snapshot(self, machine: str) -> Sequence[Record]:
        return self.read(machine, max(0, self._snapshot - 1))

    def machines(self, prefix: str = "") -> Sequence[str]:
        return [self.machine] if self._seq and self.machine.startswith(prefix) else []

    def verify(self, machine: str) -> Fault | None:
        """Read every byte again. The offset is that in the segment which holds the record."""
        with self._lock:
            if not self._seq or machine != self.machine:
                return None
            segments = (*self._sealed, self._active)
            first, prev = segments[0].first, segments[0].prev
            for segment in segments:
                data = places.read_file(segment.path) or b""
                records, fault = journal.read(data, prev=prev, first=first)
                if fault is not None:
                    return fault
                if len(records) != segment.count:
                    return Fault(first + len(records), len(data), "records that were written are not there")
                if records:
                    first, prev = records[-1].seq + 1, records[-1].hash
            return None

    # ------------------------------------------------------------ blobs, controls and facts

    def put_blob(self, data: bytes) -> str:
        sha = hashlib.sha256(data).hexdigest()
        path = self.folder / "blobs" / sha
        with self._lock:
            if path.is_file() and not path.is_symlink() and path.stat().st_size == len(data):
                return sha
            self._must_write()
            try:
                path.parent.mkdir(exist_ok=True)
                places.write_file(path, data)
                places.sync_folder(self.folder)
            except OSError as e:
                raise places.unwritten(path, e) from e
        return sha

    def get_blob(self, sha256: str) -> bytes | None:
        if len(sha256) != 64 or not sha256.isalnum():
            return None
        data = places.read_file(self.folder / "blobs" / sha256)
        if data is not None and hashlib.sha256(data).hexdigest() != sha256:
            raise StoreError(f"{self.folder / 'blobs' / sha256} does not have the content that its name says")
        return data

    def control(self, verb: str, args: Mapping[str, Any]) -> int:
        with self._lock:
            self._must_write()
            return self._facts.control(self.clock.now(), verb, args)

    def controls(self, after: int = 0) -> Sequence[Control]:
        with self._lock:
            return self._facts.controls(after)

    def get(self, key: str) -> Any | None:
        with self._lock:
            return self._facts.get(key)

    def put(self, key: str, value: Any) -> None:
        """Keep a JSON value; None forgets the key."""
        with self._lock:
            self._must_write()
            self._facts.put(key, value)

    def _must_write(self) -> None:
        if self.read_only:
            raise StoreError(f"{self.folder} was opened for reading only", Failure.INTERNAL_ERROR)


def _start(data: bytes) -> tuple[int, str] | None:
    """Number and predecessor that the first line claims, where it is a record at all."""
    try:
        record = journal.parse(data.partition(b"\n")[0])
    except ValueError:
        return None
    return record.seq, record.prev
