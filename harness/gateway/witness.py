"""The director's copy of a worker's journal, taken line by line as it is streamed.

The one rule: a line is taken only if it is a whole record that follows the one before it, and it is
acknowledged only when it is on the disk.
"""

from __future__ import annotations

import asyncio
import os
from enum import StrEnum
from pathlib import Path

from harness.core import journal

FILE_LIMIT_BYTES = 512 << 20
_TAIL_BYTES = 2 * journal.LINE_LIMIT_BYTES


class Taken(StrEnum):
    NEW = "new"
    SEEN = "seen"
    GAP = "gap"
    WRONG = "wrong"


class Witness:
    """`seq` and `head` end the chain that was taken, `synced` is the last number on the disk; `why` says
    what was wrong with a line that was not taken. Opening cuts off a torn last line: it was never
    acknowledged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seq = 0
        self.head = journal.GENESIS
        self.machine = ""
        self.synced = 0
        self.why = ""
        self.broken = False
        path.parent.mkdir(parents=True, exist_ok=True)
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self.size = os.fstat(self.fd).st_size
        self._sync: asyncio.Task[None] | None = None
        self._recover()

    def _recover(self) -> None:
        start = max(0, self.size - _TAIL_BYTES)
        tail = os.pread(self.fd, self.size - start, start)
        whole = tail[: tail.rfind(b"\n") + 1]
        if len(whole) < len(tail):
            self.size = start + len(whole)
            os.ftruncate(self.fd, self.size)
        if not whole:
            return
        last = whole[:-1].rpartition(b"\n")[2]
        try:
            record = journal.parse(last)
        except ValueError as e:
            self.why, self.broken = f"the witnessed journal cannot be continued: its last record: {e}", True
            return
        self.seq = self.synced = record.seq
        self.head, self.machine = record.hash, record.machine

    def take(self, line: bytes) -> Taken:
        """Append one line (with or without its newline). Raises OSError when the disk does not take it."""
        if self.broken:
            return Taken.WRONG
        line = line.removesuffix(b"\n")
        try:
            record = journal.parse(line)
        except ValueError as e:
            return self._wrong(f"record refused: {e}")
        if record.seq < self.seq or (record.seq == self.seq and record.hash == self.head):
            return Taken.SEEN
        if record.seq > self.seq + 1:
            return Taken.GAP
        if record.seq == self.seq or record.prev != self.head:
            return self._wrong(f"record {record.seq} refused: it does not follow the one before it")
        if self.machine and record.machine != self.machine:
            return self._wrong(f"record {record.seq} refused: it belongs to {record.machine}")
        if self.size + len(line) >= FILE_LIMIT_BYTES:
            return self._wrong(f"record {record.seq} refused: more than {FILE_LIMIT_BYTES} bytes of journal")
        self._write(line + b"\n")
        self.seq, self.head, self.machine, self.why = record.seq, record.hash, record.machine, ""
        return Taken.NEW

    def _wrong(self, why: str) -> Taken:
        self.why = why
        return Taken.WRONG

    def _write(self, data: bytes) -> None:
        try:
            done = os.write(self.fd, data)
            if done != len(data):
                raise OSError(28, "No space left on device")
        except OSError:
            os.ftruncate(self.fd, self.size)
            raise
        self.size += len(data)

    async def sync(self) -> int:
        """Bring what was taken to the disk; answers the last number that is there. Calls share a sync in
        flight."""
        while self.synced < self.seq:
            if self._sync is None:
                self._sync = asyncio.create_task(self._flush())
            await asyncio.shield(self._sync)
        return self.synced

    async def _flush(self) -> None:
        seq = self.seq
        try:
            await asyncio.to_thread(os.fdatasync, self.fd)
            self.synced = seq
        finally:
            self._sync = None

    async def close(self) -> None:
        if self._sync is not None:
            await asyncio.wait({self._sync})
        self.forget()

    def forget(self) -> None:
        """Close the file without waiting for anything."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
