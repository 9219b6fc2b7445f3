"""Commit statuses and check runs.

Check runs need a GitHub App's token: a personal one gets 403, as on GitHub.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from harness.forge import render
from harness.forge.bare import is_sha
from harness.forge.errors import ApiError, invalid, not_found, unprocessable
from harness.forge.pages import cut, page_of
from harness.forge.state import Call, Reply

STATES = ("error", "failure", "pending", "success")
PER_SHA_LIMIT = 1000
CONCLUSIONS = (
    "success", "failure", "neutral", "cancelled", "skipped", "timed_out", "action_required", "stale",
)  # fmt: skip


def _shape(call: Call, row: sqlite3.Row) -> dict[str, Any]:
    creator = render.user_by_id(call, row["creator_id"])
    return {
        "url": f"{call.repo_api}/statuses/{row['sha']}",
        "avatar_url": creator["avatar_url"] if creator else None,
        "id": row["id"],
        "node_id": render.node("StatusContext", row["id"]),
        "state": row["state"],
        "description": row["description"],
        "target_url": row["target_url"],
        "context": row["context"],
        "created_at": row["created_at"],
        "updated_at": row["updated_at"],
        "creator": creator,
    }


def create(call: Call) -> Reply:
    call.require("write")
    sha = call.params["sha"]
    if not is_sha(sha) or call.bare.kind(sha) != "commit":
        raise unprocessable(f"No commit found for SHA: {sha}")
    state = call.body.get("state")
    if state not in STATES:
        raise invalid("Status", "state", "inclusion")
    text = call.body.get("description")
    if text is not None and len(text) > 140:
        raise invalid(
            "Status", "description", "custom", "description is too long (maximum is 140 characters)"
        )
    count = call.db.must(
        "SELECT count(*) AS n FROM statuses WHERE repo_id = ? AND sha = ?", call.repo_id, sha
    )
    if count["n"] >= PER_SHA_LIMIT:
        said = "This SHA and context has reached the maximum number of statuses."
        raise invalid("Status", None, "custom", said)
    new = call.db.insert(
        "statuses",
        repo_id=call.repo_id,
        sha=sha,
        state=state,
        context=call.body.get("context") or "default",
        description=text,
        target_url=call.body.get("target_url"),
        creator_id=call.user_id,
        created_at=call.now,
        updated_at=call.now,
    )
    row = call.db.must("SELECT * FROM statuses WHERE id = ?", new)
    return Reply(201, _shape(call, row), {"Location": f"{call.repo_api}/statuses/{sha}"})


def _commit(call: Call) -> str:
    sha = call.bare.resolve(call.params["ref"])
    if sha is None:
        raise unprocessable(f"No commit found for SHA: {call.params['ref']}")
    return sha


def list_for_ref(call: Call) -> Reply:
    sha = _commit(call)
    rows = call.db.all(
        "SELECT * FROM statuses WHERE repo_id = ? AND sha = ? ORDER BY id DESC", call.repo_id, sha
    )
    return page_of(call, [_shape(call, row) for row in cut(call, rows)], len(rows))


def _latest(call: Call, sha: str) -> list[sqlite3.Row]:
    """The newest status of each context."""
    sql = (
        "SELECT * FROM statuses WHERE id IN "
        "(SELECT max(id) FROM statuses WHERE repo_id = ? AND sha = ? GROUP BY context) ORDER BY id"
    )
    return call.db.all(sql, call.repo_id, sha)


def combined(call: Call) -> Reply:
    sha = _commit(call)
    rows = _latest(call, sha)
    states = {row["state"] for row in rows}
    if states & {"error", "failure"}:
        state = "failure"
    else:
        state = "success" if states == {"success"} else "pending"
    shape = {
        "state": state,
        "statuses": [_shape(call, row) for row in cut(call, rows)],
        "sha": sha,
        "total_count": len(rows),
        "repository": render.repo_minimal(call),
        "commit_url": f"{call.repo_api}/commits/{sha}",
        "url": f"{call.repo_api}/commits/{sha}/status",
    }
    return Reply(200, shape, page_of(call, [], len(rows)).headers)


def green_contexts(call: Call, sha: str) -> dict[str, str]:
    """Each context and check of a commit: "success", "pending" or what it failed with."""
    found = {row["context"]: row["state"] for row in _latest(call, sha)}
    sql = "SELECT * FROM check_runs WHERE repo_id = ? AND head_sha = ? ORDER BY id"
    for row in call.db.all(sql, call.repo_id, sha):
        if row["status"] != "completed":
            found[row["name"]] = "pending"
        else:
            passed = row["conclusion"] in ("success", "neutral", "skipped")
            found[row["name"]] = "success" if passed else row["conclusion"]
    return found


# -- check runs -----------------------------------------------------------------------------------


def _app(call: Call) -> None:
    call.require("write")
    if call.who is None or call.who.kind != "app":
        raise ApiError(403, "You must authenticate via a GitHub App.")


def _run_shape(call: Call, row: sqlite3.Row) -> dict[str, Any]:
    output = json.loads(row["output"])
    api = f"{call.repo_api}/check-runs/{row['id']}"
    app = call.state.user(row["app_id"])
    return {
        "id": row["id"],
        "head_sha": row["head_sha"],
        "node_id": render.node("CheckRun", row["id"]),
        "external_id": row["external_id"],
        "url": api,
        "html_url": f"{call.repo_web}/runs/{row['id']}",
        "details_url": row["details_url"],
        "status": row["status"],
        "conclusion": row["conclusion"],
        "started_at": row["started_at"],
        "completed_at": row["completed_at"],
        "output": {
            "title": output.get("title"),
            "summary": output.get("summary"),
            "text": output.get("text"),
            "annotations_count": len(output.get("annotations", [])),
            "annotations_url": f"{api}/annotations",
        },
        "name": row["name"],
        "check_suite": {"id": row["id"]},
        "app": {
            "id": app["id"],
            "slug": app["login"].removesuffix("[bot]"),
            "node_id": render.node("App", app["id"]),
            "owner": render.user(call, app),
            "name": app["name"] or app["login"],
            "description": None,
            "external_url": call.web,
            "html_url": f"{call.web}/apps/{app['login']}",
            "created_at": app["created_at"],
            "updated_at": app["created_at"],
            "permissions": {"checks": "write"},
            "events": [],
        },
        "pull_requests": [],
    }


def _fields(call: Call, before: dict[str, Any]) -> dict[str, Any]:
    """The state of a run after a request: a conclusion or completed_at completes it."""
    names = ("name", "status", "conclusion", "details_url", "external_id", "started_at", "completed_at")
    after = before | {name: call.body[name] for name in names if call.body.get(name) is not None}
    if call.body.get("conclusion"):
        if call.body["conclusion"] not in CONCLUSIONS:
            raise invalid("CheckRun", "conclusion", "invalid")
        after["status"] = "completed"
        after["completed_at"] = after["completed_at"] or call.now
    if after["status"] == "completed" and not after["conclusion"]:
        raise invalid("CheckRun", "conclusion", "missing_field")
    if after["status"] in ("queued", "in_progress") and call.body.get("status"):
        after["conclusion"] = after["completed_at"] = None
    if "output" in call.body:
        after["output"] = json.dumps(call.body["output"])
    return after


def create_run(call: Call) -> Reply:
    _app(call)
    sha = str(call.body.get("head_sha", ""))
    if not is_sha(sha) or call.bare.kind(sha) != "commit":
        raise unprocessable(f"No commit found for SHA: {sha}")
    if not call.body.get("name"):
        raise invalid("CheckRun", "name", "missing_field")
    empty = dict.fromkeys(("conclusion", "details_url", "external_id", "completed_at"))
    row = _fields(call, {"status": "queued", "started_at": call.now, "output": "{}", **empty})
    row |= {"repo_id": call.repo_id, "head_sha": sha, "app_id": call.user_id}
    new = call.db.insert("check_runs", **row)
    return Reply(201, _run_shape(call, call.db.must("SELECT * FROM check_runs WHERE id = ?", new)))


def _find_run(call: Call) -> sqlite3.Row:
    sql = "SELECT * FROM check_runs WHERE repo_id = ? AND id = ?"
    row = call.db.one(sql, call.repo_id, call.number("check_run_id"))
    if row is None:
        raise not_found()
    return row


def get_run(call: Call) -> Reply:
    return Reply(200, _run_shape(call, _find_run(call)))


def update_run(call: Call) -> Reply:
    _app(call)
    row = _find_run(call)
    after = _fields(call, dict(row))
    call.db.update("check_runs", row["id"], **after)
    return Reply(200, _run_shape(call, _find_run(call)))


def list_runs(call: Call) -> Reply:
    sha = _commit(call)
    where, args = "repo_id = ? AND head_sha = ?", [call.repo_id, sha]
    for field, column in (("check_name", "name"), ("status", "status")):
        if call.query.get(field):
            where += f" AND {column} = ?"
            args.append(call.query[field])
    rows = call.db.all(f"SELECT * FROM check_runs WHERE {where} ORDER BY id DESC", *args)
    if call.query.get("filter", "latest") == "latest":
        rows = list({row["name"]: row for row in reversed(rows)}.values())
    shape = {"total_count": len(rows), "check_runs": [_run_shape(call, row) for row in cut(call, rows)]}
    return Reply(200, shape, page_of(call, [], len(rows)).headers)
