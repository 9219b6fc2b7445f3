"""ATTEMPTING: one attempt after another, each charged to the counter of its failure's class, all bounded."""

from __future__ import annotations

from typing import Any

from harness.core.item import Item
from harness.core.result import Pass
from harness.core.retry import Backoff, exhausted
from harness.domain import Lane, Slots
from harness.effects import OpenMachine
from harness.failures import After, Counter, Failure, explain, rule
from harness.machines.attempt.states import Attempt
from harness.machines.gates import prepare_name
from harness.machines.kind import Peer, Seen, Watch, known, ok, stay, wait
from harness.machines.ticket.states import E, Ticket, attempt_code, branch
from harness.policy import Policy
from harness.texts import issues as texts
from harness.texts.pulls import pull_body, pull_title


def wants(item: Item[Ticket], policy: Policy) -> tuple[str, ...]:
    if item.data.spawned == item.entry:
        return (f"item/{item.data.attempt}",)
    pull = (f"pull/{item.data.pull}",) if _may_be_merged(item.data) else ()
    return ("slots", "lane", "refs", "default", *pull)


def _may_be_merged(d: Ticket) -> bool:
    """A pull of ours is open, and a person may have merged it as it is."""
    return bool(d.pull) and not d.landed_sha


def watch(item: Item[Ticket], seen: Seen) -> Watch:
    d = item.data
    if d.spawned != item.entry:
        return _spawn(item, seen)
    peer = seen[f"item/{d.attempt}"]
    if not isinstance(peer, Peer):
        return wait(f"{d.attempt} is opening")
    if peer.state != "CLOSED":
        return Pass(f"attempt {peer.data.code}: {peer.state}")
    return _judge(item, seen, peer.data)


def _unanswered(d: Ticket) -> dict[str, str]:
    """No attempt failed, and none came to an end either: each one asked."""
    asked = f"{d.attempts} attempts ended with a question; {len(d.answers)} were answered, the last was: "
    return {"failure": str(Failure.QUESTION), "detail": asked + d.question[:2000]}


def _spawn(item: Item[Ticket], seen: Seen) -> Watch:
    d, p = item.data, seen.policy
    spent = _spent(d.counters, p)
    if d.attempts and (spent or d.attempts >= p.max_attempts):
        why = {"failure": d.failure, "detail": d.detail} if d.failure else _unanswered(d)
        text = explain(why["failure"], why["detail"])
        return ok(E.GIVEN_UP, f"{text[:300]} ({spent or 'attempts'} used up)", **why)
    if d.failure == Failure.GONE:
        return ok(E.NEEDS_PERSON, d.detail)
    if d.unfilled and not d.answers:
        return ok(E.QUESTION_ASKED, "the issue says nothing yet", question=texts.UNFILLED, asked_at=seen.now)
    if seen.now < d.not_before:
        return Pass(f"again in {int(d.not_before - seen.now) + 1} s: {explain(d.failure, d.detail)[:120]}")
    if _may_be_merged(d):
        pull = seen[f"pull/{d.pull}"]
        if not known(pull):
            return wait("reading the pull", pull)
        if pull.merged:
            return ok(E.PULL_OPEN, "a person merged it meanwhile", feedback="", merge={}, gate="")
    slots, lane, refs, default = seen["slots"], seen["lane"], seen["refs"], seen["default"]
    for value in (slots, lane, refs, default):
        if not known(value):
            return wait("looking for a place to work", value)
    if not _turn(item, slots, p):
        return Pass("waiting for a free slot")
    base = _base(d, lane, default)
    base_sha = refs.get(f"refs/heads/{base}", "") if base else ""
    if not base_sha:
        return Pass("waiting for a release to work on" if not base else f"waiting for branch {base}")
    n = d.attempts + 1
    machine = f"{d.repo}/attempt/{attempt_code(d, n)}"
    published = refs.get(f"refs/heads/{branch(d, p.branch_prefix)}", "")
    start = _start(item, p, n, base, base_sha, published, lane)
    return stay(
        OpenMachine(machine, start), why=f"attempt {n} on {base}@{base_sha[:12]}", attempts=n,
        attempt=machine, spawned=item.entry, base=base, base_sha=base_sha,
    )  # fmt: skip


def _turn(item: Item[Ticket], slots: Slots, policy: Policy) -> bool:
    free = policy.max_workers - slots.live
    return item.id in slots.waiting[: max(free, 0)]


def _base(d: Ticket, lane: Lane, default: str) -> str:
    return lane.branch if d.lands == "lane" else default


def _start(
    item: Item[Ticket], p: Policy, n: int, base: str, base_sha: str, published: str, lane: Lane
) -> Attempt:
    """All that the attempt and its worker need. Work that was published before is gone on with."""
    d = item.data
    code = attempt_code(d, n)
    goes_on = d.head if d.head and published == d.head else ""
    brief: dict[str, Any] = {
        "issue": d.issue, "title": d.title, "text": d.text, "attempt": code, "base": base,
        "base_sha": base_sha, "branch": branch(d, p.branch_prefix), "feedback": d.feedback,
        "answers": [dict(a) for a in d.answers], "counters": dict(d.counters), "round_offset": len(d.answers),
        "agent": p.agent, "model": p.model, "commands": list(p.commands),
    }  # fmt: skip
    return Attempt(
        code=code, ticket=item.id, issue=d.issue, title=d.title, branch=branch(d, p.branch_prefix),
        base=base, base_sha=base_sha, start_sha=goes_on or base_sha, image=p.image,
        prepare=lane.prepare if d.lands == "lane" else prepare_name(p, base_sha),
        prepare_sha=lane.base_sha if d.lands == "lane" else base_sha, commands=p.commands, brief=brief,
        pull_title=pull_title(d.issue, d.title),
        pull_body=pull_body(d.issue, d.title, code, d.lands == "lane"),
        counters=dict(d.counters), pull=d.pull if goes_on else 0,
    )  # fmt: skip


def _spent(counters: Any, policy: Policy) -> str:
    """The first counter whose bound is used up, or nothing."""
    for name in (Counter.AGENT, Counter.REWORK, Counter.INFRA, Counter.WAIT):
        most = policy.bound(name) + (1 if name is Counter.REWORK else 0)
        if exhausted(counters.get(name, 0), most):
            return str(name)
    return ""


def charge(d: Ticket, failure: str, said: Any = None) -> dict[str, int]:
    """The counters after this failure. What the worker says it counted is taken when it is more; a failure
    that it did not count is charged here, once."""
    counters = {k: max(d.counters.get(k, 0), (said or {}).get(k, 0)) for k in {*d.counters, *(said or {})}}
    name = str(rule(failure).counter)
    if name != Counter.NOBODY and counters.get(name, 0) <= d.counters.get(name, 0):
        counters[name] = d.counters.get(name, 0) + 1
    return counters


def _judge(item: Item[Ticket], seen: Seen, a: Attempt) -> Watch:
    d, p = item.data, seen.policy
    note: dict[str, Any]
    audits = {"audits": (*d.audits, a.audit)} if a.audit else {}
    if a.outcome == "done" and a.head == d.head and d.came_from in ("REVIEWING", "LANDING"):
        asked = texts.first_line(d.feedback)
        detail = f"nothing new was published after: {asked}"
        note = {"failure": str(Failure.AGENT_NO_CHANGES), "detail": detail, **audits}
        return ok(E.NEEDS_PERSON, detail[:300], **note)
    if a.outcome == "done":
        return ok(
            E.PULL_OPEN,
            f"#{a.pull}",
            pull=a.pull,
            head=a.head,
            review=a.review,
            feedback="",
            merge={},
            gate="",
            **audits,
        )
    if a.outcome == "question":
        return ok(E.QUESTION_ASKED, a.question[:300], question=a.question, asked_at=seen.now, **audits)
    failure = a.failure or str(Failure.UNKNOWN_EXIT)
    r = rule(failure)
    counters = charge(d, failure, a.counters)
    note = {"failure": failure, "detail": a.detail[:8000], "counters": counters, **audits}
    text = texts.first_line(explain(failure, a.detail))
    over = _spent(counters, p)
    if not r.retried or over or d.attempts >= p.max_attempts:
        event = E.NEEDS_PERSON if r.after is After.PERSON else E.GIVEN_UP
        return ok(event, text if not over else f"{text} ({over} retries used up)", **note)
    backoff = Backoff(p.retry_mode, p.retry_initial_s, p.retry_max_s, p.retry_jitter_s)
    wait_s = backoff.delay_s(counters.get(r.counter, 1), item.id) if r.waits else 0.0
    note |= {"not_before": seen.now + wait_s, "feedback": a.detail[:20000]}
    return ok(E.AGAIN, f"{text}; {r.counter} {counters.get(r.counter, 0)} of {p.bound(r.counter)}", **note)
