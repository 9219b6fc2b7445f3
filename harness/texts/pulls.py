"""Title and body of an issue's pull."""

from __future__ import annotations

from harness.texts.outside import neutral, one_line


def pull_title(issue: int, title: str) -> str:
    return one_line(neutral(title), 200) or f"Work on issue {issue}"


def pull_body(issue: int, title: str, attempt: str) -> str:
    return (
        f"Refs #{issue}\n\nAttempt {attempt} of this issue. It lands on the release branch after the director has "
        "validated the merge commit itself; the issue is closed when the release is published.\n"
    )
