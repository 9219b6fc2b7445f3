"""`GET /search/issues`: the qualifiers that a bot uses, and words in title or body.

The one rule: an unknown qualifier is refused (422), never silently ignored.
"""

from __future__ import annotations

import re
from typing import Any

from harness.forge import render
from harness.forge.errors import ApiError, invalid
from harness.forge.pages import page_of, window
from harness.forge.state import Call, Reply

_TERM = re.compile(r'(?P<minus>-?)(?:(?P<name>[a-z-]+):)?(?P<value>"[^"]*"|\S+)')
_IS = {
    "issue": "i.is_pull = 0",
    "pr": "i.is_pull = 1",
    "pull-request": "i.is_pull = 1",
    "open": "i.state = 'open'",
    "closed": "i.state = 'closed'",
    "merged": "EXISTS (SELECT 1 FROM pulls p WHERE p.issue_id = i.id AND p.merged = 1)",
    "locked": "i.locked = 1",
}
_LABEL = (
    "i.id IN (SELECT il.issue_id FROM issue_labels il JOIN labels l ON l.id = il.label_id WHERE l.name = ?)"
)
_AUTHOR = "i.user_id = (SELECT id FROM users WHERE login = ?)"
_ASSIGNEE = "i.id IN (SELECT a.issue_id FROM assignees a JOIN users u ON u.id = a.user_id WHERE u.login = ?)"


def issues(call: Call) -> Reply:
    """One repository a search (`repo:owner/name`), which is all that a bot here needs."""
    wanted = call.query.get("q", "")
    where, args, full_name = _parse(wanted)
    if full_name is None:
        raise invalid("Search", "q", "missing", "this forge searches in one repository: add repo:owner/name")
    owner, _, name = full_name.partition("/")
    call.params = {"owner": owner, "repo": name}
    where += ["i.repo_id = ?", "i.deleted = 0", "i.moved_to IS NULL"]
    args.append(call.repo_id)
    condition = " AND ".join(where)
    total = call.db.must(f"SELECT count(*) AS n FROM issues i WHERE {condition}", *args)["n"]
    column = {"created": "created_at", "updated": "updated_at"}.get(call.query.get("sort", ""), "number")
    order = "ASC" if call.query.get("order") == "asc" else "DESC"
    by = f"i.{column} {order}, i.number {order}"
    sql = f"SELECT i.* FROM issues i WHERE {condition} ORDER BY {by} LIMIT ? OFFSET ?"
    rows = call.db.all(sql, *args, *window(call))
    items = [shape | {"score": 1.0} for shape in render.issues(call, rows)]
    body = {"total_count": total, "incomplete_results": False, "search_type": "lexical", "items": items}
    return Reply(200, body, page_of(call, [], total).headers)


def _parse(text: str) -> tuple[list[str], list[Any], str | None]:
    """(conditions, their arguments, the repository named)."""
    where: list[str] = []
    args: list[Any] = []
    repo = None
    for found in _TERM.finditer(text):
        name, value = found["name"], found["value"].strip('"')
        if name == "repo":
            repo = value
            continue
        condition, extra = _condition(name, value)
        where.append(f"NOT ({condition})" if found["minus"] else condition)
        args += extra
    return where, args, repo


def _condition(name: str | None, value: str) -> tuple[str, list[Any]]:
    if name is None:
        return "instr(lower(i.title || ' ' || coalesce(i.body, '')), lower(?)) > 0", [value]
    if name in ("is", "type", "state") and value in _IS:
        return _IS[value], []
    if name == "label":
        return _LABEL, [value]
    if name == "author":
        return _AUTHOR, [value]
    if name == "assignee":
        return _ASSIGNEE, [value]
    if name in ("head", "base"):
        return f"EXISTS (SELECT 1 FROM pulls p WHERE p.issue_id = i.id AND p.{name}_ref = ?)", [value]
    if name == "in":
        return "1", []
    raise ApiError(422, f"The forge does not know the search qualifier {name}:{value}.")
