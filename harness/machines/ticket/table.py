"""The ticket's table, and the moves that a person's act brings about from anywhere."""

from __future__ import annotations

from harness.core.fsm import Move, Row, table
from harness.core.item import Item
from harness.core.result import Err
from harness.domain import Gone
from harness.failures import After, Failure, explain, rule
from harness.machines.kind import Kind, Seen, asked, known
from harness.machines.ticket import attempting, claiming, landing, waiting
from harness.machines.ticket.attempting import charge
from harness.machines.ticket.states import CANCELLED, E, S, Ticket, fold, rest
from harness.policy import Policy

TABLE = table(
    "ticket",
    S,
    S.CLAIMING,
    {
        S.CLAIMING: Row(claiming.begin, claiming.watch, {E.CLAIM_HELD: S.ATTEMPTING, E.CLAIM_LOST: S.GONE}),
        S.ATTEMPTING: Row(
            waiting.begin_attempting,
            attempting.watch,
            {
                E.PULL_OPEN: S.REVIEWING,
                E.QUESTION_ASKED: S.WAITING,
                E.AGAIN: S.ATTEMPTING,
                E.GIVEN_UP: S.DEFERRED,
                E.NEEDS_PERSON: S.BLOCKED,
            },
        ),
        S.WAITING: Row(
            waiting.begin_waiting,
            waiting.watch_waiting,
            {E.ANSWERED: S.ATTEMPTING, E.DEFAULT_TAKEN: S.ATTEMPTING, E.EXPIRED: S.DEFERRED},
        ),
        S.REVIEWING: Row(
            waiting.begin_reviewing,
            waiting.watch_reviewing,
            {
                E.APPROVED: S.LANDING,
                E.CHANGES_REQUESTED: S.ATTEMPTING,
                E.PULL_CLOSED: S.BLOCKED,
                E.REVIEW_EXPIRED: S.BLOCKED,
            },
        ),
        S.LANDING: Row(
            None, landing.watch, {E.LANDED: S.LANDED, E.CONFLICT: S.ATTEMPTING, E.GATE_RED: S.ATTEMPTING}
        ),
        S.LANDED: Row(
            landing.begin_landed, landing.watch_landed, {E.RELEASED: S.RELEASED, E.REVERTED: S.DEFERRED}
        ),
        S.DEFERRED: Row(waiting.begin_deferred, waiting.watch_ended, {E.PERSON_RETRIES: S.ATTEMPTING}),
        S.BLOCKED: Row(waiting.begin_blocked, waiting.watch_ended, {E.PERSON_RETRIES: S.ATTEMPTING}),
        S.RELEASED: Row(landing.begin_released),
        S.GONE: Row(waiting.begin_gone),
    },
    final=(S.RELEASED, S.GONE),
    anywhere={E.GONE: S.GONE},
)


def wants(item: Item[Ticket], policy: Policy) -> tuple[str, ...]:
    if item.state == S.CLAIMING:
        return (f"replies/{item.data.issue}", f"issue/{item.data.issue}")
    if item.state == S.ATTEMPTING:
        return attempting.wants(item, policy)
    if item.state in (S.LANDING, S.LANDED):
        return landing.wants(item, policy)
    if item.state in (S.RELEASED, S.GONE):
        return ()
    return waiting.wants(item, policy)


def alarms(item: Item[Ticket], policy: Policy) -> tuple[str, ...]:
    return ("controls",) if item.state == S.LANDED else (f"issue/{item.data.issue}", "controls")


def alarm(item: Item[Ticket], seen: Seen) -> Move | None:
    """Gone: closed, deleted, moved, or our label taken off by a person; or cancelled by command."""
    if item.state == S.LANDED:
        return None
    issue = seen[f"issue/{item.data.issue}"]
    if any(c.args.get("issue") == item.data.issue for c in asked(seen, item.data, "cancel")):
        return Move(E.GONE, CANCELLED, {"failure": str(Failure.GONE), "detail": CANCELLED})
    if not known(issue):
        return None
    why = ""
    if isinstance(issue, Gone):
        why = issue.why
    elif not issue.open:
        why = "the issue was closed"
    elif not issue.has(seen.policy.label()):
        why = f"the label {seen.policy.label()} was taken off"
    return Move(E.GONE, why, {"failure": str(Failure.GONE), "detail": why}) if why else None


def fails(item: Item[Ticket], seen: Seen, err: Err) -> Move:
    """An effect failed for good. What the class says decides between another attempt, a person,
    and giving up."""
    note = {"failure": str(err.failure), "detail": err.detail[:8000], "feedback": err.detail[:20000]}
    text = explain(err.failure, err.detail[:300])
    if err.failure == Failure.GONE:
        return Move(E.GONE, text, note)
    if item.state == S.LANDING:
        event = E.CONFLICT if err.failure == Failure.CONFLICT else E.GATE_RED
        return Move(event, text, note | {"counters": charge(item.data, err.failure)})
    if item.state == S.ATTEMPTING:
        person = rule(err.failure).after is After.PERSON
        return Move(E.NEEDS_PERSON if person else E.GIVEN_UP, text, note)
    if item.state == S.WAITING:
        return Move(E.EXPIRED, text, note)
    if item.state == S.REVIEWING:
        return Move(E.REVIEW_EXPIRED, text, note)
    if item.state == S.LANDED:
        return Move(E.REVERTED, text, note)
    return Move(E.GONE, text, note)


KIND = Kind("ticket", TABLE, Ticket, fold, wants, fails, alarms, alarm, rest)
