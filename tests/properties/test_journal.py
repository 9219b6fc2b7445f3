"""Whatever is changed, dropped, swapped or cut in a journal is found; a torn end is repaired to a prefix."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.adapters.store.file import FileStore
from harness.core import journal
from harness.core.journal import GENESIS, Draft, Fault, Record

MACHINE = "acme/widget/worker/12.1"
settings.register_profile("journal", deadline=None)
settings.load_profile("journal")

EDGES = [0.0, -0.0, 1e15, 1e16, 1e21, 1e-4, 1e-7, 5.0, 2**53 - 1, 2**53, 10**15, -(10**15) + 1]
TEXTS = st.text(max_size=8) | st.sampled_from(
    ["é", "€", "\U0001f600", "\uffee", '"hash":"', "\x7f", "\u2028"]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(EDGES) | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda x: st.lists(x, max_size=4) | st.tuples(x) | st.dictionaries(TEXTS, x, max_size=4),
    max_leaves=12,
)


class Still:
    """A clock that stands."""

    def now(self) -> float:
        return 1_800_000_000.5

    def monotonic(self) -> float:
        return 1.0


def chain(count: int, texts: list[str] | None = None) -> list[Record]:
    prev, records = GENESIS, []
    for n in range(1, count + 1):
        reason = texts[(n - 1) % len(texts)] if texts else f"step {n}"
        body = {
            "from": "A",
            "event": "go",
            "to": "B",
            "reason": reason,
            "note": {"tries": n / 4},
            "intents": [],
        }
        at = 1_800_000_000.25 + n
        record = journal.seal(
            Draft("transition", body), machine=MACHINE, seq=n, at=at, epoch=1, code="0.1.0", prev=prev
        )
        records.append(record)
        prev = record.hash
    return records


LINES = [journal.line(r) for r in chain(12)]
DATA = b"".join(LINES)
RECORD = st.integers(0, len(LINES) - 1)


def record_at(offset: int) -> int:
    """The number of the record that holds this byte."""
    return DATA.count(b"\n", 0, offset) + 1


# ---------------------------------------------------------------- canonical form


def outcome_of(make: Any) -> Any:
    """What it answers, or that it refuses."""
    try:
        return make()
    except ValueError:
        return ValueError


@given(VALUES)
def test_the_short_way_writes_what_rfc_8785_says(value: Any) -> None:
    assert outcome_of(lambda: journal.canonical(value)) == outcome_of(lambda: rfc8785.dumps(value))


@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_a_record_with_any_body_is_read_back(body: dict[str, Any]) -> None:
    draft = Draft("outcome", {"value": body})
    made = outcome_of(
        lambda: journal.seal(draft, machine=MACHINE, seq=1, at=1.0, epoch=1, code="0", prev=GENESIS)
    )
    if made is ValueError:
        return
    line = journal.line(made)
    plain = json.loads(line)
    # A whole number above 2**53 has a form that no reader may take.
    if outcome_of(lambda: journal.canonical(plain)) is ValueError:
        return
    again = journal.parse(line.rstrip(b"\n"))
    assert again.hash == made.hash == journal.digest({k: v for k, v in plain.items() if k != "hash"})
    assert journal.canonical(again.body) == journal.canonical(draft.body)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.replace('"from":"A"', '"from": "A"'),
        lambda t: t.replace('"from":"A",', "").replace('"epoch"', '"from":"A","epoch"'),
        lambda t: t.replace('"from":"A"', '"from":"A","from":"A"'),
        lambda t: t.replace('"from":"A"', '"from":"\\u0041"'),
        lambda t: t.replace('"tries":0.25', '"tries":0.250'),
        lambda t: t.replace('"tries":0.25', '"tries":25e-2'),
        lambda t: t.replace('"seq":1,', '"seq":1.0,'),
        lambda t: t + " ",
        lambda t: "\ufeff" + t,
    ],
)
def test_another_spelling_of_the_same_record_is_refused(change: Any) -> None:
    """Two readers must never see two records in one line, so there is one spelling, whatever its hash is."""
    text = LINES[0].decode().rstrip("\n")
    changed = change(text)
    assert changed != text
    with pytest.raises(ValueError, match=r"canonical|hash does not match|not JSON"):
        journal.parse(changed.encode())


# ---------------------------------------------------------------- every kind of damage


@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_a_changed_byte_is_found_and_its_record_named(place: int, mask: int) -> None:
    changed = bytearray(DATA)
    changed[place] ^= mask
    records, fault = journal.read(bytes(changed))
    assert fault is not None and fault.seq == record_at(place)
    assert [r.hash for r in records] == [r.hash for r in chain(fault.seq - 1)]


@given(RECORD)
def test_a_dropped_record_is_found(n: int) -> None:
    records, fault = journal.read(b"".join(LINES[:n] + LINES[n + 1 :]))
    if n == len(LINES) - 1:
        # Only an anchor outside the journal can tell that its end is missing: see the tests of `verify`.
        assert fault is None and len(records) == n
    else:
        assert fault is not None and fault.seq == n + 1


@given(RECORD, RECORD)
def test_swapped_records_are_found(a: int, b: int) -> None:
    swapped = list(LINES)
    swapped[a], swapped[b] = swapped[b], swapped[a]
    fault = journal.read(b"".join(swapped))[1]
    assert (fault is None) == (a == b)
    assert fault is None or fault.seq == min(a, b) + 1


@given(RECORD, RECORD)
def test_a_record_written_twice_is_found(n: int, where: int) -> None:
    fault = journal.read(b"".join([*LINES[: where + 1], LINES[n], *LINES[where + 1 :]]))[1]
    assert fault is not None and fault.seq == (where + 3 if n == where + 1 else where + 2)


@given(RECORD)
def test_a_record_of_another_machine_is_found(n: int) -> None:
    r = chain(n + 1)[n]
    prev = r.prev
    other = journal.seal(
        Draft("transition", r.body),
        machine="acme/widget/worker/9.1",
        seq=r.seq,
        at=r.at,
        epoch=1,
        code="0",
        prev=prev,
    )
    fault = journal.read(b"".join([*LINES[:n], journal.line(other), *LINES[n + 1 :]]))[1]
    assert fault is not None and fault.seq == (n + 1 if n else 2)


@given(st.integers(0, len(DATA)))
def test_a_cut_at_any_byte_leaves_a_prefix_and_at_most_a_torn_line(length: int) -> None:
    records, fault = journal.read(DATA[:length])
    whole = DATA.count(b"\n", 0, length)
    assert [r.seq for r in records] == list(range(1, whole + 1))
    if DATA[:length].endswith(b"\n") or length == 0:
        assert fault is None
    else:
        assert fault == Fault(whole + 1, DATA.rfind(b"\n", 0, length) + 1, "the last line is torn", torn=True)


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_no_bytes_make_the_reader_fail(parts: list[bytes]) -> None:
    records, fault = journal.read(DATA[: len(LINES[0])] + b"\n".join(parts))
    assert len(records) >= 1 or fault is not None


# ---------------------------------------------------------------- the worker's file


@settings(max_examples=60)
@given(st.integers(0, len(DATA)), st.integers(1, 3))
def test_a_file_torn_anywhere_is_repaired_to_a_prefix_and_goes_on(length: int, more: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "journal.jsonl").write_bytes(DATA[:length])
        whole = DATA.count(b"\n", 0, length)
        store = FileStore.open(folder, clock=Still(), code="0.1.0", epoch=1)
        try:
            assert [r.seq for r in store.read(MACHINE)] == list(range(1, whole + 1))
            for n in range(whole + 1, whole + 1 + more):
                draft = Draft("transition", {"from": "B", "event": None, "to": "B"})
                store.append(MACHINE, draft, expect_seq=n).unwrap()
            assert store.verify(MACHINE) is None
        finally:
            store.close()
        records, fault = journal.read((folder / "journal.jsonl").read_bytes())
        assert fault is None and len(records) == whole + more
        assert b"".join(LINES[:whole]) == b"".join(journal.line(r) for r in records[:whole])


@pytest.mark.parametrize("n", range(1, 12))
def test_check_names_a_record_that_was_changed_in_memory(n: int) -> None:
    records = chain(12)
    r = records[n]
    records[n] = Record(
        r.machine, r.seq, r.at, r.epoch, r.code, r.kind, {**r.body, "reason": "other"}, r.prev, r.hash
    )
    fault = journal.check(records)
    assert fault is not None and fault.seq == n + 1
