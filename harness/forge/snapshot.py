"""The whole visible state as plain data, so that two worlds can be compared.

The one rule: same world, same data: everything is sorted, and nothing that reading changes is in it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.forge.bare import Bare
from harness.forge.errors import ForgeError
from harness.forge.state import State
from harness.forge.tables import Db


def dump(data_dir: Path, *, times: bool = True) -> dict[str, Any]:
    """Issues, labels, comments, pulls, reviews, statuses, releases, events and refs of every repository.

    Reads a directory whether or not a server runs on it. ``times=False`` leaves times out, and SHAs stay.
    """
    path = Path(data_dir) / "forge.db"
    if not path.is_file():
        raise ForgeError(f"{data_dir} holds no forge: there is no forge.db in it")
    db = Db(path, read_only=True)
    try:
        return _dump(db, Path(data_dir), times)
    finally:
        db.close()


def dump_state(state: State) -> dict[str, Any]:
    return _dump(state.db, state.data_dir, True)


_ON_ISSUE = "JOIN issues i ON i.id = x.issue_id JOIN users u ON u.id = x.user_id WHERE i.repo_id = ? ORDER BY"
_LABELS = (
    "(SELECT json_group_array(name) FROM (SELECT l.name FROM issue_labels il JOIN labels l "
    "ON l.id = il.label_id WHERE il.issue_id = x.id ORDER BY l.name)) AS labels"
)
_ASSIGNEES = (
    "(SELECT json_group_array(login) FROM (SELECT v.login FROM assignees a JOIN users v "
    "ON v.id = a.user_id WHERE a.issue_id = x.id ORDER BY v.login)) AS assignees"
)
_QUERIES = {
    "labels": "SELECT name, color, description FROM labels WHERE repo_id = ? ORDER BY name",
    "issues": (
        "SELECT x.number, x.is_pull, x.title, x.body, x.state, x.state_reason, u.login AS user, x.locked, "
        f"x.deleted, x.moved_to, x.created_at, x.updated_at, x.closed_at, {_LABELS}, {_ASSIGNEES} "
        "FROM issues x JOIN users u ON u.id = x.user_id WHERE x.repo_id = ? ORDER BY x.number"
    ),
    "comments": (
        "SELECT x.id, i.number AS issue, u.login AS user, x.body, x.created_at, x.updated_at "
        f"FROM comments x {_ON_ISSUE} x.id"
    ),
    "pulls": (
        "SELECT number, head_ref, head_sha, base_ref, base_sha, draft, merged, merged_at, merge_commit_sha "
        "FROM pulls WHERE repo_id = ? ORDER BY number"
    ),
    "reviews": (
        "SELECT i.number AS pull, u.login AS user, x.state, x.body, x.commit_id, x.submitted_at "
        f"FROM reviews x {_ON_ISSUE} x.id"
    ),
    "review_comments": (
        "SELECT i.number AS pull, u.login AS user, x.path, x.line, x.body, x.commit_id "
        f"FROM review_comments x {_ON_ISSUE} x.id"
    ),
    "review_requests": (
        f"SELECT i.number AS pull, u.login AS user FROM review_requests x {_ON_ISSUE} i.number, u.login"
    ),
    "statuses": (
        "SELECT sha, context, state, description, target_url, created_at FROM statuses WHERE repo_id = ? "
        "ORDER BY id"
    ),
    "check_runs": "SELECT head_sha, name, status, conclusion FROM check_runs WHERE repo_id = ? ORDER BY id",
    "releases": (
        "SELECT tag_name, target, name, body, draft, prerelease, created_at, published_at FROM releases "
        "WHERE repo_id = ? ORDER BY id"
    ),
    "events": (
        "SELECT i.number AS issue, x.event, u.login AS actor, x.commit_id, x.data, x.created_at "
        "FROM events x JOIN issues i ON i.id = x.issue_id JOIN users u ON u.id = x.actor_id "
        "WHERE x.repo_id = ? ORDER BY x.id"
    ),
    "protections": "SELECT * FROM protections WHERE repo_id = ? ORDER BY branch",
    "collaborators": (
        "SELECT u.login AS user, x.role FROM collaborators x JOIN users u ON u.id = x.user_id "
        "WHERE x.repo_id = ? ORDER BY u.login"
    ),
}


def _dump(db: Db, data_dir: Path, times: bool) -> dict[str, Any]:
    repos = {}
    for row in db.all("SELECT * FROM repos ORDER BY owner, name"):
        parts: dict[str, Any] = {
            name: [_plain(dict(item), times) for item in db.all(sql, row["id"])]
            for name, sql in _QUERIES.items()
        }
        settings = {key: row[key] for key in ("private", "archived", "default_branch", "description")}
        parts["settings"] = settings | {
            key: value for key, value in dict(row).items() if key.startswith(("allow_", "delete_"))
        }
        parts["refs"] = dict(
            sorted(Bare(data_dir / "repos" / row["owner"] / f"{row['name']}.git").refs().items())
        )
        repos[f"{row['owner']}/{row['name']}"] = parts
    people = db.all("SELECT login, type, email, site_admin FROM users ORDER BY login")
    return {"repos": repos, "users": [dict(row) for row in people]}


def _plain(item: dict[str, Any], times: bool) -> dict[str, Any]:
    item.pop("repo_id", None)
    for name in ("data", "labels", "assignees"):
        if name in item:
            item[name] = json.loads(item[name])
    return item if times else {key: value for key, value in item.items() if not key.endswith("_at")}
