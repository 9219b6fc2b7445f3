"""What GitHub has no REST call for, but does to people: deleted and transferred issues, revoked tokens."""

from __future__ import annotations

import sqlite3

from harness.forge.errors import ForgeError
from harness.forge.state import State, iso


def _issue(state: State, full_name: str, number: int) -> sqlite3.Row:
    owner, _, name = full_name.partition("/")
    repo = state.repo(owner, name)
    if repo is None:
        raise ForgeError(f"repository {full_name} is not on this forge")
    row = state.db.one("SELECT * FROM issues WHERE repo_id = ? AND number = ?", repo["id"], number)
    if row is None:
        raise ForgeError(f"issue {full_name}#{number} is not on this forge")
    return row


def delete_issue(state: State, full_name: str, number: int) -> None:
    """From now on it answers 410, and lists leave it out."""
    state.db.run("UPDATE issues SET deleted = 1 WHERE id = ?", _issue(state, full_name, number)["id"])


def transfer_issue(state: State, full_name: str, number: int, to: str) -> int:
    """Move an issue to another repository of the forge; the old number answers 301. Gives the new number."""
    row = _issue(state, full_name, number)
    owner, _, name = to.partition("/")
    target = state.repo(owner, name)
    if target is None:
        raise ForgeError(f"repository {to} is not on this forge")
    new = int(target["next_number"])
    now = iso(state.now())
    state.db.run("UPDATE repos SET next_number = ? WHERE id = ?", new + 1, target["id"])
    kept = "is_pull, title, body, state, state_reason, user_id, created_at, closed_at, closed_by"
    copied = state.db.run(
        f"INSERT INTO issues (repo_id, number, updated_at, {kept}) "
        f"SELECT ?, ?, ?, {kept} FROM issues WHERE id = ?",
        target["id"],
        new,
        now,
        row["id"],
    )
    sql = "UPDATE comments SET issue_id = ?, repo_id = ? WHERE issue_id = ?"
    state.db.run(sql, copied, target["id"], row["id"])
    place = f"{target['owner']}/{target['name']}/issues/{new}"
    state.db.run("UPDATE issues SET moved_to = ? WHERE id = ?", place, row["id"])
    return new


def revoke(state: State, token_hash: str) -> None:
    if not state.db.changed("UPDATE tokens SET revoked = 1 WHERE hash = ?", token_hash):
        raise ForgeError("that token is not on this forge")
