"""The Protocols of everything outside, and World, which holds one of each.

The one rule: an adapter turns a library's exceptions into `Err` (with a class of the failure table) once, at
the edge. `Err(maybe=True)` says that a write may have happened; `not_before` that asking sooner is pointless.
Every call has a deadline of its own. Nothing here sleeps or retries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from harness.core.journal import Draft, Fault, Record
from harness.core.result import Err, Result
from harness.domain import (
    Account,
    AgentResult,
    Ask,
    Beat,
    Check,
    Comment,
    Control,
    Gone,
    Imported,
    Issue,
    Job,
    Limits,
    Merged,
    News,
    Published,
    Pull,
    Repository,
    Review,
    Status,
    WorkTree,
)
from harness.marks import Marks
from harness.policy import Policy


class Clock(Protocol):
    def now(self) -> float:
        """POSIX seconds."""

    def monotonic(self) -> float: ...


class Store(Protocol):
    """Journals of machines, blobs by content, and what people asked for."""

    def append(self, machine: str, draft: Draft, *, expect_seq: int) -> Result[Record]:
        """Number, chain and write one record durably. `expect_seq` is the number it must get; another one
        means that somebody else wrote: Err(INTERNAL_ERROR). A stale epoch: Err(AUTH_FAILED). ENOSPC:
        Err(DISK_FULL)."""

    def read(self, machine: str, after: int = 0) -> Sequence[Record]: ...

    def since_snapshot(self, machine: str) -> Sequence[Record]:
        """The records from the last snapshot on (all of them when there is none)."""

    def machines(self, prefix: str = "") -> Sequence[str]: ...

    def put_blob(self, data: bytes) -> str:
        """Keep bytes once; answers their SHA-256."""

    def get_blob(self, sha256: str) -> bytes | None: ...

    def verify(self, machine: str) -> Fault | None: ...

    def control(self, verb: str, args: Mapping[str, Any]) -> int:
        """What a person asks of the director; answers its id."""

    def controls(self, after: int = 0) -> Sequence[Control]: ...

    def get(self, key: str) -> Any | None:
        """A small JSON value (budgets, the epoch, ETag caches); not for what a journal must prove."""

    def put(self, key: str, value: Any) -> None: ...


class Forge(Protocol):
    """A GitHub-compatible forge, one repository. Lists are complete (all pages)."""

    def whoami(self) -> Result[Account]: ...
    def repository(self) -> Result[Repository]: ...
    def issues(self) -> Result[tuple[Issue, ...]]:
        """Open issues (never pulls), conditional: an unchanged list costs one 304."""

    def issue(self, number: int) -> Result[Issue | Gone]: ...
    def comments(self, number: int) -> Result[tuple[Comment, ...]]: ...
    def comment(self, number: int, body: str) -> Result[Comment]: ...
    def edit_comment(self, comment_id: int, body: str) -> Result[Comment]: ...
    def ensure_labels(self, labels: Mapping[str, str]) -> Result[int]:
        """Create those labels (name to description) that are missing; answers how many."""

    def add_labels(self, number: int, labels: Sequence[str]) -> Result[None]: ...
    def remove_label(self, number: int, label: str) -> Result[None]: ...
    def close_issue(self, number: int, reason: str = "completed") -> Result[None]: ...
    def pulls(self, head: str, base: str | None = None, state: str = "all") -> Result[tuple[Pull, ...]]: ...
    def pull(self, number: int) -> Result[Pull]: ...
    def open_pull(self, head: str, base: str, title: str, body: str, draft: bool = False) -> Result[Pull]: ...
    def edit_pull(
        self, number: int, *, title: str | None = None, body: str | None = None, base: str | None = None,
        state: str | None = None,
    ) -> Result[Pull]: ...  # fmt: skip
    def merge_pull(self, number: int, sha: str, method: str, title: str, message: str) -> Result[str]:
        """Merge with the head pinned; answers the merge SHA. Err(CONFLICT) for a conflict or a moved head,
        Err(POLICY_VIOLATION) where a rule of the repository forbids it now, Err(FORGE_DOWN, maybe)
        otherwise."""

    def reviews(self, number: int) -> Result[tuple[Review, ...]]: ...
    def permission(self, login: str) -> Result[str]:
        """admin, maintain, write, triage, read or none."""

    def set_status(self, sha: str, context: str, state: str, description: str) -> Result[None]: ...
    def checks(self, sha: str) -> Result[tuple[Check, ...]]:
        """Commit statuses and check runs together."""

    def release(self, tag: str) -> Result[Published | None]: ...
    def create_release(self, tag: str, name: str, body: str, target: str) -> Result[Published]: ...
    def counts(self) -> Mapping[str, int]:
        """Requests sent so far: read, write, not_modified."""


class Repo(Protocol):
    """The director's git: a mirror and a quarantine that only it writes. SHAs are 40 hex digits."""

    def prepare(self) -> Result[None]:
        """Make the mirror and the quarantine if missing, check git's version, heal stale locks."""

    def preflight(self, base: str, prefix: str = "agent") -> Result[None]:
        """Whether the repository can be worked on at all:
        not empty, the base there, no branch in the prefix's way."""

    def fetch(self, refs: Sequence[str] = ()) -> Result[Mapping[str, str]]:
        """Bring the mirror up to date with the forge (branches and tags); answers full ref name to SHA."""

    def remote_refs(self) -> Result[Mapping[str, str]]:
        """`ls-remote`: full ref name to SHA, tags peeled under `refs/tags/x^{}`."""

    def push(self, ref: str, sha: str, expect: str | None) -> Result[str]:
        """Push one SHA to one full ref with a lease: `expect` is the SHA it must have now ("" = must not
        exist; None = must exist nowhere or be `sha` already). `sha` "" deletes. Answers the SHA now there.
        Err(CONFLICT) when the lease was refused, Err(POLICY_VIOLATION) when the forge refuses the content."""

    def clone(self, folder: Path, sha: str, branch: str, base: str) -> Result[None]:
        """A clone of its own for one attempt: `branch` checked out at `sha`, remote-tracking ref of `base`,
        objects borrowed read-only from the mirror; an ownership file beside it; idempotent."""

    def checkout(self, folder: Path, sha: str) -> Result[None]:
        """A clean tree of a trusted commit for a gate (a small clone without remotes); idempotent."""

    def discard(self, folder: Path) -> Result[None]:
        """Remove a clone or checkout of ours (ownership file), whatever is left of it.
        Err(INFRA_KILLED) when denied."""

    def import_bundle(self, bundle: Path, sha: str, base: str) -> Result[Imported]:
        """Bundle → quarantine → strict checks → second-hop fetch into the mirror under
        refs/harness/import/<sha>. Err(POLICY_VIOLATION) names what is wrong with it; limits on size, commits
        and files apply."""

    def changes(self, base: str, sha: str) -> Result[Imported]: ...
    def merge(self, base: str, head: str, message: str, at: float) -> Result[Merged]:
        """Build a merge commit in the mirror (no working tree), same input same SHA.
        Err(CONFLICT) names files."""

    def tree(self, sha: str) -> Result[str]: ...
    def is_ancestor(self, old: str, new: str) -> Result[bool]: ...
    def read_file(self, sha: str, path: str) -> Result[bytes | None]: ...
    def note_commit(self, message: str, parent: str = "") -> Result[str]:
        """A commit of the empty tree that only carries a message (the epoch's ref points at one)."""

    def message(self, sha: str) -> Result[str]: ...
    def keep(self, ref: str, sha: str) -> Result[None]:
        """A private ref in the mirror (refs/harness/…): work that must not be lost."""


class Runtime(Protocol):
    """Runs jobs. What it must be able to do: start, look, stop, remove, list. Names are natural keys."""

    isolates: bool

    def probe(self) -> Result[str]:
        """Whether it can be used at all; answers one line about it, ending in the engine's identity."""

    def image(self, name: str) -> Result[str]:
        """The digest or id of an image that is there; Err(IMAGE_UNAVAILABLE) says what to do."""

    def start(self, job: Job) -> Result[Status]:
        """Start it, or adopt what already bears its name and labels. Never touches what is not ours."""

    def status(self, name: str) -> Result[Status | None]:
        """None: surely not there. Err: it could not be told."""

    def ours(self) -> Result[tuple[Status, ...]]:
        """Everything with our labels, in every state."""

    def log(self, name: str, tail_bytes: int) -> Result[bytes]: ...
    def stop(self, name: str, grace_s: float) -> Result[None]: ...
    def remove(self, name: str) -> Result[None]:
        """Gone afterwards, or Err. Already gone is Ok."""


@dataclass(frozen=True, slots=True)
class Brief:
    """What an agent is asked to do in one run. `prompt` is the whole text;
    `session` resumes an earlier one."""

    run: str
    prompt: str
    workspace: str
    home: str
    model_url: str
    issue: int = 0
    round: int = 1
    model: str = ""
    session: str = ""
    command: tuple[str, ...] = ()
    env: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """How an agent is started: argv, environment, files to write below HOME first, and its standard input."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    files: Mapping[str, str]
    stdin: str = ""


class Agent(Protocol):
    """One coding agent's adapter: two pure functions. Success is never taken from its exit code."""

    name: str
    needs: tuple[str, ...]

    def build(self, brief: Brief) -> Launch: ...
    def parse(self, output: bytes, files: Mapping[str, bytes], exit_code: int | None) -> AgentResult:
        """`output` is head and tail of stdout;
        `files` are the named files of HOME that the adapter asked for."""


class Bus(Protocol):
    """The worker's line to the director. Losing every message costs latency, nothing else."""

    def news(self) -> News | None:
        """What the last welcome or heartbeat reply said; None before the first."""

    def beat(self, state: str, detail: Mapping[str, Any]) -> None: ...
    def record(self, line: bytes) -> None:
        """Stream one journal line; it is kept and sent again until acknowledged."""

    def request(self, key: str, kind: str, args: Mapping[str, Any]) -> Result[Mapping[str, Any]]:
        """Ask, or look for the answer of an earlier asking with the same key. Pass while there is none."""

    def upload(self, bundle: Path) -> Result[str]:
        """Hand a bundle over; answers its SHA-256."""


class GatewayError(Exception):
    """The gateway cannot do what it was set up for. One line: what, where, what to do."""


class Gateway(Protocol):
    """The director's side of the one way out of a worker's container.
    Plain values, no call waits for a worker."""

    def open(self, attempt: str, token: str, incarnation: int) -> Path:
        """Serve an attempt; answers the folder to mount. Again with the same arguments: nothing changes."""

    def shut(self, attempt: str) -> None: ...
    def asked(self, attempt: str) -> tuple[Ask, ...]: ...
    def answer(self, attempt: str, key: str, reply: Mapping[str, Any]) -> None: ...
    def beat(self, attempt: str) -> Beat | None: ...
    def publish(self, news: News) -> None: ...
    def tell(self, attempt: str, *, stop: bool | None = None, pause: bool | None = None) -> None: ...
    def spent(self, attempt: str) -> Mapping[str, Any]: ...
    def capped(self, attempt: str) -> str:
        """The cap that the attempt's last model call ran into, as a sentence; empty when it did not."""

    def bundle(self, attempt: str, sha256: str) -> Path | None: ...


class Clone(Protocol):
    """The worker's git: its own clone, inside its own sandbox, and nothing else."""

    def sync(self, base: str) -> Result[Mapping[str, Any]]:
        """Bring the newest `base` in; answers what,
        base_sha and conflicts (left in the tree for the agent)."""

    def look(self, base_sha: str) -> Result[WorkTree]: ...
    def commit(
        self, message: str, author: tuple[str, ...], at: float, base_sha: str
    ) -> Result[Mapping[str, Any]]:
        """Commit all that changed; answers sha and whether anything differs from the base."""

    def bundle(self, sha: str, base_sha: str) -> Result[Path]: ...
    def save(self, name: str, base_sha: str) -> Result[Mapping[str, Any]]:
        """Uncommitted work as a patch and a bundle in the audit folder; the tree stays as it is."""


class Archive(Protocol):
    """Where audit bundles go."""

    def seal(
        self, attempt: str, machine: str, meta: Mapping[str, Any], logs: Mapping[str, bytes]
    ) -> Result[str]:
        """Write the bundle of an attempt once; answers its id. Again: the same id."""


@dataclass(frozen=True, slots=True)
class Screened:
    """The policy on what a worker changed. `blocked` says what is not allowed, or nothing; `flags` are for
    whoever reviews; `review` says that it may not land without one (tests became fewer or weaker)."""

    blocked: str = ""
    flags: tuple[str, ...] = ()
    review: bool = False


class Unseen(Exception):
    """Something of a change could not be read now, so nobody knows what is in it."""

    def __init__(self, why: Err) -> None:
        super().__init__(f"{why.failure}: {why.detail}")
        self.why = why


class Screen(Protocol):
    """Raises Unseen."""

    def __call__(self, imported: Imported) -> Screened: ...


@dataclass(frozen=True, slots=True)
class Tools:
    """How our own programs are started inside jobs:
    the Python there, the package's folder there, the command."""

    python: str
    package: str
    harness: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class World:
    """Everything outside. Only looks and perform are handed it; `policy` answers the policy in force.
    `on_refs` is told of the forge's refs before any machine is; the machines hear of them once it is done."""

    clock: Clock
    store: Store
    policy: Callable[[], Policy]
    data: Path
    epoch: int = 0
    epoch_began: float = 0.0
    forge: Forge | None = None
    repo: Repo | None = None
    runtime: Runtime | None = None
    gateway: Gateway | None = None
    archive: Archive | None = None
    screen: Screen | None = None
    marks: Marks | None = None
    tools: Tools | None = None
    agents: Mapping[str, Agent] | None = None
    bus: Bus | None = None
    clone: Clone | None = None
    brief: Mapping[str, Any] | None = None
    image_name: str = ""
    agent_brief: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    model_url: str = ""
    leave: Callable[[int], None] | None = None
    gaps: Callable[[], int] = int
    memo: dict[str, tuple[float, Any]] = field(default_factory=dict)
    redact: Callable[[str], str] = str
    free: Callable[[], int | None] = lambda: None
    on_refs: Callable[[Mapping[str, str]], Result[None]] | None = None
