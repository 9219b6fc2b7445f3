"""The attempt's short states, and the moves that end it early. HARVESTING and CLEANING always run."""

from __future__ import annotations

from typing import Any

from harness.core.fsm import Move
from harness.core.item import Item
from harness.core.result import Err, Ok, Pass
from harness.domain import Absent
from harness.effects import (
    Clone,
    Discard,
    Effect,
    KeepWork,
    OpenSocket,
    RemoveJob,
    SealBundle,
    ShutSocket,
    StartHarvest,
    StartPrepare,
    StartWorker,
    StopJob,
    WriteBrief,
)
from harness.failures import Failure, explain
from harness.machines.attempt import running
from harness.machines.attempt.states import Attempt, E, S, harvest_name, job_names, worker_name
from harness.machines.gates import prepared
from harness.machines.kind import Peer, Seen, Watch, asked, known, ok, wait
from harness.policy import Policy

EARLY = (S.PREPARING, S.STARTING, S.RUNNING)


def wants(item: Item[Attempt], policy: Policy) -> tuple[str, ...]:
    if item.state == S.PREPARING and item.data.prepare:
        return (f"job/{item.data.prepare}",)
    if item.state == S.RUNNING:
        return running.wants(item, policy)
    if item.state == S.HARVESTING:
        return (f"job/{harvest_name(item, policy.repo, policy.instance)}",)
    return ()


def alarms(item: Item[Attempt], policy: Policy) -> tuple[str, ...]:
    return (f"item/{item.data.ticket}", "controls") if item.state in EARLY else ()


def alarm(item: Item[Attempt], seen: Seen) -> Move | None:
    """Stop when the ticket is gone or no longer ours to work on, or when a person asks."""
    if item.state not in EARLY:
        return None
    note = {"outcome": "stopped", "failure": str(Failure.GONE), "asked_stop": "stop"}
    ticket = seen[f"item/{item.data.ticket}"]
    if isinstance(ticket, Peer) and ticket.state in ("GONE", "RELEASED", "DEFERRED", "BLOCKED", "ABANDONED"):
        return Move(
            E.STOP,
            f"{item.data.ticket} is {ticket.state}",
            note | {"detail": f"the ticket is {ticket.state}"},
        )
    if asked(seen, item.data, "stop-workers"):
        note["failure"] = str(Failure.INFRA_KILLED)
        return Move(E.STOP, "a person stopped the workers", note | {"detail": "stopped by a person"})
    return None


def begin_preparing(item: Item[Attempt], seen: Seen) -> tuple[Effect, ...]:
    d, p = item.data, seen.policy
    prepare = (StartPrepare(d.prepare, d.prepare_sha or d.base_sha, p.prepare, d.image),) if d.prepare else ()
    return (
        *prepare,
        Clone(d.code, d.start_sha or d.base_sha, d.branch, d.base),
        WriteBrief(d.code, d.brief),
    )


def watch_preparing(item: Item[Attempt], seen: Seen) -> Watch:
    ready = prepared(seen, item.data.prepare)
    if not isinstance(ready, Ok):
        return ready
    return ok(
        E.PREPARED,
        "dependencies, clone and folders are there" if item.data.prepare else "clone and folders are there",
    )


def begin_starting(item: Item[Attempt], seen: Seen) -> tuple[Effect, ...]:
    d, p = item.data, seen.policy
    name = worker_name(item, p.repo, p.instance)
    image = p.image or d.image
    return (OpenSocket(d.code, d.incarnation), StartWorker(name, d.code, d.incarnation, image, d.prepare))


def watch_starting(item: Item[Attempt], seen: Seen) -> Watch:
    return ok(E.STARTED, f"incarnation {item.data.incarnation} in {item.data.image_now or item.data.image}")


def begin_harvesting(item: Item[Attempt], seen: Seen) -> tuple[Effect, ...]:
    """A worker whose start was not heard of may run all the same."""
    d, p = item.data, seen.policy
    stop = StopJob(worker_name(item, p.repo, p.instance), p.grace_s)
    if item.entered_at and not d.engine:
        return (stop,) if d.tried else ()
    return (stop, StartHarvest(harvest_name(item, p.repo, p.instance), d.code, p.image or d.image))


def watch_harvesting(item: Item[Attempt], seen: Seen) -> Watch:
    job = seen[f"job/{harvest_name(item, seen.policy.repo, seen.policy.instance)}"]
    if not item.data.engine:
        return ok(E.HARVESTED, "nothing had run")
    if not known(job):
        return wait("looking at the harvest", job)
    if not isinstance(job, Absent) and job.alive:
        return Pass("saving the work")
    return ok(
        E.HARVESTED,
        explain(item.data.failure, item.data.detail)[:300] if item.data.failure else item.data.outcome,
    )


def begin_cleaning(item: Item[Attempt], seen: Seen) -> tuple[Effect, ...]:
    d, p = item.data, seen.policy
    names = job_names(item, p.repo, p.instance) if d.engine or d.tried else ()
    return (
        KeepWork(d.code, d.base_sha),
        SealBundle(d.code, _meta(item), names),
        *(RemoveJob(n) for n in names),
        ShutSocket(d.code),
        Discard(d.code),
    )


def _meta(item: Item[Attempt]) -> dict[str, Any]:
    d = item.data
    return {
        "machine": item.id, "issue": d.issue, "attempt": d.code, "branch": d.branch, "base_sha": d.base_sha,
        "image": d.image_now or d.image, "incarnations": d.incarnation, "outcome": d.outcome,
        "failure": d.failure, "detail": d.detail[:2000], "head": d.head, "pull": d.pull, "exit": d.exit,
        "warning": d.warning, "worker_head": d.witnessed, "worker_seq": d.witnessed_seq, "title": d.title,
    }  # fmt: skip


def watch_cleaning(item: Item[Attempt], seen: Seen) -> Watch:
    return ok(E.CLEAN, f"bundle {item.data.audit}")


def fails(item: Item[Attempt], seen: Seen, err: Err) -> Move:
    text = explain(err.failure, err.detail[:500])
    if item.state == S.CLEANING:
        return Move(E.CLEANUP_DENIED, text, {"warning": text})
    if item.state == S.HARVESTING:
        return Move(E.HARVESTED, f"not all could be saved: {text}", {"warning": text})
    note = {
        "outcome": "failed",
        "failure": str(err.failure),
        "detail": err.detail[:8000],
        "asked_stop": "failed",
    }
    event = E.INTERNAL_ERROR if err.failure == Failure.INTERNAL_ERROR else E.FAILED
    return Move(event, text, note)
