"""What every agent is given, whichever it is: its environment, its files below HOME, where a question goes.

The one rule: the prompt is a file or standard input, never an argument (one argument holds 131071 bytes), and
no secret is among all this: the key is a dummy that the gateway replaces.

Files are named relative to HOME. They are written empty before each run, so what is read after it is of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from harness.domain import AgentResult
from harness.ports import Brief

PROMPT_FILE = ".harness/prompt.md"
QUESTION_FILE = ".harness/question.md"
RESULT_FILE = ".harness/result.json"
SESSION_DIR = ".harness/session"
DUMMY_KEY = "the-gateway-has-the-key"
STATUSES = frozenset(
    (
        "done", "question", "rate_limited", "quota", "overloaded", "auth", "context", "connection", 
        "max_turns", "sandbox", "interrupted", "timeout", "looped", "error",
    )
)  # fmt: skip
MESSAGE_LIMIT = 4000
QUESTION_LIMIT = 8000
_KILLED = frozenset((129, 130, 137, 143))  # HUP, INT, KILL, TERM
_BLANK = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def environment(brief: Brief) -> dict[str, str]:
    """`brief.env` (the configuration's, HARNESS_ATTEMPT and the like) under what is ours to say."""
    home = brief.home.rstrip("/")
    return {
        **(brief.env or {}),
        "HOME": brief.home,
        "HARNESS_RUN": brief.run,
        "HARNESS_ISSUE": str(brief.issue),
        "HARNESS_ROUND": str(brief.round),
        "HARNESS_SESSION": brief.session,
        "HARNESS_MODEL": brief.model,
        "HARNESS_MODEL_URL": brief.model_url,
        "HARNESS_PROMPT_FILE": f"{home}/{PROMPT_FILE}",
        "HARNESS_QUESTION_FILE": f"{home}/{QUESTION_FILE}",
        "HARNESS_RESULT_FILE": f"{home}/{RESULT_FILE}",
        "HARNESS_SESSION_DIR": f"{home}/{SESSION_DIR}",
    }


def prompt(brief: Brief) -> str:
    """The prompt; it says where a question goes, if it does not yet."""
    path = f"{brief.home.rstrip('/')}/{QUESTION_FILE}"
    if path in brief.prompt:
        return brief.prompt
    return (
        f"{brief.prompt.rstrip()}\n\n"
        f"If you cannot go on without a person's decision, write your question to the file {path} and stop.\n"
    )


def fresh_files(brief: Brief) -> dict[str, str]:
    return {PROMPT_FILE: prompt(brief), QUESTION_FILE: "", RESULT_FILE: "", f"{SESSION_DIR}/.keep": ""}


def question(files: Mapping[str, bytes]) -> str:
    return plain(files.get(QUESTION_FILE, b"").decode("utf-8", "replace"), QUESTION_LIMIT)


def ended(said: AgentResult, asked: str, exit_code: int | None) -> AgentResult:
    """What its words and its exit say together: a question outranks an end without a reason; the good word of
    a run that failed or was killed is not believed. `message` is a summary only of done and question."""
    status = said.status
    if asked and status in ("done", "error"):
        status = "question"
    elif status == "done" and exit_code != 0:
        status = "interrupted" if killed(exit_code) else "error"
    message = plain(said.message, MESSAGE_LIMIT)
    if not message and status not in ("done", "question"):
        message = (
            "it left no exit status" if exit_code is None else f"it exited with {exit_code} and said nothing"
        )
    return replace(said, status=status, message=message, question=asked)


def killed(exit_code: int | None) -> bool:
    return exit_code is None or exit_code < 0 or exit_code in _KILLED


def plain(text: str, limit: int) -> str:
    """Without control characters, and cut in the middle of nothing: the beginning is what people read."""
    clean = _BLANK.sub("", text.replace("\r\n", "\n")).strip()
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def count(value: Any) -> int:
    """A number of tokens out of somebody's JSON; 0 where it is none."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15
    return int(value) if good else 0


def amount(value: Any) -> float | None:
    """Seconds or dollars out of somebody's JSON; None where it is none."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12
    return float(value) if good else None


def text(value: Any) -> str:
    return value if isinstance(value, str) else ""
