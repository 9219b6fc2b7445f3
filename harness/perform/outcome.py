"""Outcomes of effects, and the one policy of believing that something is not there.

`done` and `failed` close an intent. `ambiguous` (it may have happened) and `deferred` (not now) leave it
open.
`later` was our own spacing: nothing was sent, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from harness.core.result import Err, Ok, Pass, Result
from harness.failures import Counter, Failure, rule


@dataclass(frozen=True, slots=True)
class Outcome:
    status: str
    value: Any = None
    failure: str = ""
    detail: str = ""
    not_before: float = 0.0
    absent: int = 0
    sent_at: float | None = None

    @classmethod
    def done(cls, value: Any = None) -> Outcome:
        return cls("done", value)

    @classmethod
    def failed(cls, failure: str, detail: str) -> Outcome:
        return cls("failed", None, str(failure), detail)


@dataclass(frozen=True, slots=True)
class Sent:
    """`at`: the last moment at which the effect may have been sent (POSIX seconds),
    None when it surely was not.
    `absent`: the reads since then that did not find it. `tries`: outcomes so far."""

    at: float | None
    absent: int = 0
    tries: int = 0


NOT_THERE = object()
# Classes after which the world is asked again rather than the work given up.
PASSING = frozenset(
    {
        Failure.FORGE_DOWN,
        Failure.FORGE_RATE_LIMITED,
        Failure.INFRA_ENGINE,
        Failure.INFRA_GATEWAY,
        Failure.DISK_FULL,
        Failure.AUTH_FAILED,
        Failure.INFRA_KILLED,
        Failure.TIMEOUT,
    }
)


def from_result(result: Result[Any], now: float, make: Callable[[Any], Any] = lambda v: v) -> Outcome:
    """The outcome of a write: what may have happened is ambiguous, what passes is deferred,
    the rest is final."""
    if isinstance(result, Ok):
        return Outcome.done(make(result.value))
    if isinstance(result, Pass):
        return Outcome("later", detail=result.message, not_before=now + 0.2)
    if result.failure == Failure.FORGE_RATE_LIMITED and result.detail.startswith("own:"):
        return Outcome("later", detail=result.detail, not_before=result.not_before or now + 1.0)
    if result.maybe:
        return Outcome("ambiguous", None, result.failure, result.detail, result.not_before or 0.0, 0, now)
    if result.failure in PASSING or (
        rule(result.failure).counter is Counter.NOBODY and rule(result.failure).retried
    ):
        return Outcome("deferred", None, result.failure, result.detail, result.not_before or 0.0)
    return Outcome.failed(result.failure, result.detail)


def keyed(
    look: Callable[[], Result[Any]],
    act: Callable[[], Outcome],
    sent: Sent,
    *,
    lags: bool,
    now: float,
    lag_s: float,
    lag_reads: int,
) -> Outcome:
    """Look for the key, then act. `look` answers Ok(value), Ok(NOT_THERE), or why it could not be told.

    Where reads may lag behind writes and the effect may have been sent, "not there" counts only from reads
    begun `lag_s` after the last possible send, `lag_reads` times, ever further apart; then it is sent again.
    """
    if lags and sent.at is not None and now < sent.at + lag_s:
        return Outcome("ambiguous", None, "", "looking whether it happened", sent.at + lag_s, 0, sent.at)
    found = look()
    if not isinstance(found, Ok):
        bad = from_result(found, now)
        keep = sent.at if bad.status in ("ambiguous", "deferred") else None
        return Outcome(
            "deferred" if bad.status == "ambiguous" else bad.status,
            None,
            bad.failure,
            bad.detail,
            bad.not_before,
            0,
            keep,
        )
    if found.value is not NOT_THERE:
        return Outcome.done(found.value)
    if lags and sent.at is not None and sent.absent + 1 < lag_reads:
        return Outcome(
            "ambiguous", None, "", "not there yet", now + 2.0 ** (sent.absent + 1), sent.absent + 1, sent.at
        )
    done = act()
    if lags and done.status == "ambiguous":
        # No look counts before then, so nobody looks.
        return replace(done, not_before=max(done.not_before, now + lag_s))
    return done


def err(result: Err) -> str:
    return f"{result.failure}: {result.detail}"
