"""Effects on git: branches and tags by lease, merges built in the mirror,
a worker's bundle through quarantine."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from harness import effects as fx
from harness.core.result import Err, Ok, Pass, Result
from harness.failures import Failure
from harness.perform import places
from harness.perform.outcome import Outcome, from_result
from harness.ports import Repo, Unseen, World

# What GitHub says of files that are too large, of mail addresses, of secrets and of paths that it will not take.
_CONTENT = re.compile(r"GH00[178]|secret|large file|file size|exceeds|fsck|object", re.IGNORECASE)


def _repo(world: World) -> Repo:
    assert world.repo is not None
    return world.repo


def _at(refs: dict[str, str] | object, branch: str) -> str:
    return refs.get(f"refs/heads/{branch}", "") if isinstance(refs, dict) else ""


def _tip(world: World, branch: str) -> Result[str]:
    return _repo(world).remote_refs().map(lambda refs: _at(dict(refs), branch))


def create_branch(e: fx.CreateBranch, world: World) -> Outcome:
    now = world.clock.now()
    tip = _tip(world, e.branch)
    if not isinstance(tip, Ok):
        return from_result(tip, now)
    if tip.value:
        inside = _repo(world).fetch().bind(lambda _: _repo(world).is_ancestor(e.sha, tip.value))
        if isinstance(inside, Ok) and inside.value:
            return Outcome.done({"sha": tip.value})
        behind = inside.bind(lambda _: _repo(world).is_ancestor(tip.value, e.sha))
        if not isinstance(behind, Ok):
            return from_result(behind, now)
        if not behind.value:
            text = (
                f"branch {e.branch} is there already, at {tip.value[:12]}, with commits that are not ours: "
                "rename it, or set release.branch"
            )
            return Outcome.failed(Failure.CONFLICT, text)
        # It holds nothing of its own: left by a plan that was cut short before its base moved on.
        moved = _repo(world).push(f"refs/heads/{e.branch}", e.sha, tip.value)
        return from_result(moved, now, lambda sha: {"sha": sha})
    return from_result(_repo(world).push(f"refs/heads/{e.branch}", e.sha, ""), now, lambda sha: {"sha": sha})


def delete_branch(e: fx.DeleteBranch, world: World) -> Outcome:
    """What somebody pushed since is left alone."""
    tip = _tip(world, e.branch)
    if not isinstance(tip, Ok):
        return from_result(tip, world.clock.now())
    if not tip.value:
        return Outcome.done({"already": True})
    if e.sha and tip.value != e.sha:
        return Outcome.done({"left": tip.value})
    gone = _repo(world).push(f"refs/heads/{e.branch}", "", tip.value)
    if isinstance(gone, Err) and gone.failure in (Failure.CONFLICT, Failure.POLICY_VIOLATION):
        return Outcome.done({"left": tip.value, "why": gone.detail})
    return from_result(gone, world.clock.now(), lambda _: {})


def build_merge(e: fx.BuildMerge, world: World) -> Outcome:
    repo = _repo(world)
    merged = repo.fetch().bind(lambda _: repo.merge(e.base, e.head, e.message, e.at))
    return from_result(
        merged, world.clock.now(), lambda m: {"sha": m.sha, "tree": m.tree, "base": m.base, "head": m.head}
    )


def land(e: fx.Land, world: World) -> Outcome:
    """A branch that moved is an answer: what was gated does not fit it any more."""
    repo, now = _repo(world), world.clock.now()
    tip = _tip(world, e.branch)
    if not isinstance(tip, Ok):
        return from_result(tip, now)
    if tip.value != e.expect:
        inside = repo.fetch().bind(lambda _: repo.is_ancestor(e.sha, tip.value)) if tip.value else Ok(False)
        if not isinstance(inside, Ok):
            return from_result(inside, now)
        return Outcome.done({"landed": bool(inside.value), "why": "moved"})
    pushed = repo.push(f"refs/heads/{e.branch}", e.sha, e.expect)
    if isinstance(pushed, Err) and pushed.failure == Failure.CONFLICT:
        return Outcome.done({"landed": False, "why": "moved"})
    if isinstance(pushed, Err) and pushed.failure == Failure.POLICY_VIOLATION:
        return Outcome.done({"landed": False, "why": "protected"})
    return from_result(pushed, now, lambda _: {"landed": True, "why": ""})


def tag(e: fx.Tag, world: World) -> Outcome:
    return from_result(
        _repo(world).push(f"refs/tags/{e.name}", e.sha, None), world.clock.now(), lambda s: {"sha": s}
    )


def publish(e: fx.Publish, world: World) -> Outcome:
    """Bundle → quarantine → second hop → policy → push with a lease on what is there now."""
    repo, now = _repo(world), world.clock.now()
    assert world.gateway is not None and world.screen is not None
    bundle = world.gateway.bundle(e.attempt, e.bundle)
    if bundle is None:
        return Outcome("deferred", None, Failure.INFRA_GATEWAY, "the bundle has not arrived")
    imported = repo.import_bundle(bundle, e.sha, e.base)
    if not isinstance(imported, Ok):
        return from_result(imported, now)
    if not imported.value.files:
        return Outcome.failed(
            Failure.AGENT_NO_CHANGES, "the published commit changes nothing against its base"
        )
    try:
        screened = world.screen(imported.value)
    except Unseen as blind:
        return from_result(blind.why, now)
    if screened.blocked:
        return Outcome.failed(Failure.POLICY_VIOLATION, screened.blocked)
    tip = _tip(world, e.branch)
    if not isinstance(tip, Ok):
        return from_result(tip, now)
    may = _may_replace(e, tip.value, world) if tip.value and tip.value != e.sha else Ok(True)
    if not isinstance(may, Ok):
        return from_result(may, now)
    if not may.value:
        text = f"somebody else pushed {tip.value[:12]} to {e.branch}; their commits stay"
        return Outcome.failed(Failure.CONFLICT, text)
    _remember(e, world)
    pushed = repo.push(f"refs/heads/{e.branch}", e.sha, tip.value)
    if isinstance(pushed, Err) and pushed.failure == Failure.CONFLICT:
        return Outcome("deferred", None, Failure.FORGE_DOWN, f"{e.branch} moved while it was pushed")
    if isinstance(pushed, Err) and pushed.failure == Failure.POLICY_VIOLATION and _may_lift(pushed.detail):
        return Outcome("deferred", None, pushed.failure, pushed.detail)
    files = [f.path for f in imported.value.files][:200]
    value = {"sha": e.sha, "files": files, "flags": list(screened.flags), "review": screened.review}
    return from_result(pushed, now, lambda _: value)


def _may_lift(detail: str) -> bool:
    """Whether a refusal may be one of the branch (protection, a hook that is out of order) and not of the
    content: a person lifts it and the work that is done is delivered, without another run of the agent."""
    return not _CONTENT.search(detail)


def _may_replace(e: fx.Publish, tip: str, world: World) -> Result[bool]:
    """What is there is ours (we pushed it), or the new work contains it."""
    if tip in (world.store.get(f"published/{e.branch}") or []):
        return Ok(True)
    return _repo(world).fetch().bind(lambda _: _repo(world).is_ancestor(tip, e.sha))


def _remember(e: fx.Publish, world: World) -> None:
    """Before the push: what we may have pushed is ours, whatever the answer was."""
    known = world.store.get(f"published/{e.branch}") or []
    if e.sha not in known:
        world.store.put(f"published/{e.branch}", [*known, e.sha][-50:])


def clone(e: fx.Clone, world: World) -> Outcome:
    places.need_room(world)
    repo = _repo(world)
    folder = places.clone_dir(world.data, e.attempt)
    made = repo.fetch().bind(lambda _: repo.clone(folder, e.sha, e.branch, e.base))
    if isinstance(made, Ok):
        places.own(folder, world)
    return from_result(made, world.clock.now(), lambda _: {})


def discard(e: fx.Discard, world: World) -> Outcome:
    root = places.attempt_dir(world.data, e.attempt)
    gone = _repo(world).discard(places.clone_dir(world.data, e.attempt))
    if isinstance(gone, Err):
        purge = getattr(world.runtime, "purge", None)
        purged = (
            purge(str(places.clone_dir(Path(), e.attempt)), world.policy().image)
            if purge is not None
            else None
        )
        if isinstance(purged, Pass):
            return Outcome(
                "later", detail="cleaning up what a worker left", not_before=world.clock.now() + 1.0
            )
        if isinstance(purged, Ok):
            gone = _repo(world).discard(places.clone_dir(world.data, e.attempt))
    if isinstance(gone, Err):
        return Outcome.failed(gone.failure, gone.detail)
    places.remove(root)
    return Outcome.done({})


def keep_work(e: fx.KeepWork, world: World) -> Outcome:
    """What could not be kept as a ref is still a patch in the bundle; this is never a reason to stop cleaning.
    Where the harvest itself did not end well, or what it saved cannot be had now, the clone is set aside as it
    is."""
    aside = places.set_aside(world.data, e.attempt)
    if aside is not None:
        return Outcome.done({"kept": "", "why": "the harvest did not end well", "aside": str(aside)})
    saved = places.audit_dir(world.data, e.attempt) / "saved.json"
    if not os.path.lexists(saved):
        return Outcome.done({"kept": ""})
    found = places.read_json(saved)
    sha = str(found.get("sha", "")) if found else ""
    bundle = Path(places.audit_dir(world.data, e.attempt) / "patches" / "saved.bundle")
    kept: Result[None] = Err(Failure.INFRA_KILLED, "what was saved cannot be read")
    if sha and bundle.is_file() and not bundle.is_symlink():
        kept = (
            _repo(world)
            .import_bundle(bundle, sha, e.base)
            .bind(lambda i: _repo(world).keep(f"refs/harness/saved/{e.attempt}", i.sha))
        )
    if isinstance(kept, Ok):
        return Outcome.done({"kept": sha, "why": ""})
    why = json.dumps(str(kept))[:500]
    if from_result(kept, world.clock.now()).status != "failed":
        aside = places.set_aside(world.data, e.attempt, lost=True)
        return Outcome.done({"kept": "", "why": why, "aside": str(aside or "")})
    return Outcome.done({"kept": "", "why": why})
