"""The director's states, events and data. Every start of the director is a new machine, one epoch later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from harness.core.journal import Record


class S(StrEnum):
    BOOT = "BOOT"
    RELEASE_PLAN = "RELEASE_PLAN"
    DISCOVER = "DISCOVER"
    DISPATCH = "DISPATCH"
    MONITOR = "MONITOR"
    RELEASE_FINALIZE = "RELEASE_FINALIZE"
    BROADCAST = "BROADCAST"
    SELF_REVIEW = "SELF_REVIEW"
    COOLDOWN = "COOLDOWN"
    SHUTDOWN = "SHUTDOWN"


class E(StrEnum):
    RELEASE_MISSING = "release_missing"
    RELEASE_ACTIVE = "release_active"
    RELEASE_PLANNED = "release_planned"
    WORK_AVAILABLE = "work_available"
    NOTHING_TO_DISPATCH = "nothing_to_dispatch"
    NO_WORK = "no_work"
    DISPATCHED = "dispatched"
    TICK = "tick"
    RELEASE_READY = "release_ready"
    RELEASE_PUBLISHED = "release_published"
    RELEASE_WAITS = "release_waits"
    GATE_FAILED = "gate_failed"
    BROADCAST_DONE = "broadcast_done"
    REVIEWED = "reviewed"
    COOLDOWN_EXPIRED = "cooldown_expired"
    RATE_LIMITED = "rate_limited"
    TRANSIENT_FAILURES = "transient_failures"
    TERMINATE = "terminate"


@dataclass(frozen=True, slots=True)
class Director:
    """The director's own data. `reasons` holds, for every candidate, why it was or was not chosen.
    `announced` are the machines of releases that were broadcast."""

    repo: str = ""
    predecessor: str = ""
    predecessor_head: str = ""
    adopted: tuple[str, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    chosen: tuple[int, ...] = ()
    release: str = ""
    gate: str = ""
    gate_tries: int = 0
    prepare: str = ""
    prepare_tries: int = 0
    base_sha: str = ""
    announced: tuple[str, ...] = ()
    cooldown_until: float = 0.0
    cooldown: str = ""


def fold(data: Director, record: Record) -> Director:
    if record.kind == "transition":
        note = record.body.get("note", {})
        return replace(data, **note) if note else data
    return data
