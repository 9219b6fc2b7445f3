"""Releases: a tag that is absent is created on the target, as on GitHub."""

from __future__ import annotations

import sqlite3
from typing import Any

from harness.forge import render, sync
from harness.forge.bare import ZERO, valid_ref
from harness.forge.errors import invalid, not_found, unprocessable
from harness.forge.issues import check_text
from harness.forge.pages import cut, page_of
from harness.forge.state import Call, Reply

BODY_LIMIT = 125_000


def shape(call: Call, row: sqlite3.Row) -> dict[str, Any]:
    api = f"{call.repo_api}/releases/{row['id']}"
    tag = row["tag_name"]
    place = f"untagged-{row['id']}" if row["draft"] else tag
    return {
        "url": api,
        "html_url": f"{call.repo_web}/releases/tag/{place}",
        "assets_url": f"{api}/assets",
        "upload_url": f"{api}/assets{{?name,label}}",
        "tarball_url": None if row["draft"] else f"{call.repo_api}/tarball/{tag}",
        "zipball_url": None if row["draft"] else f"{call.repo_api}/zipball/{tag}",
        "id": row["id"],
        "node_id": render.node("Release", row["id"]),
        "tag_name": tag,
        "target_commitish": row["target"],
        "name": row["name"],
        "body": row["body"],
        "draft": bool(row["draft"]),
        "prerelease": bool(row["prerelease"]),
        "immutable": False,
        "created_at": row["created_at"],
        "published_at": row["published_at"],
        "updated_at": row["published_at"] or row["created_at"],
        "author": render.user_by_id(call, row["author_id"]),
        "assets": [],
    }


def _visible(call: Call) -> list[sqlite3.Row]:
    sql = "SELECT * FROM releases WHERE repo_id = ? ORDER BY id DESC"
    rows = call.db.all(sql, call.repo_id)
    return rows if call.may("write") else [row for row in rows if not row["draft"]]


def list_for_repo(call: Call) -> Reply:
    rows = _visible(call)
    return page_of(call, [shape(call, row) for row in cut(call, rows)], len(rows))


def latest(call: Call) -> Reply:
    """The newest full release (by publication; the id decides within one second)."""
    rows = [row for row in _visible(call) if not row["draft"] and not row["prerelease"]]
    if not rows:
        raise not_found()
    return Reply(200, shape(call, max(rows, key=lambda row: (row["published_at"], row["id"]))))


def by_tag(call: Call) -> Reply:
    row = _published(call, call.params["tag"])
    if row is None:
        raise not_found()
    return Reply(200, shape(call, row))


def _published(call: Call, tag: str) -> sqlite3.Row | None:
    sql = "SELECT * FROM releases WHERE repo_id = ? AND tag_name = ? AND draft = 0"
    return call.db.one(sql, call.repo_id, tag)


def _find(call: Call) -> sqlite3.Row:
    number = call.number("release_id")
    row = next((row for row in _visible(call) if row["id"] == number), None)
    if row is None:
        raise not_found()
    return row


def get(call: Call) -> Reply:
    return Reply(200, shape(call, _find(call)))


def create(call: Call) -> Reply:
    call.require("write")
    tag = str(call.body.get("tag_name") or "")
    if not tag:
        raise invalid("Release", "tag_name", "missing_field")
    if not valid_ref(tag):
        raise invalid("Release", "tag_name", "custom", "tag_name is not well-formed")
    draft = bool(call.body.get("draft"))
    if _published(call, tag) is not None:
        raise invalid("Release", "tag_name", "already_exists")
    target = call.body.get("target_commitish") or call.repo["default_branch"]
    text = call.body.get("body")
    if call.body.get("generate_release_notes"):
        text = "\n\n".join(part for part in (text, _notes(call, tag, target, None)["body"]) if part)
    if text is not None:
        check_text("Release", "body", text, BODY_LIMIT)
    if not draft:
        _ensure_tag(call, tag, target)
    new = call.db.insert(
        "releases",
        repo_id=call.repo_id,
        tag_name=tag,
        target=target,
        name=call.body.get("name"),
        body=text,
        draft=int(draft),
        prerelease=int(bool(call.body.get("prerelease"))),
        author_id=call.user_id,
        created_at=call.now,
        published_at=None if draft else call.now,
    )
    result = shape(call, call.db.must("SELECT * FROM releases WHERE id = ?", new))
    return Reply(201, result, {"Location": result["url"]})


def _ensure_tag(call: Call, tag: str, target: str) -> None:
    if call.bare.ref(f"refs/tags/{tag}") is not None:
        return
    sha = call.bare.resolve(target)
    if sha is None:
        raise invalid("Release", "target_commitish", "invalid")
    call.bare.set_ref(f"refs/tags/{tag}", sha, ZERO)
    sync.reconcile(call)


def update(call: Call) -> Reply:
    call.require("write")
    row = _find(call)
    names = ("tag_name", "target_commitish", "name", "body", "draft", "prerelease")
    wanted = {name: call.body[name] for name in names if call.body.get(name) is not None}
    tag, draft = wanted.get("tag_name", row["tag_name"]), bool(wanted.get("draft", row["draft"]))
    target = wanted.get("target_commitish", row["target"])
    other = _published(call, tag)
    if other is not None and other["id"] != row["id"]:
        raise invalid("Release", "tag_name", "already_exists")
    if not draft:
        _ensure_tag(call, tag, target)
    call.db.run(
        "UPDATE releases SET tag_name = ?, target = ?, name = ?, body = ?, draft = ?, prerelease = ?, "
        "published_at = ? WHERE id = ?",
        tag,
        target,
        wanted.get("name", row["name"]),
        wanted.get("body", row["body"]),
        int(draft),
        int(bool(wanted.get("prerelease", row["prerelease"]))),
        None if draft else row["published_at"] or call.now,
        row["id"],
    )
    return Reply(200, shape(call, call.db.must("SELECT * FROM releases WHERE id = ?", row["id"])))


def delete(call: Call) -> Reply:
    call.require("write")
    call.db.run("DELETE FROM releases WHERE id = ?", _find(call)["id"])
    return Reply(204)


# -- notes ----------------------------------------------------------------------------------------


def generate_notes(call: Call) -> Reply:
    call.require("write")
    tag = str(call.body.get("tag_name") or "")
    if not tag:
        raise invalid("Release", "tag_name", "missing_field")
    target = call.body.get("target_commitish") or call.repo["default_branch"]
    return Reply(200, _notes(call, tag, target, call.body.get("previous_tag_name")))


def _notes(call: Call, tag: str, target: str, previous: str | None) -> dict[str, str]:
    """What was merged between the previous release's tag and the new one."""
    head = call.bare.resolve(f"refs/tags/{tag}") or call.bare.resolve(target)
    if head is None:
        raise unprocessable("Invalid target_commitish parameter")
    if previous is None:
        older = [row["tag_name"] for row in _visible(call) if not row["draft"] and row["tag_name"] != tag]
        previous = next((name for name in older if _holds(call, head, name)), None)
    elif call.bare.resolve(f"refs/tags/{previous}") is None:
        raise unprocessable("Invalid previous_tag parameter")
    revisions = f"refs/tags/{previous}..{head}" if previous else head
    landed = set(call.bare.text("rev-list", "--max-count=1000", revisions, "--").split())
    sql = (
        "SELECT p.*, i.title, u.login FROM pulls p JOIN issues i ON i.id = p.issue_id "
        "JOIN users u ON u.id = i.user_id WHERE p.repo_id = ? AND p.merged = 1 ORDER BY p.number"
    )
    lines = [
        f"* {row['title']} by @{row['login']} in {call.repo_web}/pull/{row['number']}"
        for row in call.db.all(sql, call.repo_id)
        if row["merge_commit_sha"] in landed
    ]
    changes = "## What's Changed\n" + "\n".join(lines) + "\n\n" if lines else ""
    span = f"compare/{previous}...{tag}" if previous else f"commits/{tag}"
    return {"name": tag, "body": f"{changes}**Full Changelog**: {call.repo_web}/{span}"}


def _holds(call: Call, head: str, tag: str) -> bool:
    sha = call.bare.resolve(f"refs/tags/{tag}")
    return sha is not None and call.bare.contains(head, sha)
