"""The release: what is tagged was gated as that tree, whoever merged it, and a person is asked once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from handlers import (
    NOW,
    POLICY,
    REPO,
    arrives,
    done,
    failed,
    intents,
    item,
    moved,
    names,
    note,
    peer,
    said,
    seen,
    why,
)

from harness.core.item import Item
from harness.domain import Check, Control, Entry, Gone, Issue, Pull, Review
from harness.effects import BuildMerge, CloseIssue, DeleteBranch, EditPull, EndGate, Land, PublishRelease, Tag
from harness.failures import Failure
from harness.machines import gates
from harness.machines.kind import Seen
from harness.machines.release.settle import settled
from harness.machines.release.table import KIND

ME = f"{REPO}/release/0.4.0"
BRANCH = "release/0.4.0"
TIP, BASE, MERGE, THEIRS, LATER = "a" * 40, "b" * 40, "c" * 40, "d" * 40, "e" * 40
TREE, OTHER = "t" * 40, "u" * 40
DATA: dict[str, Any] = {
    "repo": REPO,
    "version": "0.4.0",
    "branch": BRANCH,
    "base": "main",
    "tag": "v0.4.0",
    "tip": TIP,
    "base_tip": BASE,
    "pull": 40,
}


def release(state: str, *intents: Any, **data: Any) -> Item[Any]:
    return item("release", state, *intents, **{**DATA, **data})


def refs(tip: str = TIP, base: str = BASE) -> dict[str, str]:
    return {k: v for k, v in ((f"refs/heads/{BRANCH}", tip), ("refs/heads/main", base)) if v}


def pull(**fields: Any) -> Pull:
    return replace(Pull(40, BRANCH, "main", TIP, True, False), **fields)


def entry(issue: int, state: str, landed_in: str = "", **more: Any) -> Entry:
    return Entry(
        f"{REPO}/ticket/{issue}", issue, f"Issue {issue}", state, pull=30 + issue, landed_in=landed_in, **more
    )


LANDED = entry(1, "LANDED", ME, head=MERGE)

# ---------------------------------------------------------------- OPEN


def opened(*entries: Entry, director: str = "RELEASE_FINALIZE", **facts: Any) -> Seen:
    base = {"entries": entries, "director": peer("director", director), "controls": (), "pull/40": pull()}
    return seen({**base, **facts})


def test_a_release_says_that_it_is_being_prepared_on_the_commit_it_begins_at() -> None:
    """Its director may die while it plans, and another plans anew: what is the release's own is said once."""
    (status,) = arrives("release", "OPEN", seen({}), base_sha="b" * 40, version="0.4.0")
    assert (status.sha, status.context, status.state) == ("b" * 40, "harness/release", "pending")
    assert "0.4.0" in status.description


def test_nothing_landed_opens_no_pull() -> None:
    it = release("OPEN", pull=0)
    assert said(it, opened(entry(1, "ATTEMPTING"))) == "waits"


def test_the_first_landing_opens_the_pull_and_each_later_one_rewrites_it() -> None:
    it = release("OPEN", pull=0)
    assert said(it, opened(LANDED)) == "begins OpenPull"
    written = replace(it, data=replace(it.data, pull=40, **note(it, opened(LANDED))))
    assert said(written, opened(LANDED, director="MONITOR")) == "waits"
    assert said(written, opened(LANDED, entry(2, "LANDED", ME), director="MONITOR")) == "begins EditPull"


def written(*entries: Entry, **data: Any) -> Item[Any]:
    """Open, with a pull whose text says how things are."""
    it = release("OPEN", **data)
    return replace(it, data=replace(it.data, **note(it, opened(*entries))))


@pytest.mark.parametrize(
    ("others", "director", "controls", "expected"),
    [
        ((), "RELEASE_FINALIZE", (), "settled -> GATING"),
        ((), "MONITOR", (), "waits"),
        ((entry(2, "ATTEMPTING"),), "RELEASE_FINALIZE", (), "waits"),
        ((entry(2, "WAITING"),), "RELEASE_FINALIZE", (), "waits"),
        ((entry(2, "DEFERRED"),), "RELEASE_FINALIZE", (), "settled -> GATING"),
        ((entry(2, "BLOCKED"),), "RELEASE_FINALIZE", (), "settled -> GATING"),
        ((entry(2, "ATTEMPTING"),), "MONITOR", (Control(1, NOW, "release-cut"),), "settled -> GATING"),
        ((), "MONITOR", (Control(0, NOW + 9, "release-cut"),), "waits"),
    ],
)
def test_a_release_settles_when_the_director_finalizes_it_or_a_person_cuts_it(
    others: tuple[Entry, ...], director: str, controls: tuple[Control, ...], expected: str
) -> None:
    it = written(LANDED, *others)
    assert said(it, opened(LANDED, *others, director=director, controls=controls)) == expected


def test_a_pull_that_a_person_merges_early_settles_the_release() -> None:
    merged = pull(open=False, merged=True, merge_sha=THEIRS)
    it = written(LANDED, entry(2, "ATTEMPTING"))
    world = opened(LANDED, entry(2, "ATTEMPTING"), director="MONITOR", **{"pull/40": merged})
    assert said(it, world) == "settled -> GATING"
    assert note(it, world)["landed"] == (1,)


@pytest.mark.parametrize(
    ("entries", "age_s", "expected"),
    [
        ((), 0, False),
        ((entry(2, "ATTEMPTING"),), 0, False),
        ((LANDED,), 0, True),
        ((LANDED, entry(2, "WAITING")), 0, False),
        ((LANDED, entry(2, "WAITING")), 43201, True),
        ((LANDED, entry(2, "LANDING")), 43201, True),
        ((entry(2, "ATTEMPTING"),), 43201, False),
        ((LANDED, entry(2, "LANDED", f"{REPO}/release/0.3.0")), 0, True),
    ],
)
def test_settled(entries: tuple[Entry, ...], age_s: float, expected: bool) -> None:
    it = replace(release("OPEN"), entered_at=NOW - age_s)
    assert settled(it, entries, NOW, POLICY) is expected


# ---------------------------------------------------------------- GATING


def test_gating_follows_the_branches_before_it_judges_them() -> None:
    it = release("GATING")
    assert said(it, seen({"refs": refs(tip=LATER)})) == "notes"
    assert note(it, seen({"refs": refs(tip=LATER)}))["tip"] == LATER


def test_gating_reads_the_tree_and_gates_it() -> None:
    it = release("GATING")
    assert said(it, seen({"refs": refs()})) == "waits"
    assert said(it, seen({"refs": refs(), f"tree/{TIP}": TREE})) == "begins StartGate"


def test_a_merge_of_ours_is_forgotten_when_the_base_moves_and_a_persons_merge_is_not() -> None:
    ours = {"sha": MERGE, "tree": OTHER, "base": BASE, "head": TIP}
    assert note(release("GATING", merge=ours), seen({"refs": refs(base=LATER)}))["merge"] == {}
    theirs = {"sha": THEIRS, "tree": OTHER, "base": BASE, "head": TIP}
    gone_on = release("GATING", merge=theirs, merge_sha=THEIRS, base_tip=THEIRS)
    assert note(gone_on, seen({"refs": refs(base=LATER)}))["merge"] == theirs


CHECKS = {"gates": "checks", "checks_appear_s": 600.0}


@pytest.mark.parametrize(
    ("checks", "entered_s", "expected"),
    [
        ((), 60, "waits"),
        ((), 601, "red -> NEEDS_PERSON"),
        ((Check("harness/release", "pending"),), 601, "red -> NEEDS_PERSON"),
        ((Check("ci", "success"),), 60, "green -> MERGING"),
        ((Check("ci", "pending"), Check("lint", "success")), 60, "waits"),
        ((Check("ci", "failure"), Check("lint", "pending")), 60, "red -> NEEDS_PERSON"),
        ((Check("ci", "cancelled"),), 60, "red -> NEEDS_PERSON"),
        ((Check("ci", "skipped"), Check("lint", "success")), 60, "red -> NEEDS_PERSON"),
    ],
)
def test_checks_that_are_missing_cancelled_or_skipped_are_not_passed(
    checks: tuple[Check, ...], entered_s: float, expected: str
) -> None:
    it = replace(release("GATING"), entered_at=NOW - entered_s)
    assert said(it, seen({"refs": refs(), f"checks/{TIP}": checks}, **CHECKS)) == expected


def test_checks_that_cannot_be_read_are_waited_for() -> None:
    assert said(release("GATING"), seen({"refs": refs()}, **CHECKS)) == "waits"


# ---------------------------------------------------------------- MERGING, by us

BUILT = {"sha": MERGE, "tree": TREE, "base": BASE, "head": TIP}
READY = {"merge": BUILT, "gated": TREE}


def merging(base: str = BASE, tip: str = TIP, **facts: Any) -> dict[str, Any]:
    return {"refs": refs(tip, base), "pull/40": pull(), **facts}


def test_our_own_merge_is_built_first_and_pushed_only_when_its_tree_was_gated() -> None:
    assert said(release("MERGING", gated=TREE), seen(merging())) == "begins BuildMerge"
    assert said(release("MERGING", **READY), seen(merging())) == "begins Land"
    assert said(release("MERGING", merge=BUILT, gated=OTHER), seen(merging())) == "tree_differs -> GATING"


def test_a_merge_that_the_forges_checks_have_not_seen_is_shown_to_them_first() -> None:
    """They ran on the branch's tip. Where the base moved, the merge is another tree: nothing may land as it is."""
    it = release("MERGING", merge=BUILT, gated=f"sha:{TIP}", tip=TIP)
    assert f"tree/{TIP}" in KIND.wants(it, POLICY)
    assert said(it, seen(merging())) == "waits"
    same = seen(merging(**{f"tree/{TIP}": TREE}))
    assert intents(it, same) == (Land("main", MERGE, BASE),)
    other = seen(merging(**{f"tree/{TIP}": OTHER}))
    assert intents(it, other) == (Land(BRANCH, MERGE, TIP),)
    # The branch is at our merge now: it is built again, and must be checked before it goes on.
    pushed = done(Land(BRANCH, MERGE, TIP), {"landed": True, "why": ""})
    later = release("MERGING", pushed, merge=BUILT, gated=f"sha:{TIP}", tip=TIP)
    assert said(later, seen(merging(tip=MERGE))) == "begins BuildMerge"
    rebuilt = {**BUILT, "head": MERGE}
    again = release("MERGING", pushed, merge=rebuilt, gated=f"sha:{TIP}", tip=MERGE)
    assert said(again, seen(merging(tip=MERGE))) == "tree_differs -> GATING"
    assert note(again, seen(merging(tip=MERGE)))["merge"] == {}


def test_a_base_that_moved_is_merged_again() -> None:
    assert said(release("MERGING", **READY), seen(merging(base=LATER))) == "begins BuildMerge"
    refused = done(Land("main", MERGE, BASE), {"landed": False, "why": "moved"})
    assert said(release("MERGING", refused, **READY), seen(merging(base=LATER))) == "begins BuildMerge"


def test_what_landed_is_tagged() -> None:
    landed = done(Land("main", MERGE, BASE), {"landed": True, "why": ""})
    it = release("MERGING", landed, **READY)
    to, effects = moved(it, seen(merging()))
    assert (to, effects) == ("TAGGING", (Tag("v0.4.0", MERGE),))


def test_a_protected_base_is_merged_by_the_forge_with_the_head_pinned() -> None:
    refused = done(Land("main", MERGE, BASE), {"landed": False, "why": "protected"})
    it = release("MERGING", refused, **READY)
    assert said(it, seen(merging())) == "begins MergePull"
    # Its rules may want a review first: the director does not stand still meanwhile.
    assert note(it, seen(merging())) == {"waits": "the forge merges #40 when its rules allow it"}


def test_a_conflict_goes_to_the_merge_agent() -> None:
    broken = failed(BuildMerge(BASE, TIP, "m", NOW), Failure.CONFLICT, "in words.py")
    assert said(release("MERGING", broken), seen(merging())) == "conflict -> RESOLVING"


@pytest.mark.parametrize("lost", ["tip", "base"])
def test_a_branch_that_is_not_there_is_waited_for(lost: str) -> None:
    assert said(release("MERGING", **READY), seen(merging(**{lost: ""}))) == "waits"


def test_a_required_review_of_the_release_is_waited_for() -> None:
    it = release("MERGING", **READY)
    facts = merging(**{"reviews/40": ()})
    assert said(it, seen(facts, required_review="release")) == "notes"
    waiting = replace(it, data=replace(it.data, waits="a person approves #40"))
    assert said(waiting, seen(facts, required_review="release")) == "waits"
    approved = merging(**{"reviews/40": (Review(1, "ada", "APPROVED", "", TIP, NOW),)})
    assert said(waiting, seen(approved, required_review="release")) == "begins Land"


# ---------------------------------------------------------------- MERGING, by a person


def test_a_person_is_waited_for_and_told_so_once() -> None:
    it = release("MERGING", **READY)
    assert said(it, seen(merging(), merge="person")) == "notes"
    waiting = replace(it, data=replace(it.data, **note(it, seen(merging(), merge="person"))))
    assert said(waiting, seen(merging(), merge="person")) == "waits"
    assert why(waiting, seen(merging(), merge="person")) == "a person merges #40"


MERGED = {"pull/40": pull(open=False, merged=True, merge_sha=THEIRS)}


def test_a_persons_merge_is_looked_at_and_tagged_when_its_tree_was_gated() -> None:
    it = release("MERGING", **READY)
    assert said(it, seen(merging(base=THEIRS, **MERGED), merge="person")) == "notes"
    it = release("MERGING", **READY, merge_sha=THEIRS)
    assert said(it, seen(merging(base=THEIRS, **MERGED), merge="person")) == "waits"
    same = merging(base=THEIRS, **MERGED, **{f"tree/{THEIRS}": TREE})
    assert moved(it, seen(same, merge="person")) == ("TAGGING", (Tag("v0.4.0", THEIRS),))


def test_a_persons_merge_with_another_tree_is_gated_before_it_is_tagged() -> None:
    it = release("MERGING", **READY, merge_sha=THEIRS)
    differs = seen(merging(base=THEIRS, **MERGED, **{f"tree/{THEIRS}": OTHER}), merge="person")
    assert said(it, differs) == "tree_differs -> GATING"
    gating = release("GATING", **{**READY, "merge_sha": THEIRS, **note(it, differs)})
    assert said(gating, seen({"refs": refs(base=THEIRS)})) == "begins StartGate"
    # Main goes on meanwhile: the commit that is gated stays the one that was merged.
    assert note(gating, seen({"refs": refs(base=LATER)}))["merge"]["sha"] == THEIRS


def test_the_merge_that_a_person_made_is_no_mending() -> None:
    """Its tag cannot be made; what moved the base since was the merge itself."""
    stuck = release("NEEDS_PERSON", merge_sha=THEIRS, base_tip=BASE)
    assert said(stuck, seen({"refs": refs(base=THEIRS), "controls": ()})) == "waits"
    assert said(stuck, seen({"refs": refs(base=LATER), "controls": ()})) == "person_acted -> GATING"


def test_what_a_person_mended_after_the_merge_is_what_is_gated_and_tagged() -> None:
    theirs = {"sha": THEIRS, "tree": OTHER, "base": BASE, "head": TIP}
    stuck = release("NEEDS_PERSON", merge=theirs, merge_sha=THEIRS, base_tip=THEIRS)
    assert said(stuck, seen({"refs": refs(base=THEIRS), "controls": ()})) == "waits"
    acted = note(stuck, seen({"refs": refs(base=LATER), "controls": ()}))
    assert acted["merge_sha"] == LATER
    # It is merged, so the release branch can be gone; and only the base counts.
    assert said(stuck, seen({"refs": refs(tip="", base=LATER), "controls": ()})) == "person_acted -> GATING"
    it = release("MERGING", **{**READY, "merge_sha": LATER})
    mended = merging(base=LATER, **MERGED, **{f"tree/{LATER}": OTHER})
    assert note(it, seen(mended, merge="person"))["merge"]["sha"] == LATER
    gated = release("MERGING", **{**READY, "gated": OTHER, "merge_sha": LATER})
    assert moved(gated, seen(mended, merge="person")) == ("TAGGING", (Tag("v0.4.0", LATER),))


# ---------------------------------------------------------------- TAGGING and PUBLISHING


def test_tagging_waits_for_what_the_notes_are_written_from() -> None:
    tagged = done(Tag("v0.4.0", MERGE), {"sha": MERGE})
    it = release("TAGGING", tagged, merge_sha=MERGE, carried=TIP)
    assert said(it, seen()) == "waits"
    assert said(it, seen({"entries": (LANDED,)})) == "waits"
    assert said(it, seen({"entries": (), "releases": ()})) == "tagged -> PUBLISHING"


def test_what_landed_after_the_merge_is_not_in_the_release() -> None:
    """A person presses the button while a ticket is landing: its commit is on the branch, not in the merge."""
    late = entry(2, "LANDED", ME, head=THEIRS)
    facts = {"entries": (LANDED, late), "releases": ()}
    it = release("TAGGING", done(Tag("v0.4.0", MERGE), {"sha": MERGE}), merge_sha=MERGE, carried=TIP)
    assert note(it, seen(facts)) == {"heads": {"1": LANDED.head, "2": THEIRS}}
    reading = replace(it, data=replace(it.data, **note(it, seen(facts))))
    assert said(reading, seen(facts)) == "waits"
    facts |= {f"holds/{TIP}/{LANDED.head}": True, f"holds/{TIP}/{THEIRS}": False}
    assert said(reading, seen(facts)) == "tagged -> PUBLISHING"
    assert note(reading, seen(facts)) == {"landed": (1,), "reverted": (2,)}
    effects = publishing(LANDED, late, landed=(1,), reverted=(2,))
    assert [e.issue for e in effects if isinstance(e, CloseIssue)] == [1]
    assert deleted(effects) == ["agent/1"]


def test_a_tag_that_is_somewhere_else_needs_a_person() -> None:
    taken = failed(Tag("v0.4.0", MERGE), Failure.CONFLICT, "v0.4.0 is at another commit")
    it = release("TAGGING", taken, merge_sha=MERGE)
    to, effects = moved(it, seen({"entries": (), "releases": ()}))
    assert (to, names(effects)) == ("NEEDS_PERSON", "Comment")


def publishing(*entries: Entry, **data: Any) -> tuple[Any, ...]:
    world = seen(
        {"entries": entries, "releases": (peer("release", "PUBLISHED", "0.3.0", branch="release/0.3.0"),)}
    )
    return arrives("release", "PUBLISHING", world, **{**DATA, "merge_sha": MERGE, "landed": (1,), **data})


def deleted(effects: tuple[Any, ...]) -> list[str]:
    return [e.branch for e in effects if isinstance(e, DeleteBranch)]


def test_publishing_says_what_is_in_closes_it_and_tidies_up() -> None:
    effects = publishing(LANDED, entry(2, "DEFERRED"))
    assert names(effects) == "PublishRelease, SetStatus, CloseIssue, DeleteBranch, DeleteBranch, DeleteBranch"
    assert isinstance(effects[0], PublishRelease) and effects[0].sha == MERGE
    assert deleted(effects) == ["agent/1", "release/0.3.0", BRANCH]


def test_a_release_branch_stays_while_a_worker_that_is_carried_over_fetches_from_it() -> None:
    effects = publishing(LANDED, entry(2, "ATTEMPTING"))
    assert deleted(effects) == ["agent/1"]


def test_pulls_that_are_carried_over_are_retargeted_and_those_of_parked_tickets_are_left_alone() -> None:
    effects = publishing(LANDED, entry(2, "WAITING"), entry(3, "BLOCKED"), entry(4, "DEFERRED"))
    edits = [e for e in effects if isinstance(e, EditPull)]
    assert edits == [EditPull(32, base="main")]
    assert deleted(effects) == ["agent/1", "release/0.3.0", BRANCH]


def test_a_merge_agents_branch_goes_too() -> None:
    assert "agent/release-0.4.0" in deleted(publishing(LANDED, resolves=1))


@pytest.mark.parametrize(
    ("issue", "expected"),
    [
        (Issue(1, "x", open=False), "published -> PUBLISHED"),
        (Gone("deleted"), "published -> PUBLISHED"),
        (Issue(1, "x", open=True), "begins CloseIssue"),
    ],
)
def test_that_issues_are_closed_is_read_back(issue: object, expected: str) -> None:
    it = release("PUBLISHING", landed=(1,), merge_sha=MERGE)
    assert said(it, seen()) == "waits"
    assert said(it, seen({"closed/1": issue})) == expected


# ---------------------------------------------------------------- RESOLVING and NEEDS_PERSON


def test_a_merge_agent_tries_twice_and_then_a_person_is_asked() -> None:
    it = release("RESOLVING", detail="in words.py")
    assert said(it, seen({"refs": refs()})) == "begins OpenMachine"
    started = note(it, seen({"refs": refs()}))
    assert started == {"attempt": f"{REPO}/attempt/release-0.4.0.1", "resolves": 1}
    running = replace(it, data=replace(it.data, **started))
    attempt = f"item/{started['attempt']}"
    assert said(running, seen({"refs": refs()})) == "waits"
    busy = seen({"refs": refs(), attempt: peer("attempt", "RUNNING")})
    assert said(running, busy) == "waits"
    lost = seen(
        {"refs": refs(), attempt: peer("attempt", "CLOSED", outcome="failed", failure="agent_failed")}
    )
    assert said(running, lost) == "notes"
    assert note(running, lost)["attempt"] == ""
    good = seen({"refs": refs(), attempt: peer("attempt", "CLOSED", outcome="done", head=THEIRS)})
    assert said(running, good) == "begins Land"
    spent = release("RESOLVING", resolves=2)
    assert said(spent, seen({"refs": refs()})) == "gave_up -> NEEDS_PERSON"
    landed = done(Land(BRANCH, THEIRS, TIP), {"landed": True, "why": ""})
    assert said(replace(running, intents=(landed,)), good) == "resolved -> GATING"


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"refs": refs()}, "waits"),
        ({"refs": refs(tip=LATER)}, "person_acted -> GATING"),
        ({"refs": refs(base=LATER)}, "person_acted -> GATING"),
        ({"refs": refs(), "controls": (Control(1, NOW, "release-cut"),)}, "person_acted -> GATING"),
        ({"refs": refs(), "controls": (Control(0, NOW + 9, "release-cut"),)}, "waits"),
        ({"refs": refs(), "controls": (Control(1, NOW, "release-abandon"),)}, "abandoned -> ABANDONED"),
        (
            {"refs": refs(), "controls": (Control(1, NOW, "release-abandon", {"version": "0.3.0"}),)},
            "waits",
        ),
        ({}, "waits"),
    ],
)
def test_a_person_acts_by_a_commit_or_by_command(facts: dict[str, Any], expected: str) -> None:
    assert said(release("NEEDS_PERSON"), seen({"controls": (), **facts})) == expected


def test_a_release_that_is_being_tagged_cannot_be_abandoned_any_more() -> None:
    abandon = {"controls": (Control(1, NOW, "release-abandon"),)}
    assert KIND.alarm(release("TAGGING"), seen(abandon)) is None
    assert KIND.alarm(release("PUBLISHING"), seen(abandon)) is None
    assert KIND.alarm(release("MERGING"), seen(abandon)) is not None


def test_an_abandoned_release_closes_its_pull_but_not_one_that_was_merged() -> None:
    assert arrives("release", "ABANDONED", seen(), **DATA) == (EditPull(40, state="closed"),)
    assert arrives("release", "ABANDONED", seen(), **{**DATA, "merge_sha": MERGE}) == ()


@pytest.mark.parametrize(
    ("state", "failure", "expected"),
    [
        ("MERGING", Failure.CONFLICT, "conflict -> RESOLVING"),
        ("MERGING", Failure.FORGE_DOWN, "tree_differs -> GATING"),
        ("RESOLVING", Failure.CONFLICT, "gave_up -> NEEDS_PERSON"),
        ("TAGGING", Failure.CONFLICT, "tag_conflict -> NEEDS_PERSON"),
        ("GATING", Failure.CONFIG_INVALID, "red -> NEEDS_PERSON"),
        ("NEEDS_PERSON", Failure.FORGE_DOWN, "person_acted -> GATING"),
        ("PUBLISHING", Failure.FORGE_DOWN, "published -> PUBLISHED"),
        ("OPEN", Failure.INTERNAL_ERROR, "abandoned -> ABANDONED"),
    ],
)
def test_what_follows_when_an_effect_failed_for_good(state: str, failure: Failure, expected: str) -> None:
    broken = failed(EndGate("g"), failure, "it would not")
    assert said(release(state, broken), seen()) == expected


def test_gates_and_lanes_are_named_in_what_is_asked_for() -> None:
    assert KIND.wants(release("GATING"), POLICY) == ("refs", f"tree/{TIP}")
    name = gates.gate_name(POLICY, TREE)
    assert KIND.wants(release("GATING", gate=name), POLICY) == ("refs", f"tree/{TIP}", f"gate/{name}")
    assert KIND.wants(release("GATING"), replace(POLICY, gates="checks")) == ("refs", f"checks/{TIP}")
    assert KIND.wants(release("PUBLISHING", landed=(1, 2)), POLICY) == ("closed/1", "closed/2")
