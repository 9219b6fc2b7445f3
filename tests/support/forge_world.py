"""A repository with people, on the forge in memory or on the embedded one over HTTP, for the tests of the
port.

The one rule: people act through their own doors (their token, or the hub), never through the port under test;
both forges and the port read the one clock that the test turns.
"""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from harness.adapters.github import GitHubForge
from harness.adapters.governor import READ, WRITE, Governor
from harness.adapters.memory.forge import MemoryForge
from harness.adapters.memory.hub import Hub
from harness.adapters.memory.repo import MemoryRemote
from harness.core.budget import Limits
from harness.forge import Settings, User, seed, serve
from harness.ports import Forge

START = 1_800_000_000.0
OPEN_LIMITS = {READ: Limits(), WRITE: Limits()}
_numbers = itertools.count(1)


@dataclass
class Hands:
    """A clock that only the test turns."""

    at: float = START

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


@dataclass
class Shelf:
    """A store for small values that takes only what JSON can hold."""

    kept: dict[str, str] = field(default_factory=dict)
    puts: int = 0

    def get(self, key: str) -> Any | None:
        return json.loads(self.kept[key]) if key in self.kept else None

    def put(self, key: str, value: Any) -> None:
        self.kept[key] = json.dumps(value, allow_nan=False)
        self.puts += 1


@dataclass
class Remembered:
    """The forge in memory. `people` and the verbs below are the same in `Served`."""

    clock: Hands = field(default_factory=Hands)
    repo: str = "acme/widget"

    def __post_init__(self) -> None:
        self.git = MemoryRemote()
        self.git.write("refs/heads/main", {"README.md": "hello\n"}, "Initial commit")
        self.hub = Hub(
            self.git,
            self.clock,
            self.repo,
            people={"harness-bot": "admin", "acme": "admin", "ann": "write", "carl": "triage"},
        )
        self.hub.people["rita"] = "read"
        self.forge: Forge = MemoryForge(self.git, self.clock, hub=self.hub)

    def opens(self, title: str, body: str | None = "", labels: tuple[str, ...] = (), who: str = "ann") -> int:
        return self.hub.person_opens(who, title, body or "", labels)

    def comments(self, number: int, body: str, who: str = "ann") -> int:
        return self.hub.person_comments(who, number, body)

    def labels(self, number: int, *names: str) -> None:
        self.hub.person_labels(number, *names)

    def unlabels(self, number: int, name: str) -> None:
        self.hub.person_unlabels(number, name)

    def closes(self, number: int) -> None:
        self.hub.person_closes(number)

    def locks(self, number: int) -> None:
        self.hub.person_locks(number)

    def deletes(self, number: int) -> None:
        self.hub.person_deletes(number)

    def reviews(self, number: int, state: str, who: str = "ann") -> None:
        self.hub.person_reviews(who, number, state)

    def methods(self, *allowed: str) -> None:
        self.hub.merge_methods = allowed

    def asks_for_review(self) -> None:
        self.hub.required_reviews = 1

    def state_of(self, number: int) -> str:
        return "open" if self.hub.issues[number].open else "closed"

    def tip(self, branch: str) -> str:
        return self.git.refs[f"refs/heads/{branch}"]

    def pushes(self, branch: str, path: str, text: str) -> str:
        """One commit more on a branch, which begins at main when it is new; answers its SHA."""
        if f"refs/heads/{branch}" not in self.git.refs:
            self.branches(branch)
        return self.git.write(f"refs/heads/{branch}", {path: text}, f"Write {path}")

    def branches(self, branch: str) -> str:
        """A branch that is where main is."""
        self.git.set(f"refs/heads/{branch}", self.tip("main"))
        return self.tip(branch)

    def forwards(self, branch: str, sha: str) -> None:
        """Push a fast-forward."""
        self.git.set(f"refs/heads/{branch}", sha)

    def removes(self, branch: str) -> None:
        self.git.set(f"refs/heads/{branch}", "")

    def close(self) -> None:
        """Nothing is held."""


class Server:
    """One embedded forge for many tests; each test takes a repository and tokens of its own."""

    def __init__(self, folder: Path, settings: Settings | None = None) -> None:
        self.folder = folder
        self.clock = Hands()
        self.running = serve(folder, settings=settings, clock=self.clock.now)

    def repository(self, **more: Any) -> Served:
        n = next(_numbers)
        self.running.set_faults()
        return Served(self, f"acme/r{n}", str(n), **more)

    def close(self) -> None:
        self.running.close()


@dataclass
class Served:
    """The embedded forge over HTTP."""

    server: Server
    repo: str
    mark: str
    label: str = "harness"
    limits: dict[str, Limits] = field(default_factory=lambda: dict(OPEN_LIMITS))
    settings: dict[str, bool] = field(default_factory=dict)
    scopes: str = "repo"
    app: bool = False

    def __post_init__(self) -> None:
        self.clock = self.server.clock
        self.shelf = Shelf()
        self.tokens = {w: f"token-{w}-{self.mark}" for w in ("harness-bot", "acme", "ann", "carl", "rita")}
        roles = {"harness-bot": "admin", "acme": "admin", "ann": "write", "carl": "triage", "rita": "read"}
        me = {"scopes": self.scopes, "app": self.app, "kind": "Bot" if self.app else "User"}
        seed(
            self.server.folder,
            repo=self.repo,
            files={"README.md": "hello\n"},
            users=[
                User(w, t, role=roles[w], **(me if w == "harness-bot" else {}))
                for w, t in self.tokens.items()
            ],
            settings=self.settings,
            at=START,
        )
        self.governor = Governor(self.shelf.get, self.shelf.put, self.clock, self.limits, 8)
        self.token = self.tokens["harness-bot"]
        self.forge: Forge = self.connect()

    def connect(self, token: Callable[[], str] | None = None, **more: Any) -> GitHubForge:
        """Another client: what a restarted director would make."""
        return GitHubForge(
            self.server.running.url,
            self.repo,
            token or (lambda: self.token),
            self.governor,
            self.clock,
            label=self.label,
            **more,
        )

    def faults(self, *rules: dict[str, Any]) -> None:
        """Rules of the embedded forge; `match` is taken below this repository."""
        made = []
        for rule in rules:
            verb, _, path = rule["match"].partition(" ")
            made.append({**rule, "match": f"^{verb} /repos/{self.repo}{path}"})
        self.server.running.set_faults(*made)

    def as_person(self, who: str, verb: str, path: str, body: Any = None) -> Any:
        """A request with somebody's own token; answers the JSON."""
        r = requests.request(
            verb,
            f"{self.server.running.url}/repos/{self.repo}{path}",
            json=body,
            headers={"Authorization": f"Bearer {self.tokens[who]}"},
            timeout=20,
        )
        assert r.ok, f"{verb} {path}: {r.status_code} {r.text}"
        return r.json() if r.text else None

    def opens(self, title: str, body: str | None = "", labels: tuple[str, ...] = (), who: str = "ann") -> int:
        wanted = {"title": title, "body": body, "labels": list(labels)}
        return int(self.as_person(who, "POST", "/issues", wanted)["number"])

    def comments(self, number: int, body: str, who: str = "ann") -> int:
        return int(self.as_person(who, "POST", f"/issues/{number}/comments", {"body": body})["id"])

    def labels(self, number: int, *names: str) -> None:
        self.as_person("ann", "POST", f"/issues/{number}/labels", {"labels": list(names)})

    def unlabels(self, number: int, name: str) -> None:
        self.as_person("ann", "DELETE", f"/issues/{number}/labels/{name}")

    def closes(self, number: int) -> None:
        self.as_person("ann", "PATCH", f"/issues/{number}", {"state": "closed"})

    def locks(self, number: int) -> None:
        self.as_person("ann", "PUT", f"/issues/{number}/lock", {})

    def deletes(self, number: int) -> None:
        self.server.running.delete_issue(self.repo, number)

    def reviews(self, number: int, state: str, who: str = "ann") -> None:
        event = {"APPROVED": "APPROVE", "CHANGES_REQUESTED": "REQUEST_CHANGES"}[state]
        self.as_person(who, "POST", f"/pulls/{number}/reviews", {"event": event, "body": "so be it"})

    def methods(self, *allowed: str) -> None:
        names = {"merge_commit": "merge", "squash_merge": "squash", "rebase_merge": "rebase"}
        self.as_person("acme", "PATCH", "", {f"allow_{k}": v in allowed for k, v in names.items()})

    def asks_for_review(self) -> None:
        self.as_person(
            "acme",
            "PUT",
            "/branches/main/protection",
            {
                "required_status_checks": None,
                "enforce_admins": True,
                "required_pull_request_reviews": {"required_approving_review_count": 1},
                "restrictions": None,
            },
        )

    def state_of(self, number: int) -> str:
        return str(self.as_person("ann", "GET", f"/issues/{number}")["state"])

    def tip(self, branch: str) -> str:
        return str(self.as_person("ann", "GET", f"/git/ref/heads/{branch}")["object"]["sha"])

    def branches(self, branch: str) -> str:
        sha = self.tip("main")
        self.as_person("ann", "POST", "/git/refs", {"ref": f"refs/heads/{branch}", "sha": sha})
        return sha

    def pushes(self, branch: str, path: str, text: str) -> str:
        known = [b["name"] for b in self.as_person("ann", "GET", "/branches?per_page=100")]
        if branch not in known:
            self.branches(branch)
        body = {"message": f"Write {path}", "branch": branch}
        body["content"] = base64.b64encode(text.encode()).decode()
        return str(self.as_person("ann", "PUT", f"/contents/{path}", body)["commit"]["sha"])

    def forwards(self, branch: str, sha: str) -> None:
        self.as_person("ann", "PATCH", f"/git/refs/heads/{branch}", {"sha": sha})

    def removes(self, branch: str) -> None:
        self.as_person("ann", "DELETE", f"/git/refs/heads/{branch}")

    def close(self) -> None:
        self.server.running.set_faults()
