"""What a worker can leave behind: clones whose `.git` runs code, bundles that hold what must not come in.

The one rule: every trap is first shown to be live, then the product is led past it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import git_world as world
from short import cannot_open

from harness.adapters.git import GitLimits, GitRepo
from harness.adapters.git.errors import Ran
from harness.core.result import Err, Ok, Result
from harness.failures import Failure

MAIN = "refs/heads/main"
LIMITS = GitLimits(max_bundle_bytes=2 << 20, max_file_bytes=1 << 20, alloc_bytes=64 << 20, import_s=30.0)


class FixedClock:
    def now(self) -> float:
        return 1_700_000_000.0

    def monotonic(self) -> float:
        return 0.0


class Place:
    """A repository with one commit, the director's git, and a folder where workers make things."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.origin = world.Origin(root / "forge")
        self.main = self.origin.push(MAIN, {"src/app.py": "one\n", "README.md": "widget\n"})
        self.data = root / "data"
        self.repo = GitRepo(
            self.data,
            remote=self.origin.url,
            token=None,
            author=("Harness", "harness@acme.example"),
            clock=FixedClock(),
            limits=LIMITS,
        )
        assert self.repo.prepare() == Ok(None)
        assert isinstance(self.repo.fetch(), Ok)
        self.work = root / "work"
        world.git("clone", "-q", str(self.origin.path), str(self.work), cwd=root)

    def offer(self, sha: str, name: str = "work.bundle") -> Path:
        path = self.root / name
        world.git("update-ref", "refs/heads/offer", sha, cwd=self.work)
        world.bundle(self.work, self.main, path, "refs/heads/offer")
        return path

    def offer_tree(self, *entries: tuple[str, str, str]) -> tuple[Path, str]:
        """A commit on top of main whose tree is main's and these entries (mode, SHA, name)."""
        tree = world.text("rev-parse", f"{self.main}^{{tree}}", cwd=self.work)
        old = [line.split(None, 3) for line in world.text("ls-tree", tree, cwd=self.work).splitlines()]
        rows = [(mode, sha, name) for mode, _, sha, name in old if name not in [e[2] for e in entries]]
        sha = world.commit_of(self.work, world.tree_of(self.work, [*rows, *entries]), self.main)
        return self.offer(sha), sha

    def blob(self, content: bytes) -> str:
        return world.blob_of(self.work, content)

    def imports(self) -> list[str]:
        return [ref for ref in self.repo.mirror.refs() if ref.startswith("refs/harness/import/")]

    def refused(
        self, bundle: Path, sha: str, *words: str, failure: Failure = Failure.POLICY_VIOLATION
    ) -> Err:
        began = time.monotonic()
        result = self.repo.import_bundle(bundle, sha, self.main)
        assert isinstance(result, Err) and result.failure == failure, result
        for word in words:
            assert word in result.detail, result
        assert self.imports() == []
        assert time.monotonic() - began < 20
        return result


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# ---------------------------------------------------------------- hostile .git folders

Trap = Callable[[Path, str], None]


def config(*pairs: tuple[str, str]) -> Trap:
    def plant(folder: Path, run: str) -> None:
        for key, value in pairs:
            world.git("config", key.replace("RUN", run), value.replace("RUN", run), cwd=folder)

    return plant


def attributes(line: str, *pairs: tuple[str, str]) -> Trap:
    def plant(folder: Path, run: str) -> None:
        (folder / ".git/info").mkdir(exist_ok=True)
        (folder / ".git/info/attributes").write_text(f"* {line}\n")
        config(*pairs)(folder, run)

    return plant


def hooks(*names: str) -> Trap:
    def plant(folder: Path, run: str) -> None:
        (folder / ".git/hooks").mkdir(exist_ok=True)
        for name in names:
            path = folder / ".git/hooks" / name
            path.write_text(f"#!/bin/sh\n{run}\n")
            path.chmod(0o755)

    return plant


def include(folder: Path, run: str) -> None:
    (folder / "extra.cfg").write_text(f'[core]\n\tfsmonitor = "{run}; false"\n')
    world.git("config", "include.path", "../extra.cfg", cwd=folder)


def hooks_path(folder: Path, run: str) -> None:
    hooks("pre-commit", "post-commit", "reference-transaction")(folder, run)
    (folder / ".git/hooks").rename(folder / "tools")
    world.git("config", "core.hooksPath", "tools", cwd=folder)


def gpg(folder: Path, run: str) -> None:
    (folder / "sign").write_text(f"#!/bin/sh\n{run}\nexit 1\n")
    (folder / "sign").chmod(0o755)
    config(("commit.gpgsign", "true"), ("gpg.program", str(folder.parents[2] / "copy/sign")))(folder, run)
    config(("user.signingkey", "x"))(folder, run)


def git_file(folder: Path, run: str) -> None:
    config(("core.fsmonitor", "RUN; false"))(folder, run)
    (folder / ".git").rename(folder / "elsewhere")
    (folder / ".git").write_text("gitdir: elsewhere\n")


def git_link(folder: Path, run: str) -> None:
    config(("core.fsmonitor", "RUN; false"))(folder, run)
    (folder / ".git").rename(folder / "elsewhere")
    (folder / ".git").symlink_to("elsewhere")


TRAPS: dict[str, Trap] = {
    "fsmonitor": config(("core.fsmonitor", "RUN; false")),
    "filter": attributes("filter=x", ("filter.x.clean", "RUN; cat"), ("filter.x.smudge", "RUN; cat")),
    "filter process": attributes("filter=x", ("filter.x.process", "RUN; false")),
    "diff external": config(("diff.external", "RUN; true")),
    "textconv": attributes("diff=x", ("diff.x.textconv", "RUN; cat")),
    "diff driver": attributes("diff=x", ("diff.x.command", "RUN; true")),
    "merge driver": attributes("merge=x", ("merge.x.driver", "RUN; false")),
    "hooks": hooks(
        "pre-commit", "post-commit", "post-checkout", "post-index-change", "reference-transaction"
    ),
    "hooks of pushing": hooks("pre-push", "pre-receive", "update", "post-update", "pre-auto-gc"),
    "hooks path": hooks_path,
    "gpg": gpg,
    "upload pack": config(("remote.origin.uploadpack", "RUN; git-upload-pack"), ("remote.origin.url", ".")),
    "ssh command": config(("core.sshCommand", "RUN; false"), ("remote.origin.url", "ssh://x.example/y")),
    "insteadOf ext": config(("url.ext::RUN .insteadOf", "file:///none"), ("protocol.ext.allow", "always")),
    "ask pass": config(("core.askPass", "RUN; false")),
    "credential helper": config(("credential.helper", "!RUN; false")),
    "alternate refs": config(("core.alternateRefsCommand", "RUN; true")),
    "pager and editor": config(
        ("core.pager", "RUN; cat"), ("core.editor", "RUN; true"), ("sequence.editor", "RUN")
    ),
    "alias": config(("alias.st", "!RUN"), ("alias.status", "!RUN")),
    "include": include,
    "git file": git_file,
    "git link": git_link,
}
# Traps that these everyday commands spring; the others need a network, a terminal or a merge.
LIVE = {
    "fsmonitor", "filter", "filter process", "diff external", "textconv", "diff driver", "hooks",
    "hooks path", "gpg", "upload pack", "ssh command", "insteadOf ext", "include", "git file", "git link",
}  # fmt: skip


def everyday(folder: Path) -> None:
    for args in (["status"], ["add", "-A"], ["diff", "HEAD"], ["commit", "-qm", "x"], ["fetch", "origin"]):
        subprocess.run(["git", *args], cwd=folder, env=world.CLEAN, capture_output=True, timeout=60)


def everything(place: Place, folder: Path, bundle: Path, sha: str) -> None:
    """Every operation of the director that is near a worker's folder, and all the others."""
    repo, main = place.repo, place.main
    results: list[Result[object]] = [
        repo.prepare(),
        repo.fetch(),
        repo.remote_refs(),
        repo.clone(folder, main, "agent/12", "main"),
        repo.import_bundle(bundle, sha, main),
        repo.changes(main, sha),
        repo.merge(main, sha, "Land", 1.0),
        repo.keep("refs/harness/saved/12", sha),
        repo.push("refs/heads/agent/12", sha, None),
        repo.checkout(place.data / "gate", sha),
        repo.read_file(sha, "src/app.py"),
        repo.clone(folder, main, "agent/12", "main"),
        repo.discard(folder),
        repo.clone(folder, main, "agent/12", "main"),
        repo.discard(folder),
        repo.discard(place.data / "gate"),
    ]
    assert all(isinstance(r, Ok) for r in results), results


@pytest.mark.parametrize("name", TRAPS)
def test_no_trap_in_a_clone_is_sprung(place: Place, name: str) -> None:
    marker = place.root / "sprung"
    run = f"touch {marker}"
    folder = place.data / "clones" / "12.1"
    assert place.repo.clone(folder, place.main, "agent/12", "main") == Ok(None)
    sha = world.commit(folder, {"src/app.py": "two\n"})
    bundle = place.root / "work.bundle"
    world.bundle(folder, place.main, bundle)
    TRAPS[name](folder, run)
    copy = place.root / "copy"
    shutil.copytree(folder, copy, symlinks=True)
    everyday_changes(copy)
    everyday(copy)
    assert marker.exists() or name not in LIVE, "the trap does not work, so it proves nothing"
    marker.unlink(missing_ok=True)
    everything(place, folder, bundle, sha)
    assert not marker.exists()


def everyday_changes(folder: Path) -> None:
    world.write(folder, {"src/app.py": "three\n", "more.txt": "x"})


def test_links_in_a_clone_lead_nowhere(place: Place) -> None:
    outside = place.root / "outside"
    world.write(outside, {"keep.txt": "precious", "index.lock": "theirs"})
    old = time.time() - 10_000
    os.utime(outside / "index.lock", (old, old))
    folder = place.data / "clones" / "12.1"
    assert place.repo.clone(folder, place.main, "agent/12", "main") == Ok(None)
    (folder / "link").symlink_to(outside)
    shutil.rmtree(folder / ".git")
    (folder / ".git").symlink_to(outside)
    assert place.repo.clone(folder, place.main, "agent/12", "main") == Ok(None)
    assert place.repo.discard(folder) == Ok(None)
    assert not os.path.lexists(folder)
    assert place.repo.clone(folder, place.main, "agent/12", "main") == Ok(None)
    shutil.rmtree(folder)
    folder.symlink_to(outside)
    assert place.repo.discard(folder) == Ok(None)
    assert not os.path.lexists(folder)
    assert (outside / "keep.txt").read_text() == "precious"
    assert (outside / "index.lock").read_text() == "theirs"


# ---------------------------------------------------------------- hostile bundles


@pytest.mark.parametrize("name", [".git", ".GIT", ".Git ", "git~1", ".g\u200cit"])
def test_a_tree_with_a_git_folder(place: Place, name: str) -> None:
    hook = place.blob(b"#!/bin/sh\ntouch sprung\n")
    inner = world.tree_of(place.work, [("100755", hook, "post-checkout")])
    bundle, sha = place.offer_tree(("040000", world.tree_of(place.work, [("040000", inner, "hooks")]), name))
    place.refused(bundle, sha, "hasDotgit")


def test_modules_as_a_link(place: Place) -> None:
    bundle, sha = place.offer_tree(("120000", place.blob(b"../elsewhere"), ".gitmodules"))
    place.refused(bundle, sha, "gitmodulesSymlink")


def test_modules_with_an_option_as_url(place: Place) -> None:
    text = b'[submodule "x"]\n\tpath = x\n\turl = --upload-pack=touch\n'
    bundle, sha = place.offer_tree(("100644", place.blob(text), ".gitmodules"))
    place.refused(bundle, sha, "gitmodulesUrl")


def test_a_repository_inside_is_named(place: Place) -> None:
    """`git init vendor/tool`, a commit in it, `git add -A` outside: that records a gitlink."""
    inner = place.work / "vendor/tool"
    inner.mkdir(parents=True)
    world.git("init", "-q", cwd=inner)
    world.commit(inner, {"x": "1"})
    sha = world.commit(place.work, {"src/app.py": "two\n"})
    place.refused(place.offer(sha), sha, "NESTED_REPO", "vendor/tool")


@pytest.mark.parametrize("name", ["readme.md", "SRC", "rEADME.MD"])
def test_names_that_differ_in_case_only(place: Place, name: str) -> None:
    bundle, sha = place.offer_tree(("100644", place.blob(b"x"), name))
    place.refused(bundle, sha, name, "case")


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "../outside", "src/../../x", "..", ".git/config", "a/.GIT/hooks", "src/.."]
)
def test_links_that_leave_the_repository(place: Place, target: str) -> None:
    bundle, sha = place.offer_tree(("120000", place.blob(target.encode()), "link"))
    place.refused(bundle, sha, "SYMLINK_ESCAPE", "link")


def test_a_link_that_left_and_came_back_is_refused_too(place: Place) -> None:
    tree = world.tree_of(place.work, [("120000", place.blob(b"/etc/passwd"), "link")])
    first = world.commit_of(place.work, tree, place.main)
    sha = world.commit_of(
        place.work, world.text("rev-parse", f"{place.main}^{{tree}}", cwd=place.work), first
    )
    place.refused(place.offer(sha), sha, "SYMLINK_ESCAPE")


@pytest.mark.parametrize("target", ["src/app.py", "./README.md", ".github/x", "not/there/yet"])
def test_links_that_stay_are_welcome(place: Place, target: str) -> None:
    bundle, sha = place.offer_tree(("120000", place.blob(target.encode()), "link"))
    result = place.repo.import_bundle(bundle, sha, place.main)
    assert isinstance(result, Ok) and [(f.path, f.mode) for f in result.value.files] == [("link", "120000")]
    read = place.repo.read_file(sha, "link")
    assert isinstance(read, Err) and read.failure == Failure.POLICY_VIOLATION


@pytest.mark.parametrize(
    "content", [2 * (b"100644 a\0" + b"\1" * 20), b"100644 ..\0" + b"\1" * 20], ids=["twice", "dots"]
)
def test_trees_that_no_git_makes(place: Place, content: bytes) -> None:
    blob = place.blob(b"x")
    raw = content.replace(b"\1" * 20, bytes.fromhex(blob))
    tree = world.text("hash-object", "-t", "tree", "-w", "--literally", "--stdin", cwd=place.work, feed=raw)
    sha = world.commit_of(place.work, tree, place.main)
    place.refused(place.offer(sha), sha, "git refuses its objects")


def test_a_large_file_is_refused_also_when_a_later_commit_removes_it(place: Place) -> None:
    world.commit(place.work, {"data/big.bin": b"\0" * (2 << 20)})
    sha = world.commit(place.work, {"data/big.bin": None, "src/app.py": "two\n"})
    place.refused(place.offer(sha), sha, "FILE_TOO_LARGE", "data/big.bin", str(2 << 20))


def test_old_histories_with_odd_objects_are_no_hindrance(place: Place) -> None:
    """The base holds a commit that `fsck --strict` refuses; new work on top of it is fine."""
    tree = world.text("rev-parse", f"{place.main}^{{tree}}", cwd=place.work)
    odd = (
        f"tree {tree}\nparent {place.main}\nauthor A <a> 1 +0000\ncommitter A<a> 1 +051800\n\nold\n".encode()
    )
    sha = world.text("hash-object", "-t", "commit", "-w", "--literally", "--stdin", cwd=place.work, feed=odd)
    world.git("push", "-q", "origin", f"{sha}:{MAIN}", cwd=place.work)
    assert isinstance(place.repo.fetch(), Ok)
    place.main = sha
    world.git("checkout", "-q", "--detach", sha, cwd=place.work)
    tip = world.commit(place.work, {"new.txt": "1"})
    assert isinstance(place.repo.import_bundle(place.offer(tip), tip, sha), Ok)


# ---------------------------------------------------------------- hostile files


def good_bundle(place: Place) -> tuple[Path, str]:
    sha = world.commit(place.work, {"src/app.py": "two\n"})
    return place.offer(sha), sha


def test_what_is_not_a_plain_file(place: Place) -> None:
    bundle, sha = good_bundle(place)
    link, pipe, folder = place.root / "link", place.root / "pipe", place.root / "folder"
    link.symlink_to(bundle)
    os.mkfifo(pipe)
    folder.mkdir()
    for path in (link, pipe, folder):
        place.refused(path, sha, "file")


@pytest.mark.parametrize("asked", ["config --blob", "cat-file blob", "cat-file -e", "merge-base", "ls-tree"])
def test_a_git_that_was_killed_while_a_bundle_was_judged_refuses_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """What is refused is given up for good; what was not seen is looked at again."""
    (place.work / "sub").mkdir()
    world.git("init", "-q", cwd=place.work / "sub")
    world.commit(place.work / "sub", {"x": "1"})
    (place.work / "link").symlink_to("README.md")
    declared = '[submodule "sub"]\n\tpath = sub\n\turl = ../sub.git\n'
    sha = world.commit(place.work, {"src/app.py": "two\n", ".gitmodules": declared})
    bundle, run = place.offer(sha), place.repo._git.run

    def killed(*args: str, **options: Any) -> Ran:
        return Ran(args, -9) if " ".join(args).startswith(asked) else run(*args, **options)

    with monkeypatch.context() as m:
        m.setattr(place.repo._git, "run", killed)
        place.refused(bundle, sha, failure=Failure.INFRA_KILLED)
    assert isinstance(place.repo.import_bundle(bundle, sha, place.main), Ok)


def test_a_bundle_that_cannot_be_opened_just_now_is_not_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, sha = good_bundle(place)
    with cannot_open(bundle, monkeypatch):
        place.refused(bundle, sha, failure=Failure.INFRA_KILLED)
    assert isinstance(place.repo.import_bundle(bundle, sha, place.main), Ok)


def test_a_sparse_terabyte(place: Place) -> None:
    _, sha = good_bundle(place)
    path = place.root / "huge"
    with path.open("wb") as f:
        f.truncate(1 << 40)
    place.refused(path, sha, str(1 << 40))


def test_headers_that_lie(place: Place) -> None:
    bundle, sha = good_bundle(place)
    raw = bundle.read_bytes()
    pack = raw[raw.index(b"PACK") :]
    tip = f"{sha} refs/heads/x\n".encode()
    many = b"".join(f"{n:040x} refs/heads/x{n}\n".encode() for n in range(1000))
    path = place.root / "lie"
    for content, words in {
        b"": "not a git bundle",
        b"# v1 git bundle\n" + tip + b"\n" + pack: "not a git bundle",
        b"# v2 git bundle\n" + many + tip + b"\n" + pack: "too many refs",
        b"# v3 git bundle\n@filter=blob:none\n" + tip + b"\n" + pack: "filter",
        b"# v3 git bundle\n@object-format=sha256\n" + tip + b"\n" + pack: "sha256",
        b"# v2 git bundle\nxyz refs/heads/x\n\n" + pack: "well formed",
        b"# v2 git bundle\n" + tip + b"\nnothing": "no pack",
        b"# v2 git bundle\n" + tip + b"\n" + pack[:8] + b"\xff\xff\xff\xff" + pack[12:]: "objects",
        b"# v2 git bundle\n" + tip + b"\n" + pack[: len(pack) // 2]: "git refuses",
        b"# v2 git bundle\n" + tip + b"\n" + pack[:-30] + b"\0" * 30: "git refuses",
    }.items():
        path.write_bytes(content)
        place.refused(path, sha, words)
    path.write_bytes(b"# v2 git bundle\n-" + b"5" * 40 + b" forged\n" + tip + b"\n" + pack)
    place.refused(path, sha, "5" * 40, failure=Failure.CONFLICT)


def test_a_bundle_that_leaves_objects_out(place: Place) -> None:
    """The commit is there, its tree is not."""
    tree = world.tree_of(place.work, [("100644", place.blob(b"left out"), "left-out.txt")])
    sha = world.commit_of(place.work, tree, place.main)
    pack = world.git("pack-objects", "--stdout", "-q", cwd=place.work, feed=f"{sha}\n".encode())
    path = place.root / "partial"
    path.write_bytes(f"# v2 git bundle\n{sha} refs/heads/x\n\n".encode() + pack)
    place.refused(path, sha, "git refuses")


def test_a_delta_that_claims_a_gigabyte_takes_no_memory(place: Place) -> None:
    sha = place.main[::-1]
    path = place.root / "bomb"
    path.write_bytes(f"# v2 git bundle\n{sha} refs/heads/x\n\n".encode() + bomb())
    place.refused(path, sha, "limit")


def bomb() -> bytes:
    """A pack with a blob of 64 KiB and a delta that copies it 16384 times."""
    base = b"x" * 0x10000
    copies = 1 << 14
    delta = _varint(len(base)) + _varint(len(base) * copies) + b"\x80" * copies
    body = b"PACK" + (2).to_bytes(4, "big") + (2).to_bytes(4, "big")
    first = _object(3, len(base)) + zlib.compress(base)
    second = _object(6, len(delta)) + _offset(len(first)) + zlib.compress(delta)
    body += first + second
    return body + sha1(body).digest()


def _varint(n: int) -> bytes:
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def _object(kind: int, size: int) -> bytes:
    first, rest = size & 0xF, size >> 4
    return bytes([kind << 4 | first | (0x80 if rest else 0)]) + (_varint(rest) if rest else b"")


def _offset(n: int) -> bytes:
    out = [n & 0x7F]
    while n := n >> 7:
        n -= 1
        out.insert(0, n & 0x7F | 0x80)
    return bytes(out)


def test_the_quarantine_is_empty_afterwards(place: Place) -> None:
    bundle, sha = good_bundle(place)
    assert isinstance(place.repo.import_bundle(bundle, sha, place.main), Ok)
    quarantine = place.data / "git/quarantine.git"
    assert not [p for p in (quarantine / "objects").rglob("*") if p.is_file() and p.name != "alternates"]
    assert place.imports() == [f"refs/harness/import/{sha}"]


def test_saved_work_does_not_pile_up_for_ever(place: Place) -> None:
    mirror, most = place.repo.mirror, place.repo.mirror._limits.max_saved
    lines = "".join(f"create refs/harness/saved/{n}.1 {place.main}\n" for n in range(most + 20))
    argv = ["git", "--git-dir", str(mirror.path), "update-ref", "--stdin"]
    subprocess.run(argv, input=lines.encode(), check=True, timeout=60)
    bundle, sha = good_bundle(place)
    assert isinstance(place.repo.import_bundle(bundle, sha, place.main), Ok)
    assert len([r for r in mirror.refs() if r.startswith("refs/harness/saved/")]) == most


def test_marks_of_what_was_taken_over_do_not_pile_up(place: Place) -> None:
    kept = place.repo.mirror._limits.max_imports
    for n in range(kept + 5):
        place.repo.keep(f"refs/harness/import/{n:040}", place.main).unwrap()
    place.repo.keep("refs/harness/saved/1.1", place.main).unwrap()
    bundle, sha = good_bundle(place)
    assert isinstance(place.repo.import_bundle(bundle, sha, place.main), Ok)
    assert len(place.imports()) == kept
    assert "refs/harness/saved/1.1" in place.repo.mirror.refs()
    assert isinstance(place.repo.tree(sha), Ok)
    assert isinstance(place.repo.import_bundle(bundle, sha, place.main), Ok)
