"""The director: a reason for every candidate, a release only when there is work for one, and never a spin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from handlers import NOW, POLICY, REPO, arrives, done, failed, intents, item, note, peer, said, seen, why

from harness.core.item import Item
from harness.domain import Absent, Candidate, Control, Entry, Issue, Lane, Limited, Past, Slots, Status
from harness.effects import (
    Announce,
    CreateBranch,
    EndGate,
    EnsureLabels,
    OpenMachine,
    StartPrepare,
)
from harness.failures import Failure
from harness.looks import Own
from harness.machines import gates
from harness.machines.director.plan import order, paused, plan
from harness.machines.director.planning import BOOT_NEEDS, next_version
from harness.machines.director.table import KIND
from harness.machines.kind import Gate, Seen
from harness.machines.ticket.states import Ticket, attempt_code

LANE = Lane(f"{REPO}/release/0.4.0", "0.4.0", "release/0.4.0")
SHA, TREE = "a" * 40, "t" * 40


def director(state: str, *begun: Any, **data: Any) -> Item[Any]:
    return item("director", state, *begun, **{"repo": REPO, **data})


def issue(number: int, *labels: str, created: float = 0.0, **more: Any) -> Issue:
    return Issue(
        number, f"Issue {number}", "", "ada", labels=("harness", *labels), created_at=created, **more
    )


def candidate(
    number: int, *labels: str, trusted: bool = True, past: Past | None = None, **more: Any
) -> Candidate:
    return Candidate(issue(number, *labels, **more), trusted, past)


def past(state: str, ended_s: float = 3600.0, *, tickets: int = 1, attempts: int = 1, **more: Any) -> Past:
    return Past(tickets, attempts, state, NOW - ended_s, **more)


def entry(number: int, state: str, entered_s: float = 3600.0, **more: Any) -> Entry:
    return Entry(
        f"{REPO}/ticket/{number}", number, f"Issue {number}", state, entered_at=NOW - entered_s, **more
    )


def world(*candidates: Candidate, **facts: Any) -> dict[str, Any]:
    return {
        "candidates": candidates,
        "entries": (),
        "slots": Slots(0),
        "lane": LANE,
        "controls": (),
        "disk": 10 << 30,
        "releases": (),
        **facts,
    }


def reasons(sn: Seen) -> dict[int, str]:
    return {int(k): v for k, v in plan(sn).reasons.items()}


# ---------------------------------------------------------------- the plan


def test_priority_goes_first_then_age_then_number() -> None:
    found = (
        candidate(1, created=30),
        candidate(2, created=10),
        candidate(3, "priority:low", created=99),
        candidate(4, "Priority:Critical", created=99),
        candidate(5, created=10),
    )
    assert [c.issue.number for c in order(found, POLICY)] == [4, 3, 2, 5, 1]


@pytest.mark.parametrize(
    ("one", "entries", "expected"),
    [
        (candidate(1), (), "chosen"),
        (
            candidate(1, trusted=False),
            (),
            "author may not start work: somebody with write access must ask for it",
        ),
        (candidate(1, trusted=False, author_kind="Bot"), (), "a bot may not start work"),
        (candidate(1, author_kind="Bot"), (), "chosen"),
        (candidate(1, locked=True), (), "the conversation is locked"),
        (candidate(1), (entry(1, "ATTEMPTING"),), "in work"),
        (candidate(1), (entry(1, "WAITING"),), "waits for an answer"),
        (candidate(1), (entry(1, "REVIEWING"),), "in review"),
        (candidate(1), (entry(1, "LANDED"),), "landed, not released yet"),
        (
            candidate(1),
            (entry(1, "DEFERRED", failure="tests_failed", detail="3 failed of 44\nmore"),),
            "deferred: the tests are still red: 3 failed of 44",
        ),
        (candidate(1, past=past("GONE", 10)), (), "gone just now"),
        (candidate(1, past=past("GONE"), updated_at=NOW - 60), (), "chosen"),
        (candidate(1, past=past("GONE"), updated_at=NOW - 7200), (), "gone just now"),
        (
            candidate(1, past=past("GONE", busy=True), updated_at=NOW),
            (),
            "gone just now",
        ),
        (
            candidate(1, past=past("GONE", 10)),
            (entry(1, "RELEASED", landed_in=LANE.machine),),
            "gone just now",
        ),
        (candidate(1, past=past("RELEASED"), updated_at=NOW), (entry(1, "CLAIMING"),), "in work"),
        (
            candidate(1, past=past("GONE", failure="conflict", detail="claimed first by b"), updated_at=NOW),
            (),
            "claimed first by b",
        ),
        (
            candidate(
                1, past=past("GONE", 21601, failure="conflict", detail="claimed first by b"), updated_at=NOW
            ),
            (),
            "chosen",
        ),
    ],
)
def test_every_candidate_has_a_reason(one: Candidate, entries: tuple[Entry, ...], expected: str) -> None:
    assert reasons(seen(world(one, entries=entries))) == {1: expected}


@pytest.mark.parametrize(
    ("facts", "policy", "expected"),
    [
        ({}, {}, ["chosen", "chosen", "chosen", "no free slot"]),
        ({"slots": Slots(2)}, {}, ["chosen", "no free slot", "no free slot", "no free slot"]),
        ({"slots": Slots(1, ("a", "b"))}, {}, ["no free slot"] * 4),
        ({}, {"batch_size": 1}, ["chosen", *["the batch is full (1): it waits for the next release"] * 3]),
        ({"controls": (Control(1, NOW, "pause"),)}, {}, ["paused by a person"] * 4),
        ({"controls": (Control(1, NOW, "drain"),)}, {}, ["draining: nothing new is taken"] * 4),
        ({"lane": Lane()}, {}, ["no release is open"] * 4),
        ({"lane": Lane()}, {"mode": "pulls"}, ["chosen", "chosen", "chosen", "no free slot"]),
        (
            {"disk": 1 << 30},
            {"min_free_bytes": 5 << 30},
            ["only 1024 MiB free on disk; 5120 MiB are needed to start work"] * 4,
        ),
        (
            {"entries": tuple(entry(n, "REVIEWING") for n in range(20, 30))},
            {},
            ["10 reviews are open, at most 10"] * 4,
        ),
    ],
)
def test_what_holds_candidates_back(
    facts: dict[str, Any], policy: dict[str, Any], expected: list[str]
) -> None:
    found = tuple(candidate(n, created=n) for n in range(1, 5))
    assert [reasons(seen(world(*found, **facts), **policy))[n] for n in range(1, 5)] == expected


@pytest.mark.parametrize(
    ("verbs", "expected"),
    [
        ((), ""),
        (("pause",), "paused by a person"),
        (("pause", "resume"), ""),
        (("pause", "resume", "drain"), "draining: nothing new is taken"),
        (("pause", "retry"), "paused by a person"),
        (("drain", "started"), ""),
        (("pause", "started"), "paused by a person"),
        (("pause", "drain", "started"), "paused by a person"),
        (("pause", "drain", "resume"), ""),
    ],
)
def test_the_last_word_of_a_person_is_in_force(verbs: tuple[str, ...], expected: str) -> None:
    assert paused(tuple(Control(n, NOW, v) for n, v in enumerate(verbs, 1))) == expected


# ---------------------------------------------------------------- BOOT and RELEASE_PLAN

READY = {"repository": True, "image": "img", "preflight": True, "refs": {}, "default": "main", "ours": ()}


def test_boot_waits_for_everything_it_needs_and_names_what_is_missing() -> None:
    everything = {**world(), **READY}
    for name in BOOT_NEEDS:
        lacking = {k: v for k, v in everything.items() if k != name}
        assert said(director("BOOT"), seen(lacking)) == "waits"
        assert why(director("BOOT"), seen(lacking)).startswith(f"{name}: ")


def test_boot_makes_the_labels_and_adopts_what_runs() -> None:
    alive, dead = Status("w1", "RUNNING"), Status("w2", "EXITED", 0)
    facts = seen({**world(), **READY, "ours": (alive, dead)})
    (labels,) = intents(director("BOOT"), facts)
    assert labels == EnsureLabels(
        ("harness", "harness:working", "harness:needs-you", "harness:deferred", "harness:review")
    )
    assert note(director("BOOT"), facts)["adopted"] == ("w1",)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (world(lane=LANE), "release_active -> DISCOVER"),
        (world(lane=Lane()), "release_active -> DISCOVER"),
        (world(candidate(1), lane=Lane()), "release_missing -> RELEASE_PLAN"),
        (world(lane=Lane(), entries=(entry(1, "ATTEMPTING"),)), "release_missing -> RELEASE_PLAN"),
        (world(lane=Lane(), entries=(entry(1, "LANDED"),)), "release_active -> DISCOVER"),
        (
            world(candidate(1), lane=Lane(), releases=(peer("release", "GATING"),)),
            "release_active -> DISCOVER",
        ),
        (
            world(candidate(1), lane=Lane(), controls=(Control(1, NOW, "pause"),)),
            "release_active -> DISCOVER",
        ),
    ],
)
def test_a_release_is_planned_when_none_is_open_and_there_is_work(
    facts: dict[str, Any], expected: str
) -> None:
    booted = director("BOOT", done(EnsureLabels(()), {"created": 0}))
    assert said(booted, seen({**READY, **facts})) == expected


def planning(**facts: Any) -> dict[str, Any]:
    base = {
        "refs": {"refs/heads/main": SHA},
        "default": "main",
        "lane": Lane(),
        "releases": (),
        f"tree/{SHA}": TREE,
    }
    return {**base, **facts}


GATE = gates.gate_name(POLICY, TREE)


def test_a_release_begins_with_a_baseline_of_the_default_branch() -> None:
    assert said(director("RELEASE_PLAN"), seen(planning(refs={}))) == "waits"
    assert note(director("RELEASE_PLAN"), seen(planning())) == {"base_sha": SHA, "gate": ""}
    based = director("RELEASE_PLAN", base_sha=SHA)
    assert said(based, seen(planning())) == "begins StartGate"
    gated = director("RELEASE_PLAN", base_sha=SHA, gate=GATE)
    assert said(gated, seen(planning(**{f"gate/{GATE}": Gate(GATE, "running")}))) == "waits"
    effects = intents(gated, seen(planning(**{f"gate/{GATE}": Gate(GATE, "green")})))
    assert [type(e) for e in effects[1:]] == [CreateBranch, OpenMachine]
    assert effects[1] == CreateBranch("release/0.1.0", SHA)
    assert (effects[2].machine, effects[2].start.tag) == (f"{REPO}/release/0.1.0", "v0.1.0")
    opened = planning(lane=Lane(f"{REPO}/release/0.1.0", "0.1.0", "release/0.1.0"))
    assert said(gated, seen(opened)) == "release_planned -> DISCOVER"


def test_while_the_base_is_red_it_waits_and_looks_again_when_it_moves() -> None:
    red = planning(**{f"gate/{GATE}": Gate(GATE, "red", "1 failed", 1)})
    ended = director("RELEASE_PLAN", done(EndGate(GATE), {}), base_sha=SHA, gate=GATE)
    assert said(ended, seen(red)) == "waits"
    assert why(ended, seen(red)).startswith("base_red: main@aaaaaaaaaaaa")
    assert said(ended, seen({**red, "refs": {"refs/heads/main": "b" * 40}})) == "notes"


def test_dependencies_of_a_release_are_prepared_before_its_baseline() -> None:
    based = director("RELEASE_PLAN", base_sha=SHA)
    (prepare,) = intents(based, seen(planning(), prepare=("install",)))
    name = gates.prepare_name(replace(POLICY, prepare=("install",)), SHA)
    assert prepare == StartPrepare(name, SHA, ("install",), "img")
    begun = director("RELEASE_PLAN", base_sha=SHA, prepare=name, prepare_tries=1)
    for job, expected in (
        (Status(name, "RUNNING"), "waits"),
        (Status(name, "EXITED", 1), "begins StartPrepare"),
        (Status(name, "EXITED", 137), "begins StartPrepare"),
        (Absent(name), "begins StartPrepare"),
        (Status(name, "EXITED", 0), "begins StartGate"),
    ):
        assert said(begun, seen(planning(**{f"job/{name}": job}), prepare=("install",))) == expected


def test_dependencies_that_failed_are_prepared_again_ever_less_often() -> None:
    """A registry that is away for an hour must not cost the night, and must not be asked without end."""
    name = gates.prepare_name(replace(POLICY, prepare=("install",)), SHA)
    failed = seen(planning(**{f"job/{name}": Status(name, "EXITED", 1)}), prepare=("install",))
    waited = {}
    for tries in (1, 2, 5, 50):
        begun = director("RELEASE_PLAN", base_sha=SHA, prepare=name, prepare_tries=tries)
        for wait_s in (0, 19, 21, 41, 321, 1801):
            at = replace(begun, changed_at=failed.now - wait_s)
            if said(at, failed) == "begins StartPrepare":
                waited[tries] = wait_s
                assert note(at, failed) == {"prepare_tries": tries + 1}
                break
            assert why(at, failed).startswith("base_red: the prepare commands exited 1; tried")
    assert waited == {1: 21, 2: 41, 5: 321, 50: 1801}


@pytest.mark.parametrize(
    ("scheme", "tags", "planned", "expected"),
    [
        ("minor", (), (), "0.1.0"),
        ("minor", ("v0.3.2",), (), "0.4.0"),
        ("patch", ("v0.3.2",), (), "0.3.3"),
        ("major", ("v0.3.2",), (), "1.0.0"),
        ("minor", ("v0.3.2", "v0.10.0", "v0.9.9"), (), "0.11.0"),
        ("minor", ("v0.3.2",), ("0.4.0",), "0.5.0"),
        ("minor", ("0.9.0", "v1.0", "vx.y.z", "v2.0.0-rc1"), (), "0.1.0"),
        ("date", (), (), "2027.1.1"),
        ("date", ("v2027.1.1",), (), "2027.1.2"),
        ("date", ("v2026.12.7",), (), "2027.1.1"),
    ],
)
def test_the_next_version(
    scheme: str, tags: tuple[str, ...], planned: tuple[str, ...], expected: str
) -> None:
    refs = {f"refs/tags/{t}": SHA for t in tags}
    assert next_version(refs, planned, replace(POLICY, version_scheme=scheme), NOW) == expected


def test_a_tag_pattern_of_ones_own() -> None:
    mine = replace(POLICY, tag="widget-{version}+x")
    assert next_version({"refs/tags/widget-1.2.3+x": SHA, "refs/tags/v9.0.0": SHA}, (), mine) == "1.3.0"


# ---------------------------------------------------------------- DISCOVER, DISPATCH, MONITOR


@pytest.mark.parametrize(
    ("facts", "policy", "expected"),
    [
        (world(), {}, "nothing_to_dispatch -> MONITOR"),
        (world(lane=Lane()), {}, "no_work -> SELF_REVIEW"),
        (world(candidate(1)), {}, "work_available -> DISPATCH"),
        (world(candidate(1), lane=Lane()), {}, "release_missing -> RELEASE_PLAN"),
        (world(candidate(1), slots=Slots(3)), {}, "nothing_to_dispatch -> MONITOR"),
        (world(lane=Lane(), slots=Slots(1)), {}, "nothing_to_dispatch -> MONITOR"),
        (world(lane=Lane(), releases=(peer("release", "MERGING"),)), {}, "nothing_to_dispatch -> MONITOR"),
        (world(candidate(1), lane=Lane()), {"mode": "pulls"}, "work_available -> DISPATCH"),
        (
            world(candidate(1), lane=Lane(), controls=(Control(1, NOW, "pause"),)),
            {"mode": "pulls"},
            "no_work -> SELF_REVIEW",
        ),
        ({}, {}, "waits"),
    ],
)
def test_discover(facts: dict[str, Any], policy: dict[str, Any], expected: str) -> None:
    assert said(director("DISCOVER"), seen(facts, **policy)) == expected


def test_dispatch_opens_a_ticket_for_each_that_was_chosen() -> None:
    facts = seen(world(candidate(1), candidate(2), candidate(3)))
    effects = arrives("director", "DISPATCH", facts, repo=REPO, chosen=(1, 3))
    assert [e.machine for e in effects if isinstance(e, OpenMachine)] == [
        f"{REPO}/ticket/1",
        f"{REPO}/ticket/3",
    ]


def test_an_issue_that_had_a_ticket_gets_one_of_its_own_again() -> None:
    facts = seen(world(candidate(1, past=past("GONE", tickets=2, attempts=5))))
    (effect,) = arrives("director", "DISPATCH", facts, repo=REPO, chosen=(1,))
    assert isinstance(effect, OpenMachine)
    assert (effect.machine, effect.start.offset) == (f"{REPO}/ticket/1~3", 5)


def test_no_number_of_an_attempt_is_given_twice_after_a_person_asked_for_another_try() -> None:
    """Three attempts failed, a person asked again, the fourth was released; the issue is reopened."""
    name = f"{REPO}/ticket/1"
    items = {name: Item(name, "RELEASED", Ticket(repo=REPO, issue=1, offset=3, attempts=1))}
    own = Own(None, items)  # type: ignore[arg-type]
    facts = seen(world(*own.with_past((candidate(1),))))
    (effect,) = arrives("director", "DISPATCH", facts, repo=REPO, chosen=(1,))
    assert isinstance(effect, OpenMachine)
    assert attempt_code(effect.start, 1) == "1.5"


LANDED = entry(1, "LANDED", landed_in=LANE.machine)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (world(), "waits"),
        (world(candidate(1)), "tick -> DISCOVER"),
        (world(lane=Lane()), "tick -> DISCOVER"),
        (world(lane=Lane(), releases=(peer("release", "MERGING", waits="a person merges #40"),)), "waits"),
        (world(lane=Lane(), releases=(peer("release", "NEEDS_PERSON"),)), "waits"),
        (world(lane=Lane(), releases=(peer("release", "MERGING"),)), "release_ready -> RELEASE_FINALIZE"),
        (world(lane=Lane(), releases=(peer("release", "GATING"),)), "release_ready -> RELEASE_FINALIZE"),
        (world(lane=Lane(), releases=(peer("release", "PUBLISHED"),)), "release_ready -> RELEASE_FINALIZE"),
        (
            world(entries=(LANDED,), releases=(peer("release", "OPEN", "0.4.0"),)),
            "release_ready -> RELEASE_FINALIZE",
        ),
        (
            world(entries=(LANDED, entry(2, "ATTEMPTING")), releases=(peer("release", "OPEN", "0.4.0"),)),
            "waits",
        ),
        ({}, "waits"),
    ],
)
def test_monitor(facts: dict[str, Any], expected: str) -> None:
    assert said(director("MONITOR"), seen(facts)) == expected


def test_a_reason_that_changes_is_written() -> None:
    facts = seen(world(candidate(1, locked=True)))
    assert said(director("MONITOR"), facts) == "tick -> DISCOVER"
    assert said(director("MONITOR", reasons={"1": "the conversation is locked"}), facts) == "waits"


def test_what_was_broadcast_is_not_ready_again() -> None:
    out = world(releases=(peer("release", "PUBLISHED", "0.3.0"),))
    assert said(director("MONITOR", announced=(f"{REPO}/release/0.3.0",)), seen(out)) == "waits"
    assert said(director("MONITOR"), seen(out, began=NOW)) == "waits"


def test_a_candidate_that_would_still_join_holds_the_release_open() -> None:
    full = world(
        candidate(2), entries=(LANDED,), releases=(peer("release", "OPEN", "0.4.0"),), slots=Slots(3)
    )
    kept = {"reasons": {"2": "no free slot"}}
    assert said(director("MONITOR", **kept), seen(full)) == "waits"
    late = {**full, "releases": (peer("release", "OPEN", "0.4.0", entered_s=43201),)}
    assert said(director("MONITOR", **kept), seen(late)) == "release_ready -> RELEASE_FINALIZE"


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        (peer("release", "GATING"), "waits"),
        (peer("release", "PUBLISHED"), "release_published -> BROADCAST"),
        (peer("release", "NEEDS_PERSON"), "gate_failed -> DISCOVER"),
        (peer("release", "MERGING", waits="a person merges #40"), "release_waits -> DISCOVER"),
        (peer("release", "MERGING"), "waits"),
        (peer("release", "ABANDONED"), "release_waits -> DISCOVER"),
        (peer("release", "OPEN"), "release_waits -> DISCOVER"),
    ],
)
def test_finalizing(release: Any, expected: str) -> None:
    it = director("RELEASE_FINALIZE", release=release.id)
    assert said(it, seen({"releases": (release,), "entries": ()})) == expected


def test_a_release_is_broadcast_once() -> None:
    r = peer("release", "PUBLISHED", tag="v0.4.0", merge_sha=SHA)
    facts = seen({"releases": (r,), "entries": (), "image": "img2"})
    assert arrives("director", "BROADCAST", facts, release=r.id) == (Announce("v0.4.0", SHA, "img2"),)
    it = director("BROADCAST", release=r.id, announced=("x",))
    assert note(it, facts)["announced"] == ("x", r.id)


# ---------------------------------------------------------------- SELF_REVIEW, COOLDOWN, SHUTDOWN


def test_idle_is_idle() -> None:
    """Held back by a person or by the disk, it does not go round and round."""
    held = world(candidate(1), lane=Lane(), controls=(Control(1, NOW, "pause"),))
    idle = director("SELF_REVIEW", reasons={"1": "paused by a person"})
    assert said(idle, seen(held, mode="pulls")) == "waits"
    assert said(idle, seen(held)) == "waits"
    disk = world(candidate(1), lane=Lane(), disk=0)
    text = "only 0 MiB free on disk; 5120 MiB are needed to start work"
    full = director("SELF_REVIEW", reasons={"1": text})
    assert said(full, seen(disk, mode="pulls")) == "waits"
    assert said(idle, seen(world(candidate(1), lane=Lane()))) == "tick -> DISCOVER"


LIMIT = Limited("github.write", NOW + 60, "asked to slow down")


def test_a_gate_that_nobody_waits_for_is_ended_when_there_is_nothing_else_to_do() -> None:
    """A director that died while it planned leaves a gate; the next one may have no reason to plan."""
    idle = director("SELF_REVIEW", reasons={})
    jobs = (Status(GATE, "RUNNING", seen_at=NOW), Status("h-t-acme-widget-1-1-i1", "EXITED", 0))
    facts = world(lane=Lane(), candidates=(), ours=jobs)
    assert intents(idle, seen(facts)) == (EndGate(GATE),)
    ended = director("SELF_REVIEW", done(EndGate(GATE), {}), reasons={})
    assert said(ended, seen(facts)) == "waits"
    assert said(idle, seen({**facts, "releases": (peer("release", "GATING"),)})) == "waits"
    older = (Status(GATE, "RUNNING", seen_at=idle.changed_at - 1),)
    assert said(idle, seen({**facts, "ours": older})) == "waits"


def test_a_gate_that_nobody_waits_for_is_ended_while_a_release_waits_for_work() -> None:
    jobs = (Status(GATE, "LOST", seen_at=NOW),)
    idle, facts = director("MONITOR", reasons={}), world(candidates=(), ours=jobs)
    assert intents(idle, seen(facts)) == (EndGate(GATE),)
    assert said(idle, seen({**facts, "entries": (entry(1, "LANDING"),)})) == "waits"
    assert said(idle, seen({**facts, "releases": (peer("release", "NEEDS_PERSON"),)})) == "waits"


@pytest.mark.parametrize(
    "state",
    ["RELEASE_PLAN", "DISCOVER", "DISPATCH", "MONITOR", "RELEASE_FINALIZE", "BROADCAST", "SELF_REVIEW"],
)
def test_a_limit_cools_it_down_from_anywhere(state: str) -> None:
    it = director(state)
    assert said(it, seen(world(limits=(LIMIT,), signal=""))) == "rate_limited -> COOLDOWN"
    assert note(it, seen(world(limits=(LIMIT,))))["cooldown_until"] == NOW + 60
    down = replace(LIMIT, why="failures")
    assert said(it, seen(world(limits=(down,)))) == "transient_failures -> COOLDOWN"


def test_boot_never_cools_down_and_small_waits_do_not_count() -> None:
    assert KIND.alarm(director("BOOT"), seen(world(limits=(LIMIT,)))) is None
    assert KIND.alarm(director("COOLDOWN"), seen(world(limits=(LIMIT,)))) is None
    assert KIND.alarm(director("MONITOR"), seen(world(limits=(replace(LIMIT, until=NOW + 0.5),)))) is None
    model = replace(LIMIT, resource="model.request")
    assert KIND.alarm(director("MONITOR"), seen(world(limits=(model,)))) is None


def test_a_cooldown_ends_when_every_limit_is_over() -> None:
    it = director("COOLDOWN", cooldown_until=NOW + 60, cooldown="github.write")
    assert said(it, seen({"limits": ()})) == "waits"
    assert said(it, seen({"limits": (replace(LIMIT, until=NOW + 90),)}, now=NOW + 61)) == "waits"
    assert said(it, seen({"limits": ()}, now=NOW + 60)) == "cooldown_expired -> DISCOVER"


@pytest.mark.parametrize("state", [s for s in KIND.table.states if s != "SHUTDOWN"])
def test_a_signal_ends_it_from_anywhere(state: str) -> None:
    told = seen(world(signal="SIGTERM", limits=(LIMIT,)))
    assert said(director(state), told) == "terminate -> SHUTDOWN"


def test_what_it_cannot_do_is_tried_again_later() -> None:
    broken = failed(CreateBranch("release/0.4.0", SHA), Failure.CONFLICT, "is there already")
    it = director("RELEASE_PLAN", broken, base_sha=SHA)
    assert said(it, seen(planning())) == "transient_failures -> COOLDOWN"
    assert note(it, seen(planning()))["cooldown_until"] == NOW + 30
