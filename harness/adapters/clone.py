"""The worker's git, in its own clone and inside its own sandbox.

The one rule: what the agent left is taken as it is: a detached head is moved onto the work branch, conflicts
stay in the tree for the agent, nothing uncommitted is ever thrown away.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.adapters.git.limits import GitLimits
from harness.adapters.git.locks import free_clone
from harness.core.result import Err, Ok, Result
from harness.domain import WorkTree
from harness.failures import Failure

TIMEOUT_S = 120.0
STDERR_CHARS = 2000
# So many looks in a row that git refused: it is not a moment's state, the clone is broken.
BROKEN_LOOKS = 3
LARGEST = 3
FLAGS = (
    "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "gc.auto=0", "-c",
    "maintenance.auto=false", "-c", "commit.gpgSign=false", "-c", "core.quotePath=false", "-c",
    "protocol.ext.allow=never", "-c", "advice.detachedHead=false",
)  # fmt: skip
OURS = (
    ":(exclude,glob)**/.aider*",
    ":(exclude,glob)**/__pycache__/**",
    ":(exclude,glob)**/.opencode/.gitignore",
)


_INDEX = re.compile(r"index file (?:smaller|corrupt|open|signature)|bad (?:index|signature)|index uses")
# What git says where the machine is short of something: no agent's doing, and no answer about the clone.
_SHORT = re.compile(
    r"no space left|disk quota|too many open files|resource temporarily unavailable|cannot allocate memory"
    r"|out of memory|input/output error| exited -\d+:",
    re.IGNORECASE,
)
_NESTED = re.compile(r"'([^'\n]+?)/?' does not have a commit checked out")


class GitFailed(Exception):
    """git ended with an error; the text is its own, short."""

    def failure(self, otherwise: Failure) -> Failure:
        return Failure.INFRA_KILLED if _SHORT.search(str(self)) else otherwise


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class WorkClone:
    """`url` answers where the director's mirror can be fetched from (through the gateway), or nothing."""

    def __init__(
        self, folder: Path, audit: Path, branch: str, home: Path, url: Callable[[], str],
        limit_bytes: int = GitLimits().max_bundle_bytes,
    ) -> None:  # fmt: skip
        self.folder, self.audit, self.branch, self.url = folder, audit, branch, url
        self._limit_bytes = limit_bytes
        self._refused = 0
        self._env = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(home),
            "LC_ALL": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            # Without its own .git a clone is none: a repository that lies around it is somebody else's.
            "GIT_CEILING_DIRECTORIES": os.path.realpath(folder.parent),
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": str(folder),
        }

    def _git(
        self, *args: str, input: bytes = b"", env: Mapping[str, str] | None = None, ok: Sequence[int] = (0,)
    ) -> bytes:
        try:
            done = subprocess.run(
                ("git", *FLAGS, *args), cwd=self.folder, env={**self._env, **(env or {})}, input=input,
                capture_output=True, timeout=TIMEOUT_S, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as e:
            raise GitFailed(f"git {args[0]}: {e}") from e
        if done.returncode not in ok:
            text = done.stderr.decode("utf-8", "replace").strip()[-STDERR_CHARS:]
            raise GitFailed(f"git {args[0]} exited {done.returncode}: {text}")
        return done.stdout

    def _text(self, *args: str, **more: Any) -> str:
        return self._git(*args, **more).decode("utf-8", "replace").strip()

    def _is_ancestor(self, old: str, new: str) -> bool:
        try:
            self._git("merge-base", "--is-ancestor", old, new)
        except GitFailed:
            return False
        return True

    # ------------------------------------------------------------ the port

    def sync(self, base: str) -> Result[Mapping[str, Any]]:
        """The newest base, as far as it can be had; without the mirror what was cloned is good enough."""
        ref = f"refs/remotes/origin/{base}"
        try:
            what = self._fetch(base, ref)
            tip = self._text("rev-parse", "--verify", f"{ref}^{{commit}}")
            self._on_branch()
            if self._merging():
                return Ok(self._synced("a merge is under way", tip, self._conflicts()))
            if self._is_ancestor(tip, "HEAD"):
                return Ok(self._synced(what or "up to date", tip, ()))
            if self._dirty():
                return Ok(self._synced("kept: uncommitted work", self._text("merge-base", tip, "HEAD"), ()))
            self._git(
                "merge",
                "--no-edit",
                "--no-ff" if not self._is_ancestor("HEAD", tip) else "--ff-only",
                tip,
                ok=(0, 1),
            )
            return Ok(self._synced("merged", tip, self._conflicts()))
        except GitFailed as e:
            return Err(Failure.INFRA_GATEWAY, str(e))

    def _fetch(self, base: str, ref: str) -> str:
        url = self.url()
        if not url:
            return ""
        try:
            self._git("fetch", "--no-tags", "--no-write-fetch-head", url, f"+refs/heads/{base}:{ref}")
        except GitFailed:
            return "not fetched"
        return ""

    @staticmethod
    def _synced(what: str, tip: str, conflicts: Sequence[str]) -> dict[str, Any]:
        return {"what": what, "base_sha": tip, "conflicts": list(conflicts)}

    def _merging(self) -> bool:
        return (self.folder / ".git" / "MERGE_HEAD").exists()

    def _conflicts(self) -> tuple[str, ...]:
        raw = self._git("diff", "--name-only", "-z", "--diff-filter=U")
        return tuple(n.decode("utf-8", "replace") for n in raw.split(b"\0") if n)

    def _dirty(self) -> list[str]:
        raw = self._git(
            "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames", "--", ".", *OURS
        )
        return [n[3:].decode("utf-8", "replace") for n in raw.split(b"\0") if n]

    def _on_branch(self) -> None:
        """An agent may have left a detached head or a branch of its own:
        the work branch goes to where it is."""
        at = self._text("symbolic-ref", "--quiet", "--short", "HEAD", ok=(0, 1))
        if at != self.branch:
            self._git("branch", "--force", self.branch, "HEAD")
            self._git("symbolic-ref", "HEAD", f"refs/heads/{self.branch}")

    def look(self, base_sha: str) -> Result[WorkTree]:
        """What is in the clone. An agent may have left it such that git refuses: after a few looks that is an
        answer, since waiting would not mend it."""
        found = self._look(base_sha)
        short = isinstance(found, Err) and _SHORT.search(found.detail) is not None
        refused = isinstance(found, Err) and " exited 128: " in found.detail and not short
        self._refused = self._refused + 1 if refused else 0
        if isinstance(found, Err) and self._refused >= BROKEN_LOOKS:
            if _INDEX.search(found.detail) and self._renew_index():
                return self._look(base_sha)
            return Ok(WorkTree("", base_sha, 0, broken=found.detail.splitlines()[0][:300]))
        return found

    def _renew_index(self) -> bool:
        """An index that was cut off when its writer died says nothing that the files do not say too."""
        try:
            (self.folder / ".git" / "index").unlink()
            self._git("read-tree", "HEAD")
        except (GitFailed, OSError):
            return False
        return True

    def _look(self, base_sha: str) -> Result[WorkTree]:
        try:
            dirty = self._dirty()
            git_dir = self.folder / ".git"
            busy = self._merging() or any(
                (git_dir / n).exists() for n in ("rebase-merge", "rebase-apply", "index.lock")
            )
            ahead = int(self._text("rev-list", "--count", f"{base_sha}..HEAD"))
            return Ok(
                WorkTree(
                    self._text("rev-parse", "HEAD"), base_sha, len(dirty), tuple(dirty[:50]), ahead, busy
                )
            )
        except (GitFailed, ValueError) as e:
            return Err(Failure.INFRA_KILLED, str(e))

    def commit(
        self, message: str, author: tuple[str, ...], at: float, base_sha: str
    ) -> Result[Mapping[str, Any]]:
        when = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00")
        name, mail = (*author, "harness", "harness@localhost")[:2] if len(author) < 2 else author[:2]
        who = {
            f"GIT_{r}_{k}": v
            for r in ("AUTHOR", "COMMITTER")
            for k, v in (("NAME", name), ("EMAIL", mail), ("DATE", when))
        }
        try:
            free_clone(self.folder)
            self._on_branch()
            self._git("add", "--all", "--", ".", *OURS)
            staged = self._git("diff", "--cached", "--name-only", "-z")
            if staged or self._merging():
                self._git(
                    "commit",
                    "--no-verify",
                    "--cleanup=whitespace",
                    "--file=-",
                    input=message.encode(),
                    env=who,
                )
            sha = self._text("rev-parse", "HEAD")
            same = self._text("rev-parse", f"{sha}^{{tree}}") == self._text(
                "rev-parse", f"{base_sha}^{{tree}}"
            )
            return Ok({"sha": sha, "changed": not same})
        except GitFailed as e:
            nested = _NESTED.search(str(e))
            if nested is None:
                return Err(e.failure(Failure.AGENT_FAILED), str(e))
            text = f"{nested[1]} is a repository of its own, not a submodule: remove its .git folder"
            return Err(Failure.POLICY_VIOLATION, f"NESTED_REPO: {text}")

    def bundle(self, sha: str, base_sha: str) -> Result[Path]:
        path = self.audit / "work.bundle"
        try:
            self._git("bundle", "create", "--quiet", str(path), f"refs/heads/{self.branch}", f"^{base_sha}")
            size, limit = path.stat().st_size, self._limit_bytes
            if size > limit:
                text = f"FILE_TOO_LARGE: the work has {size} bytes, more than {limit}; the largest files: "
                return Err(Failure.POLICY_VIOLATION, text + ", ".join(self._largest(base_sha)))
        except GitFailed as e:
            return Err(e.failure(Failure.AGENT_FAILED), str(e))
        return Ok(path)

    def _largest(self, base_sha: str) -> list[str]:
        """The largest files of the whole range, also of those that a later commit removed."""
        listed = self._git("rev-list", "--objects", f"refs/heads/{self.branch}", f"^{base_sha}")
        rows = self._git("cat-file", "--batch-check=%(objecttype) %(objectsize) %(rest)", input=listed)
        sizes = []
        for row in rows.decode("utf-8", "replace").splitlines():
            kind, size, name = (*row.split(" ", 2), "", "")[:3]
            if kind == "blob":
                sizes.append((int(size), name))
        return [f"{name} ({size} bytes)" for size, name in sorted(sizes, reverse=True)[:LARGEST]]

    def save(self, name: str, base_sha: str) -> Result[Mapping[str, Any]]:
        """Everything that is not in the base, committed or not, as a patch and as a bundle,
        through an index of its own."""
        patches = self.audit / "patches"
        patches.mkdir(parents=True, exist_ok=True)
        index = {"GIT_INDEX_FILE": str(self.audit / "saved.index")}
        who = {
            f"GIT_{r}_{k}": v
            for r in ("AUTHOR", "COMMITTER")
            for k, v in (("NAME", "harness"), ("EMAIL", "harness@localhost"))
        }
        try:
            free_clone(self.folder)
            self._git("read-tree", "HEAD", env=index)
            self._git("add", "--all", "--", ".", *OURS, env=index)
            tree = self._text("write-tree", env=index)
            if tree == self._text("rev-parse", f"{base_sha}^{{tree}}"):
                return Ok({"saved": False})
            patch = self._git("diff", "--binary", "--no-ext-diff", "--no-textconv", base_sha, tree)
            (patches / f"{name}.patch").write_bytes(patch)
            sha = self._text("commit-tree", tree, "-p", "HEAD", "-m", f"Saved work: {name}", env=who)
            self._git("update-ref", "refs/harness/saved", sha)
            self._git(
                "bundle",
                "create",
                "--quiet",
                str(patches / "saved.bundle"),
                "refs/harness/saved",
                f"^{base_sha}",
            )
            (self.audit / "saved.json").write_text(json.dumps({"sha": sha, "name": name}))
            # Once it is said to be saved the clone goes: it must be there also after a crash of the machine.
            for path in (patches / f"{name}.patch", patches / "saved.bundle", self.audit / "saved.json"):
                _sync(path)
            return Ok({"saved": True, "sha": sha})
        except (GitFailed, OSError) as e:
            return Err(Failure.INFRA_KILLED, str(e))
        finally:
            (self.audit / "saved.index").unlink(missing_ok=True)
