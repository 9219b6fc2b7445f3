"""Reviews, review comments and requested reviewers of a pull request."""

from __future__ import annotations

import sqlite3
from typing import Any

from harness.forge import issues, pulls, render, render_pull
from harness.forge.errors import invalid, not_found, unprocessable
from harness.forge.pages import cut, page_of
from harness.forge.state import Call, Reply

STATES = {
    "APPROVE": "APPROVED",
    "REQUEST_CHANGES": "CHANGES_REQUESTED",
    "COMMENT": "COMMENTED",
    None: "PENDING",
}


def shape(call: Call, row: sqlite3.Row, issue: sqlite3.Row) -> dict[str, Any]:
    number = issue["number"]
    html = f"{call.repo_web}/pull/{number}#pullrequestreview-{row['id']}"
    api = f"{call.repo_api}/pulls/{number}"
    return {
        "id": row["id"],
        "node_id": render.node("PullRequestReview", row["id"]),
        "user": render.user_by_id(call, row["user_id"]),
        "body": row["body"],
        "state": row["state"],
        "html_url": html,
        "pull_request_url": api,
        "author_association": render.association(call, row["user_id"]),
        "_links": {"html": {"href": html}, "pull_request": {"href": api}},
        "submitted_at": row["submitted_at"],
        "commit_id": row["commit_id"],
    }


def list_reviews(call: Call) -> Reply:
    issue = issues.find(call, pull=True)
    rows = call.db.all("SELECT * FROM reviews WHERE issue_id = ? ORDER BY id", issue["id"])
    return page_of(call, [shape(call, row, issue) for row in cut(call, rows)], len(rows))


def create_review(call: Call) -> Reply:
    call.require("read")
    issue = issues.find(call, pull=True)
    pull = pulls.find(call)
    event = call.body.get("event")
    if event not in STATES:
        raise unprocessable("Variable $event of type PullRequestReviewEvent was provided invalid value")
    body = call.body.get("body") or ""
    if event in ("REQUEST_CHANGES", "COMMENT") and not body and not call.body.get("comments"):
        raise invalid("PullRequestReview", "body", "missing_field")
    if event in ("APPROVE", "REQUEST_CHANGES") and issue["user_id"] == call.user_id:
        word = "approve" if event == "APPROVE" else "request changes on"
        raise unprocessable(f"Can not {word} your own pull request")
    issues.check_text("PullRequestReview", "body", body, issues.BODY_LIMIT)
    sha = call.body.get("commit_id") or pull["head_sha"]
    new = call.db.insert(
        "reviews",
        issue_id=issue["id"],
        user_id=call.user_id,
        body=body,
        state=STATES[event],
        commit_id=sha,
        submitted_at=None if event is None else call.now,
    )
    for item in call.body.get("comments") or []:
        _insert_comment(call, issue, item, sha, new)
    call.db.run("DELETE FROM review_requests WHERE issue_id = ? AND user_id = ?", issue["id"], call.user_id)
    issues.touch(call, issue["id"])
    return Reply(200, shape(call, call.db.must("SELECT * FROM reviews WHERE id = ?", new), issue))


def _find_review(call: Call, issue: sqlite3.Row) -> sqlite3.Row:
    row = call.db.one(
        "SELECT * FROM reviews WHERE issue_id = ? AND id = ?", issue["id"], call.number("review_id")
    )
    if row is None:
        raise not_found()
    return row


def get_review(call: Call) -> Reply:
    issue = issues.find(call, pull=True)
    return Reply(200, shape(call, _find_review(call, issue), issue))


def dismiss_review(call: Call) -> Reply:
    call.require("write")
    issue = issues.find(call, pull=True)
    row = _find_review(call, issue)
    if row["state"] not in ("APPROVED", "CHANGES_REQUESTED"):
        raise unprocessable("Can not dismiss a commented pull request review")
    call.db.run("UPDATE reviews SET state = 'DISMISSED' WHERE id = ?", row["id"])
    issues.touch(call, issue["id"])
    return Reply(200, shape(call, _find_review(call, issue), issue))


# -- comments on lines ----------------------------------------------------------------------------


def _comment(call: Call, row: sqlite3.Row, issue: sqlite3.Row) -> dict[str, Any]:
    number = issue["number"]
    api = f"{call.repo_api}/pulls/comments/{row['id']}"
    html = f"{call.repo_web}/pull/{number}#discussion_r{row['id']}"
    pull_api = f"{call.repo_api}/pulls/{number}"
    links = {"self": {"href": api}, "html": {"href": html}, "pull_request": {"href": pull_api}}
    result = {
        "url": api,
        "pull_request_review_id": row["review_id"],
        "id": row["id"],
        "node_id": render.node("PullRequestReviewComment", row["id"]),
        "diff_hunk": row["diff_hunk"],
        "path": row["path"],
        "position": 1,
        "original_position": 1,
        "commit_id": row["commit_id"],
        "original_commit_id": row["commit_id"],
        "user": render.user_by_id(call, row["user_id"]),
        "body": row["body"],
        "created_at": row["created_at"],
        "updated_at": row["updated_at"],
        "html_url": html,
        "pull_request_url": pull_api,
        "author_association": render.association(call, row["user_id"]),
        "_links": links,
        "start_line": None,
        "original_start_line": None,
        "start_side": None,
        "line": row["line"],
        "original_line": row["line"],
        "side": row["side"] or "RIGHT",
        "subject_type": "line" if row["line"] else "file",
    }
    if row["reply_to"] is not None:
        result["in_reply_to_id"] = row["reply_to"]
    return result


def list_comments(call: Call) -> Reply:
    issue = issues.find(call, pull=True)
    rows = call.db.all("SELECT * FROM review_comments WHERE issue_id = ? ORDER BY id", issue["id"])
    return page_of(call, [_comment(call, row, issue) for row in cut(call, rows)], len(rows))


def create_comment(call: Call) -> Reply:
    call.require("read")
    issue = issues.find(call, pull=True)
    sha = call.body.get("commit_id") or pulls.find(call)["head_sha"]
    if call.body.get("in_reply_to") is not None:
        sql = "SELECT * FROM review_comments WHERE issue_id = ? AND id = ?"
        first = call.db.one(sql, issue["id"], call.body["in_reply_to"])
        if first is None:
            raise not_found()
        item = {"path": first["path"], "line": first["line"], "body": call.body.get("body")}
        row = _insert_comment(call, issue, item, sha, None, reply_to=first["id"])
    else:
        row = _insert_comment(call, issue, call.body, sha, None)
    issues.touch(call, issue["id"])
    return Reply(201, _comment(call, row, issue))


def _insert_comment(
    call: Call,
    issue: sqlite3.Row,
    item: dict[str, Any],
    sha: str,
    review: int | None,
    reply_to: int | None = None,
) -> sqlite3.Row:
    for field in ("body", "path"):
        if not item.get(field):
            raise invalid("PullRequestReviewComment", field, "missing_field")
    pull = pulls.find(call)
    common = call.bare.merge_base(pull["base_sha"], pull["head_sha"]) or pull["base_sha"]
    files = {change.path: change for change in call.bare.changes(common, pull["head_sha"])}
    if item["path"] not in files:
        raise invalid("PullRequestReviewComment", "path", "invalid")
    new = call.db.insert(
        "review_comments",
        issue_id=issue["id"],
        review_id=review,
        user_id=call.user_id,
        body=issues.check_text("PullRequestReviewComment", "body", item["body"], issues.BODY_LIMIT),
        path=item["path"],
        commit_id=sha,
        line=item.get("line") or item.get("position"),
        side=item.get("side"),
        diff_hunk=(files[item["path"]].patch or "")[:2000],
        reply_to=reply_to,
        created_at=call.now,
        updated_at=call.now,
    )
    return call.db.must("SELECT * FROM review_comments WHERE id = ?", new)


# -- requested reviewers --------------------------------------------------------------------------


def list_requested(call: Call) -> Reply:
    issue = issues.find(call, pull=True)
    return Reply(200, {"users": render_pull.reviewers(call, issue["id"]), "teams": []})


def request_reviewers(call: Call) -> Reply:
    call.require("write")
    issue = issues.find(call, pull=True)
    for login in issues.names_in(call.body.get("reviewers")):
        person = issues.assignable(call, login)
        if person is None:
            raise unprocessable("Reviews may only be requested from collaborators.")
        if person == issue["user_id"]:
            raise unprocessable("Review cannot be requested from pull request author.")
        if call.db.changed("INSERT OR IGNORE INTO review_requests VALUES (?,?)", issue["id"], person):
            people: dict[str, Any] = {"requested_reviewer": person, "review_requester": call.user_id}
            issues.record(call, issue["id"], "review_requested", **people)
            issues.touch(call, issue["id"])
    return Reply(201, render_pull.simple(call, [pulls.find(call)])[0])


def remove_reviewers(call: Call) -> Reply:
    call.require("write")
    issue = issues.find(call, pull=True)
    for login in issues.names_in(call.body.get("reviewers")):
        row = call.db.one("SELECT id FROM users WHERE login = ?", login)
        sql = "DELETE FROM review_requests WHERE issue_id = ? AND user_id = ?"
        if row is not None and call.db.changed(sql, issue["id"], row["id"]):
            people: dict[str, Any] = {"requested_reviewer": row["id"], "review_requester": call.user_id}
            issues.record(call, issue["id"], "review_request_removed", **people)
            issues.touch(call, issue["id"])
    return Reply(200, render_pull.simple(call, [pulls.find(call)])[0])
