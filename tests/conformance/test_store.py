"""What every Store must do. One suite over the memory store, the worker's file and the director's SQL."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.adapters.memory.store import MemoryStore
from harness.adapters.store.file import FileStore
from harness.adapters.store.sql import SqlStore
from harness.core import journal
from harness.core.journal import GENESIS, Draft, Record
from harness.core.result import Err
from harness.ports import Store

M = "acme/widget/ticket/12"
OTHER = "acme/widget/ticket/7"


@dataclass
class Time:
    """A clock that a test turns."""

    at: float = 1_700_000_000.25

    def now(self) -> float:
        self.at += 1
        return self.at

    def monotonic(self) -> float:
        return self.at


@dataclass
class Kind:
    """One implementation under test. `again` opens what `store` wrote, as a restarted process would."""

    store: Store
    again: Callable[[], Store]
    many: bool = True
    opened: list[Any] = field(default_factory=list)

    def reopen(self) -> Store:
        self.store = self.again()
        return self.store


@pytest.fixture(params=["memory", "file", "sql"])
def kind(request: pytest.FixtureRequest, tmp_path: Path):
    clock = Time()
    if request.param == "memory":
        memory = MemoryStore(clock, code="1.2.3")
        yield Kind(memory, memory.reopen)
        return
    opened: list[Any] = []

    def again() -> Any:
        for old in opened:
            old.close()
        if request.param == "file":
            new: Any = FileStore.open(tmp_path / "journal", clock=clock, code="1.2.3", segment_bytes=2000)
        else:
            new = SqlStore.open(tmp_path / "store.db", clock=clock, code="1.2.3")
        opened.append(new)
        return new

    yield Kind(again(), again, many=request.param != "file")
    for old in opened:
        old.close()


def move(n: int, **more: Any) -> Draft:
    body = {"from": "A", "event": "go", "to": "B", "reason": f"step {n}", "seen": {}, "intents": [], **more}
    return Draft("transition", body)


def write(store: Store, count: int, machine: str = M, first: int = 1) -> list[Record]:
    return [store.append(machine, move(n), expect_seq=n).unwrap() for n in range(first, first + count)]


def test_records_are_numbered_dated_and_chained(kind: Kind) -> None:
    one, two = write(kind.store, 2)
    assert (one.seq, two.seq) == (1, 2)
    assert (one.prev, two.prev) == (GENESIS, one.hash)
    assert one.at < two.at and one.code == "1.2.3" and one.epoch == 0 and one.machine == M
    assert journal.check([one, two]) is None


def test_what_was_appended_is_read_back_equal(kind: Kind) -> None:
    written = write(kind.store, 3)
    assert list(kind.store.read(M)) == written
    assert list(kind.store.read(M, after=1)) == written[1:]
    assert list(kind.store.read(M, after=3)) == []
    assert list(kind.store.read(M, after=99)) == []


def test_an_unknown_machine_has_no_records(kind: Kind) -> None:
    assert list(kind.store.read("nobody")) == []
    assert list(kind.store.since_snapshot("nobody")) == []
    assert kind.store.verify("nobody") is None
    assert list(kind.store.machines()) == []


def test_another_number_than_expected_is_refused_and_nothing_is_written(kind: Kind) -> None:
    write(kind.store, 2)
    for wrong in (0, 1, 2, 4):
        answer = kind.store.append(M, move(9), expect_seq=wrong)
        assert isinstance(answer, Err) and answer.failure == "internal_error"
    assert len(kind.store.read(M)) == 2
    write(kind.store, 1, first=3)


def test_a_restart_finds_all_of_it_and_goes_on(kind: Kind) -> None:
    written = write(kind.store, 20)
    store = kind.reopen()
    assert list(store.read(M)) == written
    written += write(store, 5, first=21)
    assert list(kind.reopen().read(M)) == written
    assert store.verify(M) is None and journal.check(written) is None


def test_since_snapshot_begins_with_the_last_snapshot(kind: Kind) -> None:
    written = write(kind.store, 2)
    assert list(kind.store.since_snapshot(M)) == written
    for n in (3, 6):
        write(kind.store, n - 1 - len(kind.store.read(M)), first=len(kind.store.read(M)) + 1)
        kind.store.append(M, Draft("snapshot", {"item": {"state": "B"}}), expect_seq=n).unwrap()
    write(kind.store, 2, first=7)
    for store in (kind.store, kind.reopen()):
        assert [r.seq for r in store.since_snapshot(M)] == [6, 7, 8]
        assert store.since_snapshot(M)[0].kind == "snapshot"
        assert [r.seq for r in store.read(M)] == list(range(1, 9))


def test_machines_are_listed_in_order_and_by_prefix(kind: Kind) -> None:
    names = [M] if not kind.many else ["a/b/ticket/2", M, "a/b/ticket/10", "a/b/release/1", "a%b/x", "a_b/x"]
    for name in names:
        write(kind.store, 1, machine=name)
    assert list(kind.store.machines()) == sorted(names)
    assert list(kind.store.machines("a/b/ticket/")) == sorted(n for n in names if n.startswith("a/b/ticket/"))
    assert list(kind.store.machines("a_b")) == [n for n in names if n.startswith("a_b")]
    assert list(kind.store.machines("zzz")) == []


def test_machines_do_not_mix(kind: Kind) -> None:
    write(kind.store, 2)
    answer = kind.store.append(OTHER, move(1), expect_seq=1)
    if not kind.many:
        assert isinstance(answer, Err) and answer.failure == "internal_error" and M in answer.detail
        assert list(kind.store.read(OTHER)) == []
        return
    assert answer.unwrap().prev == GENESIS
    write(kind.store, 1, first=3)
    assert [r.seq for r in kind.store.read(M)] == [1, 2, 3]
    assert [r.seq for r in kind.store.read(OTHER)] == [1]


def test_later_changes_of_a_draft_do_not_reach_the_journal(kind: Kind) -> None:
    seen = {"labels": ["a"]}
    kind.store.append(M, move(1, seen=seen), expect_seq=1).unwrap()
    seen["labels"].append("b")
    assert kind.store.read(M)[0].body["seen"] == {"labels": ["a"]}
    assert kind.store.verify(M) is None


def test_a_record_larger_than_a_line_raises_and_leaves_nothing(kind: Kind) -> None:
    write(kind.store, 1)
    with pytest.raises(ValueError, match="at most 1048576"):
        kind.store.append(M, move(2, log="x" * (1 << 20)), expect_seq=2)
    with pytest.raises(ValueError, match="may not use"):
        kind.store.append(M, move(2, hash="x"), expect_seq=2)
    write(kind.store, 1, first=2)
    assert [r.seq for r in kind.reopen().read(M)] == [1, 2]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(-(2.0**53) + 1, 2.0**53 - 1)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=JSON)
def test_any_json_value_survives(kind: Kind, value: Any) -> None:
    seq = len(kind.store.read(M)) + 1
    record = kind.store.append(M, move(seq, seen=value), expect_seq=seq).unwrap()
    assert kind.store.read(M, after=seq - 1) == [record]
    assert record.body["seen"] == value
    assert journal.parse(journal.line(record)[:-1]) == record


def test_blobs_are_kept_once_by_content(kind: Kind) -> None:
    data = bytes(range(256)) * 10
    sha = kind.store.put_blob(data)
    assert sha == journal.digest(data) == kind.store.put_blob(data)
    store = kind.reopen()
    assert store.get_blob(sha) == data
    assert store.get_blob("0" * 64) is None and store.get_blob("../../etc/passwd") is None
    assert store.get_blob(store.put_blob(b"")) == b""


def test_controls_are_numbered_and_kept(kind: Kind) -> None:
    assert kind.store.control("retry", {"issue": 12}) == 1
    assert kind.store.control("pause", {}) == 2
    found = kind.reopen().controls()
    assert [(c.id, c.verb, c.args) for c in found] == [(1, "retry", {"issue": 12}), (2, "pause", {})]
    assert found[0].at < found[1].at
    assert [c.id for c in kind.store.controls(after=1)] == [2]
    assert list(kind.store.controls(after=2)) == []


def test_facts_are_small_json_values(kind: Kind) -> None:
    value = {"etag": 'W/"x"', "left": [1, 2.5, None, True], "name": "äöü 🙂"}
    assert kind.store.get("etag") is None
    kind.store.put("etag", value)
    kind.store.put("epoch", 7)
    value["etag"] = "changed later"
    kind.reopen()
    assert kind.store.get("etag") == {"etag": 'W/"x"', "left": [1, 2.5, None, True], "name": "äöü 🙂"}
    assert kind.store.get("epoch") == 7
    kind.store.put("epoch", 8)
    kind.store.put("etag", None)
    assert (kind.store.get("epoch"), kind.store.get("etag")) == (8, None)


def test_a_stale_epoch_cannot_append(tmp_path: Path) -> None:
    clock = Time()
    memory = MemoryStore(clock, epoch=3)
    path = tmp_path / "store.db"
    old_sql, new_sql = (SqlStore.open(path, clock=clock, code="0") for _ in range(2))
    old_sql.set_epoch(3).unwrap()
    for old, new in ((memory, memory.reopen()), (old_sql, new_sql)):
        write(old, 1)
        new.set_epoch(4).unwrap()
        assert (new.epoch, new.stored_epoch(), old.stored_epoch()) == (4, 4, 4)
        answer = old.append(M, move(2), expect_seq=2)
        assert (
            isinstance(answer, Err) and answer.failure == "auth_failed" and "newer director" in answer.detail
        )
        assert new.append(M, move(2), expect_seq=2).unwrap().epoch == 4
        for stale in (4, 3, 0):
            refused = new.set_epoch(stale)
            assert isinstance(refused, Err) and refused.failure == "auth_failed"
        assert old.control("stop", {}) == 1, "a command line may ask for something whatever the epoch"
    old_sql.close()
    new_sql.close()


def test_every_line_is_valid_for_a_reader_of_files(kind: Kind) -> None:
    written = write(kind.store, 3)
    text = b"".join(journal.line(r) for r in kind.store.read(M))
    again, fault = journal.read(text)
    assert fault is None and again == written
    assert json.loads(text.splitlines()[0])["at"].endswith("+00:00")
