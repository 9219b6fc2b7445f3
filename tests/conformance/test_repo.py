"""The Repo port, over memory and over real git with a file and an http remote: one suite for all of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import git_world as world

from harness.adapters.git import GitLimits, GitRepo
from harness.adapters.memory.repo import MemoryRemote, MemoryRepo
from harness.core.result import Err, Ok, Result
from harness.failures import Failure
from harness.ports import Repo

MAIN = "refs/heads/main"
FILES = {"README.md": "widget\n", "src/app.py": "one\ntwo\nthree\n", "docs/guide.md": "guide\n"}
LIMITS = GitLimits(max_files=20, max_commits=5, max_file_bytes=10_000)


class FixedClock:
    def now(self) -> float:
        return 1_700_000_000.0

    def monotonic(self) -> float:
        return 0.0


class Rig(Protocol):
    """One repository at a forge, the adapter under test, and people and workers beside it."""

    repo: Repo

    def person(self, ref: str, files: Mapping[str, str | None], start: str = "") -> str: ...
    def remote(self, ref: str) -> str: ...
    def move(self, ref: str, sha: str) -> None: ...
    def refuse(self, word: str) -> None:
        """From now on the forge refuses every push of a ref with `word` in its name."""
        ...

    def worker(self, base: str, steps: Sequence[Mapping[str, str | None]]) -> tuple[Path, str]:
        """A worker's commits on top of `base`, as a bundle."""
        ...

    def folder(self, name: str) -> Path: ...
    def exists(self, folder: Path) -> bool: ...


class GitRig:
    def __init__(self, root: Path, origin: world.Origin, url: str) -> None:
        self.root = root
        self.origin = origin
        self.repo: Repo = GitRepo(
            root / "data",
            remote=url,
            token=lambda: "secret",
            author=("Harness", "harness@acme.example"),
            clock=FixedClock(),
            limits=LIMITS,
        )
        self._count = 0

    def person(self, ref: str, files: Mapping[str, str | None], start: str = "") -> str:
        return self.origin.push(ref, files, start=start)

    def remote(self, ref: str) -> str:
        return self.origin.ref(ref)

    def move(self, ref: str, sha: str) -> None:
        self.origin.set(ref, sha)

    def refuse(self, word: str) -> None:
        self.origin.hook("update", f'case "$1" in *{word}*) echo "protected: not you" >&2; exit 1;; esac')

    def worker(self, base: str, steps: Sequence[Mapping[str, str | None]]) -> tuple[Path, str]:
        self._count += 1
        folder = self.root / f"worker-{self._count}"
        world.git(
            "clone", "-q", "--no-checkout", str(self.root / "data/git/mirror.git"), str(folder), cwd=self.root
        )
        world.git("fetch", "-q", "origin", base, cwd=folder)
        world.git("checkout", "-q", "-B", "work", base, cwd=folder)
        for number, files in enumerate(steps):
            world.commit(folder, files, f"step {number}")
        path = self.root / f"work-{self._count}.bundle"
        return path, world.bundle(folder, base, path, "refs/heads/work")

    def folder(self, name: str) -> Path:
        return self.root / "data" / "clones" / name

    def exists(self, folder: Path) -> bool:
        return folder.exists()


class MemoryRig:
    def __init__(self) -> None:
        self.origin = MemoryRemote()
        self.repo: Repo = MemoryRepo(self.origin, max_files=20, max_commits=5, max_file_bytes=10_000)
        self._count = 0

    @property
    def _memory(self) -> MemoryRepo:
        assert isinstance(self.repo, MemoryRepo)
        return self.repo

    def person(self, ref: str, files: Mapping[str, str | None], start: str = "") -> str:
        if start:
            self.origin.refs[ref] = start
        return self.origin.write(ref, files, "person")

    def remote(self, ref: str) -> str:
        return self.origin.refs.get(ref, "")

    def move(self, ref: str, sha: str) -> None:
        self.origin.set(ref, sha)

    def refuse(self, word: str) -> None:
        self.origin.rules.append(lambda ref, old, new: "protected: not you" if word in ref else None)

    def worker(self, base: str, steps: Sequence[Mapping[str, str | None]]) -> tuple[Path, str]:
        tip = base
        for number, files in enumerate(steps):
            tip = self._memory.write((tip,), files, f"step {number}")
        self._count += 1
        path = Path(f"/work-{self._count}.bundle")
        self._memory.register_bundle(path, tip)
        return path, tip

    def folder(self, name: str) -> Path:
        return Path("/clones") / name

    def exists(self, folder: Path) -> bool:
        return folder in self._memory.folders


@pytest.fixture(params=["memory", "file", "http"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    if request.param == "memory":
        yield MemoryRig()
        return
    origin = world.Origin(tmp_path / "forge")
    if request.param == "file":
        yield GitRig(tmp_path, origin, origin.url)
        return
    server = world.GitServer(tmp_path / "forge")
    server.plan.passwords = {"secret"}
    try:
        yield GitRig(tmp_path, origin, server.url(origin))
    finally:
        server.close()


@pytest.fixture
def rig(empty: Rig) -> Rig:
    """With a first commit on main, fetched."""
    empty.person(MAIN, FILES)
    good(empty.repo.prepare())
    good(empty.repo.fetch())
    return empty


T = TypeVar("T")


def good(result: Result[T]) -> T:
    assert isinstance(result, Ok), result
    return result.value


def bad(result: Result[object], failure: Failure, *words: str) -> Err:
    assert isinstance(result, Err), result
    assert result.failure == failure, result
    for word in words:
        assert word in result.detail, result
    return result


# ---------------------------------------------------------------- the mirror follows the forge


def test_an_empty_repository_has_no_refs(empty: Rig) -> None:
    good(empty.repo.prepare())
    assert good(empty.repo.fetch()) == {}
    assert good(empty.repo.remote_refs()) == {}


def test_prepare_may_be_called_again(rig: Rig) -> None:
    before = good(rig.repo.fetch())
    good(rig.repo.prepare())
    assert good(rig.repo.fetch()) == before


def test_fetch_follows_moves_and_deletions(rig: Rig) -> None:
    first = rig.remote(MAIN)
    rig.person("refs/heads/topic", {"a": "1"}, start=first)
    rig.move("refs/tags/v1", first)
    assert good(rig.repo.fetch()) == {
        MAIN: first,
        "refs/heads/topic": rig.remote("refs/heads/topic"),
        "refs/tags/v1": first,
    }
    rig.move("refs/heads/topic", "")
    second = rig.person(MAIN, {"b": "2"})
    assert good(rig.repo.fetch()) == {MAIN: second, "refs/tags/v1": first}


def test_fetch_survives_a_branch_that_becomes_a_folder(rig: Rig) -> None:
    main = rig.remote(MAIN)
    rig.move("refs/heads/agent", main)
    good(rig.repo.fetch())
    rig.move("refs/heads/agent", "")
    rig.move("refs/heads/agent/1", main)
    assert "refs/heads/agent/1" in good(rig.repo.fetch())


def test_fetch_of_named_refs_leaves_out_what_is_not_there(rig: Rig) -> None:
    main = rig.remote(MAIN)
    note = good(rig.repo.note_commit("epoch 1"))
    good(rig.repo.push("refs/harness/epoch", note, ""))
    assert good(rig.repo.fetch((MAIN, "refs/heads/none", "refs/harness/epoch"))) == {
        MAIN: main,
        "refs/harness/epoch": note,
    }


def test_a_kept_ref_survives_a_fetch(rig: Rig) -> None:
    path, sha = rig.worker(rig.remote(MAIN), [{"a": "1"}])
    good(rig.repo.import_bundle(path, sha, rig.remote(MAIN)))
    good(rig.repo.keep("refs/harness/saved/1", sha))
    good(rig.repo.fetch())
    assert good(rig.repo.read_file(sha, "a")) == b"1"
    bad(rig.repo.keep(MAIN, sha), Failure.INTERNAL_ERROR, "refs/harness/")


# ---------------------------------------------------------------- reading


def test_files_and_trees_are_read_from_commits(rig: Rig) -> None:
    first = rig.remote(MAIN)
    second = rig.person(MAIN, {"src/app.py": "new\n"})
    third = rig.person(MAIN, {"src/app.py": FILES["src/app.py"]})
    good(rig.repo.fetch())
    assert good(rig.repo.read_file(first, "src/app.py")) == FILES["src/app.py"].encode()
    assert good(rig.repo.read_file(second, "src/app.py")) == b"new\n"
    assert good(rig.repo.read_file(first, "src")) is None
    assert good(rig.repo.read_file(first, "none/at/all")) is None
    assert good(rig.repo.tree(first)) == good(rig.repo.tree(third)) != good(rig.repo.tree(second))
    assert good(rig.repo.is_ancestor(first, third)) and good(rig.repo.is_ancestor(first, first))
    assert not good(rig.repo.is_ancestor(third, first))


def test_a_commit_that_is_not_there_is_an_error_not_an_answer(rig: Rig) -> None:
    main, none = rig.remote(MAIN), "1" * 40
    for result in (rig.repo.tree(none), rig.repo.read_file(none, "a"), rig.repo.is_ancestor(none, main)):
        bad(result, Failure.INTERNAL_ERROR, none)


def test_notes_are_commits_without_files(rig: Rig) -> None:
    one = good(rig.repo.note_commit("epoch 1\n\n#7 is not a comment"))
    two = good(rig.repo.note_commit("epoch 2", one))
    assert good(rig.repo.message(one)) == "epoch 1\n\n#7 is not a comment"
    assert good(rig.repo.message(two)) == "epoch 2"
    assert good(rig.repo.is_ancestor(one, two))
    assert good(rig.repo.tree(one)) == good(rig.repo.tree(two))


# ---------------------------------------------------------------- pushing with a lease


@pytest.mark.parametrize("expect", ["", None])
def test_push_makes_a_new_ref_once(rig: Rig, expect: str | None) -> None:
    main, ref = rig.remote(MAIN), "refs/heads/agent/12"
    assert good(rig.repo.push(ref, main, expect)) == main
    assert rig.remote(ref) == main
    assert good(rig.repo.push(ref, main, expect)) == main


def test_push_moves_only_what_it_expects(rig: Rig) -> None:
    ref, first = "refs/heads/release/1.0", rig.remote(MAIN)
    second = rig.person(MAIN, {"a": "1"})
    good(rig.repo.fetch())
    good(rig.repo.push(ref, first, ""))
    bad(rig.repo.push(ref, second, ""), Failure.CONFLICT, first)
    bad(rig.repo.push(ref, second, None), Failure.CONFLICT, first)
    bad(rig.repo.push(ref, second, second[::-1]), Failure.CONFLICT, first)
    assert rig.remote(ref) == first
    assert good(rig.repo.push(ref, second, first)) == second
    assert good(rig.repo.push(ref, second, first)) == second, "pushing again what is there is fine"
    assert good(rig.repo.push(ref, first, second)) == first, "with the right lease it may go back"


def test_push_after_somebody_else_pushed_is_a_conflict(rig: Rig) -> None:
    ref, first = "refs/heads/release/1.0", rig.remote(MAIN)
    good(rig.repo.push(ref, first, ""))
    theirs = rig.person(ref, {"theirs": "1"})
    path, ours = rig.worker(first, [{"ours": "1"}])
    good(rig.repo.import_bundle(path, ours, first))
    bad(rig.repo.push(ref, ours, first), Failure.CONFLICT, theirs)
    assert rig.remote(ref) == theirs


def test_a_retry_pushes_over_its_own_earlier_attempt(rig: Rig) -> None:
    """The remote branch holds commits of the attempt before, and no tracking ref of it exists here."""
    ref, main = "refs/heads/agent/12", rig.remote(MAIN)
    old = rig.person(ref, {"a": "old"}, start=main)
    path, new = rig.worker(main, [{"a": "new"}])
    good(rig.repo.import_bundle(path, new, main))
    bad(rig.repo.push(ref, new, ""), Failure.CONFLICT, old)
    assert good(rig.repo.push(ref, new, good(rig.repo.remote_refs())[ref])) == new
    assert rig.remote(ref) == new


def test_an_empty_sha_deletes(rig: Rig) -> None:
    main, ref = rig.remote(MAIN), "refs/heads/agent/12"
    good(rig.repo.push(ref, main, ""))
    bad(rig.repo.push(ref, "", main[::-1]), Failure.CONFLICT, main)
    assert good(rig.repo.push(ref, "", main)) == ""
    assert rig.remote(ref) == ""
    assert good(rig.repo.push(ref, "", main)) == "", "gone already"


def test_a_rule_of_the_forge_is_a_policy_violation(rig: Rig) -> None:
    rig.refuse("release")
    bad(rig.repo.push("refs/heads/release/1.0", rig.remote(MAIN), ""), Failure.POLICY_VIOLATION)
    assert rig.remote("refs/heads/release/1.0") == ""


def test_a_branch_named_like_the_prefix_is_told(rig: Rig) -> None:
    main = rig.remote(MAIN)
    rig.move("refs/heads/agent", main)
    bad(rig.repo.push("refs/heads/agent/12", main, ""), Failure.CONFIG_INVALID, "PREFIX_CONFLICT", "agent")


def test_pushing_what_the_mirror_does_not_have_is_our_bug(rig: Rig) -> None:
    bad(rig.repo.push("refs/heads/x", "1" * 40, ""), Failure.INTERNAL_ERROR, "mirror")


# ---------------------------------------------------------------- bundles


def test_a_bundle_is_taken_over_and_described(rig: Rig) -> None:
    main = rig.remote(MAIN)
    steps = [
        {"src/app.py": "one\nTWO\nthree\n", "tmp/x": "1"},
        {"tmp/x": None, "new.txt": "hello", "README.md": None},
    ]
    path, sha = rig.worker(main, steps)
    seen = good(rig.repo.import_bundle(path, sha, main))
    assert (seen.sha, seen.base, seen.commits) == (sha, main, 2)
    assert [(f.path, f.status, f.size) for f in seen.files] == [
        ("README.md", "D", 0), ("new.txt", "A", 5), ("src/app.py", "M", 14)]  # fmt: skip
    assert seen.touched == ("README.md", "new.txt", "src/app.py", "tmp/x"), "also what was taken back again"
    assert good(rig.repo.changes(main, sha)) == seen
    assert good(rig.repo.read_file(sha, "new.txt")) == b"hello"
    assert good(rig.repo.import_bundle(path, sha, main)) == seen, "again is fine"
    assert rig.remote(MAIN) == main


def test_names_of_any_bytes_are_taken_over(rig: Rig) -> None:
    names = ["a b.txt", "line\nbreak.txt", "x\udcff.txt", "špatně.txt"]
    path, sha = rig.worker(rig.remote(MAIN), [dict.fromkeys(names, "x")])
    seen = good(rig.repo.import_bundle(path, sha, rig.remote(MAIN)))
    assert [bytes.fromhex(f.raw_hex) for f in seen.files] == [
        n.encode("utf-8", "surrogateescape") for n in names
    ]
    assert [f.path for f in seen.files] == ["a b.txt", "line\nbreak.txt", "x\ufffd.txt", "špatně.txt"]


def test_no_commits_and_no_changes_are_no_error(rig: Rig) -> None:
    main = rig.remote(MAIN)
    path, sha = rig.worker(main, [{"a": "1"}, {"a": None}])
    assert good(rig.repo.import_bundle(path, main, main)).files == ()
    seen = good(rig.repo.import_bundle(path, sha, main))
    assert (seen.files, seen.touched, seen.commits) == ((), ("a",), 2)
    assert good(rig.repo.tree(sha)) == good(rig.repo.tree(main))


def test_work_that_took_the_base_in_shows_only_its_own_changes(rig: Rig) -> None:
    old = rig.remote(MAIN)
    path, work = rig.worker(old, [{"ours": "1"}])
    good(rig.repo.import_bundle(path, work, old))
    new = rig.person(MAIN, {"theirs": "1"})
    good(rig.repo.fetch())
    merged = good(rig.repo.merge(work, new, "take main in", 1.0))
    seen = good(rig.repo.changes(new, merged.sha))
    assert [f.path for f in seen.files] == ["ours"]
    assert seen.touched == ("ours",)


def test_work_on_another_base_is_a_conflict(rig: Rig) -> None:
    old = rig.remote(MAIN)
    path, sha = rig.worker(old, [{"a": "1"}])
    rewritten = rig.person(MAIN, {"b": "2"})
    good(rig.repo.fetch())
    bad(rig.repo.import_bundle(path, sha, rewritten), Failure.CONFLICT, "detached")
    bad(rig.repo.import_bundle(path, sha, "2" * 40), Failure.CONFIG_INVALID, "BASE_UNKNOWN")


def test_a_bundle_without_the_promised_commit_is_refused(rig: Rig) -> None:
    main = rig.remote(MAIN)
    path, _ = rig.worker(main, [{"a": "1"}])
    bad(rig.repo.import_bundle(path, "3" * 40, main), Failure.POLICY_VIOLATION, "3" * 40)
    bad(rig.repo.import_bundle(path.with_name("none"), "3" * 40, main), Failure.INFRA_KILLED, "no bundle")


def test_limits_of_a_bundle(rig: Rig) -> None:
    main = rig.remote(MAIN)
    many, sha = rig.worker(main, [{f"f{n}": str(n) for n in range(21)}])
    bad(rig.repo.import_bundle(many, sha, main), Failure.POLICY_VIOLATION, "21 files")
    long, sha = rig.worker(main, [{"a": str(n)} for n in range(6)])
    bad(rig.repo.import_bundle(long, sha, main), Failure.POLICY_VIOLATION, "5 commits")
    big, sha = rig.worker(main, [{"data/big.bin": "x" * 20_000}])
    bad(
        rig.repo.import_bundle(big, sha, main),
        Failure.POLICY_VIOLATION,
        "FILE_TOO_LARGE",
        "data/big.bin",
        "20000",
    )
    bad(rig.repo.push("refs/heads/agent/1", sha, ""), Failure.INTERNAL_ERROR)


# ---------------------------------------------------------------- merging


def test_a_merge_is_the_same_commit_every_time(rig: Rig) -> None:
    main = rig.remote(MAIN)
    path, work = rig.worker(main, [{"ours": "1"}])
    good(rig.repo.import_bundle(path, work, main))
    new = rig.person(MAIN, {"theirs": "1"})
    good(rig.repo.fetch())
    one = good(rig.repo.merge(new, work, "Land #12\n\nRefs #12", 1_700_000_000.7))
    assert good(rig.repo.merge(new, work, "Land #12\n\nRefs #12", 1_700_000_000.2)) == one
    assert good(rig.repo.merge(new, work, "Land #12\n\nRefs #12", 1_700_000_009.0)).sha != one.sha
    assert good(rig.repo.tree(one.sha)) == one.tree
    assert good(rig.repo.read_file(one.sha, "ours")) == good(rig.repo.read_file(one.sha, "theirs")) == b"1"
    assert good(rig.repo.is_ancestor(new, one.sha)) and good(rig.repo.is_ancestor(work, one.sha))
    assert good(rig.repo.message(one.sha)) == "Land #12\n\nRefs #12"
    assert good(rig.repo.push(MAIN, one.sha, new)) == one.sha
    assert good(rig.repo.merge(one.sha, work, "again", 1.0)).sha == one.sha, (
        "what is in already needs no commit"
    )


def test_a_merge_without_need_is_a_merge_all_the_same(rig: Rig) -> None:
    main = rig.remote(MAIN)
    path, work = rig.worker(main, [{"ours": "1"}])
    good(rig.repo.import_bundle(path, work, main))
    merged = good(rig.repo.merge(main, work, "Land", 1.0))
    assert merged.sha != work
    assert merged.tree == good(rig.repo.tree(work))


def test_a_conflict_names_its_files(rig: Rig) -> None:
    main = rig.remote(MAIN)
    path, work = rig.worker(main, [{"src/app.py": "ours\n", "README.md": "ours\n", "free": "1"}])
    good(rig.repo.import_bundle(path, work, main))
    new = rig.person(MAIN, {"src/app.py": "theirs\n", "README.md": None})
    good(rig.repo.fetch())
    err = bad(rig.repo.merge(new, work, "Land", 1.0), Failure.CONFLICT, "README.md", "src/app.py")
    assert "free" not in err.detail


# ---------------------------------------------------------------- folders


def test_clones_and_checkouts_come_and_go(rig: Rig) -> None:
    main = rig.remote(MAIN)
    clone, gate = rig.folder("12.1"), rig.folder("gate-12.1")
    for _ in range(2):
        good(rig.repo.clone(clone, main, "agent/12", "main"))
        good(rig.repo.checkout(gate, main))
    assert rig.exists(clone) and rig.exists(gate)
    other = rig.person(MAIN, {"a": "1"})
    good(rig.repo.fetch())
    bad(rig.repo.clone(clone, other, "agent/12", "main"), Failure.CONFLICT, main)
    for _ in range(2):
        good(rig.repo.discard(clone))
        good(rig.repo.discard(gate))
    assert not rig.exists(clone) and not rig.exists(gate)
    good(rig.repo.clone(clone, other, "agent/12", "main"))


def test_a_clone_needs_a_base_and_a_commit(rig: Rig) -> None:
    bad(
        rig.repo.clone(rig.folder("a"), rig.remote(MAIN), "agent/1", "trunk"),
        Failure.CONFIG_INVALID,
        "BASE_UNKNOWN",
    )
    bad(rig.repo.clone(rig.folder("b"), "4" * 40, "agent/1", "main"), Failure.INTERNAL_ERROR, "4" * 40)
    bad(rig.repo.checkout(rig.folder("c"), "4" * 40), Failure.INTERNAL_ERROR, "4" * 40)
    assert not rig.exists(rig.folder("a"))


# ---------------------------------------------------------------- preflight


def preflight(rig: Rig, base: str = "main", prefix: str = "agent") -> Result[None]:
    assert isinstance(rig.repo, GitRepo | MemoryRepo)
    return rig.repo.preflight(base, prefix)


def test_preflight_finds_what_cannot_work(empty: Rig) -> None:
    good(empty.repo.prepare())
    bad(preflight(empty), Failure.CONFIG_INVALID, "REPO_EMPTY")
    main = empty.person("refs/heads/trunk", FILES)
    bad(preflight(empty), Failure.CONFIG_INVALID, "BASE_UNKNOWN", "main")
    good(preflight(empty, "trunk"))
    empty.move("refs/heads/agent", main)
    bad(preflight(empty, "trunk"), Failure.CONFIG_INVALID, "PREFIX_CONFLICT", "'agent'")
    bad(preflight(empty, "trunk", "agent/bot"), Failure.CONFIG_INVALID, "PREFIX_CONFLICT", "'agent'")
    good(preflight(empty, "trunk", "bot"))
