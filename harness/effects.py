"""The verbs: every change to the world, as a frozen value with a natural key.

The one rule: doing an effect twice must equal doing it once, because whoever does it looks for its key first.
`port` names the pool that performs it. `lags` says that "not there" is believed late: the source's reads may
be older than our writes. Texts in effects are final: what is posted is what the journal shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Effect:
    """What every effect says of itself. Not to be used alone."""

    port: ClassVar[str] = "local"
    lags: ClassVar[bool] = False

    @property
    def key(self) -> str:
        """The natural key, for people and for the ledger of effects."""
        raise AssertionError(f"{type(self).__name__} names no key")


# ---------------------------------------------------------------- machines


@dataclass(frozen=True, slots=True)
class OpenMachine(Effect):
    """Write the first record of a machine; its id is the key. `start` is its first data."""

    machine: str
    start: Any
    port: ClassVar[str] = "store"

    @property
    def key(self) -> str:
        return f"machine {self.machine}"


# ---------------------------------------------------------------- the forge


@dataclass(frozen=True, slots=True)
class Comment(Effect):
    """The comment of an issue that bears our marker for `name`: written once, then edited in place."""

    issue: int
    name: str
    body: str
    port: ClassVar[str] = "forge"
    lags: ClassVar[bool] = True

    @property
    def key(self) -> str:
        return f"comment {self.issue} {self.name}"


@dataclass(frozen=True, slots=True)
class Label(Effect):
    issue: int
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    port: ClassVar[str] = "forge"

    @property
    def key(self) -> str:
        return f"labels {self.issue} +{','.join(self.add)} -{','.join(self.remove)}"


@dataclass(frozen=True, slots=True)
class CloseIssue(Effect):
    issue: int
    reason: str = "completed"
    port: ClassVar[str] = "forge"

    @property
    def key(self) -> str:
        return f"close {self.issue}"


@dataclass(frozen=True, slots=True)
class OpenPull(Effect):
    """`name` is what our marker in its body says; the key on the forge is head and base."""

    head: str
    base: str
    title: str
    body: str
    name: str
    draft: bool = False
    port: ClassVar[str] = "forge"
    lags: ClassVar[bool] = True

    @property
    def key(self) -> str:
        return f"pull {self.head} {self.base}"


@dataclass(frozen=True, slots=True)
class EditPull(Effect):
    """Empty fields are left alone."""

    number: int
    title: str = ""
    body: str = ""
    base: str = ""
    state: str = ""
    port: ClassVar[str] = "forge"

    @property
    def key(self) -> str:
        return f"edit pull {self.number}"


@dataclass(frozen=True, slots=True)
class MergePull(Effect):
    """Only where the forge lets nothing but its API merge: the head is pinned."""

    number: int
    sha: str
    method: str
    title: str
    port: ClassVar[str] = "forge"

    @property
    def key(self) -> str:
        return f"merge pull {self.number} {self.sha}"


@dataclass(frozen=True, slots=True)
class SetStatus(Effect):
    sha: str
    context: str
    state: str
    description: str
    port: ClassVar[str] = "forge"

    @property
    def key(self) -> str:
        return f"status {self.sha} {self.context} {self.state}"


@dataclass(frozen=True, slots=True)
class PublishRelease(Effect):
    tag: str
    title: str
    body: str
    sha: str
    port: ClassVar[str] = "forge"
    lags: ClassVar[bool] = True

    @property
    def key(self) -> str:
        return f"release {self.tag}"


@dataclass(frozen=True, slots=True)
class EnsureLabels(Effect):
    names: tuple[str, ...]
    port: ClassVar[str] = "forge"

    @property
    def key(self) -> str:
        return "labels of the repository"


# ---------------------------------------------------------------- git


@dataclass(frozen=True, slots=True)
class CreateBranch(Effect):
    branch: str
    sha: str
    port: ClassVar[str] = "git"

    @property
    def key(self) -> str:
        return f"branch {self.branch}"


@dataclass(frozen=True, slots=True)
class DeleteBranch(Effect):
    """Only when it still is at `sha`, or contains nothing that `kept_in` does not."""

    branch: str
    sha: str
    port: ClassVar[str] = "git"

    @property
    def key(self) -> str:
        return f"no branch {self.branch}"


@dataclass(frozen=True, slots=True)
class BuildMerge(Effect):
    """A merge commit in our mirror, nothing pushed. The same values give the same commit."""

    base: str
    head: str
    message: str
    at: float
    port: ClassVar[str] = "git"

    @property
    def key(self) -> str:
        return f"merge commit {self.base} {self.head}"


@dataclass(frozen=True, slots=True)
class Land(Effect):
    """Push exactly `sha` to `branch`, if it still is at `expect`.
    A moved branch is an answer, not a failure."""

    branch: str
    sha: str
    expect: str
    port: ClassVar[str] = "git"

    @property
    def key(self) -> str:
        return f"land {self.branch} {self.sha}"


@dataclass(frozen=True, slots=True)
class Tag(Effect):
    name: str
    sha: str
    port: ClassVar[str] = "git"

    @property
    def key(self) -> str:
        return f"tag {self.name} {self.sha}"


@dataclass(frozen=True, slots=True)
class Publish(Effect):
    """A worker's bundle: quarantine, second hop, policy, secrets, push of `sha` to `branch` with a lease."""

    attempt: str
    issue: int
    sha: str
    base: str
    branch: str
    bundle: str
    port: ClassVar[str] = "git"

    @property
    def key(self) -> str:
        return f"publish {self.branch} {self.sha}"


@dataclass(frozen=True, slots=True)
class Clone(Effect):
    attempt: str
    sha: str
    branch: str
    base: str
    port: ClassVar[str] = "git"

    @property
    def key(self) -> str:
        return f"clone {self.attempt}"


@dataclass(frozen=True, slots=True)
class Discard(Effect):
    """Remove the attempt's clone and home; saved work stays in its bundle and in a private ref."""

    attempt: str
    port: ClassVar[str] = "git"

    @property
    def key(self) -> str:
        return f"no clone {self.attempt}"


# ---------------------------------------------------------------- jobs


@dataclass(frozen=True, slots=True)
class StartGate(Effect):
    """Validate one tree in a fresh container. `name` is made from (tree, commands, image, prepare key)."""

    name: str
    sha: str
    commands: tuple[str, ...]
    image: str
    prepare: str = ""
    port: ClassVar[str] = "runtime"

    @property
    def key(self) -> str:
        return f"gate {self.name}"


@dataclass(frozen=True, slots=True)
class EndGate(Effect):
    """Keep the verdict as a fact and remove the gate's container and checkout."""

    name: str
    port: ClassVar[str] = "runtime"

    @property
    def key(self) -> str:
        return f"no gate {self.name}"


@dataclass(frozen=True, slots=True)
class StartPrepare(Effect):
    """Dependencies, with network, from the trusted base and before any outside text; cached by `name`."""

    name: str
    sha: str
    commands: tuple[str, ...]
    image: str
    port: ClassVar[str] = "runtime"

    @property
    def key(self) -> str:
        return f"prepare {self.name}"


@dataclass(frozen=True, slots=True)
class WriteBrief(Effect):
    """The attempt's folders and what its worker must know; `brief` is plain JSON."""

    attempt: str
    brief: Mapping[str, Any]

    @property
    def key(self) -> str:
        return f"brief {self.attempt}"


@dataclass(frozen=True, slots=True)
class OpenSocket(Effect):
    attempt: str
    incarnation: int

    @property
    def key(self) -> str:
        return f"socket {self.attempt} {self.incarnation}"


@dataclass(frozen=True, slots=True)
class ShutSocket(Effect):
    attempt: str

    @property
    def key(self) -> str:
        return f"no socket {self.attempt}"


@dataclass(frozen=True, slots=True)
class StartWorker(Effect):
    name: str
    attempt: str
    incarnation: int
    image: str
    prepare: str = ""
    port: ClassVar[str] = "runtime"

    @property
    def key(self) -> str:
        return f"container {self.name}"


@dataclass(frozen=True, slots=True)
class StartHarvest(Effect):
    """Save what is in the clone, by a container that runs no agent."""

    name: str
    attempt: str
    image: str
    port: ClassVar[str] = "runtime"

    @property
    def key(self) -> str:
        return f"container {self.name}"


@dataclass(frozen=True, slots=True)
class StopJob(Effect):
    name: str
    grace_s: float = 10.0
    port: ClassVar[str] = "runtime"

    @property
    def key(self) -> str:
        return f"stopped {self.name}"


@dataclass(frozen=True, slots=True)
class RemoveJob(Effect):
    name: str
    port: ClassVar[str] = "runtime"

    @property
    def key(self) -> str:
        return f"no container {self.name}"


@dataclass(frozen=True, slots=True)
class KeepWork(Effect):
    """What the harvest saved becomes a private ref of the mirror."""

    attempt: str
    base: str
    port: ClassVar[str] = "git"

    @property
    def key(self) -> str:
        return f"kept work {self.attempt}"


@dataclass(frozen=True, slots=True)
class SealBundle(Effect):
    """Write the attempt's audit bundle, once, and its line in the index."""

    attempt: str
    meta: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"bundle {self.attempt}"


@dataclass(frozen=True, slots=True)
class Announce(Effect):
    """Tell the workers. Level, not edge: it is in every welcome and heartbeat reply from now on."""

    tag: str
    main_sha: str
    image: str

    @property
    def key(self) -> str:
        return f"announce {self.tag}"


# ---------------------------------------------------------------- the worker's own


@dataclass(frozen=True, slots=True)
class Sync(Effect):
    base: str
    port: ClassVar[str] = "git"

    @property
    def key(self) -> str:
        return f"sync {self.base}"


@dataclass(frozen=True, slots=True)
class LoadContext(Effect):
    issue: int

    @property
    def key(self) -> str:
        return f"context {self.issue}"


@dataclass(frozen=True, slots=True)
class StartAgent(Effect):
    """`feedback` goes to the agent after the task; `session` resumes an earlier run of it."""

    run: str
    agent: str
    round: int
    feedback: str = ""
    session: str = ""
    port: ClassVar[str] = "runtime"

    @property
    def key(self) -> str:
        return f"run {self.run}"


@dataclass(frozen=True, slots=True)
class StartValidation(Effect):
    run: str
    commands: tuple[str, ...]
    port: ClassVar[str] = "runtime"

    @property
    def key(self) -> str:
        return f"run {self.run}"


@dataclass(frozen=True, slots=True)
class StopRun(Effect):
    run: str
    grace_s: float = 10.0
    port: ClassVar[str] = "runtime"

    @property
    def key(self) -> str:
        return f"stopped {self.run}"


@dataclass(frozen=True, slots=True)
class Commit(Effect):
    message: str
    author: tuple[str, ...]
    at: float
    base_sha: str = ""
    port: ClassVar[str] = "git"

    @property
    def key(self) -> str:
        return f"commit {self.message.splitlines()[0]}"


@dataclass(frozen=True, slots=True)
class SaveWork(Effect):
    """Uncommitted changes as a patch in the audit folder."""

    name: str
    port: ClassVar[str] = "git"

    @property
    def key(self) -> str:
        return f"saved work {self.name}"


@dataclass(frozen=True, slots=True)
class Request(Effect):
    """Ask the director. `name` is the request's natural key;
    the answer comes when its intent is closed there."""

    name: str
    kind: str
    args: Mapping[str, Any] = field(default_factory=dict)
    port: ClassVar[str] = "bus"

    @property
    def key(self) -> str:
        return f"request {self.name}"


@dataclass(frozen=True, slots=True)
class Exit(Effect):
    """End this process with this code; the machine goes on in its next incarnation."""

    code: int
    why: str

    @property
    def key(self) -> str:
        return f"exit {self.code} {self.why}"


EFFECTS: tuple[type[Effect], ...] = (
    OpenMachine, Comment, Label, CloseIssue, OpenPull, EditPull, MergePull, SetStatus, PublishRelease,
    EnsureLabels, CreateBranch, DeleteBranch, BuildMerge, Land, Tag, Publish, Clone, Discard, StartGate,
    EndGate, StartPrepare, WriteBrief, OpenSocket, ShutSocket, StartWorker, StartHarvest, StopJob, RemoveJob,
    KeepWork, SealBundle, Announce, Sync, LoadContext, StartAgent, StartValidation, StopRun, Commit, SaveWork,
    Request, Exit,
)  # fmt: skip
