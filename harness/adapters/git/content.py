"""Rules about what a tree may contain: links, names that differ only in case, submodules.

The one rule: judged by bytes and path components, as text, without touching a disk.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.adapters.git.errors import FailedError, classify
from harness.adapters.git.runner import Runner


@dataclass(frozen=True, slots=True)
class Module:
    """A submodule as `.gitmodules` declares it."""

    name: str
    path: bytes
    url: str


def link_escapes(path: bytes, target: bytes) -> bool:
    """Whether a symbolic link at `path` may lead out of the tree or into `.git`. `..` after a name counts
    as an escape too: what it means depends on whether that name is a link itself."""
    if not target or target.startswith(b"/") or b"\0" in target:
        return True
    here = path.count(b"/")
    parts = [p for p in target.split(b"/") if p not in (b"", b".")]
    ups = 0
    while ups < len(parts) and parts[ups] == b"..":
        ups += 1
    rest = parts[ups:]
    return ups > here or b".." in rest or any(fold(p) == ".git" for p in rest)


def fold(path: bytes) -> str:
    """How a file system that ignores case and composition sees a name."""
    return unicodedata.normalize("NFC", path.decode("utf-8", "surrogateescape").casefold())


def case_clash(added: Iterable[bytes], names: Sequence[bytes]) -> tuple[bytes, bytes] | None:
    """The first new path (or a folder of it) that equals another one but for case. Old clashes are let be."""
    new: dict[str, bytes] = {}
    for path in sorted(added):
        for part in _prefixes(path):
            key = fold(part)
            if new.setdefault(key, part) != part:
                return new[key], part
    for path in names:
        for part in _prefixes(path):
            mine = new.get(fold(part))
            if mine is not None and mine != part:
                return mine, part
    return None


def _prefixes(path: bytes) -> Iterable[bytes]:
    parts = path.split(b"/")
    return (b"/".join(parts[: i + 1]) for i in range(len(parts)))


def modules(git: Runner, git_dir: Path, sha: str) -> tuple[Module, ...]:
    """The submodules that a commit's `.gitmodules` declares; none when there is no such file."""
    args = ("config", f"--blob={sha}:.gitmodules", "-z", "--get-regexp", r"^submodule\..*\.(path|url)$")
    ran = git.run(*args, git_dir=git_dir)
    if ran.unanswered:
        raise FailedError(classify(ran, what="reading .gitmodules"))
    found: dict[str, dict[str, bytes]] = {}
    for item in ran.out.split(b"\0") if ran.code == 0 else ():
        key, _, value = item.partition(b"\n")
        name, _, field = key.decode("utf-8", "surrogateescape").removeprefix("submodule.").rpartition(".")
        if name:
            found.setdefault(name, {})[field] = value
    return tuple(
        Module(name, m["path"], m["url"].decode("utf-8", "replace"))
        for name, m in found.items()
        if "path" in m and "url" in m
    )
