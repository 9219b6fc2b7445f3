"""The nouns: what the outside looks like to us, as frozen values.

The one rule: a source that could not be read, or not recently enough, is `Unknown`, never empty.
All times are POSIX seconds, all sizes bytes. Every class here can be written to a journal and read back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Unknown:
    """Not read, not readable, or not recently enough."""

    why: str = "not read yet"


# ---------------------------------------------------------------- the forge


@dataclass(frozen=True, slots=True)
class Account:
    """Who our credential is. `scopes` are the classic token's scopes,
    or empty where the forge does not tell."""

    login: str
    kind: str = "User"
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Repository:
    default_branch: str
    permission: str = "write"
    private: bool = False
    merge_methods: tuple[str, ...] = ("merge", "squash", "rebase")
    clone_url: str = ""
    html_url: str = ""


@dataclass(frozen=True, slots=True)
class Issue:
    """An issue as listed. `body` is never None; `labels` keep the forge's spelling. `seen_at`: when the
    answer that says so was asked for."""

    number: int
    title: str
    body: str = ""
    author: str = ""
    author_kind: str = "User"
    labels: tuple[str, ...] = ()
    open: bool = True
    locked: bool = False
    created_at: float = 0.0
    updated_at: float = 0.0
    url: str = ""
    seen_at: float = 0.0

    def has(self, label: str) -> bool:
        """Labels compare without regard to case, as the forge does."""
        return label.casefold() in {x.casefold() for x in self.labels}


@dataclass(frozen=True, slots=True)
class Gone:
    """The issue is not there any more: deleted, moved, or hidden from us."""

    why: str


@dataclass(frozen=True, slots=True)
class Comment:
    id: int
    author: str
    author_kind: str
    body: str
    created_at: float
    updated_at: float = 0.0
    url: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """A comment with what we know of its author. `name` and `instance` are those of a harness marker in it;
    `ours` says that the marker's MAC is ours: never that its login is. `trusted`: write access, and no
    bot."""

    id: int
    author: str
    body: str
    created_at: float
    name: str = ""
    instance: str = ""
    ours: bool = False
    trusted: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """An open issue that bears our label. `trusted`: somebody with write access asked for it."""

    issue: Issue
    trusted: bool


@dataclass(frozen=True, slots=True)
class Slots:
    """Who uses the workers: attempts that are not closed, and tickets that want one,
    longest waiting first."""

    live: int
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lane:
    """The release that is open now, and whose turn it is to land. `machine` is empty when none is open."""

    machine: str = ""
    version: str = ""
    branch: str = ""
    turn: str = ""
    base_sha: str = ""
    prepare: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A ticket in short, for plans and texts. `machine` is its id."""

    machine: str
    issue: int
    title: str
    state: str
    entered_at: float = 0.0
    pull: int = 0
    head: str = ""
    landed_in: str = ""
    failure: str = ""
    detail: str = ""
    attempts: int = 0
    audits: tuple[str, ...] = ()
    cost_usd: float = 0.0
    doing: str = ""


@dataclass(frozen=True, slots=True)
class Limited:
    """A resource that the forge or a provider asked us to leave alone until then."""

    resource: str
    until: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class Pull:
    """`mergeable` is None while the forge is still computing it."""

    number: int
    head: str
    base: str
    head_sha: str
    open: bool
    merged: bool
    merge_sha: str = ""
    title: str = ""
    body: str = ""
    draft: bool = False
    mergeable: bool | None = None
    author: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class Review:
    id: int
    author: str
    state: str
    body: str
    sha: str
    at: float


@dataclass(frozen=True, slots=True)
class Check:
    """A commit status or a check run. `state` is success, pending, failure, cancelled or skipped."""

    name: str
    state: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class Published:
    """A release on the forge."""

    tag: str
    id: int
    url: str = ""


# ---------------------------------------------------------------- git


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


# ---------------------------------------------------------------- running things


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
    another value than at the start means that the engine restarted in between.
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

    @property
    def alive(self) -> bool:
        return self.phase in ("PENDING", "RUNNING")


@dataclass(frozen=True, slots=True)
class Absent:
    """Surely not there: the source was read and does not have it."""

    name: str = ""


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

    `exit` is None while it runs; `lost` says that it ended and left no exit status."""

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


@dataclass(frozen=True, slots=True)
class WorkTree:
    """The worker's clone: `dirty` counts changed paths; `changed` names some;
    `merging` says that git is in the middle of something."""

    head: str
    base: str
    dirty: int
    changed: tuple[str, ...] = ()
    ahead: int = 0
    merging: bool = False
    seen_at: float = 0.0


# ---------------------------------------------------------------- the bus


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


@dataclass(frozen=True, slots=True)
class Control:
    """What a person asked for on the command line: pause, resume, drain, stop, retry N, cancel N, cut, …"""

    id: int
    at: float
    verb: str
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Peer:
    """Another machine, as it is folded now."""

    id: str
    state: str
    entered_at: float
    entry: int
    data: Any


@dataclass(frozen=True, slots=True)
class Gate:
    """A validation as last looked at. `verdict` is running, green, red or lost."""

    name: str
    verdict: str
    log_tail: str = ""
    exit: int | None = None


# ---------------------------------------------------------------- names

_SLUG = re.compile(r"[^a-z0-9]+")
_NUMBER = re.compile(r"[1-9][0-9]{0,9}")


def slug(text: str, limit: int = 40) -> str:
    """ASCII, lower case, `[a-z0-9-]`, at most `limit` characters, never empty."""
    s = _SLUG.sub("-", text.lower()).strip("-")[:limit].strip("-")
    return s or "x"


def branch_of(issue: int, prefix: str = "agent") -> str:
    """The one branch of an issue. Its name comes from the number alone, so no title can harm it."""
    return f"{prefix}/{issue}"


def repo_key(repo: str) -> str:
    """`acme/widget` for the ids of machines."""
    return repo.strip("/").lower()


def container_name(repo: str, attempt: str, part: str, instance: str = "") -> str:
    """`h-acme-widget-12-1-i1`; `instance` keeps two directors on one engine apart."""
    tail = f"-{instance}" if instance else ""
    return f"h{tail}-{slug(repo)}-{attempt.replace('.', '-')}-{part}"


VALUES: tuple[type, ...] = (
    Unknown, Account, Repository, Issue, Gone, Reply, Candidate, Slots, Lane, Entry, Limited, Pull,
    Review, Check, Published, FileChange, Imported, Merged, Mount, Limits, Job, Status, Absent, AgentResult,
    Run, WorkTree, Ask, Beat, News, Control, Peer, Gate,
)  # fmt: skip
