"""Text from outside on its way out again: no mention, no closing keyword, no marker, capped.

The one rule: nothing that somebody else wrote may notify a person or close an issue when we post it.
"""

from __future__ import annotations

import re
import unicodedata

_MENTION = re.compile(r"(?<![A-Za-z0-9._%+/-])@(?=[A-Za-z0-9])")
_CLOSING = re.compile(
    r"\b(close[sd]?|fix(?:e[sd])?|resolve[sd]?)(\s*:?\s+)((?:[\w.-]+/[\w.-]+)?#\d+|https?://\S+/(?:issues|pull)/\d+)",
    re.IGNORECASE,
)
_MARKER = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE = re.compile(r"(```.*?```|~~~.*?~~~|`[^`\n]*`)", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\U000e0000-\U000e007f]")


def one_line(text: str, limit: int = 200) -> str:
    """A title: no line breaks, no control characters, at most `limit` characters."""
    flat = " ".join(clean(text).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def clean(text: str) -> str:
    """Without NUL, control and invisible characters; CRLF becomes LF."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _INVISIBLE.sub("", _CONTROL.sub("", unicodedata.normalize("NFC", text)))


def neutral(text: str, limit: int = 20000) -> str:
    """Safe to post: mentions and closing keywords outside code do nothing, hidden comments are gone."""
    text = clean(text)
    if len(text) > limit:
        text = text[:limit] + f"\n\n… ({len(text) - limit} characters more in the audit bundle)"
    parts = _CODE.split(_MARKER.sub("", text))
    return "".join(p if i % 2 else _defuse(p) for i, p in enumerate(parts))


def _defuse(text: str) -> str:
    text = _CLOSING.sub(lambda m: f"{m.group(1)}{m.group(2)}\u200b{m.group(3)}".replace("#", "#\u200b"), text)
    return _MENTION.sub("@\u200b", text)


def quote(text: str, limit: int = 4000) -> str:
    """As a quotation, neutralised."""
    return "\n".join(f"> {line}" for line in neutral(text, limit).splitlines()) or "> (nothing)"


def fence(text: str, limit: int = 4000) -> str:
    """As a code block that the text cannot close; the tail is what matters in a log."""
    text = clean(text)
    if len(text) > limit:
        text = f"… {len(text) - limit} characters before this\n" + text[-limit:]
    ticks = "`" * max(3, 1 + max((len(m) for m in re.findall(r"`+", text)), default=0))
    return f"{ticks}\n{text}\n{ticks}"
