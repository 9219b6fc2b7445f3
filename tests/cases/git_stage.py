"""Repositories as people have them: a forge whose bare repository a test changes before a director looks.

The one rule: the repository is changed with real git at the forge, and a director is started as people start it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from demo_world import Stage, bare_of, git
from director_world import World
from git_world import Files, Origin

from harness.adapters.git import GitRepo
from harness.config.models import Config
from harness.config.reader import load
from harness.core.result import Ok

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
    told: dict[str, Any] = {**QUICK, **(config or {})}
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
