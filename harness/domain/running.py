"""What runs and what it makes: commits, jobs, an agent's run, and what is heard of a worker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class FileChange:
    """One path of a tree diff. `path` is text with undecodable bytes as U+FFFD; `raw_hex` the true bytes."""

    path: str
    status: str
    mode: str
    size: int = 0
    raw_hex: str = ""
    old_path: str = ""


@dataclass(frozen=True, slots=True)
class Imported:
    """A bundle's commit that is now in the mirror.
    `files` are the changes of the whole range against its base."""

    sha: str
    base: str
    commits: int
    files: tuple[FileChange, ...]
    touched: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Merged:
    """A merge commit that we built ourselves and have not pushed."""

    sha: str
    tree: str
    base: str
    head: str


@dataclass(frozen=True, slots=True)
class Mount:
    """`path` is relative to the data folder (the adapter translates it), or absolute for what is not ours."""

    path: str
    target: str
    mode: str = "ro"


@dataclass(frozen=True, slots=True)
class Limits:
    memory_bytes: int = 4 << 30
    cpus: float = 2.0
    pids: int = 512
    output_bytes: int = 200 << 20
    wall_s: float = 7200.0
    tmp_bytes: int = 512 << 20


@dataclass(frozen=True, slots=True)
class Job:
    """Something to run: a worker, a gate, a harvest, an agent. `name` is its natural key.

    `role` is worker, gate, prepare, harvest or agent. `stdin` is fed and closed; without it stdin is
    /dev/null.
    `network` is "none" or "bridge". `log` is where output goes, relative to the data folder.
    """

    name: str
    argv: tuple[str, ...]
    role: str = "worker"
    image: str = ""
    env: dict[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    workdir: str = "/workspace"
    network: str = "none"
    limits: Limits = Limits()
    labels: dict[str, str] = field(default_factory=dict)
    stdin: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """What the runtime says of a job.

    `phase` is PENDING, RUNNING, EXITED, LOST or REJECTED. `exit` is None unless EXITED and known; `signal`
    is set where the runtime knows that a signal ended it. `engine` identifies the engine's current life:
    another value than at the start means that the engine restarted in between. `limit` is wall or output where the
    runtime ended the job because it had reached that limit.
    """

    name: str
    phase: str
    exit: int | None = None
    oom: bool = False
    signal: int | None = None
    started_at: float | None = None
    finished_at: float | None = None
    engine: str = ""
    image: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    output_bytes: int = 0
    cpu_s: float = 0.0
    progress_at: float = 0.0
    detail: str = ""
    seen_at: float = 0.0
    limit: str = ""

    @property
    def alive(self) -> bool:
        return self.phase in ("PENDING", "RUNNING")


@dataclass(frozen=True, slots=True)
class AgentResult:
    """What an agent's run amounted to, by its own adapter. `status` is one of done, question, rate_limited,
    quota, overloaded, auth, context, connection, max_turns, sandbox, interrupted, timeout, looped, error."""

    status: str
    message: str = ""
    session_id: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float | None = None
    retry_after_s: float | None = None
    question: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """An agent's or a validation's run inside the worker, as last looked at.

    `exit` is None while it runs; `lost` says that it ended and left no exit status.
    `limit` is wall or output where it was ended because it had reached that."""

    name: str
    running: bool
    exit: int | None = None
    lost: bool = False
    output_bytes: int = 0
    cpu_s: float = 0.0
    progress_at: float = 0.0
    started_at: float = 0.0
    commands_run: int = 0
    failed_command: str = ""
    log_tail: str = ""
    gaps: int = 0
    seen_at: float = 0.0
    result: AgentResult | None = None
    limit: str = ""


@dataclass(frozen=True, slots=True)
class WorkTree:
    """The worker's clone: `dirty` counts changed paths; `changed` names some;
    `merging` says that git is in the middle of something, `broken` in git's words that it is none any more."""

    head: str
    base: str
    dirty: int
    changed: tuple[str, ...] = ()
    ahead: int = 0
    merging: bool = False
    seen_at: float = 0.0
    broken: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """A worker's request: `key` is its natural key, `kind` publish, open_pull, ask, or review."""

    key: str
    kind: str
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Beat:
    """The last that was heard of a worker. `at` is when, by our clock."""

    at: float
    state: str
    incarnation: int
    seq: int = 0
    head: str = ""
    output_bytes: int = 0
    cpu_s: float = 0.0
    final: str = ""
    reason: str = ""
    failure: str = ""
    counters: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class News:
    """What every welcome and heartbeat reply says: the newest release and image, and what people want."""

    tag: str = ""
    main_sha: str = ""
    image: str = ""
    paused: bool = False
    stop: bool = False
