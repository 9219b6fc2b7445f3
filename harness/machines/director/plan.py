"""The plan: which candidates are taken next, and a reason for every one that is not. Pure.

The one rule: no candidate is passed over in silence; the reason that people read is the one that decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.domain import Candidate, Control, Entry, Issue, Lane, Past, Slots
from harness.failures import Failure, explain
from harness.machines.kind import Seen, known
from harness.policy import Policy
from harness.texts.issues import first_line

DONE = frozenset({"RELEASED", "GONE"})
PARKED = frozenset({"DEFERRED", "BLOCKED"})
SETTLE_S = 30.0
UNDER_WAY = {
    "CLAIMING": "in work",
    "ATTEMPTING": "in work",
    "WAITING": "waits for an answer",
    "REVIEWING": "in review",
    "LANDING": "about to land",
    "LANDED": "landed, not released yet",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """`chosen` in the order of dispatch; `reasons` by issue number as text. `wanted` counts the candidates
    that nothing but room holds back."""

    chosen: tuple[Candidate, ...]
    reasons: Mapping[str, str]
    wanted: int


def paused(controls: tuple[Control, ...]) -> str:
    """The text of the pause that is in force, or nothing. A pause holds until a person resumes, also over
    restarts; a drain is over with the director that it ended."""
    pause = drain = ""
    for c in sorted(controls, key=lambda c: c.id):
        if c.verb == "pause":
            pause = "paused by a person"
        elif c.verb == "drain":
            drain = "draining: nothing new is taken"
        elif c.verb == "resume":
            pause = drain = ""
        elif c.verb == "started":
            drain = ""
    return drain or pause


def order(candidates: tuple[Candidate, ...], policy: Policy) -> list[Candidate]:
    """Priority label first, then age, then number."""

    def rank(c: Candidate) -> tuple[int, float, int]:
        ranks = [i for i, label in enumerate(policy.priority_labels) if c.issue.has(label)]
        return (min(ranks, default=len(policy.priority_labels)), c.issue.created_at, c.issue.number)

    return sorted(candidates, key=rank)


def plan(seen: Seen) -> Plan:
    """Needs: candidates, entries, slots, lane, controls, disk."""
    p = seen.policy
    entries: tuple[Entry, ...] = seen["entries"]
    slots: Slots = seen["slots"]
    lane: Lane = seen["lane"]
    under_way = {e.issue: e for e in entries if e.state not in DONE}
    room = max(p.max_workers - slots.live - len(slots.waiting), 0)
    in_batch = sum(
        1 for e in entries if e.state not in DONE | PARKED or (e.landed_in and e.landed_in == lane.machine)
    )
    batch = max(p.batch_size - in_batch, 0)
    closed = _closed(seen)
    openless = "no release is open" if p.mode == "train" and not lane.machine else ""
    reasons: dict[str, str] = {}
    chosen: list[Candidate] = []
    wanted = 0
    for c in order(seen["candidates"], p):
        why = _not_eligible(c, under_way.get(c.issue.number), seen.now, p.claim_stale_s)
        if not why:
            wanted += not closed
            if closed or openless:
                why = closed or openless
            elif len(chosen) >= batch:
                why = f"the batch is full ({p.batch_size}): it waits for the next release"
            elif len(chosen) >= room:
                why = "no free slot"
        if not why:
            chosen.append(c)
            why = "chosen"
        reasons[str(c.issue.number)] = why
    return Plan(tuple(chosen), reasons, wanted)


def _closed(seen: Seen) -> str:
    """What holds back everything at once."""
    p, entries = seen.policy, seen["entries"]
    controls, disk = seen["controls"], seen["disk"]
    halted = paused(controls) if known(controls) else ""
    if halted:
        return halted
    if known(disk) and disk < p.min_free_bytes:
        return f"only {disk >> 20} MiB free on disk; {p.min_free_bytes >> 20} MiB are needed to start work"
    reviews = sum(1 for e in entries if e.state == "REVIEWING")
    if reviews >= p.max_open_reviews:
        return f"{reviews} reviews are open, at most {p.max_open_reviews}"
    return ""


def _not_eligible(c: Candidate, entry: Entry | None, now: float, claim_stale_s: float) -> str:
    issue, past = c.issue, c.past
    if entry is not None and entry.state in PARKED:
        return f"{entry.state.lower()}: {first_line(explain(entry.failure, entry.detail), 200)}"
    if entry is not None:
        return UNDER_WAY[entry.state]
    lost = past is not None and past.state == "GONE" and past.failure == Failure.CONFLICT
    if past is not None and lost and now - past.ended_at < claim_stale_s:
        return past.detail
    if past is not None and _just_now(issue, past, now, claim_stale_s):
        return f"{past.state.lower()} just now"
    if issue.locked:
        return "the conversation is locked"
    if issue.author_kind == "Bot" and not c.trusted:
        return "a bot may not start work"
    if not c.trusted:
        return "author may not start work: somebody with write access must ask for it"
    return ""


def _just_now(issue: Issue, past: Past, now: float, claim_stale_s: float) -> bool:
    """Nobody has asked again since; or the ticket before still has its last comment to write, and two would."""
    ago = now - past.ended_at
    return issue.updated_at <= past.ended_at or ago < SETTLE_S or (past.busy and ago < claim_stale_s)
