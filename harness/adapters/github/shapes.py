"""GitHub's JSON to the plain values of `harness.domain`.

The one rule: null and missing mean the same ("" or nothing), and every time becomes POSIX seconds, one
without a zone taken as UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from harness.domain import Account, Check, Comment, Issue, Published, Pull, Repository, Review

Json = Mapping[str, Any]
GHOST = "ghost"
"""Whom GitHub shows in place of a deleted account."""

_PERMISSIONS = (
    ("admin", "admin"),
    ("maintain", "maintain"),
    ("push", "write"),
    ("triage", "triage"),
    ("pull", "read"),
)
_METHODS = (
    ("allow_merge_commit", "merge"),
    ("allow_squash_merge", "squash"),
    ("allow_rebase_merge", "rebase"),
)
_RUN_STATES = {
    "success": "success",
    "cancelled": "cancelled",
    "stale": "cancelled",
    # A neutral run proves nothing, so it must not count as passed.
    "neutral": "skipped",
    "skipped": "skipped",
}


def posix(text: str | None) -> float:
    """ISO 8601 to POSIX seconds; 0.0 for none. No zone means UTC, whatever the zone of this machine is."""
    if not text:
        return 0.0
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def iso(at: float) -> str:
    """POSIX seconds as the forge writes them."""
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _who(raw: Json) -> tuple[str, str]:
    user = raw.get("user") or {}
    return str(user.get("login") or GHOST), str(user.get("type") or "User")


def account(raw: Json, scopes: str) -> Account:
    listed = tuple(sorted(s.strip() for s in scopes.split(",") if s.strip()))
    return Account(str(raw.get("login") or ""), str(raw.get("type") or "User"), listed)


def repository(raw: Json) -> Repository:
    """`permissions` and `allow_*` are only there for those who may push; without them the defaults stand."""
    may = raw.get("permissions") or {}
    permission = next((ours for theirs, ours in _PERMISSIONS if may.get(theirs)), "none" if may else "write")
    methods = tuple(ours for theirs, ours in _METHODS if raw.get(theirs))
    if not any(theirs in raw for theirs, _ in _METHODS):
        methods = tuple(ours for _, ours in _METHODS)
    return Repository(
        default_branch=str(raw.get("default_branch") or "main"),
        permission=permission,
        private=bool(raw.get("private")),
        merge_methods=methods,
        clone_url=str(raw.get("clone_url") or ""),
        html_url=str(raw.get("html_url") or ""),
    )


def is_pull(raw: Json) -> bool:
    """The issues endpoints list pull requests too; this key tells them apart."""
    return raw.get("pull_request") is not None


def label_names(raw: Iterable[Any]) -> tuple[str, ...]:
    names = (x.get("name") if isinstance(x, Mapping) else x for x in raw)
    return tuple(str(n) for n in names if n)


def issue(raw: Json) -> Issue:
    author, kind = _who(raw)
    return Issue(
        number=int(raw["number"]),
        title=str(raw.get("title") or ""),
        body=str(raw.get("body") or ""),
        author=author,
        author_kind=kind,
        labels=label_names(raw.get("labels") or ()),
        open=raw.get("state") != "closed",
        locked=bool(raw.get("locked")),
        created_at=posix(raw.get("created_at")),
        updated_at=posix(raw.get("updated_at")),
        url=str(raw.get("html_url") or ""),
    )


def comment(raw: Json) -> Comment:
    author, kind = _who(raw)
    created = posix(raw.get("created_at"))
    return Comment(
        id=int(raw["id"]),
        author=author,
        author_kind=kind,
        body=str(raw.get("body") or ""),
        created_at=created,
        updated_at=posix(raw.get("updated_at")) or created,
        url=str(raw.get("html_url") or ""),
    )


def pull(raw: Json) -> Pull:
    """Lists say `merged_at`, single pulls `merged` too. `merge_commit_sha` is a test merge until it is
    merged."""
    merged = bool(raw.get("merged")) or bool(raw.get("merged_at"))
    head, base = raw.get("head") or {}, raw.get("base") or {}
    mergeable = raw.get("mergeable")
    return Pull(
        number=int(raw["number"]),
        head=str(head.get("ref") or ""),
        base=str(base.get("ref") or ""),
        head_sha=str(head.get("sha") or ""),
        open=raw.get("state") != "closed",
        merged=merged,
        merge_sha=str(raw.get("merge_commit_sha") or "") if merged else "",
        title=str(raw.get("title") or ""),
        body=str(raw.get("body") or ""),
        draft=bool(raw.get("draft")),
        mergeable=None if mergeable is None else bool(mergeable),
        author=_who(raw)[0],
        url=str(raw.get("html_url") or ""),
    )


def review(raw: Json) -> Review:
    return Review(
        id=int(raw["id"]),
        author=_who(raw)[0],
        state=str(raw.get("state") or "").upper(),
        body=str(raw.get("body") or ""),
        sha=str(raw.get("commit_id") or ""),
        at=posix(raw.get("submitted_at")),
    )


def status_check(raw: Json) -> Check:
    state = str(raw.get("state") or "pending")
    return Check(
        str(raw.get("context") or ""),
        "failure" if state == "error" else state,
        str(raw.get("target_url") or ""),
    )


def run_check(raw: Json) -> Check:
    """A check run; a conclusion that is not known to be good counts as a failure."""
    state = "pending"
    if raw.get("status") == "completed":
        state = _RUN_STATES.get(str(raw.get("conclusion") or ""), "failure")
    return Check(str(raw.get("name") or ""), state, str(raw.get("details_url") or raw.get("html_url") or ""))


def published(raw: Json) -> Published:
    return Published(str(raw["tag_name"]), int(raw["id"]), str(raw.get("html_url") or ""))
