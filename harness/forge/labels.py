"""Labels of a repository and of its issues. Names compare without case, as on GitHub."""

from __future__ import annotations

import re
import sqlite3

from harness.forge import render
from harness.forge.errors import ApiError, invalid, not_found
from harness.forge.issues import find, names_in, record, touch
from harness.forge.pages import cut, page_of
from harness.forge.state import Call, Reply

DEFAULT_COLOR = "ededed"
_COLOR = re.compile(r"[0-9a-fA-F]{6}")


def list_for_repo(call: Call) -> Reply:
    rows = call.db.all("SELECT * FROM labels WHERE repo_id = ? ORDER BY id", call.repo_id)
    return page_of(call, [render.label(call, row) for row in cut(call, rows)], len(rows))


def by_name(call: Call, name: str) -> sqlite3.Row | None:
    return call.db.one("SELECT * FROM labels WHERE repo_id = ? AND name = ?", call.repo_id, name)


def get(call: Call) -> Reply:
    row = by_name(call, call.params["name"])
    if row is None:
        raise not_found()
    return Reply(200, render.label(call, row))


def create(call: Call) -> Reply:
    call.require("triage")
    name = call.body.get("name")
    if not name:
        raise invalid("Label", "name", "missing_field")
    color = _color(call.body.get("color") or DEFAULT_COLOR)
    if len(name) > 50:
        raise invalid("Label", "name", "custom", "name is too long (maximum is 50 characters)")
    if by_name(call, name) is not None:
        raise invalid("Label", "name", "already_exists")
    row = insert(call, name, color, call.body.get("description"))
    return Reply(201, render.label(call, row), {"Location": f"{call.repo_api}/labels/{name}"})


def update(call: Call) -> Reply:
    call.require("triage")
    row = by_name(call, call.params["name"])
    if row is None:
        raise not_found()
    name = call.body.get("new_name") or row["name"]
    other = by_name(call, name)
    if other is not None and other["id"] != row["id"]:
        raise invalid("Label", "name", "already_exists")
    color = _color(call.body.get("color") or row["color"])
    text = call.body.get("description", row["description"])
    call.db.run(
        "UPDATE labels SET name = ?, color = ?, description = ? WHERE id = ?", name, color, text, row["id"]
    )
    return Reply(200, render.label(call, call.db.must("SELECT * FROM labels WHERE id = ?", row["id"])))


def delete(call: Call) -> Reply:
    call.require("triage")
    row = by_name(call, call.params["name"])
    if row is None:
        raise not_found()
    call.db.run("DELETE FROM issue_labels WHERE label_id = ?", row["id"])
    call.db.run("DELETE FROM labels WHERE id = ?", row["id"])
    return Reply(204)


def _color(text: str) -> str:
    if not _COLOR.fullmatch(text):
        raise invalid("Label", "color", "invalid")
    return text.lower()


def insert(call: Call, name: str, color: str, description: str | None) -> sqlite3.Row:
    values = {"name": name, "color": color, "description": description}
    return call.db.must(
        "SELECT * FROM labels WHERE id = ?", call.db.insert("labels", repo_id=call.repo_id, **values)
    )


# -- on an issue ----------------------------------------------------------------------------------


def of_issue(call: Call, issue_id: int) -> list[sqlite3.Row]:
    sql = (
        "SELECT * FROM labels WHERE id IN (SELECT label_id FROM issue_labels WHERE issue_id = ?) ORDER BY id"
    )
    return call.db.all(sql, issue_id)


def attach(call: Call, issue_id: int, names: list[str]) -> None:
    """Add labels; one that the repository lacks is created, as GitHub does."""
    for name in names:
        row = by_name(call, name) or insert(call, name, DEFAULT_COLOR, None)
        if call.db.changed("INSERT OR IGNORE INTO issue_labels VALUES (?, ?)", issue_id, row["id"]):
            record(call, issue_id, "labeled", label={"name": row["name"], "color": row["color"]})
            touch(call, issue_id)


def detach(call: Call, issue_id: int, row: sqlite3.Row) -> bool:
    sql = "DELETE FROM issue_labels WHERE issue_id = ? AND label_id = ?"
    if not call.db.changed(sql, issue_id, row["id"]):
        return False
    record(call, issue_id, "unlabeled", label={"name": row["name"], "color": row["color"]})
    touch(call, issue_id)
    return True


def replace(call: Call, issue_id: int, names: list[str]) -> None:
    wanted = {name.lower() for name in names}
    for row in of_issue(call, issue_id):
        if row["name"].lower() not in wanted:
            detach(call, issue_id, row)
    attach(call, issue_id, names)


def _reply(call: Call, issue_id: int) -> Reply:
    return Reply(200, [render.label(call, row) for row in of_issue(call, issue_id)])


def list_on_issue(call: Call) -> Reply:
    rows = of_issue(call, find(call)["id"])
    return page_of(call, [render.label(call, row) for row in cut(call, rows)], len(rows))


def add_to_issue(call: Call) -> Reply:
    row = find(call)
    call.require("triage")
    attach(call, row["id"], _wanted(call))
    return _reply(call, row["id"])


def set_on_issue(call: Call) -> Reply:
    row = find(call)
    call.require("triage")
    replace(call, row["id"], _wanted(call))
    return _reply(call, row["id"])


def clear_issue(call: Call) -> Reply:
    row = find(call)
    call.require("triage")
    replace(call, row["id"], [])
    return Reply(204)


def remove_from_issue(call: Call) -> Reply:
    row = find(call)
    call.require("triage")
    name = by_name(call, call.params["name"])
    if name is None or not detach(call, row["id"], name):
        raise ApiError(404, "Label does not exist")
    return _reply(call, row["id"])


def _wanted(call: Call) -> list[str]:
    """The names in the request: GitHub takes {"labels": [...]} and, from older clients, a bare array."""
    names = names_in(call.body.get("labels"))
    if any(not name or len(name) > 50 for name in names):
        raise invalid("Label", "name", "invalid")
    return names
