"""The release's pull, its notes, and what a person is told when it cannot go on."""

from __future__ import annotations

from harness.domain import Entry
from harness.failures import explain
from harness.policy import Policy
from harness.texts.issues import first_line
from harness.texts.outside import fence, neutral, one_line


def pull_title(version: str) -> str:
    return f"Release {version}"


def pull_body(version: str, landed: tuple[Entry, ...], others: tuple[Entry, ...], policy: Policy) -> str:
    merge = "It is merged by the harness when everything is settled." if policy.merge == "auto" else "A person merges it."
    closing = "\n".join(f"Closes #{e.issue}" for e in sorted(landed, key=lambda e: e.issue))
    return f"{_lists(landed, others)}\n{_cost(landed + others)}{merge}\n\n{closing}\n"


def notes(version: str, landed: tuple[Entry, ...], others: tuple[Entry, ...], record: str) -> str:
    return f"{_lists(landed, others)}\n{_cost(landed + others)}Record: `{record}`\n"


def _lists(landed: tuple[Entry, ...], others: tuple[Entry, ...]) -> str:
    lines = ["## Landed", ""]
    lines += [f"* {_title(e)} (#{e.issue}, pull #{e.pull})" for e in sorted(landed, key=lambda e: e.issue)]
    if others:
        lines += ["", "## Not in this release", ""]
        lines += [f"* {_title(e)} (#{e.issue}): {_why(e)}" for e in sorted(others, key=lambda e: e.issue)]
    return "\n".join(lines) + "\n"


def _title(e: Entry) -> str:
    return one_line(neutral(e.title), 100)


def _why(e: Entry) -> str:
    if e.state in ("DEFERRED", "BLOCKED"):
        text = neutral(first_line(explain(e.failure, first_line(e.detail))), 300)
        need = "deferred" if e.state == "DEFERRED" else "a person must decide"
        return f"{need}: {text}"
    return {"WAITING": "waits for an answer to its question"}.get(e.state, "still being worked on")


def _cost(entries: tuple[Entry, ...]) -> str:
    total = sum(e.cost_usd for e in entries)
    return f"Model cost: ${total:.2f}\n\n" if total else ""


def merge_message(version: str, pull: int) -> str:
    return f"Release {version}\n\nMerges #{pull}.\n"


def needs_person(version: str, failure: str, detail: str) -> str:
    return (
        f"**Release {version} needs a person.** {explain(failure, first_line(detail))}.\n\n{fence(detail, 3000)}\n\n"
        "What you can do: push a fix to either branch, or run `harness release cut` to have it judged again, "
        "or `harness release abandon`.\n"
    )


def resolve(branch: str, base: str, detail: str) -> str:
    return (
        f"Merge the branch `{base}` into this branch (`{branch}`) and resolve the conflicts so that both sides' "
        f"intentions are kept and the tests pass. Change nothing else.\n\n{detail[:4000]}\n"
    )
