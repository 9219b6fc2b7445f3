"""BOOT and RELEASE_PLAN: what must be there before anything is begun, and the next release's branch.

While the default branch itself is red nothing is dispatched, and nobody is charged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from harness.core.item import Item
from harness.core.journal import iso
from harness.core.result import Err, Pass
from harness.domain import Unknown
from harness.effects import CreateBranch, Effect, EndGate, EnsureLabels, OpenMachine, StartPrepare
from harness.failures import Failure
from harness.machines import gates
from harness.machines.director.plan import plan
from harness.machines.director.states import Director, E
from harness.machines.kind import Seen, Watch, known, ok, stay, wait
from harness.machines.release.states import Release
from harness.policy import Policy

PLAN_NEEDS = ("candidates", "entries", "slots", "lane", "controls", "disk", "releases")
BOOT_NEEDS = ("repository", "image", "preflight", "refs", "default", "ours", *PLAN_NEEDS)
AGAIN_S = 10.0
AGAIN_LIMIT_S = 1800.0
PARTS = ("working", "needs-you", "deferred", "review")
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


def missing(seen: Seen, needs: Iterable[str]) -> Pass | None:
    for name in needs:
        if not known(seen[name]):
            value: Unknown = seen[name]
            return Pass(f"{name}: {value.why}")
    return None


def release_wanted(seen: Seen) -> bool:
    """None is under way, and there is work for one."""
    if seen.policy.mode != "train" or seen["lane"].machine or unfinished(seen):
        return False
    alive = any(e.state not in ("RELEASED", "GONE", "DEFERRED", "BLOCKED", "LANDED") for e in seen["entries"])
    return plan(seen).wanted > 0 or alive


def unfinished(seen: Seen) -> bool:
    """A release that is past OPEN and not ended: the next one starts from what it leaves."""
    return any(r.state not in ("OPEN", "PUBLISHED", "ABANDONED") for r in seen["releases"])


def watch_boot(item: Item[Director], seen: Seen) -> Watch:
    lacking = missing(seen, BOOT_NEEDS)
    if lacking:
        return lacking
    if item.value_of("EnsureLabels") is None:
        p = seen.policy
        adopted = tuple(s.name for s in seen["ours"] if s.alive)
        # The gate of an epoch that is over may belong to nobody any more; what it found is kept as a fact.
        # One without a container may be about to get it: it is left until nothing is under way.
        ended = (EndGate(s.name) for s in seen["ours"] if s.name.startswith("gate-") and s.phase == "EXITED")
        return stay(
            *ended,
            EnsureLabels(tuple(p.label(x) for x in ("", *PARTS))),
            why=f"{len(adopted)} running jobs adopted",
            adopted=adopted,
        )
    if release_wanted(seen):
        return ok(E.RELEASE_MISSING, "no release is open and there is work")
    return ok(
        E.RELEASE_ACTIVE,
        f"release {seen['lane'].version} is open" if seen["lane"].machine else "no release is needed yet",
    )


def wants_plan(item: Item[Director], policy: Policy) -> tuple[str, ...]:
    d = item.data
    tree = (f"tree/{d.base_sha}",) if d.base_sha else ()
    gate = (f"gate/{d.gate}",) if d.gate else ()
    prepare = (f"job/{d.prepare}",) if d.prepare else ()
    return ("refs", "default", "lane", "releases", *tree, *gate, *prepare)


def watch_plan(item: Item[Director], seen: Seen) -> Watch:
    d, p = item.data, seen.policy
    lacking = missing(seen, ("refs", "default", "lane", "releases"))
    if lacking:
        return lacking
    if seen["lane"].machine:
        return ok(
            E.RELEASE_PLANNED,
            f"{seen['lane'].branch} from {d.base_sha[:12]}",
            release=seen["lane"].machine,
            gate="",
        )
    refs, default = seen["refs"], seen["default"]
    sha = refs.get(f"refs/heads/{default}", "")
    if not sha:
        return Pass(f"branch {default} is not there yet")
    if sha != d.base_sha:
        old = (EndGate(d.gate),) if d.gate and not gates.ended(item, d.gate) else ()
        return stay(*old, why=f"{default}@{sha[:12]}", base_sha=sha, gate="")
    tree = seen[f"tree/{sha}"]
    if not known(tree):
        return wait("reading the tree", tree)
    unready = _prepare(item, seen, sha)
    if unready is not None:
        return unready
    name = gates.gate_name(p, tree, d.prepare)
    if d.gate != name:
        start = gates.start_gate(p, tree, sha, d.prepare)
        return stay(start, why=f"baseline of {default}@{sha[:12]}", gate=name, gate_tries=1)
    verdict = gates.judge(seen, name)
    if isinstance(verdict, Err) and verdict.failure == Failure.INFRA_KILLED:
        start = gates.start_gate(p, tree, sha, d.prepare)
        return _again(item, seen, verdict, "gate_tries", EndGate(name), start)
    if isinstance(verdict, Err):
        if verdict.failure == Failure.TESTS_FAILED and not gates.ended(item, name):
            return stay(EndGate(name), why=f"{default}@{sha[:12]} is red")
        return Pass(
            f"base_red: {default}@{sha[:12]} does not pass its own validation: {verdict.detail[:2000]}"
        )
    if isinstance(verdict, Pass):
        return verdict
    return _open(item, seen, refs, default, sha, name)


def _prepare(item: Item[Director], seen: Seen, sha: str) -> Watch | None:
    """Dependencies of the planned release, made before anything else runs; None when they are there."""
    d, p = item.data, seen.policy
    name = gates.prepare_name(p, sha)
    if d.prepare != name:
        begun = (StartPrepare(name, sha, p.prepare, p.image),) if name else ()
        why = "dependencies are prepared" if name else "nothing to prepare"
        return stay(*begun, why=why, prepare=name, prepare_tries=1)
    ready = gates.prepared(seen, name)
    if isinstance(ready, Err):
        start = StartPrepare(name, sha, p.prepare, p.image)
        return _again(item, seen, ready, "prepare_tries", start)
    return ready if isinstance(ready, Pass) else None


def _again(item: Item[Director], seen: Seen, failed: Err, counter: str, *begun: Effect) -> Watch:
    """An engine that restarted or a registry that was away is no property of the base: it is tried again, ever
    less often, for as long as the branch stays where it is."""
    tries = int(getattr(item.data, counter))
    wait_s = min(AGAIN_S * 2 ** min(tries, 20), AGAIN_LIMIT_S)
    if seen.now - item.changed_at < wait_s:
        what = "" if failed.failure == Failure.INFRA_KILLED else "base_red: "
        return Pass(f"{what}{failed.detail}; tried {tries} times, again within {int(wait_s)} s")
    return stay(*begun, why=f"{failed.detail}: try {tries + 1}", **{counter: tries + 1})


def _open(
    item: Item[Director], seen: Seen, refs: Mapping[str, str], default: str, sha: str, gate: str
) -> Watch:
    d, p = item.data, seen.policy
    version = next_version(refs, [r.data.version for r in seen["releases"]], p, seen.now)
    branch, tag = p.release_branch.format(version=version), p.tag.format(version=version)
    machine = f"{d.repo}/release/{version}"
    start = Release(
        repo=d.repo,
        version=version,
        branch=branch,
        base=default,
        base_sha=sha,
        tag=tag,
        prepare=d.prepare,
        tip=sha,
        base_tip=sha,
    )
    return stay(
        EndGate(gate),
        CreateBranch(branch, sha),
        OpenMachine(machine, start),
        why=f"{version} from {default}@{sha[:12]}",
    )


def next_version(
    refs: Mapping[str, str], known_versions: Iterable[str], policy: Policy, now: float = 0.0
) -> str:
    """The version after the highest of all tags and of all releases that we planned,
    by the configured scheme."""
    pattern = re.escape(policy.tag).replace(re.escape("{version}"), r"(\d+\.\d+\.\d+)")
    tags = [m.group(1) for ref in refs if (m := re.fullmatch(f"refs/tags/{pattern}", ref))]
    taken = [
        tuple(int(x) for x in m.groups()) for v in (*tags, *known_versions) if (m := _VERSION.fullmatch(v))
    ]
    major, minor, patch = max(taken, default=(0, 0, 0))
    if policy.version_scheme == "date":
        year, month = (int(x) for x in iso(now)[:7].split("-"))
        return f"{year}.{month}.{patch + 1 if (major, minor) == (year, month) else 1}"
    bumped = {"major": (major + 1, 0, 0), "minor": (major, minor + 1, 0), "patch": (major, minor, patch + 1)}
    return ".".join(str(x) for x in bumped[policy.version_scheme])
