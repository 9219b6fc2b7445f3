"""Journal records: one canonical JSON line each, chained by hash. Pure: bytes in, values out.

The one rule: `hash` is the SHA-256 of the RFC 8785 form of the record without its `hash`, and `prev` is the
hash before it, so that a changed, dropped, swapped or cut record is found. The caller does the writing and
the fsync; a last line that is torn was never acknowledged and may go, a broken middle may not.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import rfc8785

VERSION = 1
GENESIS = "0" * 64
Kind = Literal["transition", "outcome", "snapshot"]
FIELDS = frozenset({"v", "seq", "at", "machine", "epoch", "code", "kind", "prev", "hash"})
LINE_LIMIT_BYTES = 1 << 20

# Where Python's encoder and RFC 8785 agree byte for byte, the encoder written in C is used: fifteen digits,
# no exponent, no whole float, keys that sort alike as characters and as UTF-16. The rest takes the long way.
_INT_DIGITS = 15
_FLOAT_MIN, _FLOAT_MAX = 1e-4, 1e15
_AS_IS = frozenset({str, bool, type(None)})
_BEYOND_UTF16 = re.compile(rb"[\xf0-\xf4]")
_ENCODER = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), check_circular=False, allow_nan=False
)


class _LongWay(Exception):
    """The value holds something that only the full implementation is trusted with."""


def _read_int(token: str) -> int:
    if len(token) > _INT_DIGITS:
        raise _LongWay
    return int(token)


def _read_float(token: str) -> float:
    value = float(token)
    if not _FLOAT_MIN <= abs(value) < _FLOAT_MAX or value.is_integer():
        raise _LongWay
    return value


def _read_constant(token: str) -> float:
    raise _LongWay


_DECODER = json.JSONDecoder(parse_int=_read_int, parse_float=_read_float, parse_constant=_read_constant)


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a machine's journal. `at` is POSIX seconds here and ISO 8601 with offset on the line."""

    machine: str
    seq: int
    at: float
    epoch: int
    code: str
    kind: str
    body: Mapping[str, Any]
    prev: str
    hash: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A record that is not written yet: the store numbers and chains it."""

    kind: Kind
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Fault:
    """The first thing wrong with a journal: the record's number, its byte offset, what, and whether it is
    only a torn last line (which a writer may cut off)."""

    seq: int
    offset: int
    what: str
    torn: bool = False


def iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")


def posix(text: str) -> float:
    """POSIX seconds of an ISO 8601 time; a time without an offset is taken as UTC, never as local time."""
    when = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def canonical(value: Any) -> bytes:
    """The RFC 8785 form of a JSON value (tuples count as lists). Raises ValueError for what has none."""
    try:
        return _ENCODER.encode(_simple(value)).encode()
    except (_LongWay, UnicodeEncodeError):
        return rfc8785.dumps(value)


def _simple(value: Any) -> Any:
    """A copy that the encoder surely writes in canonical form: plain types, whole floats as ints."""
    kind = type(value)
    if kind in _AS_IS:
        return value
    if kind is dict:
        copy = {}
        for key, member in value.items():
            if type(key) is not str or not key.isascii():
                raise _LongWay
            copy[key] = member if type(member) in _AS_IS else _simple(member)
        return copy
    if kind is list or kind is tuple:
        return [member if type(member) in _AS_IS else _simple(member) for member in value]
    if kind is int and -(10**_INT_DIGITS) < value < 10**_INT_DIGITS:
        return value
    if kind is float and abs(value) < _FLOAT_MAX:
        if value.is_integer():
            return int(value)
        if abs(value) >= _FLOAT_MIN:
            return value
    raise _LongWay


def digest(value: Any) -> str:
    return hashlib.sha256(value if isinstance(value, bytes) else canonical(value)).hexdigest()


def seal(draft: Draft, *, machine: str, seq: int, at: float, epoch: int, code: str, prev: str) -> Record:
    """Number, date and chain a draft."""
    when = iso(at)
    plain = _plain(machine, seq, when, epoch, code, draft.kind, draft.body, prev)
    return Record(machine, seq, posix(when), epoch, code, draft.kind, draft.body, prev, digest(plain))


def _plain(
    machine: str, seq: int, when: str, epoch: int, code: str, kind: str, body: Mapping[str, Any], prev: str
) -> dict[str, Any]:
    clash = FIELDS & set(body)
    if clash:
        raise ValueError(f"a record's body may not use {sorted(clash)}")
    head = {"v": VERSION, "seq": seq, "at": when, "machine": machine, "epoch": epoch, "code": code}
    return {**head, "kind": kind, **body, "prev": prev}


def line(record: Record) -> bytes:
    """The record's line, with its newline. ValueError above `LINE_LIMIT_BYTES`: large parts are blobs."""
    r = record
    plain = _plain(r.machine, r.seq, iso(r.at), r.epoch, r.code, r.kind, r.body, r.prev)
    data = canonical({**plain, "hash": r.hash}) + b"\n"
    if len(data) > LINE_LIMIT_BYTES:
        raise ValueError(f"record {r.seq} of {r.machine} has {len(data)} bytes, at most {LINE_LIMIT_BYTES}")
    return data


def parse(raw: bytes) -> Record:
    """Read one line (without its newline); raises ValueError with a short reason. The hash is checked."""
    try:
        d, exact = _load(raw)
    except (ValueError, RecursionError) as e:
        raise ValueError("not JSON") from e
    if not isinstance(d, dict) or not set(d) >= FIELDS:
        raise ValueError("not a record")
    if d["v"] != VERSION:
        raise ValueError(f"record version {d['v']}, this code reads {VERSION}")
    try:
        if not exact and canonical(d) != raw:
            raise ValueError("not in canonical form")
        given = d["hash"]
        # In canonical form, leaving the member out of the bytes is leaving it out of the value: it never
        # comes last ("kind" sorts after it), and nothing else can hold the hash of the bytes that hold it.
        if hashlib.sha256(raw.replace(f'"hash":"{given}",'.encode(), b"", 1)).hexdigest() != given:
            raise ValueError("its hash does not match its content")
        body = {k: v for k, v in d.items() if k not in FIELDS}
        machine, code, kind = str(d["machine"]), str(d["code"]), str(d["kind"])
        at = posix(d["at"])
        return Record(machine, int(d["seq"]), at, int(d["epoch"]), code, kind, body, d["prev"], given)
    except (TypeError, AttributeError, OverflowError) as e:
        raise ValueError("not a record") from e


def _load(raw: bytes) -> tuple[Any, bool]:
    """The value, and whether it is already known that `raw` is its canonical form."""
    text = raw.decode()
    try:
        value = _DECODER.decode(text)
        return value, _ENCODER.encode(value) == text and (raw.isascii() or not _BEYOND_UTF16.search(raw))
    except _LongWay:
        return json.loads(text), False


def scan(data: bytes, *, prev: str = GENESIS, first: int = 1) -> Iterator[Record | Fault]:
    """The good records of a journal's bytes one by one, and last of all the first fault, if there is one."""
    offset, seq, machine = 0, first, None
    while offset < len(data):
        end = data.find(b"\n", offset)
        last = end < 0
        try:
            if last:
                raise ValueError("the last line is torn")
            record = parse(data[offset:end])
            wrong = _link(record, seq, prev, record.machine if machine is None else machine)
            if wrong:
                raise ValueError(wrong)
        except ValueError as e:
            yield Fault(seq, offset, str(e), torn=last)
            return
        yield record
        machine, prev, seq, offset = record.machine, record.hash, seq + 1, end + 1


def read(data: bytes, *, prev: str = GENESIS, first: int = 1) -> tuple[list[Record], Fault | None]:
    """All good records of a journal's bytes, and the first fault. Nothing after a fault is returned."""
    records: list[Record] = []
    for found in scan(data, prev=prev, first=first):
        if isinstance(found, Fault):
            return records, found
        records.append(found)
    return records, None


def _link(record: Record, seq: int, prev: str, machine: str) -> str | None:
    if record.seq != seq:
        return f"record {record.seq} stands where {seq} should"
    if record.prev != prev:
        return "the record before it is not the one it names"
    if record.machine != machine:
        return f"it belongs to {record.machine}"
    return None


def check(records: Iterable[Record], *, prev: str = GENESIS, first: int = 1) -> Fault | None:
    """The first break of a chain of records already read (from a store): numbers, links and hashes."""
    seq = first
    machine: str | None = None
    for r in records:
        machine = machine or r.machine
        wrong = _link(r, seq, prev, machine)
        again = digest(_plain(r.machine, r.seq, iso(r.at), r.epoch, r.code, r.kind, r.body, r.prev))
        if wrong is None and again != r.hash:
            wrong = "its hash does not match its content"
        if wrong:
            return Fault(seq, 0, wrong)
        prev, seq = r.hash, seq + 1
    return None
