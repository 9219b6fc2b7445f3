"""Bring pull requests and issues in line with the refs: after a push, a merge, any ref call, and on start.

The one rule: it compares the refs that are there with those seen last, so a lost or doubled call changes
nothing. Merged means: the base moved, and now holds the head.
"""

from __future__ import annotations

import re
import sqlite3

from harness.forge import issues
from harness.forge.state import Call, State

KEYWORD = re.compile(
    r"\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?)\b:?\s+(?:(?P<repo>[\w.-]+/[\w.-]+))?#(?P<number>\d{1,9})\b",
    re.IGNORECASE,
)
COMMITS_LIMIT = 1000
Moves = dict[str, tuple[str | None, str | None]]


def protection(state: State, repo_id: int, branch: str) -> sqlite3.Row | None:
    return state.db.one("SELECT * FROM protections WHERE repo_id = ? AND branch = ?", repo_id, branch)


def reconcile(call: Call) -> Moves:
    """Compare refs, judge open pull requests, close issues named by what landed. Gives what had moved."""
    now = call.bare.refs("refs/heads", "refs/tags")
    seen = {
        row["name"]: row["sha"] for row in call.db.all("SELECT * FROM refs WHERE repo_id = ?", call.repo_id)
    }
    moves = {name: (seen.get(name), now.get(name)) for name in seen | now if seen.get(name) != now.get(name)}
    if not moves:
        return moves
    for name, (_, new) in moves.items():
        if new is None:
            call.db.run("DELETE FROM refs WHERE repo_id = ? AND name = ?", call.repo_id, name)
        else:
            call.db.run("INSERT OR REPLACE INTO refs VALUES (?,?,?)", call.repo_id, name, new)
    call.db.run("UPDATE repos SET pushed_at = ? WHERE id = ?", call.now, call.repo_id)
    sql = (
        "SELECT p.*, i.state FROM pulls p JOIN issues i ON i.id = p.issue_id "
        "WHERE p.repo_id = ? AND i.state = 'open' ORDER BY p.number"
    )
    for pull in call.db.all(sql, call.repo_id):
        _judge(call, pull, moves, now)
    old, new = moves.get(f"refs/heads/{call.repo['default_branch']}", (None, None))
    if new is not None and old is not None:
        for item in call.bare.log(f"{old}..{new}", limit=COMMITS_LIMIT):
            close_named(call, item.message, item.sha)
    return moves


def _judge(call: Call, pull: sqlite3.Row, moves: Moves, now: dict[str, str]) -> None:
    head, base = f"refs/heads/{pull['head_ref']}", f"refs/heads/{pull['base_ref']}"
    if head not in moves and base not in moves:
        return
    head_sha = pull["head_sha"]
    new_head = now.get(head)
    if head in moves and new_head is not None and new_head != head_sha:
        _move_head(call, pull, new_head, now.get(base) or pull["base_sha"])
        head_sha = new_head
    tip = now.get(base)
    inside = tip is not None and call.bare.contains(tip, head_sha)
    old_tip = moves[base][0] if base in moves else None
    if inside and tip is not None and old_tip is not None and not call.bare.contains(old_tip, head_sha):
        mark_merged(call, pull, _landing(call, old_tip, tip, head_sha))
        return
    row = call.db.must("SELECT * FROM issues WHERE id = ?", pull["issue_id"])
    if head in moves and new_head is None:
        issues.record(call, pull["issue_id"], "head_ref_deleted")
        issues.close(call, row, reason=None)
    elif tip is None or inside:
        issues.close(call, row, reason=None)


def _move_head(call: Call, pull: sqlite3.Row, sha: str, base_sha: str) -> None:
    if not call.bare.contains(sha, pull["head_sha"]):
        issues.record(call, pull["issue_id"], "head_ref_force_pushed", commit=sha)
    call.db.run(
        "UPDATE pulls SET head_sha = ?, base_sha = ? WHERE issue_id = ?", sha, base_sha, pull["issue_id"]
    )
    call.bare.set_ref(f"refs/pull/{pull['number']}/head", sha)
    issues.touch(call, pull["issue_id"])


def _landing(call: Call, old: str, new: str, head: str) -> str:
    """The first commit of the base's own line that holds the head: GitHub's merge_commit_sha."""
    line = call.bare.text("rev-list", "--first-parent", "--reverse", f"{old}..{new}").split()
    return next((sha for sha in line if call.bare.contains(sha, head)), new)


def mark_merged(call: Call, pull: sqlite3.Row, commit: str) -> None:
    """Close a pull request as merged, and the issues it names when its base is the default branch."""
    call.db.run(
        "UPDATE pulls SET merged = 1, merged_at = ?, merged_by = ?, merge_commit_sha = ? WHERE issue_id = ?",
        call.now,
        call.user_id,
        commit,
        pull["issue_id"],
    )
    row = call.db.must("SELECT * FROM issues WHERE id = ?", pull["issue_id"])
    issues.record(call, row["id"], "merged", commit=commit)
    issues.close(call, row, reason=None)
    if pull["base_ref"] == call.repo["default_branch"]:
        close_named(call, row["body"] or "", commit)


def close_named(call: Call, text: str, commit: str) -> None:
    """Close the issues of this repository that a text says it closes."""
    full = f"{call.repo['owner']}/{call.repo['name']}".lower()
    for found in KEYWORD.finditer(text):
        if found["repo"] is not None and found["repo"].lower() != full:
            continue
        sql = (
            "SELECT * FROM issues WHERE repo_id = ? AND number = ? AND is_pull = 0 AND state = 'open' "
            "AND deleted = 0 AND moved_to IS NULL"
        )
        row = call.db.one(sql, call.repo_id, int(found["number"]))
        if row is not None:
            issues.close(call, row, reason="completed", commit=commit)
