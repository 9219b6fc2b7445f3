"""The ticket's states, events and data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from harness.core.journal import Record

CANCELLED = "cancelled by a person"


class S(StrEnum):
    CLAIMING = "CLAIMING"
    ATTEMPTING = "ATTEMPTING"
    WAITING = "WAITING"
    REVIEWING = "REVIEWING"
    LANDING = "LANDING"
    LANDED = "LANDED"
    DEFERRED = "DEFERRED"
    BLOCKED = "BLOCKED"
    RELEASED = "RELEASED"
    GONE = "GONE"


class E(StrEnum):
    CLAIM_HELD = "claim_held"
    CLAIM_LOST = "claim_lost"
    PULL_OPEN = "pull_open"
    QUESTION_ASKED = "question_asked"
    AGAIN = "again"
    GIVEN_UP = "given_up"
    NEEDS_PERSON = "needs_person"
    ANSWERED = "answered"
    DEFAULT_TAKEN = "default_taken"
    EXPIRED = "expired"
    APPROVED = "approved"
    CHANGES_REQUESTED = "changes_requested"
    PULL_CLOSED = "pull_closed"
    REVIEW_EXPIRED = "review_expired"
    LANDED = "landed"
    CONFLICT = "conflict"
    GATE_RED = "gate_red"
    RELEASED = "released"
    REVERTED = "reverted"
    PERSON_RETRIES = "person_retries"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Ticket:
    """The ticket's own data.

    `text` is the frozen text of the issue (title, body, trusted comments), `text_hash` its SHA-256. `head` is
    the published work, `merge` the commit that is to land (sha, tree, base, head). `answers` are question and
    answer pairs. `attempt` is the machine of the attempt begun in the state entered at `spawned`.
    """

    repo: str = ""
    issue: int = 0
    title: str = ""
    author: str = ""
    text: str = ""
    text_hash: str = ""
    unfilled: bool = False
    lands: str = "lane"
    base: str = ""
    base_sha: str = ""
    attempts: int = 0
    offset: int = 0
    attempt: str = ""
    spawned: int = 0
    counters: Mapping[str, int] = field(default_factory=dict)
    not_before: float = 0.0
    failure: str = ""
    detail: str = ""
    feedback: str = ""
    head: str = ""
    pull: int = 0
    review: bool = False
    question: str = ""
    asked_at: float = 0.0
    answers: tuple[Mapping[str, str], ...] = ()
    merge: Mapping[str, str] = field(default_factory=dict)
    turn: str = ""
    holder: str = ""
    gate: str = ""
    gate_tries: int = 0
    landed_in: str = ""
    landed_sha: str = ""
    tag: str = ""
    audits: tuple[str, ...] = ()
    cost_usd: float = 0.0
    control: int = 0
    came_from: str = ""


def attempt_code(t: Ticket, n: int) -> str:
    return f"{t.issue}.{t.offset + n}"


def branch(t: Ticket, prefix: str) -> str:
    return f"{prefix}/{t.issue}"


def rest(data: Ticket) -> Ticket:
    """Without what only work needs: an issue's text may have many kilobytes."""
    return replace(data, text="", feedback="", merge={})


def fold(data: Ticket, record: Record) -> Ticket:
    body = record.body
    if record.kind == "transition":
        note: Mapping[str, Any] = body.get("note", {})
        came = {"came_from": body["from"]} if body["event"] else {}
        return replace(data, **{**came, **note})
    if body.get("status") == "done" and body.get("effect") == "BuildMerge":
        return replace(data, merge=body["value"], gate="")
    return data
