"""Gates: the name is the fact, the verdict is kept once, and no gate's container is left behind."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handlers import POLICY, REPO, done, item, said, seen, why

from harness.core.item import Item
from harness.core.result import Err, Ok, Pass
from harness.domain import Lane, Pull
from harness.effects import EndGate, Land, StartGate
from harness.failures import Failure
from harness.machines import gates
from harness.machines.kind import Gate, Seen

TREE, BASE, HEAD, MERGE = "t" * 40, "b" * 40, "a" * 40, "c" * 40
NAME = gates.gate_name(POLICY, TREE)
STARTED = done(StartGate(NAME, MERGE, ("test",), "img"), {"phase": "RUNNING"})
ENDED = done(EndGate(NAME), {})


@pytest.mark.parametrize(
    "changed",
    [{"commands": ("other",)}, {"image": "img2"}],
    ids=lambda c: next(iter(c)),
)
def test_a_name_holds_all_that_the_verdict_depends_on(changed: dict[str, object]) -> None:
    other = replace(POLICY, **changed)  # type: ignore[arg-type]
    assert gates.gate_name(other, TREE) != NAME
    assert gates.gate_name(POLICY, "u" * 40) != NAME
    assert gates.gate_name(POLICY, TREE, "prepare-1") != NAME
    assert gates.gate_name(replace(POLICY, max_workers=9), TREE) == NAME


def test_what_is_to_be_prepared_has_a_name_only_when_there_is_something() -> None:
    assert gates.prepare_name(POLICY, BASE) == ""
    with_some = replace(POLICY, prepare=("pip install .",))
    assert gates.prepare_name(with_some, BASE).startswith("prepare-")
    assert gates.prepare_name(with_some, BASE) != gates.prepare_name(with_some, HEAD)


@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        (Gate(NAME, "running"), Pass("the gate is running")),
        (Gate(NAME, "green"), Ok("green")),
        (Gate(NAME, "red", "1 failed", 1), Err(Failure.TESTS_FAILED, "the gate exited 1\n1 failed")),
        (Gate(NAME, "lost"), Err(Failure.INFRA_KILLED, "the gate left no exit status")),
    ],
    ids=lambda x: getattr(x, "verdict", ""),
)
def test_a_verdict(gate: Gate, expected: object) -> None:
    assert gates.judge(seen({f"gate/{NAME}": gate}), NAME) == expected


def test_nothing_validated_is_not_green() -> None:
    verdict = gates.judge(seen({f"gate/{NAME}": Gate(NAME, "green")}, commands=()), NAME)
    assert isinstance(verdict, Err) and verdict.failure == Failure.VALIDATION_MISSING


def test_not_looked_at_is_not_a_verdict() -> None:
    assert isinstance(gates.judge(seen(), NAME), Pass)


@pytest.mark.parametrize(
    ("intents", "expected"),
    [
        ((), False),
        ((STARTED,), False),
        ((STARTED, ENDED), True),
        ((STARTED, ENDED, STARTED), False),
        ((STARTED, done(EndGate("gate-other"))), False),
    ],
)
def test_a_gate_is_ended_after_its_last_start(intents: tuple[object, ...], expected: bool) -> None:
    assert gates.ended(item("ticket", "LANDING", *intents), NAME) is expected  # type: ignore[arg-type]


# ---------------------------------------------------------------- the three machines that gate


TURN = {"issue": 12, "pull": 31, "head": HEAD, "turn": f"{REPO}/release/0.4.0 7"}


def ticket(*intents: object) -> Item[object]:
    merge = {"sha": MERGE, "tree": TREE, "base": BASE, "head": HEAD}
    return item("ticket", "LANDING", *intents, **TURN, merge=merge, gate=NAME)  # type: ignore[arg-type]


def release(*intents: object) -> Item[object]:
    return item(
        "release", "GATING", *intents, branch="release/0.4.0", base="main", tip=HEAD, base_tip=BASE, gate=NAME
    )  # type: ignore[arg-type]


def director(*intents: object) -> Item[object]:
    return item("director", "RELEASE_PLAN", *intents, repo=REPO, base_sha=BASE, gate=NAME)  # type: ignore[arg-type]


def world(verdict: str) -> Seen:
    return seen(
        {
            "lane": Lane(f"{REPO}/release/0.4.0", "0.4.0", "release/0.4.0", f"{REPO}/ticket/12"),
            "refs": {"refs/heads/release/0.4.0": BASE, "refs/heads/main": BASE},
            "pull/31": Pull(31, "agent/12", "release/0.4.0", HEAD, True, False),
            f"gate/{NAME}": Gate(NAME, verdict, "1 failed", 1),
            f"tree/{HEAD}": TREE,
            f"tree/{BASE}": TREE,
            "default": "main",
            "releases": (),
        }
    )


def planning(verdict: str) -> Seen:
    w = world(verdict)
    return replace(w, facts={**w.facts, "lane": Lane()})


def gating(verdict: str) -> Seen:
    w = world(verdict)
    return replace(w, facts={**w.facts, "refs": {"refs/heads/release/0.4.0": HEAD, "refs/heads/main": BASE}})


@pytest.mark.parametrize(
    ("machine", "look", "after"),
    [
        (ticket, world, "gate_red -> ATTEMPTING"),
        (release, gating, "red -> NEEDS_PERSON"),
        (director, planning, "waits"),
    ],
    ids=["ticket", "release", "director"],
)
def test_a_red_gate_is_kept_as_a_fact_and_its_container_removed_first(machine, look, after) -> None:  # type: ignore[no-untyped-def]
    assert said(machine(STARTED), look("red")) == "begins EndGate"
    assert said(machine(STARTED, ENDED), look("red")) == after


def test_a_red_base_is_said_to_be_red() -> None:
    assert why(director(STARTED, ENDED), planning("red")).startswith(
        "base_red: main@bbbbbbbbbbbb does not pass"
    )


@pytest.mark.parametrize(("machine", "look"), [(ticket, world), (release, gating)], ids=["ticket", "release"])
def test_a_lost_gate_is_started_again_three_times_and_then_it_is_a_failure(machine, look) -> None:  # type: ignore[no-untyped-def]
    it = machine(STARTED)
    assert said(it, look("lost")) == "begins EndGate"
    ended = machine(STARTED, ENDED)
    worn = replace(ended, data=replace(ended.data, gate_tries=3))
    assert said(worn, look("lost")).split(" -> ")[0] in ("gate_red", "red")


def test_a_gate_that_was_lost_and_then_green_is_ended_too() -> None:
    assert said(release(STARTED, ENDED, STARTED), gating("green")) == "begins EndGate"
    assert said(release(STARTED, ENDED, STARTED, ENDED), gating("green")) == "green -> MERGING"


def test_a_green_merge_lands_exactly_as_it_was_gated() -> None:
    assert said(ticket(STARTED), world("green")) == "begins EndGate, Land"


def test_a_branch_that_a_rule_protects_is_not_pushed_to_again_and_again() -> None:
    refused = done(Land("release/0.4.0", MERGE, BASE), {"landed": False, "why": "protected"})
    it = ticket(STARTED, ENDED, refused)
    assert said(it, world("green")) == "waits"
    assert "a rule of the forge refuses our push to release/0.4.0" in why(it, world("green"))


def test_a_base_that_moved_is_merged_and_gated_again() -> None:
    moved = done(Land("release/0.4.0", MERGE, BASE), {"landed": False, "why": "moved"})
    w = world("green")
    now = replace(w, facts={**w.facts, "refs": {"refs/heads/release/0.4.0": "d" * 40}})
    assert said(ticket(STARTED, ENDED, moved), now) == "begins BuildMerge"
