"""What the forge's answers mean for us: the one place where a status becomes a class of the failure table.

The one rule: GitHub says different things with the same status, so its wording decides; what is not known
here is a bug of ours to look at (`INTERNAL_ERROR`), never something to repeat blindly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from harness.adapters.github.wire import Answer
from harness.core.result import Err
from harness.failures import Failure as F

DETAIL_LIMIT = 300
MODIFIED = "the base branch was modified"
EXISTS = "already exists"
LOCKED = "locked"
ARCHIVED = "archived"
NO_COMMITS = "no commits between base and head"
UNSEEN = "not seen yet"
STRANGERS = "the two branches have no history in common: somebody rewrote one of them"

_LIMITED = re.compile(
    r"rate limit|abuse detection|wait a few minutes before you try again|submitted too quickly", re.IGNORECASE
)
_PRIMARY = re.compile(r"API rate limit exceeded", re.IGNORECASE)
_TOO_LONG = re.compile(r"too long|too large|too big|maximum is \d+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Limit:
    """The forge asked to slow down. `primary`: the hourly quota is used up. `reset_at` is by our own
    clock."""

    primary: bool
    retry_after_s: float | None
    reset_at: float | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """One row: these statuses with this wording mean this class. An empty `detail` shows the forge's
    words."""

    statuses: tuple[int, ...]
    wording: str
    failure: F
    detail: str = ""

    def fits(self, status: int, text: str) -> bool:
        return status in self.statuses and re.search(self.wording, text, re.IGNORECASE) is not None


TABLE: tuple[Refusal, ...] = (
    Refusal((401,), "", F.AUTH_FAILED, "the forge refused the credential (401)"),
    Refusal((403, 423), r"\barchived\b", F.POLICY_VIOLATION, ARCHIVED),
    Refusal((403, 423), r"\blocked\b", F.POLICY_VIOLATION, LOCKED),
    Refusal((403,), "", F.AUTH_FAILED),
    Refusal((404,), "", F.GONE, "not found, or hidden from this credential"),
    Refusal((410,), "", F.GONE),
    Refusal((451,), "", F.GONE),
    Refusal((405, 409), r"base branch was modified", F.FORGE_DOWN, MODIFIED),
    Refusal((405,), r"conflict", F.CONFLICT),
    Refusal((405,), "", F.POLICY_VIOLATION),
    Refusal((409,), "", F.CONFLICT),
    Refusal((422,), r"already[ _]exists", F.CONFLICT, EXISTS),
    Refusal((422,), r"no commits between", F.AGENT_NO_CHANGES, NO_COMMITS),
    Refusal((422,), r"no commit found", F.FORGE_DOWN, UNSEEN),
    Refusal((422,), r"no history in common|entirely different commit histories", F.CONFLICT, STRANGERS),
    Refusal((400, 406, 413, 414, 415, 422, 428, 431), "", F.INTERNAL_ERROR),
)
"""First fit wins. 301 and 5xx are not here: see `refuse`."""


def words(answer: Answer) -> str:
    """What the forge said, as one line: its message and those of its list of errors."""
    try:
        raw = answer.json()
    except ValueError:
        return ""
    if not isinstance(raw, Mapping):
        return ""
    said = [str(raw.get("message") or "")]
    errors = raw.get("errors")
    for e in errors if isinstance(errors, list) else []:
        if isinstance(e, Mapping):
            said.append(" ".join(str(e[k]) for k in ("resource", "field", "code", "message") if e.get(k)))
        else:
            said.append(str(e))
    return " ".join("; ".join(s for s in said if s).split())[:DETAIL_LIMIT]


def too_long(answer: Answer) -> bool:
    return answer.status in (413, 422) and _TOO_LONG.search(words(answer)) is not None


def unseen_end(answer: Answer) -> str:
    """Which end of a pull request, head or base, the forge does not know (yet): its error names the field and
    no message. Empty where it is no such error."""
    if answer.status != 422:
        return ""
    try:
        errors = answer.json().get("errors") or ()
    except (ValueError, AttributeError):
        return ""
    ends = {"head": "head", "head_sha": "head", "base": "base"}
    for e in errors:
        if isinstance(e, Mapping) and e.get("field") in ends and e.get("code") in ("invalid", "missing"):
            return ends[e["field"]]
    return ""


def limit_in(answer: Answer, now: float) -> Limit | None:
    """Whether this answer is a rate limit, by status, headers and wording.

    GitHub's documentation: 403 or 429; Retry-After where present; else the reset when nothing remains;
    else at least a minute. A 403 without any of these signs is a refusal and must not be repeated."""
    if answer.status not in (403, 429):
        return None
    said = words(answer)
    retry_after_s = _number(answer.headers.get("retry-after"))
    nothing_left = answer.headers.get("x-ratelimit-remaining") == "0"
    if answer.status == 403 and retry_after_s is None and not nothing_left and not _LIMITED.search(said):
        return None
    primary = nothing_left or bool(_PRIMARY.search(said))
    reset_at = reset_of(answer, now) if nothing_left else None
    return Limit(primary, retry_after_s, reset_at)


def reset_of(answer: Answer, now: float) -> float | None:
    """When the quota starts anew, by our clock: the forge's times are taken relative to its own Date."""
    reset = _number(answer.headers.get("x-ratelimit-reset"))
    if reset is None:
        return None
    theirs = date_of(answer)
    return reset if theirs is None else now + max(0.0, reset - theirs)


def date_of(answer: Answer) -> float | None:
    """The forge's own clock when it answered (POSIX seconds)."""
    try:
        return parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
    except (TypeError, ValueError):
        return None


def refuse(answer: Answer, write: bool, now: float) -> Err:
    """The Err of an answer that is neither 2xx nor 304 nor a rate limit.

    A write that ended in 5xx (or 408) may have been carried out all the same."""
    status, said = answer.status, words(answer)
    if status >= 500 or status == 408:
        after_s = _number(answer.headers.get("retry-after"))
        not_before = now + after_s if after_s is not None else None
        return Err(F.FORGE_DOWN, f"the forge answered {status}", maybe=write, not_before=not_before)
    if 300 <= status < 400:
        where = answer.headers.get("location", "")
        return Err(F.CONFIG_INVALID, f"moved to {where}; set forge.repo and forge.url to where it is now")
    for row in TABLE:
        if row.fits(status, said):
            return Err(row.failure, row.detail or said or f"the forge answered {status}")
    return Err(F.INTERNAL_ERROR, f"the forge answered {status}: {said}")


def lost(why: str, write: bool) -> Err:
    """No answer came (whole)."""
    return Err(F.FORGE_DOWN, f"the forge did not answer: {why}", maybe=write)


def unreadable(write: bool) -> Err:
    """A 2xx whose body is not what the API promises (a proxy's page): what was asked may have happened."""
    return Err(F.FORGE_DOWN, "the forge's answer cannot be read", maybe=write)


def _number(text: Any) -> float | None:
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if 0 <= value < 1e11 else None
