"""What people read on an issue: the one status comment, and a new comment only when somebody must act."""

from __future__ import annotations

from harness.failures import explain
from harness.texts.outside import fence, neutral, quote


def first_line(text: str, limit: int = 300) -> str:
    lines = [x.strip() for x in text.strip().splitlines() if x.strip()]
    return lines[0][:limit] if lines else ""


def claimed(title: str) -> str:
    return "**Working on it.** This issue was taken into the next release. This comment is kept up to date.\n"


def question(text: str) -> str:
    return (
        "**A question before this can go on.** Answer in a comment below; anyone with write access can. "
        "Work goes on by itself after that.\n\n" + quote(text)
    )


def landed(pull: int, release: str, audits: tuple[str, ...]) -> str:
    return f"**Landed** with #{pull} on the branch of release {release}. The issue is closed when it is published.\n" + _evidence(audits)


def deferred(failure: str, detail: str, label: str, audits: tuple[str, ...]) -> str:
    return (
        f"**Not in this release.** {_sentence(failure, detail)}\n\n{_log(detail)}"
        f"What you can do: edit the issue or fix the cause, then take the label `{label}:deferred` (or "
        f"`{label}:needs-you`) off, or run `harness retry`. Until then nothing more is tried.\n" + _evidence(audits)
    )


def blocked(failure: str, detail: str, issue: int, audits: tuple[str, ...]) -> str:
    return (
        f"**A person is needed.** {_sentence(failure, detail)}\n\n{_log(detail)}"
        f"What you can do: decide, then run `harness retry {issue}` or take the label off.\n" + _evidence(audits)
    )


def _sentence(failure: str, detail: str) -> str:
    text = neutral(explain(failure, first_line(detail)), 600)
    return (text[:1].upper() + text[1:]).rstrip(".") + "."


def _log(detail: str) -> str:
    rest = detail.strip().split("\n", 1)
    return fence(rest[1], 2000) + "\n\n" if len(rest) > 1 and rest[1].strip() else ""


def _evidence(audits: tuple[str, ...]) -> str:
    return "\nEvidence: " + ", ".join(f"`{a}`" for a in audits) + "\n" if audits else ""
