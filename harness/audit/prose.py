"""The audit in words: what people read in a bundle's summary and in the answer of `harness explain`.

The one rule: it is written for somebody who was woken up. First what was decided, then why, then what
happened, then what can be done; no sentence that says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from harness.failures import explain
from harness.texts.issues import first_line
from harness.texts.outside import clean, fence, one_line

HISTORY_LINES = 40
DETAIL_LINES = 12

# The decision as a sentence, by the state of the ticket. `{since}` is when it was entered.
DECIDED: Mapping[str, str] = {
    "CLAIMING": "It is being claimed, since {since}.",
    "ATTEMPTING": "It is in work, since {since}.",
    "WAITING": "It waits for a person's answer, since {since}.",
    "REVIEWING": "It is in review, since {since}.",
    "LANDING": "It is about to land, since {since}.",
    "LANDED": "It landed on {since}, and waits for its release.",
    "DEFERRED": "It was deferred on {since}: nothing more is tried until a person asks for it.",
    "BLOCKED": "It needs a person, since {since}: nothing more is tried until somebody decides.",
    "RELEASED": "It was released on {since}.",
    "GONE": "It ended on {since}, without a result of ours.",
}

# What a ticket's moves mean, by event; `{reason}` is the journal's own.
TICKET: Mapping[str, str] = {
    "claim_held": "claimed, and its text frozen: later edits do not change what is worked on",
    "claim_lost": "not ours: {reason}",
    "pull_open": "{attempt} delivered pull {reason}",
    "question_asked": "{attempt} asked a person: {reason}",
    "again": "{attempt} did not succeed: {reason}",
    "given_up": "given up: {reason}",
    "needs_person": "a person was called: {reason}",
    "answered": "answered {reason}",
    "default_taken": "nobody answered, so the default was taken",
    "expired": "the answer did not come: {reason}",
    "approved": "on its way to land: {reason}",
    "changes_requested": "changes were requested {reason}",
    "pull_closed": "{reason}",
    "review_expired": "the review did not come: {reason}",
    "landed": "landed: {reason}",
    "conflict": "it could not land: {reason}",
    "gate_red": "it could not land, the gate was red: {reason}",
    "released": "released {reason}",
    "reverted": "taken out again: {reason}",
    "person_retries": "{reason}",
    "gone": "ended: {reason}",
}
OUTCOME: Mapping[str, str] = {
    "done": "and had done its work",
    "question": "with a question",
    "stopped": "because it was stopped",
    "failed": "without success",
}
ATTEMPT: Mapping[str, str] = {
    "upgrade": "{attempt} went on in a newer image",
    "infra_lost": "{attempt} lost its container and was started again: {reason}",
    "exited": "{attempt} ended {outcome}",
    "stalled": "{attempt} was stopped: {reason}",
    "timed_out": "{attempt} was stopped: {reason}",
    "stop": "{attempt} was stopped: {reason}",
    "failed": "{attempt} could not go on: {reason}",
    "internal_error": "{attempt} met a bug of the harness: {reason}",
    "cleanup_denied": "{attempt} could not be cleaned up: {reason}",
}

# What can be done about a candidate that was passed over, by the beginning of the director's reason.
ADVICE: Mapping[str, str] = {
    "no free slot": "Nothing: it is taken when a worker is free (director.max_workers says how many).",
    "the batch is full": "Nothing: it is taken with the next release (release.batch_size says how many fit).",
    "no release is open": "Nothing: it is taken when the next release is planned.",
    "paused": "Run `harness resume` when work may go on.",
    "draining": "Nothing new is taken until the director is started again.",
    "only ": "Make room on the director's disk.",
    "the conversation is locked": "Unlock the conversation on the issue.",
    "a bot may not": "Let somebody with write access put the label on.",
    "author may not": "Let somebody with write access put the label on.",
}


def when(at: float) -> str:
    """`27 Nov 2026, 02:07 UTC`."""
    return f"{datetime.fromtimestamp(at, UTC):%d %b %Y, %H:%M} UTC".lstrip("0")


def event_line(words: Mapping[str, str], body: Mapping[str, Any], attempt: str) -> str:
    """One transition as a line of the history; empty for a move that says nothing to people."""
    note: Mapping[str, Any] = body.get("note") or {}
    given = {
        "attempt": f"attempt {attempt}",
        "reason": one_line(str(body.get("reason", "")), 240),
        "outcome": OUTCOME.get(str(note.get("outcome", "")), ""),
    }
    text = words.get(str(body.get("event")), "")
    for name, value in given.items():
        text = text.replace(f"{{{name}}}", value)
    answers = note.get("answers") if body.get("event") == "answered" else None
    if answers:
        text += f": {one_line(str(answers[-1].get('answer', '')), 240)}"
    return text.rstrip(" :")


def because(failure: str, detail: str) -> str:
    """A failure as a sentence: the class in words, then the first line of what was seen."""
    text = one_line(explain(failure, first_line(detail)), 400)
    return sentence(text)


def sentence(text: str) -> str:
    text = text.strip().rstrip(".")
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def passed_over(reason: str) -> str:
    """The decision about a candidate without a ticket."""
    return "It was chosen: its ticket opens next." if reason == "chosen" else f"It was not taken: {reason}."


def advice(reason: str) -> str:
    return next((text for start, text in ADVICE.items() if reason.startswith(start)), "")


def explanation(data: Mapping[str, Any], detail: str) -> str:
    """The whole answer. `data` is what `harness.audit.explain` gathered; of `detail` all but its first line,
    which is in the reason."""
    head = f"Issue {data['issue']}" + (f": {one_line(data['title'], 120)}" if data["title"] else "")
    parts = [head, _answer(data, detail)]
    if data["history"]:
        parts.append(_history(data["history"]))
    if data["attempts"]:
        parts.append(_attempts(data["attempts"], data["cost_usd"]))
    if data["next"]:
        parts.append("What you can do\n" + "\n".join(f"  {line}" for line in data["next"]))
    return "\n\n".join(parts) + "\n"


def _answer(data: Mapping[str, Any], detail: str) -> str:
    lines = [data["decision"], *([data["reason"]] if data["reason"] and data["ticket"] else [])]
    lines += [sentence(x) for x in data["now"]]
    rest = clean(detail).strip().split("\n", 1)
    if len(rest) > 1 and rest[1].strip():
        lines += ["", *(f"    {x}" for x in rest[1].strip().splitlines()[-DETAIL_LINES:])]
    return "\n".join(lines)


def _history(history: Sequence[Mapping[str, Any]]) -> str:
    shown = history[-HISTORY_LINES:]
    lines = ["What happened (UTC)"]
    if len(shown) < len(history):
        lines.append(f"  … {len(history) - len(shown)} lines before these")
    day = ""
    for entry in shown:
        at = datetime.fromtimestamp(entry["at"], UTC)
        if f"{at:%d %b %Y}" != day:
            day = f"{at:%d %b %Y}"
            lines.append(f"  {day.lstrip('0')}")
        lines.append(f"  {at:%H:%M:%S}  {entry['what']}")
    return "\n".join(lines)


def _attempts(attempts: Sequence[Mapping[str, Any]], cost_usd: float) -> str:
    lines = ["Evidence"]
    for a in attempts:
        where = f"harness audit show {a['audit']}" if a["audit"] else f"no bundle yet, it is {a['state']}"
        lines.append(f"  attempt {a['attempt']} ({a['came_to']}): {where}")
    if cost_usd:
        lines.append(f"  model cost so far: ${cost_usd:.2f}")
    return "\n".join(lines)


def unknown(issue: int, directors: int, label: str) -> str:
    """Nothing is known of it: what would make it a candidate."""
    if not directors:
        return f"Issue {issue}\n\nNothing is known of it: no director has run with this data yet.\n"
    return (
        f"Issue {issue}\n\nNothing is known of it: no director ever had it as a candidate.\n\n"
        f"What you can do\n"
        f"  An issue is a candidate when it is open and bears the label {label}. Check both, and that\n"
        f"  the number is an issue's and not a pull's. The director looks again at its next tick.\n"
    )


# ---------------------------------------------------------------- a bundle's summary


def summary(meta: Mapping[str, Any], ends: Mapping[str, Any], left_out: Sequence[Mapping[str, str]]) -> str:
    """summary.md of a bundle."""
    title = one_line(str(meta.get("title", "")), 120)
    head = f"# Attempt {meta.get('attempt', '')} of issue {meta.get('issue', '')}"
    lines = [f"{head}: {title}" if title else head, "", _came_to(meta), ""]
    lines += [f"* {name}: {value}" for name, value in _facts(meta)]
    for name, end in ends.items():
        broken = f", broken: {end['fault']}" if end.get("fault") else ""
        some = f"{end['records']} records, the last {str(end['head'])[:12]}"
        what = some if end.get("records") else "no records"
        lines.append(f"* {name}: {what}{broken}")
    detail = str(meta.get("detail", "")).strip().split("\n", 1)
    if len(detail) > 1 and detail[1].strip():
        lines += ["", fence(detail[1].strip(), 4000)]
    if left_out:
        lines += ["", "Left out of this bundle:", ""]
        lines += [f"* `{x['name']}`: {x['why']}" for x in left_out[:50]]
        lines += [f"* and {len(left_out) - 50} more" for _ in range(len(left_out) > 50)]
    return "\n".join(lines) + "\n"


def _came_to(meta: Mapping[str, Any]) -> str:
    failure, outcome = str(meta.get("failure", "")), str(meta.get("outcome", ""))
    if outcome == "done":
        pull = meta.get("pull")
        return f"It delivered pull #{pull}." if pull else "It delivered its work."
    return because(failure, str(meta.get("detail", ""))) if failure else sentence(outcome or "it did not end")


def _facts(meta: Mapping[str, Any]) -> list[tuple[str, str]]:
    cost = meta.get("cost")
    usd = cost.get("usd") if isinstance(cost, Mapping) else None
    named = [
        ("sealed", meta.get("sealed_at")),
        ("machine", meta.get("machine")),
        ("branch", meta.get("branch")),
        ("base", meta.get("base_sha")),
        ("published", meta.get("head")),
        ("image", meta.get("image")),
        ("agent", meta.get("agent")),
        ("incarnations", meta.get("incarnations")),
        ("exit code", meta.get("exit")),
        ("model cost", f"${usd:.2f}" if isinstance(usd, int | float) and usd else None),
        ("warning", meta.get("warning")),
    ]
    return [(name, one_line(str(value), 300)) for name, value in named if value not in (None, "")]
