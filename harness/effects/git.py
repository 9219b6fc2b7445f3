"""Changes to git: branches and tags by lease, merges in our mirror, a worker's bundle, its clone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.effects.base import Effect


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


@dataclass(frozen=True, slots=True)
class KeepWork(Effect):
    """What the harvest saved becomes a private ref of the mirror."""

    attempt: str
    base: str
    port: ClassVar[str] = "git"

    @property
    def key(self) -> str:
        return f"kept work {self.attempt}"
