"""Commit messages: one subject line that git never takes for a comment, `Refs`, and no closing keyword.

The one rule: nothing in a message acts on its own: no mention, no closing keyword, no order to skip checks.
"""

from __future__ import annotations

import re

from harness.texts.outside import STOP, plain, title

SUBJECT_LIMIT = 72
BODY_LIMIT = 4000

# "[skip ci]", "[ci skip]", "[no ci]", "[skip actions]", "***NO_CI***", "skip-checks: true" skip the checks.
_SKIPS = re.compile(
    r"(?<=\[)(?:skip|ci|no|actions)(?=[ -](?:ci|skip|actions)\])|\b(?:skip|NO)(?=-checks:|_CI\b)",
    re.IGNORECASE,
)


def commit_message(issue: int, title: str, summary: str) -> str:
    """Subject, the agent's summary, and the issue. Lines of the body that begin with "#" stay: the message is
    committed as it is."""
    refs = f"Refs #{issue}" if issue else ""
    return "\n\n".join(x for x in (_subject(title), _body(summary), refs) if x) + "\n"


def merge_message(issue: int, title: str, pull: int) -> str:
    """Of the merge that lands an issue on the release branch."""
    return f"Merge #{pull}: {_subject(title, 56)}\n\nRefs #{issue}\n"


def _subject(text: str, limit: int = SUBJECT_LIMIT) -> str:
    """Never empty, never beginning with "#" or "-": git would strip it, or a tool take it for an option."""
    line = title(text, limit - len("Issue ")).strip()
    numbered = re.match(r"#+(?=\d)", line)
    line = f"Issue #{line[numbered.end() :]}" if numbered else line.lstrip("#-; \t")
    return _inert(line) or "Work on the issue"


def _body(text: str) -> str:
    return _inert(plain(text, BODY_LIMIT).strip())


def _inert(text: str) -> str:
    return _SKIPS.sub(lambda m: f"{m[0]}{STOP}", text)
