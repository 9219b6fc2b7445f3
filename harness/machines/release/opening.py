"""OPEN: tickets land on the branch; the pull opens with the first and its text follows the journals."""

from __future__ import annotations

from harness.core.item import Item
from harness.core.journal import digest
from harness.core.result import Pass
from harness.effects import EditPull, Effect, OpenPull, SetStatus
from harness.machines.kind import Peer, Seen, Watch, asked, known, ok, stay, wait
from harness.machines.release.settle import landed_in, not_in, settled
from harness.machines.release.states import E, Release
from harness.policy import Policy
from harness.texts import releases as texts


def wants(item: Item[Release], policy: Policy) -> tuple[str, ...]:
    pull = (f"pull/{item.data.pull}",) if item.data.pull else ()
    return ("entries", "director", "controls", *pull)


def begin(item: Item[Release], seen: Seen) -> tuple[Effect, ...]:
    """The release's own, not its planner's: a director that dies plans anew, and would say it again."""
    d = item.data
    return (SetStatus(d.base_sha, "harness/release", "pending", f"release {d.version} is being prepared"),)


def watch(item: Item[Release], seen: Seen) -> Watch:
    d, p = item.data, seen.policy
    entries = seen["entries"]
    if not known(entries):
        return wait("looking at the tickets", entries)
    landed, others = landed_in(item.id, entries), not_in(item.id, entries)
    if not landed:
        return Pass("nothing has landed yet")
    body = texts.pull_body(d.version, landed, others, p)
    if digest(body.encode()) != d.body_hash:
        title = texts.pull_title(d.version)
        edit = (
            EditPull(d.pull, body=body)
            if d.pull
            else OpenPull(d.branch, d.base, title, body, f"release-{d.version}")
        )
        return stay(edit, why=f"{len(landed)} landed, {len(others)} not", body_hash=digest(body.encode()))
    pull = seen[f"pull/{d.pull}"]
    if known(pull) and pull.merged:
        return ok(E.SETTLED, "a person merged it", landed=tuple(e.issue for e in landed))
    director = seen["director"]
    finalizing = isinstance(director, Peer) and director.state == "RELEASE_FINALIZE"
    cut = _cut(item, seen)
    if (finalizing and settled(item, entries, seen.now, p)) or cut:
        return ok(
            E.SETTLED,
            "cut by a person" if cut else "all is landed or deferred",
            landed=tuple(e.issue for e in landed),
        )
    return Pass(f"{len(landed)} landed; {len(others)} not")


def _cut(item: Item[Release], seen: Seen) -> bool:
    return bool(asked(seen, item.data, "release-cut"))
