"""What the director's reply to a request means to the worker who asked.

The one rule: `{"ok": true, …}` is Ok of the whole reply; `{"ok": false, "failure": class, "detail": text}` is
Err of that class (`maybe` and `not_before` are carried over), and a reply without a known class is our bug.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.core.result import Err, Ok, Result
from harness.failures import Failure


def outcome(reply: Mapping[str, Any]) -> Result[Mapping[str, Any]]:
    if reply.get("ok") is True:
        return Ok(dict(reply))
    named = str(reply.get("failure", ""))
    failure = Failure(named) if named in set(Failure) else Failure.INTERNAL_ERROR
    not_before = reply.get("not_before")
    return Err(
        failure,
        str(reply.get("detail", "")) or "the director refused it without a reason",
        maybe=bool(reply.get("maybe", False)),
        not_before=float(not_before) if isinstance(not_before, int | float) else None,
    )
