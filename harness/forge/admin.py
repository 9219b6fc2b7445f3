"""`/_forge/*`: what a test or an operator does to the forge itself. Needs a token of a site admin."""

from __future__ import annotations

from typing import Any

from harness.forge import acts, limits
from harness.forge.errors import ApiError, ForgeError, not_found
from harness.forge.snapshot import dump_state
from harness.forge.state import Call, Reply, hash_token


def handle(call: Call) -> Reply:
    if not call.user["site_admin"]:
        raise ApiError(403, "Must have admin rights to the forge.")
    name = call.path.removeprefix("/_forge/").strip("/")
    if name == "report":
        return _report(call)
    if name == "faults":
        return _faults(call)
    if name == "state" and call.method == "GET":
        return Reply(200, dump_state(call.state))
    if call.method != "POST":
        raise not_found()
    try:
        return _act(call, name)
    except (ForgeError, KeyError, TypeError, ValueError) as error:
        raise ApiError(422, f"{type(error).__name__}: {error}") from error


def _report(call: Call) -> Reply:
    if call.method == "DELETE":
        call.db.run("DELETE FROM requests")
        call.db.run("DELETE FROM penalties")
        return Reply(204)
    return Reply(200, limits.report(call.state))


def _faults(call: Call) -> Reply:
    """GET shows; PUT puts the rules in force instead of all others; POST adds; DELETE removes all."""
    rules = call.body.get("rules", [])
    try:
        if call.method == "PUT":
            call.state.faults.replace(rules)
        elif call.method == "POST":
            call.state.faults.add(*rules)
        elif call.method == "DELETE":
            call.state.faults.replace([])
    except (ForgeError, TypeError) as error:
        raise ApiError(422, str(error)) from error
    return Reply(200, {"rules": call.state.faults.show()})


def _act(call: Call, name: str) -> Reply:
    """POST /_forge/clock|delete-issue|transfer-issue|revoke-token: see `acts`."""
    body: dict[str, Any] = call.body
    if name == "clock":
        call.state.skew_s += float(body["advance_s"])
        return Reply(200, {"now": call.now})
    with call.db.transaction():
        if name == "delete-issue":
            acts.delete_issue(call.state, body["repo"], int(body["number"]))
        elif name == "transfer-issue":
            acts.transfer_issue(call.state, body["repo"], int(body["number"]), body["to"])
        elif name == "revoke-token":
            acts.revoke(call.state, hash_token(body["token"]))
        else:
            raise not_found()
    return Reply(204)
