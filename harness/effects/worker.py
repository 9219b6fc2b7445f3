"""The worker's own effects, inside its container; everything outside it can only ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from harness.effects.base import Effect


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
    conflicts: tuple[str, ...] = ()
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
    """End this process with this code; the machine goes on in its next incarnation. `why` is the image that
    that one runs in."""

    code: int
    why: str

    @property
    def key(self) -> str:
        return f"exit {self.code} {self.why}"
