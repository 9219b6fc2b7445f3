"""An item is a machine as folded from its journal: its state, what it has begun, and its own data.

The one rule: `fold` is the only way to get one, and it reads nothing but records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

from harness.core.journal import Record

D = TypeVar("D")

OPEN = ("open", "ambiguous", "deferred")


@dataclass(frozen=True, slots=True)
class Intent:
    """One effect that a state began. `effect` is its encoded form; `n` its place among the state's intents.

    `sent_epoch` is the epoch in which it may first have been sent. `sent_at` is the latest moment a send is
    known to have been possible; `absent` counts the reads since then that did not find its key.
    """

    n: int
    effect: Mapping[str, Any]
    status: str = "open"
    tries: int = 0
    absent: int = 0
    begun_at: float = 0.0
    sent_at: float | None = None
    sent_epoch: int = 0
    not_before: float = 0.0
    value: Any = None
    failure: str = ""
    detail: str = ""

    @property
    def is_open(self) -> bool:
        return self.status in OPEN


@dataclass(frozen=True, slots=True)
class Item(Generic[D]):
    """One machine. `entry` is the number of the record that entered the state (it makes keys of a state
    entered again new), `changed_at` the time of the last record: a look begun before it does not count."""

    id: str
    state: str
    data: D
    entered_at: float = 0.0
    entry: int = 0
    seq: int = 0
    head: str = ""
    changed_at: float = 0.0
    intents: tuple[Intent, ...] = ()

    @property
    def open_intent(self) -> Intent | None:
        """The next intent to perform: in order, and none after one that failed."""
        for i in self.intents:
            if i.status == "failed":
                return None
            if i.is_open:
                return i
        return None

    @property
    def failed_intent(self) -> Intent | None:
        return next((i for i in self.intents if i.status == "failed"), None)

    def value_of(self, effect: str) -> Any:
        """The value of the last finished intent of that kind in this state, or None."""
        for i in reversed(self.intents):
            if i.effect.get("$") == effect and i.status == "done":
                return i.value
        return None


FoldData = Callable[[Any, Record], Any]


def fold(
    item: Item[Any] | None, record: Record, data: Any, fold_data: FoldData, decode: Callable[[Any], Any]
) -> Item[Any]:
    """The item after one more record. `data` is the empty data of a machine that has no record yet."""
    old = item or Item(record.machine, "", data)
    body = record.body
    state, entered_at, entry, intents = old.state, old.entered_at, old.entry, old.intents
    kept = old.data
    if record.kind == "snapshot":
        taken = body["item"]
        state, kept = taken["state"], decode(taken["data"])
        entered_at, entry = taken["entered_at"], taken["entry"]
        intents = tuple(Intent(**i) for i in taken["intents"])
    else:
        if record.kind == "outcome":
            intents = tuple([_settle(i, record) if i.n == body["intent"] else i for i in intents])
        else:
            state, left = body["to"], intents
            if body["event"] is not None or item is None:
                entered_at, entry, intents = record.at, record.seq, ()
            begun = enumerate(body["intents"], start=len(intents))
            new = [_begun(n, e, record, left) for n, e in begun]
            intents = (*intents, *new)
        kept = fold_data(kept, record)
    return Item(old.id, state, kept, entered_at, entry, record.seq, record.hash, record.at, intents)


def _begun(n: int, effect: Mapping[str, Any], record: Record, left: tuple[Intent, ...]) -> Intent:
    """A state that is left while an effect may have been sent hands that on to the next of its kind: it may
    bear the same key, and the world may not show it yet."""
    same = [i for i in left if i.is_open and i.effect.get("$") == effect.get("$")]
    if not same:
        return Intent(n, effect, begun_at=record.at, sent_epoch=record.epoch)
    at = max((i.sent_at for i in same if i.sent_at is not None), default=None)
    return Intent(n, effect, begun_at=record.at, sent_at=at, sent_epoch=min(i.sent_epoch for i in same))


def _settle(i: Intent, record: Record) -> Intent:
    b = record.body
    return Intent(
        i.n, i.effect, b["status"], i.tries + 1, b.get("absent", 0), i.begun_at, b.get("sent_at", i.sent_at),
        record.epoch, b.get("not_before", 0.0), b.get("value"), b.get("failure", ""), b.get("detail", ""),
    )  # fmt: skip


def snapshot(item: Item[Any], encode: Callable[[Any], Any]) -> dict[str, Any]:
    """The body of a snapshot record: all that `fold` keeps except what each record brings anyway."""
    kept = {
        "state": item.state,
        "data": encode(item.data),
        "entered_at": item.entered_at,
        "entry": item.entry,
        "intents": [{f.name: getattr(i, f.name) for f in fields(i)} for i in item.intents],
    }
    return {"item": kept}
