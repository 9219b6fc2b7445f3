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
from harness.machines.kind import Seen, Watch, known, ok, wait
from harness.machines.ticket.states import E, Ticket
from harness.texts import issues as texts


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
        return wait("the claim is not visible yet")
    if not first.ours:
        text = f"claimed first by {first.instance or first.author}"
        return ok(E.CLAIM_LOST, text, failure=str(Failure.CONFLICT), detail=text)
    if isinstance(issue, Gone):
        return ok(E.GONE, issue.why, failure=str(Failure.GONE), detail=issue.why)
    text = frozen(issue, replies)
    return ok(
        E.CLAIM_HELD,
        f"text frozen: sha256:{digest(text.encode())[:12]}",
        text=text,
        text_hash=digest(text.encode()),
    )


def frozen(issue: Issue, replies: tuple[Reply, ...]) -> str:
    """Title, body and the comments of people with write access, as they are now."""
    said = [r for r in replies if r.trusted and not r.name]
    parts = [f"# {issue.title}", issue.body or ""]
    parts += [f"## Comment by {r.author}\n\n{r.body}" for r in said]
    return "\n\n".join(parts)
