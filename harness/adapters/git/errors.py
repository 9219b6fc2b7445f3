"""What git's exit and its last words mean: one table from stderr to the failure classes.

The one rule: every error of git becomes an `Err` here, once, with no credential in its text.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

from harness.core.result import Err, Result
from harness.failures import Failure

P = ParamSpec("P")
T = TypeVar("T")

DETAIL_LIMIT = 600
_FULL = (errno.ENOSPC, errno.EDQUOT)


class FailedError(Exception):
    """Carries an `Err` from inside the adapter to its edge; never leaves it."""

    def __init__(self, err: Err) -> None:
        super().__init__(f"{err.failure}: {err.detail}")
        self.err = err


@dataclass(frozen=True, slots=True)
class Ran:
    """A git command that ended. `code` is negative for a signal; `late` says that our deadline ended it,
    `flooded` that it printed more than allowed, `closed` that we are shutting down, `net` that it spoke with
    the forge."""

    args: tuple[str, ...]
    code: int
    out: bytes = b""
    err: str = ""
    late: bool = False
    flooded: bool = False
    closed: bool = False
    net: bool = False

    @property
    def text(self) -> str:
        return self.out.decode("utf-8", "replace").strip()

    @property
    def unanswered(self) -> bool:
        """It was killed or stopped before its end: what it was asked is not known then, which is no "no"."""
        return self.code < 0 or self.closed or self.late

    @property
    def verb(self) -> str:
        return self.args[0] if self.args else "git"


def fail(failure: Failure, detail: str, *, maybe: bool = False) -> FailedError:
    return FailedError(Err(failure, detail, maybe=maybe))


def edge(method: Callable[P, Result[T]]) -> Callable[P, Result[T]]:
    """A public method of the adapter: what was raised inside becomes an `Err`; bugs go on as they are."""

    @wraps(method)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> Result[T]:
        try:
            return method(*args, **kwargs)
        except FailedError as e:
            return e.err
        except OSError as e:
            return of_os_error(e)

    return guarded


def of_os_error(e: OSError) -> Err:
    if e.errno in _FULL:
        return Err(
            Failure.DISK_FULL, f"no space left for {e.filename or 'the data folder'}: free some disk space"
        )
    return Err(Failure.INFRA_KILLED, f"{e.strerror or e}: {e.filename or 'a file of ours'}")


_REDACT = re.compile(r"(?i)(://)[^/@\s]+@|(authorization:\s*\w+\s+)\S+")


def redact(text: str, secrets: tuple[str, ...] = ()) -> str:
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return _REDACT.sub(lambda m: (m.group(1) or m.group(2)) + ("***@" if m.group(1) else "***"), text)


# git asks for a user name after a 401, and may not: that is what the last two of these say.
_UNAUTHORIZED = re.compile(
    r"(?i)error: 401|authentication failed|invalid username or (password|token)"
    r"|could not read (username|password)|terminal prompts disabled"
)


def unauthorized(ran: Ran) -> bool:
    """The forge refused the credential itself (401): another one may do."""
    return ran.code != 0 and bool(_UNAUTHORIZED.search(ran.err))


# First match counts. Classes: retried ones are those of outages; what a person must change is not.
_TABLE: tuple[tuple[re.Pattern[str], Failure, str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), failure, hint)
    for pattern, failure, hint in (
        (
            r"remote unpack failed|unpacker error|remote: fatal: .*no space",
            Failure.FORGE_DOWN,
            "the forge failed",
        ),
        (r"no space left on device|disk quota exceeded", Failure.DISK_FULL, "free some disk space"),
        (_UNAUTHORIZED.pattern.removeprefix("(?i)"), Failure.AUTH_FAILED, "the forge refused the token"),
        (
            r"error: 403|permission to .* denied|write access to repository not granted|not authorized",
            Failure.AUTH_FAILED,
            "the token may not do this: give it read and write access to the repository's contents",
        ),
        (
            r"error: 30\d",
            Failure.CONFIG_INVALID,
            "the repository has moved: set forge.url and forge.repo to its new address",
        ),
        (r"error: 429|rate limit", Failure.FORGE_RATE_LIMITED, "the forge asked to slow down"),
        (
            r"repository not found|error: 404|repository '.*' (not found|does not exist)"
            r"|does not appear to be a git repository",
            Failure.CONFIG_INVALID,
            "no such repository, or the token may not see it: check forge.url and forge.repo",
        ),
        (
            r"could not resolve host|couldn't connect|failed to connect|connection (refused|reset|timed out)"
            r"|error: 5\d\d|early eof|rpc failed|hung up unexpectedly|operation (too slow|timed out)"
            r"|unable to access|empty reply|unexpected disconnect|ssl|gnutls|curl \d+|bad line length"
            r"|protocol error"
            r"|could not read from remote|internal server error|invalid index-pack output|expected .* after"
            r"|unable to write flush packet|broken pipe"
            r"|sideband|bad pack header|unexpected flush packet|unable to rewind rpc",
            Failure.FORGE_DOWN,
            "the forge does not answer as it should",
        ),
        (
            r"transport '.*' not allowed",
            Failure.CONFIG_INVALID,
            "only https, http and file remotes are supported",
        ),
        (
            r"too many open files|resource temporarily unavailable|input/output error",
            Failure.INFRA_KILLED,
            "this machine is short of something, or its disk fails",
        ),
        (r"cannot lock ref|unable to create '.*\.lock'", Failure.INFRA_KILLED, "a lock of git is held"),
        (r"out of memory|over limit|cannot allocate", Failure.OOM, "git ran out of the memory allowed"),
    )
)


def classify(ran: Ran, *, what: str = "", maybe: bool = False) -> Err:
    """The `Err` of a command that did not end well. `maybe` where it may have changed something outside."""
    doing = what or f"git {ran.verb}"
    words = tail(ran.err)
    if ran.closed:
        return Err(Failure.INFRA_KILLED, f"{doing} was ended because the harness is stopping", maybe=maybe)
    if ran.late:
        # A forge that stalls is an outage, charged to nobody.
        failure = Failure.FORGE_DOWN if ran.net else Failure.TIMEOUT
        return Err(failure, f"{doing} took longer than allowed", maybe=maybe)
    if ran.flooded:
        return Err(Failure.POLICY_VIOLATION, f"{doing} printed more than allowed: the change is too large")
    if ran.code == 127 and "git" in words and "No such file" in words:
        return Err(Failure.CONFIG_INVALID, "git is not installed: install git 2.39.4 or newer")
    for pattern, failure, hint in _TABLE:
        if pattern.search(ran.err):
            return Err(failure, f"{doing}: {hint} ({words})", maybe=maybe and failure is Failure.FORGE_DOWN)
    if ran.code < 0:
        return Err(Failure.INFRA_KILLED, f"{doing} was ended by signal {-ran.code}", maybe=maybe)
    return Err(Failure.INTERNAL_ERROR, f"{doing} exited {ran.code}: {words}", maybe=maybe)


def tail(text: str) -> str:
    """The last words, on one line."""
    return " / ".join(line.strip() for line in text.strip().splitlines() if line.strip())[-DETAIL_LIMIT:]
