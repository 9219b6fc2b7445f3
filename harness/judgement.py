"""What a record makes of a machine, and what a machine makes of what it sees: pure, for the tick and for replay.

The one rule: nothing here reads or writes anything; the same item and the same `Seen` give the same answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from harness.core.codec import Codec
from harness.core.fsm import Move
from harness.core.item import Item, fold
from harness.core.journal import Record
from harness.core.result import Err, Pass
from harness.failures import Failure
from harness.machines.all import CODEC, kind_of
from harness.machines.kind import Kind, Seen, known


def fold_record(item: Item[Any] | None, record: Record, codec: Codec = CODEC) -> Item[Any]:
    """One more record, for any machine of ours."""
    kind = kind_of(record.machine)

    def fold_data(data: Any, r: Record) -> Any:
        if "start" in r.body:
            data = codec.decode(r.body["start"])
        body = codec.decode({k: v for k, v in r.body.items() if k != "seen"})
        return kind.fold(data, Record(r.machine, r.seq, r.at, r.epoch, r.code, r.kind, body, r.prev, r.hash))

    return fold(item, record, kind.data() if item is None else None, fold_data, codec.decode)


def decide(item: Item[Any], kind: Kind, seen: Seen) -> Any:
    """What the state's row says about what was seen: pure. A failed intent takes its failure's edge unasked;
    a state that waits longer than its row allows times out. Only time counts in which somebody looked: a
    director that was down, or whose clock was set forward meanwhile, finds all as it left it."""
    row = kind.table.rows[item.state]
    failed = item.failed_intent
    if failed is not None:
        return Err(failed.failure, failed.detail)
    assert row.watch is not None, f"{kind.name} cannot watch {item.state}"
    result = row.watch(item, seen)
    if isinstance(result, Pass) and row.within:
        limit = getattr(seen.policy, row.within)
        if seen.now - max(item.entered_at, seen.epoch_began) > limit:
            return Err(Failure.TIMEOUT, f"{item.state} took longer than {int(limit)} s: {result.message}")
    return result


def heard(item: Item[Any], seen: Seen, move: Move) -> Move:
    """A person's commands count once, by their number: what was known when a machine moved on is not heard
    again in the states after. A clock cannot say that; it can be set back."""
    controls = seen["controls"]
    if not hasattr(item.data, "control") or not known(controls):
        return move
    last = max((c.id for c in controls), default=0)
    return replace(move, note={**move.note, "control": last}) if last > item.data.control else move


def begin(item: Item[Any], kind: Kind, seen: Seen, move: Move, to: str) -> tuple[Any, ...]:
    """The intents of arriving in `to`: pure. The item is as it will be: new state, entry number and data."""
    row = kind.table.rows[to]
    if row.begin is None:
        return ()
    body = {"from": item.state, "event": move.event, "to": to, "note": dict(move.note), "intents": []}
    record = Record(item.id, item.seq + 1, seen.now, 0, "", "transition", body, item.head, "")
    arriving = replace(
        item, state=to, entry=item.seq + 1, entered_at=seen.now, intents=(), data=kind.fold(item.data, record)
    )
    return row.begin(arriving, seen)


def unkeep(kept: Mapping[str, Any], get_blob: Callable[[str], bytes | None], codec: Codec = CODEC) -> Seen:
    """The `Seen` of a record, from its parts and blobs. Raises LookupError when a blob is missing."""

    def part(p: Mapping[str, Any], read: Callable[[bytes, Codec], Any] = _read_part) -> Any:
        if "value" in p:
            return codec.decode(p["value"])
        data = get_blob(p["blob"])
        if data is None:
            raise LookupError(f"blob {p['blob']} is missing")
        return read(data, codec)

    facts = {q: part(p) for q, p in kept["facts"].items()}
    return Seen(kept["now"], part(kept["policy"], _read_policy), kept["epoch_began"], facts)


def _read_part(data: bytes, codec: Codec) -> Any:
    return codec.decode(json.loads(data))


_read_policy = lru_cache(maxsize=8)(_read_part)  # one policy stands for hundreds of records, and is frozen
