"""RUNNING: serve the worker's requests, and see how it ends.

A worker's word is the agent's word. The exit state is the engine's; the worker's last words only name a
class.
"""

from __future__ import annotations

from typing import Any

from harness.core.item import Item
from harness.core.result import Err, Pass
from harness.domain import Absent, Ask, Beat, Status
from harness.effects import Effect, OpenPull, Publish
from harness.failures import Failure
from harness.machines.attempt.outcome import Ended, classify
from harness.machines.attempt.states import Attempt, E, worker_name
from harness.machines.kind import Peer, Seen, Watch, known, ok, stay, wait
from harness.policy import DELIVERY_S, Policy
from harness.texts.pulls import flagged


def wants(item: Item[Attempt], policy: Policy) -> tuple[str, ...]:
    name = worker_name(item, policy.repo, policy.instance)
    code = item.data.code
    lane = ("lane", f"item/{item.data.ticket}") if item.data.purpose == "issue" else ()
    return (f"job/{name}", f"beat/{code}", f"words/{code}", f"asked/{code}", f"capped/{code}", *lane)


def watch(item: Item[Attempt], seen: Seen) -> Watch:
    job = seen[f"job/{worker_name(item, seen.policy.repo, seen.policy.instance)}"]
    asks = seen[f"asked/{item.data.code}"]
    first = next((a for a in asks if a.key not in item.data.answers), None) if known(asks) else None
    served = _serve(item, seen, first) if first else None
    if served is not None and not isinstance(served, Pass):
        return served
    beat = seen[f"beat/{item.data.code}"]
    if not known(job):
        return wait("looking at the container", job)
    if isinstance(job, Absent) or job.phase in ("EXITED", "LOST", "REJECTED"):
        return _ended(item, seen, job, beat)
    alive = _alive(item, seen, job, beat)
    return served if served is not None and isinstance(alive, Pass) else alive


def _serve(item: Item[Attempt], seen: Seen, ask: Ask) -> Watch:
    """A request becomes an intent of ours; what the worker says goes no further than this."""
    d = item.data
    note: dict[str, Any] = {"asking": ask.key, "asking_kind": ask.kind}
    effects: tuple[Effect, ...] = ()
    if ask.kind == "publish":
        args = ask.args
        effects = (
            Publish(d.code, d.issue, str(args["sha"]), str(args["base_sha"]), d.branch, str(args["bundle"])),
        )
    elif ask.kind == "open_pull" and d.head and d.purpose == "issue":
        base = _base(item, seen)
        if not base:
            return Pass("waiting for a release to open the pull for")
        effects = (OpenPull(d.branch, base, d.pull_title, flagged(d.pull_body, d.flags), f"pull-{d.issue}"),)
        note |= {"base": base}
    elif ask.kind == "ask":
        note |= {"question": str(ask.args.get("question", ""))[:8000]}
        note |= {"answers": {**d.answers, ask.key: {"ok": True}}, "asking": ""}
    else:
        answer = {"ok": True, "pull": d.pull or 1} if d.head else {"ok": False, "error": f"no {ask.kind} now"}
        note |= {"answers": {**d.answers, ask.key: answer}, "asking": ""}
    return stay(*effects, why=f"the worker asks: {ask.kind}", **note)


def _base(item: Item[Attempt], seen: Seen) -> str:
    """Where the work is to land now: an attempt that outlives its release is carried over to the next one."""
    ticket, lane = seen[f"item/{item.data.ticket}"], seen["lane"]
    if not isinstance(ticket, Peer) or ticket.data.lands != "lane":
        return item.data.base if isinstance(ticket, Peer) else ""
    return str(lane.branch) if known(lane) and lane.machine else ""


def _ended(item: Item[Attempt], seen: Seen, job: Status | Absent, beat: Any) -> Watch:
    d = item.data
    words = seen[f"words/{d.code}"]
    if not known(words) or (isinstance(job, Status) and words.at < job.seen_at):
        return wait("reading its last words", words)
    heard = [b for b in (beat, words) if isinstance(b, Beat) and b.incarnation == d.incarnation]
    here = next((b for b in heard if b.final), heard[0] if heard else None)
    gone = isinstance(job, Absent)
    status = Status("", "LOST") if isinstance(job, Absent) else job
    outcome = classify(
        Ended(
            exit=status.exit,
            oom=status.oom,
            signal=status.signal,
            engine_changed=bool(d.engine and status.engine and status.engine != d.engine),
            lost=gone or status.phase != "EXITED",
            asked=d.asked_stop,
            deadline_passed=_late(item, seen, status),
            flooded=status.limit == "output",
            final=here.final if here else "",
            failure=here.failure if here else "",
        )
    )
    witness = beat if isinstance(beat, Beat) else here
    note: dict[str, Any] = {"exit": status.exit, "warning": outcome.warning, **_testimony(here, witness)}
    if outcome.kind == "upgrade":
        return ok(E.UPGRADE, outcome.text)
    if outcome.kind == "infra" and d.infra + 1 < seen.policy.infra_retries:
        charged = d.infra + (outcome.counter == "infra")
        return ok(E.INFRA_LOST, f"{outcome.failure}: {outcome.text}", infra=charged)
    kind, failure = _evidence(item, outcome.kind, outcome.failure)
    said = here.reason if here and kind != "done" else ""
    detail = (said or outcome.text)[:8000]
    return ok(
        E.EXITED,
        detail.splitlines()[0][:300] if detail else kind,
        outcome=kind,
        failure=failure,
        detail=detail,
        **note,
    )


def _late(item: Item[Attempt], seen: Seen, status: Status) -> bool:
    """Whether its time had passed when it ended. What ended at an unknown time gets the benefit of the doubt."""
    return status.limit == "wall" or _overdue(item, seen, status.finished_at or 0.0)


def _overdue(item: Item[Attempt], seen: Seen, at: float) -> bool:
    """Once its work is published, what it waits for is the forge's time and not the worker's: then the time
    counts anew from our last answer, for a day at most."""
    wall_s = seen.policy.worker_wall_s
    if not item.data.head:
        return at - item.entered_at > wall_s
    return at - item.changed_at > wall_s or at - item.entered_at > wall_s + DELIVERY_S


def _evidence(item: Item[Attempt], kind: str, failure: str) -> tuple[str, str]:
    """Success needs evidence: the published SHA, and the pull open.
    "Done" with nothing pushed is not done."""
    d = item.data
    if d.question:
        return "question", str(Failure.QUESTION)
    if kind == "done":
        if d.head and (d.pull or d.purpose != "issue"):
            return "done", ""
        return "failed", str(Failure.AGENT_NO_CHANGES)
    return ("stopped" if kind == "stopped" else "failed"), failure or str(Failure.UNKNOWN_EXIT)


def _testimony(said: Beat | None, witness: Beat | None) -> dict[str, Any]:
    """What the worker says it used up, and the last record of it that the gateway saw."""
    seen = {"witnessed": witness.head, "witnessed_seq": witness.seq} if witness else {}
    return {**seen, **({"counters": dict(said.counters)} if said else {})}


def _alive(item: Item[Attempt], seen: Seen, job: Status, beat: Any) -> Watch:
    """Stale by several signals only: no heartbeat (counted anew after adoption) and no CPU and no output, as far
    as they were looked at: when the director itself stood still, a look from before says nothing of now."""
    p = seen.policy
    capped = seen[f"capped/{item.data.code}"]
    if known(capped) and capped:
        return Err(Failure.BUDGET_EXHAUSTED, capped)
    if _overdue(item, seen, seen.now):
        note = {"outcome": "failed", "failure": str(Failure.TIMEOUT), "asked_stop": "timeout"}
        return ok(
            E.TIMED_OUT,
            f"still running after {int(p.worker_wall_s)} s",
            detail="the worker's time is up",
            **note,
        )
    heard = max(beat.at if isinstance(beat, Beat) else 0.0, item.entered_at, seen.epoch_began)
    looked = min(job.seen_at or seen.now, seen.now)
    if seen.now - heard > p.heartbeat_ttl_s and looked - max(heard, job.progress_at) > p.heartbeat_ttl_s:
        note = {"outcome": "failed", "failure": str(Failure.AGENT_STALLED), "asked_stop": "stalled"}
        return ok(
            E.STALLED,
            f"no sign of life for {int(seen.now - heard)} s",
            detail="no heartbeat, no output",
            **note,
        )
    state = beat.state if isinstance(beat, Beat) else "starting"
    return Pass(f"incarnation {item.data.incarnation}: {state}")
