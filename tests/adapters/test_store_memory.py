"""The store in memory as a crash test sees it: hooks that raise, handles that come back, disks that part."""

from __future__ import annotations

import pytest

from harness.adapters.memory.store import MemoryStore
from harness.core.journal import Draft, Record
from harness.core.result import Err


class Crash(Exception):
    """The power went."""


class Time:
    """A clock that stands still."""

    def now(self) -> float:
        return 1_700_000_000.0

    def monotonic(self) -> float:
        return 0.0


def draft(n: int) -> Draft:
    return Draft("outcome", {"n": n, "pair": (1, 2)})


def test_a_crash_before_an_append_writes_nothing_and_after_it_everything() -> None:
    store = MemoryStore(Time())
    store.append("m", draft(1), expect_seq=1).unwrap()

    def before(machine: str, given: Draft) -> None:
        raise Crash

    def after(record: Record) -> None:
        raise Crash

    store.before = before
    with pytest.raises(Crash):
        store.append("m", draft(2), expect_seq=2)
    assert [r.seq for r in store.reopen().read("m")] == [1]
    store.before, store.after = None, after
    with pytest.raises(Crash):
        store.append("m", draft(2), expect_seq=2)
    again = store.reopen()
    assert [r.seq for r in again.read("m")] == [1, 2] and again.verify("m") is None
    again.append("m", draft(3), expect_seq=3).unwrap()


def test_the_hook_sees_each_machine_and_draft() -> None:
    seen: list[tuple[str, int]] = []
    store = MemoryStore(Time(), before=lambda machine, given: seen.append((machine, given.body["n"])))
    store.append("a", draft(1), expect_seq=1).unwrap()
    store.append("b", draft(2), expect_seq=1).unwrap()
    assert seen == [("a", 1), ("b", 2)]


def test_clones_go_separate_ways() -> None:
    store = MemoryStore(Time(), code="9", epoch=4)
    store.append("m", draft(1), expect_seq=1).unwrap()
    store.put("k", [1])
    sha = store.put_blob(b"x")
    copy = store.clone()
    copy.append("m", draft(2), expect_seq=2).unwrap()
    copy.put("k", [2])
    copy.control("pause", {})
    assert (len(store.read("m")), store.get("k"), len(store.controls())) == (1, [1], 0)
    assert copy.get_blob(sha) == b"x" and copy.read("m")[1].epoch == 4
    assert list(copy.read("m"))[:1] == list(store.read("m"))


def test_the_same_calls_make_the_same_journal() -> None:
    heads = []
    for _ in range(2):
        store = MemoryStore(Time(), code="9")
        for n in range(1, 20):
            store.append("m", draft(n), expect_seq=n).unwrap()
        heads.append(store.read("m")[-1].hash)
    assert heads[0] == heads[1]


def test_a_handle_of_an_old_epoch_is_fenced() -> None:
    store = MemoryStore(Time())
    newer = store.reopen()
    newer.set_epoch(1).unwrap()
    assert isinstance(store.append("m", draft(1), expect_seq=1), Err)
    assert isinstance(store.reopen().append("m", draft(1), expect_seq=1), Err)
    store.reopen(epoch=1).append("m", draft(1), expect_seq=1).unwrap()
