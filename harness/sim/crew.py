"""The workers of a night: each is a process of its own, with its journal, clock, agent and clone in memory.

The one rule: a worker lives exactly as long as its container runs, and what it left in clone and journal is
there for its next incarnation.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from harness.adapters.memory.commits import tree_sha
from harness.adapters.memory.repo import MemoryRepo
from harness.adapters.memory.runtime import MemoryRuntime, Plan
from harness.adapters.memory.store import Disk
from harness.core.result import Ok, Result
from harness.domain import AgentResult, Job, WorkTree
from harness.machines.worker.states import Worker
from harness.marks import Marks
from harness.policy import Policy
from harness.ports import Brief, Launch, Tools, World
from harness.sim.clock import ProcessClock, Time
from harness.sim.outside import Killed, SimBus, SimGateway, SimRuntime, SimStore, Switch
from harness.sim.turns import Delay, Turns, at_once

Play = Mapping[int, Sequence[Mapping[str, Any]]]
Green = Callable[[Mapping[str, str]], bool]
BEAT_S = 5.0
PERSON = frozenset(
    {"question", "policy_violation", "validation_missing", "agent_no_changes", "budget_exhausted"}
)


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
            d.get("status", "done"),
            d.get("say", "did it"),
            tokens_in=1000,
            tokens_out=50,
            question=d.get("question", ""),
        )


class NightClone:
    """A worker's clone in memory: a head and the files changed on top of it."""

    def __init__(self, repo: MemoryRepo, folder: Path, attempt: str) -> None:
        self.repo, self.folder, self.attempt = repo, folder, attempt
        kept = repo.folders[folder]
        self.head, self.branch = kept.sha, kept.branch
        self.base_sha = ""
        self.files: dict[str, str | None] = {}

    def _tree_of(self, sha: str) -> Mapping[str, str]:
        return (self.repo.commits.get(sha) or self.repo.outside[sha]).tree

    def tree(self) -> dict[str, str]:
        tree = dict(self._tree_of(self.head))
        for path, text in self.files.items():
            if text is None:
                tree.pop(path, None)
            else:
                tree[path] = text
        return tree

    def sync(self, base: str) -> Result[Mapping[str, Any]]:
        tip = self.repo.remote.refs.get(f"refs/heads/{base}", "")
        MemoryRepo.fetch(self.repo)
        everything = self.repo._everything()
        self.base_sha = tip
        if self._reaches(everything, self.head, tip):
            return Ok({"what": "up_to_date", "base_sha": tip, "conflicts": []})
        if self._reaches(everything, tip, self.head):
            self.head = tip
            return Ok({"what": "moved", "base_sha": tip, "conflicts": []})
        mine, theirs = dict(self._tree_of(self.head)), dict(self._tree_of(tip))
        self.head = self.repo.write([self.head, tip], {**theirs, **mine}, "merge")
        return Ok({"what": "merged", "base_sha": tip, "conflicts": []})

    @staticmethod
    def _reaches(everything: Any, new: str, old: str) -> bool:
        from harness.adapters.memory.commits import reaches

        return reaches(everything, new, old)

    def look(self, base_sha: str) -> Result[WorkTree]:
        head = self._tree_of(self.head)
        changed = tuple(p for p, t in self.files.items() if head.get(p) != t)
        ahead = int(tree_sha(self._tree_of(self.base_sha or base_sha)) != tree_sha(head))
        return Ok(WorkTree(self.head, base_sha, len(changed), changed, ahead))

    def commit(
        self, message: str, author: tuple[str, ...], at: float, base_sha: str
    ) -> Result[Mapping[str, Any]]:
        if tree_sha(self.tree()) != tree_sha(self._tree_of(self.head)):
            self.head = self.repo.write([self.head], self.files, message, at)
        self.files = {}
        changed = tree_sha(self._tree_of(base_sha)) != tree_sha(self._tree_of(self.head))
        return Ok({"sha": self.head, "changed": changed})

    def bundle(self, sha: str, base_sha: str) -> Result[Path]:
        path = Path(f"/bundles/{self.attempt}/{sha}")
        self.repo.register_bundle(path, sha)
        return Ok(path)

    def save(self, name: str, base_sha: str) -> Result[Mapping[str, Any]]:
        return Ok({"patch": f"patches/{name}.patch", "files": len(self.files)})


@dataclass
class Living:
    """A worker's process: its container's name, and its loop."""

    name: str
    attempt: str
    incarnation: int
    turns: Turns
    clone: NightClone
    bus: SimBus
    runtime: MemoryRuntime
    code: int | None = None
    next_at: float = inf
    beat_at: float = 0.0

    @property
    def machine(self) -> Any:
        return next(iter(self.turns.items.values()))


@dataclass
class Crew:
    """All workers. `boundary` is called around each of their appends and effects."""

    policy: Callable[[], Policy]
    play: Play
    green: Green
    time: Time
    repo: MemoryRepo
    runtime: SimRuntime
    gateway: SimGateway
    marks: Marks
    data: Path
    repo_key: str
    work_s: float = 30.0
    delay: Delay = at_once
    switch: Switch = field(default_factory=Switch)
    boundary: Callable[[str], None] = lambda what: None
    agent: Any = field(default_factory=NightAgent)
    thorough: bool = True
    living: dict[str, Living] = field(default_factory=dict)
    disks: dict[str, Disk] = field(default_factory=dict)
    bugs: list[str] = field(default_factory=list)

    def script(self, job: Job) -> Plan | None:
        """What a container that the director starts does."""
        if job.role == "worker":
            self._spawn(job)
            return Plan(None)
        if job.role in ("gate", "prepare"):
            commit = self.repo.commits[self.repo.folders[self.data / job.mounts[0].path].sha]
            if job.role == "gate":
                self.runtime.trees[job.name] = commit.tree_sha
            return Plan(10.0, 0 if self.green(commit.tree) else 1, output=b"$ test\n")
        return Plan(1.0)

    def _spawn(self, job: Job) -> None:
        attempt, incarnation = job.env["HARNESS_ATTEMPT"], int(job.env["HARNESS_INCARNATION"])
        kept = self.living.get(attempt)
        folder = self.data / "attempts" / attempt / "clone"
        clone = kept.clone if kept else NightClone(self.repo, folder, attempt)
        token = self.marks.token(attempt, incarnation)
        bus = SimBus(self.gateway, attempt, token, incarnation, read=lambda p: str(p).encode())
        bus.switch = self.switch
        clock = ProcessClock.started(self.time)
        runtime = MemoryRuntime(clock)
        brief = json.loads((folder.parent / "in" / "brief.json").read_text())
        runtime.script = lambda j: self._inner(j, clone, brief)
        turns = self._turns(attempt, incarnation, brief, clone, bus, runtime, job, clock)
        if kept is not None:
            self.bugs += [*kept.turns.bugs, *kept.turns.performer.bugs]
        self.living[attempt] = Living(job.name, attempt, incarnation, turns, clone, bus, runtime)

    def _inner(self, job: Job, clone: NightClone, brief: Mapping[str, Any]) -> Plan:
        """An agent's or a validation's run inside a worker."""
        if job.role == "agent":
            issue = int(brief["issue"])
            rounds = self.play.get(issue, [{"write": {f"file-{issue}": "done"}}])
            part = rounds[min(int(job.env["ROUND"]) - 1, len(rounds) - 1)]
            clone.files.update(part.get("write", {}))
            if brief.get("feedback") and part.get("ok"):
                clone.files[f"notes-{issue}"] = str(brief["attempt"])
            takes_s = part.get("takes_s", self.work_s)
            return Plan(takes_s, int(part.get("exit", 0)), output=json.dumps(part).encode())
        good = self.green(clone.tree())
        path = Path(job.argv[3])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            json.dumps({"commands_run": 1, "failed_command": "" if good else "test", "exit": int(not good)})
        )
        return Plan(5.0, 0 if good else 1, output=b"$ test\n" + (b"" if good else b"1 failed\n"))

    def _turns(
        self, attempt: str, incarnation: int, brief: Mapping[str, Any], clone: NightClone, bus: SimBus,
        runtime: MemoryRuntime, job: Job, clock: ProcessClock,
    ) -> Turns:  # fmt: skip
        disk = self.disks.setdefault(attempt, Disk())
        disk.epoch = incarnation
        store = SimStore(clock, code="0", epoch=incarnation, disk=disk)
        store.time, store.chained = self.time, self.thorough
        audit = self.data / "attempts" / attempt / "audit"
        world = World(
            clock, store, self.policy, audit, incarnation, clock.now(), runtime=runtime, bus=bus, clone=clone,
            agents={self.agent.name: self.agent}, tools=Tools("python", "/harness", ("harness",)),
            brief={**brief, "home": str(audit.parent / "home"), "workspace": str(audit.parent / "clone")},
            leave=lambda code: self._leave(attempt, code),
        )  # fmt: skip
        turns = Turns.of(
            world, lambda: "", lambda head: 5.0, lambda what: self._boundary(attempt, what), delay=self.delay
        )
        machine = f"{self.repo_key}/worker/{attempt}"
        turns.load(tuple(store.machines()))
        if machine not in turns.items:
            turns.open(machine, worker_data(brief, job.image))
        return turns

    def _boundary(self, attempt: str, what: str) -> None:
        if attempt in self.living:
            self.boundary(what)

    def _leave(self, attempt: str, code: int) -> None:
        self.living[attempt].code = code

    # ------------------------------------------------------------ one pass

    def turn(self) -> bool:
        moved = False
        for living in list(self.living.values()):
            if self.runtime.alive(living.name):
                moved = self._work(living) or moved
        return moved

    def _work(self, living: Living) -> bool:
        """One pass of a worker's process; its end is its container's end."""
        if self.time.at >= living.next_at:
            living.next_at = inf
            living.turns.moment += 1
        try:
            moved = living.turns.turn()
        except Killed:
            self.runtime.kill(living.name)
            return True
        item = living.machine
        final = item.state if item.state in ("DONE", "BLOCKED") else ""
        detail = {
            "final": final,
            "reason": item.data.detail,
            "failure": item.data.failure,
            "counters": item.data.counters,
        }
        if moved or final or self.time.at - living.beat_at >= BEAT_S:
            living.beat_at = self.time.at
            living.bus.beat(item.state, detail)
            self.runtime.say(living.name, b"", cpu_s=0.1)
        if final:
            self._last_words(living, final)
            living.code = 0 if final == "DONE" else 11 if item.data.failure in PERSON else 10
        if living.code is not None:
            self.runtime.finish(living.name, living.code)
            return True
        return moved

    def _last_words(self, living: Living, final: str) -> None:
        """In the audit folder too, as the real worker: the director may be down when a worker ends."""
        d: Worker = living.machine.data
        words = {
            "incarnation": living.incarnation, "state": living.machine.state, "final": final,
            "reason": (d.detail or d.summary)[:2000], "failure": d.failure if final != "DONE" else "",
            "counters": dict(d.counters),
        }  # fmt: skip
        path = self.data / "attempts" / living.attempt / "audit" / "last.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(words))

    def due(self) -> list[float]:
        """True times at which a living worker, or what it runs, may have something to do."""
        now = self.time.at + 1e-9
        found: list[float] = []
        for living in self.living.values():
            if self.runtime.alive(living.name):
                offset = living.turns.ticker.world.clock.now() - self.time.at
                jobs = living.runtime._jobs.values()
                ends = [e.ends_at - offset for e in jobs if e.phase == "RUNNING" and e.ends_at is not None]
                living.next_at = min((at for at in (*living.turns.due(), *ends) if at > now), default=inf)
                found.append(living.next_at)
        return found

    def at_work(self) -> bool:
        return any(self.runtime.alive(x.name) for x in self.living.values())

    def pick(self, rng: random.Random) -> Living | None:
        """Some living worker."""
        alive = [x for x in self.living.values() if self.runtime.alive(x.name)]
        return rng.choice(alive) if alive else None


def worker_data(brief: Mapping[str, Any], image: str) -> Worker:
    """The worker's first data, from its brief."""
    return Worker(
        issue=int(brief["issue"]), title=str(brief["title"]), base=str(brief["base"]), base_sha=str(brief["base_sha"]),
        branch=str(brief["branch"]), agent=str(brief["agent"]), commands=tuple(brief["commands"]), image=image,
        counters=dict(brief.get("counters", {})), feedback=str(brief.get("feedback", "")),
    )  # fmt: skip
