"""RESOLVING, TAGGING, PUBLISHING and NEEDS_PERSON. Every step can be taken again:
each looks for its key first."""

from __future__ import annotations

from typing import Any

from harness.core.fsm import Move
from harness.core.item import Item
from harness.core.result import Err, Pass
from harness.domain import Entry, Gone
from harness.effects import (
    CloseIssue,
    Comment,
    DeleteBranch,
    EditPull,
    Effect,
    EndGate,
    Land,
    OpenMachine,
    PublishRelease,
    SetStatus,
    Tag,
)
from harness.failures import Failure, explain
from harness.machines.attempt.states import Attempt
from harness.machines.kind import Peer, Seen, Watch, asked, known, ok, stay, wait
from harness.machines.release.settle import ACTIVE, landed_in, not_in
from harness.machines.release.states import E, Release, S
from harness.policy import Policy
from harness.texts import releases as texts

RESOLVES = 2
OLD_BRANCHES = 5


def wants(item: Item[Release], policy: Policy) -> tuple[str, ...]:
    d = item.data
    if item.state == S.RESOLVING:
        return ("refs", f"item/{d.attempt}") if d.attempt else ("refs",)
    if item.state == S.TAGGING:
        return ("entries", "releases", *(f"holds/{d.carried or d.merge_sha}/{h}" for h in d.heads.values()))
    if item.state == S.PUBLISHING:
        return tuple(f"closed/{n}" for n in d.landed)
    return ("refs", "controls")


def watch_resolving(item: Item[Release], seen: Seen) -> Watch:
    """The merge agent: an attempt that merges the default branch into the release and resolves what
    conflicts."""
    d, p = item.data, seen.policy
    refs = seen["refs"]
    if not known(refs):
        return wait("looking at the branches", refs)
    if item.value_of("Land"):
        return ok(E.RESOLVED, "the conflict is resolved on the release branch", merge={}, attempt="")
    if not d.attempt:
        if d.resolves >= RESOLVES:
            return ok(
                E.GAVE_UP,
                "the merge agent did not get it done",
                failure=str(Failure.CONFLICT),
                detail=d.detail,
            )
        machine = f"{d.repo}/attempt/release-{d.version}.{d.resolves + 1}"
        start = _merge_attempt(
            item, p, machine, refs.get(f"refs/heads/{d.branch}", d.tip), refs.get(f"refs/heads/{d.base}", "")
        )
        return stay(
            OpenMachine(machine, start), why="a merge agent tries", attempt=machine, resolves=d.resolves + 1
        )
    peer = seen[f"item/{d.attempt}"]
    if not isinstance(peer, Peer) or peer.state != "CLOSED":
        return Pass("the merge agent is working")
    if peer.data.outcome != "done":
        return stay(
            why=f"the merge agent failed: {peer.data.failure}", attempt="", detail=peer.data.detail[:4000]
        )
    return stay(Land(d.branch, peer.data.head, d.tip), why="the resolved merge goes to the release branch")


def _merge_attempt(item: Item[Release], p: Policy, machine: str, tip: str, base_sha: str) -> Attempt:
    d = item.data
    code = machine.rsplit("/", 1)[-1]
    branch = f"{p.branch_prefix}/release-{d.version}"
    brief: dict[str, Any] = {
        "issue": 0, "title": f"Merge {d.base} into {d.branch}",
        "text": texts.resolve(d.branch, d.base, d.detail), "attempt": code, "base": d.base,
        "base_sha": base_sha, "branch": branch, "feedback": "", "answers": [], "counters": {},
        "agent": p.agent, "model": p.model, "commands": list(p.commands),
    }  # fmt: skip
    return Attempt(
        code=code, ticket=item.id, purpose="merge", branch=branch, base=d.base, base_sha=base_sha,
        start_sha=tip, image=p.image, prepare=d.prepare, commands=p.commands, brief=brief,
        title=brief["title"],
    )  # fmt: skip


def begin_tagging(item: Item[Release], seen: Seen) -> tuple[Effect, ...]:
    return (Tag(item.data.tag, item.data.merge_sha),)


def watch_tagging(item: Item[Release], seen: Seen) -> Watch:
    for need in ("entries", "releases"):
        if not known(seen[need]):
            return wait("looking at the tickets", seen[need])
    d = item.data
    heads = {str(e.issue): e.head for e in landed_in(item.id, seen["entries"])}
    if heads != dict(d.heads):
        return stay(why="what the merge brought is read back", heads=heads)
    left = []
    for issue, head in heads.items():
        holds = seen[f"holds/{d.carried or d.merge_sha}/{head}"]
        if not known(holds):
            return wait("reading back what the merge brought", holds)
        left += [] if holds else [int(issue)]
    landed = tuple(int(i) for i in heads if int(i) not in left)
    why = f"{d.tag} at {d.merge_sha[:12]}" + (f", merged before {_numbers(left)} landed" if left else "")
    return ok(E.TAGGED, why, landed=landed, reverted=(*d.reverted, *left))


def _numbers(issues: list[int]) -> str:
    return ", ".join(f"#{n}" for n in issues)


def begin_publishing(item: Item[Release], seen: Seen) -> tuple[Effect, ...]:
    d, p = item.data, seen.policy
    entries = seen["entries"]
    mine = landed_in(item.id, entries)
    landed = tuple(e for e in mine if e.issue in d.landed)
    left, others = tuple(e for e in mine if e.issue not in d.landed), not_in(item.id, entries)
    old = [_branch(r.data) for r in seen["releases"] if r.state == "PUBLISHED"][-OLD_BRANCHES:]
    record = f"{item.id} #{item.seq} sha256:{item.head}"
    return (
        PublishRelease(
            d.tag,
            texts.pull_title(d.version),
            texts.notes(d.version, landed, (*others, *left), record),
            d.merge_sha,
        ),
        SetStatus(d.merge_sha, "harness/release", "success", f"released as {d.tag}"),
        *(CloseIssue(e.issue) for e in landed),
        *(EditPull(e.pull, base=d.base) for e in others if e.pull and e.state not in ("BLOCKED", "DEFERRED")),
        *(DeleteBranch(f"{p.branch_prefix}/{e.issue}", e.head) for e in landed),
        *((DeleteBranch(f"{p.branch_prefix}/release-{d.version}", ""),) if d.resolves else ()),
        *_unused((*others, *left), (*old, _branch(d))),
    )


def _branch(d: Release) -> DeleteBranch:
    """What a person pushed to it after the merge is left alone."""
    return DeleteBranch(d.branch, d.carried or d.tip)


def _unused(others: tuple[Entry, ...], branches: tuple[DeleteBranch, ...]) -> tuple[DeleteBranch, ...]:
    """A worker that is carried over still fetches the branch that it began on: while there is one, release
    branches stay, and the next release takes them away."""
    return () if any(e.state in ACTIVE or e.landed_in for e in others) else branches


def watch_publishing(item: Item[Release], seen: Seen) -> Watch:
    """Closed is read back, not assumed: keywords do nothing when the base is not the default branch."""
    for n in item.data.landed:
        issue = seen[f"closed/{n}"]
        if not known(issue):
            return wait(f"reading issue {n} back", issue)
        if not isinstance(issue, Gone) and issue.open:
            return stay(CloseIssue(n), why=f"issue {n} is still open")
    return ok(E.PUBLISHED, f"{item.data.tag} with {len(item.data.landed)} issues")


def begin_needs_person(item: Item[Release], seen: Seen) -> tuple[Effect, ...]:
    d = item.data
    if not d.pull:
        return ()
    return (Comment(d.pull, f"release-{int(seen.now)}", texts.needs_person(d.version, d.failure, d.detail)),)


def watch_needs_person(item: Item[Release], seen: Seen) -> Watch:
    """Acted: a new commit on either branch, or `harness release cut`. Once the release is merged it can only
    be mended on the base, so the commit that is to be tagged is then the base's tip."""
    d = item.data
    refs = seen["refs"]
    mended = {}
    if d.merge_sha and known(refs):
        mended = {"merge_sha": refs.get(f"refs/heads/{d.base}", "") or d.merge_sha}
    if asked(seen, d, "release-cut", "release-retry"):
        return ok(E.PERSON_ACTED, "by command", gate="", merge={}, **mended)
    if known(refs):
        now = (refs.get(f"refs/heads/{d.branch}", "") or d.tip, refs.get(f"refs/heads/{d.base}", ""))
        moved = now[0] != d.tip or now[1] not in (d.base_tip, d.merge_sha)  # the merge itself is no news
        if d.tip and moved and all(now):
            return ok(E.PERSON_ACTED, "a branch moved", gate="", merge={}, **mended)
    return Pass(f"needs a person: {explain(d.failure, d.detail)[:200]}")


def begin_ended(item: Item[Release], seen: Seen) -> tuple[Effect, ...]:
    d = item.data
    close = (EditPull(d.pull, state="closed"),) if d.pull and not d.merge_sha else ()
    return (*close, *((EndGate(d.gate),) if d.gate else ()))


def alarms(item: Item[Release], policy: Policy) -> tuple[str, ...]:
    return ("controls",)


def alarm(item: Item[Release], seen: Seen) -> Move | None:
    if item.state in (S.TAGGING, S.PUBLISHING):
        return None
    meant = (
        c.args.get("version") in (None, item.data.version) for c in asked(seen, item.data, "release-abandon")
    )
    return Move(E.ABANDONED, "by a person") if any(meant) else None


def fails(item: Item[Release], seen: Seen, err: Err) -> Move:
    text = explain(err.failure, err.detail[:300])
    note = {"failure": str(err.failure), "detail": err.detail[:8000]}
    if item.state == S.MERGING:
        return Move(E.CONFLICT if err.failure == Failure.CONFLICT else E.TREE_DIFFERS, text, note)
    if item.state == S.RESOLVING:
        return Move(E.GAVE_UP, text, note)
    if item.state == S.TAGGING:
        return Move(E.TAG_CONFLICT, text, note)
    if item.state == S.GATING:
        return Move(E.RED, text, note)
    if item.state == S.NEEDS_PERSON:
        return Move(E.PERSON_ACTED, text, note)
    if item.state == S.PUBLISHING:
        return Move(E.PUBLISHED, f"not everything could be tidied: {text}", note)
    return Move(E.ABANDONED, text, note)
