"""Who is calling: `Authorization: token|Bearer T`, or Basic with the token as user or password.

A wrong, revoked or expired token is refused (401), never treated as anonymous.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from harness.forge.errors import ApiError
from harness.forge.state import State, Who, hash_token


def identify(state: State, headers: Mapping[str, str]) -> Who | None:
    """The caller, None when no credentials were sent; 401 when they are not good."""
    tokens = _tokens(headers.get("authorization", ""))
    if not tokens:
        return None
    for token in tokens:
        digest = hash_token(token)
        row = state.db.one("SELECT * FROM tokens WHERE hash = ?", digest)
        if row is None or row["revoked"]:
            continue
        if row["expires_at"] is not None and row["expires_at"] <= state.now():
            continue
        user = state.user(row["user_id"])
        return Who(user, row["cap"], row["kind"], row["scopes"], digest[:16], row["expires_at"])
    raise ApiError(401, "Bad credentials")


def _tokens(header: str) -> list[str]:
    scheme, _, value = header.strip().partition(" ")
    if scheme.lower() in ("token", "bearer"):
        return [value.strip()]
    if scheme.lower() != "basic":
        return []
    try:
        pair = base64.b64decode(value.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return [""]
    user, _, password = pair.partition(":")
    if password in ("", "x-oauth-basic"):
        return [user]
    return [password]
