"""Effects on the forge. One write each, after one read that looks for the key."""

from __future__ import annotations

from typing import Any

from harness import effects as fx
from harness.core.result import Err, Ok, Result
from harness.domain import Comment, Gone, Pull
from harness.failures import Failure
from harness.perform.outcome import NOT_THERE, Outcome, Sent, from_result, keyed
from harness.ports import Forge, World


def _forge(world: World) -> Forge:
    assert world.forge is not None
    return world.forge


def _keyed(look: Any, act: Any, sent: Sent, world: World) -> Outcome:
    p = world.policy()
    return keyed(look, act, sent, lags=True, now=world.clock.now(), lag_s=p.lag_s, lag_reads=p.lag_reads)


def marked(body: str, name: str, where: str, world: World) -> str:
    assert world.marks is not None
    return f"{world.redact(body).rstrip()}\n\n{world.marks.mark(name, where)}"


def comment(e: fx.Comment, sent: Sent, world: World) -> Outcome:
    """The keyed comment: posted once, then edited in place, also while the list does not show it yet.
    A locked conversation is said to be so, and skipped."""
    forge, where, key = _forge(world), f"issue/{e.issue}", f"comment/{e.issue}/{e.name}"
    body = marked(e.body, e.name, where, world)
    marks = world.marks
    assert marks is not None

    def ours(c: Comment) -> bool:
        mark = marks.read(c.body, where)
        return mark is not None and mark.ours and mark.name == e.name

    def look() -> Result[Any]:
        found = forge.comments(e.issue)
        if not isinstance(found, Ok):
            return found
        mine = next((c for c in sorted(found.value, key=lambda c: c.id) if ours(c)), None)
        posted = world.store.get(key)
        if mine is None and posted:
            return Ok(Comment(int(posted), "", "", "", 0.0))
        if mine is not None and posted != mine.id:
            world.store.put(key, mine.id)
        return Ok(mine if mine is not None else NOT_THERE)

    def act() -> Outcome:
        made = forge.comment(e.issue, body)
        if isinstance(made, Ok):
            world.store.put(key, made.value.id)
        return from_result(made, world.clock.now())

    done = _keyed(look, act, sent, world)
    if done.status == "failed" and done.failure == Failure.POLICY_VIOLATION:
        return Outcome.done({"skipped": done.detail})
    if done.status == "failed" and done.failure == Failure.GONE:
        return Outcome.done({"skipped": "the issue is gone"})
    if done.status != "done":
        return done
    found: Comment = done.value
    if found.body.strip() == body.strip():
        return Outcome.done({"id": found.id})
    edited = from_result(forge.edit_comment(found.id, body), world.clock.now(), lambda c: {"id": c.id})
    if edited.status == "failed" and edited.failure == Failure.POLICY_VIOLATION:
        return Outcome.done({"skipped": edited.detail})
    if edited.status == "failed" and edited.failure == Failure.GONE:
        world.store.put(key, None)  # a person deleted it: it is written anew
        return Outcome("later", detail="the comment was deleted", not_before=world.clock.now() + 1.0)
    return edited


def label(e: fx.Label, world: World) -> Outcome:
    forge, now = _forge(world), world.clock.now()
    found = forge.issue(e.issue)
    if not isinstance(found, Ok):
        return from_result(found, now)
    if isinstance(found.value, Gone):
        return Outcome.done({"skipped": found.value.why})
    add = [x for x in e.add if not found.value.has(x)]
    if add:
        added = forge.add_labels(e.issue, add)
        if not isinstance(added, Ok):
            return from_result(added, now)
    for x in e.remove:
        if found.value.has(x):
            removed = forge.remove_label(e.issue, x)
            if not isinstance(removed, Ok):
                return from_result(removed, now)
    return Outcome.done({})


def close_issue(e: fx.CloseIssue, world: World) -> Outcome:
    forge = _forge(world)
    found = forge.issue(e.issue)
    if not isinstance(found, Ok):
        return from_result(found, world.clock.now())
    if isinstance(found.value, Gone) or not found.value.open:
        return Outcome.done({"already": True})
    return from_result(forge.close_issue(e.issue, e.reason), world.clock.now(), lambda _: {})


def _facts(pull: Pull) -> dict[str, Any]:
    return {"number": pull.number, "url": pull.url, "head_sha": pull.head_sha}


def open_pull(e: fx.OpenPull, sent: Sent, world: World) -> Outcome:
    """By head and base: an open one is adopted and its text brought up to date, never opened twice."""
    forge = _forge(world)
    body = marked(e.body, e.name, f"pull/{e.head}", world)

    def look() -> Result[Any]:
        found = forge.pulls(e.head, None, "open")
        if isinstance(found, Ok):
            mine = [p for p in found.value if p.open and p.head == e.head]
            return Ok(mine[0] if mine else NOT_THERE)
        return found

    def act() -> Outcome:
        made = forge.open_pull(e.head, e.base, e.title, body, e.draft)
        if isinstance(made, Err) and (made.failure, made.detail) == (Failure.CONFLICT, "already exists"):
            again = look()
            if isinstance(again, Ok) and again.value is not NOT_THERE:
                return Outcome.done(again.value)
            return Outcome("deferred", None, Failure.FORGE_DOWN, "it exists, but is not listed yet")
        gone = _deleted((e.head, e.base), world) if isinstance(made, Err) and not made.maybe else ""
        if gone:
            return Outcome.failed(Failure.CONFLICT, f"branch {gone} is not there any more")
        return from_result(made, world.clock.now())

    done = _keyed(look, act, sent, world)
    if done.status != "done":
        return done
    pull: Pull = done.value
    if pull.base == e.base and pull.body.strip() == body.strip():
        return Outcome.done(_facts(pull))
    new_base = e.base if pull.base != e.base else None
    return from_result(forge.edit_pull(pull.number, body=body, base=new_base), world.clock.now(), _facts)


def _deleted(branches: tuple[str, ...], world: World) -> str:
    """A forge that does not show a branch yet is waited for; one that a person deleted never comes."""
    refs = world.repo.remote_refs() if world.repo is not None else None
    if not isinstance(refs, Ok):
        return ""
    return next((b for b in branches if f"refs/heads/{b}" not in refs.value), "")


def edit_pull(e: fx.EditPull, world: World) -> Outcome:
    forge = _forge(world)
    found = forge.pull(e.number)
    if not isinstance(found, Ok):
        return from_result(found, world.clock.now())
    pull = found.value
    if pull.merged or (not pull.open and e.state != "open"):
        return Outcome.done({"number": pull.number, "skipped": "it is closed"})
    body = (
        marked(e.body, f"release-{pull.head}".replace("/", "-"), f"pull/{pull.head}", world)
        if e.body
        else None
    )
    same = (
        (body is None or pull.body.strip() == body.strip())
        and (not e.base or pull.base == e.base)
        and (not e.title or pull.title == e.title)
        and (not e.state or (e.state == "open") == pull.open)
    )
    if same:
        return Outcome.done({"number": pull.number})
    edited = forge.edit_pull(
        e.number, title=e.title or None, body=body, base=e.base or None, state=e.state or None
    )
    return from_result(edited, world.clock.now(), lambda p: {"number": p.number})


def merge_pull(e: fx.MergePull, world: World) -> Outcome:
    forge = _forge(world)
    found = forge.pull(e.number)
    if isinstance(found, Ok) and found.value.merged:
        return Outcome.done({"sha": found.value.merge_sha})
    if not isinstance(found, Ok):
        return from_result(found, world.clock.now())
    merged = forge.merge_pull(e.number, e.sha, e.method, e.title, "")
    if isinstance(merged, Err) and merged.failure == Failure.POLICY_VIOLATION:
        return Outcome(
            "deferred", None, Failure.FORGE_DOWN, f"the forge does not allow the merge now: {merged.detail}"
        )
    return from_result(merged, world.clock.now(), lambda sha: {"sha": sha})


def set_status(e: fx.SetStatus, sent: Sent, world: World) -> Outcome:
    """The newest of its context counts; a forge keeps and shows all of them."""
    forge = _forge(world)

    def look() -> Result[Any]:
        found = forge.checks(e.sha)
        if isinstance(found, Ok):
            there = any(c.name == e.context and c.state == e.state for c in found.value)
            return Ok({} if there else NOT_THERE)
        return found

    def act() -> Outcome:
        made = forge.set_status(e.sha, e.context, e.state, e.description)
        return from_result(made, world.clock.now(), lambda _: {})

    return _keyed(look, act, sent, world)


def publish_release(e: fx.PublishRelease, sent: Sent, world: World) -> Outcome:
    forge = _forge(world)

    def look() -> Result[Any]:
        found = forge.release(e.tag)
        if isinstance(found, Ok):
            return Ok(found.value if found.value is not None else NOT_THERE)
        return found

    def act() -> Outcome:
        return from_result(
            forge.create_release(e.tag, e.title, world.redact(e.body), e.sha), world.clock.now()
        )

    done = _keyed(look, act, sent, world)
    if done.status != "done":
        return done
    return Outcome.done({"url": done.value.url, "id": done.value.id})


def ensure_labels(e: fx.EnsureLabels, world: World) -> Outcome:
    texts = {
        "": "Work on this",
        "working": "The harness is working on it",
        "needs-you": "A person must act",
        "deferred": "Not in this release; the reason is in the comment",
        "review": "Its pull waits for a review",
    }
    names = {n: texts.get(n.partition(":")[2], "") for n in e.names}
    return from_result(_forge(world).ensure_labels(names), world.clock.now(), lambda n: {"created": n})
