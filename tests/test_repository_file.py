"""The repository's own file: read in git's pool before anybody hears of the commit, taken by the loop."""

from __future__ import annotations

from pathlib import Path

import git_world as world
import pytest

from harness.adapters.git import GitRepo
from harness.compose.force import NAME, InForce
from harness.config import parse
from harness.core.result import Err, Ok
from harness.loop import SteadyClock

MAIN = "refs/heads/main"


def file(command: str) -> dict[str, str]:
    return {NAME: f'[validation]\ncommands = ["{command}"]\n'}


class Place:
    def __init__(self, root: Path) -> None:
        self.origin = world.Origin(root / "forge")
        self.first = self.origin.push(MAIN, file("make first"))
        self.repo = GitRepo(
            root / "data",
            remote=self.origin.url,
            token=None,
            author=("H", "h@acme.example"),
            clock=SteadyClock(),
        )
        assert self.repo.prepare() == Ok(None)
        self.force = InForce(parse(b"", "harness.toml"), {})

    def look(self, tip: str) -> Ok[None] | Err:
        found = self.force.look(self.repo, "main", tip)
        assert isinstance(found, Ok | Err)
        return found


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_it_is_read_at_the_tip_and_in_force_once_the_loop_took_it(place: Place) -> None:
    before = place.force.policy.commands
    assert place.look(place.first) == Ok(None)  # the commit was not in the mirror yet
    assert place.force.policy.commands == before
    place.force.take()
    assert place.force.policy.commands == ("make first",)
    second = place.origin.push(MAIN, file("make second"))
    assert place.look(second) == Ok(None)
    place.force.take()
    assert place.force.policy.commands == ("make second",)


def test_a_broken_one_keeps_the_last_good_one_and_is_named_once(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.look(place.first)
    place.force.take()
    broken = place.origin.push(MAIN, {NAME: "[validation\n"})
    for _ in range(3):
        assert place.look(broken) == Ok(None)
        place.force.take()
    assert place.force.policy.commands == ("make first",)
    told = capsys.readouterr().err
    assert told.count("the last good one stays in force") == 1 and broken[:12] in told


def test_nobody_hears_of_a_tip_whose_file_could_not_be_read(place: Place) -> None:
    assert isinstance(place.look("0" * 39 + "1"), Err)
    place.force.take()
    assert place.force.tip == ""
