"""Branches and their protection over REST."""

from __future__ import annotations

import json
import sqlite3
from typing import Any
from urllib.parse import quote

from harness.forge import render_git, sync
from harness.forge.errors import ApiError
from harness.forge.issues import names_in
from harness.forge.pages import cut, page_of
from harness.forge.state import Call, Reply


def list_branches(call: Call) -> Reply:
    rows = []
    for full, sha in call.bare.refs("refs/heads").items():
        name = full.removeprefix("refs/heads/")
        protected = sync.protection(call.state, call.repo_id, name) is not None
        rows.append(
            {
                "name": name,
                "commit": {"sha": sha, "url": f"{call.repo_api}/commits/{sha}"},
                "protected": protected,
            }
        )
    return page_of(call, cut(call, rows), len(rows))


def get_branch(call: Call) -> Reply:
    name = call.params["branch"]
    sha = call.bare.branch(name)
    if sha is None:
        raise ApiError(404, "Branch not found")
    api = f"{call.repo_api}/branches/{quote(name, safe='')}"
    protection = render_git.protection(call, name)
    shape = {
        "name": name,
        "commit": render_git.commit(call, call.bare.commit(sha)),
        "_links": {"self": api, "html": f"{call.repo_web}/tree/{name}"},
        "protected": protection["enabled"],
        "protection": protection,
        "protection_url": f"{api}/protection",
    }
    return Reply(200, shape)


def get_protection(call: Call) -> Reply:
    row = _protection_row(call)
    api = f"{call.repo_api}/branches/{quote(call.params['branch'], safe='')}/protection"
    shape: dict[str, Any] = {
        "url": api,
        "enforce_admins": {"url": f"{api}/enforce_admins", "enabled": bool(row["enforce_admins"])},
        "required_linear_history": {"enabled": False},
        "allow_force_pushes": {"enabled": bool(row["allow_force_pushes"])},
        "allow_deletions": {"enabled": bool(row["allow_deletions"])},
        "lock_branch": {"enabled": bool(row["locked"])},
    }
    checks = json.loads(row["required_checks"])
    if checks:
        url = f"{api}/required_status_checks"
        contexts = [{"context": name, "app_id": None} for name in checks]
        more = {"strict": bool(row["strict"]), "contexts": checks, "checks": contexts}
        shape["required_status_checks"] = {"url": url, "contexts_url": f"{url}/contexts", **more}
    if row["required_reviews"]:
        shape["required_pull_request_reviews"] = {
            "url": f"{api}/required_pull_request_reviews",
            "dismiss_stale_reviews": False,
            "require_code_owner_reviews": False,
            "require_last_push_approval": False,
            "required_approving_review_count": row["required_reviews"],
        }
    return Reply(200, shape)


def _protection_row(call: Call) -> sqlite3.Row:
    call.require("write")
    branch = call.params["branch"]
    if call.bare.branch(branch) is None:
        raise ApiError(404, "Branch not found")
    row = sync.protection(call.state, call.repo_id, branch)
    if row is None:
        raise ApiError(404, "Branch not protected")
    return row


def put_protection(call: Call) -> Reply:
    call.require("admin")
    if call.bare.branch(call.params["branch"]) is None:
        raise ApiError(404, "Branch not found")
    checks = call.body.get("required_status_checks") or {}
    contexts = names_in(checks.get("contexts"))
    contexts += [item["context"] for item in checks.get("checks") or [] if item.get("context")]
    reviews = call.body.get("required_pull_request_reviews")
    needed = 0 if reviews is None else int(reviews.get("required_approving_review_count", 1))
    call.db.run(
        "INSERT OR REPLACE INTO protections VALUES (?,?,?,?,?,?,?,?,?)",
        call.repo_id,
        call.params["branch"],
        needed,
        json.dumps(contexts),
        int(bool(checks.get("strict"))),
        int(bool(call.body.get("enforce_admins"))),
        int(bool(call.body.get("allow_force_pushes"))),
        int(bool(call.body.get("allow_deletions"))),
        int(bool(call.body.get("lock_branch"))),
    )
    return get_protection(call)


def delete_protection(call: Call) -> Reply:
    call.require("admin")
    row = _protection_row(call)
    call.db.run("DELETE FROM protections WHERE repo_id = ? AND branch = ?", call.repo_id, row["branch"])
    return Reply(204)
