"""The simulator: nights with faults break no invariant, a seed is one night, and the checker finds what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.core.result import Ok
from harness.failures import Failure
from harness.policy import Policy
from harness.sim.clock import ProcessClock, Time
from harness.sim.invariants import Checker
from harness.sim.morning import COUNTERS
from harness.sim.night import REPO, Night
from harness.sim.outside import Fate
from harness.sim.people import People
from harness.sim.seeds import Options, play, run
from harness.sim.weather import CLASSES, Weather, mix

ROOT = Path(__file__).parents[2]
BOTH = Options()


def found(first: int, last: int, options: Options) -> list[str]:
    return [
        f"seed {v.seed}: {x.invariant}: {x.text}"
        for v in run(range(first, last), options)
        for x in v.violations
    ]


def test_a_thousand_nights_with_all_faults_break_no_invariant() -> None:
    assert found(0, 1000, BOTH) == []


def test_nights_without_faults_release_everything() -> None:
    assert found(0, 4, Options(faults=())) == []


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_each_class_of_faults_alone(name: str) -> None:
    assert found(0, 2, Options(faults=(name,))) == []


@pytest.mark.parametrize(
    ("seed", "name"),
    [(16, "container"), (18, "engine"), (7, "clock"), (13, "people"), (26, "engine"), (4, "base")],
)
def test_seeds_that_found_a_bug_once(seed: int, name: str) -> None:
    assert found(seed, seed + 1, Options(faults=(name,))) == []


def test_a_seed_is_one_night() -> None:
    once, again = play(11, BOTH, story=True), play(11, BOTH, story=True)
    assert once.digest == again.digest
    assert once.transcript == again.transcript
    assert len(once.transcript) > 100


def test_a_seed_is_the_same_in_another_process() -> None:
    code = "from harness.sim.seeds import *; print(play(5, Options()).digest)"
    env = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": str(ROOT)}
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert said.stdout.strip() == play(5, BOTH).digest


def watched(issues: int = 1) -> tuple[Night, Weather, Checker]:
    import random

    night = Night(
        Policy(repo=REPO, instance="night", commands=("test",), image="img", merge="auto", min_free_bytes=0),
        {},
    )
    weather = Weather(random.Random(0), frozenset())
    weather.draw(night)
    weather.seal()
    people = People(night, weather, random.Random(0))
    for n in range(issues):
        night.hub.person_opens("ada", f"Issue {n}", "", ("harness",))
    return night, weather, Checker(night, weather, people)


def names(checker: Checker) -> set[str]:
    return {v.invariant for v in checker.found}


def test_a_second_comment_of_one_key_is_found() -> None:
    night, _, checker = watched()
    mark = night.marks.mark("status", "issue/1")
    for _ in range(2):
        night.hub.person_comments("harness-bot", 1, f"Working on it.\n{mark}")
    checker.step()
    assert names(checker) == {"one comment a key"}


def test_a_second_pull_of_one_head_is_found() -> None:
    night, _, checker = watched()
    for branch in ("other", "agent/1"):
        night.remote.set(f"refs/heads/{branch}", night.remote.refs["refs/heads/main"])
    night.remote.write("refs/heads/agent/1", {"work": "x"}, "work")
    for base in ("main", "other"):
        assert isinstance(night.forge.open_pull("agent/1", base, "t", "b"), Ok)
        night.forge.time.at += 1.0  # writes are spaced
    checker.step()
    assert "one pull a head" in names(checker)


def test_a_tree_that_no_gate_saw_is_found_when_it_lands() -> None:
    night, _, checker = watched()
    night.repo.fetch()
    sha = night.repo.write([night.remote.refs["refs/heads/main"]], {"new": "x"}, "unseen")
    night.repo.commits[sha] = night.repo.outside[sha]
    night.repo.push("refs/heads/main", sha, night.remote.refs["refs/heads/main"])
    assert names(checker) == {"only what was gated green lands"}


def test_a_tag_that_moves_is_found() -> None:
    night, _, checker = watched()
    main = night.remote.refs["refs/heads/main"]
    night.remote.set("refs/tags/v1", main)
    night.remote.set("refs/tags/v1", night.remote.write("refs/heads/x", {"a": "b"}, "c"))
    assert "a tag never moves" in names(checker)


def test_a_commit_of_a_person_that_is_pushed_away_is_found() -> None:
    night, _, checker = watched()
    theirs = night.remote.write("refs/heads/agent/1", {"a": "b"}, "by hand")
    checker.people.commits.add(theirs)
    night.remote.set("refs/heads/agent/1", "")
    assert names(checker) == {"no commit of a person is lost"}


def test_a_call_in_a_penalty_window_is_found() -> None:
    night, _, checker = watched()
    night.switch.ask = lambda port, name, write: Fate("limit", 30.0)
    night.forge.issues()
    night.forge.governor = type(night.forge.governor)(
        lambda key: None, lambda key, value: None, night.clock, {}
    )
    night.forge.issues()
    checker.step()
    assert names(checker) == {"no call in a penalty window"}


def test_a_journal_that_was_changed_is_found() -> None:
    night, _, checker = watched()
    night.step()
    records = night.disk.records[f"{REPO}/director/1"]
    records[0] = type(records[0])(**{**{f: getattr(records[0], f) for f in records[0].__slots__}, "body": {}})
    checker.end(in_time=False)
    assert "journals verify" in names(checker)


def test_an_attempt_that_begins_after_a_persons_no_is_found() -> None:
    night, _, checker = watched()
    night.run(lambda n: f"{REPO}/attempt/1.1" in n.turns.items)
    checker.people.refused[1] = night.clock.at - 10.0
    checker.end(in_time=False)
    assert "a person's no counts" not in names(checker)
    checker.people.refused[1] = night.clock.at - 1000.0
    checker.end(in_time=False)
    assert "a person's no counts" in names(checker)


def test_what_never_settles_is_found() -> None:
    _, _, checker = watched()
    assert not checker.settled()
    checker.end(in_time=False)
    assert "it settles when the faults stop" in names(checker)


def test_the_checker_knows_every_class_of_failure() -> None:
    assert set(COUNTERS) == set(Failure)


def test_a_process_keeps_its_clock_when_the_wall_clock_jumps() -> None:
    time = Time()
    before = ProcessClock.started(time)
    time.wall_s -= 7200.0
    assert before.now() == time.at
    assert ProcessClock.started(time).now() == time.at - 7200.0


def test_faults_come_alone_and_together() -> None:
    import random

    sizes = {len(mix(random.Random(seed), tuple(CLASSES))) for seed in range(200)}
    assert 1 in sizes
    assert max(sizes) > 8


def harness(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "harness", "sim", *args], capture_output=True, text=True, cwd=ROOT
    )


def test_the_command_answers_with_one_document() -> None:
    said = harness("--seeds", "0:2", "--issues", "1", "--workers", "1", "--faults", "forge,kill", "--json")
    document = json.loads(said.stdout)
    assert said.returncode == 0
    assert document["seeds"] == 2
    assert document["violations"] == []
    assert document["ticks"] > 0
    assert document["seconds"] > 0


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("--seeds", "x"), "expected A:B"),
        (("--seeds", "5:5"), "no seed in it"),
        (("--faults", "rain"), "no class rain"),
    ],
)
def test_bad_options_get_one_clear_line(args: tuple[str, ...], text: str) -> None:
    said = harness(*args)
    assert said.returncode == 2
    assert text in said.stderr
    assert "Traceback" not in said.stderr
