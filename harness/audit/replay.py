"""Replaying: given what it was given, would the code decide again what the journal says it decided?

The one rule: a decision is computed here the way the Ticker computes it, from the journal alone: alarms
first, then a failed effect, the row's watch and its time limit, then what the next state begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness import __version__
from harness.audit.bundle import BLOBS, JOURNALS
from harness.audit.files import read_own
from harness.audit.index import SMALL_LIMIT_BYTES
from harness.core.fsm import Move, Stay, step
from harness.core.item import Item, snapshot
from harness.core.journal import Fault, Record, scan
from harness.core.result import Err, Ok, Pass
from harness.failures import Failure
from harness.judgement import begin, decide, fold_record, heard, unkeep
from harness.machines.all import CODEC, KINDS
from harness.machines.kind import Kind, Seen
from harness.ports import Store

JOURNAL_LIMIT_BYTES = 1 << 30
GetBlob = Callable[[str], bytes | None]


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first thing of a record that this code would do otherwise. `what` is event, to, reason, note,
    intents, outcome, snapshot, or "nothing" where no decision can be made at all (`expected` then says why
    not). `code` is the version that wrote the record; `same_code` that it is this one, so that this is a
    bug."""

    machine: str
    seq: int
    what: str
    expected: Any
    got: Any
    code: str = ""
    same_code: bool = True

    def __str__(self) -> str:
        where = f"record {self.seq} of {self.machine}"
        if self.what == "nothing":
            return f"{where}: it cannot be replayed: {self.expected}"
        would = "must have" if self.same_code else f"would decide otherwise (written by {self.code}):"
        return f"{where}: {would} {self.what} {_short(self.expected)}, the journal has {_short(self.got)}"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 300 else text[:299] + "…"


@dataclass(frozen=True, slots=True)
class Decision:
    """What a record must say, in its encoded form. `reason` and `note` are None where any will do."""

    event: str | None
    to: str
    reason: str | None
    note: Any
    intents: Any


class Undecided(Exception):
    """Nothing would have been recorded, or nothing can be told; the text says why."""


# ---------------------------------------------------------------- one machine


def replay(records: Sequence[Record], get_blob: GetBlob) -> Divergence | None:
    """The first divergence of one machine's journal, or None."""
    return next(divergences(records, get_blob), None)


def divergences(records: Sequence[Record], get_blob: GetBlob) -> Iterator[Divergence]:
    """Every divergence, in order. Each record is judged on what the journal says happened before it, so one
    does not follow from another. Ends at a record that cannot be folded."""
    if not records:
        return
    kind = KINDS.get(records[0].machine.rsplit("/", 2)[-2] if "/" in records[0].machine else "")
    if kind is None:
        yield _broken(records[0], "no machine of that kind is known")
        return
    item: Item[Any] | None = None
    before: Record | None = None
    for record in records:
        known = item is not None or record.seq == 1 or record.kind == "snapshot"
        if not known:  # the oldest segments have expired: the next snapshot is where it can be taken up
            before = record
            continue
        found = _judge(item, before, record, kind, get_blob)
        if found is not None:
            yield found
        try:
            item = fold_record(item, record)
        except Exception as e:  # whatever a foreign or damaged record does to the fold is the finding
            yield _broken(record, f"it cannot be folded: {type(e).__name__}: {e}")
            return
        before = record


def _broken(record: Record, why: str) -> Divergence:
    return Divergence(record.machine, record.seq, "nothing", why, "", record.code, record.code == __version__)


def _judge(
    item: Item[Any] | None, before: Record | None, record: Record, kind: Kind, get_blob: GetBlob
) -> Divergence | None:
    def differs(what: str, expected: Any, got: Any) -> Divergence:
        same = record.code == __version__
        return Divergence(record.machine, record.seq, what, expected, got, record.code, same)

    try:
        if record.kind == "outcome":
            return _outcome(item, record, differs)
        if record.kind == "snapshot":
            if item is None:
                return None
            made, kept = snapshot(item, CODEC.encode)["item"], record.body["item"]
            part = next((k for k in made if not _same(made[k], kept.get(k))), "")
            return differs("snapshot", {part: made[part]}, {part: kept.get(part)}) if part else None
        expected = _expected(item, before, record, kind, get_blob)
    except Undecided as e:
        return differs("event", f"none ({e})", record.body.get("event"))
    except Exception as e:  # a missing blob, a bug that the writer had not, a record that none of ours wrote
        return _broken(record, str(e) if type(e) is LookupError else f"{type(e).__name__}: {e}")
    return _compare(expected, record.body, differs)


def _outcome(item: Item[Any] | None, record: Record, differs: Callable[..., Divergence]) -> Divergence | None:
    """An outcome is not decided, but it must be that of the intent whose turn it was."""
    body = record.body
    if body["status"] == "exception":
        return None
    intent = item.open_intent if item is not None else None
    if intent is None:
        return differs("outcome", "none (no intent is open)", body.get("effect"))
    turn = f"{intent.n} {intent.effect.get('$', '')}"
    said = f"{body.get('intent')} {body.get('effect')}"
    return differs("outcome", turn, said) if turn != said else None


def _compare(d: Decision, body: Mapping[str, Any], differs: Callable[..., Divergence]) -> Divergence | None:
    for what in ("event", "to", "reason", "note", "intents"):
        expected, got = getattr(d, what), body.get(what)
        anything = expected is None and what in ("reason", "note")
        if not anything and not _same(expected, got):
            return differs(what, *_part(expected, got))
    return None


def _part(expected: Any, got: Any) -> tuple[Any, Any]:
    """Only the members that differ, where both are objects: a note can be long."""
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        keys = [k for k in {**expected, **got} if not _same(expected.get(k), got.get(k))]
        return {k: expected.get(k) for k in keys}, {k: got.get(k) for k in keys}
    return expected, got


def _same(a: Any, b: Any) -> bool:
    """Equal as JSON: 5 and 5.0 are one number, a tuple is a list, true is not 1."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_same(v, b[k]) for k, v in a.items())
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return a == b and isinstance(a, bool) == isinstance(b, bool)


# ---------------------------------------------------------------- one decision


def _expected(
    item: Item[Any] | None, before: Record | None, record: Record, kind: Kind, get_blob: GetBlob
) -> Decision:
    """What this code would have written instead of `record`. Raises Undecided when nothing."""
    kept = unkeep(record.body["seen"], get_blob)
    seen = replace(kept, now=float(kept.now), epoch_began=float(kept.epoch_began))
    if item is None:
        return _first(record, kind, seen)
    if before is not None and before.body.get("status") == "exception":
        quarantined = _quarantine(item, record, kind, seen)
        if quarantined is not None:
            return quarantined
    if item.state in kind.table.final:
        raise Undecided(f"it had ended in {item.state}")
    alarm = kind.alarm(item, seen)
    if alarm is not None:
        return _moved(item, kind, seen, alarm)
    if item.open_intent is not None:
        raise Undecided(f"{item.open_intent.effect.get('$')} was not finished")
    result = decide(item, kind, seen)
    if isinstance(result, Err):
        return _moved(item, kind, seen, kind.fails(item, seen, result))
    if isinstance(result, Ok) and isinstance(result.value, Stay):
        s = result.value
        return Decision(None, item.state, s.why[:2000], CODEC.encode(dict(s.note)), _encoded(s.intents))
    if isinstance(result, Ok):
        return _moved(item, kind, seen, result.value)
    raise Undecided(f"waiting: {result.message}" if isinstance(result, Pass) else "it has no answer")


def _first(record: Record, kind: Kind, seen: Seen) -> Decision:
    """The opening: the start state, and what arriving there begins. Why it was opened is the opener's to
    say."""
    start = kind.table.start
    arriving: Item[Any] = Item(record.machine, start, CODEC.decode(record.body["start"]), entry=1)
    row = kind.table.rows[start]
    begun = row.begin(arriving, seen) if row.begin else ()
    return Decision(None, start, None, {}, _encoded(begun))


def _moved(item: Item[Any], kind: Kind, seen: Seen, move: Move) -> Decision:
    to = step(kind.table, item.state, str(move.event))
    if not isinstance(to, Ok):
        raise Undecided(f"the table does not allow {move.event} in {item.state}")
    move = heard(item, seen, move)
    begun = begin(item, kind, seen, move, to.value)
    note = CODEC.encode(dict(move.note))
    return Decision(str(move.event), to.value, move.why[:2000], note, _encoded(begun))


def _quarantine(item: Item[Any], record: Record, kind: Kind, seen: Seen) -> Decision | None:
    """After too many exceptions a machine takes the edge of an internal error, on no facts at all. The text
    of the exception is not a decision; where the edge leads and what it begins is."""
    if seen.facts or item.state in kind.table.final:
        return None
    edge = kind.fails(item, seen, Err(Failure.INTERNAL_ERROR, ""))
    if record.body.get("event") != str(edge.event):
        return None
    note = CODEC.decode(record.body.get("note", {}))
    made = _moved(item, kind, seen, Move(edge.event, str(record.body.get("reason", "")), note))
    return replace(made, note=None, reason=None)


def _encoded(effects: Sequence[Any]) -> list[Any]:
    return [CODEC.encode(e) for e in effects]


# ---------------------------------------------------------------- whole stores and bundles


def replay_store(
    store: Store, prefix: str = "", tell: Callable[[str], None] = lambda machine: None
) -> list[Divergence]:
    """The first divergence of each machine that has one. `tell` is called with each machine before its
    turn."""
    found: list[Divergence] = []
    for machine in store.machines(prefix):
        tell(machine)
        divergence = replay(store.read(machine), store.get_blob)
        if divergence is not None:
            found.append(divergence)
    return found


def replay_bundle(folder: Path) -> list[Divergence]:
    """The first divergence of the worker's journal, and of the director's, in a sealed bundle. A journal is
    replayed up to its first broken record: `verify` names that one. Raises AuditError."""

    def blob(sha: str) -> bytes | None:
        return read_own(folder / BLOBS / sha, SMALL_LIMIT_BYTES) if sha.isalnum() else None

    found: list[Divergence] = []
    for name in JOURNALS:
        data = read_own(folder / name, JOURNAL_LIMIT_BYTES) or b""
        divergence = replay([r for r in scan(data) if not isinstance(r, Fault)], blob)
        if divergence is not None:
            found.append(divergence)
    return found
