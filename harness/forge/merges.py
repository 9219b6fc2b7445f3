"""Real merges in a bare repository: merge, squash and rebase, by merge-tree and commit-tree.

The one rule: the base ref moves only from the commit that was merged onto (compare and swap), so two
merges at once cannot lose a commit: the second hears "Base branch was modified".
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace

from harness.forge import sync
from harness.forge.bare import Bare, Person
from harness.forge.errors import ApiError
from harness.forge.refs import me
from harness.forge.state import Call, Reply
from harness.forge.statuses import green_contexts

WEB_FLOW = ("GitHub", "noreply@github.com")
BASE_MODIFIED = "Base branch was modified. Review and try the merge again."
HEAD_MODIFIED = "Head branch was modified. Review and try the merge again."
METHODS = {
    "merge": ("allow_merge_commit", "Merge commits are not allowed on this repository."),
    "squash": ("allow_squash_merge", "Squash merges are not allowed on this repository."),
    "rebase": ("allow_rebase_merge", "Rebase merges are not allowed on this repository."),
}


def mergeable(call: Call, pull: sqlite3.Row) -> bool | None:
    """Whether head merges into the base's tip; None while "being computed" and once it is closed."""
    base = call.bare.branch(pull["base_ref"])
    if base is None or pull["merged"]:
        return None
    key = f"{base}:{pull['head_sha']}"
    if pull["mergeable_key"] != key:
        clean = call.bare.merge_tree(base, pull["head_sha"]) is not None
        ready = call.state.now() + call.state.settings.mergeable_delay_s
        call.db.run(
            "UPDATE pulls SET mergeable_key = ?, mergeable = ?, mergeable_from = ? WHERE issue_id = ?",
            key,
            int(clean),
            ready,
            pull["issue_id"],
        )
        pull = call.db.must("SELECT * FROM pulls WHERE issue_id = ?", pull["issue_id"])
    return None if call.state.now() < pull["mergeable_from"] else bool(pull["mergeable"])


def verdict(call: Call, pull: sqlite3.Row) -> tuple[bool | None, str]:
    """(mergeable, mergeable_state) as GitHub words it."""
    able = mergeable(call, pull)
    if able is None:
        return None, "unknown"
    if not able:
        return False, "dirty"
    if pull["draft"]:
        return True, "draft"
    refusal = policy(call, pull)
    if refusal is not None:
        return True, refusal[0]
    bad = any(state != "success" for state in green_contexts(call, pull["head_sha"]).values())
    return True, "unstable" if bad else "clean"


def policy(call: Call, pull: sqlite3.Row) -> tuple[str, str] | None:
    """Why branch protection forbids the merge: (mergeable_state, message); None when it does not."""
    rule = sync.protection(call.state, call.repo_id, pull["base_ref"])
    if rule is None:
        return None
    needed = rule["required_reviews"]
    opinions = _opinions(call, pull)
    if needed and "CHANGES_REQUESTED" in opinions.values():
        return "blocked", "Changes have been requested by a reviewer with write access."
    if sum(state == "APPROVED" for state in opinions.values()) < needed:
        plural = "review is" if needed == 1 else "reviews are"
        return "blocked", f"At least {needed} approving {plural} required by reviewers with write access."
    have = green_contexts(call, pull["head_sha"])
    for name in json.loads(rule["required_checks"]):
        if have.get(name) != "success":
            word = "expected" if have.get(name) in (None, "pending") else "failing"
            return "blocked", f'Required status check "{name}" is {word}.'
    base = call.bare.branch(pull["base_ref"])
    if rule["strict"] and base is not None and not call.bare.contains(pull["head_sha"], base):
        return "behind", "The head branch is not up to date with the base branch."
    return None


def _opinions(call: Call, pull: sqlite3.Row) -> dict[int, str]:
    """The last say of each reviewer with write access, the author's own left out."""
    author = call.db.must("SELECT user_id FROM issues WHERE id = ?", pull["issue_id"])["user_id"]
    sql = (
        "SELECT r.user_id, r.state FROM reviews r LEFT JOIN collaborators c "
        "ON c.user_id = r.user_id AND c.repo_id = ? WHERE r.issue_id = ? AND r.user_id != ? "
        "AND r.state IN ('APPROVED', 'CHANGES_REQUESTED', 'DISMISSED') "
        "AND (c.role IN ('write', 'maintain', 'admin') OR r.user_id = ?) ORDER BY r.id"
    )
    rows = call.db.all(sql, call.repo_id, pull["issue_id"], author, call.repo["owner_id"])
    return {row["user_id"]: row["state"] for row in rows}


def _refuse(call: Call, pull: sqlite3.Row, method: str) -> None:
    issue = call.db.must("SELECT * FROM issues WHERE id = ?", pull["issue_id"])
    if pull["merged"] or issue["state"] != "open":
        raise ApiError(405, "Pull Request is not mergeable")
    if pull["draft"]:
        raise ApiError(405, "Pull Request is still a draft")
    wanted = call.body.get("sha")
    if wanted and wanted != pull["head_sha"]:
        raise ApiError(409, HEAD_MODIFIED)
    if method not in METHODS:
        raise ApiError(422, "Invalid request.\n\nmerge_method is not one of merge, squash, rebase.")
    column, message = METHODS[method]
    if not call.repo[column]:
        raise ApiError(405, message)
    refusal = policy(call, pull)
    rule = sync.protection(call.state, call.repo_id, pull["base_ref"])
    if refusal is not None and not (call.may("admin") and rule is not None and not rule["enforce_admins"]):
        raise ApiError(405, refusal[1])


def merge(call: Call, pull: sqlite3.Row) -> Reply:
    """`PUT /pulls/N/merge`: 200 with the SHA, or 405/409 with GitHub's words."""
    call.require("write")
    method = call.body.get("merge_method") or "merge"
    _refuse(call, pull, method)
    base = call.bare.branch(pull["base_ref"])
    if base is None:
        raise ApiError(405, "Pull Request is not mergeable")
    new = _build(call, pull, method, base)
    if not call.bare.set_ref(f"refs/heads/{pull['base_ref']}", new, base):
        raise ApiError(405, BASE_MODIFIED)
    sync.mark_merged(call, pull, new)
    if call.repo["delete_branch_on_merge"]:
        call.bare.delete_ref(f"refs/heads/{pull['head_ref']}", pull["head_sha"])
    sync.reconcile(call)
    return Reply(200, {"sha": new, "merged": True, "message": "Pull Request successfully merged"})


def _build(call: Call, pull: sqlite3.Row, method: str, base: str) -> str:
    """The commit that the base shall move to."""
    head, bare, author = pull["head_sha"], call.bare, me(call)
    web = Person(*WEB_FLOW, at=author.at)
    if method == "rebase":
        return rebase(bare, base, head, author)
    tree = bare.merge_tree(base, head)
    if tree is None:
        raise ApiError(405, "Pull Request is not mergeable")
    issue = call.db.must("SELECT * FROM issues WHERE id = ?", pull["issue_id"])
    title, text = call.body.get("commit_title"), call.body.get("commit_message")
    if method == "squash":
        commits = list(reversed(bare.log(f"{base}..{head}")))
        first = commits[0].message.partition("\n") if len(commits) == 1 else None
        default_title = f"{first[0] if first else issue['title']} (#{pull['number']})"
        listed = "\n\n".join(f"* {item.message}" for item in commits)
        default_text = first[2].strip("\n") if first else listed
        message = f"{title or default_title}\n\n{default_text if text is None else text}".rstrip("\n") + "\n"
        return bare.commit_tree(tree, (base,), message, author, web)
    default_title = f"Merge pull request #{pull['number']} from {call.repo['owner']}/{pull['head_ref']}"
    message = f"{title or default_title}\n\n{issue['title'] if text is None else text}".rstrip("\n") + "\n"
    return bare.commit_tree(tree, (base, head), message, author, web)


def rebase(bare: Bare, base: str, head: str, committer: Person) -> str:
    """Put the commits of ``base..head`` one by one on ``base``.

    git 2.39 has no `merge-tree --merge-base`, so each step merges against a stand-in commit that has the
    tip's tree and the picked commit's parent: their merge base is then exactly that parent.
    """
    shas = bare.text("rev-list", "--reverse", "--no-merges", "--topo-order", f"{base}..{head}").split()
    tip = base
    for sha in shas:
        item = bare.commit(sha)
        tip_tree = bare.commit(tip).tree
        parent = item.parents[:1]
        stand_in = bare.commit_tree(tip_tree, parent, "stand-in\n", committer, committer)
        tree = bare.merge_tree(stand_in, sha)
        if tree is None:
            raise ApiError(405, "This branch can't be rebased due to conflicts")
        if tree == tip_tree and parent and bare.commit(parent[0]).tree != item.tree:
            continue  # it is already in the base
        when = replace(committer, at=max(committer.at, item.committer.at))
        tip = bare.commit_tree(tree, (tip,), item.message + "\n", item.author, when)
    return tip


def update_branch(call: Call, pull: sqlite3.Row) -> Reply:
    """`PUT /pulls/N/update-branch`: merge the base into the head."""
    call.require("write")
    expected = call.body.get("expected_head_sha")
    if expected and expected != pull["head_sha"]:
        raise ApiError(422, "expected head sha didn't match current head ref.")
    base = call.bare.branch(pull["base_ref"])
    if base is None or call.bare.contains(pull["head_sha"], base):
        raise ApiError(422, "There are no new commits on the base branch.")
    tree = call.bare.merge_tree(pull["head_sha"], base)
    if tree is None:
        raise ApiError(422, "merge conflict between base and head")
    author = me(call)
    message = f"Merge branch '{pull['base_ref']}' into {pull['head_ref']}\n"
    web = Person(*WEB_FLOW, at=author.at)
    new = call.bare.commit_tree(tree, (pull["head_sha"], base), message, author, web)
    if not call.bare.set_ref(f"refs/heads/{pull['head_ref']}", new, pull["head_sha"]):
        raise ApiError(422, "expected head sha didn't match current head ref.")
    sync.reconcile(call)
    return Reply(
        202, {"message": "Updating pull request branch.", "url": f"{call.repo_web}/pull/{pull['number']}"}
    )
