"""Pull requests within one repository: list, create, read, change, files, commits, merge."""

from __future__ import annotations

import sqlite3
from typing import Any

from harness.forge import issues, merges, render_git, render_pull
from harness.forge.errors import ApiError, invalid, not_found
from harness.forge.pages import cut, page_of, window
from harness.forge.state import Call, Reply

FILES_LIMIT = 3000
COMMITS_LIMIT = 250


def find(call: Call) -> sqlite3.Row:
    row = issues.find(call, pull=True)
    return call.db.must("SELECT * FROM pulls WHERE issue_id = ?", row["id"])


def list_for_repo(call: Call) -> Reply:
    where = ["p.repo_id = ?"]
    args: list[Any] = [call.repo_id]
    state = call.query.get("state", "open")
    if state not in ("open", "closed", "all"):
        raise invalid("PullRequest", "state", "invalid")
    if state != "all":
        where.append("i.state = ?")
        args.append(state)
    head = call.query.get("head")
    if head:
        owner, colon, branch = head.partition(":")
        where.append("p.head_ref = ?")
        args.append(branch if colon else head)
        if colon and owner.lower() != call.repo["owner"].lower():
            where.append("0")
    if call.query.get("base"):
        where.append("p.base_ref = ?")
        args.append(call.query["base"])
    condition = " AND ".join(where)
    source = f"FROM pulls p JOIN issues i ON i.id = p.issue_id WHERE {condition}"
    total = call.db.must(f"SELECT count(*) AS n {source}", *args)["n"]
    sort = "updated_at" if call.query.get("sort") == "updated" else "created_at"
    default = "asc" if call.query.get("sort") == "updated" else "desc"
    order = "ASC" if call.query.get("direction", default) == "asc" else "DESC"
    sql = f"SELECT p.* {source} ORDER BY i.{sort} {order}, i.number {order} LIMIT ? OFFSET ?"
    return page_of(call, render_pull.simple(call, call.db.all(sql, *args, *window(call))), total)


def create(call: Call) -> Reply:
    call.require("read")
    head, base = _sides(call)
    head_sha, base_sha = call.bare.branch(head), call.bare.branch(base)
    if head_sha is None:
        raise invalid("PullRequest", "head", "invalid")
    if base_sha is None:
        raise invalid("PullRequest", "base", "invalid")
    sql = (
        "SELECT 1 FROM pulls p JOIN issues i ON i.id = p.issue_id "
        "WHERE p.repo_id = ? AND p.head_ref = ? AND p.base_ref = ? AND i.state = 'open'"
    )
    if call.db.one(sql, call.repo_id, head, base):
        said = f"A pull request already exists for {call.repo['owner']}:{head}."
        raise invalid("PullRequest", None, "custom", said)
    if call.bare.contains(base_sha, head_sha):
        raise invalid("PullRequest", None, "custom", f"No commits between {base} and {head}")
    if call.bare.merge_base(base_sha, head_sha) is None:
        raise invalid(
            "PullRequest", None, "custom", f"The {head} branch has no history in common with {base}"
        )
    row = _insert(call, head, head_sha, base, base_sha)
    shape = _full(call, row)
    return Reply(201, shape, {"Location": shape["url"]})


def _sides(call: Call) -> tuple[str, str]:
    """(head, base) branches as asked for; forks are not known here."""
    for field in ("head", "base"):
        if not call.body.get(field):
            raise invalid("PullRequest", field, "missing_field")
    head, base = str(call.body["head"]), str(call.body["base"])
    owner, colon, branch = head.partition(":")
    if colon and owner.lower() != call.repo["owner"].lower():
        raise invalid("PullRequest", "head", "invalid")
    return branch if colon else head, base


def _insert(call: Call, head: str, head_sha: str, base: str, base_sha: str) -> sqlite3.Row:
    if not call.body.get("title"):
        raise invalid("PullRequest", "title", "missing_field")
    title = issues.check_text("PullRequest", "title", call.body["title"], issues.TITLE_LIMIT)
    body = call.body.get("body")
    if body is not None:
        issues.check_text("PullRequest", "body", body, issues.BODY_LIMIT)
    row = issues.new_row(call, title, body, is_pull=True)
    call.db.insert(
        "pulls",
        issue_id=row["id"],
        repo_id=call.repo_id,
        number=row["number"],
        head_ref=head,
        head_sha=head_sha,
        base_ref=base,
        base_sha=base_sha,
        draft=int(bool(call.body.get("draft"))),
        maintainer_can_modify=0,
    )
    call.bare.set_ref(f"refs/pull/{row['number']}/head", head_sha)
    return call.db.must("SELECT * FROM pulls WHERE issue_id = ?", row["id"])


def _full(call: Call, pull: sqlite3.Row) -> dict[str, Any]:
    return render_pull.full(call, pull, merges.verdict(call, pull), _numbers(call, pull))


def _numbers(call: Call, pull: sqlite3.Row) -> dict[str, Any]:
    """The size of the change against the base it was made for; computed once per (base, head)."""
    key = f"{pull['base_sha']}:{pull['head_sha']}"
    if pull["stat_key"] != key:
        common = call.bare.merge_base(pull["base_sha"], pull["head_sha"]) or pull["base_sha"]
        files = call.bare.changes(common, pull["head_sha"], patches=False)
        total = render_git.stats(files)
        call.db.run(
            "UPDATE pulls SET stat_key = ?, n_commits = ?, additions = ?, deletions = ?, changed_files = ? "
            "WHERE issue_id = ?",
            key,
            call.bare.count(pull["base_sha"], pull["head_sha"])[1],
            total["additions"],
            total["deletions"],
            len(files),
            pull["issue_id"],
        )
        pull = call.db.must("SELECT * FROM pulls WHERE issue_id = ?", pull["issue_id"])
    names = ("additions", "deletions", "changed_files")
    return {"commits": pull["n_commits"], **{name: pull[name] for name in names}}


def get(call: Call) -> Reply:
    return Reply(200, _full(call, find(call)))


def update(call: Call) -> Reply:
    pull = find(call)
    row = call.db.must("SELECT * FROM issues WHERE id = ?", pull["issue_id"])
    if call.user_id != row["user_id"]:
        call.require("write")
    reopening = call.body.get("state") == "open" and row["state"] == "closed"
    if reopening:
        _check_reopen(call, pull)
    base = call.body.get("base")
    if base and base != pull["base_ref"]:
        sha = call.bare.branch(base)
        if sha is None:
            raise invalid("PullRequest", "base", "invalid")
        if call.bare.contains(sha, pull["head_sha"]):
            raise invalid(
                "PullRequest", "base", "custom", f"No commits between {base} and {pull['head_ref']}"
            )
        call.db.run("UPDATE pulls SET base_ref = ?, base_sha = ? WHERE issue_id = ?", base, sha, row["id"])
        issues.record(call, row["id"], "base_ref_changed")
        issues.touch(call, row["id"])
    issues.change(call, row, dict(call.body))
    return Reply(200, _full(call, find(call)))


def _check_reopen(call: Call, pull: sqlite3.Row) -> None:
    if pull["merged"]:
        raise invalid(
            "PullRequest", "state", "invalid", "state cannot be changed. The pull request is merged."
        )
    sha = call.bare.branch(pull["head_ref"])
    if sha is None:
        said = f"state cannot be changed. The {pull['head_ref']} branch has been deleted."
        raise invalid("PullRequest", "state", "invalid", said)
    call.db.run("UPDATE pulls SET head_sha = ? WHERE issue_id = ?", sha, pull["issue_id"])
    call.bare.set_ref(f"refs/pull/{pull['number']}/head", sha)


def list_files(call: Call) -> Reply:
    pull = find(call)
    common = call.bare.merge_base(pull["base_sha"], pull["head_sha"]) or pull["base_sha"]
    files = call.bare.changes(common, pull["head_sha"])[:FILES_LIMIT]
    shapes = [render_git.file(call, change, pull["head_sha"]) for change in cut(call, files)]
    return page_of(call, shapes, len(files))


def list_commits(call: Call) -> Reply:
    pull = find(call)
    revisions = f"{pull['base_sha']}..{pull['head_sha']}"
    items = list(reversed(call.bare.log(revisions, limit=COMMITS_LIMIT)))
    return page_of(call, [render_git.commit(call, item) for item in cut(call, items)], len(items))


def is_merged(call: Call) -> Reply:
    if not find(call)["merged"]:
        raise not_found()
    return Reply(204)


def merge(call: Call) -> Reply:
    return merges.merge(call, find(call))


def update_branch(call: Call) -> Reply:
    pull = find(call)
    if call.db.must("SELECT state FROM issues WHERE id = ?", pull["issue_id"])["state"] != "open":
        raise ApiError(422, "The pull request is closed.")
    return merges.update_branch(call, pull)
