"""The paths of a crash sweep: a small world each, what its agent does, and what its people do.

The one rule: a person acts on what the forge shows, as often as asked and never twice, so that a director that
dies changes nothing of what people do.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo_world import relabel

REPO = "acme/tally"
BOT, PERSON = "b07" * 12 + "beef", "ada" * 12 + "cafe"
FILES = {"README.md": "# tally\n", "check.sh": "! test -e broken\n", "same.txt": "as it was\n"}
OLD_IMAGE, NEW_IMAGE = "process:old", "process:new"
NEWS_S = 3.0


@dataclass
class Scene:
    """What people and agents of one world can see and touch. `marks` is a folder that agents look into; in a
    container they see their own home instead. `image` is this world's own name of one; without it, the file `image`
    says which image there is."""

    url: str
    folder: Path
    image: str = ""

    @property
    def marks(self) -> Path:
        return self.folder / "marks"

    def _homes(self) -> list[Path]:
        """Where the slow agent, which issue 2 has, looks for marks and leaves its own."""
        return [self.marks, *self.folder.glob("data/attempts/2.*/home")]

    def marked(self, name: str) -> bool:
        return any((home / name).exists() for home in self._homes())

    def let_go(self) -> None:
        for home in self._homes():
            if not (home / "go").exists():
                (home / "go").touch()

    def build(self) -> None:
        """Another image under the same name. `marks/new-image` has its id before a director can see it."""
        if self.image:
            relabel(self.image, self._tell)
        else:
            self._tell(NEW_IMAGE)
            new = self.folder / "image.new"
            new.write_text(NEW_IMAGE)
            new.rename(self.folder / "image")

    def _tell(self, built: str) -> None:
        (self.marks / "new-image").write_text(built)

    def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, token: str = PERSON
    ) -> Any:  # fmt: skip
        request = urllib.request.Request(
            f"{self.url}/repos/{REPO}{path}", method=method, data=json.dumps(body).encode() if body else None,
            headers={"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json"},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=30) as reply:
            return json.load(reply)

    def pulls(self, head: str, state: str = "open") -> list[dict[str, Any]]:
        found = self.call("GET", f"/pulls?state={state}&per_page=100")
        return [p for p in found if p["head"]["ref"].startswith(head)]


Person = Callable[[Scene], None]


def nobody(scene: Scene) -> None:
    """Nothing is asked of people."""


@dataclass(frozen=True, eq=False)
class Route:
    """One path. `published` releases make its end; `agent` is a shell text; `config` is
    laid over the quick one,
    `before` is done once, before the first director."""

    name: str
    about: str
    issues: tuple[str, ...]
    agent: str
    person: Person = nobody
    published: int = 1
    config: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    before: Person = nobody


# ---------------------------------------------------------------- what people do


def answers(scene: Scene) -> None:
    comments = scene.call("GET", "/issues/1/comments?per_page=100")
    asked = [c for c in comments if "key=question-" in c["body"]]
    said = [c for c in comments if c["user"]["login"] == "ada"]
    if len(said) < len(asked):
        scene.call("POST", "/issues/1/comments", {"body": "A tab, please."})


def reviews(scene: Scene) -> None:
    """Asks for changes once, then approves what was changed."""
    for pull in scene.pulls("agent/"):
        past = scene.call("GET", f"/pulls/{pull['number']}/reviews")
        sha = pull["head"]["sha"]
        if not past:
            ask = {"event": "REQUEST_CHANGES", "body": "Say it in capitals.", "commit_id": sha}
            scene.call("POST", f"/pulls/{pull['number']}/reviews", ask)
        elif len(past) == 1 and past[0]["commit_id"] != sha:
            yes = {"event": "APPROVE", "body": "Good.", "commit_id": sha}
            scene.call("POST", f"/pulls/{pull['number']}/reviews", yes)


def protects(scene: Scene) -> None:
    """The default branch takes pull requests with an approval only."""
    rule = {
        "required_pull_request_reviews": {"required_approving_review_count": 1},
        "required_status_checks": None, "enforce_admins": True, "restrictions": None,
    }  # fmt: skip
    scene.call("PUT", "/branches/main/protection", rule, token=BOT)


def approves(scene: Scene) -> None:
    """Approves the release's pull once, when its ticket has landed."""
    if [p for p in scene.pulls("agent/", "all") if p["merged_at"]]:
        for pull in scene.pulls("release/"):
            if not scene.call("GET", f"/pulls/{pull['number']}/reviews"):
                yes = {"event": "APPROVE", "body": "Go.", "commit_id": pull["head"]["sha"]}
                scene.call("POST", f"/pulls/{pull['number']}/reviews", yes)


def lets_second_go_on(scene: Scene) -> None:
    if [p for p in scene.pulls("agent/1", "all") if p["merged_at"]]:
        scene.let_go()


def lets_go_after_release(scene: Scene) -> None:
    if scene.call("GET", "/releases"):
        scene.let_go()


def builds_an_image(scene: Scene) -> None:
    """A newer image once the slow agent works; it goes on when the release of the other issue, and with it the
    news of the image, has been out for a while."""
    out = scene.marks / "out"
    if scene.marked("works") and not scene.marked("new-image"):
        scene.build()
    if scene.marked("seen-image") and not out.exists() and scene.call("GET", "/releases"):
        out.touch()
    if out.exists() and time.time() - out.stat().st_mtime > NEWS_S:
        scene.let_go()


# ---------------------------------------------------------------- the paths

# What an agent does again after it was killed must come to the same: a container may die in the middle of it.

WAIT = "while [ ! -e MARKS/go ]; do sleep 0.2; done"
ONE = "echo one >one.txt"
COUNT = "echo >>MARKS/ran-$HARNESS_ISSUE"
ROUTES: tuple[Route, ...] = (
    Route("happy", "one issue, released", ("Add one.txt",), ONE),
    Route(
        "rework", "its tests are red once", ("Add one.txt",),
        f"case $HARNESS_ROUND in 1) {ONE}; touch broken ;; *) rm -f broken; printf 'one\\nmore\\n' >one.txt ;; esac",
    ),
    Route(
        "review", "a reviewer asks for changes, then approves", ("Add one.txt",),
        f"if grep -q capitals; then echo ONE >one.txt; else {ONE}; fi", reviews,
        config={"release": {"required_review": "issue"}},
    ),
    Route(
        "deferral", "one issue lands, the other's tests stay red", ("Add one.txt", "Never green"),
        f"case $HARNESS_ISSUE in 1) {ONE} ;; *) echo $HARNESS_ROUND >two.txt; touch broken ;; esac",
        config={"director": {"max_rework_rounds": 1}},
    ),
    Route(
        "question", "the agent asks, a person answers", ("Ask first",),
        f"if grep -q 'A tab, please'; then {ONE}; else echo 'Which separator?' >$HARNESS_QUESTION_FILE; fi",
        answers,
    ),
    Route(
        "conflict", "two issues change the same line", ("Change it", "Change it too"),
        f"case $HARNESS_ISSUE in 1) echo first >same.txt ;; *) {WAIT}; "
        "if grep -q first same.txt; then printf 'first\\nsecond\\n' >same.txt; else echo second >same.txt; fi ;; esac",
        lets_second_go_on,
    ),
    Route(
        "release", "only the forge may merge, and a person approves it", ("Add one.txt",), ONE, approves,
        config={"release": {"required_review": "release"}}, before=protects,
    ),
    Route(
        "cutoff", "a release goes without what is not ready, the next takes it", ("Be quick", "Take long"),
        f"case $HARNESS_ISSUE in 1) {ONE} ;; *) {WAIT}; echo two >two.txt ;; esac",
        lets_go_after_release, published=2, config={"release": {"cutoff_seconds": 2}},
    ),
    Route(
        "upgrade", "a newer image and a release while a worker works", ("Be quick", "Take long"),
        f"case $HARNESS_ISSUE in 1) {ONE} ;; *) if [ -e MARKS/once ]; then rm -f broken; "
        f"else echo two >two.txt; touch broken MARKS/works; {WAIT}; touch MARKS/once; fi ;; esac",
        builds_an_image, published=2, config={"release": {"cutoff_seconds": 2}},
    ),
)  # fmt: skip
BY_NAME: Mapping[str, Route] = {p.name: p for p in ROUTES}


def config_of(route: Route, folder: Path, url: str, image: str = "", count: bool = False) -> dict[str, Any]:
    """A quick configuration: nothing of ours is spaced, looks are frequent. With an `image`, in containers. To
    `count` each time that the agent runs is written down in `marks`."""
    agent = f"{COUNT}; {route.agent}" if count else route.agent
    marks = "$HOME" if image else str(folder / "marks")
    where = {"runtime": "docker", "image": image} if image else {"runtime": "process", "image": "warm"}
    quick: dict[str, dict[str, Any]] = {
        "director": {"data_dir": str(folder / "data"), "interval_seconds": 0.5, "min_free": "64MiB"},
        "forge": {"url": url, "repo": REPO, "token_file": str(folder / "token")},
        "containers": {**where, "memory": "512MiB", "cpus": 1.0},
        "agent": {
            "kind": "command",
            "command": ["sh", "-c", agent.replace("MARKS", marks).replace("$", "$$")],
        },
        "release": {"merge": "auto"},
        "validation": {"commands": ["sh check.sh"]},
        "budget": {
            "github": {
                "min_seconds_between_writes": 0.0, "writes_per_minute": 1000, "reads_per_minute": 5000,
                "reads_per_hour": 50000, "writes_per_hour": 10000, "cooldown_seconds": 1.0,
            },
        },
        "retry": {"initial_seconds": 0.2, "max_seconds": 1.0, "jitter": 0.0},
        "audit": {"dir": str(folder / "audits")},
    }  # fmt: skip
    for section, keys in route.config.items():
        quick[section] = {**quick.get(section, {}), **keys}
    return quick
