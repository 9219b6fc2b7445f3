"""Secrets by value: every form in which a known secret may stand in a text.

The one rule: what is compared is text without blanks, line ends and NULs, in windows of 12 bytes, so that a
secret that is wrapped, cut at either end or part of something longer is found. One secret costs as much as a
hundred: the text is looked at in steps, against one set.
"""

from __future__ import annotations

import base64
import codecs
import html
import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from urllib.parse import quote_from_bytes, quote_plus

from harness.core.shapes import Span

WINDOW = 12
SHORTEST = 6
"""A value shorter than this is not treated as a secret: it would be found everywhere."""

_GRAM = 6
_STEP = WINDOW - _GRAM + 1
_BLANKS = b" \t\r\n\x00"
_RUNS = re.compile(rb"[ \t\r\n\x00]+")
_ARMOR = re.compile(rb"-----(?:BEGIN|END) [^-]{1,60}-----")
_PUBLIC = re.compile(
    rb"github_pat_|sk-ant-(?:api|oat|admin)\d\d-|sk-proj-|sk-svcacct-|glagent-"
    rb"|(?:gh[opsur]_\w{0,40}?)?eyJ[\w-]{1,400}\.(?:eyJ)?"
)


def forms(secret: bytes) -> Iterator[tuple[bytes, int]]:
    """Each form of a secret with the length in bytes from which a part of it counts."""
    yield secret, WINDOW
    yield secret[::-1], WINDOW
    yield secret.lower(), WINDOW
    yield secret.upper(), WINDOW
    for quoted in {quote_from_bytes(secret, safe=""), quote_from_bytes(secret), quote_plus(secret)}:
        yield quoted.encode(), WINDOW
        yield re.sub(r"%..", lambda m: m[0].lower(), quoted).encode(), WINDOW
    text = secret.decode("utf-8", "replace")
    yield text[::-1].encode(), WINDOW
    for escaped in (
        json.dumps(text),
        json.dumps(text, ensure_ascii=False),
        json.dumps(text).replace("/", "\\/"),
    ):
        yield escaped[1:-1].encode(), WINDOW
    yield html.escape(text).encode(), WINDOW
    yield codecs.encode(text, "rot13").encode(), WINDOW
    for once in base64s(secret):
        yield once, WINDOW
        for twice in base64s(once):
            yield twice, WINDOW + 4
    for shift in range(5):
        yield _inner(base64.b32encode(b"\0" * shift + secret), shift * 8, len(secret) * 8, 5), WINDOW + 4
    digits = secret.hex().encode()
    yield digits, 16
    yield digits.upper(), 16
    pairs = [digits[i : i + 2] for i in range(0, len(digits), 2)]
    for join, need in ((b":", 24), (b"%", 24), (b"\\x", 32), (b"\\u00", 48)):
        yield join.join(pairs), need
        yield join.join(p.upper() for p in pairs), need
    yield b",".join(b"%d" % c for c in secret), 32


def base64s(secret: bytes) -> Iterator[bytes]:
    """What stays the same of a secret's base64 wherever in a longer text it stands, in both alphabets."""
    for shift in range(3):
        whole = _inner(base64.b64encode(b"\0" * shift + secret), shift * 8, len(secret) * 8, 6)
        yield whole
        if b"+" in whole or b"/" in whole:
            yield whole.translate(bytes.maketrans(b"+/", b"-_"))


def _inner(encoded: bytes, skip_bits: int, bits: int, per_char: int) -> bytes:
    """The characters that depend on nothing but the secret."""
    return encoded[-(-skip_bits // per_char) : (skip_bits + bits) // per_char]


class Values:
    """Known secrets, ready to be looked for. Those of 6 to 11 bytes are found as a whole only."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self.windows: dict[bytes, tuple[int, int]] = {}
        self.whole: dict[bytes, int] = {}
        for number, secret in enumerate(secrets):
            if len(secret) < WINDOW:
                self.whole.update({f: number for f, _ in forms(secret) if len(f) >= SHORTEST})
            else:
                self._add(secret, number)
        self.grams = {w[i : i + _GRAM] for w in self.windows for i in range(_STEP)}

    def _add(self, secret: bytes, number: int) -> None:
        """Windows of every form, without what all such secrets have in common: a prefix, an armour line."""
        mine: dict[bytes, int] = {}
        for form, need in forms(secret):
            for window in _windows(form.translate(None, _BLANKS)):
                mine[window] = min(need, mine.get(window, need))
        head = _PUBLIC.match(secret)
        for common in (*_ARMOR.findall(secret), *((head[0],) if head else ())):
            for form, _ in forms(common):
                for window in _windows(form.translate(None, _BLANKS)):
                    mine.pop(window, None)
        for window, need in mine.items():
            self.windows.setdefault(window, (need, number))

    def find(self, data: bytes) -> Iterator[Span]:
        for form, number in self.whole.items():
            at = data.find(form)
            while at >= 0:
                yield Span(at, at + len(form), "secret", number)
                at = data.find(form, at + len(form))
        if self.windows:
            yield from self._parts(data)

    def _parts(self, data: bytes) -> Iterator[Span]:
        flat = data.translate(None, _BLANKS)
        back: Unflat | None = None
        done = 0
        for start, end, number in self._runs(flat):
            back = back or Unflat(data)
            if end > done:
                yield Span(back.at(max(start, done)), back.at(end - 1) + 1, "secret", number)
                done = end

    def _runs(self, flat: bytes) -> Iterator[tuple[int, int, int]]:
        grams, windows = self.grams, self.windows
        hits = [i for i in range(0, len(flat) - _GRAM + 1, _STEP) if flat[i : i + _GRAM] in grams]
        done = 0
        for hit in hits:
            if hit < done:
                continue
            for i in range(max(done, hit - _STEP + 1), hit + 1):
                if flat[i : i + WINDOW] not in windows:
                    continue
                start, need, number = i, *windows[flat[i : i + WINDOW]]
                while (more := windows.get(flat[i + 1 : i + 1 + WINDOW])) is not None:
                    i, need = i + 1, min(need, more[0])
                done = i + 1
                if i + WINDOW - start >= need:
                    yield start, i + WINDOW, number
                break


class Unflat:
    """From a place in the text without blanks to the place in the text."""

    def __init__(self, data: bytes) -> None:
        self._from: list[int] = []
        self._add: list[int] = []
        removed = 0
        for m in _RUNS.finditer(data):
            self._from.append(m.start() - removed)
            removed += m.end() - m.start()
            self._add.append(removed)

    def at(self, place: int) -> int:
        i = bisect_right(self._from, place)
        return place + (self._add[i - 1] if i else 0)


def _windows(form: bytes) -> Iterator[bytes]:
    return (form[i : i + WINDOW] for i in range(len(form) - WINDOW + 1))
