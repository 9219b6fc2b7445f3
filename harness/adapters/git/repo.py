"""`GitRepo`: the Repo port over real git.

The one rule: everything that goes wrong inside comes out of here as an `Err`, and only here.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from harness.adapters.git.changes import Diffs
from harness.adapters.git.clones import Clones
from harness.adapters.git.errors import edge, fail
from harness.adapters.git.folders import discard
from harness.adapters.git.limits import GitLimits
from harness.adapters.git.mirror import Mirror, check_version, checked_sha
from harness.adapters.git.push import push
from harness.adapters.git.quarantine import Quarantine
from harness.adapters.git.runner import Runner
from harness.core.result import Ok, Result
from harness.domain import Imported, Merged
from harness.failures import Failure
from harness.ports import Clock

# A comment is a line that begins with "#"; inside a pattern it is a character like any other.
LFS = re.compile(rb"^(?![ \t]*#)[^\n]*\sfilter=lfs(\s|$)", re.MULTILINE)
_ATTRIBUTE_FILES = 50


class GitRepo:
    """`data/git` holds everything: mirror.git, quarantine.git, modules/, home/. `remote` is an https, http or
    file URL without a credential; `token` is asked before every call to the forge, and once more after a 401.
    `borrow_as`: where containers see `data/git/mirror.git/objects`. `env` is added to git's environment."""

    def __init__(
        self,
        data: Path,
        *,
        remote: str,
        token: Callable[[], str] | None,
        author: tuple[str, str],
        clock: Clock,
        limits: GitLimits | None = None,
        borrow_as: str | None = None,
        instance: str = "",
        env: Mapping[str, str] | None = None,
    ) -> None:
        limits = limits or GitLimits()
        root = data.absolute() / "git"
        places = (root / "mirror.git", root / "quarantine.git")
        self._remote = remote
        self._clock = clock
        # By exact path, never "*": a container may have another uid than we ("dubious ownership").
        safe = (*places, Path(unquote(urlsplit(remote).path))) if remote.startswith("file:") else places
        self._git = Runner(root / "home", remote=remote, token=token, limits=limits, safe=safe, env=env)
        # The time of files, not of `clock`: it is compared with the times of lock files.
        self.mirror = Mirror(places[0], self._git, limits, author, began=time.time())
        self._quarantine = Quarantine(places[1], self.mirror, self._git, limits)
        self._diffs = Diffs(self._git, places[0], limits)
        self._clones = Clones(self.mirror, self._git, limits, author, borrow_as=borrow_as, instance=instance)
        self._limits = limits

    # ------------------------------------------------------------ the port

    @edge
    def prepare(self) -> Result[None]:
        _check_remote(self._remote)
        self.mirror.prepare()
        return Ok(None)

    @edge
    def fetch(self, refs: Sequence[str] = ()) -> Result[Mapping[str, str]]:
        return Ok(self.mirror.fetch(refs))

    @edge
    def remote_refs(self) -> Result[Mapping[str, str]]:
        return Ok(self.mirror.remote_refs())

    @edge
    def push(self, ref: str, sha: str, expect: str | None) -> Result[str]:
        return Ok(push(self.mirror, self._git, self._limits, ref, sha, expect))

    @edge
    def clone(self, folder: Path, sha: str, branch: str, base: str) -> Result[None]:
        self._clones.clone(folder.absolute(), sha, branch, base)
        return Ok(None)

    @edge
    def checkout(self, folder: Path, sha: str) -> Result[None]:
        self._clones.checkout(folder.absolute(), sha)
        return Ok(None)

    @edge
    def discard(self, folder: Path) -> Result[None]:
        discard(folder.absolute())
        return Ok(None)

    @edge
    def import_bundle(self, bundle: Path, sha: str, base: str) -> Result[Imported]:
        return Ok(self._quarantine.bring_in(bundle, sha, base))

    @edge
    def changes(self, base: str, sha: str) -> Result[Imported]:
        self.mirror.tree(base), self.mirror.tree(sha)
        return Ok(self._diffs.imported(base, sha))

    @edge
    def merge(self, base: str, head: str, message: str, at: float) -> Result[Merged]:
        return Ok(self.mirror.merge(checked_sha(base), checked_sha(head), message, at))

    @edge
    def tree(self, sha: str) -> Result[str]:
        return Ok(self.mirror.tree(sha))

    @edge
    def is_ancestor(self, old: str, new: str) -> Result[bool]:
        return Ok(self.mirror.is_ancestor(old, new))

    @edge
    def read_file(self, sha: str, path: str) -> Result[bytes | None]:
        return Ok(self.mirror.read_file(sha, path))

    @edge
    def note_commit(self, message: str, parent: str = "") -> Result[str]:
        return Ok(self.mirror.note(message, parent, self._clock.now()))

    @edge
    def message(self, sha: str) -> Result[str]:
        return Ok(self.mirror.message(sha))

    @edge
    def keep(self, ref: str, sha: str) -> Result[None]:
        self.mirror.keep(ref, sha)
        return Ok(None)

    # ------------------------------------------------------------ beyond the port

    @edge
    def preflight(self, base: str, prefix: str = "agent") -> Result[None]:
        """What makes a repository unfit to work on, before any issue is claimed: REPO_EMPTY, BASE_UNKNOWN,
        PREFIX_CONFLICT, LFS_MISSING, or a git that is too old. All are CONFIG_INVALID. With git-lfs there,
        clones hold the pointers as committed: what needs the content fetches it in its prepare command."""
        check_version(self._git)
        refs = self.mirror.remote_refs()
        branches = {r.removeprefix("refs/heads/") for r in refs if r.startswith("refs/heads/")}
        if not branches:
            raise fail(Failure.CONFIG_INVALID, "REPO_EMPTY: the repository has no commits: push a first one")
        base = base.removeprefix("refs/heads/")
        if base not in branches:
            text = (
                f"BASE_UNKNOWN: the default branch {base!r} is not there: "
                "make another one the default at the forge, or push it"
            )
            raise fail(Failure.CONFIG_INVALID, text)
        parts = prefix.split("/")
        for taken in ("/".join(parts[: i + 1]) for i in range(len(parts))):
            if taken in branches:
                text = (
                    f"PREFIX_CONFLICT: branch {taken!r} is there, so git can have no branches {prefix}/…: "
                    "rename it, or set forge.branch_prefix or release.branch"
                )
                raise fail(Failure.CONFIG_INVALID, text)
        self.mirror.fetch((f"refs/heads/{base}",))
        self._check_lfs(refs[f"refs/heads/{base}"])
        return Ok(None)

    def _check_lfs(self, sha: str) -> None:
        if shutil.which("git-lfs") is not None:
            return
        names = [n for n in self._diffs.names(sha) if n.rpartition(b"/")[2] == b".gitattributes"]
        for name in names[:_ATTRIBUTE_FILES]:
            path = name.decode("utf-8", "surrogateescape")
            if LFS.search(self.mirror.read_file(sha, path) or b""):
                text = f"LFS_MISSING: {path} asks for Git LFS: install git-lfs, then try again"
                raise fail(Failure.CONFIG_INVALID, text)

    @edge
    def tidy(self) -> Result[None]:
        """Fewer files in the mirror; for when nothing else is going on."""
        self.mirror.tidy()
        return Ok(None)

    def close(self) -> None:
        """End running commands and start none any more; a push that was running ends as `maybe`."""
        self._git.close()


def _check_remote(remote: str) -> None:
    parts = urlsplit(remote)
    if parts.scheme not in ("https", "http", "file"):
        raise fail(
            Failure.CONFIG_INVALID, f"forge.url must be https, http or file, not {parts.scheme or 'a path'}"
        )
    if parts.username or parts.password:
        raise fail(Failure.CONFIG_INVALID, "forge.url holds a credential: remove it and set forge.token_env")
