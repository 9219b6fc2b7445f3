"""The release's pull, its notes, and what a person is told when it cannot go on.

The one rule: "Closes" stands in the release's pull only, one line for each issue that landed.
"""

from __future__ import annotations

from harness.domain import Entry
from harness.failures import explain
from harness.policy import Policy
from harness.texts.issues import first_line, log, sentence
from harness.texts.outside import clean, inline


def pull_title(version: str) -> str:
    return f"Release {version}"


def pull_body(version: str, landed: tuple[Entry, ...], others: tuple[Entry, ...], policy: Policy) -> str:
    merge = (
        "The harness merges this pull when everything is settled, then tags and publishes the release."
        if policy.merge == "auto"
        else "A person merges this pull. The release is tagged and published then."
    )
    closing = "\n".join(f"Closes #{e.issue}" for e in sorted(landed, key=lambda e: e.issue))
    return _joined(_lists(landed, others), _cost(landed + others), merge, closing)


def notes(version: str, landed: tuple[Entry, ...], others: tuple[Entry, ...], record: str) -> str:
    return _joined(_lists(landed, others), _cost(landed + others), f"Record: `{record}`")


def _joined(*parts: str) -> str:
    return "\n\n".join(p.strip() for p in parts if p) + "\n"


def _lists(landed: tuple[Entry, ...], others: tuple[Entry, ...]) -> str:
    lines = ["## Landed", ""]
    lines += [f"* {_title(e)} (#{e.issue}, pull #{e.pull})" for e in sorted(landed, key=lambda e: e.issue)]
    lines += [] if landed else ["Nothing."]
    if others:
        lines += ["", "## Not in this release", ""]
        lines += [f"* {_title(e)} (#{e.issue}): {_why(e)}" for e in sorted(others, key=lambda e: e.issue)]
    return "\n".join(lines) + "\n"


def _title(e: Entry) -> str:
    return inline(e.title, 100) or f"Issue {e.issue}"


def _why(e: Entry) -> str:
    if e.state in ("DEFERRED", "BLOCKED"):
        need = "deferred" if e.state == "DEFERRED" else "a person must decide"
        return f"{need}: {inline(explain(e.failure, first_line(clean(e.detail))), 300)}"
    return {"WAITING": "waits for an answer to its question"}.get(e.state, "still being worked on")


def _cost(entries: tuple[Entry, ...]) -> str:
    total = sum(e.cost_usd for e in entries)
    return f"Model cost: ${total:.2f}" if total else ""


def merge_message(version: str, pull: int) -> str:
    return f"Release {version}\n\nMerges #{pull}.\n"


def needs_person(version: str, failure: str, detail: str) -> str:
    return (
        f"**Release {version} needs a person.** {sentence(failure, detail)}\n\n{log(detail, 3000)}"
        "What you can do: push a fix to either branch, or run `harness release cut` to have it judged again, "
        "or `harness release abandon`.\n"
    )


def resolve(branch: str, base: str, detail: str) -> str:
    return (
        f"Merge the branch `{base}` into this branch (`{branch}`) and resolve the conflicts so that the "
        f"intentions of both sides are kept and the tests pass. Change nothing else.\n\n"
        f"{clean(detail)[:4000].strip()}\n"
    )
