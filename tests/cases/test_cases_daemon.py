"""A daemon among people: files that break while it runs, signals, standstills, restarts, a second one elsewhere.

The one rule: directors are processes as people start them, and what they print counts as much as what they do.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from demo_world import Finished, Stage, events, git, journals, left_over, terminate, wait_for
from director_world import World, merged

from harness.adapters.git import GitRepo
from harness.adapters.store.sql import SqlStore
from harness.compose.epoch import EPOCH_REF, take_epoch

TITLES = ("One", "Two", "Three", "Four", "Five")
AGENT = """
echo "$ODD|$TWO|$HARNESS_ISSUE" >>MARKS/env; touch MARKS/on.$HARNESS_ISSUE
ls MARKS | grep -c '^on[.]' >>MARKS/at-once.$(cat MARKS/phase)
until [ -e MARKS/go.$HARNESS_ISSUE ]; do echo on; sleep 0.2; done
echo x >f$HARNESS_ISSUE.txt; rm MARKS/on.$HARNESS_ISSUE
"""


def settings(marks: Path, **sections: Any) -> dict[str, Any]:
    script = AGENT.replace("MARKS", str(marks)).replace("$", "$$")
    made = {
        "director": {"max_workers": 3, "max_retries": 1, "max_attempts": 1},
        "agent": {
            "kind": "command", "command": ["sh", "-c", script],
            "env": {"ODD": "100%d $USER! $${HOME}", "TWO": "${CASE_VALUE}"},
        },
        "validation": {"commands": ["true"]},
        "timeouts": {"worker_heartbeat_ttl_seconds": 10},
    }  # fmt: skip
    return merged(made, sections)


# ---------------------------------------------------------------- one that people work on while it runs


@dataclass
class Day:
    world: World
    marks: Path
    told: list[str] = field(default_factory=list)
    reloads: dict[str, list[str]] = field(default_factory=dict)
    on: list[str] = field(default_factory=list)
    second: list[Finished] = field(default_factory=list)
    ended: Finished | None = None
    slept: list[str] = field(default_factory=list)


BROKEN = {
    "a value of another type": b"[director]\nmax_workers = 'two'\n",
    "a key twice": b"[director]\nmax_workers = 1\nmax_workers = 2\n",
    "half a file": b'[director]\nmax_workers = 2\n[forge]\nrepo = "acme',
    "nothing of what is needed": b"",
    "bytes that are no text": b"[forge]\nrepo = '\xff'\n",
    "a variable that is not set": b"[git]\nauthor = '${NOBODY_SET_THIS}'\n",
}


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    folder = tmp_path_factory.mktemp("day")
    marks = folder / "marks"
    marks.mkdir()
    (marks / "phase").write_text("wide")
    stage = Stage(folder)
    env = {"CASE_VALUE": "${HOME}%s"}
    with World(stage, folder / "world", "process", TITLES, config=settings(marks), env=env) as world:
        made = Day(world, marks)
        file = world.folder / "harness.toml"
        good = file.read_bytes()
        director = world.start("director", "--until-idle", "--json")
        wait_for(lambda: len(list(marks.glob("on.*"))) == 3, 90, "three agents are at it")
        for name, raw in BROKEN.items():
            file.write_bytes(raw)
            made.reloads[name] = _hang_up(director)
        file.unlink()
        made.reloads["no file"] = _hang_up(director)
        narrow = good.replace(b"max_workers = 3", b"max_workers = 1").replace(b"\n", b"\r\n")
        file.write_bytes(b"\xef\xbb\xbf" + narrow)
        made.reloads["a narrower one, from another system"] = _hang_up(director)

        director.process.send_signal(signal.SIGSTOP)
        time.sleep(12)  # longer than a worker may be silent
        director.process.send_signal(signal.SIGCONT)
        time.sleep(2)
        made.slept = sorted(world.states("/attempt/").values())
        made.on = sorted(p.name for p in marks.glob("on.*"))
        (marks / "phase").write_text("narrow")
        for name in made.on:
            (marks / name.replace("on", "go")).touch()
        wait_for(lambda: len(list(marks.glob("at-once.narrow"))) == 1, 90, "the next one begins")

        made.second.append(world.run("director"))
        terminate(director, 30)
        made.told.append(director.told())
        lock = world.folder / "data" / "lock"
        for left in (b'{"pid": 1, "host": "elsewhere"}', b"\0\xff not json"):
            lock.write_bytes(left)
            made.second.append(world.run("director", "--once", "--json"))
        director = world.start("director", "--until-idle", "--json")
        for number in range(1, 6):
            (marks / f"go.{number}").touch()
        made.ended = director.end(200)
        yield made
    stage.close()


def _hang_up(director: Any) -> list[str]:
    """The lines that it prints when it is told to read its file again."""
    before = director.told().count("\n")

    def said() -> list[str]:
        return [x for x in director.told().splitlines()[before:] if x.startswith("harness director: ")]

    director.process.send_signal(signal.SIGHUP)
    wait_for(said, 30, "it says what it read")
    return said()


@pytest.mark.parametrize("name", [*BROKEN, "no file"])
def test_a_file_that_breaks_while_it_runs_changes_nothing_and_is_named_in_one_line(
    name: str, day: Day
) -> None:
    (line,) = day.reloads[name]
    assert "harness.toml" in line or "forge.repo" in line, line
    assert line.endswith("; the last good configuration stays in force"), line


def test_a_lower_number_of_workers_lets_those_that_run_end(day: Day) -> None:
    assert day.reloads["a narrower one, from another system"] == ["harness director: configuration reloaded"]
    assert len(day.on) == 3
    assert "3" in (day.marks / "at-once.wide").read_text().split()
    assert set((day.marks / "at-once.narrow").read_text().split()) == {"1"}


def test_a_standstill_of_the_machine_is_nobodys_silence(day: Day) -> None:
    assert day.slept == ["RUNNING"] * 3
    attempts = {m.rsplit("/", 1)[1]: r for m, r in journals(day.world.folder, "/attempt/").items()}
    assert sorted(attempts) == [f"{n}.1" for n in range(1, 6)]
    for code, records in attempts.items():
        assert not {"stalled", "timed_out", "infra_lost"} & set(events(records)), code


def test_what_a_lock_file_says_is_not_believed_but_who_holds_it(day: Day) -> None:
    refused, *begun = day.second
    assert refused.code == 4 and "another director holds" in refused.told
    for one in begun:
        assert one.code == 0 or "host" in one.told, one.told
        assert "Traceback" not in one.told


def test_values_are_taken_as_they_stand_but_for_variables_in_braces(day: Day) -> None:
    lines = {line.rsplit("|", 1)[0] for line in (day.marks / "env").read_text().splitlines()}
    assert lines == {"100%d $USER! ${HOME}|${HOME}%s"}


def test_all_of_it_is_released_once(day: Day) -> None:
    assert day.ended is not None and day.ended.code == 0, day.ended
    assert Counter(t["state"] for t in day.ended.document["tickets"]) == {"RELEASED": 5}
    assert Counter(p["head_ref"] for p in day.world.repo()["pulls"] if "agent" in p["head_ref"]) == Counter(
        f"agent/{n}" for n in range(1, 6)
    )
    assert left_over(day.world.folder, "process") == []


# ---------------------------------------------------------------- restarts


def test_restarts_give_an_agent_that_fails_no_further_tries(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    script = f"echo run >>{runs}; sleep 1; echo broken; exit 1"
    config = {
        "director": {"max_retries": 3, "max_attempts": 3},
        "agent": {"kind": "command", "command": ["sh", "-c", script]},
    }
    stage = Stage(tmp_path)

    def begun() -> int:
        return len(runs.read_text().split()) if runs.exists() else 0

    with World(stage, tmp_path / "world", "process", ["Do it"], config=config) as world:
        for n in (1, 2, 3):
            director = world.start("director")
            wait_for(lambda n=n: begun() >= n, 90, f"run {n}")  # type: ignore[misc]
            if n == 2:
                director.kill()
            else:
                terminate(director, 30)
        for _ in range(2):
            ended = world.run("director", "--until-idle", "--json")
            assert ended.code == 0, ended.told[-3000:]
        assert begun() == 3
        assert [t["state"] for t in ended.document["tickets"]] == ["DEFERRED"]
        comments = world.comments(1)
        keys = Counter(c.split("key=")[1].split()[0] for c in comments)
        assert set(keys.values()) == {1}
        assert left_over(world.folder, "process") == []
    stage.close()


def test_of_two_directors_in_two_places_only_one_works(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    (marks / "phase").write_text("two")
    stage = Stage(tmp_path)
    config = settings(marks)
    env = {"CASE_VALUE": "x"}
    with World(stage, tmp_path / "world", "process", ["Do it"], config=config, env=env) as world:
        other = merged(
            config,
            {"director": {"data_dir": str(tmp_path / "other")}, "audit": {"dir": str(tmp_path / "audits")}},
        )
        elsewhere = tmp_path / "elsewhere.toml"
        elsewhere.write_text(tomli_w.dumps(merged(world._quick(), other)))
        first = world.start("director")
        second = stage.start("director", "--config", str(elsewhere), env=env)
        both = (first, second)
        wait_for((marks / "env").exists, 120, "an agent is at it")
        time.sleep(3)
        (marks / "go.1").touch()
        wait_for(lambda: world.repo()["releases"], 120, "it is released")
        for one in both:
            if one.process.poll() is None:
                terminate(one, 30)
            else:
                assert one.process.returncode == 4, one.told()[-3000:]
                assert one.told().splitlines()[-1].startswith("harness director: ")
            assert "Traceback" not in one.told()
        assert Counter(p["head_ref"] for p in world.repo()["pulls"])["agent/1"] == 1
        assert (marks / "env").read_text().count("|1\n") == 1
    stage.close()


class StoppedClock:
    def now(self) -> float:
        return 1_800_000_000.0

    def monotonic(self) -> float:
        return 1.0


def test_two_that_start_in_the_same_second_do_not_share_an_epoch(tmp_path: Path) -> None:
    """Each sees no epoch yet; their commits must differ, or both pushes would succeed."""
    bare, clock = tmp_path / "bare.git", StoppedClock()
    subprocess.run(["git", "init", "-q", "--bare", str(bare)], check=True, timeout=60)
    seen = []
    for place in ("one", "two"):
        repo = GitRepo(
            tmp_path / place, remote=f"file://{bare}", token=str, clock=clock, author=("H", "h@acme.example")
        )
        store = SqlStore.open(tmp_path / f"{place}.db", clock=clock, code="1")
        assert take_epoch(store, repo, clock, False)[0] == 1  # type: ignore[arg-type]
        seen.append(git(bare, "rev-parse", EPOCH_REF))
        git(bare, "update-ref", "-d", EPOCH_REF)
        store.close()
    assert seen[0] != seen[1]
