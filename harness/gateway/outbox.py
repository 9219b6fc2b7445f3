"""Journal lines on their way to the director: kept in order until acknowledged, sent again from where it
says.

The one rule: a line leaves only when the director has it on its disk. Not safe for threads by itself: its
owner holds a lock, except around `history`, which only reads the journal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from harness.core import journal

LIMIT_BYTES = 64 << 20
HISTORY_LINES = 2000
HISTORY_BYTES = 16 << 20
Lines = list[tuple[int, bytes]]


class Outbox:
    """`replay(n)` reads the journal from record n on; without it only what was added here can be sent."""

    def __init__(self, replay: Callable[[int], Iterable[bytes]] | None) -> None:
        self.replay = replay
        self.lines: deque[tuple[int, bytes]] = deque()
        self.size = 0
        self.next = 0
        self.last = 0
        self.halted = False
        self.more = False

    def add(self, line: bytes) -> str:
        """Keep a line; answers what is wrong with it, or nothing."""
        line = line.removesuffix(b"\n")
        try:
            seq = journal.parse(line).seq
        except ValueError as e:
            return f"a line that is no record is not sent: {e}"
        if len(line) > journal.LINE_LIMIT_BYTES:
            return f"record {seq} has {len(line)} bytes and is not sent"
        if self.size + len(line) > LIMIT_BYTES:
            if self.replay is None:
                return f"record {seq} is not sent: {self.size} bytes wait already"
            self.lines.clear()  # it is all in the journal, and read from there when there is a line again
            self.size, self.more = 0, True
        self.lines.append((seq, line))
        self.size += len(line)
        self.last = max(self.last, seq)
        return ""

    def waiting(self) -> int:
        """Lines that are not acknowledged."""
        return 0 if self.halted else len(self.lines)

    def take(self, most: int) -> list[bytes]:
        """The next lines to send."""
        if self.halted or not self.next:
            return []
        batch = []
        for seq, line in self.lines:
            if seq > self.next and self.more:  # what belongs in between is read first
                break
            if seq >= self.next:
                batch.append(line)
                self.next = seq + 1
                if len(batch) >= most:
                    break
        return batch

    def acked(self, seq: int) -> int:
        """Forget what is on the director's disk. Answers the record to read the journal from, 0 for none."""
        while self.lines and self.lines[0][0] <= seq:
            self.size -= len(self.lines.popleft()[1])
        missing = not self.lines or self.lines[0][0] > seq + 1
        return seq + 1 if self.more and missing else 0

    def halt(self) -> None:
        """No more on this connection: the director will not take what follows."""
        self.halted = True

    def oldest(self) -> int:
        """The number of the first line kept; 0 when there is none, or when others before it were let go."""
        return self.lines[0][0] if self.lines and not self.more else 0

    def history(self, seq: int, oldest: int) -> Lines | None:
        """The journal's lines from `seq` on, a bounded part of them; None when there is no journal to
        read, or it cannot be read now (the next connection tries again)."""
        if self.replay is None or 0 < oldest <= seq:
            return None
        found: Lines = []
        size = 0
        try:
            for line in self.replay(seq):
                line = line.removesuffix(b"\n")
                found.append((journal.parse(line).seq, line))
                size += len(line)
                if len(found) >= HISTORY_LINES or size >= HISTORY_BYTES:
                    break
        except (OSError, ValueError):
            return found or None
        return found

    def rewind(self, seq: int, history: Lines | None) -> str:
        """Go on with record `seq`; answers what cannot be sent any more, or nothing."""
        self.halted, self.more = False, False
        self.acked(seq - 1)
        if history:
            self.more = len(history) >= HISTORY_LINES or sum(len(x) for _, x in history) >= HISTORY_BYTES
            first = self.lines[0][0] if self.lines else history[-1][0] + 1
            older = [(n, line) for n, line in history if seq <= n < first]
            self.lines.extendleft(reversed(older))
            self.size += sum(len(line) for _, line in older)
        self.next = seq
        if self.lines and self.lines[0][0] > seq:
            return f"the director lacks record {seq}, the oldest kept is {self.lines[0][0]}"
        return ""
