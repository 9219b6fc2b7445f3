"""The Repo port in memory: commits as values, a remote that a forge in memory can look at too.

The one rule: nothing has a clock or a thread, and every method answers what git would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.adapters.memory.commits import (
    Commits,
    MemoryCommit,
    changes,
    grown,
    history,
    merge_commits,
    reaches,
)
from harness.core.result import Err, Ok, Result
from harness.domain import Imported, Merged
from harness.failures import Failure


@dataclass(slots=True)
class MemoryRemote:
    """The repository at the forge. `on_push` is called with (ref, old SHA, new SHA) after each push; `rules`
    before it: a rule that answers a text refuses the push."""

    refs: dict[str, str] = field(default_factory=dict)
    commits: Commits = field(default_factory=dict)
    on_push: list[Callable[[str, str, str], None]] = field(default_factory=list)
    rules: list[Callable[[str, str, str], str | None]] = field(default_factory=list)

    def write(self, ref: str, files: Mapping[str, str | None], message: str, at: float = 0.0) -> str:
        """A person's commit on top of a ref; None deletes a file. Answers the SHA."""
        parent = self.refs.get(ref, "")
        commit = grown(self.commits, (parent,) if parent else (), files, message, at)
        self.commits[commit.sha] = commit
        self.set(ref, commit.sha)
        return commit.sha

    def is_ancestor(self, old: str, new: str) -> bool:
        return reaches(self.commits, new, old)

    def merge(self, base: str, head: str, message: str, at: float) -> str | None:
        """What a forge's merge button makes: a commit that no ref points to yet. None: they conflict."""
        if base not in self.commits or head not in self.commits:
            return None
        merged = merge_commits(self.commits, base, head, message, at)
        if not isinstance(merged, Ok):
            return None
        self.commits[merged.value.sha] = merged.value
        return merged.value.sha

    def set(self, ref: str, sha: str) -> None:
        """Move a ref, or delete it with an empty SHA, and tell who listens."""
        old = self.refs.get(ref, "")
        if sha:
            self.refs[ref] = sha
        else:
            self.refs.pop(ref, None)
        for told in tuple(self.on_push):
            told(ref, old, sha)


@dataclass(frozen=True, slots=True)
class MemoryFolder:
    """A clone or checkout, on the books only."""

    kind: str
    sha: str
    branch: str = ""
    base: str = ""


class MemoryRepo:
    """The director's mirror in memory. `folders` are the clones and checkouts that exist; `outside` is what
    workers have committed and not handed over yet."""

    def __init__(
        self,
        remote: MemoryRemote,
        *,
        max_commits: int = 500,
        max_files: int = 300,
        max_file_bytes: int = 5 << 20,
    ) -> None:
        self.remote = remote
        self.refs: dict[str, str] = {}
        self.commits: Commits = {}
        self.outside: Commits = {}
        self.folders: dict[Path, MemoryFolder] = {}
        self.bundles: dict[Path, str] = {}
        self._max_commits = max_commits
        self._max_files = max_files
        self._max_file_bytes = max_file_bytes

    # ------------------------------------------------------------ what a worker would do

    def write(
        self, parents: Sequence[str], files: Mapping[str, str | None], message: str, at: float = 0.0
    ) -> str:
        """A worker's commit: `files` on top of the first parent. It is nowhere but in that worker's clone."""
        commit = grown(self._everything(), parents, files, message, at)
        self.outside[commit.sha] = commit
        return commit.sha

    def register_bundle(self, path: Path, sha: str) -> None:
        """From now on `path` stands for a bundle that offers `sha`."""
        self.bundles[path] = sha

    # ------------------------------------------------------------ the port

    def prepare(self) -> Result[None]:
        return Ok(None)

    def fetch(self, refs: Sequence[str] = ()) -> Result[Mapping[str, str]]:
        theirs = self.remote.refs
        if not refs:
            ours = {r: s for r, s in theirs.items() if r.startswith(("refs/heads/", "refs/tags/"))}
            self.refs = {r: s for r, s in self.refs.items() if r.startswith("refs/harness/")} | ours
            self._take(self.remote.commits, *ours.values())
            return Ok(dict(sorted(ours.items())))
        found = {r: theirs[r] for r in refs if r in theirs}
        self._take(self.remote.commits, *found.values())
        self.refs.update({r: s for r, s in found.items() if r.startswith(("refs/heads/", "refs/tags/"))})
        return Ok(found)

    def remote_refs(self) -> Result[Mapping[str, str]]:
        return Ok(dict(sorted(self.remote.refs.items())))

    def push(self, ref: str, sha: str, expect: str | None) -> Result[str]:
        now = self.remote.refs.get(ref, "")
        if sha and sha not in self.commits:
            return Err(Failure.INTERNAL_ERROR, f"{sha} is not in the mirror, so it cannot be pushed to {ref}")
        if now == sha:
            return Ok(sha)
        if now != (expect or ""):
            return Err(
                Failure.CONFLICT,
                f"{ref} was expected to be at {expect or 'nothing'} and is at {now or 'nothing'}",
            )
        clash = next(
            (r for r in self.remote.refs if r.startswith(f"{ref}/") or ref.startswith(f"{r}/")), None
        )
        if sha and clash:
            return Err(Failure.CONFIG_INVALID, f"PREFIX_CONFLICT: {ref} cannot exist beside {clash}")
        for rule in self.remote.rules:
            refusal = rule(ref, now, sha)
            if refusal:
                return Err(Failure.POLICY_VIOLATION, f"pushing {ref}: the forge refused it: {refusal}")
        self.remote.commits.update({c.sha: c for c in history(self.commits, [sha], self.remote.commits)})
        self.remote.set(ref, sha)
        return Ok(sha)

    def clone(self, folder: Path, sha: str, branch: str, base: str) -> Result[None]:
        base = base.removeprefix("refs/heads/")
        if f"refs/heads/{base}" not in self.refs:
            return Err(Failure.CONFIG_INVALID, f"BASE_UNKNOWN: the forge has no branch {base}")
        return self._place(folder, MemoryFolder("clone", sha, branch.removeprefix("refs/heads/"), base))

    def checkout(self, folder: Path, sha: str) -> Result[None]:
        return self._place(folder, MemoryFolder("checkout", sha))

    def _place(self, folder: Path, wanted: MemoryFolder) -> Result[None]:
        if wanted.sha not in self.commits:
            return self._unknown(wanted.sha)
        there = self.folders.setdefault(folder, wanted)
        if there != wanted:
            was = f"{there.branch or there.kind} at {there.sha}"
            return Err(Failure.CONFLICT, f"{folder} holds {was}, not what is asked for: discard it first")
        return Ok(None)

    def discard(self, folder: Path) -> Result[None]:
        self.folders.pop(folder, None)
        return Ok(None)

    def import_bundle(self, bundle: Path, sha: str, base: str) -> Result[Imported]:
        if base not in self.commits:
            return Err(Failure.CONFIG_INVALID, f"BASE_UNKNOWN: base {base} is not in the mirror: fetch first")
        if sha == base:
            return Ok(Imported(sha, base, 0, ()))
        ref = f"refs/harness/import/{sha}"
        everything = self.commits if ref in self.refs else self._everything()
        if ref not in self.refs:
            if bundle not in self.bundles:
                return Err(Failure.INFRA_KILLED, f"there is no bundle at {bundle}")
            if self.bundles[bundle] != sha or sha not in everything:
                return _refused(f"it does not offer commit {sha}")
        if not reaches(everything, sha, base):
            return Err(Failure.CONFLICT, f"detached: {sha} does not build on {base}")
        imported = changes(everything, base, sha)
        largest = max(imported.files, key=lambda f: f.size, default=None)
        if imported.commits > self._max_commits:
            return _refused(f"it holds more than {self._max_commits} commits")
        if len(imported.files) > self._max_files:
            return _refused(f"it changes {len(imported.files)} files, more than {self._max_files}")
        if largest is not None and largest.size > self._max_file_bytes:
            text = (
                f"FILE_TOO_LARGE: {largest.path} has {largest.size} bytes, more than {self._max_file_bytes}"
            )
            return Err(Failure.POLICY_VIOLATION, text)
        self._take(everything, sha)
        self.refs[ref] = sha
        return Ok(imported)

    def changes(self, base: str, sha: str) -> Result[Imported]:
        missing = next((s for s in (base, sha) if s not in self.commits), None)
        return self._unknown(missing) if missing is not None else Ok(changes(self.commits, base, sha))

    def merge(self, base: str, head: str, message: str, at: float) -> Result[Merged]:
        missing = next((s for s in (base, head) if s not in self.commits), None)
        if missing is not None:
            return self._unknown(missing)
        if reaches(self.commits, base, head):
            return Ok(Merged(base, self.commits[base].tree_sha, base, head))
        merged = merge_commits(self.commits, base, head, message, float(int(at)))
        if isinstance(merged, Ok):
            self.commits[merged.value.sha] = merged.value
        return merged.map(lambda c: Merged(c.sha, c.tree_sha, base, head))

    def tree(self, sha: str) -> Result[str]:
        return Ok(self.commits[sha].tree_sha) if sha in self.commits else self._unknown(sha)

    def is_ancestor(self, old: str, new: str) -> Result[bool]:
        missing = next((s for s in (old, new) if s not in self.commits), None)
        return self._unknown(missing) if missing is not None else Ok(reaches(self.commits, new, old))

    def read_file(self, sha: str, path: str) -> Result[bytes | None]:
        if sha not in self.commits:
            return self._unknown(sha)
        text = self.commits[sha].tree.get(path.strip("/"))
        return Ok(None if text is None else text.encode("utf-8", "surrogateescape"))

    def note_commit(self, message: str, parent: str = "") -> Result[str]:
        if parent and parent not in self.commits:
            return self._unknown(parent)
        commit = MemoryCommit.of({}, (parent,) if parent else (), message, 0.0)
        self.commits[commit.sha] = commit
        return Ok(commit.sha)

    def message(self, sha: str) -> Result[str]:
        return Ok(self.commits[sha].message.rstrip("\n")) if sha in self.commits else self._unknown(sha)

    def keep(self, ref: str, sha: str) -> Result[None]:
        if not ref.startswith("refs/harness/"):
            return Err(Failure.INTERNAL_ERROR, f"only refs/harness/… is ours to keep, not {ref}")
        if sha not in self.commits:
            return self._unknown(sha)
        self.refs[ref] = sha
        return Ok(None)

    def preflight(self, base: str, prefix: str = "agent") -> Result[None]:
        """As `GitRepo.preflight`, of what can be wrong here."""
        branches = {r.removeprefix("refs/heads/") for r in self.remote.refs if r.startswith("refs/heads/")}
        if not branches:
            return Err(Failure.CONFIG_INVALID, "REPO_EMPTY: the repository has no commits: push a first one")
        if base.removeprefix("refs/heads/") not in branches:
            return Err(Failure.CONFIG_INVALID, f"BASE_UNKNOWN: the forge has no branch {base!r}")
        parts = prefix.split("/")
        taken = next((b for i in range(len(parts)) if (b := "/".join(parts[: i + 1])) in branches), None)
        if taken is not None:
            return Err(
                Failure.CONFIG_INVALID, f"PREFIX_CONFLICT: branch {taken!r} is there, so {prefix}/… cannot be"
            )
        return self.fetch((f"refs/heads/{base.removeprefix('refs/heads/')}",)).map(lambda _: None)

    # ------------------------------------------------------------ inside

    def _everything(self) -> Commits:
        return {**self.outside, **self.commits}

    def _take(self, source: Commits, *tips: str) -> None:
        self.commits.update({c.sha: c for c in history(source, tips, self.commits)})

    @staticmethod
    def _unknown(sha: str) -> Err:
        return Err(Failure.INTERNAL_ERROR, f"commit {sha} is not in the mirror: fetch first")


def _refused(what: str) -> Err:
    return Err(Failure.POLICY_VIOLATION, f"the bundle is refused: {what}")
