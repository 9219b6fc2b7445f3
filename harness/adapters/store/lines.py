"""Journal lines, written and read at the speed of a disk: the same bytes as `harness.core.journal`, sooner.

The one rule: the result is byte for byte what `journal.seal` and `journal.line` make, from one canonical form
instead of two.
"""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC, datetime

from harness.core import journal
from harness.core.journal import Draft, Record

# Stands where the hash will. No hash looks like it, so finding it once finds the right place.
_MARK = "#" * 64
_MARKED = f'"hash":"{_MARK}",'.encode()

# A whole float beyond 2**53 is written as digits that no reader may take as a number.
_DIGITS = re.compile(rb"[:,\[]-?\d{16}")


def seal(
    draft: Draft, *, machine: str, seq: int, at: float, epoch: int, code: str, prev: str
) -> tuple[Record, bytes]:
    """`journal.seal` and `journal.line` in one: the record and its line, with the newline. Raises ValueError
    for what has no line."""
    if not journal.FIELDS.isdisjoint(draft.body):
        raise ValueError(f"a record's body may not use {sorted(journal.FIELDS & draft.body.keys())}")
    when = datetime.fromtimestamp(at, UTC)
    time = when.isoformat(timespec="microseconds")
    head = {"v": journal.VERSION, "seq": seq, "at": time, "machine": machine, "epoch": epoch, "code": code}
    text = journal.canonical({**head, "kind": draft.kind, **draft.body, "prev": prev, "hash": _MARK})
    if text.count(_MARKED) != 1:
        record = journal.seal(draft, machine=machine, seq=seq, at=at, epoch=epoch, code=code, prev=prev)
        return record, journal.line(record)
    # "hash" never comes last: "kind", "machine", "prev", "seq" and "v" sort after it.
    bare = text.replace(_MARKED, b"", 1)
    own = hashlib.sha256(bare).hexdigest()
    line = text.replace(_MARKED, f'"hash":"{own}",'.encode(), 1) + b"\n"
    if len(line) > journal.LINE_LIMIT_BYTES:
        limit = journal.LINE_LIMIT_BYTES
        raise ValueError(f"record {seq} of {machine} has {len(line)} bytes, at most {limit}")
    if _DIGITS.search(line):
        journal.parse(line[:-1])
    return Record(machine, seq, when.timestamp(), epoch, code, draft.kind, draft.body, prev, own), line


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
