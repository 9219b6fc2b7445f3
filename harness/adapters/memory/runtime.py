"""The Runtime in memory: jobs are entries in a dict, and run as a script or a test says.

The one rule: nothing happens by itself. Time is the clock's, progress is the script's or the caller's, so
that the same seed gives the same world. It answers exactly as the real engine's adapter does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TypeVar

from harness.core.result import Err, Ok, Result
from harness.domain import Job, Status
from harness.failures import Failure
from harness.ports import Clock

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Plan:
    """How a job will go: ends by itself after `duration_s` (None: only when told) with `exit`.

    `stops` says whether it ends on TERM at once (with `stop_exit`), else KILL ends it when the grace is over.
    `output` is what it prints at its start."""

    duration_s: float | None = None
    exit: int = 0
    oom: bool = False
    stops: bool = True
    stop_exit: int = 143
    output: bytes = b""


@dataclass
class _Entry:
    job: Job
    plan: Plan
    phase: str
    started_at: float
    image: str
    ends_at: float | None
    exit_then: int = 0
    oom: bool = False
    exit: int | None = None
    finished_at: float | None = None
    progress_at: float = 0.0
    output: bytes = b""
    cpu_s: float = 0.0
    detail: str = ""


class MemoryRuntime:
    """`script` plans each job at its start; without one (or where it answers None) a job runs until told.

    `fault` is asked before each call with its name and the job's: "" lets it pass, "before" fails it
    untouched, "after" does it and loses the answer. `images` maps names to ids; None knows every image.
    """

    isolates = True

    def __init__(
        self,
        clock: Clock,
        *,
        script: Callable[[Job], Plan | None] | None = None,
        fault: Callable[[str, str], str] | None = None,
        images: dict[str, str] | None = None,
    ) -> None:
        self.clock, self.script, self.fault, self.images = clock, script, fault, images
        self.uid, self.gid = 10001, 10001
        self.starts: list[str] = []
        self._jobs: dict[str, _Entry] = {}
        self._foreign: set[str] = set()
        self._life = 1
        self._hung = False

    # ------------------------------------------------------------ the port

    def probe(self) -> Result[str]:
        return self._call("probe", "", lambda: Ok(f"memory runtime, engine {self._engine}"), writes=False)

    def image(self, name: str) -> Result[str]:
        def look() -> Result[str]:
            found = f"sha256:{name}" if self.images is None else self.images.get(name, "")
            if not found and self.images is not None and name in self.images.values():
                found = name
            why = f"image {name} is not there; build or pull it, or set containers.image"
            return Ok(found) if found else Err(Failure.IMAGE_UNAVAILABLE, why)

        return self._call("image", name, look, writes=False)

    def start(self, job: Job) -> Result[Status]:
        return self._call("start", job.name, lambda: self._start(job), writes=True)

    def status(self, name: str) -> Result[Status | None]:
        def look() -> Result[Status | None]:
            entry = self._jobs.get(name)
            return Ok(self._status(entry) if entry else None)

        return self._call("status", name, look, writes=False)

    def ours(self) -> Result[tuple[Status, ...]]:
        return self._call(
            "ours", "", lambda: Ok(tuple(self._status(x) for x in self._jobs.values())), writes=False
        )

    def log(self, name: str, tail_bytes: int) -> Result[bytes]:
        def look() -> Result[bytes]:
            entry = self._jobs.get(name)
            if entry is None:
                return Err(Failure.GONE, f"no job {name}, hence no log")
            return Ok(entry.output[max(0, len(entry.output) - max(0, tail_bytes)) :])

        return self._call("log", name, look, writes=False)

    def stop(self, name: str, grace_s: float) -> Result[None]:
        def act() -> Result[None]:
            entry = self._jobs.get(name)
            if entry is not None and self._status(entry).alive:
                if entry.plan.stops:
                    self._end(entry, entry.plan.stop_exit)
                else:
                    self._due(entry, self.clock.now() + max(0.0, grace_s), 137)
            return Ok(None)

        return self._call("stop", name, act, writes=True)

    def remove(self, name: str) -> Result[None]:
        def act() -> Result[None]:
            self._jobs.pop(name, None)
            return Ok(None)

        return self._call("remove", name, act, writes=True)

    # ------------------------------------------------------------ what a test or the simulator does

    def finish(self, name: str, exit: int = 0, *, oom: bool = False) -> None:
        """It ends by itself, now."""
        entry = self._jobs[name]
        entry.oom = entry.oom or oom
        self._end(entry, exit)

    def kill(self, name: str, exit: int = 137) -> None:
        """Somebody else kills it."""
        self._end(self._jobs[name], exit)

    def lose(self, name: str) -> None:
        """The runtime knows of it and cannot say what became of it."""
        entry = self._jobs[name]
        entry.phase, entry.exit, entry.detail = "LOST", None, "lost"

    def vanish(self, name: str) -> None:
        """Somebody else removes it."""
        del self._jobs[name]

    def say(self, name: str, text: bytes, *, cpu_s: float = 0.0) -> None:
        """It prints something, or burns time."""
        entry = self._jobs[name]
        entry.output += text
        entry.cpu_s += cpu_s
        entry.progress_at = self.clock.now()

    def pause(self, name: str, paused: bool = True) -> None:
        self._jobs[name].detail = "paused" if paused else ""

    def hang(self, hung: bool = True) -> None:
        """The engine accepts connections and answers nobody."""
        self._hung = hung

    def restart_engine(self, live_restore: bool = False) -> None:
        """A new life of the engine; without live-restore every running job ends as the engine ends them."""
        self._life += 1
        for entry in self._jobs.values():
            if not live_restore and self._status(entry).alive:
                self._end(entry, 143)

    def take_name(self, name: str) -> None:
        """Something that is not ours bears this name."""
        self._foreign.add(name)

    @property
    def foreign(self) -> frozenset[str]:
        return frozenset(self._foreign)

    # ------------------------------------------------------------ inside

    @property
    def _engine(self) -> str:
        return f"memory/{self._life}"

    def _call(self, op: str, name: str, act: Callable[[], Result[T]], *, writes: bool) -> Result[T]:
        fault = self.fault(op, name) if self.fault else ""
        if self._hung or fault == "before":
            return Err(Failure.INFRA_ENGINE, f"cannot {op} {name}: no answer in time", maybe=writes)
        result = act()
        if fault == "after":
            return Err(Failure.INFRA_ENGINE, f"cannot {op} {name}: the answer was lost", maybe=writes)
        return result

    def _start(self, job: Job) -> Result[Status]:
        if job.name in self._foreign:
            why = f"name taken: {job.name} is there and not ours; rename or remove it by hand"
            return Err(Failure.INFRA_ENGINE, why)
        there = self._jobs.get(job.name)
        if there is not None:
            if asdict(there.job) != asdict(job):
                why = f"name taken: our {job.name} was made from another job; remove it first"
                return Err(Failure.INFRA_ENGINE, why)
            return Ok(self._status(there))
        if not job.argv:
            return Err(Failure.CONFIG_INVALID, f"job {job.name}: argv is empty; name the program to run")
        if job.network == "bridge" and job.role != "prepare":
            return Err(Failure.CONFIG_INVALID, f"job {job.name}: only the role prepare may have network")
        image = self.image(job.image)
        if not isinstance(image, Ok):
            return image
        plan = (self.script(job) if self.script else None) or Plan()
        now = self.clock.now()
        ends = None if plan.duration_s is None else now + plan.duration_s
        self._jobs[job.name] = entry = _Entry(
            job, plan, "RUNNING", now, image.value, ends, plan.exit, output=plan.output, progress_at=now
        )
        self.starts.append(job.name)
        return Ok(self._status(entry))

    def _due(self, entry: _Entry, at: float, exit: int) -> None:
        """It ends then, unless it ends before."""
        if entry.ends_at is None or at < entry.ends_at:
            entry.ends_at, entry.exit_then = at, exit

    def _end(self, entry: _Entry, exit: int) -> None:
        if self._status(entry).alive:
            entry.phase, entry.exit, entry.finished_at = "EXITED", exit, self.clock.now()

    def _status(self, entry: _Entry) -> Status:
        now = self.clock.now()
        if entry.phase == "RUNNING" and entry.ends_at is not None and now >= entry.ends_at:
            entry.phase, entry.exit, entry.finished_at = "EXITED", entry.exit_then, entry.ends_at
            entry.oom = entry.oom or (entry.plan.oom and entry.exit == entry.plan.exit)
        return Status(
            entry.job.name,
            entry.phase,
            exit=entry.exit,
            oom=entry.oom,
            started_at=entry.started_at,
            finished_at=entry.finished_at,
            engine=self._engine,
            image=entry.image,
            labels=dict(entry.job.labels),
            output_bytes=len(entry.output),
            cpu_s=entry.cpu_s,
            progress_at=entry.progress_at,
            detail=entry.detail if entry.phase != "EXITED" else "",
        )
