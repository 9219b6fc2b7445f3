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


_QUERIES = {
    "labels": "SELECT name, color, description FROM labels WHERE repo_id = ? ORDER BY name",
    "issues": (
        "SELECT i.number, i.is_pull, i.title, i.body, i.state, i.state_reason, u.login AS user, i.locked, i.deleted, "
        "i.moved_to, i.created_at, i.updated_at, i.closed_at, "
        "(SELECT group_concat(name, ',') FROM (SELECT l.name FROM issue_labels il JOIN labels l ON l.id = il.label_id "
        " WHERE il.issue_id = i.id ORDER BY l.name)) AS labels, "
        "(SELECT group_concat(login, ',') FROM (SELECT v.login FROM assignees a JOIN users v ON v.id = a.user_id "
        " WHERE a.issue_id = i.id ORDER BY v.login)) AS assignees "
        "FROM issues i JOIN users u ON u.id = i.user_id WHERE i.repo_id = ? ORDER BY i.number"
    ),
    "comments": (
        "SELECT c.id, i.number AS issue, u.login AS user, c.body, c.created_at, c.updated_at FROM comments c "
        "JOIN issues i ON i.id = c.issue_id JOIN users u ON u.id = c.user_id WHERE c.repo_id = ? ORDER BY c.id"
    ),
    "pulls": (
        "SELECT p.number, p.head_ref, p.head_sha, p.base_ref, p.base_sha, p.draft, p.merged, p.merged_at, "
        "p.merge_commit_sha FROM pulls p WHERE p.repo_id = ? ORDER BY p.number"
    ),
    "reviews": (
        "SELECT i.number AS pull, u.login AS user, r.state, r.body, r.commit_id, r.submitted_at FROM reviews r "
        "JOIN issues i ON i.id = r.issue_id JOIN users u ON u.id = r.user_id WHERE i.repo_id = ? ORDER BY r.id"
    ),
    "review_comments": (
        "SELECT i.number AS pull, u.login AS user, c.path, c.line, c.body, c.commit_id FROM review_comments c "
        "JOIN issues i ON i.id = c.issue_id JOIN users u ON u.id = c.user_id WHERE i.repo_id = ? ORDER BY c.id"
    ),
    "review_requests": (
        "SELECT i.number AS pull, u.login AS user FROM review_requests r JOIN issues i ON i.id = r.issue_id "
        "JOIN users u ON u.id = r.user_id WHERE i.repo_id = ? ORDER BY i.number, u.login"
    ),
    "statuses": (
        "SELECT sha, context, state, description, target_url, created_at FROM statuses WHERE repo_id = ? ORDER BY id"
    ),
    "check_runs": "SELECT head_sha, name, status, conclusion FROM check_runs WHERE repo_id = ? ORDER BY id",
    "releases": (
        "SELECT tag_name, target, name, body, draft, prerelease, created_at, published_at FROM releases "
        "WHERE repo_id = ? ORDER BY id"
    ),
    "events": (
        "SELECT i.number AS issue, e.event, u.login AS actor, e.commit_id, e.data, e.created_at FROM events e "
        "JOIN issues i ON i.id = e.issue_id JOIN users u ON u.id = e.actor_id WHERE e.repo_id = ? ORDER BY e.id"
    ),
    "protections": "SELECT * FROM protections WHERE repo_id = ? ORDER BY branch",
    "collaborators": (
        "SELECT u.login AS user, c.role FROM collaborators c JOIN users u ON u.id = c.user_id WHERE c.repo_id = ? "
        "ORDER BY u.login"
    ),
}  # fmt: skip


def _dump(db: Db, data_dir: Path, times: bool) -> dict[str, Any]:
    repos = {}
    for row in db.all("SELECT * FROM repos ORDER BY owner, name"):
        parts: dict[str, Any] = {
            name: [_plain(dict(item), times) for item in db.all(sql, row["id"])]
            for name, sql in _QUERIES.items()
        }
        settings = {key: row[key] for key in ("private", "archived", "default_branch", "description")}
        parts["settings"] = settings | {
            key: row[key] for key in row.keys() if key.startswith(("allow_", "delete_"))
        }
        parts["refs"] = dict(
            sorted(Bare(data_dir / "repos" / row["owner"] / f"{row['name']}.git").refs().items())
        )
        repos[f"{row['owner']}/{row['name']}"] = parts
    people = db.all("SELECT login, type, email, site_admin FROM users ORDER BY login")
    return {"repos": repos, "users": [dict(row) for row in people]}


def _plain(item: dict[str, Any], times: bool) -> dict[str, Any]:
    item.pop("repo_id", None)
    if "data" in item:
        item["data"] = json.loads(item["data"])
    if "labels" in item:
        for name in ("labels", "assignees"):
            item[name] = item[name].split(",") if item[name] else []
    return item if times else {key: value for key, value in item.items() if not key.endswith("_at")}
