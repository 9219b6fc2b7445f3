"""A world of a test's own: a forge with the demo's project and chosen issues, and a director as a process.

The one rule: the forge outlives every director, and a director is only started, signalled and waited for.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w
from demo_world import PROJECT, RUN_LIMIT_S, Finished, Stage, Started, journals, live, sweep, wait_for

from harness.demo.run import REPO
from harness.forge import Issue, User, seed, serve

PASSES = "python3 -m unittest discover --quiet --start-directory ."


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    both = {**base, **over}
    for key in base.keys() & over.keys():
        if isinstance(base[key], Mapping) and isinstance(over[key], Mapping):
            both[key] = merged(base[key], over[key])
    return both


BOT, PERSON = "b07" * 12 + "beef", "ada" * 12 + "cafe"


@dataclass
class World:
    """A forge with the demo's project and issues of a test's own, and a director that runs as a process.

    `plays` are the rounds of the scripted agent by issue number; `config` is laid over a quick configuration.
    The forge lives in this process and outlives every director.
    """

    stage: Stage
    folder: Path
    runtime: str
    issues: Sequence[str]
    plays: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    forge: Any = None

    def __enter__(self) -> World:
        tree = self.folder / "project"
        shutil.copytree(PROJECT, tree, ignore=shutil.ignore_patterns("__pycache__"))
        for name, text in self.files.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text)
        users = (User("acme", role="admin"), User("harness-bot", BOT, "admin"), User("ada", PERSON, "write"))
        issues = tuple(Issue(t, f"Please: {t}.", "ada", ("harness",)) for t in self.issues)
        seed(self.folder / "forge", repo=REPO, tree=tree, users=users, labels=("harness",), issues=issues)
        self.forge = serve(self.folder / "forge")
        (self.folder / "token").write_text(BOT)
        (self.folder / "play.json").write_text(json.dumps({"issues": dict(self.plays)}))
        (self.folder / "harness.toml").write_text(tomli_w.dumps(merged(self._quick(), self.config)))
        return self

    def _quick(self) -> dict[str, Any]:
        return {
            "director": {
                "data_dir": str(self.folder / "data"), "interval_seconds": 0.3, "min_free": "64MiB",
            },
            "forge": {"url": self.forge.url, "repo": REPO, "token_file": str(self.folder / "token")},
            "containers": {
                "runtime": self.runtime, "image": self.image, "memory": "512MiB", "cpus": 1.0,
            },
            "agent": {"kind": "scripted", "command": [str(self.folder / "play.json")]},
            "release": {"merge": "auto"},
            "validation": {"commands": [PASSES]},
            "budget": {
                "github": {
                    "min_seconds_between_writes": 0.0, "writes_per_minute": 1000, "reads_per_minute": 5000,
                    "reads_per_hour": 50000, "writes_per_hour": 10000, "cooldown_seconds": 1.0,
                },
            },
            "retry": {"initial_seconds": 0.2, "max_seconds": 1.0, "jitter": 0.0},
            "audit": {"dir": str(self.folder / "audits")},
        }  # fmt: skip

    def __exit__(self, *_: object) -> None:
        self.forge.close()
        sweep(self.folder, self.runtime)

    def start(self, command: str, *args: str) -> Started:
        return self.stage.start(command, *args, "--config", str(self.folder / "harness.toml"), env=self.env)

    def run(self, command: str, *args: str, within_s: float = RUN_LIMIT_S) -> Finished:
        return self.start(command, *args).end(within_s)

    def repo(self) -> dict[str, Any]:
        found: dict[str, Any] = self.forge.dump()["repos"][REPO]
        return found

    def issue(self, number: int) -> dict[str, Any]:
        return next(i for i in self.repo()["issues"] if i["number"] == number)

    def comments(self, number: int) -> list[str]:
        return [c["body"] for c in self.repo()["comments"] if c["issue"] == number]

    def live(self) -> dict[str, str]:
        return live(self.folder, self.runtime)

    def worker(self, within_s: float = 60.0) -> tuple[str, str]:
        """Name and life of the one worker that runs now."""

        def look() -> tuple[str, str] | None:
            found = [(n, i) for n, i in self.live().items() if "-i" in n]
            return found[0] if found else None

        return wait_for(look, within_s, "a worker runs")

    def states(self, kind: str) -> dict[str, str]:
        """State by the last part of a machine's name, as its journal says at this moment."""
        if not (self.folder / "data" / "store.exists").exists():
            return {}
        last = {m.rsplit("/", 1)[1]: r for m, r in journals(self.folder, kind).items()}
        return {
            m: next((x.body["to"] for x in reversed(r) if x.kind == "transition"), "")
            for m, r in last.items()
        }
