"""The JSON shapes of people, repositories, labels, issues, comments and events, as GitHub's OpenAPI has them.

The one rule: every self link begins with the configured public URL, since PyGithub refuses any other.
"""

from __future__ import annotations

import base64
import json
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from harness.forge.state import ROLES, Call

_USER_URLS = {
    "followers_url": "/followers",
    "following_url": "/following{/other_user}",
    "gists_url": "/gists{/gist_id}",
    "starred_url": "/starred{/owner}{/repo}",
    "subscriptions_url": "/subscriptions",
    "organizations_url": "/orgs",
    "repos_url": "/repos",
    "events_url": "/events{/privacy}",
    "received_events_url": "/received_events",
}
_REPO_URLS = {
    "archive_url": "/{archive_format}{/ref}",
    "assignees_url": "/assignees{/user}",
    "blobs_url": "/git/blobs{/sha}",
    "branches_url": "/branches{/branch}",
    "collaborators_url": "/collaborators{/collaborator}",
    "comments_url": "/comments{/number}",
    "commits_url": "/commits{/sha}",
    "compare_url": "/compare/{base}...{head}",
    "contents_url": "/contents/{+path}",
    "contributors_url": "/contributors",
    "deployments_url": "/deployments",
    "downloads_url": "/downloads",
    "events_url": "/events",
    "forks_url": "/forks",
    "git_commits_url": "/git/commits{/sha}",
    "git_refs_url": "/git/refs{/sha}",
    "git_tags_url": "/git/tags{/sha}",
    "hooks_url": "/hooks",
    "issue_comment_url": "/issues/comments{/number}",
    "issue_events_url": "/issues/events{/number}",
    "issues_url": "/issues{/number}",
    "keys_url": "/keys{/key_id}",
    "labels_url": "/labels{/name}",
    "languages_url": "/languages",
    "merges_url": "/merges",
    "milestones_url": "/milestones{/number}",
    "notifications_url": "/notifications{?since,all,participating}",
    "pulls_url": "/pulls{/number}",
    "releases_url": "/releases{/id}",
    "stargazers_url": "/stargazers",
    "statuses_url": "/statuses/{sha}",
    "subscribers_url": "/subscribers",
    "subscription_url": "/subscription",
    "tags_url": "/tags",
    "teams_url": "/teams",
    "trees_url": "/git/trees{/sha}",
}

Json = dict[str, Any]


def node(kind: str, number: int | str) -> str:
    return base64.b64encode(f"{kind}:{number}".encode()).decode()


def user(call: Call, row: sqlite3.Row) -> Json:
    api = f"{call.api}/users/{row['login']}"
    return {
        "login": row["login"],
        "id": row["id"],
        "node_id": node("User", row["id"]),
        "avatar_url": f"{call.web}/_forge/avatars/{row['login']}",
        "gravatar_id": "",
        "url": api,
        "html_url": f"{call.web}/{row['login']}",
        **{key: api + suffix for key, suffix in _USER_URLS.items()},
        "type": row["type"],
        "site_admin": bool(row["site_admin"]),
    }


def user_by_id(call: Call, user_id: int | None) -> Json | None:
    return None if user_id is None else user(call, call.state.user(user_id))


def profile(call: Call, row: sqlite3.Row, *, own: bool) -> Json:
    """The full form of a person; ``own`` adds what only they see."""
    more: Json = {
        "name": row["name"],
        "company": None,
        "blog": "",
        "location": None,
        "email": row["email"],
        "hireable": None,
        "bio": None,
        "twitter_username": None,
        "public_repos": 0,
        "public_gists": 0,
        "followers": 0,
        "following": 0,
        "created_at": row["created_at"],
        "updated_at": row["created_at"],
    }
    private = ("private_gists", "total_private_repos", "owned_private_repos", "disk_usage", "collaborators")
    if own:
        more |= dict.fromkeys(private, 0) | {"two_factor_authentication": False}
    return user(call, row) | more


def permissions(role: str) -> Json:
    rank = ROLES.index(role)
    names = {"admin": "admin", "maintain": "maintain", "push": "write", "triage": "triage", "pull": "read"}
    return {name: rank >= ROLES.index(least) for name, least in names.items()}


def repo_minimal(call: Call, row: sqlite3.Row | None = None) -> Json:
    row = row if row is not None else call.repo
    full = f"{row['owner']}/{row['name']}"
    api = f"{call.api}/repos/{full}"
    owner = call.state.user(row["owner_id"])
    return {
        "id": row["id"],
        "node_id": node("Repository", row["id"]),
        "name": row["name"],
        "full_name": full,
        "private": bool(row["private"]),
        "owner": user(call, owner),
        "html_url": f"{call.web}/{full}",
        "description": row["description"],
        "fork": False,
        "url": api,
        **{key: api + suffix for key, suffix in _REPO_URLS.items()},
    }


def repo_full(call: Call, row: sqlite3.Row | None = None) -> Json:
    row = row if row is not None else call.repo
    html = f"{call.web}/{row['owner']}/{row['name']}"
    open_issues = call.db.must(
        "SELECT count(*) AS n FROM issues WHERE repo_id = ? AND state = 'open' AND deleted = 0", row["id"]
    )["n"]
    zeros = ("stargazers_count", "watchers_count", "watchers", "forks_count", "forks", "size")
    return repo_minimal(call, row) | {
        "git_url": f"git:{html.split(':', 1)[1]}.git",
        "ssh_url": f"git@{html.split('//', 1)[1]}.git",
        "clone_url": f"{html}.git",
        "svn_url": html,
        "mirror_url": None,
        "homepage": None,
        "language": None,
        **dict.fromkeys(zeros, 0),
        "network_count": 0,
        "subscribers_count": 0,
        "default_branch": row["default_branch"],
        "open_issues_count": open_issues,
        "open_issues": open_issues,
        "is_template": False,
        "topics": [],
        "license": None,
        "has_issues": bool(row["has_issues"]),
        "has_projects": False,
        "has_wiki": False,
        "has_pages": False,
        "has_discussions": False,
        "archived": bool(row["archived"]),
        "disabled": False,
        "visibility": "private" if row["private"] else "public",
        "pushed_at": row["pushed_at"],
        "created_at": row["created_at"],
        "updated_at": row["updated_at"],
        "permissions": permissions(call.state.role(row, call.who)),
        "allow_rebase_merge": bool(row["allow_rebase_merge"]),
        "allow_squash_merge": bool(row["allow_squash_merge"]),
        "allow_merge_commit": bool(row["allow_merge_commit"]),
        "allow_auto_merge": bool(row["allow_auto_merge"]),
        "delete_branch_on_merge": bool(row["delete_branch_on_merge"]),
        "allow_forking": True,
        "web_commit_signoff_required": False,
    }


def label(call: Call, row: sqlite3.Row) -> Json:
    return {
        "id": row["id"],
        "node_id": node("Label", row["id"]),
        "url": f"{call.repo_api}/labels/{quote(row['name'], safe='')}",
        "name": row["name"],
        "color": row["color"],
        "default": False,
        "description": row["description"],
        "archived_at": None,
        "archived_by": None,
    }


def association(call: Call, user_id: int) -> str:
    """How a person stands to the repository: OWNER, COLLABORATOR, CONTRIBUTOR (had a PR merged) or NONE."""
    if user_id == call.repo["owner_id"]:
        return "OWNER"
    known = "SELECT 1 FROM collaborators WHERE repo_id = ? AND user_id = ?"
    if call.db.one(known, call.repo_id, user_id):
        return "COLLABORATOR"
    merged = (
        "SELECT 1 FROM pulls p JOIN issues i ON i.id = p.issue_id "
        "WHERE p.repo_id = ? AND p.merged = 1 AND i.user_id = ? LIMIT 1"
    )
    return "CONTRIBUTOR" if call.db.one(merged, call.repo_id, user_id) else "NONE"


def issues(call: Call, rows: Sequence[sqlite3.Row]) -> list[Json]:
    """Many issues with a fixed number of queries, whatever their count."""
    ids = [row["id"] for row in rows]
    marks = ",".join("?" * len(ids))
    labels: dict[int, list[Json]] = defaultdict(list)
    people: dict[int, list[Json]] = defaultdict(list)
    sql = (
        "SELECT il.issue_id, l.* FROM issue_labels il JOIN labels l ON l.id = il.label_id "
        f"WHERE il.issue_id IN ({marks}) ORDER BY l.id"
    )
    for row in call.db.all(sql, *ids):
        labels[row["issue_id"]].append(label(call, row))
    sql = (
        "SELECT a.issue_id, u.* FROM assignees a JOIN users u ON u.id = a.user_id "
        f"WHERE a.issue_id IN ({marks}) ORDER BY u.id"
    )
    for row in call.db.all(sql, *ids):
        people[row["issue_id"]].append(user(call, row))
    sql = f"SELECT issue_id, count(*) AS n FROM comments WHERE issue_id IN ({marks}) GROUP BY issue_id"
    counts = {row["issue_id"]: row["n"] for row in call.db.all(sql, *ids)}
    pulls = {
        row["issue_id"]: row for row in call.db.all(f"SELECT * FROM pulls WHERE issue_id IN ({marks})", *ids)
    }
    authors = {row["user_id"]: association(call, row["user_id"]) for row in rows}
    users: dict[int, Json] = {key: user(call, call.state.user(key)) for key in authors}
    return [
        _issue(call, row, users, authors, labels[row["id"]], people[row["id"]], counts, pulls.get(row["id"]))
        for row in rows
    ]


def _issue(
    call: Call,
    row: sqlite3.Row,
    users: dict[int, Json],
    authors: dict[int, str],
    labels: list[Json],
    people: list[Json],
    counts: dict[int, int],
    pull: sqlite3.Row | None,
) -> Json:
    api = f"{call.repo_api}/issues/{row['number']}"
    kind = "pull" if pull is not None else "issues"
    html = f"{call.repo_web}/{kind}/{row['number']}"
    result: Json = {
        "url": api,
        "repository_url": call.repo_api,
        "labels_url": f"{api}/labels{{/name}}",
        "comments_url": f"{api}/comments",
        "events_url": f"{api}/events",
        "timeline_url": f"{api}/timeline",
        "html_url": html,
        "id": row["id"],
        "node_id": node("Issue", row["id"]),
        "number": row["number"],
        "title": row["title"],
        "user": users[row["user_id"]],
        "labels": labels,
        "state": row["state"],
        "state_reason": row["state_reason"],
        "locked": bool(row["locked"]),
        "active_lock_reason": row["lock_reason"],
        "assignee": people[0] if people else None,
        "assignees": people,
        "milestone": None,
        "comments": counts.get(row["id"], 0),
        "created_at": row["created_at"],
        "updated_at": row["updated_at"],
        "closed_at": row["closed_at"],
        "author_association": authors[row["user_id"]],
        "body": row["body"],
        "performed_via_github_app": None,
    }
    if pull is not None:
        pull_api = f"{call.repo_api}/pulls/{row['number']}"
        links = {"url": pull_api, "html_url": html, "diff_url": f"{html}.diff", "patch_url": f"{html}.patch"}
        result["pull_request"] = {**links, "merged_at": pull["merged_at"]}
        result["draft"] = bool(pull["draft"])
    return result


def issue(call: Call, row: sqlite3.Row) -> Json:
    """One issue, with what only the single form has."""
    return issues(call, [row])[0] | {"closed_by": user_by_id(call, row["closed_by"])}


def comment(call: Call, row: sqlite3.Row, number: int, *, pull: bool) -> Json:
    kind = "pull" if pull else "issues"
    return {
        "url": f"{call.repo_api}/issues/comments/{row['id']}",
        "html_url": f"{call.repo_web}/{kind}/{number}#issuecomment-{row['id']}",
        "issue_url": f"{call.repo_api}/issues/{number}",
        "id": row["id"],
        "node_id": node("IssueComment", row["id"]),
        "user": user_by_id(call, row["user_id"]),
        "created_at": row["created_at"],
        "updated_at": row["updated_at"],
        "author_association": association(call, row["user_id"]),
        "body": row["body"],
        "performed_via_github_app": None,
    }


def event(call: Call, row: sqlite3.Row) -> Json:
    """One issue event; what is particular to its kind (label, assignee, rename) is in its data."""
    commit = row["commit_id"]
    result: Json = {
        "id": row["id"],
        "node_id": node("IssueEvent", row["id"]),
        "url": f"{call.repo_api}/issues/events/{row['id']}",
        "actor": user_by_id(call, row["actor_id"]),
        "event": row["event"],
        "commit_id": commit,
        "commit_url": f"{call.repo_api}/commits/{commit}" if commit else None,
        "created_at": row["created_at"],
        "performed_via_github_app": None,
    }
    data: Json = json.loads(row["data"])
    for key in ("assignee", "assigner", "requested_reviewer", "review_requester"):
        if key in data:
            result[key] = user_by_id(call, data.pop(key))
    return result | data
