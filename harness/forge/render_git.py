"""The JSON shapes of git's own things: commits, files of a diff, refs, tags, branches."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from harness.forge import render
from harness.forge.bare import Change, Commit, Person
from harness.forge.render import Json, node
from harness.forge.state import Call

_VERIFICATION = {
    "verified": False,
    "reason": "unsigned",
    "signature": None,
    "payload": None,
    "verified_at": None,
}


def person(who: Person) -> Json:
    return {"name": who.name, "email": who.email, "date": who.date}


def account(call: Call, who: Person) -> Json | None:
    """The forge's user with that e-mail address, None when nobody has it."""
    row = call.db.one("SELECT * FROM users WHERE email = ? ORDER BY id LIMIT 1", who.email)
    return None if row is None else render.user(call, row)


def commit(call: Call, item: Commit) -> Json:
    git_url = f"{call.repo_api}/git/commits/{item.sha}"
    return {
        "sha": item.sha,
        "node_id": node("Commit", item.sha),
        "commit": {
            "author": person(item.author),
            "committer": person(item.committer),
            "message": item.message,
            "tree": {"sha": item.tree, "url": f"{call.repo_api}/git/trees/{item.tree}"},
            "url": git_url,
            "comment_count": 0,
            "verification": _VERIFICATION,
        },
        "url": f"{call.repo_api}/commits/{item.sha}",
        "html_url": f"{call.repo_web}/commit/{item.sha}",
        "comments_url": f"{call.repo_api}/commits/{item.sha}/comments",
        "author": account(call, item.author),
        "committer": account(call, item.committer),
        "parents": [_parent(call, sha) for sha in item.parents],
    }


def _parent(call: Call, sha: str) -> Json:
    links = {"url": f"{call.repo_api}/commits/{sha}", "html_url": f"{call.repo_web}/commit/{sha}"}
    return {"sha": sha, **links}


def git_commit(call: Call, item: Commit) -> Json:
    """The form that the git data endpoints use."""
    return {
        "sha": item.sha,
        "node_id": node("Commit", item.sha),
        "url": f"{call.repo_api}/git/commits/{item.sha}",
        "html_url": f"{call.repo_web}/commit/{item.sha}",
        "author": person(item.author),
        "committer": person(item.committer),
        "message": item.message,
        "tree": {"sha": item.tree, "url": f"{call.repo_api}/git/trees/{item.tree}"},
        "parents": [_parent(call, sha) for sha in item.parents],
        "verification": _VERIFICATION,
    }


def file(call: Call, change: Change, sha: str) -> Json:
    path = quote(change.path)
    result: Json = {
        "sha": change.blob,
        "filename": change.path.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
        "status": change.status,
        "additions": change.additions,
        "deletions": change.deletions,
        "changes": change.additions + change.deletions,
        "blob_url": f"{call.repo_web}/blob/{sha}/{path}",
        "raw_url": f"{call.repo_web}/raw/{sha}/{path}",
        "contents_url": f"{call.repo_api}/contents/{path}?ref={sha}",
    }
    if change.patch is not None:
        result["patch"] = change.patch
    if change.old_path is not None:
        result["previous_filename"] = change.old_path
    return result


def ref(call: Call, name: str, sha: str, kind: str) -> Json:
    return {
        "ref": name,
        "node_id": node("Ref", name),
        "url": f"{call.repo_api}/git/{quote(name)}",
        "object": {
            "sha": sha,
            "type": kind,
            "url": f"{call.repo_api}/git/{kind}s/{sha}",
        },
    }


def stats(files: list[Change]) -> Json:
    additions = sum(item.additions for item in files)
    deletions = sum(item.deletions for item in files)
    return {"additions": additions, "deletions": deletions, "total": additions + deletions}


def protection(call: Call, branch: str) -> Json:
    """The short form inside a branch."""
    row = call.db.one("SELECT * FROM protections WHERE repo_id = ? AND branch = ?", call.repo_id, branch)
    checks: list[str] = [] if row is None else json.loads(row["required_checks"])
    level = (
        "off" if not checks else ("everyone" if row is not None and row["enforce_admins"] else "non_admins")
    )
    return {
        "enabled": row is not None,
        "required_status_checks": {"enforcement_level": level, "contexts": checks, "checks": []},
    }


def contents_links(call: Call, api: str, git: str, html: str) -> dict[str, Any]:
    return {"self": api, "git": git, "html": html}
