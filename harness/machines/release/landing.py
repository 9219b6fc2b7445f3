"""GATING and MERGING: the commit that reaches the default branch is the one whose tree was gated.

GATING validates the tip, or the merge commit that MERGING found to have another tree. MERGING builds the
merge commit; with `merge = "auto"` it pushes exactly that commit, else a person merges and the tree is
compared.
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.core.item import Item
from harness.core.result import Err, Pass
from harness.domain import Pull
from harness.effects import BuildMerge, EndGate, Land, MergePull
from harness.failures import Failure
from harness.machines import gates
from harness.machines.kind import Seen, Watch, known, ok, stay, wait
from harness.machines.release.states import E, Release
from harness.policy import Policy
from harness.texts import releases as texts

GATE_TRIES = 3
PASSED = "success"
NOT_PASSED = frozenset({"failure", "cancelled", "skipped"})


def wants_gating(item: Item[Release], policy: Policy) -> tuple[str, ...]:
    d = item.data
    sha = d.merge.get("sha") or d.tip
    if policy.gates == "checks":
        return ("refs", f"checks/{sha}") if sha else ("refs",)
    gate = (f"gate/{d.gate}",) if d.gate else ()
    tree = (f"tree/{d.tip}",) if d.tip and not d.merge else ()
    return ("refs", *tree, *gate)


def watch_gating(item: Item[Release], seen: Seen) -> Watch:
    d = item.data
    refs = seen["refs"]
    if not known(refs):
        return wait("looking at the branches", refs)
    tip, base_tip = refs.get(f"refs/heads/{d.branch}", ""), refs.get(f"refs/heads/{d.base}", "")
    if (tip or d.tip, base_tip) != (d.tip, d.base_tip):
        # A merge that a person made moves the base; the commit to be gated is then that one and stays, also
        # when the base goes on without us while it is gated.
        theirs = d.merge if d.merge.get("sha") and d.merge.get("sha") in (base_tip, d.merge_sha) else {}
        old = (EndGate(d.gate),) if d.gate and not gates.ended(item, d.gate) else ()
        return stay(
            *old, why=f"{d.branch}@{tip[:12]}", tip=tip or d.tip, base_tip=base_tip, merge=theirs, gate=""
        )
    if seen.policy.gates == "checks":
        return _checks(item, seen, d.merge.get("sha") or d.tip)
    tree = d.merge.get("tree") or seen[f"tree/{d.tip}"]
    if not known(tree):
        return wait("reading the tree", tree)
    name = gates.gate_name(seen.policy, tree, d.prepare)
    if d.gate != name:
        return stay(
            gates.start_gate(seen.policy, tree, d.merge.get("sha") or d.tip, d.prepare),
            why=f"tree {tree[:12]}",
            gate=name,
        )
    verdict = gates.judge(seen, name)
    if isinstance(verdict, Err):
        if verdict.failure == Failure.INFRA_KILLED and d.gate_tries < GATE_TRIES:
            return stay(EndGate(name), why=verdict.detail, gate="", gate_tries=d.gate_tries + 1)
        if not gates.ended(item, name):
            return stay(EndGate(name), why=f"the gate is not green: {verdict.failure}")
        return ok(
            E.RED, verdict.detail.splitlines()[0], failure=str(verdict.failure), detail=verdict.detail[:8000]
        )
    if isinstance(verdict, Pass):
        return verdict
    if not gates.ended(item, name):
        return stay(EndGate(name), why="the gate is green", gated=tree)
    return ok(E.GREEN, f"tree {tree[:12]}", gated=tree, gate_tries=0)


def _checks(item: Item[Release], seen: Seen, sha: str) -> Watch:
    """Required checks of the forge on that SHA: missing, cancelled and skipped are not passed."""
    checks = seen[f"checks/{sha}"]
    if not known(checks):
        return wait("reading the checks", checks)
    theirs = [c for c in checks if not c.name.startswith("harness")]
    if not theirs:
        if seen.now - item.entered_at > seen.policy.checks_appear_s:
            return ok(
                E.RED,
                "no check appeared",
                failure=str(Failure.VALIDATION_MISSING),
                detail="no check appeared on the tip",
            )
        return Pass("waiting for checks to appear")
    bad = [c.name for c in theirs if c.state in NOT_PASSED]
    if bad:
        return ok(
            E.RED,
            f"not passed: {', '.join(bad)}",
            failure=str(Failure.TESTS_FAILED),
            detail=f"checks not passed: {', '.join(bad)}",
        )
    if any(c.state != PASSED for c in theirs):
        return Pass("waiting for checks")
    tree = item.data.merge.get("tree") or f"sha:{sha}"
    return ok(E.GREEN, f"{len(theirs)} checks passed", gated=tree)


def wants_merging(item: Item[Release], policy: Policy) -> tuple[str, ...]:
    d = item.data
    theirs = (f"tree/{d.merge_sha}",) if d.merge_sha else ()
    reviews = (f"reviews/{d.pull}",) if policy.required_review == "release" and policy.merge == "auto" else ()
    checked = (f"tree/{d.tip}",) if d.tip and d.gated.startswith("sha:") else ()
    return ("refs", f"pull/{d.pull}", *theirs, *reviews, *checked)


def watch_merging(item: Item[Release], seen: Seen) -> Watch:
    d = item.data
    refs, pull = seen["refs"], seen[f"pull/{d.pull}"]
    landed = _landed(item, d.base)
    if landed and landed["landed"]:
        merge = d.merge
        return ok(E.MERGED, merge["sha"][:12], merge_sha=merge["sha"], carried=merge["head"], waits="")
    if not known(refs) or not known(pull):
        return wait("looking at the pull", pull if known(refs) else refs)
    if pull.merged:
        return _theirs(item, seen, pull)
    tip, base_tip = refs.get(f"refs/heads/{d.branch}", ""), refs.get(f"refs/heads/{d.base}", "")
    if not tip or not base_tip:
        return Pass(f"branch {d.branch if not tip else d.base} is not there")
    if d.merge.get("base") != base_tip or d.merge.get("head") != tip:
        message = texts.merge_message(d.version, d.pull)
        return stay(
            BuildMerge(base_tip, tip, message, seen.now),
            why=f"{d.base}@{base_tip[:12]} + {tip[:12]}",
            tip=tip,
            base_tip=base_tip,
        )
    if d.gated.startswith("sha:"):
        unseen = _unchecked(item, seen, tip)
        if unseen is not None:
            return unseen
    elif d.merge["tree"] != d.gated:
        return ok(E.TREE_DIFFERS, f"{d.base} moved: the merge has another tree", gate="")
    return _ours(item, seen, landed)


def _landed(item: Item[Release], branch: str) -> Mapping[str, object] | None:
    """What came of the last push to that branch since the release began to merge."""
    mine = (i for i in reversed(item.intents) if i.effect.get("$") == "Land" and i.status == "done")
    return next((i.value for i in mine if i.effect.get("branch") == branch), None)


def _unchecked(item: Item[Release], seen: Seen, tip: str) -> Watch | None:
    """The forge's checks ran on the branch's tip. Where the base moved, the merge has a tree that they have not
    seen: it is brought into the release branch, where they run, before it goes to the base."""
    d = item.data
    if d.gated != f"sha:{tip}":
        return ok(E.TREE_DIFFERS, f"{tip[:12]} is not checked yet", gate="", merge={})
    tree = seen[f"tree/{tip}"]
    if not known(tree):
        return wait("reading the tree", tree)
    if d.merge["tree"] == tree:
        return None
    pushed = _landed(item, d.branch)
    if pushed is not None and pushed["why"] == "protected":
        return Pass(f"a rule of the forge refuses our push to {d.branch}: a person must allow it")
    why = f"{d.base} moved: the merge goes to {d.branch}, where the checks run"
    return stay(Land(d.branch, d.merge["sha"], tip), why=why)


def _theirs(item: Item[Release], seen: Seen, pull: Pull) -> Watch:
    """Merged by somebody else: that, or what a person mended it with, must be the tree that was gated."""
    d = item.data
    if not d.merge_sha:
        sha = pull.merge_sha
        return stay(why=f"merged as {sha[:12]}", merge_sha=sha, carried=pull.head_sha, waits="")
    sha = d.merge_sha
    tree = seen[f"tree/{sha}"]
    if not known(tree):
        return wait("reading the merged tree", tree)
    if tree != d.gated and d.gated != f"sha:{sha}":
        theirs = {"sha": sha, "tree": tree, "base": d.base_tip, "head": d.tip}
        return ok(
            E.TREE_DIFFERS, "what was merged is not what was gated", merge=theirs, gate="", base_tip=sha
        )
    return ok(E.MERGED, sha[:12])


def _ours(item: Item[Release], seen: Seen, landed: object) -> Watch:
    d, p = item.data, seen.policy
    if p.merge != "auto":
        text = f"a person merges #{d.pull}"
        return Pass(text) if d.waits == text else stay(why=text, waits=text)
    if p.required_review == "release":
        reviews = seen[f"reviews/{d.pull}"]
        if not known(reviews):
            return wait("reading the reviews", reviews)
        if not any(r.state == "APPROVED" for r in reviews):
            text = f"a person approves #{d.pull}"
            return Pass(text) if d.waits == text else stay(why=text, waits=text)
    if isinstance(landed, dict) and landed.get("why") == "protected":
        return stay(
            MergePull(d.pull, d.tip, p.merge_method, texts.pull_title(d.version)),
            why="only the forge may merge here",
            waits=f"the forge merges #{d.pull} when its rules allow it",
        )
    return stay(
        Land(d.base, d.merge["sha"], d.merge["base"]), why="the gated commit goes to " + d.base, waits=""
    )
