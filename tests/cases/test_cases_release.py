"""Releases that people took into their own hands: merged while nobody looked, tagged before, made by halves.

The one rule: a director runs until it waits for a person, the person acts over HTTP, and the next one goes on.
"""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from demo_world import Finished, Stage, bare_of, git, left_over
from director_world import PERSON, World

from harness.demo.run import REPO


def call(world: World, method: str, path: str, body: Any = None) -> Any:
    request = urllib.request.Request(
        f"{world.forge.url}/repos/{REPO}{path}", method=method,
        data=None if body is None else json.dumps(body).encode(), headers={"Authorization": f"Bearer {PERSON}"},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=10) as reply:
        raw = reply.read()
    return json.loads(raw) if raw else None


def refs(world: World) -> dict[str, str]:
    lines = git(bare_of(world.folder), "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return dict(line.split(" ") for line in lines)  # type: ignore[arg-type]


@dataclass
class Story:
    world: World
    runs: list[Finished] = field(default_factory=list)
    merged: dict[str, str] = field(default_factory=dict)
    foreign: str = ""
    states: list[dict[str, Any]] = field(default_factory=list)

    def run(self) -> None:
        self.runs.append(self.world.run("director", "--until-idle", "--json"))
        self.states.append({"refs": refs(self.world), "repo": self.world.repo()})

    def merge(self, version: str) -> None:
        """As a person does on the release's own pull."""
        (pull,) = [p for p in self.world.repo()["pulls"] if p["head_ref"] == f"release/{version}"]
        self.merged[version] = call(self.world, "PUT", f"/pulls/{pull['number']}/merge", {})["sha"]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("releases")
    stage = Stage(folder)
    config = {
        "agent": {"kind": "command", "command": ["sh", "-c", "echo x >f$$HARNESS_ISSUE.txt"]},
        "validation": {"commands": ["true"]},
        "release": {"merge": "person"},
    }
    with World(stage, folder / "world", "process", ["First"], config=config) as world:
        made = Story(world)
        made.run()  # 0: waits for a person
        made.merge("0.1.0")
        made.run()  # 1: finds the merge
        made.run()  # 2: nothing is left to do
        call(world, "POST", "/issues", {"title": "Second", "body": "Please.", "labels": ["harness"]})
        made.run()  # 3: the next release waits
        made.foreign = git(bare_of(world.folder), "rev-list", "--max-parents=0", "main")
        call(world, "POST", "/git/refs", {"ref": "refs/tags/v0.2.0", "sha": made.foreign})
        made.merge("0.2.0")
        made.run()  # 4: that tag is somebody else's
        made.run()  # 5: and stays so
        yield made
    stage.close()


def test_no_run_fails_and_none_says_more_than_it_must(story: Story) -> None:
    for run in story.runs:
        assert run.code == 0, run.told[-3000:]
        assert "Traceback" not in run.told
    assert left_over(story.world.folder, "process") == []


def test_before_a_person_merged_there_is_no_tag(story: Story) -> None:
    assert not [r for r in story.states[0]["refs"] if r.startswith("refs/tags/")]
    assert story.states[0]["repo"]["releases"] == []


def test_a_merge_that_nobody_saw_is_tagged_where_it_was_made_and_published(story: Story) -> None:
    after = story.states[1]
    assert git(bare_of(story.world.folder), "rev-parse", "v0.1.0^{commit}") == story.merged["0.1.0"]
    assert [r["tag_name"] for r in after["repo"]["releases"]] == ["v0.1.0"]
    (issue,) = [i for i in after["repo"]["issues"] if i["number"] == 1]
    assert issue["state"] == "closed"


def test_a_finished_release_is_left_alone(story: Story) -> None:
    before, after = story.states[1], story.states[2]
    ours = [r for r in after["refs"] if not r.startswith("refs/harness/")]
    assert {r: after["refs"][r] for r in ours} == {r: before["refs"][r] for r in ours}
    for what in ("releases", "comments", "pulls"):
        assert len(after["repo"][what]) == len(before["repo"][what]), what


def test_the_next_release_is_not_held_up(story: Story) -> None:
    heads = [p["head_ref"] for p in story.states[3]["repo"]["pulls"]]
    assert "release/0.2.0" in heads and heads.count("agent/1") == 1


def test_a_tag_of_somebody_else_is_never_moved_and_a_person_is_asked_once(story: Story) -> None:
    for state in story.states[4:]:
        assert state["refs"]["refs/tags/v0.2.0"] == story.foreign
        assert [r["tag_name"] for r in state["repo"]["releases"]] == ["v0.1.0"]
    assert len(story.states[5]["repo"]["comments"]) == len(story.states[4]["repo"]["comments"])
    told = [(c["issue"], c["body"]) for c in story.states[5]["repo"]["comments"]]
    texts = [t for _, t in told]
    assert [t for t in texts if "v0.2.0" in t and "tag" in t.lower()], "nobody was told"
    keys = Counter((n, t.split("key=")[1].split()[0]) for n, t in told if "key=" in t)
    assert set(keys.values()) == {1}, keys
