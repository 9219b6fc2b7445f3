"""Repositories as people have them: a forge whose bare repository a test changes before a director looks.

The one rule: the repository is changed with real git at the forge, and a director is started as people start it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo_world import Stage, bare_of, git
from director_world import World, merged
from git_world import CLEAN, Files, Origin, text

from harness.adapters.clone import WorkClone
from harness.adapters.git import GitRepo
from harness.compose.director import screened
from harness.config.models import Config
from harness.config.reader import load
from harness.core.redact import Redactor
from harness.core.result import Err, Ok, Result
from harness.domain import Imported
from harness.policy import Policy
from harness.ports import Screened

QUICK = {
    "director": {"max_workers": 6, "max_retries": 1, "max_attempts": 1, "max_infra_retries": 1},
    "validation": {"commands": ["true"]},
}
AS_SOMEBODY = "git -c user.name=a -c user.email=a@agents.example"
Change = Callable[[Path], None]


@contextmanager
def world(
    folder: Path, titles: Sequence[str] = ("Do it",), *, agent: str = "", files: Mapping[str, str] | None = None,
    change: Change | None = None, config: Mapping[str, Any] | None = None, env: Mapping[str, str] | None = None,
) -> Iterator[World]:  # fmt: skip
    """A served forge and a configuration; `change` is called with the bare repository, `agent` is a shell
    script that plays the coding agent."""
    told: dict[str, Any] = merged(QUICK, config or {})
    if agent:
        told["agent"] = {"kind": "command", "command": ["sh", "-c", agent.replace("$", "$$")]}
    stage = Stage(folder)
    try:
        with World(
            stage, folder / "world", "process", list(titles), config=told, files=files or {}, env=env or {}
        ) as made:
            if change is not None:
                change(bare_of(made.folder))
            yield made
    finally:
        stage.close()


def configuration(made: World) -> Config:
    return load(made.folder / "harness.toml", dict(os.environ))


def branches(made: World) -> dict[str, str]:
    """Branch to SHA, as the forge's git has them."""
    lines = git(
        bare_of(made.folder), "for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/heads"
    )
    return dict(line.rsplit(" ", 1) for line in lines.splitlines())  # type: ignore[misc]


def refs(made: World) -> list[str]:
    return git(bare_of(made.folder), "for-each-ref", "--format=%(refname)").splitlines()


def commit(bare: Path, branch: str, files: Mapping[str, bytes], parent: str = "") -> str:
    """A commit in the bare repository, on top of `parent` (none: no history), as the new tip of `branch`."""
    index = {**os.environ, "GIT_INDEX_FILE": str(bare / "stage.index"), "GIT_DIR": str(bare)}
    who = {f"GIT_{r}_{k}": v for r in ("AUTHOR", "COMMITTER") for k, v in (("NAME", "Ada"), ("EMAIL", "a@b"))}

    def run(*args: str, feed: bytes = b"") -> str:
        done = subprocess.run(
            ["git", *args], input=feed, capture_output=True, check=True, env=index | who, timeout=60
        )
        return done.stdout.decode().strip()

    run("read-tree", *([parent] if parent else ["--empty"]))
    for name, content in files.items():
        blob = run("hash-object", "-w", "--stdin", feed=content)
        run("update-index", "--add", "--cacheinfo", f"100644,{blob},{name}")
    sha = run("commit-tree", run("write-tree"), *(["-p", parent] if parent else []), "-m", "by a person")
    run("update-ref", f"refs/heads/{branch}", sha)
    (bare / "stage.index").unlink()
    return sha


class Hour:
    """A clock that stands still."""

    def now(self) -> float:
        return 1_700_000_000.0

    def monotonic(self) -> float:
        return 0.0


class Place:
    """A forge's repository and the director's git over it, without a director."""

    def __init__(self, root: Path, files: Files | None = None, branch: str = "main") -> None:
        self.root, self.data = root, root / "data"
        self.origin = Origin(root / "forge")
        self.tip = self.origin.push(f"refs/heads/{branch}", files) if files else ""
        self.repo = self.open()
        assert isinstance(self.repo.fetch(), Ok)

    def open(self, **more: Any) -> GitRepo:
        made = GitRepo(
            self.data, remote=self.origin.url, token=None, author=("harness", "harness@acme.example"),
            clock=Hour(), **more,
        )  # fmt: skip
        assert made.prepare() == Ok(None)
        return made


BASE = {"README.md": "widget\n", "src/app.py": "one\n", "docs/guide.md": "guide\n"}


@dataclass
class Delivery:
    """The way of an agent's work: what the worker committed, and what the director took of it."""

    place: Place
    clone: WorkClone
    folder: Path
    committed: Result[Any]
    imported: Result[Imported] | None = None
    screened: Screened | None = None

    @property
    def refused(self) -> str:
        """Why it stops, wherever it does; empty when it would be pushed."""
        for result in (self.committed, self.imported):
            if isinstance(result, Err):
                return result.detail
        return self.screened.blocked if self.screened else "nothing was taken over"

    def git(self, *args: str) -> str:
        return text(*args, cwd=self.folder)


def deliver(
    root: Path, script: str, files: Files | None = None, place: Place | None = None, **more: Any
) -> Delivery:
    """An agent (a shell script) works in a clone; the worker commits, the director imports and screens."""
    place = place or Place(root, files or BASE)
    number = len(list(place.data.glob("clones/*.owner.json"))) + 1
    folder = place.data / "clones" / f"{number}.1"
    assert place.repo.clone(folder, place.tip, f"agent/{number}", "main") == Ok(None)
    done = subprocess.run(["sh", "-ec", script], cwd=folder, env=CLEAN, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    (root / f"audit-{number}").mkdir()
    clone = WorkClone(folder, root / f"audit-{number}", f"agent/{number}", root, lambda: "", **more)
    committed = clone.commit("work\n", ("harness", "harness@localhost"), 1_700_000_000.0, place.tip)
    made = Delivery(place, clone, folder, committed)
    if isinstance(committed, Ok) and committed.value["changed"]:
        sha = committed.value["sha"]
        made.imported = clone.bundle(sha, place.tip).bind(
            lambda bundle: place.repo.import_bundle(bundle, sha, place.tip)
        )
        if isinstance(made.imported, Ok):
            made.screened = screened(made.imported.value, Policy(), place.repo, Redactor())
    return made
