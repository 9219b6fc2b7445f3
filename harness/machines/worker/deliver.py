"""COMMIT, PR_CREATE and REVIEW_REQUEST:
the work becomes a commit, the director publishes it and opens the pull.

The worker only asks. Branch, base, title and text are the director's.
"""

from __future__ import annotations

from harness.core.item import Item
from harness.core.result import Err
from harness.effects import Commit, Effect, Request
from harness.failures import Failure
from harness.machines.kind import Seen, Watch, ok, wait
from harness.machines.worker.states import E, Worker
from harness.texts.commits import commit_message


def begin_commit(item: Item[Worker], seen: Seen) -> tuple[Effect, ...]:
    d = item.data
    return (Commit(commit_message(d.issue, d.title, d.summary), seen.policy.author, seen.now, d.base_sha),)


def watch_commit(item: Item[Worker], seen: Seen) -> Watch:
    value = item.value_of("Commit")
    if value is None:
        return wait("committing")
    if not value["changed"]:
        return Err(Failure.AGENT_NO_CHANGES, "the commit would be empty against the base")
    return ok(E.COMMITTED, value["sha"])


def begin_pull(item: Item[Worker], seen: Seen) -> tuple[Effect, ...]:
    d = item.data
    return (
        Request(f"publish-{d.sha}", "publish", {"sha": d.sha, "base_sha": d.base_sha}),
        Request(f"pull-{d.sha}", "open_pull", {"sha": d.sha, "summary": d.summary}),
    )


def watch_pull(item: Item[Worker], seen: Seen) -> Watch:
    if not item.data.pull:
        return wait("the director is publishing")
    return ok(E.PR_OPENED, f"#{item.data.pull}")


def begin_review(item: Item[Worker], seen: Seen) -> tuple[Effect, ...]:
    return (Request(f"review-{item.data.pull}", "review", {"pull": item.data.pull}),)


def watch_review(item: Item[Worker], seen: Seen) -> Watch:
    return ok(E.REVIEW_REQUESTED, f"#{item.data.pull}")
