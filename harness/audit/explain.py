"""Explaining: the last decision about an issue and its reason, from the journals alone.

The one rule: nothing is asked of the outside and nothing is guessed. What the journals do not say is not
said.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.audit import prose
from harness.core.item import Item
from harness.core.journal import Record, iso
from harness.failures import explain as in_words
from harness.judgement import fold_record
from harness.ports import Store
from harness.texts.issues import first_line
from harness.texts.outside import one_line

DIRECTORS_ASKED = 5
LABEL = "harness"
HELD = {"ambiguous", "deferred"}


@dataclass(frozen=True, slots=True)
class Explanation:
    """`state` is the ticket's, empty where there is none; `data` is all of it as a JSON value; `text` in
    prose. `known` is False where no journal mentions the issue."""

    issue: int
    state: str
    decision: str
    reason: str
    text: str
    data: Mapping[str, Any]
    known: bool = True

    def __str__(self) -> str:
        return self.text


def explain(store: Store, issue: int, repo: str = "") -> Explanation:
    """The final decision about an issue and why. `repo` (`acme/widget`) where a store has several."""
    prefix = f"{repo}/" if repo else ""
    machines = store.machines(prefix)
    name = re.compile(rf"(.*)/ticket/{issue}(?:~(\d+))?")
    tickets = sorted((int(m.group(2) or 1), t) for t in machines if (m := name.fullmatch(t)))
    directors = sorted((_epoch(m), m) for m in machines if _kind(m) == "director")
    if tickets:
        return _of_ticket(store, issue, [t for _, t in tickets])
    label = _label(store.since_snapshot(directors[-1][1])) if directors else LABEL
    looked = False
    for _, director in directors[::-1][:DIRECTORS_ASKED]:
        found, spoke = _of_candidate(store, issue, director, label if looked else "")
        if found is not None:
            return found
        looked = looked or spoke
    text = prose.unknown(issue, len(directors), label)
    data = _data(issue, decision="unknown", reason=first_line(text.partition("\n\n")[2]))
    return Explanation(issue, "", "unknown", data["reason"], text, data, known=False)


def _made(issue: int, whole: dict[str, Any], detail: str) -> Explanation:
    """The prose first, then the JSON form: times in ISO 8601."""
    text = prose.explanation(whole, detail)
    whole["since"] = iso(whole["since"]) if whole["since"] else ""
    whole["history"] = [{"at": iso(h["at"]), "what": h["what"]} for h in whole["history"]]
    return Explanation(issue, whole["state"], whole["decision"], whole["reason"], text, whole)


def _kind(machine: str) -> str:
    return machine.rsplit("/", 2)[-2] if machine.count("/") >= 2 else ""


def _epoch(machine: str) -> int:
    tail = machine.rsplit("/", 1)[1]
    return int(tail) if tail.isdigit() else 0


def _data(issue: int, **given: Any) -> dict[str, Any]:
    """The JSON form, every key always there."""
    empty: dict[str, Any] = {
        "issue": issue, "title": "", "ticket": "", "state": "", "decision": "", "reason": "",
        "failure": "", "since": "", "now": [], "director": None, "pull": 0, "release": "",
        "landed_sha": "", "question": "", "counters": {}, "attempts": [], "audits": [], "cost_usd": 0.0,
        "history": [], "next": [], "earlier": [],
    }  # fmt: skip
    return {**empty, **given}


def _folded(records: Sequence[Record]) -> Item[Any]:
    item: Item[Any] | None = None
    for r in records:
        item = fold_record(item, r)
    assert item is not None, "a machine that is listed has records"
    return item


# ---------------------------------------------------------------- a candidate that was passed over


def _of_candidate(store: Store, issue: int, director: str, label: str) -> tuple[Explanation | None, bool]:
    """What this director last said of an issue that has no ticket, and whether it has looked at candidates at
    all. `label` is given when a later director looked and did not have it."""
    name = str(issue)
    records = store.since_snapshot(director)
    item = _folded(records)
    still = name in item.data.reasons
    if not still:
        records = store.read(director)
    spoke = [r for r in records if "reasons" in (r.body.get("note") or {})]
    said = [r for r in spoke if name in r.body["note"]["reasons"]]
    if not still and not said:
        return None, bool(spoke)
    last = said[-1] if said else records[-1]
    reason = str(item.data.reasons[name] if still else last.body["note"]["reasons"][name])
    now = [f"director {_epoch(director)} decided so on {prose.when(last.at)}"]
    if label or not still:
        label = label or _label(records)
        now.append(f"it is no candidate any more: it was closed, or the label {label} was taken off")
    whole = _data(
        issue,
        decision=prose.passed_over(reason),
        reason=prose.sentence(reason),
        title=_title(store, issue, last),
        now=now,
        director={"machine": director, "reason": reason, "at": iso(last.at)},
        next=[x for x in (prose.advice(reason),) if x] if len(now) == 1 else [],
    )
    return _made(issue, whole, ""), True


def _title(store: Store, issue: int, record: Record) -> str:
    """The title as the director saw it then, empty where the record does not hold it."""
    part = (record.body.get("seen") or {}).get("facts", {}).get("candidates") or {}
    raw = store.get_blob(part["blob"]) if "blob" in part else None
    listed = json.loads(raw) if raw is not None else part.get("value") or ()
    found = [c["issue"] for c in listed if isinstance(c, Mapping) and isinstance(c.get("issue"), Mapping)]
    return next((str(i.get("title", "")) for i in found if i.get("number") == issue), "")


# ---------------------------------------------------------------- an issue with a ticket


def _of_ticket(store: Store, issue: int, tickets: Sequence[str]) -> Explanation:
    machine = tickets[-1]
    records = store.read(machine)
    item = _folded(records)
    d = item.data
    attempts = _attempts(store, machine, records)
    entered = next((r for r in reversed(records) if r.seq == item.entry), records[-1])
    label = _label(records)
    whole = _data(
        issue,
        title=d.title,
        ticket=machine,
        state=item.state,
        decision=prose.DECIDED[item.state].format(since=prose.when(item.entered_at)),
        reason=_reason(item, entered),
        failure=d.failure if item.state in ("DEFERRED", "BLOCKED", "GONE") else "",
        since=item.entered_at,
        now=_now(item, attempts),
        director={
            "machine": f"{d.repo}/director/{records[0].epoch}",
            "reason": "chosen",
            "at": iso(records[0].at),
        },
        pull=d.pull,
        release=d.landed_in.rsplit("/", 1)[-1],
        landed_sha=d.landed_sha,
        question=d.question if item.state == "WAITING" else "",
        counters=dict(d.counters),
        attempts=[a for a, _ in attempts],
        audits=[a["audit"] for a, _ in attempts if a["audit"]],
        cost_usd=round(sum(a["cost_usd"] for a, _ in attempts), 6),
        history=_history(records, attempts),
        next=_next(item, issue, label),
        earlier=[{"ticket": t, "state": _folded(store.since_snapshot(t)).state} for t in tickets[:-1]],
    )
    detail = d.detail if item.state in ("DEFERRED", "BLOCKED") else ""
    return _made(issue, whole, detail)


def _reason(item: Item[Any], entered: Record) -> str:
    """Why it is in this state, as one sentence."""
    d, said = item.data, str(entered.body.get("reason", ""))
    if item.state in ("DEFERRED", "BLOCKED") and d.failure:
        spent = re.search(r"\(([^()]*used up)\)$", said)
        text = prose.because(d.failure, d.detail)
        return f"{text[:-1]} ({spent.group(1)})." if spent else text
    if item.state == "WAITING":
        return f"The question: {one_line(d.question, 400)}"
    if item.state == "RELEASED":
        return prose.sentence(f"It went out {said}, from pull #{d.pull}" if said.startswith("in ") else said)
    if item.state == "LANDED":
        release = d.landed_in.rsplit("/", 1)[-1]
        return f"It is on the branch of release {release} as {d.landed_sha[:12]}, from pull #{d.pull}."
    if item.state == "REVIEWING":
        return f"Pull #{d.pull} waits for its review."
    if item.state == "LANDING":
        return f"Pull #{d.pull} waits for its turn to be merged with the release branch and gated."
    if item.state == "ATTEMPTING" and d.failure and entered.body.get("event") not in ("claim_held",):
        return f"Before this: {first_line(said, 300)}."
    return "" if item.state in ("CLAIMING", "ATTEMPTING") else prose.sentence(said)


def _now(item: Item[Any], attempts: Sequence[tuple[dict[str, Any], Any]]) -> list[str]:
    """What is going on at this moment, as far as a journal says it."""
    lines: list[str] = []
    if item.state in ("DEFERRED", "BLOCKED") and item.data.counters:
        lines.append("charged to it: " + ", ".join(f"{k} {v}" for k, v in sorted(item.data.counters.items())))
    if item.state == "ATTEMPTING" and item.data.spawned == item.entry and attempts:
        a = attempts[-1][0]
        lines.append(f"attempt {a['attempt']} is {a['state']}, incarnation {a['incarnations']}")
    elif item.state == "ATTEMPTING":
        d = item.data
        later = f", from {prose.when(d.not_before)} on" if d.not_before > item.changed_at else ""
        lines.append(f"the next attempt begins when there is a free slot and an open release{later}")
    for owner in (item, *(i for _, i in attempts[-1:])):
        intent = owner.open_intent
        if intent is not None and intent.status in HELD:
            seen = first_line(intent.detail)
            why = in_words(intent.failure, seen) if intent.failure else seen
            name = f"{intent.effect.get('$', 'an effect')} of {owner.id.split('/', 2)[-1]}"
            after = f"after {intent.tries} {'try' if intent.tries == 1 else 'tries'}"
            lines.append(f"{name} is not done {after} ({why}); again from {prose.when(intent.not_before)}")
    return lines


def _attempts(store: Store, ticket: str, records: Sequence[Record]) -> list[tuple[dict[str, Any], Any]]:
    """Each attempt that this ticket opened, in short and folded, in order."""
    names = [str(e["machine"]) for r in records for e in _intents(r) if e.get("$") == "OpenMachine"]
    found = []
    for name in dict.fromkeys(names):
        own = store.read(name)
        if own:
            item = _folded(own)
            found.append((_attempt(item, own), item))
    return found


def _intents(record: Record) -> Sequence[Mapping[str, Any]]:
    return record.body.get("intents") or () if record.kind == "transition" else ()


def _attempt(item: Item[Any], records: Sequence[Record]) -> dict[str, Any]:
    d = item.data
    came_to = {"": "under way", "question": "it asked a person"}.get(d.outcome, d.outcome)
    if d.failure and d.outcome != "question":
        came_to = in_words(d.failure, "")
    values = [r.body.get("value") for r in records if r.body.get("effect") == "SealBundle"]
    cost = sum(float(v.get("cost_usd", 0.0)) for v in values if isinstance(v, Mapping))
    return {
        "attempt": d.code, "machine": item.id, "state": item.state, "outcome": d.outcome,
        "failure": d.failure, "came_to": came_to, "detail": first_line(d.detail),
        "incarnations": d.incarnation, "exit": d.exit,
        "head": d.head, "pull": d.pull, "audit": d.audit, "cost_usd": cost, "began": iso(records[0].at),
        "history": [
            {"at": r.at, "what": line}
            for r in records
            if (line := prose.event_line(prose.ATTEMPT, r.body, d.code))
        ],
    }  # fmt: skip


def _history(
    records: Sequence[Record], attempts: Sequence[tuple[dict[str, Any], Any]]
) -> list[dict[str, Any]]:
    """The ticket's and its attempts' moves in the order of time; what an attempt did stands before what the
    ticket made of it, also in the same instant."""
    lines: list[dict[str, Any]] = [_line(records[0], f"taken on by director {records[0].epoch}")]
    began: dict[str, int] = {}
    attempt = ""
    for r in records[1:]:
        for effect in _intents(r):
            if effect.get("$") == "OpenMachine":
                attempt = str(effect["machine"]).rsplit("/", 1)[-1]
                base = str(r.body.get("reason", "")).partition(" on ")[2]
                began[attempt] = len(lines)
                lines.append(_line(r, f"attempt {attempt} began" + (f" on {base}" if base else "")))
            if effect.get("$") == "Land":
                lines.append(_line(r, "merged with the release branch, the gate is green"))
        what = prose.event_line(prose.TICKET, r.body, attempt) if r.kind == "transition" else ""
        if what:
            lines.append(_line(r, what))
    for a, _ in reversed(attempts):
        place = began.get(a["attempt"], len(lines) - 1) + 1
        for own in a.pop("history"):
            while place < len(lines) and lines[place]["at"] < own["at"]:
                place += 1
            lines.insert(place, own)
            place += 1
    return lines


def _line(record: Record, what: str) -> dict[str, Any]:
    return {"at": record.at, "what": what}


def _next(item: Item[Any], issue: int, label: str) -> list[str]:
    if item.state == "DEFERRED":
        return [
            f"Edit the issue or fix the cause; then take the label {label}:deferred off, "
            f"or run `harness retry {issue}`.",
            "Until then nothing more is tried, and no release waits for it.",
        ]
    if item.state == "BLOCKED":
        return [f"Decide, then run `harness retry {issue}` or take the label {label}:needs-you off."]
    if item.state == "WAITING":
        return [
            "Answer in a comment on the issue. Anyone with write access can; work then goes on by itself."
        ]
    if item.state == "REVIEWING":
        return [f"Review pull #{item.data.pull}."]
    if item.state == "GONE":
        return [f"To have it worked on again, open the issue and put the label {label} on it."]
    return []


def _label(records: Sequence[Record]) -> str:
    """The label that the last policy in a journal names."""
    for r in reversed(records):
        part = (r.body.get("seen") or {}).get("policy")
        if isinstance(part, Mapping) and isinstance(part.get("value"), Mapping):
            return str(part["value"].get("label_prefix", LABEL))
    return LABEL
