"""The caller, people, repositories and their collaborators."""

from __future__ import annotations

import re
import sqlite3

from harness.forge import render
from harness.forge.bare import Bare
from harness.forge.errors import ApiError, invalid, not_found
from harness.forge.pages import cut, page_of
from harness.forge.state import ROLES, Call, Reply

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
SETTINGS = (
    "allow_merge_commit", "allow_squash_merge", "allow_rebase_merge", "delete_branch_on_merge",
    "allow_auto_merge", "has_issues", "archived", "private",
)  # fmt: skip


def current_user(call: Call) -> Reply:
    if call.who is not None and call.who.kind == "app":
        raise ApiError(403, "Resource not accessible by integration")
    return Reply(200, render.profile(call, call.user, own=True))


def get_user(call: Call) -> Reply:
    return Reply(200, render.profile(call, _person(call), own=False))


def _person(call: Call) -> sqlite3.Row:
    row = call.db.one("SELECT * FROM users WHERE login = ?", call.params["username"])
    if row is None:
        raise not_found()
    return row


def get(call: Call) -> Reply:
    return Reply(200, render.repo_full(call))


def update(call: Call) -> Reply:
    call.require("admin")
    for name in SETTINGS:
        if name in call.body:
            call.db.run(f"UPDATE repos SET {name} = ? WHERE id = ?", int(bool(call.body[name])), call.repo_id)
    if "description" in call.body:
        call.db.run("UPDATE repos SET description = ? WHERE id = ?", call.body["description"], call.repo_id)
    branch = call.body.get("default_branch")
    if branch is not None:
        if call.bare.branch(branch) is None:
            raise invalid("Repository", "default_branch", "invalid")
        call.db.run("UPDATE repos SET default_branch = ? WHERE id = ?", branch, call.repo_id)
        call.bare.raw("symbolic-ref", "HEAD", f"refs/heads/{branch}")
    call.db.run("UPDATE repos SET updated_at = ? WHERE id = ?", call.now, call.repo_id)
    return Reply(200, render.repo_full(call, call.db.must("SELECT * FROM repos WHERE id = ?", call.repo_id)))


def create_for_user(call: Call) -> Reply:
    """An empty repository of the caller."""
    name = str(call.body.get("name") or "")
    if not _NAME.fullmatch(name) or name in (".", "..") or name.endswith(".git"):
        raise invalid("Repository", "name", "invalid")
    owner = call.user
    if call.state.repo(owner["login"], name) is not None:
        said = "name already exists on this account"
        raise invalid("Repository", "name", "custom", said)
    branch = "main"
    Bare.create(call.state.repo_path(owner["login"], name), branch)
    new = call.db.insert(
        "repos",
        owner_id=owner["id"],
        owner=owner["login"],
        name=name,
        description=call.body.get("description"),
        private=int(bool(call.body.get("private"))),
        default_branch=branch,
        created_at=call.now,
        updated_at=call.now,
        pushed_at=call.now,
    )
    return Reply(201, render.repo_full(call, call.db.must("SELECT * FROM repos WHERE id = ?", new)))


def list_for_caller(call: Call) -> Reply:
    person = call.user_id
    sql = (
        "SELECT * FROM repos WHERE owner_id = ? "
        "OR id IN (SELECT repo_id FROM collaborators WHERE user_id = ?) ORDER BY owner, name"
    )
    rows = call.db.all(sql, person, person)
    return page_of(call, [render.repo_full(call, row) for row in cut(call, rows)], len(rows))


# -- collaborators --------------------------------------------------------------------------------


def _role_of(call: Call, person: sqlite3.Row) -> str:
    if person["id"] == call.repo["owner_id"]:
        return "admin"
    sql = "SELECT role FROM collaborators WHERE repo_id = ? AND user_id = ?"
    row = call.db.one(sql, call.repo_id, person["id"])
    if row is not None:
        return str(row["role"])
    return "none" if call.repo["private"] else "read"


def permission(call: Call) -> Reply:
    """`permission` is the old four-step word, `role_name` the exact one."""
    call.require("read")
    if call.who is None:
        raise ApiError(401, "Requires authentication")
    person = _person(call)
    role = _role_of(call, person)
    old = {"triage": "read", "maintain": "write"}.get(role, role)
    shape = render.user(call, person) | {"permissions": render.permissions(role), "role_name": role}
    return Reply(200, {"permission": old, "role_name": role, "user": shape})


def _people(call: Call) -> list[sqlite3.Row]:
    """The owner and the collaborators."""
    known = "SELECT user_id FROM collaborators WHERE repo_id = ?"
    sql = f"SELECT * FROM users WHERE id = ? OR id IN ({known}) ORDER BY id"
    return call.db.all(sql, call.repo["owner_id"], call.repo_id)


def list_collaborators(call: Call) -> Reply:
    call.require("write")
    rows = _people(call)
    shapes = []
    for row in cut(call, rows):
        role = _role_of(call, row)
        shapes.append(render.user(call, row) | {"permissions": render.permissions(role), "role_name": role})
    return page_of(call, shapes, len(rows))


def is_collaborator(call: Call) -> Reply:
    call.require("write")
    person = _person(call)
    sql = "SELECT 1 FROM collaborators WHERE repo_id = ? AND user_id = ?"
    if person["id"] != call.repo["owner_id"] and call.db.one(sql, call.repo_id, person["id"]) is None:
        raise not_found()
    return Reply(204)


def add_collaborator(call: Call) -> Reply:
    """Unlike GitHub's, an invitation is accepted at once."""
    call.require("admin")
    word = call.body.get("permission", "push")
    role = {"pull": "read", "push": "write"}.get(word, word)
    if role not in ROLES[1:]:
        raise invalid("RepositoryInvitation", "permission", "invalid")
    person = _person(call)
    call.db.run("INSERT OR REPLACE INTO collaborators VALUES (?,?,?)", call.repo_id, person["id"], role)
    return Reply(204)


def remove_collaborator(call: Call) -> Reply:
    call.require("admin")
    sql = "DELETE FROM collaborators WHERE repo_id = ? AND user_id = ?"
    call.db.run(sql, call.repo_id, _person(call)["id"])
    return Reply(204)


def list_assignees(call: Call) -> Reply:
    rows = _people(call)
    return page_of(call, [render.user(call, row) for row in cut(call, rows)], len(rows))
