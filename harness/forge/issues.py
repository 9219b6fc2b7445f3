"""Issues: list, create, read, change, lock, assign. A pull request is an issue too, as on GitHub.

The one rule: every change a person could see leaves an event with its actor and moves `updated_at`.
"""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from typing import Any

from harness.forge import render
from harness.forge.errors import ApiError, invalid, not_found
from harness.forge.pages import page_of, window
from harness.forge.state import Call, Reply

BODY_LIMIT = 65_536
TITLE_LIMIT = 256


def find(call: Call, *, pull: bool = False, name: str = "number") -> sqlite3.Row:
    """The issue in the path: 404 unknown, 410 deleted, 301 transferred."""
    number = call.number(name)
    row = call.db.one("SELECT * FROM issues WHERE repo_id = ? AND number = ?", call.repo_id, number)
    if row is None or (pull and not row["is_pull"]):
        raise not_found()
    if row["deleted"]:
        raise ApiError(410, "This issue was deleted")
    if row["moved_to"]:
        target = f"{call.api}/repos/{row['moved_to']}"
        raise ApiError(301, "Moved Permanently", headers={"Location": target}, extra={"url": target})
    return row


def check_text(resource: str, field: str, text: Any, limit: int) -> str:
    if not isinstance(text, str):
        raise invalid(resource, field, "invalid")
    if len(text) > limit:
        said = f"{field} is too long (maximum is {limit} characters)"
        raise invalid(resource, field, "custom", said)
    return text


def record(
    call: Call, issue_id: int, event: str, *, actor: int | None = None, commit: str | None = None, **data: Any
) -> None:
    call.db.insert(
        "events",
        repo_id=call.repo_id,
        issue_id=issue_id,
        event=event,
        actor_id=call.user_id if actor is None else actor,
        commit_id=commit,
        data=json.dumps(data),
        created_at=call.now,
    )


def touch(call: Call, issue_id: int) -> None:
    call.db.run("UPDATE issues SET updated_at = ? WHERE id = ?", call.now, issue_id)


# -- lists ----------------------------------------------------------------------------------------


def list_for_repo(call: Call) -> Reply:
    where, args = _filters(call)
    if where is None:
        return page_of(call, [], 0)
    total = call.db.must(f"SELECT count(*) AS n FROM issues i WHERE {where}", *args)["n"]
    sort = {"created": "created_at", "updated": "updated_at"}.get(call.query.get("sort", "created"))
    order = "ASC" if call.query.get("direction") == "asc" else "DESC"
    by = f"i.{sort} {order}, i.number {order}"
    if call.query.get("sort") == "comments":
        by = f"(SELECT count(*) FROM comments c WHERE c.issue_id = i.id) {order}, i.number {order}"
    elif sort is None:
        raise invalid("Issue", "sort", "invalid")
    sql = f"SELECT i.* FROM issues i WHERE {where} ORDER BY {by} LIMIT ? OFFSET ?"
    return page_of(call, render.issues(call, call.db.all(sql, *args, *window(call))), total)


def _filters(call: Call) -> tuple[str | None, list[Any]]:
    """The WHERE clause of a list; None when a filter names somebody or something unknown."""
    where = ["i.repo_id = ?", "i.deleted = 0", "i.moved_to IS NULL"]
    args: list[Any] = [call.repo_id]
    state = call.query.get("state", "open")
    if state not in ("open", "closed", "all"):
        raise invalid("Issue", "state", "invalid")
    if state != "all":
        where.append("i.state = ?")
        args.append(state)
    for name in [part for part in call.query.get("labels", "").split(",") if part.strip()]:
        where.append(
            "EXISTS (SELECT 1 FROM issue_labels il JOIN labels l ON l.id = il.label_id "
            "WHERE il.issue_id = i.id AND l.name = ?)"
        )
        args.append(name.strip())
    if call.query.get("since"):
        where.append("i.updated_at >= ?")
        args.append(normal_time(call.query["since"]))
    for field, column in (("creator", "i.user_id = ?"), ("assignee", None)):
        login = call.query.get(field)
        if login in (None, "", "*"):
            continue
        if login == "none":
            where.append("NOT EXISTS (SELECT 1 FROM assignees a WHERE a.issue_id = i.id)")
            continue
        person = call.db.one("SELECT id FROM users WHERE login = ?", login)
        if person is None:
            return None, []
        where.append(column or "EXISTS (SELECT 1 FROM assignees a WHERE a.issue_id = i.id AND a.user_id = ?)")
        args.append(person["id"])
    return " AND ".join(where), args


def normal_time(text: str) -> str:
    """A client's ISO 8601 time as our UTC text."""
    try:
        at = datetime.fromisoformat(text.replace(" ", "+").replace("Z", "+00:00"))
    except ValueError as error:
        raise invalid("Issue", "since", "invalid") from error
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# -- one issue ------------------------------------------------------------------------------------


def new_row(call: Call, title: str, body: str | None, *, is_pull: bool) -> sqlite3.Row:
    """Insert an issue (or the issue side of a pull request) with the repository's next number."""
    fresh = call.db.must("SELECT next_number AS n FROM repos WHERE id = ?", call.repo_id)["n"]
    call.db.run("UPDATE repos SET next_number = next_number + 1 WHERE id = ?", call.repo_id)
    issue_id = call.db.insert(
        "issues",
        repo_id=call.repo_id,
        number=fresh,
        is_pull=int(is_pull),
        title=title,
        body=body,
        user_id=call.user_id,
        created_at=call.now,
        updated_at=call.now,
    )
    return call.db.must("SELECT * FROM issues WHERE id = ?", issue_id)


def create(call: Call) -> Reply:
    call.require("read")
    call.user  # noqa: B018  an anonymous caller is refused here
    if not call.repo["has_issues"]:
        raise ApiError(410, "Issues are disabled for this repo")
    if call.body.get("title") in (None, ""):
        raise invalid("Issue", "title", "missing_field")
    title = check_text("Issue", "title", str(call.body["title"]), TITLE_LIMIT)
    body = call.body.get("body")
    if body is not None:
        check_text("Issue", "body", body, BODY_LIMIT)
    row = new_row(call, title, body, is_pull=False)
    if call.may("triage"):  # without push access GitHub drops these silently
        from harness.forge.labels import attach

        attach(call, row["id"], names_in(call.body.get("labels")))
        _assign(call, row["id"], names_in(call.body.get("assignees")))
    return Reply(201, render.issue(call, row), {"Location": f"{call.repo_api}/issues/{row['number']}"})


def get(call: Call) -> Reply:
    return Reply(200, render.issue(call, find(call)))


def update(call: Call) -> Reply:
    row = find(call)
    own = call.user_id == row["user_id"]
    if not own:
        call.require("triage")
    change(call, row, call.body)
    if call.may("triage"):
        if "labels" in call.body:
            from harness.forge.labels import replace

            replace(call, row["id"], names_in(call.body["labels"]))
        if "assignees" in call.body:
            _reassign(call, row["id"], names_in(call.body["assignees"]))
    return Reply(200, render.issue(call, find(call)))


def change(call: Call, row: sqlite3.Row, wanted: dict[str, Any]) -> None:
    """Title, body and state: the part that issues and pull requests share."""
    kind = "PullRequest" if row["is_pull"] else "Issue"
    if wanted.get("title") is not None:
        title = check_text(kind, "title", wanted["title"], TITLE_LIMIT)
        if title != row["title"]:
            call.db.run("UPDATE issues SET title = ? WHERE id = ?", title, row["id"])
            record(call, row["id"], "renamed", rename={"from": row["title"], "to": title})
            touch(call, row["id"])
    if "body" in wanted and wanted["body"] != row["body"]:
        body = None if wanted["body"] is None else check_text(kind, "body", wanted["body"], BODY_LIMIT)
        call.db.run("UPDATE issues SET body = ? WHERE id = ?", body, row["id"])
        touch(call, row["id"])
    state = wanted.get("state")
    if state not in (None, "open", "closed"):
        raise invalid(kind, "state", "invalid")
    if state == "closed" and row["state"] == "open":
        close(call, row, reason=wanted.get("state_reason") or ("completed" if kind == "Issue" else None))
    elif state == "closed" and wanted.get("state_reason"):
        call.db.run("UPDATE issues SET state_reason = ? WHERE id = ?", wanted["state_reason"], row["id"])
    elif state == "open" and row["state"] == "closed":
        reopen(call, row)


def close(
    call: Call, row: sqlite3.Row, *, reason: str | None, actor: int | None = None, commit: str | None = None
) -> None:
    who = call.user_id if actor is None else actor
    closed = {"state": "closed", "state_reason": reason, "closed_at": call.now, "closed_by": who}
    call.db.update("issues", row["id"], **closed, updated_at=call.now)
    record(call, row["id"], "closed", actor=who, commit=commit, state_reason=reason)


def reopen(call: Call, row: sqlite3.Row) -> None:
    reason = None if row["is_pull"] else "reopened"
    opened = {"state": "open", "state_reason": reason, "closed_at": None, "closed_by": None}
    call.db.update("issues", row["id"], **opened, updated_at=call.now)
    record(call, row["id"], "reopened", state_reason=reason)


def lock(call: Call) -> Reply:
    row = find(call)
    call.require("triage")
    call.db.update("issues", row["id"], locked=1, lock_reason=call.body.get("lock_reason"))
    record(call, row["id"], "locked", lock_reason=call.body.get("lock_reason"))
    touch(call, row["id"])
    return Reply(204)


def unlock(call: Call) -> Reply:
    row = find(call)
    call.require("triage")
    call.db.update("issues", row["id"], locked=0, lock_reason=None)
    record(call, row["id"], "unlocked")
    touch(call, row["id"])
    return Reply(204)


# -- assignees ------------------------------------------------------------------------------------


def add_assignees(call: Call) -> Reply:
    row = find(call)
    call.require("triage")
    _assign(call, row["id"], names_in(call.body.get("assignees")))
    return Reply(201, render.issue(call, find(call)))


def remove_assignees(call: Call) -> Reply:
    row = find(call)
    call.require("triage")
    _unassign(call, row["id"], names_in(call.body.get("assignees")))
    return Reply(200, render.issue(call, find(call)))


def names_in(value: Any) -> list[str]:
    """Logins or label names: a list of texts, or of objects with a name."""
    if value is None:
        return []
    items = value if isinstance(value, list) else [value]
    return [str(item["name"]) if isinstance(item, dict) and "name" in item else str(item) for item in items]


def assignable(call: Call, login: str) -> int | None:
    person = call.db.one("SELECT id FROM users WHERE login = ?", login)
    if person is None:
        return None
    known = "SELECT 1 FROM collaborators WHERE repo_id = ? AND user_id = ?"
    if person["id"] == call.repo["owner_id"] or call.db.one(known, call.repo_id, person["id"]):
        return int(person["id"])
    return None


def _assign(call: Call, issue_id: int, logins: list[str]) -> None:
    """Assign whom one may assign; others are ignored, as GitHub does."""
    for login in logins:
        person = assignable(call, login)
        if person is None:
            continue
        if call.db.changed("INSERT OR IGNORE INTO assignees VALUES (?, ?)", issue_id, person):
            record(call, issue_id, "assigned", assignee=person, assigner=call.user_id)
            touch(call, issue_id)


def _unassign(call: Call, issue_id: int, logins: list[str]) -> None:
    for login in logins:
        person = call.db.one("SELECT id FROM users WHERE login = ?", login)
        if person is None:
            continue
        if call.db.changed(
            "DELETE FROM assignees WHERE issue_id = ? AND user_id = ?", issue_id, person["id"]
        ):
            record(call, issue_id, "unassigned", assignee=person["id"], assigner=call.user_id)
            touch(call, issue_id)


def _reassign(call: Call, issue_id: int, logins: list[str]) -> None:
    sql = "SELECT u.login FROM assignees a JOIN users u ON u.id = a.user_id WHERE a.issue_id = ?"
    have = {row["login"].lower(): row["login"] for row in call.db.all(sql, issue_id)}
    wanted = {login.lower() for login in logins}
    _unassign(call, issue_id, [login for key, login in have.items() if key not in wanted])
    _assign(call, issue_id, logins)
