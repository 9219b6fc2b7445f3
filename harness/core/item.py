"""An item is a machine as folded from its journal: its state, what it has begun, and its own data.

The one rule: `fold` is the only way to get one, and it reads nothing but records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
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
    common: dict[str, Any] = {"seq": record.seq, "head": record.hash, "changed_at": record.at}
    if record.kind == "snapshot":
        kept = body["item"]
        return replace(
            old,
            **common,
            state=kept["state"],
            data=decode(kept["data"]),
            entered_at=kept["entered_at"],
            entry=kept["entry"],
            intents=tuple(Intent(**i) for i in kept["intents"]),
        )
    if record.kind == "outcome":
        intents = tuple(_settle(i, record) if i.n == body["intent"] else i for i in old.intents)
        new = replace(old, **common, intents=intents)
    else:
        moved = body["event"] is not None or item is None
        begun = [
            Intent(n, e, begun_at=record.at, sent_epoch=record.epoch)
            for n, e in enumerate(body["intents"], start=0 if moved else len(old.intents))
        ]
        new = replace(
            old,
            **common,
            state=body["to"],
            entered_at=record.at if moved else old.entered_at,
            entry=record.seq if moved else old.entry,
            intents=tuple(begun) if moved else (*old.intents, *begun),
        )
    return replace(new, data=fold_data(new.data, record))


def _settle(intent: Intent, record: Record) -> Intent:
    b = record.body
    sent = b.get("sent_at", intent.sent_at)
    return replace(
        intent,
        status=b["status"],
        tries=intent.tries + 1,
        absent=b.get("absent", 0),
        sent_at=sent,
        sent_epoch=record.epoch,
        not_before=b.get("not_before", 0.0),
        value=b.get("value"),
        failure=b.get("failure", ""),
        detail=b.get("detail", ""),
    )


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
