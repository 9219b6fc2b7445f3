"""Repositories that cannot be worked on, or not as they are: found before anything is begun, said in one line.

The one rule: a refusal costs nothing: no claim, no ref of ours, no agent; and it says what a person must do.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from demo_world import bare_of, git
from git_stage import Place, branches, commit, configuration, refs, world

from harness.compose import director
from harness.compose.errors import StartError
from harness.compose.fitness import prefixes
from harness.config.reader import parse
from harness.core.result import Err, Ok
from harness.failures import Failure

LFS = "*.bin filter=lfs diff=lfs merge=lfs -text\n"


def refusal(made: Any) -> str:
    """Why a director does not start there. Nothing of ours is at the forge afterwards."""
    before = refs(made)
    with pytest.raises(StartError) as caught:
        director.start(configuration(made)).close()
    assert caught.value.code == 2, "an exit code that a service manager does not restart on"
    assert refs(made) == before
    assert made.comments(1) == [] and made.issue(1)["labels"] == ["harness"]
    text = str(caught.value)
    assert "\n" not in text and text.startswith("acme/tally: ")
    return text.removeprefix("acme/tally: ")


def empty(bare: Path) -> None:
    git(bare, "update-ref", "-d", "refs/heads/main")


def test_a_repository_without_commits(tmp_path: Path) -> None:
    with world(tmp_path, change=empty) as made:
        assert refusal(made) == "REPO_EMPTY: the repository has no commits: push a first one"
        ended = made.run("director", "--until-idle")
        assert (ended.code, ended.out) == (2, "")
        assert ended.told == (
            "harness director: acme/tally: REPO_EMPTY: the repository has no commits: push a first one\n"
        )
        told = made.run("doctor")
        assert "the repository is empty" in told.out and "Traceback" not in told.told
        # As soon as there is something, the same command begins to work.
        commit(bare_of(made.folder), "main", {"README.md": b"# Tally\n"})
        director.start(configuration(made)).close()


def test_a_default_branch_that_is_not_there(tmp_path: Path) -> None:
    with world(tmp_path, change=lambda bare: git(bare, "branch", "-m", "main", "trunk")) as made:
        line = refusal(made)
        assert line.startswith("BASE_UNKNOWN: the default branch 'main' is not there: ")
        assert "'main'" in line and "release.branch" not in line


IN_THE_WAY = (
    ("agent", "agent"),
    ("release", "release"),
    ("bots", "bots/coding"),
    ("bots/coding", "bots/coding"),
    ("a/b", "a/b/c/d"),
)


@pytest.mark.parametrize(("branch", "prefix"), IN_THE_WAY)
def test_a_branch_named_like_the_folder_of_ours(branch: str, prefix: str, tmp_path: Path) -> None:
    place = Place(tmp_path, {"README.md": "x\n"})
    place.origin.set(f"refs/heads/{branch}", place.tip)
    told = place.repo.preflight("main", prefix)
    assert isinstance(told, Err) and told.failure == Failure.CONFIG_INVALID
    assert told.detail == (
        f"PREFIX_CONFLICT: branch '{branch}' is there, so git can have no branches {prefix}/…: "
        "rename it, or set forge.branch_prefix or release.branch"
    )


BESIDE = (
    "harness",
    "agents",
    "agent-old",
    "Agent",
    "feature/agent",
    "agent/12",
    "HEAD",
    "refs/heads/agent",
    "žába",
)


@pytest.mark.parametrize("branch", BESIDE)
def test_branches_that_only_look_like_ours_are_in_nobodys_way(branch: str, tmp_path: Path) -> None:
    place = Place(tmp_path, {"README.md": "x\n"})
    place.origin.set(f"refs/heads/{branch}", place.tip)
    assert place.repo.preflight("main", "agent") == Ok(None)
    assert isinstance(place.repo.fetch(), Ok)


PATTERNS = (
    ("release/{version}", ("agent", "release")),
    ("ship/it/v{version}", ("agent", "ship/it")),
    ("v{version}", ("agent",)),
    ("release-{version}", ("agent",)),
    ("agent/r{version}", ("agent",)),
)


@pytest.mark.parametrize(("pattern", "expected"), PATTERNS)
def test_the_folders_of_our_branches(pattern: str, expected: tuple[str, ...]) -> None:
    config = parse(f'[forge]\nrepo = "acme/tally"\n[release]\nbranch = "{pattern}"\n'.encode(), "x")
    assert prefixes(config) == expected


LARGE_FILES: tuple[tuple[str, str, bool], ...] = (
    (".gitattributes", LFS, True),
    (".gitattributes", LFS.replace("\n", "\r\n"), True),
    (".gitattributes", "[attr]large filter=lfs -text\n*.bin large\n", True),
    (".gitattributes", "c#.bin\tfilter=lfs\n", True),
    ("assets/.gitattributes", LFS, True),
    (".gitattributes", f"# {LFS}", False),
    (".gitattributes", f"  # {LFS}", False),
    (".gitattributes", "*.bin -filter\n*.txt filter=lfsx\n", False),
    ("docs/gitattributes.txt", LFS, False),
)


@pytest.mark.parametrize(("name", "text", "wanted"), LARGE_FILES)
def test_large_file_storage_without_its_program(
    name: str, text: str, wanted: bool, tmp_path: Path, without_lfs: None
) -> None:
    place = Place(tmp_path, {name: text, "big.bin": "version https://git-lfs.github.com/spec/v1\n"})
    told = place.repo.preflight("main")
    if not wanted:
        assert told == Ok(None)
        return
    line = f"LFS_MISSING: {name} asks for Git LFS: install git-lfs, then try again"
    assert told == Err(Failure.CONFIG_INVALID, line)
    assert not list(place.data.rglob("*.bin")), "nothing is checked out half"


@pytest.fixture
def without_lfs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A PATH with everything that this machine has but git-lfs."""
    if shutil.which("git-lfs") is None:
        return
    folder = tmp_path / "bin"
    folder.mkdir()
    for part in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(part).glob("*") if Path(part).is_dir() else ():
            link = folder / program.name
            link.unlink(missing_ok=True)
            link.symlink_to(program)
    (folder / "git-lfs").unlink()
    monkeypatch.setenv("PATH", str(folder))


def test_the_doctor_names_the_same_before_a_director_does(tmp_path: Path, without_lfs: None) -> None:
    def change(bare: Path) -> None:
        git(bare, "branch", "release", "main")

    with world(tmp_path, change=change, files={".gitattributes": LFS}) as made:
        told = made.run("doctor")
        assert told.code == 1
        lines = [" ".join(x.split()) for x in told.out.splitlines()]
        assert "problem branches branch release is there, so git can have no branches release/…" in lines
        assert "problem lfs .gitattributes asks for Git LFS" in lines
        assert "install git-lfs on this machine" in lines
        assert refusal(made).startswith("LFS_MISSING: ")
        commit(bare_of(made.folder), "main", {".gitattributes": b"* text=auto\n"}, branches(made)["main"])
        assert refusal(made).startswith("PREFIX_CONFLICT: branch 'release' is there")
