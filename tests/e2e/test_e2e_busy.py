"""A director told to end while many workers work, one that is stopped dead, and two that want the same.

The one rule: no stopwatch but the promise itself: a worker is never killed by the end of its director, and of
two directors one acts.
"""

from __future__ import annotations

import shutil
import signal
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import busy
import pytest
import tomli_w
from busy import all_work, busy_world, working
from demo_world import Finished, Stage, events, journals, left_over, wait_for

pytestmark = pytest.mark.nightly

WORKERS = 6


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[busy.Ended]:
    stage = Stage(tmp_path_factory.mktemp("busy"))
    yield busy.end_and_go_on(stage, "process", WORKERS)
    stage.close()


def test_sigterm_ends_the_director_and_no_worker(ended: busy.Ended) -> None:
    assert ended.code == 0, ended.told[-4000:]
    assert len(ended.before) == WORKERS and ended.after == ended.before


def test_the_next_one_adopts_them_all_and_they_finish(ended: busy.Ended) -> None:
    assert ended.adopted == ended.before
    assert set(ended.before) <= busy.adopted_by(ended.folder)
    assert ended.last.code == 0, ended.last.told[-4000:]
    assert [t["state"] for t in ended.last.document["tickets"]] == ["RELEASED"] * WORKERS
    attempts = journals(ended.folder, "/attempt/")
    assert len(attempts) == WORKERS
    assert not [m for m, records in attempts.items() if "infra_lost" in events(records)]
    assert left_over(ended.folder, "process") == []


# ---------------------------------------------------------------- one that is stopped dead, and two of them


@dataclass
class Two:
    """`robber` wanted the data folder of a director that was stopped dead; `other` had a copy of it, so that
    only the repository knows. `first` is the stopped one, after it woke up."""

    robber: Finished
    other: Finished
    first: int
    told: str
    impatient: int
    workers: dict[str, str]
    alive: dict[str, str]
    comments: list[str]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    stage = Stage(tmp_path_factory.mktemp("two"))
    with busy_world(stage, "process", 1) as world:
        first = world.start("director")
        all_work(world, first, 1)
        before = working(world)
        first.process.send_signal(signal.SIGSTOP)
        robber = world.run("director")
        config = _copied(world.folder)
        other = stage.run("director", "--once", "--config", str(config))
        first.process.send_signal(signal.SIGCONT)
        code = first.process.wait(120)
        # The one that owns the folder takes it again, and is told twice to end.
        again = world.start("director")
        wait_for(lambda: "MONITOR" in again.told(), 120, "it is at work again")
        again.process.send_signal(signal.SIGSTOP)
        for sent in (signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
            again.process.send_signal(sent)
        impatient = again.process.wait(60)
        yield Two(
            robber, other, code, first.told(), impatient, before, working(world), world.comments(1)
        )  # fmt: skip
    stage.close()


def _copied(folder: Path) -> Path:
    """The data folder as somebody restored it elsewhere from a copy, and its configuration."""
    copy = folder / "copy"
    shutil.copytree(folder / "data", copy, ignore=shutil.ignore_patterns("lock", "jobs", "attempts", "gates"))
    config = tomllib.loads((folder / "harness.toml").read_text())
    config["director"]["data_dir"] = str(copy)
    (folder / "copy.toml").write_text(tomli_w.dumps(config))
    return folder / "copy.toml"


def test_a_director_that_is_stopped_dead_keeps_its_data_folder(two: Two) -> None:
    assert two.robber.code == 4
    assert "another director holds" in two.robber.told


def test_a_director_that_was_overtaken_ends_with_its_own_code_when_it_wakes_up(two: Two) -> None:
    assert two.other.code == 0, two.other.told[-4000:]
    assert two.first == 4, two.told[-4000:]
    assert "another director took this repository" in two.told and "Traceback" not in two.told
    keys = [body.split("key=", 1)[1].split()[0] for body in two.comments]
    assert keys and len(keys) == len(set(keys)), keys


def test_a_second_signal_ends_it_at_once_and_no_worker(two: Two) -> None:
    assert two.impatient in (128 + signal.SIGTERM, 128 + signal.SIGINT)
    assert two.workers and two.alive == two.workers
