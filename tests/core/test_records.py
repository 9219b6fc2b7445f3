"""Records of a journal: a torn last line costs that line and nothing before it; times keep their offset."""

from __future__ import annotations

import pytest

from harness.core import journal
from harness.core.journal import GENESIS, Draft, Fault, Record


def chain(*reasons: str) -> list[Record]:
    prev, made = GENESIS, []
    for n, reason in enumerate(reasons, 1):
        r = journal.seal(
            Draft("transition", {"reason": reason, "intents": []}),
            machine="acme/widget/ticket/12",
            seq=n,
            at=1_800_000_000.0 + n,
            epoch=1,
            code="0",
            prev=prev,
        )
        made.append(r)
        prev = r.hash
    return made


CHAIN = chain("eins", "zwei é", "drei")
LINES = [journal.line(r) for r in CHAIN]
DATA = b"".join(LINES)


@pytest.mark.parametrize("cut", range(len(LINES[-1])))
def test_a_torn_last_line_at_every_offset(cut: int) -> None:
    whole = b"".join(LINES[:-1])
    records, fault = journal.read(whole + LINES[-1][:cut])
    assert records == CHAIN[:-1]
    assert fault == (None if cut == 0 else Fault(3, len(whole), "the last line is torn", torn=True))


def test_a_broken_middle_is_no_torn_end() -> None:
    records, fault = journal.read(LINES[0] + LINES[1][:-5] + b"\n" + LINES[2])
    assert records == CHAIN[:1]
    assert fault is not None and (fault.seq, fault.offset, fault.torn) == (2, len(LINES[0]), False)


@pytest.mark.parametrize("offset", range(0, len(DATA), 7))
def test_a_flipped_bit_is_found(offset: int) -> None:
    broken = DATA[:offset] + bytes([DATA[offset] ^ 1]) + DATA[offset + 1 :]
    records, fault = journal.read(broken)
    assert fault is not None
    assert records == CHAIN[: len(records)]
    assert len(records) <= DATA.count(b"\n", 0, offset)


def test_a_chain_that_goes_on_from_elsewhere_is_read_from_there() -> None:
    assert journal.read(LINES[1] + LINES[2], prev=CHAIN[0].hash, first=2) == (CHAIN[1:], None)
    _, fault = journal.read(LINES[1])
    assert fault is not None and fault.what == "record 2 stands where 1 should"


def test_a_body_may_not_take_the_place_of_the_frame() -> None:
    with pytest.raises(ValueError, match=r"may not use \['hash', 'seq'\]"):
        journal.seal(
            Draft("outcome", {"seq": 1, "hash": "x"}),
            machine="m",
            seq=1,
            at=0.0,
            epoch=1,
            code="0",
            prev=GENESIS,
        )


def test_a_line_has_a_limit() -> None:
    large = journal.seal(
        Draft("outcome", {"detail": "x" * (1 << 20)}),
        machine="m",
        seq=1,
        at=0.0,
        epoch=1,
        code="0",
        prev=GENESIS,
    )
    with pytest.raises(ValueError, match="record 1 of m has"):
        journal.line(large)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2027-01-15T08:00:00+00:00", 1_800_000_000.0),
        ("2027-01-15T08:00:00Z", 1_800_000_000.0),
        ("2027-01-15T09:00:00+01:00", 1_800_000_000.0),
        ("2027-01-15T08:00:00", 1_800_000_000.0),
    ],
)
def test_a_time_without_an_offset_is_never_local(text: str, expected: float) -> None:
    assert journal.posix(text) == expected


def test_times_are_written_in_utc_to_the_microsecond() -> None:
    assert journal.iso(1_800_000_000.25) == "2027-01-15T08:00:00.250000+00:00"
    assert journal.posix(journal.iso(1_800_000_000.25)) == 1_800_000_000.25
