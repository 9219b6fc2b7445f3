"""What our own machines say of each other, and what people ask of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


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
    """A ticket in short, for plans and texts. `machine` is its id, `attempts` the number that its last attempt
    bears: those before a person asked for another try count too."""

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


@dataclass(frozen=True, slots=True)
class Control:
    """What a person asked for on the command line: pause, resume, drain, stop, retry N, cancel N, cut, …"""

    id: int
    at: float
    verb: str
    args: dict[str, Any] = field(default_factory=dict)
