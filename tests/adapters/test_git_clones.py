"""Clones for attempts and trees for gates: what is in them, how many at once, and how they go away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import git_world as world

from harness.adapters.git import GitRepo
from harness.core.result import Err, Ok, Result
from harness.failures import Failure

MAIN = "refs/heads/main"


class FixedClock:
    def now(self) -> float:
        return 1_700_000_000.0

    def monotonic(self) -> float:
        return 0.0


class Place:
    def __init__(self, root: Path, files: world.Files, branch: str = "main") -> None:
        self.root = root
        self.data = root / "data"
        self.origin = world.Origin(root / "forge")
        self.tip = self.origin.push(f"refs/heads/{branch}", files)
        self.repo = self.open()
        assert isinstance(self.repo.fetch(), Ok)

    def open(self, **more: object) -> GitRepo:
        made = GitRepo(
            self.data,
            remote=self.origin.url,
            token=None,
            author=('Har"ness \\o/', "harness@acme.example"),
            clock=FixedClock(),
            **more,  # type: ignore[arg-type]
        )
        assert made.prepare() == Ok(None)
        return made

    def folder(self, name: str) -> Path:
        return self.data / "clones" / name


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, {"README.md": "widget\n", "src/app.py": "one\n"})


def failed(result: Result[object], failure: Failure, *words: str) -> Err:
    assert isinstance(result, Err) and result.failure == failure, result
    assert all(word in result.detail for word in words), result
    return result


# ---------------------------------------------------------------- what a clone is


def test_a_clone_is_a_plain_repository_without_a_way_out(place: Place) -> None:
    folder = place.folder("12.1")
    assert place.repo.clone(folder, place.tip, "agent/12", "main") == Ok(None)
    assert world.text("status", "--porcelain=v2", "--branch", cwd=folder).splitlines()[:2] == [
        f"# branch.oid {place.tip}",
        "# branch.head agent/12",
    ]
    assert world.text("status", "--porcelain", cwd=folder) == ""
    assert world.text("rev-parse", "origin/main", cwd=folder) == place.tip
    assert world.text("config", "user.name", cwd=folder) == 'Har"ness \\o/'
    assert not list((folder / ".git").glob("hooks*"))
    assert str(place.origin.path) not in (folder / ".git/config").read_text()
    assert subprocess.run(["git", "fetch"], cwd=folder, env=world.CLEAN, capture_output=True).returncode != 0
    world.git("fsck", "--full", cwd=folder)
    assert not any((folder / ".git/objects/pack").iterdir()), "objects are borrowed"
    owner = json.loads(folder.with_name("12.1.owner.json").read_text())
    assert (owner["attempt"], owner["branch"], owner["complete"]) == ("12.1", "agent/12", True)


def test_leftovers_of_tools_do_not_show_up(place: Place) -> None:
    folder = place.folder("12.1")
    place.repo.clone(folder, place.tip, "agent/12", "main")
    world.write(folder, {".aider.chat.md": "", "src/__pycache__/x.pyc": "", ".harness-run/1/log": ""})
    assert world.text("status", "--porcelain", cwd=folder) == ""


def test_the_base_is_the_branch_that_was_named_and_as_fetched(tmp_path: Path) -> None:
    """No branch is called main here, the forge's HEAD points elsewhere, and another branch moved since."""
    place = Place(tmp_path, {"a": "1"}, branch="trunk")
    frozen = place.tip
    release = place.origin.push("refs/heads/release/1.x", {"b": "2"}, start=frozen)
    assert isinstance(place.repo.fetch(), Ok)
    newer = place.origin.push("refs/heads/release/1.x", {"c": "3"})
    folder = place.folder("1.1")
    assert place.repo.clone(folder, release, "agent/1", "release/1.x") == Ok(None)
    assert world.text("rev-parse", "origin/release/1.x", cwd=folder) == release
    assert isinstance(place.repo.fetch(), Ok)
    again = place.folder("1.2")
    assert place.repo.clone(again, newer, "agent/1", "release/1.x") == Ok(None)
    assert world.text("rev-parse", "HEAD", cwd=again) == place.origin.ref("refs/heads/release/1.x")
    assert "main" not in world.text("for-each-ref", cwd=again)


def test_a_rewritten_base_is_noticed(place: Place) -> None:
    recorded = place.tip
    place.origin.push(MAIN, {"a": "1"})
    other = place.origin.push("refs/heads/other", {"z": "9"}, start="")
    place.origin.set(MAIN, other)
    assert isinstance(place.repo.fetch(), Ok)
    assert place.repo.is_ancestor(recorded, other) == Ok(False)
    assert isinstance(place.repo.tree(recorded), Ok), "the old one is still there to compare with"


def test_objects_may_be_seen_elsewhere_by_the_container(place: Place) -> None:
    elsewhere = place.root / "container/objects"
    elsewhere.parent.mkdir()
    elsewhere.symlink_to(place.data / "git/mirror.git/objects")
    repo = place.open(borrow_as=str(elsewhere))
    folder = place.folder("12.1")
    assert repo.clone(folder, place.tip, "agent/12", "main") == Ok(None)
    assert (folder / ".git/objects/info/alternates").read_text() == f"{elsewhere}\n"
    assert world.text("status", "--porcelain", cwd=folder) == ""


def test_a_gate_needs_nothing_but_its_folder(place: Place) -> None:
    folder = place.folder("gate")
    assert place.repo.checkout(folder, place.tip) == Ok(None)
    (place.data / "git").rename(place.data / "away")
    assert world.text("status", "--porcelain", cwd=folder) == ""
    assert world.text("rev-parse", "HEAD", cwd=folder) == place.tip
    assert world.text("log", "--format=%s", cwd=folder) == "person"
    assert not (folder / ".git/objects/info/alternates").exists()


def test_what_is_there_stays_as_the_worker_left_it(place: Place) -> None:
    folder = place.folder("12.1")
    place.repo.clone(folder, place.tip, "agent/12", "main")
    mine = world.commit(folder, {"src/app.py": "two\n"})
    world.write(folder, {"more.txt": "dirty"})
    assert place.repo.clone(folder, place.tip, "agent/12", "main") == Ok(None)
    assert world.text("rev-parse", "HEAD", cwd=folder) == mine
    assert world.text("status", "--porcelain", cwd=folder) == "?? more.txt"


def test_half_a_clone_is_made_anew(place: Place) -> None:
    folder = place.folder("12.1")
    place.repo.clone(folder, place.tip, "agent/12", "main")
    owner = folder.with_name("12.1.owner.json")
    for text in (owner.read_text().replace('"complete": true', '"complete": false'), "", '{"attempt": "12'):
        owner.write_text(text)
        (folder / "README.md").unlink()
        world.write(folder, {"half.txt": "x"})
        assert place.repo.clone(folder, place.tip, "agent/12", "main") == Ok(None)
        assert world.text("status", "--porcelain", cwd=folder) == ""
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    folder.rmdir()
    assert place.repo.clone(folder, place.tip, "agent/12", "main") == Ok(None), "the folder was gone"


def test_a_folder_of_somebody_else_is_left_alone(place: Place) -> None:
    folder = place.folder("12.1")
    world.write(folder, {"theirs.txt": "x"})
    failed(place.repo.clone(folder, place.tip, "agent/12", "main"), Failure.INFRA_KILLED, "not ours")
    failed(place.repo.checkout(folder, place.tip), Failure.INFRA_KILLED, "not ours")
    failed(place.repo.discard(folder), Failure.INFRA_KILLED, "not ours")
    assert (folder / "theirs.txt").exists()


def test_a_stale_lock_in_a_clone_is_removed_once(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    folder = place.folder("12.1")
    place.repo.clone(folder, place.tip, "agent/12", "main")
    lock = folder / ".git/index.lock"
    lock.touch()
    assert place.repo.clone(folder, place.tip, "agent/12", "main") == Ok(None)
    assert lock.exists(), "a young lock may be somebody's"
    old = time.time() - 600
    os.utime(lock, (old, old))
    assert place.repo.clone(folder, place.tip, "agent/12", "main") == Ok(None)
    assert not lock.exists()
    assert [r.getMessage() for r in caplog.records] == [f"removed the stale lock {lock}, 600 s old"]
    world.commit(folder, {"a": "1"})


def test_many_clones_at_once(place: Place) -> None:
    place.origin.push(MAIN, {f"d{n % 7}/f{n}": f"{n}\n" * 50 for n in range(200)})
    refs = place.repo.fetch()
    assert isinstance(refs, Ok)
    tip = refs.value[MAIN]

    def one(n: int) -> Result[object]:
        if n % 8 == 7:
            place.origin.set(f"refs/heads/noise-{n}", tip)
            return place.repo.fetch()
        if n % 8 == 6:
            return place.repo.keep(f"refs/harness/noise/{n}", tip)
        return place.repo.clone(place.folder(f"{n}.1"), tip, f"agent/{n}", "main")

    began = time.monotonic()
    with ThreadPoolExecutor(32) as pool:
        results = list(pool.map(one, range(43)))
    assert all(isinstance(r, Ok) for r in results), [r for r in results if not isinstance(r, Ok)]
    assert time.monotonic() - began < 60
    folders = [p for p in (place.data / "clones").iterdir() if p.is_dir()]
    assert len(folders) == 33
    for folder in folders[::8]:
        assert world.text("status", "--porcelain", cwd=folder) == ""


# ---------------------------------------------------------------- going away


def test_whatever_was_left_goes_away(place: Place) -> None:
    folder = place.folder("12.1")
    place.repo.clone(folder, place.tip, "agent/12", "main")
    deep = folder / "deep"
    deep.mkdir()
    here = os.open(deep, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("x" * 100, dir_fd=here)
        there = os.open("x" * 100, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = there
    os.close(here)
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("/")
    world.write(folder, {"closed/inner/file": "x", "open/file": "x"})
    (folder / "closed/inner").chmod(0o000)
    (folder / "closed").chmod(0o555)
    began = time.monotonic()
    assert place.repo.discard(folder) == Ok(None)
    assert time.monotonic() - began < 20
    assert not os.path.lexists(folder)
    assert not folder.with_name("12.1.owner.json").exists()
    assert place.repo.discard(folder) == Ok(None)


def test_read_only_folders_go_away_without_root(place: Place) -> None:
    """As root permissions are no hindrance; a child without that right shows that they are none otherwise."""
    folder = place.folder("12.1")
    script = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from pathlib import Path
from harness.adapters.git.folders import discard, write_owner
if os.geteuid() == 0:
    os.chown({str(folder.parent)!r}, 65534, 65534)
    os.setgid(65534); os.setuid(65534)
folder = Path({str(folder)!r})
write_owner(folder, {{"attempt": "12.1"}})
(folder / "a/b").mkdir(parents=True)
(folder / "a/b/f").write_text("x")
for p, mode in ((folder / "a/b", 0), (folder / "a", 0o500), (folder, 0o500)):
    p.chmod(mode)
discard(folder)
print(os.path.lexists(folder))
"""
    folder.parent.mkdir(parents=True)
    for parent in folder.parents:
        if parent.stat().st_uid == os.geteuid() and parent != Path("/tmp") and len(parent.parts) > 2:
            parent.chmod(0o755)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stderr


# ---------------------------------------------------------------- submodules


def with_submodule(root: Path, url: str = "") -> Place:
    lib = world.Origin(root / "forge", "lib")
    inner = lib.push(MAIN, {"lib.py": "lib\n"})
    place = Place(root, {"README.md": "widget\n"})
    place.origin.person.joinpath(".gitmodules").write_text(
        f'[submodule "lib"]\n\tpath = vendor/lib\n\turl = {url or lib.url}\n'
    )
    world.git("update-index", "--add", "--cacheinfo", f"160000,{inner},vendor/lib", cwd=place.origin.person)
    world.git("add", ".gitmodules", cwd=place.origin.person)
    world.git("commit", "-qm", "submodule", cwd=place.origin.person)
    world.git("push", "-q", str(place.origin.path), f"HEAD:{MAIN}", cwd=place.origin.person)
    place.tip = place.origin.ref(MAIN)
    assert isinstance(place.repo.fetch(), Ok)
    return place


@pytest.mark.parametrize("url", ["", "../lib.git"])
def test_submodules_are_there(tmp_path: Path, url: str) -> None:
    place = with_submodule(tmp_path, url)
    clone, gate = place.folder("1.1"), place.folder("gate")
    assert place.repo.clone(clone, place.tip, "agent/1", "main") == Ok(None)
    assert place.repo.checkout(gate, place.tip) == Ok(None)
    for folder in (clone, gate):
        assert (folder / "vendor/lib/lib.py").read_text() == "lib\n"
        assert world.text("status", "--porcelain", cwd=folder) == ""
        assert " vendor/lib (" in world.text("submodule", "status", cwd=folder)
        assert world.text("status", "--porcelain", cwd=folder / "vendor/lib") == ""
        assert place.repo.discard(folder) == Ok(None)
        assert not folder.exists()


@pytest.mark.parametrize("url", ["https://elsewhere.example/lib.git", "ssh://x.example/lib", "../none.git"])
def test_submodules_that_cannot_be_had_are_told(tmp_path: Path, url: str) -> None:
    place = with_submodule(tmp_path, url)
    failed(
        place.repo.clone(place.folder("1.1"), place.tip, "agent/1", "main"),
        Failure.CONFIG_INVALID,
        "vendor/lib",
        url,
    )


def test_a_submodule_that_a_branch_added_is_not_fetched(tmp_path: Path) -> None:
    place = with_submodule(tmp_path)
    place.origin.set("refs/heads/agent/1", place.tip)
    place.origin.set(MAIN, world.text("rev-parse", f"{place.tip}~1", cwd=place.origin.path))
    assert isinstance(place.repo.fetch(), Ok)
    result = place.repo.clone(place.folder("1.1"), place.tip, "agent/1", "main")
    failed(result, Failure.CONFIG_INVALID, "new in this branch")


# ---------------------------------------------------------------- large files


def test_lfs_without_git_lfs_is_found_before_work_begins(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    place = Place(tmp_path, {"assets/.gitattributes": "# filter=lfs no\n*.bin filter=lfs diff=lfs -text\n"})
    path = os.environ["PATH"]
    failed(
        place.repo.preflight("main"),
        Failure.CONFIG_INVALID,
        "LFS_MISSING",
        "git-lfs",
        "assets/.gitattributes",
    )
    (tools / "git-lfs").write_text("#!/bin/sh\n")
    (tools / "git-lfs").chmod(0o755)
    os.environ["PATH"] = f"{tools}:{path}"
    try:
        assert place.repo.preflight("main") == Ok(None)
    finally:
        os.environ["PATH"] = path
