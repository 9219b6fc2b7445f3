"""WAITING, REVIEWING, and the ends that a person can undo: everything where people take their time.

A ticket here holds no container and no slot. Only people with write access can answer; what a comment quotes
is not part of its answer, and what bears our marker is never one.
"""

from __future__ import annotations

from typing import Any

from harness.core.item import Item
from harness.core.result import Pass
from harness.domain import Absent, Gone, Reply
from harness.effects import Comment, DeleteBranch, EditPull, Effect, EndGate, Label
from harness.failures import Failure
from harness.machines.kind import Seen, Watch, asked, known, ok, wait
from harness.machines.ticket.attempting import charge
from harness.machines.ticket.states import CANCELLED, E, Ticket, branch
from harness.policy import Policy
from harness.texts import issues as texts


def asked_as(d: Ticket) -> str:
    """The name in the question's mark. Its second tells it from every other question of the issue, also from
    those of an earlier ticket: an old question, and the answer below it, must never be taken for this one's."""
    return f"question-{int(d.asked_at)}"


def begin_waiting(item: Item[Ticket], seen: Seen) -> tuple[Effect, ...]:
    d, p = item.data, seen.policy
    return (
        Comment(d.issue, asked_as(d), texts.question(d.question)),
        Label(d.issue, add=(p.label("needs-you"),), remove=(p.label("working"),)),
    )


def watch_waiting(item: Item[Ticket], seen: Seen) -> Watch:
    replies = seen[f"replies/{item.data.issue}"]
    if not known(replies):
        return wait("reading the answers", replies)
    asked = next((r.id for r in replies if r.ours and r.name == asked_as(item.data)), None)
    if asked is None:
        # Just written, and no list shows it yet; or deleted by a person, or never written on what is locked.
        lost = seen.now - item.changed_at >= seen.policy.answer_s
        return _expired("the question is not on the issue") if lost else wait("the question is not visible")
    for reply in sorted(replies, key=lambda r: r.id):
        text = answer(reply) if reply.id > asked and reply.trusted and not reply.name else ""
        if text:
            pair = {"question": item.data.question, "answer": text, "by": reply.author}
            return ok(E.ANSWERED, f"by {reply.author}", answers=(*item.data.answers, pair))
    if seen.now - item.entered_at >= seen.policy.answer_s:
        return _expired("nobody answered in time")
    return Pass("waiting for a person's answer")


def _expired(why: str) -> Watch:
    return ok(E.EXPIRED, why, failure=str(Failure.QUESTION), detail=why)


def answer(reply: Reply) -> str:
    """The text without quoted lines; empty when it only quotes."""
    return "\n".join(x for x in reply.body.splitlines() if not x.lstrip().startswith(">")).strip()


def begin_attempting(item: Item[Ticket], seen: Seen) -> tuple[Effect, ...]:
    """Back from a person: the labels say so. A plain next attempt changes nothing on the issue.
    A gate that is still known here was left in a hurry."""
    d, p = item.data, seen.policy
    if d.came_from in ("CLAIMING", "ATTEMPTING"):
        return ()
    theirs = tuple(p.label(x) for x in ("needs-you", "deferred", "review"))
    left = (EndGate(d.gate),) if d.gate and d.came_from == "LANDING" else ()
    return (*left, Label(d.issue, add=(p.label("working"),), remove=theirs))


def begin_reviewing(item: Item[Ticket], seen: Seen) -> tuple[Effect, ...]:
    p = seen.policy
    if p.required_review == "none" and item.data.lands == "lane":
        return ()
    return (Label(item.data.issue, add=(p.label("review"),), remove=(p.label("working"),)),)


def watch_reviewing(item: Item[Ticket], seen: Seen) -> Watch:
    d, p = item.data, seen.policy
    pull = seen[f"pull/{d.pull}"]
    if not known(pull):
        return wait("reading the pull", pull)
    if pull.merged:
        return ok(E.APPROVED, "a person merged it")
    if not pull.open:
        return ok(
            E.PULL_CLOSED,
            "a person closed the pull",
            failure=str(Failure.GONE),
            detail="a person closed the pull",
        )
    if d.lands == "lane" and p.required_review in ("none", "release") and not d.review:
        return ok(E.APPROVED, "no review required on issues here")
    reviews = seen[f"reviews/{d.pull}"]
    if not known(reviews):
        return wait("reading the reviews", reviews)
    last: dict[str, Any] = {
        r.author: r for r in reviews if r.state in ("APPROVED", "CHANGES_REQUESTED", "DISMISSED")
    }
    asks = [r for r in last.values() if r.state == "CHANGES_REQUESTED" and r.sha == pull.head_sha]
    if asks:
        detail = "\n\n".join(f"{r.author}: {r.body}" for r in asks)
        note = {"failure": str(Failure.REVIEW_CHANGES), "detail": detail[:8000], "feedback": detail[:20000]}
        return ok(
            E.CHANGES_REQUESTED, f"by {asks[0].author}", counters=charge(d, Failure.REVIEW_CHANGES), **note
        )
    if d.lands == "lane" and any(r.state == "APPROVED" for r in last.values()):
        return ok(E.APPROVED, f"by {', '.join(r.author for r in last.values() if r.state == 'APPROVED')}")
    if seen.now - item.entered_at > p.review_s:
        return ok(
            E.REVIEW_EXPIRED, "no review came", failure=str(Failure.TIMEOUT), detail="no review came in time"
        )
    return Pass("waiting for a review")


def begin_deferred(item: Item[Ticket], seen: Seen) -> tuple[Effect, ...]:
    d, p = item.data, seen.policy
    return (
        Comment(d.issue, "status", texts.deferred(d.failure, d.detail, p.label(), d.audits)),
        Label(
            d.issue,
            add=(p.label("deferred"),),
            remove=(p.label("working"), p.label("review"), p.label("needs-you")),
        ),
    )


def begin_blocked(item: Item[Ticket], seen: Seen) -> tuple[Effect, ...]:
    d, p = item.data, seen.policy
    return (
        Comment(d.issue, f"blocked-{int(seen.now)}", texts.blocked(d.failure, d.detail, d.issue, d.audits)),
        Comment(d.issue, "status", texts.deferred(d.failure, d.detail, p.label(), d.audits)),
        Label(d.issue, add=(p.label("needs-you"),), remove=(p.label("working"), p.label("review"))),
    )


def watch_ended(item: Item[Ticket], seen: Seen) -> Watch:
    """DEFERRED and BLOCKED: only a person brings a ticket back, by the command or by taking our label off."""
    d, candidate = item.data, seen[f"issue/{item.data.issue}"]
    fresh: dict[str, Any] = {"counters": {}, "not_before": 0.0, "failure": "", "attempts": 0}
    fresh["offset"] = d.offset + d.attempts
    if any(c.args.get("issue") == d.issue for c in asked(seen, d, "retry")):
        return ok(E.PERSON_RETRIES, "a person asked for another try", **fresh)
    if known(candidate) and not isinstance(candidate, Gone | Absent):
        p = seen.policy
        ours = p.label("deferred" if item.state == "DEFERRED" else "needs-you")
        late = candidate.seen_at - item.changed_at > 6 * p.lag_s
        if late and candidate.has(p.label()) and not candidate.has(ours):
            return ok(E.PERSON_RETRIES, f"a person took the label {ours} off", **fresh)
    return Pass(f"{item.state.lower()}: waiting for a person")


def begin_gone(item: Item[Ticket], seen: Seen) -> tuple[Effect, ...]:
    """A person ended it, or the claim was lost: what we said and did there is taken back."""
    d, p = item.data, seen.policy
    if d.holder:  # the labels are those of the other who holds the claim
        return (Comment(d.issue, "status", texts.stopped(d.detail)),)
    parts = ("working", "review", "needs-you", "deferred")
    labels = tuple(p.label(x) for x in (("", *parts) if d.detail == CANCELLED else parts))
    gate = (EndGate(d.gate),) if d.gate else ()
    told = (Comment(d.issue, "status", texts.stopped(d.detail)), Label(d.issue, remove=labels), *gate)
    if not d.pull or d.landed_sha:
        return told
    return (
        *told,
        EditPull(d.pull, state="closed"),
        DeleteBranch(branch(d, p.branch_prefix), d.head),
    )


def wants(item: Item[Ticket], policy: Policy) -> tuple[str, ...]:
    d = item.data
    if item.state == "WAITING":
        return (f"replies/{d.issue}",)
    if item.state == "REVIEWING":
        return (
            (f"pull/{d.pull}", f"reviews/{d.pull}")
            if policy.required_review == "issue" or d.lands != "lane" or d.review
            else (f"pull/{d.pull}",)
        )
    return ("controls", f"issue/{d.issue}")
