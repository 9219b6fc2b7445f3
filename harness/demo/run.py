"""Runs the demo: forge, director and the person who answers, in this process.

The one rule: it can be interrupted anywhere, by ^C, kill -9 or a power cut, and the same folder goes on to
the same end.
"""

from __future__ import annotations

import json
import os
import secrets
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.demo.play import ANSWER, ISSUES, play

REPO = "acme/tally"
LIMIT_S = 600.0
LOOK_S = 0.3


@dataclass
class Demo:
    """One demo in one folder. `say(text)` tells people what happens; `settings` are laid over its configuration,
    section by section."""

    folder: Path
    runtime: str
    image: str
    say: Callable[[str], None] = lambda text: None
    boundary: Callable[[str], None] = lambda what: None
    faults: tuple[Mapping[str, Any], ...] = ()
    issues: tuple[tuple[str, str], ...] = ISSUES
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    forge: Any = None
    state: dict[str, Any] = field(default_factory=dict)
    looked: float = 0.0

    # ------------------------------------------------------------ the stage

    def open(self) -> None:
        """The forge, seeded once; the same port and tokens when the demo goes on."""
        from harness.forge import Issue, User, seed, serve

        self.folder.mkdir(parents=True, exist_ok=True)
        kept = self.folder / "demo.json"
        self.state = json.loads(kept.read_text()) if kept.is_file() else {}
        if not self.state:
            self.state = {
                "port": 0,
                "bot": secrets.token_hex(20),
                "ada": secrets.token_hex(20),
                "began": time.time(),
            }
        if not self.state.get("seeded"):
            users = (
                User("acme", role="admin"), User("harness-bot", self.state["bot"], "admin"),
                User("ada", self.state["ada"], "write"),
            )  # fmt: skip
            issues = tuple(Issue(t, b, "ada", ("harness",)) for t, b in self.issues)
            seed(
                self.folder / "forge", repo=REPO, tree=Path(__file__).parent / "project", users=users,
                labels=("harness",), issues=issues,
            )  # fmt: skip
            self.state["seeded"] = True
        self.forge = serve(self.folder / "forge", port=self.state["port"])
        self.state["port"] = int(self.forge.url.rsplit(":", 1)[1])
        if self.faults:
            self.forge.set_faults(*self.faults)
        self.state.setdefault("runtime", self.runtime)
        self._keep()
        self._configure()

    def _keep(self) -> None:
        new = self.folder / "demo.json.new"
        new.write_text(json.dumps(self.state))
        os.replace(new, self.folder / "demo.json")

    def _configure(self) -> None:
        import tomli_w

        (self.folder / "play.json").write_text(json.dumps(play()))
        (self.folder / "token").write_text(self.state["bot"])
        (self.folder / "token").chmod(0o600)
        config: dict[str, Any] = {
            "director": {
                "data_dir": str(self.folder / "data"), "interval_seconds": LOOK_S, "min_free": "64MiB",
            },
            "forge": {"url": self.forge.url, "repo": REPO, "token_file": str(self.folder / "token")},
            "containers": {
                "runtime": self.state["runtime"], "image": self.image, "memory": "512MiB", "cpus": 1.0,
            },
            "agent": {"kind": "scripted", "command": [str(self.folder / "play.json")]},
            "release": {"merge": "auto"},
            "validation": {"commands": ["python3 -m unittest discover --quiet --start-directory ."]},
            "budget": {
                "github": {
                    "min_seconds_between_writes": 0.0, "writes_per_minute": 1000, "reads_per_minute": 5000,
                    "reads_per_hour": 50000, "writes_per_hour": 10000, "cooldown_seconds": 1.0,
                },
            },
            "retry": {"initial_seconds": 0.2, "max_seconds": 2.0, "jitter": 0.0},
            "audit": {"dir": str(self.folder / "audits")},
        }  # fmt: skip
        for section, keys in self.settings.items():
            config[section] = {**config.get(section, {}), **keys}
        (self.folder / "harness.toml").write_text(tomli_w.dumps(config))

    # ------------------------------------------------------------ the person

    def _call(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        request = urllib.request.Request(
            self.forge.url + path,
            data=json.dumps(body).encode() if body else None,
            headers={"Authorization": f"Bearer {self.state['ada']}", "Accept": "application/vnd.github+json"},
        )
        with urllib.request.urlopen(request, timeout=10) as reply:
            return json.load(reply)

    def answer(self) -> None:
        """As ada would: read the question on the issue, answer it once."""
        if time.monotonic() - self.looked < 0.5:
            return
        self.looked = time.monotonic()
        try:
            comments = self._call(f"/repos/{REPO}/issues/4/comments?per_page=100")
            asked = [c for c in comments if "key=question-" in (c["body"] or "")]
            said = [c for c in comments if c["user"]["login"] == "ada"]
            if asked and len(said) < len(asked):
                self._call(f"/repos/{REPO}/issues/4/comments", {"body": ANSWER})
                self.say("issue 4: ada answers the question")
        except OSError:
            return  # the forge is not up this moment; the next look comes soon

    # ------------------------------------------------------------ the night

    def run(self) -> Any:
        """To the published release; answers the running director (to be closed by the caller)."""
        from harness.compose import director
        from harness.config.reader import load

        running = director.start(
            load(self.folder / "harness.toml"), boundary=self.boundary, report=self._report, take_over=True
        )
        after = running.loop.after

        def each(loop: Any) -> None:
            after(loop)
            self.answer()

        running.loop.after = each
        end = time.monotonic() + LIMIT_S
        running.loop.run(lambda loop: self._over(running) or time.monotonic() > end)
        return running

    @staticmethod
    def _over(running: Any) -> bool:
        items = running.loop.items
        published = any("/release/" in k and i.state == "PUBLISHED" for k, i in items.items())
        return (
            published
            and items[running.machine].state == "SELF_REVIEW"
            and all(i.open_intent is None for k, i in items.items() if k not in running.loop.out)
        )

    def _report(self, machine: str, item: Any, text: str) -> None:
        if text and text != "opened":
            self.say(f"{machine}: {text}")
            return
        last = self.state.setdefault("said", {})
        if last.get(machine) != item.state:
            last[machine] = item.state
            line = STORY.get((machine.rsplit("/", 2)[-2], item.state))
            if line:
                self.say(line.format(name=machine.rsplit("/", 1)[-1], d=item.data))

    def close(self) -> None:
        if self.forge is not None:
            self.forge.close()


STORY = {
    ("ticket", "ATTEMPTING"): "issue {name}: claimed, given to a worker",
    ("ticket", "WAITING"): "issue {name}: asks a person: {d.question}",
    ("ticket", "LANDING"): "issue {name}: pull #{d.pull} waits for its turn to land",
    ("ticket", "LANDED"): "issue {name}: landed on the release branch",
    ("ticket", "DEFERRED"): "issue {name}: deferred in writing",
    ("ticket", "BLOCKED"): "issue {name}: needs a person",
    ("release", "GATING"): "release {name}: everything is landed or deferred; validating the tip",
    ("release", "MERGING"): "release {name}: green; merging",
    ("release", "PUBLISHED"): "release {name}: tagged {d.tag} and published",
}
