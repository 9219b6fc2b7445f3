"""Commits as values, for the repository in memory.

The one rule: SHAs are hashes of content, so the same steps always make the same history. A tree maps paths to
texts; a conflict is two different contents of one file; there are no modes and no links.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from harness.core.result import Err, Ok, Result
from harness.domain import FileChange, Imported
from harness.failures import Failure

Tree = Mapping[str, str]


def _digest(*parts: str) -> str:
    # surrogatepass: a name from a hostile corpus must have a hash too.
    return hashlib.sha1("\0".join(parts).encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


def tree_sha(tree: Tree) -> str:
    return _digest("tree", *(part for path in sorted(tree) for part in (path, tree[path])))


@dataclass(frozen=True, slots=True)
class MemoryCommit:
    """One commit. `tree` is never changed in place."""

    tree: Tree
    parents: tuple[str, ...] = ()
    message: str = ""
    at: float = 0.0
    tree_sha: str = ""
    sha: str = ""

    @staticmethod
    def of(tree: Tree, parents: Sequence[str], message: str, at: float) -> MemoryCommit:
        named = tree_sha(tree)
        sha = _digest("commit", named, *parents, message, repr(float(at)))
        return MemoryCommit(MappingProxyType(dict(tree)), tuple(parents), message, at, named, sha)


Commits = dict[str, MemoryCommit]


def grown(
    commits: Commits, parents: Sequence[str], files: Mapping[str, str | None], message: str, at: float
) -> MemoryCommit:
    """A commit whose tree is the first parent's with `files` laid over it."""
    tree = dict(commits[parents[0]].tree) if parents else {}
    for path, text in files.items():
        if text is None:
            tree.pop(path, None)
        else:
            tree[path] = text
    return MemoryCommit.of(tree, parents, message, at)


def merge_commits(commits: Commits, base: str, head: str, message: str, at: float) -> Result[MemoryCommit]:
    """A three-way merge by whole files; always a commit of its own. Err(CONFLICT) names the files."""
    fork = _fork(commits, base, head)
    if fork is None:
        return Err(Failure.CONFLICT, f"{head[:12]} shares no history with {base[:12]}")
    old, ours, theirs = commits[fork].tree, commits[base].tree, commits[head].tree
    tree = dict(ours)
    clashes = []
    for path in sorted({*old, *ours, *theirs}):
        was, mine, other = old.get(path), ours.get(path), theirs.get(path)
        if mine == other or other == was:
            continue
        if mine != was:
            clashes.append(path)
        elif other is None:
            tree.pop(path, None)
        else:
            tree[path] = other
    if clashes:
        return Err(Failure.CONFLICT, f"{head[:12]} conflicts with {base[:12]} in {', '.join(clashes)}")
    return Ok(MemoryCommit.of(tree, (base, head), message, at))


def history(commits: Commits, tips: Sequence[str], but: Mapping[str, object]) -> Iterator[MemoryCommit]:
    """Every commit that can be reached from the tips, not walking into what `but` has."""
    seen: set[str] = set()
    todo = [t for t in tips if t]
    while todo:
        sha = todo.pop()
        if sha in seen or sha in but or sha not in commits:
            continue
        seen.add(sha)
        yield commits[sha]
        todo.extend(commits[sha].parents)


def reaches(commits: Commits, new: str, old: str) -> bool:
    return any(c.sha == old for c in history(commits, [new], {}))


def _fork(commits: Commits, one: str, other: str) -> str | None:
    """The best common ancestor: one that no other common ancestor builds on; the smallest SHA of several."""
    common = {c.sha for c in history(commits, [one], {})} & {c.sha for c in history(commits, [other], {})}
    below = {parent for sha in common for parent in commits[sha].parents}
    return min(common - below, default=None)


def _status(old: Tree, new: Tree, path: str) -> str:
    if old.get(path) == new.get(path):
        return ""
    return "A" if path not in old else ("D" if path not in new else "M")


def changes(commits: Commits, base: str, sha: str) -> Imported:
    old, new = commits[base].tree, commits[sha].tree
    before = {c.sha: True for c in history(commits, [base], {})}
    steps = list(history(commits, [sha], before))
    files = []
    for path in sorted({*old, *new}):
        status = _status(old, new, path)
        if status:
            size = len(new.get(path, "").encode("utf-8", "surrogateescape"))
            raw = path.encode("utf-8", "surrogateescape")
            mode = "000000" if status == "D" else "100644"
            files.append(FileChange(raw.decode("utf-8", "replace"), status, mode, size, raw.hex()))
    touched = {p for c in steps for p in _touched(commits, c)} | {f.path for f in files}
    return Imported(sha, base, len(steps), tuple(files), tuple(sorted(touched)))


def _touched(commits: Commits, commit: MemoryCommit) -> Iterator[str]:
    """Paths that differ from every parent."""
    parents = [commits[p].tree for p in commit.parents if p in commits] or [{}]
    for path in {*commit.tree, *(p for tree in parents for p in tree)}:
        if all(tree.get(path) != commit.tree.get(path) for tree in parents):
            yield path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
