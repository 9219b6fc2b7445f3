"""Texts that are too long for the forge, cut so that nothing that matters is lost.

The one rule: what we must find again (markers in HTML comments, "Refs #N") survives the cut, people see that
something was cut, and an open code block never swallows what follows.
"""

from __future__ import annotations

import re

BODY_LIMIT = 65_000
"""Characters. The forge's documented ceiling is 65,536 (an error text of its own API); some room is left."""
SHORT_LIMIT = BODY_LIMIT // 2
"""What is tried once more when the forge finds even that too long."""
NOTE = "*(truncated: the full text is in the audit bundle)*"

_KEPT_LINES = 20
_KEPT_CHARS = 4_000
_FENCE = re.compile(r"^[ \t>]*(`{3,}|~{3,})(.*)$")
_MARKER = re.compile(r"^\s*<!--.*-->\s*$")
_REFERENCE = re.compile(
    r"^\s*(refs?|references|part of|close[sd]?|fix(e[sd])?|resolve[sd]?)\b:?\s+\S*#\d+", re.IGNORECASE
)


def clean(text: str) -> str:
    """The text without what no forge stores: lone surrogates and NUL characters."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "")


def fit_body(text: str, limit: int = BODY_LIMIT) -> str:
    """At most `limit` characters of `text`. One that fits is given back as it is (cleaned).

    A longer one keeps its beginning up to a line's end, closes what the cut left open (a code block, an HTML
    comment, `<details>`), says that it was truncated, and ends with the lines of the removed part that are
    markers or references. `limit` must leave room for those (200 and more)."""
    text = clean(text)
    if len(text) <= limit:
        return text
    room = max(0, limit - len(NOTE) - 200)
    kept = _lines_to_keep(text, room // 2)
    tail = "\n".join(["", NOTE, "", *kept]) if kept else f"\n{NOTE}"
    head = _cut(text, limit - len(tail))
    while True:
        closing = _closing(head)
        over = len(head) + len(closing) + len(tail) - limit
        if over <= 0:
            return head + closing + tail
        head = _cut(head, len(head) - over)


def _lines_to_keep(text: str, room: int) -> list[str]:
    """Markers and references anywhere in the text but in code blocks; the last ones when there are many."""
    found: list[str] = []
    fence = ""
    for line in text.split("\n"):
        fence, boundary = _after_line(fence, line)
        if fence or boundary:
            continue
        if len(line) <= 500 and (_MARKER.match(line) or _REFERENCE.match(line)):
            found.append(line.rstrip())
    kept: list[str] = []
    size = 0
    for line in reversed(list(dict.fromkeys(found))):
        size += len(line) + 1
        if len(kept) == _KEPT_LINES or size > min(room, _KEPT_CHARS):
            break
        kept.append(line)
    return kept[::-1]


def _after_line(fence: str, line: str) -> tuple[str, bool]:
    """The fence that is open after this line ("" for none), and whether the line itself is a fence."""
    m = _FENCE.match(line)
    if m is None:
        return fence, False
    mark, rest = m.group(1), m.group(2)
    if not fence:
        # A backtick fence has no backtick in its info string (CommonMark 4.5); that is inline code.
        return ("", False) if mark[0] == "`" and "`" in rest else (mark, True)
    if mark[0] == fence[0] and len(mark) >= len(fence) and not rest.strip():
        return "", True
    return fence, False


def _cut(text: str, length: int) -> str:
    """The beginning of the text, up to a line's end when one is near."""
    head = text[: max(0, length)]
    at = head.rfind("\n")
    return head[:at] if at > len(head) - 2_000 and at > len(head) // 2 else head


def _closing(head: str) -> str:
    """What must follow `head` so that nothing stays open. Starts on a new line."""
    fence = ""
    outside: list[str] = []
    for line in head.split("\n"):
        fence, boundary = _after_line(fence, line)
        if not fence and not boundary:
            outside.append(line)
    parts = [""]
    if fence:
        parts.append(fence)
    prose = "\n".join(outside)
    if prose.count("<!--") > prose.count("-->"):
        parts.append("-->")
    opened, closed = prose.count("<details"), prose.count("</details>")
    parts.extend(["</details>"] * min(50, max(0, opened - closed)))
    return "\n".join(parts) + "\n"
