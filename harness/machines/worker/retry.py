"""RETRY_WAIT, and how a failure's class becomes a move:
counted, bounded, back to the state that it asks for."""

from __future__ import annotations

from typing import Any

from harness.core.fsm import Move
from harness.core.item import Item
from harness.core.result import Err, Pass
from harness.core.retry import Backoff, exhausted
from harness.effects import Effect, StopRun
from harness.failures import After, Counter, Failure, explain, rule
from harness.machines.kind import Seen, Watch, known, ok
from harness.machines.worker.states import E, S, Worker, run_id
from harness.policy import Policy

BACK = {
    S.UPGRADE_CHECKPOINT: E.RETRY_UPGRADE,
    S.SYNC_MAIN: E.RETRY_SYNC,
    S.CONTEXT_LOAD: E.RETRY_CONTEXT,
    S.CODE: E.RETRY_CODE,
    S.VALIDATE: E.RETRY_VALIDATE,
    S.COMMIT: E.RETRY_COMMIT,
    S.PR_CREATE: E.RETRY_PR,
    S.REVIEW_REQUEST: E.RETRY_REVIEW,
}
ORDER = list(BACK.values())
RUNNING = (S.CODE, S.VALIDATE)
LEFT_RUNNING = frozenset({Failure.AGENT_STALLED, Failure.TIMEOUT})
FEEDBACK = frozenset({Failure.TESTS_FAILED, Failure.AGENT_NO_CHANGES, Failure.CONFLICT})
LAST = {After.FATAL: E.FATAL, After.PERSON: E.NEEDS_HUMAN, After.GIVE_UP: E.RETRIES_EXHAUSTED}


def backoff(policy: Policy) -> Backoff:
    return Backoff(policy.retry_mode, policy.retry_initial_s, policy.retry_max_s, policy.retry_jitter_s)


def fails(item: Item[Worker], seen: Seen, err: Err) -> Move:
    d, r = item.data, rule(err.failure)
    note: dict[str, Any] = {"failure": str(err.failure), "detail": err.detail[:4000]}
    if not r.retried or item.state == S.RETRY_WAIT:
        event = LAST[r.after] if r.after is not After.GIVE_UP else E.FATAL
        return Move(event, explain(err.failure, err.detail[:500]), note)
    tries = d.counters.get(r.counter, 0) + 1
    note["counters"] = {**d.counters, str(r.counter): tries}
    bound = seen.policy.bound(r.counter)
    text = f"{explain(err.failure, err.detail[:300])}; {r.counter} {tries} of {bound}"
    most = bound + 1 if r.counter is Counter.REWORK else bound
    if exhausted(tries, most) and r.counter is not Counter.NOBODY:
        event = E.NEEDS_HUMAN if r.after is After.PERSON else E.RETRIES_EXHAUSTED
        return Move(event, text, note)
    wait_s = backoff(seen.policy).delay_s(tries, item.id) if r.waits else 0.0
    note["not_before"] = max(err.not_before or 0.0, seen.now + wait_s)
    note["back"] = _earliest(item.state, r.back_to)
    note["stop"] = run_id(item) if item.state in RUNNING and err.failure in LEFT_RUNNING else ""
    if err.failure in FEEDBACK:
        note["feedback"] = err.detail[:20000]
    return Move(E.RETRYABLE, text, note)


def _earliest(state: str, asked: str) -> str:
    """The earlier of the state that failed and the one that its class asks for."""
    here = BACK.get(S(state))
    if here is None:
        return asked
    return str(min((here, E(asked)), key=ORDER.index))


def begin(item: Item[Worker], seen: Seen) -> tuple[Effect, ...]:
    """What hangs is ended first: two agents in one clone would undo each other's work."""
    return (StopRun(item.data.stop, seen.policy.grace_s),) if item.data.stop else ()


def watch(item: Item[Worker], seen: Seen) -> Watch:
    d = item.data
    if seen.now < d.not_before:
        return Pass(f"again in {int(d.not_before - seen.now) + 1} s")
    news = seen["news"]
    if known(news) and news.tag and news.tag != d.tag:
        return ok(E.RETRY_UPGRADE, f"{news.tag} was published", tag=news.tag)
    return ok(d.back, "again")
