"""The worker's states, events and data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from harness.core.item import Item
from harness.core.journal import Record


class S(StrEnum):
    START = "START"
    UPGRADE_CHECKPOINT = "UPGRADE_CHECKPOINT"
    SYNC_MAIN = "SYNC_MAIN"
    CONTEXT_LOAD = "CONTEXT_LOAD"
    CODE = "CODE"
    VALIDATE = "VALIDATE"
    COMMIT = "COMMIT"
    PR_CREATE = "PR_CREATE"
    REVIEW_REQUEST = "REVIEW_REQUEST"
    DONE = "DONE"
    RETRY_WAIT = "RETRY_WAIT"
    BLOCKED = "BLOCKED"


class E(StrEnum):
    STARTED = "started"
    CURRENT = "current"
    UPGRADE_DEFERRED = "upgrade_deferred"
    SYNCED = "synced"
    CONTEXT_LOADED = "context_loaded"
    CODED = "coded"
    VALIDATED = "validated"
    COMMITTED = "committed"
    PR_OPENED = "pr_opened"
    REVIEW_REQUESTED = "review_requested"
    RETRYABLE = "retryable"
    FATAL = "fatal"
    NEEDS_HUMAN = "needs_human"
    RETRIES_EXHAUSTED = "retries_exhausted"
    RETRY_UPGRADE = "retry_upgrade"
    RETRY_SYNC = "retry_sync"
    RETRY_CONTEXT = "retry_context"
    RETRY_CODE = "retry_code"
    RETRY_VALIDATE = "retry_validate"
    RETRY_COMMIT = "retry_commit"
    RETRY_PR = "retry_pr"
    RETRY_REVIEW = "retry_review"


@dataclass(frozen=True, slots=True)
class Worker:
    """The worker's own data.

    `counters` counts failures by counter, `round` the runs of the agent; `back` is the event that RETRY_WAIT
    ends with, not before `not_before`, and `stop` the run that must be ended in it. `checked` is the last
    image digest judged at the checkpoint.
    """

    issue: int = 0
    title: str = ""
    base: str = ""
    base_sha: str = ""
    branch: str = ""
    agent: str = "scripted"
    commands: tuple[str, ...] = ()
    image: str = ""
    counters: Mapping[str, int] = field(default_factory=dict)
    round: int = 0
    feedback: str = ""
    session: str = ""
    back: str = ""
    not_before: float = 0.0
    stop: str = ""
    failure: str = ""
    detail: str = ""
    summary: str = ""
    question: str = ""
    checked: str = ""
    tag: str = ""
    sha: str = ""
    tokens: int = 0
    cost_usd: float = 0.0
    conflicts: tuple[str, ...] = ()
    pull: int = 0


def run_id(item: Item[Worker]) -> str:
    """Names a run by the entry of the state that started it: a state entered again gets a new name."""
    return f"run-{item.entry}"


def fold(data: Worker, record: Record) -> Worker:
    """A transition's note overrides fields by name; outcomes bring what later states need."""
    if record.kind == "transition":
        note: Mapping[str, Any] = record.body.get("note", {})
        return replace(data, **note) if note else data
    if record.body.get("status") != "done":
        return data
    effect, value = record.body.get("effect"), record.body.get("value") or {}
    if effect == "Sync":
        return replace(data, base_sha=value["base_sha"], conflicts=tuple(value.get("conflicts", ())))
    if effect == "Commit":
        return replace(data, sha=value["sha"])
    if effect == "StartAgent":
        return replace(data, round=data.round + 1)
    if effect == "Request" and value.get("pull"):
        return replace(data, pull=int(value["pull"]))
    return data
