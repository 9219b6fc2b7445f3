"""Commits, compare and file contents over REST."""

from __future__ import annotations

import base64
import binascii
from typing import Any
from urllib.parse import quote

from harness.forge import render, render_git, render_pull, sync
from harness.forge.bare import Bare, Commit
from harness.forge.errors import ApiError, not_found, unprocessable
from harness.forge.pages import cut, page_of, window
from harness.forge.refs import me
from harness.forge.state import Call, Reply

COMPARE_COMMITS = 250
FILES_LIMIT = 300
FILE_LIMIT_BYTES = 100_000_000
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def resolve(call: Call, name: str) -> str:
    """The SHA that a client's ref means; 422 as GitHub answers when there is none."""
    sha = call.bare.resolve(name)
    if sha is None:
        raise unprocessable(f"No commit found for SHA: {name}")
    return sha


def get(call: Call) -> Reply:
    item = call.bare.commit(resolve(call, call.params["ref"]))
    files = call.bare.changes(item.parents[0] if item.parents else EMPTY_TREE, item.sha)
    shape = render_git.commit(call, item)
    shape["stats"] = render_git.stats(files)
    shape["files"] = [render_git.file(call, change, item.sha) for change in files[:FILES_LIMIT]]
    return Reply(200, shape)


def get_git(call: Call) -> Reply:
    sha = call.params["sha"]
    if call.bare.kind(sha) != "commit":
        raise not_found()
    return Reply(200, render_git.git_commit(call, call.bare.commit(sha)))


def list_commits(call: Call) -> Reply:
    start = call.bare.resolve(call.query.get("sha") or call.repo["default_branch"])
    if start is None:
        raise not_found()
    limit, offset = window(call)
    path = call.query.get("path")
    if path and not _plain(path):
        raise not_found()
    total = int(call.bare.text("rev-list", "--count", start, "--", *([path] if path else [])).strip())
    if path:
        shas = call.bare.text(
            "rev-list", f"--skip={offset}", f"--max-count={limit}", start, "--", path
        ).split()
        items = [call.bare.commit(sha) for sha in shas]
    else:
        items = call.bare.log(f"--skip={offset}", start, limit=limit)
    return page_of(call, [render_git.commit(call, item) for item in items], total)


def list_pulls(call: Call) -> Reply:
    """Pull requests that hold a commit (in the head, not in the base) or were merged as it."""
    sha = call.bare.resolve(call.params["ref"])
    if sha is None:
        raise unprocessable(f"No commit found for SHA: {call.params['ref']}")
    found = []
    for row in call.db.all("SELECT * FROM pulls WHERE repo_id = ? ORDER BY number DESC", call.repo_id):
        inside = call.bare.kind(row["head_sha"]) == "commit" and call.bare.contains(row["head_sha"], sha)
        before = call.bare.kind(row["base_sha"]) == "commit" and call.bare.contains(row["base_sha"], sha)
        if row["merge_commit_sha"] == sha or (inside and not before):
            found.append(row)
    return page_of(call, render_pull.simple(call, cut(call, found)), len(found))


def compare(call: Call) -> Reply:
    base_name, dots, head_name = call.params["basehead"].partition("...")
    owner = call.repo["owner"].lower()
    names = [
        name.split(":", 1)[1] if name.lower().startswith(owner + ":") else name
        for name in (base_name, head_name)
    ]
    base, head = call.bare.resolve(names[0]), call.bare.resolve(names[1])
    if not dots or base is None or head is None:
        raise not_found()
    common = call.bare.merge_base(base, head)
    if common is None:
        raise ApiError(404, f"No common ancestor between {base_name} and {head_name}.")
    behind, ahead = call.bare.count(base, head)
    status = {(False, False): "identical", (True, False): "ahead", (False, True): "behind"}
    limit, offset = window(call, COMPARE_COMMITS)
    items = list(reversed(call.bare.log(f"{base}..{head}", limit=100_000)))[offset : offset + max(limit, 100)]
    files = call.bare.changes(common, head)[:FILES_LIMIT]
    html = f"{call.repo_web}/compare/{call.params['basehead']}"
    shape = {
        "url": f"{call.repo_api}/compare/{call.params['basehead']}",
        "html_url": html,
        "permalink_url": f"{call.repo_web}/compare/{base[:7]}...{head[:7]}",
        "diff_url": f"{html}.diff",
        "patch_url": f"{html}.patch",
        "base_commit": render_git.commit(call, call.bare.commit(base)),
        "merge_base_commit": render_git.commit(call, call.bare.commit(common)),
        "status": status.get((ahead > 0, behind > 0), "diverged"),
        "ahead_by": ahead,
        "behind_by": behind,
        "total_commits": ahead,
        "commits": [render_git.commit(call, item) for item in items],
        "files": [render_git.file(call, change, head) for change in files],
    }
    return Reply(200, shape)


# -- contents -------------------------------------------------------------------------------------


def _plain(path: str) -> bool:
    """Whether every part of a path is a name of its own (none is empty, a dot, two dots or .git)."""
    return all(part not in ("", ".", "..") and part.lower() != ".git" for part in path.split("/"))


def _entry(bare: Bare, sha: str, path: str) -> tuple[str, str, str] | None:
    """(mode, kind, object) of a path in a commit; the root is a tree."""
    if path == "":
        return "040000", "tree", bare.text("rev-parse", f"{sha}^{{tree}}").strip()
    if not _plain(path):
        return None
    out = bare.text("--literal-pathspecs", "ls-tree", "-z", sha, "--", path).split("\x00")[0]
    if not out:
        return None
    mode, kind, blob = out.partition("\t")[0].split(" ")
    return mode, kind, blob


def get_contents(call: Call) -> Reply:
    path = call.params.get("path", "").strip("/")
    name = call.query.get("ref") or call.repo["default_branch"]
    sha = call.bare.resolve(name)
    if sha is None:
        raise ApiError(404, f"No commit found for the ref {name}")
    entry = _entry(call.bare, sha, path)
    if entry is None:
        raise not_found()
    _, kind, blob = entry
    if kind == "blob":
        raw = call.bare.raw("cat-file", "blob", blob)[1]
        more = {"encoding": "base64", "content": base64.encodebytes(raw).decode()}
        return Reply(200, _item(call, path, blob, name, "file", len(raw)) | more)
    rows = []
    for line in call.bare.text("ls-tree", "-z", "-l", blob).split("\x00"):
        if not line:
            continue
        head, _, child = line.partition("\t")
        _, child_kind, child_blob, size = head.split()
        word = {"blob": "file", "tree": "dir", "commit": "submodule"}[child_kind]
        full = f"{path}/{child}" if path else child
        rows.append(_item(call, full, child_blob, name, word, int(size) if size.isdigit() else 0))
    return Reply(200, rows)


def _item(call: Call, path: str, blob: str, ref: str, kind: str, size: int) -> dict[str, Any]:
    quoted = quote(path)
    api = f"{call.repo_api}/contents/{quoted}?ref={quote(ref)}"
    git = f"{call.repo_api}/git/{'trees' if kind == 'dir' else 'blobs'}/{blob}"
    html = f"{call.repo_web}/{'tree' if kind == 'dir' else 'blob'}/{quote(ref)}/{quoted}"
    return {
        "name": path.rsplit("/", 1)[-1],
        "path": path,
        "sha": blob,
        "size": size,
        "url": api,
        "html_url": html,
        "git_url": git,
        "download_url": f"{call.repo_web}/raw/{quote(ref)}/{quoted}" if kind == "file" else None,
        "type": kind,
        "_links": {"self": api, "git": git, "html": html},
    }


def put_contents(call: Call) -> Reply:
    """Create or change one file on a branch: one commit, with the old blob as the guard."""
    call.require("write")
    path = call.params["path"].strip("/")
    branch = call.body.get("branch") or call.repo["default_branch"]
    message, content = call.body.get("message"), call.body.get("content")
    if not _plain(path):
        raise unprocessable("path contains a malformed path component")
    if not message or content is None:
        raise unprocessable('Invalid request.\n\n"message", "content" weren\'t supplied.')
    try:
        raw = base64.b64decode(str(content))
    except (binascii.Error, ValueError) as error:
        raise unprocessable("content is not valid Base64") from error
    tip = call.bare.branch(branch)
    if tip is None:
        raise ApiError(404, f"Branch {branch} not found")
    old = _entry(call.bare, tip, path)
    if old is not None and not call.body.get("sha"):
        raise unprocessable('Invalid request.\n\n"sha" wasn\'t supplied.')
    if old is not None and old[2] != call.body.get("sha"):
        raise ApiError(409, f"{path} does not match {call.body.get('sha')}")
    blob = call.bare.text("hash-object", "-w", "--stdin", stdin=raw).strip()
    new = _commit_file(call, tip, path, blob, old[0] if old else "100644", str(message))
    if not call.bare.set_ref(f"refs/heads/{branch}", new.sha, tip):
        raise ApiError(409, "is at a different commit than expected")
    sync.reconcile(call)
    shape = {
        "content": _item(call, path, blob, branch, "file", len(raw)),
        "commit": render_git.git_commit(call, new),
    }
    return Reply(200 if old else 201, shape)


def _commit_file(call: Call, tip: str, path: str, blob: str, mode: str, message: str) -> Commit:
    index = {"GIT_INDEX_FILE": str(call.bare.path / f"index.{blob}")}
    call.bare.raw("read-tree", tip, env=index)
    call.bare.raw("update-index", "--add", "--cacheinfo", f"{mode},{blob},{path}", env=index)
    tree = call.bare.text("write-tree", env=index).strip()
    (call.bare.path / f"index.{blob}").unlink()
    author = me(call)
    return call.bare.commit(call.bare.commit_tree(tree, (tip,), message, author, author))


def raw_blob(call: Call) -> Reply:
    sha = call.params["sha"]
    if call.bare.kind(sha) != "blob":
        raise not_found()
    raw = call.bare.raw("cat-file", "blob", sha)[1]
    shape = {
        "sha": sha,
        "node_id": render.node("Blob", sha),
        "size": len(raw),
        "url": f"{call.repo_api}/git/blobs/{sha}",
        "content": base64.encodebytes(raw).decode(),
        "encoding": "base64",
    }
    return Reply(200, shape)
