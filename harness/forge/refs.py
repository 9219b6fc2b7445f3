"""Refs and tags over REST.

The one rule: after a ref moved here, `sync.reconcile` runs, the same as after a push.
"""

from __future__ import annotations

from typing import Any

from harness.forge import render, render_git, sync
from harness.forge.bare import ZERO, Person, is_sha, valid_ref
from harness.forge.errors import not_found, unprocessable
from harness.forge.pages import cut, page_of
from harness.forge.state import Call, Reply


def me(call: Call) -> Person:
    return Person(call.user["name"] or call.user["login"], call.user["email"], int(call.state.now()))


# -- refs and tags --------------------------------------------------------------------------------


def _ref(call: Call, name: str) -> Reply | None:
    sha = call.bare.ref(f"refs/{name}") if valid_ref(name) else None
    if sha is None:
        return None
    return Reply(200, render_git.ref(call, f"refs/{name}", sha, call.bare.kind(sha) or "commit"))


def get_ref(call: Call) -> Reply:
    found = _ref(call, call.params["ref"])
    if found is None:
        raise not_found()
    return found


def matching_refs(call: Call) -> Reply:
    prefix = "refs/" + call.params.get("ref", "")
    found = {name: sha for name, sha in call.bare.refs().items() if name.startswith(prefix)}
    rows = [render_git.ref(call, name, sha, call.bare.kind(sha) or "commit") for name, sha in found.items()]
    return page_of(call, cut(call, rows), len(rows))


def create_ref(call: Call) -> Reply:
    call.require("write")
    name, sha = str(call.body.get("ref", "")), str(call.body.get("sha", ""))
    if not name.startswith("refs/") or name.count("/") < 2 or not valid_ref(name[5:]):
        raise unprocessable("Reference name is invalid")
    kind = call.bare.kind(sha) if is_sha(sha) else None
    if kind is None or (name.startswith("refs/heads/") and kind != "commit"):
        raise unprocessable("Object does not exist")
    if call.bare.ref(name) is not None:
        raise unprocessable("Reference already exists")
    if not call.bare.set_ref(name, sha, ZERO):
        raise unprocessable("Reference update failed")
    sync.reconcile(call)
    shape = render_git.ref(call, name, sha, kind)
    return Reply(201, shape, {"Location": shape["url"]})


def update_ref(call: Call) -> Reply:
    call.require("write")
    name, sha = "refs/" + call.params["ref"], str(call.body.get("sha", ""))
    old = call.bare.ref(name) if valid_ref(name[5:]) else None
    if old is None:
        raise unprocessable("Reference does not exist")
    kind = call.bare.kind(sha) if is_sha(sha) else None
    if kind is None:
        raise unprocessable("Object does not exist")
    _check_protected(call, name, delete=False, force=bool(call.body.get("force")))
    if not call.body.get("force") and not call.bare.contains(sha, old):
        raise unprocessable("Update is not a fast forward")
    if not call.bare.set_ref(name, sha, old):
        raise unprocessable("Reference cannot be updated")
    sync.reconcile(call)
    return Reply(200, render_git.ref(call, name, sha, kind))


def delete_ref(call: Call) -> Reply:
    call.require("write")
    name = "refs/" + call.params["ref"]
    if not valid_ref(name[5:]) or call.bare.ref(name) is None:
        raise unprocessable("Reference does not exist")
    if name == f"refs/heads/{call.repo['default_branch']}":
        raise unprocessable("Cannot delete the default branch")
    _check_protected(call, name, delete=True, force=False)
    call.bare.delete_ref(name)
    sync.reconcile(call)
    return Reply(204)


def _check_protected(call: Call, name: str, *, delete: bool, force: bool) -> None:
    row = sync.protection(call.state, call.repo_id, name.removeprefix("refs/heads/"))
    if row is None or not name.startswith("refs/heads/"):
        return
    if delete and not row["allow_deletions"]:
        raise unprocessable("Cannot delete this protected branch")
    if force and not row["allow_force_pushes"]:
        raise unprocessable("Cannot force-push to this protected branch")
    admin_passes = call.may("admin") and not row["enforce_admins"]
    if not delete and (row["required_reviews"] or row["locked"]) and not admin_passes:
        raise unprocessable("Changes must be made through a pull request.")


def create_tag(call: Call) -> Reply:
    """An annotated tag *object*; the ref is made separately, as on GitHub."""
    call.require("write")
    wanted = call.body
    sha, kind = str(wanted.get("object", "")), str(wanted.get("type", "commit"))
    if not wanted.get("tag") or call.bare.kind(sha) != kind:
        raise unprocessable("Object does not exist")
    tagger = wanted.get("tagger") or {}
    who = me(call)
    name, email = tagger.get("name", who.name), tagger.get("email", who.email)
    text = f"object {sha}\ntype {kind}\ntag {wanted['tag']}\ntagger {name} <{email}> {who.at} +0000\n\n"
    raw = (text + str(wanted.get("message", "")).rstrip("\n") + "\n").encode()
    new = call.bare.text("hash-object", "-t", "tag", "-w", "--stdin", stdin=raw).strip()
    return Reply(201, _tag(call, new))


def get_tag(call: Call) -> Reply:
    sha = call.params["sha"]
    if not is_sha(sha) or call.bare.kind(sha) != "tag":
        raise not_found()
    return Reply(200, _tag(call, sha))


def _tag(call: Call, sha: str) -> dict[str, Any]:
    head, _, message = call.bare.text("cat-file", "tag", sha).partition("\n\n")
    fields = dict(line.split(" ", 1) for line in head.splitlines())
    name, _, rest = fields["tagger"].partition(" <")
    email, _, at = rest.partition("> ")
    kind, target = fields["type"], fields["object"]
    return {
        "node_id": render.node("Tag", sha),
        "tag": fields["tag"],
        "sha": sha,
        "url": f"{call.repo_api}/git/tags/{sha}",
        "message": message.rstrip("\n"),
        "tagger": render_git.person(Person(name, email, int(at.split()[0]))),
        "object": {"sha": target, "type": kind, "url": f"{call.repo_api}/git/{kind}s/{target}"},
        "verification": {"verified": False, "reason": "unsigned", "signature": None, "payload": None},
    }


def list_tags(call: Call) -> Reply:
    names = [name.removeprefix("refs/tags/") for name in call.bare.refs("refs/tags")]
    rows = []
    for name in cut(call, sorted(names, reverse=True)):
        sha = call.bare.resolve(f"refs/tags/{name}") or ""
        archive = {kind: f"{call.repo_api}/{kind}/refs/tags/{name}" for kind in ("tarball", "zipball")}
        rows.append(
            {
                "name": name,
                "commit": {"sha": sha, "url": f"{call.repo_api}/commits/{sha}"},
                "tarball_url": archive["tarball"],
                "zipball_url": archive["zipball"],
                "node_id": render.node("Ref", name),
            }
        )
    return page_of(call, rows, len(names))
