"""DISCOVER, DISPATCH, MONITOR, RELEASE_FINALIZE, BROADCAST, and what may happen anywhere."""

from __future__ import annotations

from harness.core.fsm import Move
from harness.core.item import Item
from harness.core.result import Err, Pass
from harness.domain import Candidate, Entry
from harness.effects import Announce, Effect, EndGate, OpenMachine
from harness.machines import gates
from harness.machines.director.plan import plan
from harness.machines.director.planning import (
    BOOT_NEEDS,
    PLAN_NEEDS,
    missing,
    release_wanted,
    unfinished,
    wants_plan,
)
from harness.machines.director.states import Director, E, S
from harness.machines.kind import Peer, Seen, Watch, known, ok, stay
from harness.machines.release.settle import settled
from harness.machines.ticket.states import Ticket
from harness.policy import Policy

BUSY = frozenset({"CLAIMING", "ATTEMPTING", "REVIEWING", "LANDING", "WAITING"})
MOVING = frozenset({"GATING", "RESOLVING", "TAGGING", "PUBLISHING"})


def wants(item: Item[Director], policy: Policy) -> tuple[str, ...]:
    if item.state == S.BOOT:
        return BOOT_NEEDS
    if item.state == S.RELEASE_PLAN:
        return wants_plan(item, policy)
    if item.state == S.DISCOVER:
        return PLAN_NEEDS
    if item.state in (S.MONITOR, S.SELF_REVIEW):
        return (*PLAN_NEEDS, "ours")
    if item.state in (S.RELEASE_FINALIZE, S.BROADCAST):
        return ("releases", "entries", "image")
    if item.state == S.COOLDOWN:
        return ("limits",)
    return ()


def watch_discover(item: Item[Director], seen: Seen) -> Watch:
    lacking = missing(seen, PLAN_NEEDS)
    if lacking:
        return lacking
    if release_wanted(seen):
        return ok(E.RELEASE_MISSING, "no release is open and there is work", reasons=dict(plan(seen).reasons))
    made = plan(seen)
    note = {"reasons": dict(made.reasons), "chosen": tuple(c.issue.number for c in made.chosen)}
    if made.chosen:
        return ok(E.WORK_AVAILABLE, f"chosen: {', '.join(str(n) for n in note['chosen'])}", **note)
    if _busy(seen) or seen["lane"].machine or unfinished(seen):
        return ok(E.NOTHING_TO_DISPATCH, _summary(seen), **note)
    return ok(E.NO_WORK, "no work, no live worker, nothing to release", **note)


def _busy(seen: Seen) -> bool:
    return bool(seen["slots"].live) or any(e.state in BUSY for e in seen["entries"])


def _summary(seen: Seen) -> str:
    entries: tuple[Entry, ...] = seen["entries"]
    working = sum(1 for e in entries if e.state in BUSY)
    return f"{seen['slots'].live} workers live, {working} tickets under way"


def begin_dispatch(item: Item[Director], seen: Seen) -> tuple[Effect, ...]:
    by_issue = {c.issue.number: c for c in seen["candidates"]}
    return tuple(_open(item.data.repo, by_issue[n], seen.policy) for n in item.data.chosen if n in by_issue)


def _open(repo: str, c: Candidate, policy: Policy) -> OpenMachine:
    """A ticket of an issue that had one before (reopened,
    labelled again) gets a name and numbers of its own."""
    past = c.past
    name = f"{repo}/ticket/{c.issue.number}" + (f"~{past.tickets + 1}" if past else "")
    lands = "lane" if policy.mode == "train" else "person"
    start = Ticket(
        repo=repo,
        issue=c.issue.number,
        title=c.issue.title,
        author=c.issue.author,
        lands=lands,
        offset=past.attempts if past else 0,
    )
    return OpenMachine(name, start)


def watch_dispatch(item: Item[Director], seen: Seen) -> Watch:
    return ok(E.DISPATCHED, f"opened: {', '.join(str(n) for n in item.data.chosen)}", chosen=())


def watch_monitor(item: Item[Director], seen: Seen) -> Watch:
    lacking = missing(seen, PLAN_NEEDS)
    if lacking:
        return lacking
    ready = _ready(item, seen)
    if ready:
        return ok(E.RELEASE_READY, ready[1], release=ready[0])
    made = plan(seen)
    if release_wanted(seen):
        return ok(E.TICK, "a release is wanted")
    if made.chosen:
        return ok(E.TICK, "there is work")
    if dict(made.reasons) != dict(item.data.reasons):
        return ok(E.TICK, "reasons changed")
    if not _busy(seen) and not seen["lane"].machine and not unfinished(seen):
        return ok(E.TICK, "nothing is under way")
    return _tidied(item, seen) or Pass(_summary(seen))


def _tidied(item: Item[Director], seen: Seen) -> Watch | None:
    """Gates that are still there while nothing lands, is released or planned have no owner any more."""
    if _busy(seen) or unfinished(seen) or not known(seen["ours"]):
        return None
    gate = [s for s in seen["ours"] if s.name.startswith("gate-") and s.seen_at > item.changed_at]
    left = [s.name for s in gate if not gates.ended(item, s.name)]
    return (
        stay(*(EndGate(name) for name in left), why=f"{len(left)} gates belong to nobody") if left else None
    )


def _ready(item: Item[Director], seen: Seen) -> tuple[str, str] | None:
    """A release that can move now: settled, on its way, or published and not yet broadcast."""
    for r in seen["releases"]:
        if r.state == "OPEN" and seen.policy.when == "settled" and _settled(r, seen):
            return r.id, f"{r.data.version} is settled"
        if r.state in MOVING or (r.state == "MERGING" and not r.data.waits):
            return r.id, f"{r.data.version}: {r.state}"
        if r.state == "PUBLISHED" and r.id not in item.data.announced and r.entered_at >= seen.epoch_began:
            return r.id, f"{r.data.version} is published"
    return None


def _settled(r: Peer, seen: Seen) -> bool:
    as_item: Item[object] = Item(r.id, r.state, r.data, entered_at=r.entered_at, entry=r.entry)
    if plan(seen).wanted and seen.now - r.entered_at <= seen.policy.cutoff_s and _room(seen):
        return False
    return settled(as_item, seen["entries"], seen.now, seen.policy)  # type: ignore[arg-type]


def _room(seen: Seen) -> bool:
    """Candidates that would still join this release hold it open;
    those that can only join the next do not."""
    return any(w in ("chosen", "no free slot") for w in plan(seen).reasons.values())


def watch_finalize(item: Item[Director], seen: Seen) -> Watch:
    lacking = missing(seen, ("releases", "entries"))
    if lacking:
        return lacking
    r = next((r for r in seen["releases"] if r.id == item.data.release), None)
    if r is None or r.state == "ABANDONED":
        return ok(E.RELEASE_WAITS, "the release was abandoned")
    if r.state == "PUBLISHED":
        return ok(E.RELEASE_PUBLISHED, f"{r.data.tag} {r.data.merge_sha[:12]}")
    if r.state == "NEEDS_PERSON":
        return ok(E.GATE_FAILED, r.data.detail.splitlines()[0][:200] if r.data.detail else "needs a person")
    if r.state == "MERGING" and r.data.waits:
        return ok(E.RELEASE_WAITS, r.data.waits)
    as_item: Item[object] = Item(r.id, r.state, r.data, entered_at=r.entered_at)
    if r.state == "OPEN" and not settled(as_item, seen["entries"], seen.now, seen.policy):  # type: ignore[arg-type]
        return ok(E.RELEASE_WAITS, "a ticket is under way again")
    return Pass(f"{r.data.version}: {r.state}")


def begin_broadcast(item: Item[Director], seen: Seen) -> tuple[Effect, ...]:
    r = next((r for r in seen["releases"] if r.id == item.data.release), None)
    image = seen["image"]
    if r is None:
        return ()
    return (Announce(r.data.tag, r.data.merge_sha, image if known(image) else ""),)


def watch_broadcast(item: Item[Director], seen: Seen) -> Watch:
    return ok(
        E.BROADCAST_DONE,
        item.data.release.rsplit("/", 1)[-1],
        announced=(*item.data.announced, item.data.release)[-20:],
    )


def watch_self_review(item: Item[Director], seen: Seen) -> Watch:
    """Off by default: it looks for work and passes."""
    lacking = missing(seen, PLAN_NEEDS)
    if lacking:
        return lacking
    made = plan(seen)
    if made.wanted or _busy(seen) or dict(made.reasons) != dict(item.data.reasons):
        return ok(E.TICK, "there is something to look at")
    return _tidied(item, seen) or Pass("idle: no work")


def watch_cooldown(item: Item[Director], seen: Seen) -> Watch:
    limits = seen["limits"]
    until = max((x.until for x in limits), default=0.0) if known(limits) else 0.0
    until = max(until, item.data.cooldown_until)
    if seen.now < until:
        return Pass(f"cooling down for {int(until - seen.now) + 1} s: {item.data.cooldown}")
    return ok(E.COOLDOWN_EXPIRED, item.data.cooldown)


def alarms(item: Item[Director], policy: Policy) -> tuple[str, ...]:
    return ("signal", "limits")


def alarm(item: Item[Director], seen: Seen) -> Move | None:
    signal, limits = seen["signal"], seen["limits"]
    if known(signal) and signal:
        return Move(E.TERMINATE, str(signal))
    if item.state in (S.BOOT, S.COOLDOWN) or not known(limits):
        return None
    hot = [x for x in limits if x.until > seen.now + 1.0 and x.resource.startswith("github.")]
    if hot:
        worst = max(hot, key=lambda x: x.until)
        event = E.TRANSIENT_FAILURES if worst.why == "failures" else E.RATE_LIMITED
        text = f"{worst.resource} until {int(worst.until - seen.now)} s from now"
        return Move(event, text, {"cooldown_until": worst.until, "cooldown": worst.resource})
    return None


def fails(item: Item[Director], seen: Seen, err: Err) -> Move:
    """The director has no failure of its own to end on: it cools down and looks again."""
    until = err.not_before or seen.now + seen.policy.retry_max_s
    text = f"{err.failure}: {err.detail.strip()[:300]}"
    return Move(E.TRANSIENT_FAILURES, text, {"cooldown_until": until, "cooldown": text.partition("\n")[0]})
