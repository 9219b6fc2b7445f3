"""An agent's output as JSON objects, one a line.

The one rule: what is not a JSON object is passed over, whatever it is: half a line where bytes were dropped,
a warning, 200 MiB without an end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

LINE_LIMIT_BYTES = 16 << 20


def objects(output: bytes) -> Iterator[dict[str, Any]]:
    """Each line that is an object. Longer ones than the limit are not looked into."""
    begin, size = 0, len(output)
    while begin < size:
        end = output.find(b"\n", begin)
        end = size if end < 0 else end
        if output[begin : begin + 64].lstrip()[:1] == b"{" and end - begin <= LINE_LIMIT_BYTES:
            try:
                value = json.loads(output[begin:end])
            except (ValueError, RecursionError):
                value = None
            if isinstance(value, dict):
                yield value
        begin = end + 1


def last(output: bytes, kind: str) -> dict[str, Any] | None:
    """The last object whose `type` is `kind`."""
    found = None
    for value in objects(output):
        if value.get("type") == kind:
            found = value
    return found


def last_text(output: bytes, limit_bytes: int = 2048) -> str:
    """The end of the output that is not JSON, for symptoms; at most `limit_bytes` of it."""
    lines = [s for s in output[-limit_bytes:].decode("utf-8", "replace").splitlines() if s.strip()]
    return "\n".join(s for s in lines if not s.lstrip().startswith("{"))
