"""LANDING and LANDED: one ticket at a time, and exactly the commit that was gated.

We build the merge commit ourselves, gate its tree, and push that commit with a lease. When the base moved
meanwhile, everything is built and gated again: what was not gated as that tree does not land.
"""

from __future__ import annotations

from harness.core.item import Item
from harness.core.result import Err, Pass
from harness.domain import Pull
from harness.effects import (
    BuildMerge,
    CloseIssue,
    Comment,
    DeleteBranch,
    EditPull,
    Effect,
    EndGate,
    Label,
    Land,
)
from harness.failures import Failure
from harness.machines import gates
from harness.machines.kind import Peer, Seen, Watch, known, ok, stay, wait
from harness.machines.ticket.attempting import charge
from harness.machines.ticket.states import E, Ticket
from harness.machines.ticket.states import branch as branch_name
from harness.policy import Policy
from harness.texts import issues as texts
from harness.texts.commits import merge_message

GATE_TRIES = 3


def wants(item: Item[Ticket], policy: Policy) -> tuple[str, ...]:
    d = item.data
    if item.state == "LANDED":
        return (f"item/{d.landed_in}", "refs") if d.lands == "lane" else (f"issue/{d.issue}",)
    if d.lands != "lane":
        return (f"pull/{d.pull}",)
    gate = (f"gate/{d.gate}",) if d.gate else ()
    return ("lane", "refs", f"pull/{d.pull}", *gate)


def watch(item: Item[Ticket], seen: Seen) -> Watch:
    d = item.data
    pull = seen[f"pull/{d.pull}"]
    if d.lands != "lane":
        if not known(pull):
            return wait("reading the pull", pull)
        return (
            ok(E.LANDED, "a person merged it", landed_sha=pull.merge_sha)
            if pull.merged
            else Pass("waiting for the merge")
        )
    lane, refs = seen["lane"], seen["refs"]
    landed = item.value_of("Land")
    # It landed in the release whose turn it was, also when that one has gone on meanwhile.
    machine = d.turn.partition(" ")[0] or (lane.machine if known(lane) else "")
    if landed and landed["landed"] and machine:
        sha = str(d.merge["sha"])
        return ok(E.LANDED, f"{sha[:12]} in {machine.rsplit('/', 1)[-1]}", landed_in=machine, landed_sha=sha)
    if not known(lane) or not lane.machine:
        return wait("waiting for a release to land in", lane)
    if lane.turn != item.id:
        return Pass(f"its turn comes after {lane.turn.rsplit('/', 1)[-1]}")
    if landed and landed["why"] == "protected":
        return Pass(f"a rule of the forge refuses our push to {lane.branch}: a person must allow it")
    turn = f"{lane.machine} {item.entry}"
    if d.turn != turn:
        # The branches as they are after the one before has landed: a look that is older does not count now.
        return stay(why=f"its turn in {lane.version}", turn=turn)
    if not known(refs) or not known(pull):
        return wait("looking at the branches", pull if known(refs) else refs)
    return _lane(item, seen, lane.branch, refs.get(f"refs/heads/{lane.branch}", ""), pull)


def _lane(item: Item[Ticket], seen: Seen, branch: str, base: str, pull: Pull) -> Watch:
    d = item.data
    # A gate that nobody waits for any more is ended too: its container and checkout are ours to remove.
    old = (EndGate(d.gate),) if d.gate and not gates.ended(item, d.gate) else ()
    if not pull.open and not pull.merged:
        if old:
            return stay(*old, why="a person closed the pull")
        note = {
            "failure": str(Failure.GONE),
            "detail": "a person closed the pull",
            "gate": "",
        }
        return ok(E.CONFLICT, "a person closed the pull", **note)
    if pull.base != branch and pull.open:
        return stay(EditPull(d.pull, base=branch), why=f"the pull goes to {branch} now")
    if not base:
        return Pass(f"waiting for branch {branch}")
    if d.merge.get("base") != base or d.merge.get("head") != pull.head_sha:
        message = merge_message(d.issue, d.title, d.pull)
        build = BuildMerge(base, pull.head_sha, message, seen.now)
        return stay(
            *old, build, why=f"{branch}@{base[:12]} + {pull.head_sha[:12]}", head=pull.head_sha, gate=""
        )
    return _gated(item, seen, branch, base)


def _gated(item: Item[Ticket], seen: Seen, branch: str, base: str) -> Watch:
    d, p = item.data, seen.policy
    name = gates.gate_name(p, d.merge["tree"], seen["lane"].prepare)
    if d.gate != name:
        return stay(
            gates.start_gate(p, d.merge["tree"], d.merge["sha"], seen["lane"].prepare),
            why=f"gate of tree {d.merge['tree'][:12]}",
            gate=name,
        )
    verdict = gates.judge(seen, name)
    if isinstance(verdict, Pass):
        return verdict
    if isinstance(verdict, Err):
        if verdict.failure == Failure.INFRA_KILLED and d.gate_tries < GATE_TRIES:
            return stay(EndGate(name), why=verdict.detail, gate="", gate_tries=d.gate_tries + 1)
        if not gates.ended(item, name):
            return stay(EndGate(name), why=f"the gate is not green: {verdict.failure}")
        note = {
            "failure": str(verdict.failure),
            "detail": verdict.detail[:8000],
            "gate": "",
            "feedback": verdict.detail[:20000],
        }
        return ok(E.GATE_RED, texts.first_line(verdict.detail), counters=charge(d, verdict.failure), **note)
    return stay(EndGate(name), Land(branch, d.merge["sha"], base), why="the gate is green", gate_tries=0)


def begin_landed(item: Item[Ticket], seen: Seen) -> tuple[Effect, ...]:
    d, p = item.data, seen.policy
    ours = DeleteBranch(branch_name(d, p.branch_prefix), d.head)
    close = () if d.lands == "lane" else (CloseIssue(d.issue), ours)
    release = d.landed_in.rsplit("/", 1)[-1]
    said = texts.landed(d.pull, release, d.audits) if release else texts.merged(d.pull, d.audits)
    return (
        Comment(d.issue, "status", said),
        Label(d.issue, remove=(p.label("working"), p.label("review"))),
        *close,
    )


def watch_landed(item: Item[Ticket], seen: Seen) -> Watch:
    d = item.data
    if d.lands != "lane":
        return ok(E.RELEASED, "merged to the default branch by a person")
    release = seen[f"item/{d.landed_in}"]
    if isinstance(release, Peer) and release.state == "PUBLISHED" and d.issue in release.data.landed:
        return ok(E.RELEASED, f"in {release.data.tag}", tag=release.data.tag)
    if isinstance(release, Peer) and release.state == "ABANDONED":
        return ok(
            E.REVERTED,
            "the release was abandoned",
            failure=str(Failure.GONE),
            detail="the release was abandoned",
        )
    if isinstance(release, Peer) and (release.state == "PUBLISHED" or d.issue in release.data.reverted):
        detail = (
            f"release {release.data.version} was merged before this landed in it; the work is on branch "
            f"{branch_name(d, seen.policy.branch_prefix)}"
        )
        return ok(
            E.REVERTED, "not in what was merged", failure=str(Failure.GONE), detail=detail, landed_in=""
        )
    return Pass(f"in {d.landed_in.rsplit('/', 1)[-1]}, not released yet")


def begin_released(item: Item[Ticket], seen: Seen) -> tuple[Effect, ...]:
    """The status comment is kept up to date to the end."""
    d = item.data
    return (Comment(d.issue, "status", texts.released(d.pull, d.tag, d.audits)),) if d.tag else ()
