"""Journal lines, written and read at the speed of a disk: the same bytes as `harness.core.journal`, sooner.

The one rule: the result is byte for byte what `journal.seal` and `journal.line` make; what the short way
cannot surely write in RFC 8785 form goes the long way. (In pure Python it costs more than a sync.)
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Any

import rfc8785

from harness.core import journal
from harness.core.journal import Draft, Record

# ECMAScript and Python print these numbers alike; others differ in form, or are no JSON for RFC 8785.
_INT_MAX = 2**53 - 1
_FLOAT_MIN, _FLOAT_MAX = 1e-4, 1e15

_AS_IS = frozenset({str, bool, type(None)})
_ENCODER = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), check_circular=False, allow_nan=False
)

# Stands where the hash will. No hash looks like it, so finding it once finds the right place.
_MARK = "#" * 64
_MARKED = f'"hash":"{_MARK}",'.encode()


class _LongWay(Exception):
    """The value holds something that only the full implementation is trusted with."""


def _simple(value: Any) -> Any:
    """A copy in plain JSON types, whole floats as ints, that `json.dumps` writes in canonical form."""
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
    if kind is int and -_INT_MAX <= value <= _INT_MAX:
        return value
    if kind is float and value.is_integer() and -_INT_MAX <= value <= _INT_MAX:
        return int(value)
    if kind is float and _FLOAT_MIN <= abs(value) < _FLOAT_MAX:
        return value
    raise _LongWay


def plain(value: Any) -> tuple[Any, bytes]:
    """A copy of a JSON value as it would be read back, and its RFC 8785 form."""
    try:
        copy = _simple(value)
    except _LongWay:
        text = rfc8785.dumps(value)
        copy = json.loads(text)
        # A whole float above 2**53 is written as an int that no reader may take: better refused than written.
        if rfc8785.dumps(copy) != text:
            raise ValueError("a number would not be read back as it was written") from None
        return copy, text
    return copy, _ENCODER.encode(copy).encode()


def canonical(value: Any) -> bytes:
    return plain(value)[1]


def seal(
    draft: Draft, *, machine: str, seq: int, at: float, epoch: int, code: str, prev: str
) -> tuple[Record, bytes]:
    """`journal.seal` and `journal.line` in one: the record and its line, with the newline."""
    if not journal.FIELDS.isdisjoint(draft.body):
        raise ValueError(f"a record's body may not use {sorted(journal.FIELDS & draft.body.keys())}")
    when = datetime.fromtimestamp(at, UTC)
    time = when.isoformat(timespec="microseconds")
    head = {"v": journal.VERSION, "seq": seq, "at": time, "machine": machine, "epoch": epoch, "code": code}
    members = {**head, "kind": draft.kind, **draft.body, "prev": prev, "hash": _MARK}
    copy, text = plain(members)
    if text.count(_MARKED) != 1:
        record = journal.seal(draft, machine=machine, seq=seq, at=at, epoch=epoch, code=code, prev=prev)
        return record, journal.line(record)
    # "hash" never comes last: "kind", "machine", "prev", "seq" and "v" sort after it.
    own = hashlib.sha256(text.replace(_MARKED, b"", 1)).hexdigest()
    line = text.replace(_MARKED, f'"hash":"{own}",'.encode(), 1) + b"\n"
    if len(line) > journal.LINE_LIMIT_BYTES:
        limit = journal.LINE_LIMIT_BYTES
        raise ValueError(f"record {seq} of {machine} has {len(line)} bytes, at most {limit}")
    body = {key: copy[key] for key in draft.body}
    return Record(machine, seq, when.timestamp(), epoch, code, draft.kind, body, prev, own), line


def load(line: bytes) -> Record:
    """Read back a line that a store of ours wrote, with or without its newline. Its hash is checked; that it
    is in canonical form is not. Raises ValueError."""
    raw = line.rstrip(b"\n")
    members = json.loads(raw)
    if not isinstance(members, dict) or not members.keys() >= journal.FIELDS:
        raise ValueError("not a record")
    own = members["hash"]
    bare = raw.replace(f'"hash":"{own}",'.encode(), b"", 1)
    if hashlib.sha256(bare).hexdigest() != own:
        raise ValueError("its hash does not match its content")
    body = {key: value for key, value in members.items() if key not in journal.FIELDS}
    return Record(
        members["machine"],
        members["seq"],
        journal.posix(members["at"]),
        members["epoch"],
        members["code"],
        members["kind"],
        body,
        members["prev"],
        own,
    )
