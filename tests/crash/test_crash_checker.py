"""What compares worlds sees what is there twice and what is gone, in the data of a real forge.

The one rule: nothing is told to the checker; the world is changed as a crash might have, and looked at again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from crash_case import make_seed
from crash_facts import facts
from crash_paths import BOT, BY_NAME, Scene
from crash_sweep import difference
from crash_table import table
from demo_world import bare_of, git

from harness import __version__
from harness.adapters.store.sql import SqlStore
from harness.forge import serve
from harness.loop import SteadyClock

SAID = {"body": "**Released** in v0.1.0."}
ROUTE = BY_NAME["happy"]
PULL = {"title": "Add one.txt", "head": "agent/1", "base": "main"}


@dataclass
class World:
    """A forge with a released issue, and the folder of a director that has ended."""

    folder: Path
    scene: Scene = field(init=False)

    def __post_init__(self) -> None:
        make_seed(self.folder / "forge", ROUTE)
        data = self.folder / "data"
        data.mkdir()
        (data / "lock").touch()
        SqlStore.open(data / "store.db", clock=SteadyClock(), code=__version__).close()

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return self.scene.call(method, path, body, token=BOT)

    def release(self) -> None:
        head = git(bare_of(self.folder), "rev-parse", "refs/heads/main")
        self.call("POST", "/git/refs", {"ref": "refs/heads/agent/1", "sha": head})
        self.call("POST", "/issues/1/comments", SAID)
        self.call("POST", "/git/refs", {"ref": "refs/tags/v0.1.0", "sha": head})
        self.call("POST", "/releases", {"tag_name": "v0.1.0", "name": "Release 0.1.0"})

    def facts(self) -> Counter[str]:
        return facts(self.folder, "process")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    forge = serve(tmp_path / "forge")
    try:
        made.scene = Scene(forge.url, tmp_path)
        made.release()
        yield made
    finally:
        forge.close()


def test_a_world_does_not_differ_from_itself(world: World) -> None:
    calm = world.facts()
    assert calm["comment at issue 1 by harness-bot: **Released** in v0.1.0."] == 1
    assert calm["ref refs/tags/v0.1.0"] == 1
    assert difference(calm, world.facts()) == ([], [])


def test_a_comment_that_is_there_twice_is_a_duplicate(world: World) -> None:
    calm = world.facts()
    world.call("POST", "/issues/1/comments", SAID)
    assert difference(calm, world.facts()) == (
        ["comment at issue 1 by harness-bot: **Released** in v0.1.0."],
        [],
    )


def test_a_tag_that_is_gone_is_a_loss(world: World) -> None:
    calm = world.facts()
    git(bare_of(world.folder), "update-ref", "-d", "refs/tags/v0.1.0")
    duplicates, losses = difference(calm, world.facts())
    assert duplicates == []
    assert "ref refs/tags/v0.1.0" in losses
    assert [x for x in losses if x.startswith("refs/tags/v0.1.0 holds ")]


def test_a_tag_on_something_else_differs(world: World) -> None:
    """A tag that was moved is there, and holds what it must not."""
    calm = world.facts()
    bare = bare_of(world.folder)
    empty = git(bare, "hash-object", "-t", "tree", "-w", "/dev/null")
    other = git(bare, "-c", "user.name=x", "-c", "user.email=x@x", "commit-tree", "-m", "other", empty)
    git(bare, "update-ref", "refs/tags/v0.1.0", other)
    duplicates, losses = difference(calm, world.facts())
    assert f"refs/tags/v0.1.0 holds {empty}" in duplicates
    assert "main is at refs/tags/v0.1.0" in losses


def test_a_label_an_event_and_a_ref_count_as_well(world: World) -> None:
    calm = world.facts()
    world.call("POST", "/issues/1/labels", {"labels": ["harness:working"]})
    git(bare_of(world.folder), "update-ref", "-d", "refs/heads/agent/1")
    duplicates, losses = difference(calm, world.facts())
    assert "event at issue 1 by harness-bot: labeled harness:working" in duplicates
    assert "ref refs/heads/agent/1" in losses
    assert [x for x in duplicates if "labels ['harness', 'harness:working']" in x]


def test_what_a_director_left_behind_is_one_too_many(world: World) -> None:
    calm = world.facts()
    (world.folder / "data" / "jobs" / "w-1.1-1").mkdir(parents=True)
    (world.folder / "data" / "attempts" / "1.1").mkdir(parents=True)
    assert difference(calm, world.facts()) == (
        ["left over: attempts/1.1", "left over: jobs/w-1.1-1"],
        [],
    )


def test_differences_are_counted_once_for_each_time() -> None:
    calm = {"comment by bot: done": 1, "ref refs/heads/main": 1}
    assert difference(calm, dict(calm)) == ([], [])
    assert difference(calm, {**calm, "comment by bot: done": 3}) == (["comment by bot: done"] * 2, [])
    assert difference(calm, {"ref refs/heads/main": 1}) == ([], ["comment by bot: done"])


def test_a_difference_and_a_run_without_an_end_are_in_the_table() -> None:
    here = "after Comment of ticket 1 LANDED Comment"
    run = {
        "route": "happy", "who": "director", "runtime": "process", "mode": "cover 1", "kills": [here],
        "lives": [[here], ["before Tag of release 0.1.0 TAGGING Tag"]], "duplicates": ["comment x"],
        "losses": ["tag y", "tag z"], "trouble": "no end within 1 s:\nmore", "cpu_s": 1.0, "facts": {},
    }  # fmt: skip
    calm = {
        **run,
        "mode": "calm",
        "kills": [],
        "lives": [[here]],
        "duplicates": [],
        "losses": [],
        "trouble": "",
    }
    made = table(json.loads(json.dumps([calm, run])))
    assert "| happy | one issue, released | 1 | 1 | 1 | 0 | 1 | 1 | 1 | 1 | 2 | 1 |" in made
    assert "* happy, cover 1: one too many: comment x" in made
    assert "* happy, cover 1: one too few: tag y" in made
    assert "* happy, cover 1: no end: no end within 1 s:" in made
    assert "* before Tag of release N TAGGING Tag: happy" in made
    assert "| Comment | 0 | 1 |" in made
