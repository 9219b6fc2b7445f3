"""Lists in pages: `per_page` (30, at most 100), `page`, and the Link header that clients follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from harness.forge.state import Call, Reply


def window(call: Call, default: int = 30) -> tuple[int, int]:
    """(limit, offset) of the page that was asked for."""
    size = min(max(_number(call.query.get("per_page"), default), 1), 100)
    page = max(_number(call.query.get("page"), 1), 1)
    return size, (page - 1) * size


def page_of(call: Call, items: Sequence[Any], total: int) -> Reply:
    """A reply with ``items`` (already cut to the window) and links for ``total`` items in all."""
    size, offset = window(call)
    link = _link(call, page=offset // size + 1, size=size, total=total)
    return Reply(200, list(items), {"Link": link} if link else {})


def cut(call: Call, items: Sequence[Any]) -> list[Any]:
    size, offset = window(call)
    return list(items[offset : offset + size])


def _link(call: Call, page: int, size: int, total: int) -> str:
    last = max((total + size - 1) // size, 1)
    if last == 1 and page == 1:
        return ""
    targets: list[tuple[str, int]] = []
    if page > 1:
        targets.append(("prev", min(page - 1, last)))
    if page < last:
        targets += [("next", page + 1), ("last", last)]
    if page > 1:
        targets.append(("first", 1))
    base = call.api + call.path
    query = {name: value for name, value in call.query.items() if name != "page"}
    return ", ".join(f'<{base}?{urlencode({**query, "page": n})}>; rel="{rel}"' for rel, n in targets)


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isdigit() and len(text) < 10 else default
