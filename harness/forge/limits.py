"""Rate limits, penalty windows, and the record of every request with the rules it broke.

The one rule: it is all in tables, so a restart forgives nothing.
"""

from __future__ import annotations

import math
from typing import Any

from harness.forge.errors import ApiError
from harness.forge.state import Call, Reply, State, Who

WINDOW_S = 3600
_SUPPORT = "If you reach out to GitHub Support for help, please include the request ID."
PRIMARY_WORDS = "API rate limit exceeded for user ID {user}. " + _SUPPORT
ANONYMOUS_WORDS = (
    "API rate limit exceeded for 127.0.0.1. (But here's the good news: Authenticated requests get a higher "
    "rate limit. Check out the documentation for more details.)"
)
SECONDARY_WORDS = (
    "You have exceeded a secondary rate limit. Please wait a few minutes before you try again. " + _SUPPORT
)


def key_of(who: Who | None) -> str:
    """What a limit is counted by: the token, or "anonymous"."""
    return "anonymous" if who is None else who.key


def limit_of(state: State, who: Who | None) -> int:
    return state.settings.anonymous_limit if who is None else state.settings.primary_limit


def usage(state: State, who: Who | None) -> tuple[int, int, int]:
    """(limit, used, reset as epoch seconds) of the caller's window, begun anew when it has passed."""
    key, limit = key_of(who), limit_of(state, who)
    row = state.db.one("SELECT * FROM limits WHERE key = ?", key)
    if row is None or row["reset"] <= state.now():
        reset = math.ceil(state.now()) + WINDOW_S
        state.db.run("INSERT OR REPLACE INTO limits VALUES (?,?,0)", key, reset)
        return limit, 0, reset
    return limit, row["used"], math.ceil(row["reset"])


def headers(state: State, who: Who | None) -> dict[str, str]:
    limit, used, reset = usage(state, who)
    values = {"Limit": limit, "Remaining": max(limit - used, 0), "Reset": reset, "Used": used}
    return {f"X-RateLimit-{name}": str(value) for name, value in values.items()} | {
        "X-RateLimit-Resource": "core"
    }


def charge(state: State, who: Who | None) -> None:
    """Count one request; 403 with GitHub's words when none was left."""
    limit, used, _ = usage(state, who)
    if used >= limit:
        raise primary(who)
    state.db.run("UPDATE limits SET used = used + 1 WHERE key = ?", key_of(who))


def refund(state: State, who: Who | None) -> None:
    """A 304 is not counted."""
    state.db.run("UPDATE limits SET used = max(used - 1, 0) WHERE key = ?", key_of(who))


def primary(who: Who | None) -> ApiError:
    words = ANONYMOUS_WORDS if who is None else PRIMARY_WORDS.format(user=who.user["id"])
    return ApiError(403, words)


def exhaust(state: State, who: Who | None, reset_s: float) -> None:
    """Set the caller's window to used up until ``reset_s`` seconds from now."""
    reset = math.ceil(state.now() + reset_s)
    sql = "INSERT OR REPLACE INTO limits VALUES (?,?,?)"
    state.db.run(sql, key_of(who), reset, limit_of(state, who))


def punish(state: State, who: Who | None, kind: str, seconds: float, *, enforced: bool) -> None:
    """Open a penalty window; requests inside it are violations, and refused when it is enforced."""
    now = state.now()
    window = {"key": key_of(who), "kind": kind, "enforced": int(enforced)}
    state.db.insert("penalties", **window, begins=now, ends=now + seconds)


def penalty(state: State, who: Who | None) -> tuple[bool, str | None, float]:
    """(inside a window?, the kind that is enforced or None, seconds left)."""
    now = state.now()
    rows = state.db.all("SELECT * FROM penalties WHERE key = ? AND ends > ?", key_of(who), now)
    enforced = next((row for row in rows if row["enforced"]), None)
    left = max((row["ends"] - now for row in rows), default=0.0)
    return bool(rows), enforced["kind"] if enforced else None, left


def overview(call: Call) -> Reply:
    """`GET /rate_limit`: not counted itself."""
    limit, used, reset = usage(call.state, call.who)
    core = {"limit": limit, "used": used, "remaining": max(limit - used, 0), "reset": reset}
    other = {"limit": 30, "used": 0, "remaining": 30, "reset": reset}
    return Reply(200, {"resources": {"core": core, "search": other, "graphql": core}, "rate": core})


# -- the record -----------------------------------------------------------------------------------


def gap(state: State, key: str, at: float) -> float | None:
    """Seconds since the same caller's last REST write, None when there was none."""
    sql = "SELECT max(at) AS last FROM requests WHERE key = ? AND is_write = 1 AND is_git = 0"
    last = state.db.must(sql, key)["last"]
    return None if last is None else at - last


def note(
    state: State,
    *,
    at: float,
    method: str,
    path: str,
    status: int | None,
    who: Who | None,
    fault: str | None,
    inside: bool,
    took_s: float,
    is_git: bool = False,
) -> None:
    """Write one request down. ``status`` of None means the connection was dropped."""
    key = key_of(who)
    writes = method not in ("GET", "HEAD") if not is_git else path.endswith("git-receive-pack")
    since = gap(state, key, at) if writes and not is_git else None
    rule = state.settings.min_write_gap_s
    soon = rule is not None and since is not None and since < rule - state.settings.write_gap_tolerance_s
    new = state.db.insert(
        "requests",
        at=at,
        method=method,
        path=path,
        status=status,
        user=who.user["login"] if who else None,
        key=key,
        is_write=int(writes),
        is_git=int(is_git),
        fault=fault,
        in_penalty=int(inside),
        gap_s=since,
        too_soon=int(soon),
        took_s=took_s,
    )
    if new % 1000 == 0:
        state.db.run("DELETE FROM requests WHERE id <= ?", new - state.settings.requests_kept)


def report(state: State) -> dict[str, Any]:
    """What was asked of this forge, and which rules were broken. REST counts leave git traffic out."""
    one = state.db.must(
        "SELECT count(*) AS total, coalesce(sum(is_write = 0 AND is_git = 0), 0) AS reads, "
        "coalesce(sum(is_write = 1 AND is_git = 0), 0) AS writes, coalesce(sum(is_git), 0) AS git, "
        "coalesce(sum(status = 304), 0) AS not_modified, coalesce(sum(status IS NULL), 0) AS dropped, "
        "coalesce(sum(fault IS NOT NULL), 0) AS faults, coalesce(sum(in_penalty), 0) AS in_penalty, "
        "coalesce(sum(too_soon), 0) AS too_soon FROM requests"
    )
    where = "SELECT id, at, method, path, status, user, gap_s, in_penalty, too_soon FROM requests WHERE "
    broken = state.db.all(where + "in_penalty = 1 OR too_soon = 1 ORDER BY id LIMIT 1000")
    by_status = state.db.all("SELECT status, count(*) AS n FROM requests GROUP BY status ORDER BY status")
    return {
        **dict(one),
        "by_status": {str(row["status"]): row["n"] for row in by_status},
        "violations": {"in_penalty": one["in_penalty"], "too_soon": one["too_soon"]},
        "broken": [dict(row) for row in broken],
    }
