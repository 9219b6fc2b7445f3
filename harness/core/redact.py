"""Redaction: no secret leaves, in any of the forms in which it may be written.

The one rule: all that is stored, sent or shown goes through one `Redactor`, as a whole text or as a joined
stream. What stands in place of a secret tells which one it was (a keyed fingerprint), nothing of what it was.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from harness.core import shapes
from harness.core.encodings import SHORTEST, Values
from harness.core.shapes import Span

TAIL_BYTES = 1024
"""A stream keeps this much back: a wrapped secret, with its blanks, is shorter or already half seen."""

HELD_BYTES = 65536
CONTEXT_BYTES = 16


class Redactor:
    """Secrets by value (`encodings`) and by shape (`shapes`). `key` keys the fingerprints; without one
    the secrets do. Values shorter than 6 characters are not looked for. Safe to share between threads."""

    def __init__(self, secrets: Sequence[str] = (), key: bytes = b"") -> None:
        known = sorted({s.strip() for s in secrets} - {""}, key=lambda s: (-len(s), s))
        self._known = [s.encode("utf-8", "surrogatepass") for s in known]
        self._known = [s for s in self._known if len(s) >= SHORTEST]
        self._key = key or hashlib.sha256(b"\0".join(self._known)).digest()
        self._values = Values(self._known)
        self._hits: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def hits(self) -> Mapping[str, int]:
        """How many of each kind were replaced so far."""
        return MappingProxyType(self._hits)

    def text(self, s: str) -> str:
        return self.data(s.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def data(self, b: bytes) -> bytes:
        return self.replace(b, self.find(b))

    def stream(self) -> StreamRedactor:
        return StreamRedactor(self)

    def find(self, data: bytes) -> tuple[Span, ...]:
        """The secrets in some bytes, in order, none overlapping another."""
        spans = sorted((*self._values.find(data), *shapes.find(data)), key=lambda s: (s.start, -s.end))
        merged: list[Span] = []
        for s in spans:
            if merged and s.start < merged[-1].end:
                last = merged[-1]
                lead = s if s.known >= 0 > last.known else last
                first = min(last.first, s.first)
                merged[-1] = Span(last.start, max(last.end, s.end), lead.kind, lead.known, first)
            else:
                merged.append(s)
        return tuple(_whole_characters(data, s) for s in merged)

    def replace(self, data: bytes, spans: Sequence[Span]) -> bytes:
        """The bytes with each span's placeholder in its place; what was replaced is counted."""
        if not spans:
            return data
        out, done = [], 0
        for s in spans:
            out += [data[done : s.start], self.placeholder(data, s)]
            done = max(done, s.end)
        with self._lock:
            self._hits.update(s.kind for s in spans)
        return b"".join((*out, data[done:]))

    def placeholder(self, data: bytes, span: Span) -> bytes:
        value = self._known[span.known] if span.known >= 0 else data[span.start : span.end]
        print_ = hmac.new(self._key, value, hashlib.sha256).hexdigest()[:8]
        return f"[redacted:{span.kind}:{print_}]".encode()


class StreamRedactor:
    """Bytes in, bytes out, a little later: what could still become a secret waits for what follows."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._before = b""
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """What is safe to pass on now."""
        self._held += chunk
        if len(self._held) <= TAIL_BYTES:
            return b""
        data = self._before + self._held
        spans = self._redactor.find(data)
        cut = self._cut(data, spans)
        return self._emit(data, cut, spans)

    def flush(self) -> bytes:
        """The rest, at the stream's end."""
        data = self._before + self._held
        return self._emit(data, len(data), self._redactor.find(data))

    def _cut(self, data: bytes, spans: Sequence[Span]) -> int:
        """Up to where nothing can change any more; but never more than HELD_BYTES are kept."""
        cut = min(len(data) - TAIL_BYTES, shapes.open_since(data))
        for s in reversed(spans):
            if s.end > cut and s.first < cut:
                cut = s.first
        return max(cut, len(self._before), len(data) - HELD_BYTES)

    def _emit(self, data: bytes, cut: int, spans: Sequence[Span]) -> bytes:
        skip = len(self._before)
        mine = [
            Span(max(s.start, skip), min(s.end, cut), s.kind, s.known)
            for s in spans
            if s.start < cut and s.end > skip
        ]
        out = self._redactor.replace(data[:cut], mine)[skip:]
        self._before = data[max(0, cut - CONTEXT_BYTES) : cut]
        self._held = data[cut:]
        return out


def _whole_characters(data: bytes, span: Span) -> Span:
    """A span that begins and ends between characters of UTF-8."""
    start, end = span.start, span.end
    while start > 0 and span.start - start < 3 and start < len(data) and data[start] & 0xC0 == 0x80:
        start -= 1
    while end < len(data) and end - span.end < 3 and data[end] & 0xC0 == 0x80:
        end += 1
    return replace(span, start=start, end=end) if (start, end) != (span.start, span.end) else span
