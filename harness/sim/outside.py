"""The outside in memory, with a hook at every call: the forge, git, the engine, the gateway, the journal.

The one rule: a fault is what the real thing does. It answers late, wrongly, twice or not at all, but it keeps
its own promises; what is written down here beside it is for the checker, never for the harness.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from harness.adapters.governor import READ, WRITE, Governor
from harness.adapters.memory.bus import MemoryBus, MemoryGateway
from harness.adapters.memory.forge import Args, MemoryForge
from harness.adapters.memory.repo import MemoryRemote, MemoryRepo
from harness.adapters.memory.runtime import MemoryRuntime
from harness.adapters.memory.store import MemoryStore
from harness.core import journal
from harness.core.budget import Limits
from harness.core.journal import Draft, Record
from harness.core.result import Err, Ok, Result
from harness.domain import Ask, Beat, Imported, Status
from harness.failures import Failure
from harness.sim.clock import Time

T = TypeVar("T")
LIMITS: Mapping[str, Limits] = {
    READ: Limits(0.0, 600, 5000, 60.0),
    WRITE: Limits(0.2, 80, 500, 60.0),
}
WITHOUT_HEADER_S = 60.0


class Killed(BaseException):
    """kill -9 of the process that stands here."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one call: "" it works; `before` it fails untouched; `after` it is done and the answer is
    lost; `late` the answer is lost and it is done `wait_s` later; `limit` it is refused for `wait_s` seconds
    (0: nothing is said about how long); `kill` the caller dies before, `kill-after` after it is done, and
    `kill-late` before, with its request on the way."""

    what: str = ""
    wait_s: float = 0.0


WORKS = Fate()


@dataclass
class Switch:
    """What the weather decides about calls. `ask(port, name, write)` answers the fate of one."""

    ask: Callable[[str, str, bool], Fate] = lambda port, name, write: WORKS
    later: list[tuple[float, Callable[[], object]]] = field(default_factory=list)


class SimForge(MemoryForge):
    """The forge, seen through the governor as the real adapter sees it. `broken` lists what a client did that
    the forge's rules forbid."""

    governor: Governor
    switch: Switch
    time: Time
    closed_until: float = 0.0
    broken: list[str]

    def attach(self, time: Time, switch: Switch) -> None:
        self.time, self.switch, self.broken = time, switch, []

    def _do(self, name: str, args: Args, work: Callable[[], Result[T]], write: bool = False) -> Result[T]:
        resource = WRITE if write else READ
        granted = self.governor.enter(resource, 0 if write else 1)
        if not isinstance(granted, Ok):
            return granted
        try:
            return self._sent(name, args, work, write, resource, granted.value.at)
        finally:
            self.governor.leave(granted.value)

    def _sent(
        self, name: str, args: Args, work: Callable[[], Result[T]], write: bool, resource: str, began: float
    ) -> Result[T]:
        if self.time.at < self.closed_until - 0.001:
            self.broken.append(
                f"{name} was sent {self.closed_until - self.time.at:.1f} s before the penalty ended"
            )
        fate = self.switch.ask("forge", name, write)
        if fate.what == "limit":
            return self._refuse(fate.wait_s, began)
        if fate.what == "before":
            return Err(Failure.FORGE_DOWN, f"{name}: the forge answered 503", maybe=write)
        if fate.what in ("kill", "kill-late", "late"):
            if fate.what != "kill" and write:
                self.switch.later.append(
                    (self.time.at + fate.wait_s, lambda: super(SimForge, self)._do(name, args, work, write))
                )
            if fate.what != "late":
                raise Killed(f"in {name}")
            return Err(Failure.FORGE_DOWN, f"{name}: no answer in time", maybe=write)
        done = super()._do(name, args, work, write)
        if fate.what == "kill-after":
            raise Killed(f"after {name}")
        if fate.what == "after":
            return Err(Failure.FORGE_DOWN, f"{name}: the connection was reset", maybe=write)
        self.governor.success(resource, began)
        return done

    def _refuse(self, after_s: float, began: float) -> Err:
        """403 or 429: with Retry-After, or without a word about when."""
        self.closed_until = max(self.closed_until, self.time.at + (after_s or WITHOUT_HEADER_S))
        until = self.governor.penalty((READ, WRITE), after_s or None, None, began)
        return Err(Failure.FORGE_RATE_LIMITED, "forge: secondary rate limit", not_before=until)


class SimRepo(MemoryRepo):
    """The director's git. The mirror is on disk and survives; the network in between does not always."""

    switch: Switch = Switch()

    def _call(self, name: str, work: Callable[[], Result[T]], write: bool = False) -> Result[T]:
        fate = self.switch.ask("git", name, write)
        if fate.what in ("before", "late", "limit"):
            return Err(Failure.FORGE_DOWN, f"git {name}: could not resolve host", maybe=write)
        if fate.what in ("kill", "kill-late"):
            raise Killed(f"in git {name}")
        done = work()
        if fate.what == "kill-after":
            raise Killed(f"after git {name}")
        if fate.what == "after" and write:
            return Err(Failure.FORGE_DOWN, f"git {name}: the remote end hung up", maybe=True)
        return done

    def fetch(self, refs: Sequence[str] = ()) -> Result[Mapping[str, str]]:
        return self._call("fetch", lambda: super(SimRepo, self).fetch(refs))

    def remote_refs(self) -> Result[Mapping[str, str]]:
        return self._call("ls-remote", lambda: super(SimRepo, self).remote_refs())

    def push(self, ref: str, sha: str, expect: str | None) -> Result[str]:
        return self._call(f"push {ref}", lambda: super(SimRepo, self).push(ref, sha, expect), write=True)

    def import_bundle(self, bundle: Path, sha: str, base: str) -> Result[Imported]:
        return self._call("import", lambda: super(SimRepo, self).import_bundle(bundle, sha, base))


class SimRuntime(MemoryRuntime):
    """The engine. `proved` are the trees whose gate came to its end with 0, as the engine saw it."""

    def attach(self, time: Time, switch: Switch) -> None:
        self.time, self.switch = time, switch
        self.trees: dict[str, str] = {}
        self.proved: set[str] = set()
        self.fault = self._fate

    def _fate(self, op: str, name: str) -> str:
        fate = self.switch.ask("runtime", op, op in ("start", "stop", "remove"))
        if fate.what in ("kill", "kill-late"):
            raise Killed(f"in {op} {name}")
        return fate.what if fate.what in ("before", "after") else ""

    def _status(self, entry: Any) -> Status:
        seen = super()._status(entry)
        if seen.phase == "EXITED" and seen.exit == 0 and entry.job.name in self.trees:
            self.proved.add(self.trees[entry.job.name])
        return seen

    def _start(self, job: Any) -> Result[Status]:
        started = super()._start(job)
        if isinstance(started, Ok) and self.switch.ask("runtime", "started", True).what == "kill-after":
            raise Killed(f"after start {job.name}")
        return started

    def entries(self) -> Mapping[str, Any]:
        return self._jobs

    def look(self) -> list[Status]:
        """All jobs, for the checker and the world: never hung."""
        return [self._status(e) for e in list(self._jobs.values())]

    def ends(self) -> list[float]:
        return [e.ends_at for e in self._jobs.values() if e.phase == "RUNNING" and e.ends_at is not None]

    def alive(self, name: str) -> bool:
        entry = self._jobs.get(name)
        if entry is None or entry.phase not in ("PENDING", "RUNNING"):
            return False
        return entry.ends_at is None or self.clock.now() < entry.ends_at or self._status(entry).alive


class SimGateway(MemoryGateway):
    """The gateway. Messages may be lost or come twice; its folder of sockets is below the data folder."""

    switch: Switch = Switch()
    folder: Path = Path("/nonexistent")

    def word(self, attempt: str) -> tuple[Any, ...]:
        """What of a beat counts for a machine: its sequence number alone does not."""
        desk = self.desks.get(attempt)
        beat = desk.beat if desk is not None else None
        return () if desk is None or beat is None else (beat.state, beat.final, beat.incarnation, desk.fault)

    def open(self, attempt: str, token: str, incarnation: int) -> Path:
        super().open(attempt, token, incarnation)
        return self.folder / attempt

    def answer(self, attempt: str, key: str, reply: Mapping[str, Any]) -> None:
        if self.switch.ask("bus", "answer", True).what:
            return
        super().answer(attempt, key, reply)

    def asked(self, attempt: str) -> tuple[Ask, ...]:
        asks = super().asked(attempt)
        if asks and self.switch.ask("bus", "asked", False).what:
            return (*asks, *asks)
        return asks


class SimBus(MemoryBus):
    switch: Switch = Switch()

    def beat(self, state: str, detail: Mapping[str, Any]) -> None:
        if detail.get("final") or not self.switch.ask("bus", "beat", True).what:
            super().beat(state, detail)

    def request(self, key: str, kind: str, args: Mapping[str, Any]) -> Result[Mapping[str, Any]]:
        fate = self.switch.ask("bus", "request", True).what
        if fate == "before":
            return Err(Failure.INFRA_GATEWAY, "the line was cut")
        done = super().request(key, kind, args)
        return Err(Failure.INFRA_GATEWAY, "the line was cut") if fate else done


class SimStore(MemoryStore):
    """The journal. `full` says that the disk is; what is appended is plain JSON already, so it is not copied."""

    time: Time
    full: Callable[[], bool] = staticmethod(lambda: False)
    chained: bool = True  # else records are numbered only: hashing them is a tenth of a night

    def append(self, machine: str, draft: Draft, *, expect_seq: int) -> Result[Record]:
        if self.full():
            return Err(Failure.DISK_FULL, "database or disk is full")
        self.time.touch()
        done = super().append(machine, draft, expect_seq=expect_seq)
        self.time.touch()
        return done

    def put(self, key: str, value: Any) -> None:
        if self.full() and not key.startswith("governor/"):
            raise OSError(28, "No space left on device")
        super().put(key, value)

    def put_blob(self, data: bytes) -> str:
        if self.full():
            raise OSError(28, "No space left on device")
        return super().put_blob(data)

    def _seal(self, machine: str, draft: Draft, seq: int, prev: str) -> Record:
        if not self.chained:
            at, own = self.clock.now(), f"{machine}#{seq}"
            return Record(machine, seq, at, self._epoch, self.code, draft.kind, draft.body, prev, own)
        return journal.seal(
            draft, machine=machine, seq=seq, at=self.clock.now(), epoch=self._epoch, code=self.code, prev=prev
        )


__all__ = [
    "Beat",
    "Fate",
    "Killed",
    "MemoryRemote",
    "SimBus",
    "SimForge",
    "SimGateway",
    "SimRepo",
    "SimRuntime",
    "SimStore",
    "Switch",
]
