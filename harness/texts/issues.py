"""What people read on an issue: the one status comment, and a new comment only when somebody must act.

The one rule: each says what happened, why, and what can be done now, in that order.
"""

from __future__ import annotations

from harness.failures import explain
from harness.texts.outside import clean, fence, neutral, quote

UNFILLED = "The issue's description is a template that nobody filled in. What should be done?"


def first_line(text: str, limit: int = 300) -> str:
    """The first line with something in it (a block of code's border is nothing), cut."""
    lines = [x.strip() for x in text.strip().splitlines() if x.strip(" \t`~")]
    return lines[0][:limit] if lines else ""


def claimed(title: str) -> str:
    return (
        "**Working on it.** This issue is being worked on for the next release, from its text as it is now: "
        "a later edit does not change what is done. This comment is kept up to date.\n"
    )


def question(text: str) -> str:
    return (
        "**A question before this can go on.**\n\n"
        f"{quote(text)}\n\n"
        "Answer in a comment below. Anyone with write access can; the first such answer counts, and the work "
        "goes on with it by itself.\n"
    )


def landed(pull: int, release: str, audits: tuple[str, ...]) -> str:
    return (
        f"**Landed** with #{pull} on the branch of release {release}. The issue is closed when that release "
        f"is published.\n{_evidence(audits)}"
    )


def merged(pull: int, audits: tuple[str, ...]) -> str:
    return f"**Merged** with #{pull}.\n{_evidence(audits)}"


def released(pull: int, tag: str, audits: tuple[str, ...]) -> str:
    return f"**Released** in {tag}, with #{pull}.\n{_evidence(audits)}"


def stopped(why: str) -> str:
    """Why nothing more is done: a person ended it, or somebody else had claimed it first."""
    text = neutral(first_line(clean(why)), 300)
    return f"**Not worked on any more.** {text[:1].upper()}{text[1:]}.\n"


def deferred(failure: str, detail: str, label: str, audits: tuple[str, ...]) -> str:
    return (
        f"**Not in this release.** {sentence(failure, detail)}\n\n{log(detail)}"
        "What you can do: edit the issue or mend the cause, then take the label "
        f"`{label}:deferred` (or `{label}:needs-you`) off, or run `harness retry` with this issue's "
        f"number. Until then nothing more is tried.\n{_evidence(audits)}"
    )


def blocked(failure: str, detail: str, issue: int, audits: tuple[str, ...]) -> str:
    return (
        f"**A person is needed.** {sentence(failure, detail)}\n\n{log(detail)}"
        f"What you can do: decide, then run `harness retry {issue}` or take the label off.\n"
        f"{_evidence(audits)}"
    )


def sentence(failure: str, detail: str) -> str:
    """The failure in words and the first line of what was seen, as one sentence that ends."""
    text = neutral(explain(failure, first_line(clean(detail))), 600).rstrip()
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def log(detail: str, limit: int = 2000) -> str:
    """What follows the first line, as a log."""
    _, _, rest = clean(detail).strip().partition("\n")
    return f"{fence(rest.strip(chr(10)), limit)}\n\n" if rest.strip() else ""


def _evidence(audits: tuple[str, ...]) -> str:
    return "\nEvidence: " + ", ".join(f"`{a}`" for a in audits) + "\n" if audits else ""
