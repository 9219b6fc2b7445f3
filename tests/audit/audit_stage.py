"""A stage for real machines: a store in memory, a clock that the test turns, and facts that the test sets.

The one rule: nothing of ours is replaced. Machines, Ticker and store are the real ones; only what looks would
have read and what effects would have brought about is written by the test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import __version__
from harness.adapters.memory.store import MemoryStore
from harness.core import journal
from harness.core.item import Item
from harness.domain import (
    Absent,
    AgentResult,
    Ask,
    Beat,
    Candidate,
    Issue,
    News,
    Reply,
    Run,
    Status,
    Unknown,
    WorkTree,
    container_name,
)
from harness.effects import Effect
from harness.looks import LOCAL, Own
from harness.machines.director.states import Director
from harness.machines.kind import known
from harness.machines.release.states import Release
from harness.machines.worker.states import Worker
from harness.perform.outcome import Outcome, Sent
from harness.policy import Policy
from harness.ports import World
from harness.sim.turns import AtOnce
from harness.tick import Ticker

REPO = "acme/widget"
BASE = "9f3c2a" + "0" * 34
WORK = "c0ffee" + "1" * 34
MERGE = "8d2a77" + "2" * 34
TREE = "5b1e00" + "3" * 34
START = 1_795_745_200.0  # 27 Nov 2026, 02:06:40 UTC
RELEASE = f"{REPO}/release/0.4.0"
Values = dict[str, Any]


class Clock:
    def __init__(self, at: float = START) -> None:
        self.at = at

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


def sealed(effect: Any) -> Values:
    return {"audit": f"audit-{effect.attempt}"}


@dataclass
class Stage:
    """`facts` by query, or by the beginning of one; `values` what an effect answers, by its name: a value, an
    Outcome, or a function of the effect."""

    policy: Policy = field(default_factory=lambda: Policy(commands=("scripts/test.sh",), image="sha256:41d0"))
    epoch: int = 7
    code: str = __version__
    facts: Values = field(default_factory=dict)
    values: Values = field(default_factory=lambda: {"SealBundle": sealed})
    store: MemoryStore | None = None

    def __post_init__(self) -> None:
        self.clock = Clock() if self.store is None else self.store.clock
        self.items: dict[str, Item[Any]] = {}
        if self.store is None:
            self.store = MemoryStore(self.clock, code=self.code, epoch=self.epoch)
        world = World(
            self.clock, self.store, lambda: self.policy, Path("/nowhere"), self.epoch, self.clock.now()
        )
        self.own = Own(world, self.items)
        self.ticker = Ticker(world, self, AtOnce(), self._perform, lambda: self.policy, code=self.code)

    def see(self, item: Item[Any], query: str) -> Any:
        head = query.split("/")[0]
        found = self.facts.get(
            query, self.facts.get(f"{head}/", self.own.answer if head in LOCAL else Unknown())
        )
        value = found(query) if callable(found) else found
        return self.own.with_past(value) if head == "candidates" and known(value) else value

    def _perform(self, effect: Effect, sent: Sent, world: World) -> Outcome:
        value = self.values.get(type(effect).__name__, {})
        value = value(effect) if callable(value) else value
        return value if isinstance(value, Outcome) else Outcome.done(value)

    def open(self, name: str, data: Any) -> Item[Any]:
        self.items[f"{REPO}/{name}"] = self.ticker.open(f"{REPO}/{name}", data)
        return self.items[f"{REPO}/{name}"]

    def go(self, *names: str, passes: int = 60, **facts: Any) -> None:
        """Tick these machines, or all, until nothing moves."""
        self.facts |= facts
        for _ in range(passes):
            before = dict(self.items)
            for machine in [f"{REPO}/{n}" for n in names] or list(self.items):
                if machine in self.items and "/release/" not in machine:
                    self.items[machine] = self.ticker.tick(self.items[machine])
                for opened in self.ticker.opened:
                    self.items[opened.id] = opened
                self.ticker.opened.clear()
            if all(self.items[m] is before.get(m) for m in self.items):
                return
        raise AssertionError("it does not come to rest")

    def state(self, name: str) -> str:
        return self.items[f"{REPO}/{name}"].state

    def at(self, clock: str) -> None:
        """Turn the clock to `02:31:05` of the same night."""
        h, m, s = (int(x) for x in clock.split(":"))
        self.clock.at = START - (2 * 3600 + 6 * 60 + 40) + h * 3600 + m * 60 + s

    def records(self, name: str) -> list[Any]:
        assert self.store is not None
        return list(self.store.read(f"{REPO}/{name}"))


# ---------------------------------------------------------------- what was seen


def issue(n: int, title: str, **more: Any) -> Issue:
    given = {"labels": ("harness",), "author": "ada", "created_at": float(n), "updated_at": 1.0, **more}
    return Issue(n, title, "please", **given)


def claimed(n: int) -> tuple[Reply, ...]:
    return (Reply(n * 10, "bot", "Working on it.", START, name="status", instance="local", ours=True),)


def candidates(*issues: Issue, trusted: bool = True) -> tuple[Candidate, ...]:
    return tuple(Candidate(i, trusted and i.author_kind != "Bot") for i in issues)


def beat(code: str, **more: Any) -> Beat:
    """A heartbeat; what is not said is as in the middle of the work."""
    given = {"state": "CODE", "incarnation": 1, "seq": 57, "head": "ab" * 32, **more}
    return Beat(START, **given)


ISSUES = (
    issue(12, "Widget forgets its colour"),
    issue(21, "Make the parser faster", created_at=13.0),
    issue(15, "Say hello in Welsh"),
    issue(19, "Bump the linter", author_kind="Bot", author="bumper"),
)


def director(stage: Stage, **more: Any) -> None:
    """A director boots, looks, and dispatches what it may."""
    facts: Mapping[str, Any] = {
        "repository": True, "image": "sha256:41d0", "preflight": True, "default": "main", "ours": (),
        "refs": {"refs/heads/main": BASE, "refs/heads/release/0.4.0": BASE},
        "candidates": candidates(*ISSUES),
        "disk": 50 << 30, "asked/": (), "job/": Absent(), "words/": Beat(2e9, "", 0), "capped/": "",
        "beat/": lambda q: Beat(stage.clock.now(), "CODE", 1),
        **{f"issue/{i.number}": i for i in ISSUES},
        **{f"replies/{i.number}": claimed(i.number) for i in ISSUES},
    }  # fmt: skip
    stage.facts |= {**facts, **more}
    if RELEASE not in stage.items:
        stage.open("release/0.4.0", Release(REPO, "0.4.0", "release/0.4.0", "main", BASE, "v0.4.0", tip=BASE))
    before = max((m for m in stage.items if "/director/" in m), default="")
    stage.open(f"director/{stage.epoch}", Director(REPO, before, stage.items[before].head if before else ""))
    stage.go(f"director/{stage.epoch}")


def begun(stage: Stage) -> None:
    """Tickets are claimed and attempts run, as far as there is room."""
    stage.values |= {"StartWorker": {"engine": "e1", "image": "sha256:41d0"}}
    stage.facts["job/"] = running
    stage.go()


def running(query: str) -> Any:
    return Absent() if query.endswith("harvest") else Status(query[4:], "RUNNING", engine="e1")


def ended(stage: Stage, code: str, exit_code: int, audit: str, cost: float, **said: Any) -> None:
    """The worker of an attempt ends, having said this; everything is saved and cleaned up."""
    name = container_name(REPO, code, "i1", "local")
    stage.facts |= {
        f"beat/{code}": beat(code, **said),
        f"job/{name}": Status(name, "EXITED", exit_code, engine="e1"),
    }
    stage.values["SealBundle"] = {"audit": audit, "cost_usd": cost}
    stage.go()


def worker(code: str = "12.1", issue_number: int = 12) -> Stage:
    """A worker's whole life in a store of its own: one red validation, then done."""
    stage = Stage(epoch=1)
    big = tuple(f"src/module_{n:03}.py" for n in range(200))  # large enough to become a blob
    stage.facts |= {
        "news": News(), "tree": WorkTree(WORK, BASE, 3, big), "run/": Unknown("it was not looked at"),
    }  # fmt: skip
    stage.values |= {
        "Sync": {"what": "up_to_date", "base_sha": BASE}, "LoadContext": {"bytes": 6100, "hidden": 1},
        "Commit": {"sha": WORK, "changed": True}, "Request": {"pull": 31},
    }  # fmt: skip
    start = Worker(issue_number, "Widget forgets its colour", "release/0.4.0", BASE, f"agent/{issue_number}")
    name = f"worker/{code}"
    stage.open(name, start)
    stage.go()
    for n, good in enumerate((False, True)):
        done = AgentResult("done", "did it", f"session-{n}", 40_000, 1_000, 0.22)
        stage.clock.at += 60
        item = stage.items[f"{REPO}/{name}"]
        stage.facts[f"run/run-{item.entry}"] = Run(f"run-{item.entry}", False, 0, result=done)
        stage.go()
        item = stage.items[f"{REPO}/{name}"]
        verdict = Run("validate", False, 0 if good else 1, commands_run=1, failed_command="scripts/test.sh")
        stage.facts[f"run/run-{item.entry}"] = verdict
        stage.clock.at += 5
        stage.go()
    return stage


def lines(stage: Stage, name: str) -> bytes:
    return b"".join(journal.line(r) for r in stage.records(name))


def closed(stage: Stage, testimony: Stage) -> None:
    """The attempt 12.1 ends as done, having witnessed that worker's journal to its end."""
    last = testimony.records("worker/12.1")[-1]
    stage.values |= {"Publish": {"sha": WORK, "files": ["widget.py"]}, "OpenPull": {"number": 31}}
    args = {"sha": WORK, "base_sha": BASE, "bundle": "b"}
    stage.at("02:30:00")
    stage.facts["asked/12.1"] = (Ask("publish-1", "publish", args), Ask("pull-1", "open_pull", {"sha": WORK}))
    stage.go("attempt/12.1")
    ended(
        stage, "12.1", 0, "20261127-0230-12.1", 0.44, state="DONE", final="DONE", seq=last.seq, head=last.hash
    )
