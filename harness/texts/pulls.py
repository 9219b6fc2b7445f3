"""Title and body of an issue's pull."""

from __future__ import annotations

from harness.texts import outside


def pull_title(issue: int, title: str) -> str:
    """The issue's title in its own characters, on one line; GitHub allows 256."""
    return outside.title(title, 200) or f"Work on issue {issue}"


def flagged(body: str, flags: tuple[str, ...]) -> str:
    """The body, and what whoever reviews it should look at first."""
    if not flags:
        return body
    lines = "\n".join(f"* {outside.inline(f)}" for f in flags[:50])
    return f"{body}\nTo look at before it lands:\n\n{lines}\n"


def pull_body(issue: int, title: str, attempt: str, lane: bool = True) -> str:
    """`lane` says that it lands in a release of ours; else a person merges it."""
    if not lane:
        return f"Refs #{issue}\n\nAttempt {attempt} at this issue. A person merges it.\n"
    return (
        f"Refs #{issue}\n\n"
        f"Attempt {attempt} at this issue. The director merges this branch with the release branch itself, "
        "runs the validation on exactly that commit, and lands it when that is green. The issue is closed "
        "when the release is published.\n"
    )
