"""What a journal holds can be read again to an equal value."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.codec import Codec, CodecError
from harness.core.journal import canonical
from harness.domain import VALUES, Issue, Unknown
from harness.effects import EFFECTS, OpenMachine
from harness.failures import Failure
from harness.machines.all import CODEC, KINDS
from harness.machines.ticket.states import Ticket
from harness.policy import Policy

# Seconds and costs. A whole float beyond 2**53 is written with the shortest digits, as RFC 8785 wants it.
FLOATS = st.floats(-1e15, 1e15, allow_nan=False)
PLAIN = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**53) + 1, 2**53 - 1), FLOATS, st.text(max_size=5)
    ),
    lambda x: st.one_of(
        st.lists(x, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3).filter(lambda k: k != "$"), x, max_size=3),
    ),
    max_leaves=8,
)  # fmt: skip
MADE = (*VALUES, *EFFECTS, *(k.data for k in KINDS.values()), Policy)


@given(value=PLAIN)
def test_plain_values_come_back(value: Any) -> None:
    assert CODEC.decode(json.loads(canonical(CODEC.encode(value)))) == value


def field_of(annotation: str) -> st.SearchStrategy[Any]:
    """Values for a field, by how its type is written."""
    if "|" in annotation and "None" in annotation:
        return st.one_of(st.none(), field_of(annotation.replace("| None", "").strip()))
    if annotation.startswith("tuple[FileChange"):
        return st.just(())
    if annotation.startswith("tuple[int"):
        return st.lists(st.integers(0, 99), max_size=2).map(tuple)
    if annotation.startswith(("tuple[Mapping", "tuple[dict")):
        return st.lists(
            st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2), max_size=2
        ).map(tuple)
    if annotation.startswith("tuple[str"):
        return st.lists(st.text(max_size=3), max_size=2).map(tuple)
    if annotation.startswith(("Mapping[str, int]", "dict[str, int]")):
        return st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2)
    if annotation.startswith(("Mapping", "dict")):
        return st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2)
    simple: dict[str, st.SearchStrategy[Any]] = {
        "str": st.text(max_size=6),
        "int": st.integers(-(2**40), 2**40),
        "float": FLOATS,
        "bool": st.booleans(),
        "Any": st.text(max_size=3),
    }
    return simple.get(annotation, st.none())


@given(cls=st.sampled_from(MADE), draw=st.data())
def test_every_noun_verb_and_machines_data_comes_back(cls: type, draw: Any) -> None:
    given_values = {
        f.name: draw.draw(field_of(str(f.type)), label=f.name)
        for f in fields(cls)
        if field_of(str(f.type)) is not None and str(f.type) not in ("Issue", "Limits", "AgentResult | None")
    }
    if any(f.name == "issue" and f.type == "Issue" for f in fields(cls)):
        given_values["issue"] = Issue(1, "x")
    made = cls(**given_values)
    assert CODEC.decode(json.loads(canonical(CODEC.encode(made)))) == made


def test_an_effect_carries_a_machines_first_data() -> None:
    start = Ticket(issue=12, answers=({"question": "?", "answer": "!"},), counters={"agent": 1})
    effect = OpenMachine("acme/widget/ticket/12", start)
    back = CODEC.decode(json.loads(canonical(CODEC.encode(effect))))
    assert back == effect and isinstance(back.start, Ticket)


def test_enums_become_their_values() -> None:
    assert CODEC.encode({"failure": Failure.OOM}) == {"failure": "oom"}


@dataclass(frozen=True)
class Newer:
    a: int = 0
    b: int = 0


def test_an_older_reader_ignores_what_it_does_not_know() -> None:
    codec = Codec([Newer])
    assert codec.decode({"$": "Newer", "a": 1, "c": 3}) == Newer(1)


def test_two_classes_of_one_name_are_refused() -> None:
    other = dataclass(frozen=True)(type("Newer", (), {}))
    with pytest.raises(CodecError, match="two classes are called Newer"):
        Codec([Newer, other])


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(CodecError, match="Newer is not in the registry"):
        CODEC.encode(Newer())
    with pytest.raises(CodecError, match="the registry has no Newer"):
        CODEC.decode({"$": "Newer"})
    with pytest.raises(CodecError, match="no JSON form for object"):
        CODEC.encode(object())
    with pytest.raises(CodecError):
        CODEC.encode(Unknown)


def test_sets_are_written_in_order() -> None:
    assert CODEC.encode({3, 1, 2}) == [1, 2, 3]
