"""An item is its records: whole nights fold to the same from any snapshot, and intents close in order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import plays
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core import journal
from harness.core.item import Intent, Item, fold, snapshot
from harness.core.journal import Draft, Record
from harness.judgement import fold_record
from harness.machines.all import CODEC

NIGHTS = ("question", "killed", "cutoff", "merge_agent")


@lru_cache
def night(name: str) -> dict[str, tuple[Record, ...]]:
    """Every journal of a night, the workers' too."""
    s = plays.STORIES[name]()
    stores = [s.store, *(x.turns.ticker.world.store for x in s.crew.living.values())]
    return {m: tuple(store.read(m)) for store in stores for m in store.machines()}


def folded(records: Sequence[Record], item: Item[Any] | None = None) -> Item[Any] | None:
    for r in records:
        item = fold_record(item, r)
    return item


@pytest.mark.parametrize("name", NIGHTS)
def test_every_journal_of_a_night_is_whole(name: str) -> None:
    for records in night(name).values():
        assert journal.check(records) is None


@settings(deadline=None)
@given(name=st.sampled_from(NIGHTS), draw=st.data())
def test_folding_from_a_snapshot_is_folding_from_the_start(name: str, draw: Any) -> None:
    journals = night(name)
    machine = draw.draw(st.sampled_from(sorted(journals)))
    records = journals[machine]
    at = draw.draw(st.integers(1, len(records)))
    before = folded(records[:at])
    assert before is not None
    kept = Record(
        machine, before.seq, before.changed_at, 1, "0", "snapshot", _through_json(before), "", before.head
    )
    restored = fold_record(None, kept)
    assert restored == before
    assert folded(records[at:], restored) == folded(records)


def _through_json(item: Item[Any]) -> Any:
    import json

    return json.loads(journal.canonical(snapshot(item, CODEC.encode)))


@pytest.mark.parametrize("name", NIGHTS)
def test_a_night_restarted_from_its_journals_is_where_it_was(name: str) -> None:
    s = plays.STORIES[name]()
    assert {m: s.turns.ticker.load(m) for m in s.turns.items} == s.turns.items


# ---------------------------------------------------------------- one machine by hand


def record(seq: int, kind: str, at: float = 100.0, epoch: int = 1, **body: Any) -> Record:
    return journal.seal(
        Draft(kind, body),
        machine="toy/1",
        seq=seq,
        at=at,
        epoch=epoch,
        code="0",
        prev="0" * 64,  # type: ignore[arg-type]
    )


def to(
    seq: int, frm: str, event: str | None, state: str, *effects: str, at: float = 100.0, epoch: int = 1
) -> Record:
    begun = [{"$": e, "n": i} for i, e in enumerate(effects)]
    return record(
        seq, "transition", at, epoch, **{"from": frm, "event": event, "to": state, "intents": begun}
    )


def out(seq: int, n: int, status: str, at: float = 101.0, **more: Any) -> Record:
    return record(seq, "outcome", at, intent=n, effect="x", status=status, **more)


def run(*records: Record) -> Item[int]:
    item: Item[Any] | None = None
    for r in records:
        item = fold(item, r, 0, lambda d, r: d + 1, lambda x: x)
    assert item is not None
    return item


def test_entering_a_state_begins_its_intents_and_forgets_those_before() -> None:
    item = run(
        to(1, "", None, "A", "One", "Two"), out(2, 0, "done"), to(3, "A", "go", "B", "Three", at=105.0)
    )
    assert (item.state, item.entry, item.entered_at, item.seq, item.data) == ("B", 3, 105.0, 3, 3)
    assert [i.effect["$"] for i in item.intents] == ["Three"]


def test_what_may_have_been_sent_in_the_state_before_is_looked_for_in_the_next() -> None:
    """A director died while it wrote a comment; the next one moves on at once, and comments again."""
    item = run(
        to(1, "", None, "A", "One", "Two"),
        to(2, "A", "gone", "B", "Two", "One", "Three", at=110.0, epoch=2),
    )
    assert [(i.sent_at, i.sent_epoch) for i in item.intents] == [(None, 1), (None, 1), (None, 2)]
    item = run(
        to(1, "", None, "A", "One"),
        out(2, 0, "ambiguous", sent_at=100.5),
        to(3, "A", "gone", "B", "One", at=110.0, epoch=2),
    )
    assert [(i.sent_at, i.tries) for i in item.intents] == [(100.5, 0)]
    item = run(to(1, "", None, "A", "One"), out(2, 0, "done"), to(3, "A", "go", "B", "One", epoch=2))
    assert [(i.sent_at, i.sent_epoch) for i in item.intents] == [(None, 2)]


def test_a_state_that_goes_on_keeps_its_entry_and_adds_to_its_intents() -> None:
    item = run(to(1, "", None, "A", "One"), out(2, 0, "done"), to(3, "A", None, "A", "Two", at=109.0))
    assert (item.entry, item.entered_at, item.changed_at) == (1, 100.0, 109.0)
    assert [(i.n, i.effect["$"]) for i in item.intents] == [(0, "One"), (1, "Two")]


def test_intents_run_in_order_and_none_after_one_that_failed() -> None:
    item = run(to(1, "", None, "A", "One", "Two", "Three"))
    assert item.open_intent is not None and item.open_intent.n == 0
    item = run(to(1, "", None, "A", "One", "Two", "Three"), out(2, 0, "done"))
    assert item.open_intent is not None and item.open_intent.n == 1
    item = run(
        to(1, "", None, "A", "One", "Two", "Three"), out(2, 0, "done"), out(3, 1, "failed", failure="oom")
    )
    assert item.open_intent is None
    assert item.failed_intent is not None and item.failed_intent.failure == "oom"


@pytest.mark.parametrize(
    ("status", "is_open"), [("ambiguous", True), ("deferred", True), ("done", False), ("failed", False)]
)
def test_what_may_have_happened_stays_open(status: str, is_open: bool) -> None:
    item = run(to(1, "", None, "A", "One"), out(2, 0, status, sent_at=100.5, absent=1, not_before=105.0))
    (intent,) = item.intents
    assert (intent.is_open, intent.tries, intent.sent_at, intent.absent) == (is_open, 1, 100.5, 1)


def test_the_last_possible_send_is_remembered_until_a_later_one() -> None:
    item = run(
        to(1, "", None, "A", "One"),
        out(2, 0, "ambiguous", sent_at=100.5),
        out(3, 0, "deferred"),
        out(4, 0, "ambiguous", sent_at=120.0),
    )
    assert (item.intents[0].sent_at, item.intents[0].tries) == (120.0, 3)


def test_the_value_of_an_effect_is_that_of_the_last_one_done() -> None:
    item = run(
        to(1, "", None, "A", "One", "One"),
        out(2, 0, "done", value={"n": 1}),
        out(3, 1, "failed", value={"n": 2}),
    )
    assert item.value_of("One") == {"n": 1}
    assert item.value_of("Other") is None


def test_a_record_of_an_exception_changes_no_intent() -> None:
    item = run(to(1, "", None, "A", "One"), record(2, "outcome", intent=-1, effect="", status="exception"))
    assert [i.status for i in item.intents] == ["open"]
    assert item.seq == 2


def test_an_intent_is_open_by_these_words_only() -> None:
    assert [s for s in ("open", "ambiguous", "deferred", "done", "failed") if Intent(0, {}, s).is_open] == [
        "open",
        "ambiguous",
        "deferred",
    ]
