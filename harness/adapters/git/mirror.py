"""The mirror: a bare copy of the forge's repository that only the director writes, and what is read from it.

The one rule: nothing in it is ever pruned, since clones borrow its objects; refs are written under its lock.
Its `refs/heads` and `refs/tags` are the forge's; `refs/harness` is ours; other refs of the forge are
below `refs/forge`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.adapters.git.errors import FailedError, Ran, classify, fail
from harness.adapters.git.limits import GitLimits
from harness.adapters.git.locks import RepositoryLock, heal
from harness.adapters.git.runner import Runner, config_line
from harness.domain import Merged
from harness.failures import Failure

# CVE-2024-32002, -32004, -32020, -32021, -32465: local clones and submodules that run code.
OLDEST = (2, 39, 4)
_SHA = re.compile(r"[0-9a-f]{40}")
_REF = re.compile(r"refs/[^\x00-\x20\x7f~^:?*\[\\]+")
_LOCKED = re.compile(r"unable to create '[^']*\.lock'|\.lock': File exists", re.IGNORECASE)


def checked_sha(sha: str, what: str = "commit") -> str:
    if not _SHA.fullmatch(sha):
        raise fail(Failure.INTERNAL_ERROR, f"{what} must be a SHA of 40 hex digits, not {sha[:60]!r}")
    return sha


def checked_ref(ref: str) -> str:
    bad = (
        not _REF.fullmatch(ref)
        or any(x in ref for x in ("..", "@{", "//"))
        or ref.endswith(("/", ".", ".lock"))
    )
    if bad or any(part.startswith(".") or part.endswith(".lock") for part in ref.split("/")):
        raise fail(Failure.INTERNAL_ERROR, f"not a full name of a ref: {ref[:100]!r}")
    return ref


class Mirror:
    """`mirror.git`. Raises FailedError; `GitRepo` turns that into results."""

    def __init__(
        self, path: Path, runner: Runner, limits: GitLimits, author: tuple[str, str], began: float
    ) -> None:
        self.path = path
        self.objects = path / "objects"
        self._git = runner
        self._limits = limits
        self._author = author
        self._began = began
        self._lock = RepositoryLock(path.with_suffix(".lock"))

    # ------------------------------------------------------------ making it

    def prepare(self) -> None:
        check_version(self._git)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.writing():
            make_bare(self._git, self.path)
            heal(self.path, began=self._began, held=True)

    @contextmanager
    def writing(self) -> Iterator[int]:
        """Hold the lock for writing refs. New objects need none: git gives them their names by content."""
        with self._lock.hold(self._limits.lock_s) as held:
            yield held

    def healed(self, ran: Ran) -> bool:
        """Whether the command failed over a stale lock that is gone now, so that it may be tried again. Ask only
        while `writing`."""
        locked = ran.code != 0 and bool(_LOCKED.search(ran.err))
        return locked and bool(heal(self.path, began=self._began, held=True))

    # ------------------------------------------------------------ refs

    def fetch(self, refs: Sequence[str]) -> Mapping[str, str]:
        """Branches and tags, pruned; or only `refs`, of which those that do not exist are left out."""
        if not refs:
            self._fetch("--prune", specs=("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"))
            return self.refs("refs/heads/", "refs/tags/")
        found = {r: s for r, s in self.remote_refs(tuple(checked_ref(r) for r in refs)).items() if r in refs}
        if found:
            self._fetch(specs=tuple(f"+{ref}:{local_name(ref)}" for ref in found))
        here = self.refs(*(local_name(ref) for ref in found))
        return {ref: here[local_name(ref)] for ref in found if local_name(ref) in here}

    def _fetch(self, *flags: str, specs: Sequence[str]) -> None:
        # fetch.fsckObjects stays off here: the forge is trusted, and old histories hold odd objects.
        args = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", *flags, self._git.remote, *specs)
        with self.writing() as held:
            options: dict[str, Any] = {
                "git_dir": self.path,
                "deadline_s": self._limits.fetch_s,
                "holding": held,
            }
            ran = self._git.net(*args, **options)
            if self.healed(ran):
                ran = self._git.net(*args, **options)
        if ran.code != 0:
            raise FailedError(classify(ran, what="fetching from the forge"))

    def refs(self, *prefixes: str) -> dict[str, str]:
        ran = self._git.ok("for-each-ref", "--format=%(objectname) %(refname)", *prefixes, git_dir=self.path)
        return dict(_pairs(ran.text))

    def remote_refs(
        self, patterns: Sequence[str] = ("refs/heads/*", "refs/tags/*", "refs/harness/*")
    ) -> dict[str, str]:
        ran = self._git.net("ls-remote", self._git.remote, *patterns, deadline_s=self._limits.look_s)
        if ran.code != 0:
            raise FailedError(classify(ran, what="asking the forge for its branches"))
        return dict(_pairs(ran.text, tab=True))

    def keep(self, ref: str, sha: str) -> None:
        if not checked_ref(ref).startswith("refs/harness/"):
            raise fail(Failure.INTERNAL_ERROR, f"only refs/harness/… is ours to keep, not {ref}")
        with self.writing() as held:
            ran = self._git.run("update-ref", ref, checked_sha(sha), git_dir=self.path, holding=held)
            if self.healed(ran):
                ran = self._git.run("update-ref", ref, sha, git_dir=self.path, holding=held)
        if ran.code != 0:
            raise FailedError(classify(ran, what=f"keeping {ref}"))

    def forget_old(self, held: int) -> None:
        """All but the newest marks of bundles that were taken over, and of work that was saved. Their objects
        stay: nothing is pruned; a saved work is also a patch in its attempt's bundle."""
        bounds = {"import": self._limits.max_imports, "saved": self._limits.max_saved}
        for kind, most in bounds.items():
            args = ("--sort=-committerdate", "--format=delete %(refname)", f"refs/harness/{kind}/")
            old = self._git.ok("for-each-ref", *args, git_dir=self.path).text.splitlines()
            if rest := old[most:]:
                feed = ("\n".join(rest) + "\n").encode()
                self._git.ok("update-ref", "--stdin", git_dir=self.path, feed=feed, holding=held)

    def tidy(self) -> None:
        """Fewer packs and one file of refs. Objects are only ever moved together, never dropped."""
        with self.writing() as held:
            options: dict[str, Any] = {
                "git_dir": self.path,
                "deadline_s": self._limits.fetch_s,
                "holding": held,
            }
            self._git.ok("pack-refs", "--all", **options)
            self._git.ok("repack", "-d", "-q", "--geometric=2", **options)

    # ------------------------------------------------------------ reading

    def _asked(self, *args: str) -> Ran:
        """A question about objects. A git that was killed or stopped gave no answer: that is never "not there"."""
        ran = self._git.run(*args, git_dir=self.path)
        if ran.unanswered:
            raise FailedError(classify(ran))
        return ran

    def has(self, sha: str, kind: str = "commit") -> bool:
        return self._asked("cat-file", "-e", f"{checked_sha(sha)}^{{{kind}}}").code == 0

    def tree(self, sha: str) -> str:
        ran = self._asked("rev-parse", "--verify", "--quiet", f"{checked_sha(sha)}^{{tree}}")
        if ran.code != 0:
            raise fail(Failure.INTERNAL_ERROR, f"commit {sha} is not in the mirror: fetch first")
        return ran.text

    def is_ancestor(self, old: str, new: str) -> bool:
        ran = self._git.run(
            "merge-base", "--is-ancestor", checked_sha(old), checked_sha(new), git_dir=self.path
        )
        if ran.code not in (0, 1) or ran.closed or ran.late:
            self.tree(old), self.tree(new)
            raise FailedError(classify(ran))
        return ran.code == 0

    def read_file(self, sha: str, path: str) -> bytes | None:
        """The bytes of one file as committed. A link is refused, never followed; a folder is no file."""
        if "\0" in path or not path.strip("/"):
            return None
        raw = self._git.run("ls-tree", "-z", checked_sha(sha), "--", path.strip("/"), git_dir=self.path)
        if raw.code != 0:
            self.tree(sha)
            raise FailedError(classify(raw))
        entry = raw.out.split(b"\0")[0].partition(b"\t")[0].decode()
        if not entry:
            return None
        mode, kind, blob = entry.split()
        if mode == "120000":
            raise fail(Failure.POLICY_VIOLATION, f"{path} is a symbolic link, which is not followed")
        if kind != "blob":
            return None
        limit = self._limits.max_read_bytes
        ran = self._git.run("cat-file", "blob", blob, git_dir=self.path, output_bytes=limit)
        if ran.flooded:
            raise fail(Failure.POLICY_VIOLATION, f"FILE_TOO_LARGE: {path} is larger than {limit} bytes")
        if ran.code != 0:
            raise FailedError(classify(ran, what=f"reading {path}"))
        return ran.out

    def message(self, sha: str) -> str:
        ran = self._git.ok(
            "cat-file", "commit", checked_sha(sha), git_dir=self.path, what=f"reading commit {sha}"
        )
        return ran.out.partition(b"\n\n")[2].decode("utf-8", "replace").rstrip("\n")

    # ------------------------------------------------------------ building

    def commit(self, tree: str, parents: Sequence[str], message: str, at: float) -> str:
        """A commit object. The same arguments make the same SHA: author, date and zone are all given."""
        name, email = self._author
        env = {
            f"GIT_{who}_{key}": value
            for who in ("AUTHOR", "COMMITTER")
            for key, value in (("NAME", name), ("EMAIL", email), ("DATE", f"@{int(at)} +0000"))
        }
        args = [x for p in parents for x in ("-p", checked_sha(p, "parent"))]
        text = message.replace("\0", "").rstrip("\n") + "\n"
        feed = text.encode("utf-8", "replace")
        return self._git.ok(
            "commit-tree", tree, *args, git_dir=self.path, feed=feed, env=env, what="committing"
        ).text

    def note(self, message: str, parent: str, at: float) -> str:
        empty = self._git.ok("hash-object", "-t", "tree", "-w", "--stdin", git_dir=self.path).text
        return self.commit(empty, (parent,) if parent else (), message, at)

    def merge(self, base: str, head: str, message: str, at: float) -> Merged:
        """`head` already in `base`: nothing to build, the answer is `base` itself."""
        if self.is_ancestor(head, base):
            return Merged(base, self.tree(base), base, head)
        args = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", base, head)
        ran = self._git.run(*args, git_dir=self.path, deadline_s=self._limits.clone_s)
        parts = ran.out.split(b"\0")
        if ran.code == 1 and parts[0]:
            names = sorted({p.decode("utf-8", "replace") for p in parts[1:] if p})
            raise fail(Failure.CONFLICT, f"{head[:12]} conflicts with {base[:12]} in {listed(names)}")
        if ran.code != 0 and "unrelated histories" in ran.err:
            raise fail(Failure.CONFLICT, f"{head[:12]} shares no history with {base[:12]}")
        if ran.code != 0:
            raise FailedError(classify(ran, what=f"merging {head[:12]} into {base[:12]}"))
        tree = parts[0].decode()
        return Merged(self.commit(tree, (base, head), message, at), tree, base, head)


def make_bare(git: Runner, path: Path) -> None:
    """Make a bare repository, or finish one whose making was interrupted. Its configuration is written anew
    each time, so nothing that somebody added there lives on."""
    if not (path / "HEAD").is_file():
        git.ok("init", "--quiet", "--bare", "--template=", "--initial-branch=harness-none", str(path))
    pairs = (("core.repositoryformatversion", "0"), ("core.bare", "true"), ("core.filemode", "true"),
             ("core.logAllRefUpdates", "false"), ("gc.auto", "0"), ("gc.pruneExpire", "never"))  # fmt: skip
    partial = path / "config.new"
    partial.write_text("".join(config_line(k, v) for k, v in pairs), encoding="utf-8")
    partial.replace(path / "config")
    shutil.rmtree(path / "hooks", ignore_errors=True)


def check_version(git: Runner) -> tuple[int, ...]:
    ran = git.run("version")
    numbers = re.search(r"(\d+)\.(\d+)\.(\d+)", ran.text)
    if ran.code != 0 or numbers is None:
        raise FailedError(classify(ran, what="git version"))
    found = tuple(int(x) for x in numbers.groups())
    if found < OLDEST:
        text = f"git {numbers[0]} has known holes (CVE-2024-32002 and others): install 2.39.4 or newer"
        raise fail(Failure.CONFIG_INVALID, text)
    return found


def local_name(ref: str) -> str:
    """Where a ref of the forge lives in the mirror."""
    return ref if ref.startswith(("refs/heads/", "refs/tags/")) else "refs/forge/" + ref.removeprefix("refs/")


def listed(names: Sequence[str], most: int = 10) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _pairs(text: str, *, tab: bool = False) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        sha, _, ref = line.partition("\t" if tab else " ")
        if _SHA.fullmatch(sha) and ref.startswith("refs/"):
            yield ref, sha
