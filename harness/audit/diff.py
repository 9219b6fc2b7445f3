"""Comparing: where do two journals, or two bundles, first decide differently?

The one rule: what is compared is decisions, not their time. Two runs of the same night have other times,
hashes and epochs, and no difference; `strict` compares what was written, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from harness.audit.bundle import JOURNALS
from harness.audit.files import AuditError, read_own
from harness.core.journal import Record, scan

JOURNAL_LIMIT_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Difference:
    """The first decision that is not the same. `a` and `b` are None where one journal has ended; `what` names
    the part that differs, `facts` the queries whose answers differed when it was decided."""

    journal: str
    what: str
    a: Record | None
    b: Record | None
    facts: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"{self.journal}: the {self.what} differs: {_say(self.a)}; against {_say(self.b)}"
        return f"{text}; seen differently: {', '.join(self.facts)}" if self.facts else text


def _say(record: Record | None) -> str:
    if record is None:
        return "the journal has ended"
    b = record.body
    moved = f"{b.get('from') or '(start)'} --{b.get('event')}--> {b.get('to')}"
    move = moved if b.get("event") else f"in {b.get('to')}"
    begun = ", ".join(_names(b))
    reason = f" ({b['reason']})" if b.get("reason") else ""
    return f"record {record.seq}: {move}{reason}" + (f", begins {begun}" if begun else "")


def _names(body: Mapping[str, Any]) -> list[str]:
    return [str(e.get("$")) for e in body.get("intents") or ()]


def _aspects(body: Mapping[str, Any], strict: bool) -> list[tuple[str, Any]]:
    move = (body.get("from"), body.get("event"), body.get("to"))
    parts: list[tuple[str, Any]] = [("move", move), ("list of effects", _names(body))]
    if strict:
        written = ("reason", "note", "intents")
        parts += [(name, body.get(name)) for name in written]
    return parts


def diff_journals(
    a: Sequence[Record], b: Sequence[Record], *, name: str = "journal", strict: bool = False
) -> Difference | None:
    """The first decision of two machines' journals that is not the same, or None."""
    for x, y in zip_longest(_decisions(a), _decisions(b)):
        if x is None or y is None:
            return Difference(name, "length", x, y)
        for (what, left), (_, right) in zip(_aspects(x.body, strict), _aspects(y.body, strict), strict=True):
            if left != right:
                return Difference(name, what, x, y, _facts(x.body, y.body))
    return None


def _decisions(records: Sequence[Record]) -> list[Record]:
    return [r for r in records if r.kind == "transition"]


def _facts(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[str, ...]:
    """The queries whose answers are not the same, and the policy."""
    x, y = a.get("seen") or {}, b.get("seen") or {}
    left, right = x.get("facts") or {}, y.get("facts") or {}
    names = [q for q in dict.fromkeys((*left, *right)) if left.get(q) != right.get(q)]
    return (*names, *(("policy",) if x.get("policy") != y.get("policy") else ()))


def diff_bundles(a: Path, b: Path, *, strict: bool = False) -> list[Difference]:
    """The first difference of the workers' journals, and of the directors'. Raises AuditError."""
    found: list[Difference] = []
    for name in JOURNALS:
        difference = diff_journals(_read(a, name), _read(b, name), name=name, strict=strict)
        if difference is not None:
            found.append(difference)
    return found


def _read(folder: Path, name: str) -> list[Record]:
    data = read_own(folder / name, JOURNAL_LIMIT_BYTES)
    if data is None:
        raise AuditError(f"{folder / name} is not there")
    return [r for r in scan(data) if isinstance(r, Record)]
