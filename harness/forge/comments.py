"""Comments on issues and pull requests, and the two histories of an issue: events and timeline."""

from __future__ import annotations

import sqlite3
from typing import Any

from harness.forge import render
from harness.forge.errors import ApiError, invalid, not_found
from harness.forge.issues import BODY_LIMIT, find, normal_time, touch
from harness.forge.pages import cut, page_of
from harness.forge.state import Call, Reply


def _body(call: Call) -> str:
    body = call.body.get("body")
    if not isinstance(body, str) or not body.strip():
        raise invalid("IssueComment", "body", "missing_field")
    if len(body) > BODY_LIMIT:
        said = f"Body is too long (maximum is {BODY_LIMIT} characters)"
        raise invalid("IssueComment", "data", "unprocessable", said)
    return body


def list_for_issue(call: Call) -> Reply:
    issue = find(call)
    rows = call.db.all("SELECT * FROM comments WHERE issue_id = ? ORDER BY id", issue["id"])
    if call.query.get("since"):
        since = normal_time(call.query["since"])
        rows = [row for row in rows if row["updated_at"] >= since]
    shapes = [_shape(call, row, issue) for row in cut(call, rows)]
    return page_of(call, shapes, len(rows))


def list_for_repo(call: Call) -> Reply:
    """All comments of a repository, as `issues/list-comments-for-repo` sorts them."""
    since = normal_time(call.query["since"]) if call.query.get("since") else ""
    column = "updated_at" if call.query.get("sort") == "updated" else "created_at"
    order = "DESC" if call.query.get("direction") == "desc" else "ASC"
    sql = (
        f"SELECT * FROM comments WHERE repo_id = ? AND updated_at >= ? ORDER BY {column} {order}, id {order}"
    )
    rows = call.db.all(sql, call.repo_id, since)
    shapes = [_shape(call, row, _issue_of(call, row)) for row in cut(call, rows)]
    return page_of(call, shapes, len(rows))


def create(call: Call) -> Reply:
    issue = find(call)
    call.user  # noqa: B018  an anonymous caller is refused here
    if issue["locked"]:  # bots with write access are refused as well, so everybody is here
        raise ApiError(403, "Unable to create comment because issue is locked.")
    new = add(call, issue["id"], _body(call))
    row = call.db.must("SELECT * FROM comments WHERE id = ?", new)
    shape = _shape(call, row, issue)
    return Reply(201, shape, {"Location": shape["url"]})


def add(call: Call, issue_id: int, body: str) -> int:
    """Put the caller's comment on an issue; gives its id."""
    new = call.db.insert(
        "comments",
        repo_id=call.repo_id,
        issue_id=issue_id,
        user_id=call.user_id,
        body=body,
        created_at=call.now,
        updated_at=call.now,
    )
    touch(call, issue_id)
    return new


def _find(call: Call) -> sqlite3.Row:
    sql = "SELECT * FROM comments WHERE repo_id = ? AND id = ?"
    row = call.db.one(sql, call.repo_id, call.number("comment_id"))
    if row is None:
        raise not_found()
    return row


def _issue_of(call: Call, row: sqlite3.Row) -> sqlite3.Row:
    return call.db.must("SELECT * FROM issues WHERE id = ?", row["issue_id"])


def _shape(call: Call, row: sqlite3.Row, issue: sqlite3.Row) -> dict[str, Any]:
    return render.comment(call, row, issue["number"], pull=bool(issue["is_pull"]))


def get(call: Call) -> Reply:
    row = _find(call)
    return Reply(200, _shape(call, row, _issue_of(call, row)))


def update(call: Call) -> Reply:
    row = _find(call)
    if call.user_id != row["user_id"]:
        call.require("write")
    call.db.run("UPDATE comments SET body = ?, updated_at = ? WHERE id = ?", _body(call), call.now, row["id"])
    touch(call, row["issue_id"])
    return Reply(200, _shape(call, _find(call), _issue_of(call, row)))


def delete(call: Call) -> Reply:
    row = _find(call)
    if call.user_id != row["user_id"]:
        call.require("write")
    call.db.run("DELETE FROM comments WHERE id = ?", row["id"])
    touch(call, row["issue_id"])
    return Reply(204)


# -- histories ------------------------------------------------------------------------------------


def events(call: Call) -> Reply:
    rows = call.db.all("SELECT * FROM events WHERE issue_id = ? ORDER BY id", find(call)["id"])
    return page_of(call, [render.event(call, row) for row in cut(call, rows)], len(rows))


def repo_events(call: Call) -> Reply:
    """Events of every issue, newest first, each with its issue."""
    sql = "SELECT * FROM events WHERE repo_id = ? ORDER BY id DESC"
    rows = call.db.all(sql, call.repo_id)
    shapes = []
    for row in cut(call, rows):
        issue = call.db.must("SELECT * FROM issues WHERE id = ?", row["issue_id"])
        shapes.append(render.event(call, row) | {"issue": render.issue(call, issue)})
    return page_of(call, shapes, len(rows))


def timeline(call: Call) -> Reply:
    """Events, comments and reviews of one issue in the order they happened."""
    issue = find(call)
    merged: list[tuple[str, int, dict[str, Any]]] = []
    for row in call.db.all("SELECT * FROM events WHERE issue_id = ?", issue["id"]):
        merged.append((row["created_at"], row["id"], render.event(call, row)))
    for row in call.db.all("SELECT * FROM comments WHERE issue_id = ?", issue["id"]):
        shape = _shape(call, row, issue)
        merged.append((row["created_at"], row["id"], shape | {"event": "commented", "actor": shape["user"]}))
    sql = "SELECT * FROM reviews WHERE issue_id = ? AND submitted_at IS NOT NULL"
    for row in call.db.all(sql, issue["id"]):
        from harness.forge.reviews import shape as review_shape

        merged.append(
            (row["submitted_at"], row["id"], review_shape(call, row, issue) | {"event": "reviewed"})
        )
    merged.sort(key=lambda item: (item[0], item[1]))
    shapes = [item[2] for item in merged]
    return page_of(call, cut(call, shapes), len(shapes))
