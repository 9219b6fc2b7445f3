"""A whole night in memory: director and workers tick in one process, and time passes only when nothing moves.

The one rule: everything here is deterministic; the same play gives the same journals, to the byte.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.adapters.memory.bus import MemoryBus, MemoryGateway
from harness.adapters.memory.commits import tree_sha
from harness.adapters.memory.forge import MemoryForge
from harness.adapters.memory.hub import Hub
from harness.adapters.memory.repo import MemoryRemote, MemoryRepo
from harness.adapters.memory.runtime import MemoryRuntime, Plan
from harness.adapters.memory.store import Disk, MemoryStore
from harness.core.item import Item
from harness.core.result import Err, Ok, Result
from harness.domain import AgentResult, Imported, Job, WorkTree
from harness.failures import Failure
from harness.looks import Looks, Own
from harness.machines.director.states import Director
from harness.machines.worker.states import Worker
from harness.marks import Marks
from harness.perform import perform
from harness.policy import Policy
from harness.ports import Agent, Brief, Launch, Tools, World
from harness.sim.turns import Turns
from harness.tick import Ticker

REPO = "acme/widget"
Play = Mapping[int, list[Mapping[str, Any]]]


class NightClock:
    """Time that passes when it is told to."""

    def __init__(self, start: float = 1_796_000_000.0) -> None:
        self.at = start

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


class NightAgent:
    """The agent of the night: its result line is all it prints."""

    name = "scripted"
    needs: tuple[str, ...] = ()

    def build(self, brief: Brief) -> Launch:
        return Launch(("agent", str(brief.issue), str(brief.round)), {"ROUND": str(brief.round)}, {})

    def parse(self, output: bytes, files: Mapping[str, bytes], exit_code: int | None) -> AgentResult:
        if exit_code is None or not output:
            return AgentResult("interrupted")
        d = json.loads(output)
        return AgentResult(
            d.get("status", "done"), d.get("say", "did it"), tokens_in=1000, tokens_out=50, question=d.get("question", "")
        )


class NightClone:
    """A worker's clone in memory: a head and the files changed on top of it."""

    def __init__(self, repo: MemoryRepo, folder: Path, attempt: str) -> None:
        self.repo, self.folder, self.attempt = repo, folder, attempt
        kept = repo.folders[folder]
        self.head, self.branch = kept.sha, kept.branch
        self.base_sha = ""
        self.files: dict[str, str | None] = {}

    def tree(self) -> dict[str, str]:
        tree = dict(self.repo._everything()[self.head].tree)
        for path, text in self.files.items():
            if text is None:
                tree.pop(path, None)
            else:
                tree[path] = text
        return tree

    def sync(self, base: str) -> Result[Mapping[str, Any]]:
        tip = self.repo.remote.refs.get(f"refs/heads/{base}", "")
        self.repo.fetch()
        self.base_sha = tip
        if self.repo.is_ancestor(tip, self.head).unwrap():
            return Ok({"what": "up_to_date", "base_sha": tip, "conflicts": []})
        if self.repo.is_ancestor(self.head, tip).unwrap():
            self.head = tip
            return Ok({"what": "moved", "base_sha": tip, "conflicts": []})
        mine = dict(self.repo._everything()[self.head].tree)
        theirs = dict(self.repo._everything()[tip].tree)
        self.head = self.repo.write([self.head, tip], {**theirs, **mine}, "merge")
        return Ok({"what": "merged", "base_sha": tip, "conflicts": []})

    def look(self, base_sha: str) -> Result[WorkTree]:
        changed = tuple(p for p, t in self.files.items() if self.repo._everything()[self.head].tree.get(p) != t)
        base = self.repo._everything().get(self.base_sha or base_sha)
        ahead = int(base is not None and base.tree_sha != self.repo._everything()[self.head].tree_sha)
        return Ok(WorkTree(self.head, base_sha, len(changed), changed, ahead))

    def commit(self, message: str, author: tuple[str, ...], at: float, base_sha: str) -> Result[Mapping[str, Any]]:
        if tree_sha(self.tree()) != self.repo._everything()[self.head].tree_sha:
            self.head = self.repo.write([self.head], self.files, message, at)
        self.files = {}
        base = self.repo._everything()[base_sha]
        return Ok({"sha": self.head, "changed": base.tree_sha != self.repo._everything()[self.head].tree_sha})

    def bundle(self, sha: str, base_sha: str) -> Result[Path]:
        path = Path(f"/bundles/{self.attempt}/{sha}")
        self.repo.register_bundle(path, sha)
        return Ok(path)

    def save(self, name: str, base_sha: str) -> Result[Mapping[str, Any]]:
        return Ok({"patch": f"patches/{name}.patch", "files": len(self.files)})


class NightArchive:
    def __init__(self) -> None:
        self.sealed: dict[str, Mapping[str, Any]] = {}

    def seal(self, attempt: str, machine: str, meta: Mapping[str, Any], logs: Mapping[str, bytes]) -> Result[str]:
        self.sealed.setdefault(attempt, dict(meta))
        return Ok(f"audit-{attempt}")


@dataclass
class Living:
    """A worker's process: its container's name, and its loop."""

    name: str
    attempt: str
    incarnation: int
    turns: Turns
    clone: NightClone
    bus: MemoryBus
    runtime: MemoryRuntime
    code: int | None = None


@dataclass
class Night:
    """The world and everything in it. `play` says what the agent does per issue and round; `green(tree)` what
    the validation thinks of a tree."""

    policy: Policy
    play: Play
    green: Callable[[Mapping[str, str]], bool] = lambda tree: not any("BUG" in t for t in tree.values())
    clock: NightClock = field(default_factory=NightClock)
    agent: Agent = field(default_factory=NightAgent)
    work_s: float = 30.0

    def __post_init__(self) -> None:
        self.tmp = tempfile.TemporaryDirectory(prefix="night-")
        self.data = Path(self.tmp.name)
        self.remote = MemoryRemote()
        self.remote.write("refs/heads/main", {"README.md": "widget"}, "first", self.clock.now())
        self.hub = Hub(self.remote, self.clock, REPO, people={"harness-bot": "admin", "ada": "write"})
        self.forge = MemoryForge(self.remote, self.clock, hub=self.hub)
        self.repo = MemoryRepo(self.remote)
        self.runtime = MemoryRuntime(self.clock, script=self.script)
        self.gateway = MemoryGateway(self.clock)
        self.archive = NightArchive()
        self.disk = Disk()
        self.disks: dict[str, Disk] = {}
        self.living: dict[str, Living] = {}
        self.marks = Marks(b"s" * 32, "night", REPO)
        self.epoch = 0
        self.signal = ""
        self.boundary: Callable[[str], None] = lambda what: None
        self.story: list[str] = []
        self.start()

    # ------------------------------------------------------------ the director

    def start(self) -> None:
        """A director begins a new epoch on what the last one left."""
        self.epoch += 1
        self.disk.epoch = self.epoch
        store = MemoryStore(self.clock, code="0", epoch=self.epoch, disk=self.disk)
        world = World(
            self.clock, store, lambda: self.policy, self.data, self.epoch, self.clock.now(), forge=self.forge,
            repo=self.repo, runtime=self.runtime, gateway=self.gateway, archive=self.archive, screen=screen_nothing,
            marks=self.marks, tools=Tools("python", "/harness", ("harness",)), agents={"scripted": self.agent},
        )  # fmt: skip
        self.turns = Turns.of(world, lambda: self.signal, self.rhythm, lambda what: self.boundary(what))
        names = tuple(store.machines())
        self.turns.load(names)
        mine = [n for n in names if "/director/" in n]
        before = max(mine, key=lambda n: int(n.rsplit("/", 1)[1]), default="")
        head = self.turns.items[before].head if before else ""
        for n in mine:
            self.turns.out.add(n)
        for item in self.turns.items.values():
            if "/attempt/" in item.id and item.state in ("STARTING", "RUNNING"):
                token = self.marks.token(item.data.code, item.data.incarnation)
                self.gateway.open(item.data.code, token, item.data.incarnation)
        self.turns.open(f"{REPO}/director/{self.epoch}", Director(REPO, before, head))

    def crash(self) -> None:
        """kill -9 of the director; what its threads had in hand is done or not done."""
        self.gateway.restart()
        self.start()

    def rhythm(self, head: str) -> float:
        return self.policy.interval_s

    # ------------------------------------------------------------ what jobs do

    def script(self, job: Job) -> Plan | None:
        if job.role == "worker":
            self._spawn(job)
            return Plan(None)
        if job.role in ("gate", "prepare"):
            return Plan(10.0, 0 if self.green(self._gate_tree(job)) else 1, output=b"$ test\n")
        return Plan(1.0)

    def _gate_tree(self, job: Job) -> Mapping[str, str]:
        folder = self.repo.folders[self.data / job.mounts[0].path]
        return self.repo.commits[folder.sha].tree

    def _spawn(self, job: Job) -> None:
        attempt = job.env["HARNESS_ATTEMPT"]
        incarnation = int(job.env["HARNESS_INCARNATION"])
        kept = self.living.get(attempt)
        folder = self.data / "attempts" / attempt / "clone"
        clone = kept.clone if kept else NightClone(self.repo, folder, attempt)
        bus = MemoryBus(
            self.gateway, attempt, self.marks.token(attempt, incarnation), incarnation, read=lambda p: str(p).encode()
        )
        runtime = MemoryRuntime(self.clock)
        brief = json.loads((folder.parent / "in" / "brief.json").read_text())
        runtime.script = lambda j: self._inner(j, clone, brief, runtime)
        self.living[attempt] = Living(
            job.name, attempt, incarnation, self._worker_turns(attempt, brief, clone, bus, runtime, job), clone, bus, runtime
        )

    def _inner(self, job: Job, clone: NightClone, brief: Mapping[str, Any], runtime: MemoryRuntime) -> Plan:
        """An agent's or a validation's run inside a worker."""
        if job.role == "agent":
            rounds = self.play.get(int(brief["issue"]), [{"write": {f"file-{brief['issue']}": "done"}}])
            offset = len(brief.get("answers", ()))
            part = rounds[min(int(job.env["ROUND"]) - 1 + offset, len(rounds) - 1)]
            clone.files.update(part.get("write", {}))
            return Plan(part.get("takes_s", self.work_s), int(part.get("exit", 0)), output=json.dumps(part).encode())
        good = self.green(clone.tree())
        self._result(job, good)
        return Plan(5.0, 0 if good else 1, output=b"$ test\n" + (b"" if good else b"1 failed\n"))

    def _result(self, job: Job, good: bool) -> None:
        path = Path(job.argv[3])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"commands_run": 1, "failed_command": "" if good else "test", "exit": int(not good)}))

    def _worker_turns(
        self, attempt: str, brief: Mapping[str, Any], clone: NightClone, bus: MemoryBus, runtime: MemoryRuntime, job: Job
    ) -> Turns:
        disk = self.disks.setdefault(attempt, Disk())
        store = MemoryStore(self.clock, code="0", disk=disk)
        audit = self.data / "attempts" / attempt / "audit"
        world = World(
            self.clock, store, lambda: self.policy, audit, forge=None, runtime=runtime, bus=bus, clone=clone,
            agents={self.agent.name: self.agent}, tools=Tools("python", "/harness", ("harness",)),
            brief={**brief, "home": str(audit.parent / "home"), "workspace": str(audit.parent / "clone")},
            leave=lambda code: self._leave(attempt, code),
        )  # fmt: skip
        turns = Turns.of(world, lambda: "", self.rhythm, lambda what: None)
        machine = f"{REPO}/worker/{attempt}"
        turns.load(tuple(store.machines()))
        if machine not in turns.items:
            turns.open(machine, worker_data(brief, job.image))
        return turns

    def _leave(self, attempt: str, code: int) -> None:
        self.living[attempt].code = code

    def _work(self, living: Living) -> bool:
        """One pass of a worker's process; its end is its container's end."""
        status = self.runtime.status(living.name)
        if not isinstance(status, Ok) or status.value is None or not status.value.alive:
            return False
        moved = living.turns.turn()
        item = next(iter(living.turns.items.values()))
        final = item.state if item.state in ("DONE", "BLOCKED") else ""
        detail = {"final": final, "reason": item.data.detail, "failure": item.data.failure, "counters": item.data.counters}
        living.bus.beat(item.state, detail)
        if final:
            words = {**detail, "incarnation": living.incarnation, "state": item.state, "counters": dict(item.data.counters)}
            path = self.data / "attempts" / living.attempt / "audit" / "last.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(words))
        self.runtime.say(living.name, b"", cpu_s=0.1)
        if final:
            living.code = {"DONE": 0}.get(final, 11 if item.data.failure == "question" else 10)
        if living.code is not None:
            self.runtime.finish(living.name, living.code)
            return True
        return moved

    # ------------------------------------------------------------ time

    def step(self, seconds: float = 1.0) -> None:
        """Everything that can be done now is done; then time passes."""
        for _ in range(1000):
            moved = self.turns.turn()
            for living in list(self.living.values()):
                moved = self._work(living) or moved
            if not moved:
                break
        else:
            raise AssertionError("the night does not come to rest: something moves for ever")
        self.clock.at += seconds

    def run(self, until: Callable[[Night], bool], limit_s: float = 7200.0, step_s: float = 1.0) -> None:
        end = self.clock.at + limit_s
        while not until(self):
            if self.clock.at > end:
                raise AssertionError(f"after {limit_s:.0f} s: {self.states()}; waiting: {self.turns.ticker.waiting}")
            self.step(step_s)

    def states(self) -> dict[str, str]:
        return {k.removeprefix(REPO + "/"): i.state for k, i in self.turns.items.items()}

    def item(self, name: str) -> Item[Any]:
        return self.turns.items[f"{REPO}/{name}"]


def worker_data(brief: Mapping[str, Any], image: str) -> Worker:
    """The worker's first data, from its brief."""
    return Worker(
        issue=int(brief["issue"]), title=str(brief["title"]), base=str(brief["base"]), base_sha=str(brief["base_sha"]),
        branch=str(brief["branch"]), agent=str(brief["agent"]), commands=tuple(brief["commands"]), image=image,
        counters=dict(brief.get("counters", {})), feedback=str(brief.get("feedback", "")),
    )  # fmt: skip


def screen_nothing(imported: Imported) -> str:
    return ""


def fault(text: str) -> Err:
    return Err(Failure.FORGE_DOWN, text)


__all__ = ["Night", "NightClock", "Ticker", "Looks", "Own", "perform", "replace", "worker_data"]
