"""A forge that loses answers, asks to slow down and contradicts itself: everything is still there once."""

from __future__ import annotations

from collections import Counter

import pytest
from demo_world import bare_of, git, left_over, repo_of
from scenes import Faulty, Played

from harness.demo.crash import compare, world


@pytest.fixture(params=["demo_with_lost_writes", "demo_with_limits"])
def faulty(request: pytest.FixtureRequest) -> Faulty:
    found: Faulty = request.getfixturevalue(request.param)
    assert found.finished.code == 0, found.finished.told[-4000:]
    return found


def test_every_fault_fired(faulty: Faulty) -> None:
    for rule in faulty.rules:
        wanted = rule["n"] if rule["kind"] in ("base-modified", "mergeable-null") else rule["times"]
        assert rule["fired"] == wanted, rule
    assert faulty.report["faults"] >= len(faulty.rules)


def test_the_release_is_complete_and_there_once(faulty: Faulty) -> None:
    d, repo = faulty.finished.document, repo_of(faulty.folder)
    assert (d["ok"], set(d["release"]["landed"]), len(d["release"]["deferred"])) == (True, {1, 2, 4, 5}, 1)
    heads = Counter(p["head_ref"] for p in repo["pulls"])
    assert heads == Counter(["agent/1", "agent/2", "agent/4", "agent/5", "release/0.1.0"])
    keys = Counter(
        (c["issue"], c["body"].split("key=")[1].split()[0]) for c in repo["comments"] if c["user"] != "ada"
    )
    assert {k: n for k, n in keys.items() if n > 1} == {}
    assert git(bare_of(faulty.folder), "tag").split() == ["v0.1.0"]
    assert [r["tag_name"] for r in repo["releases"]] == ["v0.1.0"]
    assert left_over(faulty.folder, "process") == []


def test_nothing_was_asked_inside_a_penalty(faulty: Faulty) -> None:
    assert faulty.report["violations"]["in_penalty"] == 0, faulty.report["broken"][:5]


def test_lost_answers_change_nothing_that_anybody_can_see(
    demo_with_lost_writes: Faulty, process_demo: Played
) -> None:
    assert compare(world(process_demo.folder), world(demo_with_lost_writes.folder)) == []
