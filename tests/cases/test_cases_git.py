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
from git_stage import AS_SOMEBODY, Place, branches, commit, configuration, deliver, refs, world
from git_world import Origin, text

from harness.compose import director
from harness.compose.errors import StartError
from harness.compose.fitness import prefixes
from harness.config.reader import parse
from harness.core.result import Err, Ok
from harness.failures import Failure

MODULES = '[submodule "lib"]\n\tpath = vendor/lib\n\turl = {}\n'
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


# ---------------------------------------------------------------- the way to the forge and back


def test_a_rule_of_the_forge_that_talks_for_ever_is_one_bounded_line(tmp_path: Path) -> None:
    place = Place(tmp_path, {"README.md": "x\n"})
    noise = "i=0; while [ $i -lt 5000 ]; do echo problem $i; i=$((i+1)); done"
    place.origin.hook(
        "pre-receive", f"{{ {noise}; echo 'lint: 2 problems'; printf '\\377\\n'; }} >&2; exit 1"
    )
    told = place.repo.push("refs/heads/agent/12", place.tip, "")
    assert isinstance(told, Err) and told.failure == Failure.POLICY_VIOLATION
    assert told.detail.startswith(
        "pushing refs/heads/agent/12: the forge refused it: (pre-receive hook declined)"
    )
    assert "lint: 2 problems" in told.detail and len(told.detail) < 1000 and "\n" not in told.detail
    assert place.origin.ref("refs/heads/agent/12") == ""


def test_a_retry_replaces_what_an_earlier_attempt_pushed_and_nothing_else(tmp_path: Path) -> None:
    """From a mirror that has never seen the branch: the lease is pinned to what is there now."""
    place = Place(tmp_path, {"README.md": "x\n"})
    earlier = place.origin.push("refs/heads/agent/12", {"a.txt": "first try\n"}, start=place.tip)
    other = Place.__new__(Place)
    other.root, other.data, other.origin, other.tip = tmp_path, tmp_path / "other", place.origin, place.tip
    other.repo = other.open()
    assert isinstance(other.repo.fetch(("refs/heads/main",)), Ok)
    for lease in ("", place.tip):
        told = other.repo.push("refs/heads/agent/12", place.tip, lease)
        assert isinstance(told, Err) and told.failure == Failure.CONFLICT
    assert other.repo.push("refs/heads/agent/12", place.tip, earlier) == Ok(place.tip)
    assert place.origin.ref("refs/heads/agent/12") == place.tip


GONE = ("clone", "clone and owner", "owner", "git folder", "index", "half")


@pytest.mark.parametrize("what", GONE)
def test_a_clone_that_went_away_by_hand_is_made_anew(what: str, tmp_path: Path) -> None:
    """Whatever somebody removed: asking again either makes it whole or says what to do."""
    place = Place(tmp_path, {"README.md": "x\n", "src/app.py": "1\n"})
    folder = place.data / "attempts" / "12.1" / "clone"
    ask = lambda: place.repo.clone(folder, place.tip, "agent/12", "main")  # noqa: E731
    assert ask() == Ok(None)
    owner = next(p for p in folder.parent.glob("*.json"))
    if what in ("clone", "clone and owner"):
        shutil.rmtree(folder)
    if what in ("owner", "clone and owner"):
        owner.unlink()
    if what == "git folder":
        shutil.rmtree(folder / ".git")
    if what == "index":
        (folder / ".git" / "index").unlink()
    if what == "half":
        owner.write_text(owner.read_text().replace("true", "false"))
        (folder / "src" / "app.py").unlink()
    told = ask()
    if what == "owner":
        assert isinstance(told, Err) and "in the way and not ours" in told.detail
        return
    assert told == Ok(None)
    if what not in ("git folder", "index"):  # what a worker may have done is left to be judged as its work
        assert (folder / "src" / "app.py").read_text() == "1\n"
        assert (folder / ".git" / "HEAD").read_text() == "ref: refs/heads/agent/12\n"
    assert place.repo.discard(folder) == Ok(None) and not folder.exists()


def test_a_clone_of_another_branch_is_never_worked_in(tmp_path: Path) -> None:
    place = Place(tmp_path, {"README.md": "x\n"})
    folder = place.data / "clone"
    assert place.repo.clone(folder, place.tip, "agent/12-old", "main") == Ok(None)
    (folder / "left.txt").write_text("left\n")
    told = place.repo.clone(folder, place.tip, "agent/12", "main")
    assert isinstance(told, Err) and told.failure == Failure.CONFLICT
    assert "holds agent/12-old at" in told.detail and told.detail.endswith("discard it first")
    assert (folder / "left.txt").read_text() == "left\n", "nothing is thrown away unasked"


SUBMODULES = ("plain", "edited inside", "committed inside", "moved", "removed", "emptied")


@pytest.mark.parametrize("what", SUBMODULES)
def test_submodules_are_there_and_go_away_with_the_clone(what: str, tmp_path: Path) -> None:
    library = Origin(tmp_path / "forge", "library")
    pinned = library.push("refs/heads/main", {"lib.txt": "lib\n"})
    place = Place(tmp_path, {"README.md": "x\n", ".gitmodules": MODULES.format(library.url)})
    person = place.origin.person
    text("update-index", "--add", "--cacheinfo", f"160000,{pinned},vendor/lib", cwd=person)
    text("commit", "-q", "-m", "submodule", cwd=person)
    place.tip = text("rev-parse", "HEAD", cwd=person)
    text("push", "-q", str(place.origin.path), "HEAD:refs/heads/main", cwd=person)
    assert isinstance(place.repo.fetch(), Ok)
    inside = f"cd vendor/lib; {AS_SOMEBODY}"
    scripts = {
        "plain": "echo x >new.txt",
        "edited inside": "echo x >new.txt; echo more >>vendor/lib/lib.txt",
        "committed inside": f"echo x >new.txt; {inside} commit -q --allow-empty -m x",
        "moved": "echo x >new.txt; mv vendor/lib vendor/elsewhere",
        "removed": "echo x >new.txt; rm -rf vendor/lib",
        "emptied": "echo x >new.txt; rm -f vendor/lib/* vendor/lib/.git",
    }
    made = deliver(tmp_path, f'test "$(cat vendor/lib/lib.txt)" = lib; {scripts[what]}', place=place)
    if what in ("plain", "edited inside", "emptied"):
        assert made.refused == ""
        assert [f.path for f in made.imported.unwrap().files] == ["new.txt"]  # type: ignore[union-attr]
    elif what == "committed inside":
        assert "is a submodule, or a repository inside the repository" in made.refused
    assert "\n\n" not in made.refused and "Traceback" not in made.refused
    assert place.repo.discard(made.folder) == Ok(None) and not made.folder.exists()
