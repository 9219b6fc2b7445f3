"""Jobs and what belongs to them on our own side: gates, workers, their folders, sockets and bundles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from harness.effects.base import Effect


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


@dataclass(frozen=True, slots=True)
class OpenMachine(Effect):
    """Write the first record of a machine; its id is the key. `start` is its first data."""

    machine: str
    start: Any
    port: ClassVar[str] = "store"

    @property
    def key(self) -> str:
        return f"machine {self.machine}"
