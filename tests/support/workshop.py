"""A world in memory for effects: everything behind the ports, one clock that a test moves, and a driver that
does with an outcome what the tick does."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.adapters.memory.bus import MemoryBus, MemoryGateway
from harness.adapters.memory.forge import MemoryForge
from harness.adapters.memory.hub import Hub
from harness.adapters.memory.repo import MemoryRemote, MemoryRepo
from harness.adapters.memory.runtime import MemoryRuntime
from harness.adapters.memory.store import MemoryStore
from harness.core.result import Ok, Result
from harness.effects import Effect
from harness.marks import Marks
from harness.perform import perform
from harness.perform.outcome import Outcome, Sent
from harness.policy import Policy
from harness.ports import Screened, Tools, World

REPO = "acme/widget"
START = 1_800_000_000.0


class Hand:
    """A clock that is moved by hand."""

    def __init__(self, at: float = START) -> None:
        self.at = at

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


class Shelf:
    """Where bundles go."""

    def __init__(self) -> None:
        self.sealed: dict[str, Any] = {}

    def seal(self, attempt: str, machine: str, meta: Any, logs: Any) -> Result[str]:
        self.sealed.setdefault(attempt, (machine, dict(meta), dict(logs)))
        return Ok(f"audit-{attempt}")


@dataclass
class Workshop:
    clock: Hand
    hub: Hub
    remote: MemoryRemote
    repo: MemoryRepo
    forge: MemoryForge
    runtime: MemoryRuntime
    gateway: MemoryGateway
    store: MemoryStore
    shelf: Shelf
    world: World
    main: str

    @classmethod
    def open(cls, folder: Path, **policy: Any) -> Workshop:
        clock, remote = Hand(), MemoryRemote()
        main = remote.write("refs/heads/main", {"README.md": "widget"}, "first", clock.now())
        hub = Hub(remote, clock, REPO, people={"harness-bot": "admin", "ada": "write"})
        repo = MemoryRepo(remote)
        repo.fetch()
        forge = MemoryForge(remote, clock, hub=hub)
        runtime, gateway = MemoryRuntime(clock), MemoryGateway(clock)
        store, shelf = MemoryStore(clock, epoch=1), Shelf()
        rules = replace(Policy(repo=REPO, instance="t", commands=("test",), image="img"), **policy)
        world = World(
            clock, store, lambda: rules, folder, 1, clock.now(), forge=forge, repo=repo, runtime=runtime,
            gateway=gateway, archive=shelf, screen=lambda imported: Screened(), marks=Marks(b"s" * 32, "t", REPO),
            tools=Tools("python", "/harness", ("harness",)),
        )  # fmt: skip
        return cls(clock, hub, remote, repo, forge, runtime, gateway, store, shelf, world, main)

    def issue(self, *labels: str) -> int:
        return self.hub.person_opens("ada", "Add it", "Please.", ("harness", *labels))

    def branch(self, name: str, **files: str) -> str:
        """A branch on top of main, known to the mirror."""
        self.remote.set(f"refs/heads/{name}", self.main)
        sha = self.remote.write(f"refs/heads/{name}", files or {name: "1"}, name, self.clock.now())
        self.repo.fetch()
        return sha

    def bundle(self, attempt: str, parent: str, **files: str) -> tuple[str, str]:
        """A worker's commit, handed over: its SHA, and the bundle's."""
        sha = self.repo.write([parent], files, "work")
        path = Path(f"/bundles/{attempt}/{sha}")
        self.repo.register_bundle(path, sha)
        self.gateway.open(attempt, "token", 1)
        bus = MemoryBus(self.gateway, attempt, "token", 1, read=lambda p: str(p).encode())
        return sha, bus.upload(path).unwrap()

    def do(self, effect: Effect, sent: Sent | None = None) -> Outcome:
        return perform(effect, sent or Sent(None), self.world)

    def drive(self, effect: Effect, sent: Sent | None = None, most: int = 40) -> list[Outcome]:
        """Perform until it is closed, as the tick would: outcomes in order, the clock moved to what they ask."""
        sent, told = sent or Sent(None), []
        for _ in range(most):
            outcome = self.do(effect, sent)
            told.append(outcome)
            if outcome.status in ("done", "failed"):
                return told
            at = outcome.sent_at if outcome.sent_at is not None else sent.at
            if outcome.status != "later":
                sent = Sent(at, outcome.absent, sent.tries + 1)
            self.clock.at = max(self.clock.at + 1.0, outcome.not_before)
        raise AssertionError(f"{effect.key} is never closed: {told[-1]}")

    def seen(self) -> str:
        """Everything anybody can see of the outside, as one text."""
        h, self.runtime.fault = self.hub, None
        jobs = {s.name: s.phase for s in self.runtime.ours().unwrap()}
        return json.dumps(
            {
                "issues": {n: [i.open, i.title, sorted(i.labels)] for n, i in h.issues.items()},
                "comments": [[n, c.author, c.body] for n, c in h.comments.values()],
                "pulls": {n: [p.head, p.base, p.open, p.merged, p.title, p.body] for n, p in h.pulls.items()},
                "statuses": {s: [f"{c.name} {c.state}" for c in v] for s, v in h.statuses.items()},
                "releases": h.release_texts,
                "labels": sorted(h.labels),
                "refs": {r: self.remote.commits[s].tree_sha for r, s in sorted(self.remote.refs.items())},
                "kept": {r: s for r, s in sorted(self.repo.refs.items()) if r.startswith("refs/harness/")},
                "folders": sorted(str(f) for f in self.repo.folders),
                "jobs": jobs,
                "facts": dict(sorted(self.store.disk.facts.items())),
                "sealed": sorted(self.shelf.sealed),
                "desks": sorted(self.gateway.desks),
            },
            indent=1,
            default=str,
        )
