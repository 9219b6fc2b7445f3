"""Git on one bare repository, by plumbing only and with a clean environment.

The one rule: no configuration, hook or prompt of the host can change what happens here.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Container, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ZERO = "0" * 40
_SHA = re.compile(r"[0-9a-f]{40}")
_BAD_REF = re.compile(r"[\x00-\x20~^:?*\[\\\x7f]|\.\.|@\{|//|/\.|\.lock(/|$)|^/|/$|\.$|^-|/-|^@$")
_LOG_FORMAT = "%H%x00%T%x00%P%x00%an%x00%ae%x00%at%x00%cn%x00%ce%x00%ct%x00%B%x00%x01"
CONFIG = (
    ("core.hooksPath", "/dev/null"),
    ("safe.directory", "*"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
)
REPO_CONFIG = (
    ("http.receivepack", "true"),
    ("http.uploadpack", "true"),
    ("receive.hideRefs", "refs/pull"),
    ("uploadpack.allowFilter", "true"),
    ("uploadpack.allowAnySHA1InWant", "true"),
    ("receive.autogc", "false"),
    ("core.logAllRefUpdates", "false"),
)


class GitFailed(Exception):
    """A git command that ended otherwise than expected: its arguments, its exit status, its last words."""

    def __init__(self, args: tuple[str, ...], code: int, stderr: str) -> None:
        super().__init__(f"git {' '.join(args)} exited {code}: {stderr.strip()[-500:]}")
        self.code = code
        self.stderr = stderr


def environment(config: tuple[tuple[str, str], ...] = CONFIG) -> dict[str, str]:
    """An environment in which git reads no configuration but the repository's and ``config``."""
    env = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": "/nonexistent",
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_COUNT": str(len(config)),
    }
    for index, (key, value) in enumerate(config):
        env[f"GIT_CONFIG_KEY_{index}"] = key
        env[f"GIT_CONFIG_VALUE_{index}"] = value
    return env


@dataclass(frozen=True)
class Person:
    name: str
    email: str
    at: int

    @property
    def date(self) -> str:
        return datetime.fromtimestamp(self.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Commit:
    sha: str
    tree: str
    parents: tuple[str, ...]
    author: Person
    committer: Person
    message: str


@dataclass(frozen=True)
class Change:
    """One file of a diff. ``status`` is GitHub's word; ``blob`` the new side's, the old one's if removed."""

    path: str
    old_path: str | None
    status: str
    blob: str
    additions: int
    deletions: int
    patch: str | None


def valid_ref(name: str) -> bool:
    """Whether git would accept ``name`` (see git-check-ref-format) below refs/."""
    return bool(name) and len(name) < 250 and not _BAD_REF.search(name) and not name.startswith(".")


def is_sha(text: str) -> bool:
    return bool(_SHA.fullmatch(text))


@dataclass(frozen=True)
class Bare:
    """One bare repository."""

    path: Path
    timeout_s: float = 120.0

    def raw(
        self,
        *args: str,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        ok: Container[int] = (0,),
    ) -> tuple[int, bytes]:
        done = subprocess.run(
            ["git", f"--git-dir={self.path}", *args],
            input=stdin if stdin is not None else b"",
            capture_output=True,
            env={**environment(), **(env or {})},
            timeout=self.timeout_s,
            check=False,
        )
        if done.returncode not in ok:
            raise GitFailed(args, done.returncode, done.stderr.decode("utf-8", "replace"))
        return done.returncode, done.stdout

    def text(self, *args: str, stdin: bytes | None = None, env: Mapping[str, str] | None = None) -> str:
        return self.raw(*args, stdin=stdin, env=env)[1].decode("utf-8", "replace")

    @staticmethod
    def create(path: Path, default_branch: str) -> Bare:
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["git", "init", "-q", "--bare", f"--initial-branch={default_branch}", "--template=", str(path)],
            env=environment(),
            check=True,
            capture_output=True,
            timeout=60,
        )
        with (path / "config").open("a", encoding="utf-8") as config:  # one write, not a process each
            for key, value in REPO_CONFIG:
                section, _, name = key.partition(".")
                config.write(f"[{section}]\n\t{name} = {value}\n")
        return Bare(path)

    # -- refs -------------------------------------------------------------------------------------

    def refs(self, *prefixes: str) -> dict[str, str]:
        """Every ref below the prefixes (all when none is given): full name to the object's SHA."""
        out = self.text("for-each-ref", "--format=%(objectname) %(refname)", *prefixes)
        pairs = (line.split(" ", 1) for line in out.splitlines())
        return {name: sha for sha, name in pairs}

    def ref(self, full_name: str) -> str | None:
        code, out = self.raw("show-ref", "--verify", "--hash", full_name, ok=(0, 1, 128))
        return out.decode().strip() if code == 0 else None

    def branch(self, name: str) -> str | None:
        return self.ref(f"refs/heads/{name}") if valid_ref(name) else None

    def kind(self, sha: str) -> str | None:
        """The type of an object ("commit", "tag", "tree", "blob"), None when it is not here or no SHA."""
        if not is_sha(sha):
            return None
        code, out = self.raw("cat-file", "-t", sha, ok=(0, 1, 128))
        return out.decode().strip() if code == 0 else None

    def resolve(self, name: str) -> str | None:
        """The commit that a branch, tag, ref or SHA means; branches win, as they do on GitHub."""
        if not name or name.startswith("-") or "\n" in name:
            return None
        tries = [name] if is_sha(name) else [f"refs/heads/{name}", name]
        for candidate in tries:
            spec = candidate + "^{commit}"
            code, out = self.raw("rev-parse", "--verify", "--quiet", "--end-of-options", spec, ok=(0, 1, 128))
            if code == 0:
                return out.decode().strip().splitlines()[-1]
        return None

    def set_ref(self, full_name: str, new: str, old: str | None = None) -> bool:
        """Move a ref; with ``old`` (ZERO: must not exist) only from there. False when it had moved."""
        args = ["update-ref", full_name, new] + ([old] if old is not None else [])
        code, _ = self.raw(*args, ok=(0, 1, 128))
        return code == 0

    def delete_ref(self, full_name: str, old: str | None = None) -> bool:
        args = ["update-ref", "-d", full_name] + ([old] if old is not None else [])
        return self.raw(*args, ok=(0, 1, 128))[0] == 0

    # -- history ----------------------------------------------------------------------------------

    def log(self, *revisions: str, limit: int = 250) -> list[Commit]:
        """Commits, newest first."""
        args = ("log", f"--max-count={limit}", f"--format={_LOG_FORMAT}", *revisions, "--")
        return [_commit(part) for part in self.text(*args).split("\x01") if part.strip("\n")]

    def commit(self, sha: str) -> Commit:
        return self.log("--no-walk", sha, limit=1)[0]

    def merge_base(self, one: str, two: str) -> str | None:
        code, out = self.raw("merge-base", one, two, ok=(0, 1))
        return out.decode().split()[0] if code == 0 else None

    def contains(self, tip: str, sha: str) -> bool:
        """Whether ``sha`` is reachable from ``tip``."""
        return self.raw("merge-base", "--is-ancestor", sha, tip, ok=(0, 1))[0] == 0

    def count(self, base: str, head: str) -> tuple[int, int]:
        """How many commits (only base has, only head has)."""
        left, right = self.text("rev-list", "--left-right", "--count", f"{base}...{head}").split()
        return int(left), int(right)

    def changes(self, old: str, new: str, *, patches: bool = True) -> list[Change]:
        """What differs from ``old`` to ``new`` (commits or trees), renames found."""
        out = self.raw("diff-tree", "-r", "-M", "--raw", "--numstat", "--abbrev=40", "-z", old, new)[1]
        files = _parse_changes(out.decode("utf-8", "surrogateescape").split("\x00"))
        if not patches or not files:
            return files
        diff = self.raw("diff-tree", "-r", "-M", "-p", "--no-color", "--no-ext-diff", old, new)[1]
        texts = re.split(r"(?m)^diff --git .*\n", diff.decode("utf-8", "replace"))[1:]
        if len(texts) != len(files):
            return files
        return [_with_patch(change, text) for change, text in zip(files, texts, strict=True)]

    # -- objects ----------------------------------------------------------------------------------

    def merge_tree(self, ours: str, theirs: str) -> str | None:
        """The tree of a three-way merge, None when it conflicts (or the histories are unrelated)."""
        args = ("merge-tree", "--write-tree", "--no-messages", ours, theirs)
        code, out = self.raw(*args, ok=(0, 1, 128))
        return out.decode().split("\n", 1)[0] if code == 0 else None

    def commit_tree(
        self, tree: str, parents: tuple[str, ...], message: str, author: Person, committer: Person
    ) -> str:
        env = {
            "GIT_AUTHOR_NAME": author.name,
            "GIT_AUTHOR_EMAIL": author.email,
            "GIT_AUTHOR_DATE": f"@{author.at} +0000",
            "GIT_COMMITTER_NAME": committer.name,
            "GIT_COMMITTER_EMAIL": committer.email,
            "GIT_COMMITTER_DATE": f"@{committer.at} +0000",
        }
        args = ["commit-tree", tree]
        for parent in parents:
            args += ["-p", parent]
        return self.text(*args, stdin=message.encode(), env=env).strip()


def _commit(part: str) -> Commit:
    fields = part.lstrip("\n").split("\x00")
    sha, tree, parents, an, ae, at, cn, ce, ct, message = fields[:10]
    author, committer = Person(an, ae, int(at)), Person(cn, ce, int(ct))
    return Commit(sha, tree, tuple(parents.split()), author, committer, message.rstrip("\n"))


_STATUS = {"A": "added", "D": "removed", "M": "modified", "R": "renamed", "C": "copied", "T": "changed"}


def _parse_changes(fields: list[str]) -> list[Change]:
    """Read ``diff-tree --raw --numstat -z``: first all raw entries, then all numstat ones, in one order."""
    raw: list[tuple[str, str, str | None, str]] = []
    index = 0
    while index < len(fields) and fields[index].startswith(":"):
        _, _, old_blob, new_blob, letter = fields[index].split(" ")
        if letter[0] in "RC":
            old_path, path = fields[index + 1], fields[index + 2]
            index += 3
        else:
            old_path, path = None, fields[index + 1]
            index += 2
        raw.append((letter[0], path, old_path, old_blob if letter[0] == "D" else new_blob))
    changes = []
    for letter, path, old_path, blob in raw:
        added, deleted, name = fields[index].split("\t")
        index += 3 if name == "" else 1
        plus, minus = (int(text) if text.isdigit() else 0 for text in (added, deleted))
        changes.append(Change(path, old_path, _STATUS.get(letter, "changed"), blob, plus, minus, None))
    return changes


def _with_patch(change: Change, text: str) -> Change:
    at = text.find("@@")
    if at < 0:
        return change
    patch = text[at:].rstrip("\n")
    return Change(
        change.path, change.old_path, change.status, change.blob, change.additions, change.deletions, patch
    )
