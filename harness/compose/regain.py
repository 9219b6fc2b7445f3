"""From what the outside shows to the machines that must have been there. Pure: evidence in, items out.

The one rule: where the evidence leaves a choice, the one is taken that does nothing twice: a state is entered
anew with the effects that entering begins, since each of them looks for its key first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from harness.compose.evidence import Bundle, Evidence, Folder, Thread
from harness.core.item import Intent, Item
from harness.core.journal import digest
from harness.domain import Gone, Pull, Reply, Status, container_name
from harness.failures import Failure, rule
from harness.machines.all import CODEC, kind_of
from harness.machines.attempt.states import Attempt
from harness.machines.attempt.states import S as A
from harness.machines.gates import prepare_name
from harness.machines.kind import Seen
from harness.machines.ticket.attempting import charge
from harness.machines.ticket.states import S, Ticket
from harness.texts.pulls import pull_body, pull_title

ENTRY = 1


@dataclass(frozen=True, slots=True)
class Regained:
    """One machine as it goes on: `why` says in words what was found."""

    item: Item[Any]
    why: str


def made(
    o: Evidence, machine: str, state: str, data: Any, *, begin: bool = True, entered_at: float = 0.0
) -> Item[Any]:  # fmt: skip
    """A machine in that state. `begin`: with what entering it begins."""
    item: Item[Any] = Item(machine, str(state), data, entered_at or o.now, ENTRY)
    row = kind_of(machine).table.rows[str(state)]
    if not begin or row.begin is None:
        return item
    effects = row.begin(item, Seen(o.now, o.policy, o.now, {}))
    intents = [Intent(n, CODEC.encode(e), begun_at=o.now) for n, e in enumerate(effects)]
    return replace(item, intents=tuple(intents))


# ---------------------------------------------------------------- tickets


def machine_of(o: Evidence, issue: int) -> str:
    return f"{o.policy.repo}/ticket/{issue}"


def ticket(o: Evidence, t: Thread) -> Regained | None:
    """The ticket of an issue; None when we never took it on."""
    marks = [r for r in t.replies if r.ours]
    said = next((r for r in marks if r.name == "status"), None)
    past, live = o.of(t.number), o.folder(t.number)
    if said is None and not past and live is None and t.pull is None:
        return None
    data = _data(o, t, past, live)
    state, why, begin, more = _state(o, t, data, said, marks, past, live)
    data = replace(data, **more)
    entered_at = data.asked_at if state == S.WAITING else 0.0
    if state == S.ATTEMPTING and live is not None:
        data = replace(data, attempt=f"{o.policy.repo}/attempt/{live.code}", spawned=ENTRY)
    if state in (S.GONE, S.RELEASED) and not isinstance(t.issue, Gone) and t.issue.open:
        entered_at = min(o.now, t.issue.updated_at - 1.0)  # asked for again: it is a candidate
    item = made(o, machine_of(o, t.number), state, data, begin=begin, entered_at=entered_at)
    if state == S.WAITING:  # the question is there; only the labels may be missing
        item = replace(item, intents=tuple(replace(i, n=0) for i in item.intents[1:]))
    return Regained(item, why)


def _second(reply: Reply) -> int:
    """When we asked or called for a person, as the mark's name says; 0 for any other mark."""
    name, _, number = reply.name.rpartition("-")
    return int(number) if name in ("question", "blocked") and number.isdigit() else 0


def _data(o: Evidence, t: Thread, past: list[Bundle], live: Folder | None) -> Ticket:
    """All that the ticket's own data can be known from: its last attempt first, the issue else."""
    issue, p = t.issue, o.policy
    last = past[-1].start if past else None
    brief: Mapping[str, Any] = (live.brief if live else None) or (last.brief if last else {})
    codes = [*(b.code for b in past), *([live.code] if live else [])]
    counters: dict[str, int] = dict(brief.get("counters", {}))
    lands = "lane" if p.mode == "train" else "person"
    data = Ticket(
        repo=p.repo, issue=t.number, lands=lands, counters=counters,
        title=str(brief.get("title", "")) if isinstance(issue, Gone) else issue.title,
        author="" if isinstance(issue, Gone) else issue.author,
        text=str(brief.get("text", "")), base=str(brief.get("base", "")),
        base_sha=str(brief.get("base_sha", "")), attempts=max((_number(c) for c in codes), default=0),
        answers=tuple(dict(a) for a in brief.get("answers", ())), audits=tuple(b.audit for b in past),
        feedback=str(brief.get("feedback", "")), came_from="ATTEMPTING",
    )  # fmt: skip
    if data.text:
        data = replace(data, text_hash=digest(data.text.encode()))
    if t.pull is not None and (t.pull.open or t.release):
        data = replace(data, pull=t.pull.number, head=t.pull.head_sha, review=t.review)
    if past and live is None and past[-1].meta.get("outcome") in ("failed", "stopped"):
        meta = past[-1].meta
        failure, detail = str(meta.get("failure", "")), str(meta.get("detail", ""))
        data = replace(data, failure=failure, detail=detail, feedback=detail)
        data = replace(data, counters=charge(data, failure))
    return data


def _number(code: str) -> int:
    tail = code.rpartition(".")[2]
    return int(tail) if tail.isdigit() else 0


State = tuple[S, str, bool, dict[str, Any]]


def _state(
    o: Evidence, t: Thread, d: Ticket, said: Reply | None, marks: list[Reply], past: list[Bundle],
    live: Folder | None,
) -> State:  # fmt: skip
    over = _over(said)
    if over is not None and live is None:
        return over
    parked = _parked(o, t, d, said, marks)
    if parked is not None and (live is None or parked[0] != S.WAITING):
        return parked
    if t.release and t.pull is not None:
        return _landed(o, t, t.pull)
    if t.pull is not None and t.pull.merged and live is None and _closed(t):
        if d.lands != "lane":
            return S.LANDED, f"pull #{t.pull.number} was merged", True, {"landed_sha": t.pull.merge_sha}
        return S.RELEASED, f"pull #{t.pull.number} was merged long ago", False, {}
    if live is not None:
        return S.ATTEMPTING, f"attempt {live.code} is under way", False, {}
    asked = _newest(marks)
    if asked is not None and asked.name.startswith("question") and _questions(marks) > len(d.answers):
        return S.WAITING, "its question is on the issue", True, _question(asked)
    if t.pull is not None and _in_review(t, past):
        more = {"pull": t.pull.number, "head": t.pull.head_sha, "failure": "", "detail": "", "feedback": ""}
        return S.REVIEWING, f"pull #{t.pull.number} is there, and its attempt has ended", True, more
    if isinstance(t.issue, Gone):
        return S.GONE, t.issue.why, False, {"failure": str(Failure.GONE), "detail": t.issue.why}
    if said is None or not d.text:
        return S.CLAIMING, "its claim is on the issue, no attempt was kept", True, {}
    if _deferred(said) and not t.issue.has(o.policy.label("working")):
        fresh = {"counters": {}, "failure": "", "attempts": 0, "offset": d.attempts}
        return (
            S.ATTEMPTING,
            "a person took our label off: another try",
            True,
            {**fresh, "came_from": "DEFERRED"},
        )
    return S.ATTEMPTING, f"attempt {d.attempts} has ended: the next one", False, {}


def _closed(t: Thread) -> bool:
    return not isinstance(t.issue, Gone) and not t.issue.open


def _landed(o: Evidence, t: Thread, pull: Pull) -> State:
    """Landed stays landed; and released is what its release's publication has closed."""
    more = {"landed_in": f"{o.policy.repo}/release/{t.release}", "landed_sha": pull.merge_sha}
    out = o.versions[t.release]
    if out.published and _closed(t):
        return S.RELEASED, f"pull #{pull.number} is in {out.name}", True, {**more, "tag": out.name}
    return S.LANDED, f"pull #{pull.number} has landed in {t.release}", True, more


def _over(said: Reply | None) -> State | None:
    """What our own status comment says of a ticket that has ended."""
    body = said.body if said else ""
    if body.startswith(("**Released**", "**Merged**")):
        tag = body.partition(" in ")[2].partition(",")[0] if body.startswith("**Released**") else ""
        return S.RELEASED, "the issue's own comment says so", False, {"tag": tag}
    if body.startswith("**Not worked on any more.**"):
        told = body.partition(".** ")[2].partition("\n")[0].rstrip(".")
        return S.GONE, "the issue's own comment says so", False, {"failure": "gone", "detail": told}
    return None


def _deferred(said: Reply | None) -> bool:
    return said is not None and said.body.startswith("**Not in this release.**")


def _parked(o: Evidence, t: Thread, d: Ticket, said: Reply | None, marks: list[Reply]) -> State | None:
    """DEFERRED, BLOCKED or WAITING by our own labels; or told on the issue, and killed before the label."""
    if isinstance(t.issue, Gone):
        return None
    p, issue, newest = o.policy, t.issue, _newest(marks)
    asks = newest is not None and newest.name.startswith("question")
    why = _why(d, said)
    if issue.has(p.label("deferred")):
        return S.DEFERRED, "its label says so", False, why
    if issue.has(p.label("needs-you")):
        if newest is not None and asks:
            return S.WAITING, "its question is on the issue", True, _question(newest)
        return S.BLOCKED, "its label says so", False, why
    told = said is not None and _deferred(said) and (not d.audits or d.audits[-1] in said.body)
    if told and issue.has(p.label("working")) and o.folder(t.number) is None:
        if newest is None or asks:
            return S.DEFERRED, "the issue's own comment says so, its label was not there yet", True, why
        return S.BLOCKED, "the issue's own comment says so, its label was not there yet", False, why
    return None


def _why(d: Ticket, said: Reply | None) -> dict[str, Any]:
    """Why it is not worked on: as its last attempt says, else as the status comment tells people."""
    if d.failure or said is None:
        return {}
    line = said.body.partition("\n")[0].partition(".** ")[2]
    for failure in Failure:
        text = rule(failure).text
        if line.casefold().startswith(text.casefold()):
            return {"failure": str(failure), "detail": line[len(text) :].lstrip(": ").rstrip(".")}
    return {"failure": str(Failure.GONE), "detail": line}


def _newest(marks: list[Reply]) -> Reply | None:
    return max((r for r in marks if _second(r)), key=lambda r: r.id, default=None)


def _questions(marks: list[Reply]) -> int:
    return sum(1 for r in marks if r.name.startswith("question-"))


def _question(asked: Reply) -> dict[str, Any]:
    quoted = [x.removeprefix(">").removeprefix(" ") for x in asked.body.splitlines() if x.startswith(">")]
    return {"question": "\n".join(quoted), "asked_at": float(_second(asked))}


def _in_review(t: Thread, past: list[Bundle]) -> bool:
    """A pull that an attempt ended with; a person may have closed or merged it since."""
    assert t.pull is not None
    last = past[-1].meta if past else {}
    if t.pull.open or t.pull.merged:
        return bool(last.get("outcome", "done") == "done")
    return bool(last.get("outcome") == "done" and last.get("pull") == t.pull.number)


# ---------------------------------------------------------------- attempts


def attempt(o: Evidence, f: Folder, instance: str) -> Regained:
    """The attempt of a folder that is still there: gone on with where it runs, or ended with its work saved."""
    issue = int(f.code.partition(".")[0]) if f.code.partition(".")[0].isdigit() else 0
    machine, data = f"{o.policy.repo}/attempt/{f.code}", _attempt(o, f, issue)
    jobs = _jobs(o, f.code, instance)
    number, job = max(jobs.items(), default=(1, None))
    if job is not None:
        data = replace(data, incarnation=number, engine=job.engine, image=job.image or data.image)
        data = replace(data, image_now=job.image or data.image)
    sealed = o.sealed(f.code)
    if sealed is not None:
        kept = ("outcome", "failure", "detail", "head", "pull", "exit", "warning")
        data = replace(data, audit=sealed.audit, **{k: sealed.meta[k] for k in kept if k in sealed.meta})
        return Regained(made(o, machine, A.CLEANING, data), "its bundle is sealed: it is cleaned away")
    if job is not None and container_name(o.policy.repo, f.code, "harvest", instance) in o.jobs:
        data = _ended(data, job)
        return Regained(made(o, machine, A.HARVESTING, data), f"its work was being saved ({data.outcome})")
    if f.brief is None:
        lost: dict[str, Any] = {
            "outcome": "failed",
            "failure": str(Failure.INFRA_ENGINE),
            "detail": "its brief was lost",
        }
        data = replace(data, **lost)
        return Regained(made(o, machine, A.HARVESTING, data), "its brief is lost: it ends, its work is saved")
    if job is not None or f.ran:
        at = (job.started_at if job is not None else None) or o.now
        why = "it runs" if job is not None and job.alive else "it ran and ended meanwhile"
        return Regained(made(o, machine, A.RUNNING, data, entered_at=at), f"{why}: adopted")
    return Regained(made(o, machine, A.PREPARING, data), "it had not begun to run: it is prepared again")


def _jobs(o: Evidence, code: str, instance: str) -> dict[int, Status]:
    first = container_name(o.policy.repo, code, "i", instance)
    tails = {n.removeprefix(first): s for n, s in o.jobs.items() if n.startswith(first)}
    return {int(n): s for n, s in tails.items() if n.isdigit()}


def _attempt(o: Evidence, f: Folder, issue: int) -> Attempt:
    b, p, t = f.brief or {}, o.policy, o.threads.get(issue)
    branch = str(b.get("branch", "")) or f"{p.branch_prefix}/{f.code.rpartition('.')[0]}"
    published = o.refs.get(f"refs/heads/{branch}", "")
    head = published if published in f.published else ""
    pull = t.pull if t is not None and t.pull is not None and t.pull.open else None
    base_sha = str(b.get("base_sha", "")) or o.refs.get(f"refs/heads/{o.base}", "")
    version = next((v for v in o.versions.values() if v.branch == b.get("base")), None)
    ticket = machine_of(o, issue) if issue else f"{p.repo}/{f.code.rpartition('.')[0].replace('-', '/', 1)}"
    title = str(b.get("title", ""))
    return Attempt(
        code=f.code, ticket=ticket, issue=issue, title=title, purpose="issue" if issue else "merge",
        branch=branch, base=str(b.get("base", "")), base_sha=base_sha, start_sha=published or base_sha,
        image=p.image, prepare=(o.prepared or prepare_name(p, base_sha)) if version is not None else "",
        prepare_sha=base_sha, commands=tuple(b.get("commands", ())),
        brief={k: v for k, v in b.items() if k not in ("policy", "command", "agent_env", "play")},
        pull_title=pull_title(issue, title) if issue else "",
        pull_body=pull_body(issue, title, f.code, p.mode == "train") if issue else "",
        counters=dict(b.get("counters", {})), head=head, pull=pull.number if pull and head else 0,
        review=bool(head and t is not None and t.review),
    )  # fmt: skip


def _ended(d: Attempt, job: Status) -> Attempt:
    """How a worker ended whose end was judged already: by the evidence, else charged to the infrastructure."""
    if job.exit == 0 and d.head and (d.pull or d.purpose != "issue"):
        return replace(d, outcome="done", exit=0)
    detail = "the store was lost while its work was being saved"
    return replace(d, outcome="failed", failure=str(Failure.INFRA_ENGINE), detail=detail, exit=job.exit)


__all__ = ["Regained", "attempt", "made", "ticket"]
