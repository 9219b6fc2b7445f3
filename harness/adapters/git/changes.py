"""Which paths a range of commits changes: git's raw diffs, read as bytes.

The one rule: plumbing and `-z` only. A file's name is bytes; the text beside it is for people.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.adapters.git.errors import FailedError, classify
from harness.adapters.git.limits import GitLimits
from harness.adapters.git.runner import Runner
from harness.domain import FileChange, Imported

GITLINK = "160000"
SYMLINK = "120000"
GONE = "000000"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a raw diff: what the path is afterwards (`mode` 000000: deleted)."""

    mode: str
    blob: str
    status: str
    path: bytes
    old_path: bytes = b""


def text_of(path: bytes) -> str:
    return path.decode("utf-8", "replace")


def parse_raw(out: bytes) -> Iterator[Entry]:
    """Entries of `diff-tree --raw -z`, also of merges (`-c`: several colons, one path)."""
    fields = iter(out.split(b"\0"))
    for head in fields:
        if not head.startswith(b":"):
            continue
        parents = len(head) - len(head.lstrip(b":"))
        words = head[parents:].decode("ascii").split(" ")
        status = words[-1]
        path = next(fields, b"")
        old = b""
        if parents == 1 and status[:1] in ("R", "C"):
            old, path = path, next(fields, b"")
        yield Entry(words[parents], words[2 * parents + 1], status[:1], path, old)


class Diffs:
    """Reads ranges in one repository (the mirror, or the quarantine that borrows from it)."""

    def __init__(self, git: Runner, git_dir: Path, limits: GitLimits) -> None:
        self._git = git
        self._dir = git_dir
        self._limits = limits

    def tree_diff(self, base: str, sha: str) -> list[Entry]:
        """What is different between two trees, renames found."""
        flags = ("-r", "-z", "--raw", "-M", "--no-commit-id")
        ran = self._git.ok(
            "diff-tree", *flags, base, sha, git_dir=self._dir, deadline_s=self._limits.import_s
        )
        return list(parse_raw(ran.out))

    def commits(self, base: str, sha: str) -> list[str]:
        """The commits of `base..sha`, at most one more than allowed."""
        most = f"--max-count={self._limits.max_commits + 1}"
        args = ("rev-list", most, f"{base}..{sha}")
        return self._git.ok(*args, git_dir=self._dir, deadline_s=self._limits.import_s).text.split()

    def every_step(self, commits: Sequence[str]) -> list[Entry]:
        """What each commit changed against all of its parents: also what a later one took back again."""
        if not commits:
            return []
        flags = ("-r", "-z", "--raw", "--root", "-c", "--no-renames", "--no-commit-id", "--stdin")
        feed = "".join(f"{c}\n" for c in commits).encode()
        ran = self._git.ok(
            "diff-tree", *flags, git_dir=self._dir, feed=feed, deadline_s=self._limits.import_s
        )
        return list(parse_raw(ran.out))

    def sizes(self, entries: Sequence[Entry]) -> dict[str, int]:
        """Blob to size in bytes, of those that are files or links."""
        blobs = sorted({e.blob for e in entries if e.mode not in (GONE, GITLINK)})
        feed = "".join(f"{b}\n" for b in blobs).encode()
        ran = self._git.ok("cat-file", "--batch-check", "--buffer", git_dir=self._dir, feed=feed)
        rows = (line.split(" ") for line in ran.text.splitlines())
        return {row[0]: int(row[2]) for row in rows if len(row) == 3 and row[1] == "blob"}

    def blob(self, blob: str, limit_bytes: int) -> bytes:
        """Up to `limit_bytes` and a little more of a blob."""
        ran = self._git.run("cat-file", "blob", blob, git_dir=self._dir, output_bytes=limit_bytes)
        if ran.unanswered and not ran.flooded:
            raise FailedError(classify(ran, what=f"reading {blob}"))
        return ran.out

    def names(self, sha: str) -> list[bytes]:
        """Every path of a commit's tree."""
        ran = self._git.ok("ls-tree", "-r", "-z", "--name-only", sha, git_dir=self._dir)
        return [p for p in ran.out.split(b"\0") if p]

    def gitlinks(self, sha: str) -> dict[bytes, str]:
        """Path to commit of every submodule (or nested repository) in a commit's tree."""
        ran = self._git.ok("ls-tree", "-r", "-z", sha, git_dir=self._dir)
        rows = (row.partition(b"\t") for row in ran.out.split(b"\0") if row.startswith(b"160000 "))
        return {path: head.split()[2].decode() for head, _, path in rows}

    def imported(self, base: str, sha: str) -> Imported:
        """The range as a value. Nothing is judged here."""
        commits = self.commits(base, sha)
        final = self.tree_diff(base, sha)
        return describe(base, sha, len(commits), final, self.every_step(commits), self.sizes(final))


def describe(
    base: str, sha: str, commits: int, final: Sequence[Entry], steps: Sequence[Entry], sizes: dict[str, int]
) -> Imported:
    files = tuple(
        FileChange(
            path=text_of(e.path),
            status=e.status,
            mode=e.mode,
            size=sizes.get(e.blob, 0),
            raw_hex=e.path.hex(),
            old_path=text_of(e.old_path),
        )
        for e in final
    )
    paths = {e.path for e in (*steps, *final)} | {e.old_path for e in final if e.old_path}
    return Imported(sha, base, commits, files, tuple(sorted(text_of(p) for p in paths)))
