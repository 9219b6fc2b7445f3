"""Commit messages: `Refs`, never a closing keyword; the subject is one line that begins with a letter."""

from __future__ import annotations

from harness.texts.outside import neutral, one_line


def commit_message(issue: int, title: str, summary: str) -> str:
    subject = one_line(neutral(title), 64).lstrip("#- ") or "Work"
    if subject[:1].isdigit():
        subject = f"Issue {subject}"
    body = neutral(summary, 4000).strip()
    refs = f"Refs #{issue}" if issue else ""
    return "\n\n".join(x for x in (subject, body, refs) if x) + "\n"


def merge_message(issue: int, title: str, pull: int) -> str:
    return f"Merge #{pull}: {one_line(neutral(title), 60)}\n\nRefs #{issue}\n"
