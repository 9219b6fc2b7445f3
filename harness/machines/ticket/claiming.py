"""CLAIMING: one winner by a fixed rule. The oldest claim that is not stale holds;
the loser takes its own back.

The text that work is done from is frozen here and hashed: a later edit cannot steer the agent.
"""

from __future__ import annotations

from harness.core.item import Item
from harness.core.journal import digest
from harness.domain import Gone, Issue, Reply
from harness.effects import Comment, Effect, Label
from harness.failures import Failure
from harness.machines.kind import Seen, Watch, known, ok, stay, wait
from harness.machines.ticket.states import E, Ticket
from harness.texts import issues as texts
from harness.texts.markdown import visible
from harness.texts.outside import clean
from harness.texts.prompts import empty_body

LAGS = 6
CLAIMS = 2


def begin(item: Item[Ticket], seen: Seen) -> tuple[Effect, ...]:
    d, p = item.data, seen.policy
    old = tuple(p.label(x) for x in ("deferred", "needs-you"))
    return (
        Comment(d.issue, "status", texts.claimed(d.title)),
        Label(d.issue, add=(p.label("working"),), remove=old),
    )


def watch(item: Item[Ticket], seen: Seen) -> Watch:
    replies, issue = seen[f"replies/{item.data.issue}"], seen[f"issue/{item.data.issue}"]
    if not known(replies):
        return wait("reading the claim back", replies)
    if not known(issue):
        return wait("reading the issue", issue)
    claims = [r for r in replies if r.name == "status" and (r.ours or r.trusted)]
    fresh = [r for r in claims if r.ours or seen.now - r.created_at < seen.policy.claim_stale_s]
    first = min(fresh, key=lambda r: r.id, default=None)
    if first is None:
        return _unseen(item, seen, issue)
    if not first.ours:
        text = f"claimed first by {first.instance or first.author}"
        return _lost(text, holder=first.instance or first.author)
    if isinstance(issue, Gone):
        return ok(E.GONE, issue.why, failure=str(Failure.GONE), detail=issue.why)
    text, hidden = frozen(issue, replies)
    sha = digest(text.encode())
    removed = f", hidden_text_removed: {hidden}" if hidden else ""
    unfilled = empty_body(issue.body) and not any(r.trusted and not r.name for r in replies)
    return ok(
        E.CLAIM_HELD, f"text frozen: sha256:{sha[:12]}{removed}", text=text, text_hash=sha, unfilled=unfilled
    )


def _unseen(item: Item[Ticket], seen: Seen, issue: Issue | Gone) -> Watch:
    """No claim is to be seen: not yet, or a person deleted it or locked the issue. It is made again once."""
    d, p = item.data, seen.policy
    if isinstance(issue, Gone):
        return ok(E.GONE, issue.why, failure=str(Failure.GONE), detail=issue.why)
    if issue.locked:
        return _lost("the conversation is locked")
    if seen.now - item.changed_at < LAGS * p.lag_s:
        return wait("the claim is not visible yet")
    if sum(i.effect.get("$") == "Comment" for i in item.intents) < CLAIMS:
        return stay(
            Comment(d.issue, "status", texts.claimed(d.title)), why="the claim is not there: once more"
        )
    return _lost("a person deleted our claim")


def _lost(text: str, **note: str) -> Watch:
    return ok(E.CLAIM_LOST, text, failure=str(Failure.CONFLICT), detail=text, **note)


def frozen(issue: Issue, replies: tuple[Reply, ...]) -> tuple[str, int]:
    """Title, body and the comments of people with write access, as people see them now, and how many hidden
    parts were left out. Each is cleaned by itself, so that none can hide what comes after it."""
    parts = [("", issue.body)]
    parts += [(f"## Comment by {r.author}\n\n", r.body) for r in replies if r.trusted and not r.name]
    cleaned = [(head, *visible(clean(body))) for head, body in parts]
    text = "\n\n".join([f"# {issue.title}", *(head + shown for head, shown, _ in cleaned)])
    return text, sum(n for _, _, n in cleaned)
