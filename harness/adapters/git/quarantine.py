"""The quarantine: where a worker's bundle is unpacked, looked at, and from where it may go on to the mirror.

The one rule: nothing of a bundle reaches the mirror before every check has passed. A bundle's header is read
by us and its pack by `index-pack --strict`, so that nothing but objects comes in: no refs, no configuration.
The way on is a fetch with `fetch.fsckObjects`, since git before 2.46 ignores that setting for bundles, and a
whole-repository fsck would refuse good work on old histories.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from harness.adapters.git.changes import GITLINK, SYMLINK, Diffs, Entry, describe, text_of
from harness.adapters.git.content import case_clash, link_escapes, modules
from harness.adapters.git.errors import FailedError, Ran, classify, fail, tail
from harness.adapters.git.limits import GitLimits
from harness.adapters.git.locks import RepositoryLock
from harness.adapters.git.mirror import Mirror, checked_sha, listed, make_bare
from harness.adapters.git.runner import Runner
from harness.domain import Imported
from harness.failures import Failure

_HEADER_BYTES = 64 << 10
_HEADER_LINES = 256
_LINK_BYTES = 4096
_SIGNATURES = (b"# v2 git bundle", b"# v3 git bundle")
_HEX = frozenset(b"0123456789abcdef")
_SHORT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO})  # nothing that a bundle can help


@dataclass(frozen=True, slots=True)
class Header:
    """What a bundle says of itself: the commits it builds on, the tips it offers, where its pack begins."""

    needs: tuple[str, ...]
    tips: tuple[str, ...]
    pack_at: int
    objects: int


class Quarantine:
    """`quarantine.git`: made anew for every bundle, borrowing the mirror's objects; one bundle at a time."""

    def __init__(self, path: Path, mirror: Mirror, runner: Runner, limits: GitLimits) -> None:
        self.path = path
        self._mirror = mirror
        self._git = runner
        self._limits = limits
        self._lock = RepositoryLock(path.with_suffix(".lock"))
        self._diffs = Diffs(runner, path, limits)

    def bring_in(self, bundle: Path, sha: str, base: str) -> Imported:
        checked_sha(sha)
        if not self._mirror.has(checked_sha(base, "base")):
            raise fail(Failure.CONFIG_INVALID, f"BASE_UNKNOWN: base {base} is not in the mirror: fetch first")
        if sha == base:
            return Imported(sha, base, 0, ())
        ref = f"refs/harness/import/{sha}"
        with self._lock.hold(self._limits.lock_s + self._limits.import_s):
            self._renew()
            if ref not in self._mirror.refs(ref):
                self._unpack(bundle, sha)
            imported = self._judge(sha, base)
            self._hand_over(sha, ref)
            self._renew()
        return imported

    def _renew(self) -> None:
        """Empty it. What is in it is worth nothing: the bundle is kept elsewhere."""
        if self.path.exists():
            shutil.rmtree(self.path)
        make_bare(self._git, self.path)
        info = self.path / "objects" / "info"
        info.mkdir(parents=True, exist_ok=True)
        (info / "alternates").write_text(f"{self._mirror.objects}\n", encoding="utf-8")

    # ------------------------------------------------------------ unpacking

    def _unpack(self, bundle: Path, sha: str) -> None:
        with _open_plain(bundle, self._limits.max_bundle_bytes) as f:
            header = read_header(f)
            if sha not in header.tips:
                raise _bad(f"it does not offer commit {sha}")
            if header.objects > self._limits.max_objects:
                raise _bad(f"it holds {header.objects} objects, more than {self._limits.max_objects}")
            for need in header.needs:
                if not self._mirror.has(need):
                    raise fail(
                        Failure.CONFLICT,
                        f"the bundle builds on commit {need}, which the mirror does not have",
                    )
            f.seek(header.pack_at)
            os.lseek(f.fileno(), header.pack_at, os.SEEK_SET)
            size = f"--max-input-size={self._limits.max_bundle_bytes}"
            args = ("index-pack", "--stdin", "--fix-thin", "--strict", "--threads=1", size)
            ran = self._run(*args, feed=f)
        if ran.code != 0:
            raise self._refused(ran, "unpacking the bundle")
        ran = self._run("cat-file", "-e", f"{sha}^{{commit}}")
        if ran.unanswered:
            raise self._refused(ran, "looking for its commit")
        if ran.code != 0:
            raise _bad(f"{sha} is not a commit")

    def _run(self, *args: str, feed: bytes | IO[bytes] = b"") -> Ran:
        env = {"GIT_ALLOC_LIMIT": str(self._limits.alloc_bytes)}
        return self._git.run(*args, git_dir=self.path, feed=feed, deadline_s=self._limits.import_s, env=env)

    @staticmethod
    def _refused(ran: Ran, what: str) -> FailedError:
        err = classify(ran, what=what)
        ours = (Failure.DISK_FULL, Failure.INFRA_KILLED, Failure.TIMEOUT, Failure.CONFIG_INVALID)
        if err.failure in ours:
            return FailedError(err)
        return _bad(f"git refuses its objects: {tail(ran.err)}")

    # ------------------------------------------------------------ judging

    def _judge(self, sha: str, base: str) -> Imported:
        ran = self._run("merge-base", "--is-ancestor", base, sha)
        if ran.code == 1:
            text = f"detached: {sha} does not build on {base}; its history is another one, or was rewritten"
            raise fail(Failure.CONFLICT, text)
        if ran.code != 0:
            raise self._refused(ran, "reading its history")
        commits = self._diffs.commits(base, sha)
        if len(commits) > self._limits.max_commits:
            raise _bad(f"it holds more than {self._limits.max_commits} commits")
        steps = self._diffs.every_step(commits)
        final = self._diffs.tree_diff(base, sha)
        if len(final) > self._limits.max_files:
            raise _bad(f"it changes {len(final)} files, more than {self._limits.max_files}")
        sizes = self._diffs.sizes([*steps, *final])
        self._check_sizes([*final, *steps], sizes)
        self._check_links([*final, *steps])
        self._check_gitlinks(final, base, sha)
        added = [e.path for e in final if e.status in ("A", "R", "C")]
        clash = case_clash(added, self._diffs.names(sha)) if added else None
        if clash:
            raise _bad(f"{_shown(clash[0])} and {_shown(clash[1])} differ only in case")
        return describe(base, sha, len(commits), final, steps, sizes)

    def _check_sizes(self, entries: Sequence[Entry], sizes: dict[str, int]) -> None:
        for e in entries:
            size = sizes.get(e.blob, 0)
            if size > self._limits.max_file_bytes:
                limit = self._limits.max_file_bytes
                raise fail(
                    Failure.POLICY_VIOLATION,
                    f"FILE_TOO_LARGE: {_shown(e.path)} has {size} bytes, more than {limit}; "
                    "it must leave the history too, not only the last commit",
                )

    def _check_links(self, entries: Sequence[Entry]) -> None:
        for path, blob in sorted({(e.path, e.blob) for e in entries if e.mode == SYMLINK}):
            target = self._diffs.blob(blob, _LINK_BYTES)
            if len(target) > _LINK_BYTES or link_escapes(path, target):
                raise _bad(
                    f"SYMLINK_ESCAPE: {_shown(path)} points to {_shown(target[:200])}, outside the repository"
                )

    def _check_gitlinks(self, final: Sequence[Entry], base: str, sha: str) -> None:
        new = {e.path for e in final if e.mode == GITLINK and e.status != "M"}
        undeclared: set[bytes] = set()
        if any(e.path == b".gitmodules" for e in final):
            undeclared = {m.path for m in modules(self._git, self.path, base)} & set(
                self._diffs.gitlinks(sha)
            )
        if not new and not undeclared:
            return
        bare = sorted((new | undeclared) - {m.path for m in modules(self._git, self.path, sha)})
        if bare:
            names = listed([_shown(p) for p in bare])
            raise _bad(
                f"NESTED_REPO: {names} is a repository of its own, not a submodule: remove its .git folder"
            )

    # ------------------------------------------------------------ on to the mirror

    def _hand_over(self, sha: str, ref: str) -> None:
        if ref in self._mirror.refs(ref):
            return
        self._git.ok("update-ref", "refs/q/tip", sha, git_dir=self.path)
        args = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", str(self.path), f"refs/q/tip:{ref}")
        checks = (("fetch.fsckObjects", "true"), ("transfer.fsckObjects", "true"))
        with self._mirror.writing() as held:
            options: dict[str, Any] = {
                "git_dir": self._mirror.path,
                "deadline_s": self._limits.import_s,
                "config": checks,
                "holding": held,
            }
            ran = self._git.run(*args, **options)
            if self._mirror.healed(ran):
                ran = self._git.run(*args, **options)
            if ran.code == 0:
                self._mirror.forget_old(held)
        if ran.code != 0:
            raise self._refused(ran, "taking the bundle over")


def read_header(f: IO[bytes]) -> Header:
    """Parse a bundle's header and the first words of its pack. Raises FailedError."""
    head = f.read(_HEADER_BYTES)
    text, found, _ = head.partition(b"\n\n")
    lines = text.split(b"\n")
    if not found or lines[0] not in _SIGNATURES or len(lines) > _HEADER_LINES:
        raise _bad("it is not a git bundle, or names too many refs")
    needs: list[str] = []
    tips: list[str] = []
    for line in lines[1:]:
        if line.startswith(b"@"):
            if line != b"@object-format=sha1":
                raise _bad(f"it needs {_shown(line[:60])}")
            continue
        sha = line[1:41] if line.startswith(b"-") else line[:40]
        if len(sha) != 40 or not set(sha) <= _HEX:
            raise _bad("its header is not well formed")
        (needs if line.startswith(b"-") else tips).append(sha.decode())
    at = len(text) + 2
    pack = head[at : at + 12]
    if pack[:4] != b"PACK" or len(pack) != 12:
        raise _bad("it holds no pack")
    return Header(tuple(needs), tuple(tips), at, int.from_bytes(pack[8:12], "big"))


def _open_plain(path: Path, limit_bytes: int) -> IO[bytes]:
    """Open a file that must be one: no link, no pipe, no device, no more than the limit."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as e:
        raise fail(Failure.INFRA_KILLED, f"there is no bundle at {path}") from e
    except OSError as e:
        if e.errno in _SHORT:
            raise
        raise _bad(f"it cannot be opened as a file: {e.strerror}") from e
    about = os.fstat(fd)
    if stat.S_ISREG(about.st_mode) and about.st_size <= limit_bytes:
        return os.fdopen(fd, "rb", buffering=0)
    os.close(fd)
    if not stat.S_ISREG(about.st_mode):
        raise _bad("it is not a plain file")
    raise _bad(f"it has {about.st_size} bytes, more than {limit_bytes}")


def _bad(what: str) -> FailedError:
    return fail(Failure.POLICY_VIOLATION, f"the bundle is refused: {what}")


def _shown(path: bytes) -> str:
    """A name for people: undecodable bytes replaced, control characters escaped."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text_of(path))
