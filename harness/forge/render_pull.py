"""The JSON shapes of a pull request: the short one of lists, and the full one."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from harness.forge import render
from harness.forge.render import Json, node
from harness.forge.state import Call


def side(call: Call, ref: str, sha: str, repo: Json) -> Json:
    return {
        "label": f"{call.repo['owner']}:{ref}",
        "ref": ref,
        "sha": sha,
        "user": repo["owner"],
        "repo": repo,
    }


def simple(call: Call, pulls: Sequence[sqlite3.Row]) -> list[Json]:
    marks = ",".join("?" * len(pulls))
    rows = call.db.all(f"SELECT * FROM issues WHERE id IN ({marks})", *[pull["issue_id"] for pull in pulls])
    by_id = {row["id"]: row for row in rows}
    ordered = [by_id[pull["issue_id"]] for pull in pulls]
    repo = render.repo_full(call)
    shapes = render.issues(call, ordered)
    return [_simple(call, pull, shape, repo) for pull, shape in zip(pulls, shapes, strict=True)]


def _simple(call: Call, pull: sqlite3.Row, issue: Json, repo: Json) -> Json:
    number = pull["number"]
    api = f"{call.repo_api}/pulls/{number}"
    html = f"{call.repo_web}/pull/{number}"
    links = {
        "self": api,
        "html": html,
        "issue": f"{call.repo_api}/issues/{number}",
        "comments": f"{call.repo_api}/issues/{number}/comments",
        "review_comments": f"{api}/comments",
        "review_comment": f"{call.repo_api}/pulls/comments{{/number}}",
        "commits": f"{api}/commits",
        "statuses": f"{call.repo_api}/statuses/{pull['head_sha']}",
    }
    taken = (
        "number",
        "state",
        "locked",
        "title",
        "user",
        "body",
        "labels",
        "assignee",
        "assignees",
        "milestone",
    )
    times = ("created_at", "updated_at", "closed_at", "author_association", "active_lock_reason")
    return {
        "url": api,
        "id": pull["issue_id"],
        "node_id": node("PullRequest", pull["issue_id"]),
        "html_url": html,
        "diff_url": f"{html}.diff",
        "patch_url": f"{html}.patch",
        "issue_url": links["issue"],
        "commits_url": links["commits"],
        "review_comments_url": links["review_comments"],
        "review_comment_url": links["review_comment"],
        "comments_url": links["comments"],
        "statuses_url": links["statuses"],
        **{key: issue[key] for key in (*taken, *times)},
        "merged_at": pull["merged_at"],
        "merge_commit_sha": pull["merge_commit_sha"],
        "requested_reviewers": reviewers(call, pull["issue_id"]),
        "requested_teams": [],
        "head": side(call, pull["head_ref"], pull["head_sha"], repo),
        "base": side(call, pull["base_ref"], pull["base_sha"], repo),
        "_links": {key: {"href": value} for key, value in links.items()},
        "auto_merge": None,
        "draft": bool(pull["draft"]),
    }


def reviewers(call: Call, issue_id: int) -> list[Json]:
    sql = (
        "SELECT * FROM users WHERE id IN (SELECT user_id FROM review_requests WHERE issue_id = ?) ORDER BY id"
    )
    return [render.user(call, row) for row in call.db.all(sql, issue_id)]


def full(call: Call, pull: sqlite3.Row, verdict: tuple[bool | None, str], numbers: dict[str, Any]) -> Json:
    """The single form. ``verdict`` is (mergeable, mergeable_state); ``numbers`` the size of the change."""
    comments = call.db.must("SELECT count(*) AS n FROM comments WHERE issue_id = ?", pull["issue_id"])["n"]
    reviewed = call.db.must("SELECT count(*) AS n FROM review_comments WHERE issue_id = ?", pull["issue_id"])
    return simple(call, [pull])[0] | {
        "merged": bool(pull["merged"]),
        "mergeable": verdict[0],
        "rebaseable": verdict[0],
        "mergeable_state": verdict[1],
        "merged_by": render.user_by_id(call, pull["merged_by"]),
        "comments": comments,
        "review_comments": reviewed["n"],
        "maintainer_can_modify": bool(pull["maintainer_can_modify"]),
        **numbers,
    }
