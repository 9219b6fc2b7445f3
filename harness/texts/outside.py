"""Text from outside on its way out again: no mention, no closing keyword, no marker, capped.

The one rule: nothing that somebody else wrote may notify a person, close an issue, steer a bot or hide what
follows when we post it. Code stays as it is: the forge acts on nothing in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from harness.texts.markdown import ROUNDS, Range, layout, outside_code, visible

STOP = "\u200b"
"""Put where a word must not act: nobody sees it, and no rule of a forge matches across it."""

_KEYWORD = r"(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?)"
_REFERENCE = r"(?:[\w.-]+/[\w.-]+)?#\d|GH-\d|(?:https?://|www\.)[^\s<>]+/(?:issues|pulls?)/\d"
# What may stand between is no word: a colon, a line's end, the mark of a quotation, emphasis.
_CLOSING = re.compile(
    rf"(?<![A-Za-z0-9])({_KEYWORD})(?=[^A-Za-z0-9#]{{0,40}}(?:{_REFERENCE}))", re.IGNORECASE | re.ASCII
)
_MENTION = re.compile(r"(?<![A-Za-z0-9])@(?=[A-Za-z0-9])")
_URL = re.compile(r"https?://[^\s<>]+", re.IGNORECASE)
_COMMAND = re.compile(r"^([ \t>]*)/(?=[a-z])", re.MULTILINE)
_NAMED = "lt|gt|amp|quot|apos|nbsp|hellip|mdash|ndash|larr|rarr|times|copy"
_CHARACTER = re.compile(rf"&(?=#|(?!(?:{_NAMED});)[A-Za-z][A-Za-z0-9]{{0,30}};)")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_ANSI = re.compile(
    r"\x1b(?:\[[0-?]{0,40}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)|[@-Z\\^_])|\x9b[0-?]{0,40}[@-~]"
)
_OPENS = re.compile(r"^(?:#{1,6}\s+|>\s*|`{3,}|~{3,}|\s)+")
_LINE_ENDS = re.compile("\r\n|[\r\u2028\u2029]")
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
_EMOJI = re.compile("[\u2190-\u2bff\U0001f000-\U0001faff]")
_JOINED = re.compile("[\u0600-\u109f\u1780-\u17ff]")


def clean(text: str) -> str:
    """Without terminal sequences, control and invisible characters; the only line end is LF."""
    return strip_invisible(text)[0]


def strip_invisible(text: str) -> tuple[str, int]:
    """The cleaned text, and how many runs of invisible characters were taken out. A joiner in an emoji or
    between letters of a script that needs it stays."""
    text = _CONTROL.sub("", _ANSI.sub("", _LINE_ENDS.sub("\n", text)))
    removed = 0

    def keep(m: re.Match[str]) -> str:
        nonlocal removed
        if _needed(m[0], text[m.start() - 1 : m.start()], text[m.end() : m.end() + 1]):
            return m[0]
        removed += 1
        return ""

    return _INVISIBLE.sub(keep, text), removed


def _needed(run: str, before: str, after: str) -> bool:
    if run in ("\ufe0e", "\ufe0f"):
        return bool(before.strip())
    if run in ("\u200d", "\ufe0f\u200d") and _EMOJI.match(before) and _EMOJI.match(after):
        return True
    return run in ("\u200c", "\u200d") and bool(_JOINED.match(before) and _JOINED.match(after))


def one_line(text: str, limit: int = 200) -> str:
    """No line breaks, no control characters, at most `limit` characters. For titles see `title`."""
    flat = " ".join(clean(text).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def title(text: str, limit: int = 200) -> str:
    """One line of plain text that acts on nothing: a pull's title, a commit's subject."""
    return plain(one_line(text, limit))


def inline(text: str, limit: int = 200) -> str:
    """One line for use inside Markdown: neutral, and opening no heading, quotation or block of code."""
    return neutral(_OPENS.sub("", one_line(text, limit)), limit)


def plain(text: str, limit: int = 20000) -> str:
    """For commits and titles, where Markdown is not read: nothing notifies or closes, not even in code."""
    text = clean(text)
    return _defuse(text if len(text) <= limit else text[: limit - 1] + "…")


def neutral(text: str, limit: int = 20000) -> str:
    """Markdown that is safe to post: mentions, closing keywords, HTML and commands to bots outside code do
    nothing, hidden parts are gone, a block of code is closed. A longer text is cut at `limit`."""
    text = clean(text)
    more = len(text) - limit
    text = _inert(visible(text[:limit])[0])
    return f"{text}\n\n… ({more} characters more in the audit bundle)" if more > 0 else text


def _inert(text: str) -> str:
    for _ in range(ROUNDS):
        escaped = _outside(_escape, text, layout(text).code)
        if escaped == text:
            break
        text = escaped
    found = _outside(_defuse_markdown, text, _sure(text))
    if (
        _outside(_defuse_markdown, found, _sure(found)) != found
        or _outside(_escape, found, layout(found).code) != found
    ):
        found = _defuse_markdown(_escape(found))
    fence = layout(found).open_fence
    return f"{found.rstrip()}\n{fence}" if fence else found


def _outside(change: Callable[[str], str], text: str, code: Sequence[Range]) -> str:
    """The text with a change made to all that is not code."""
    return "".join(p if inside else change(p) for p, inside in outside_code(text, code))


def _sure(text: str) -> tuple[Range, ...]:
    """Code that stays code wherever the text is put: what is only indented may become a paragraph."""
    found = layout(text)
    return tuple(r for r in found.code if r not in found.indented)


def _escape(text: str) -> str:
    return _TAG.sub("&lt;", _CHARACTER.sub("&amp;", text))


def _defuse_markdown(text: str) -> str:
    return _COMMAND.sub(rf"\1{STOP}/", _defuse(text))


def _defuse(text: str) -> str:
    """Mentions and closing keywords broken, all of them. In an address the sign is percent-encoded."""
    text = _CLOSING.sub(lambda m: m[1][:1] + STOP + m[1][1:], text)
    text = _URL.sub(lambda m: _MENTION.sub("%40", m[0]), text)
    return _MENTION.sub(f"@{STOP}", text)


def quote(text: str, limit: int = 4000) -> str:
    """As a quotation, neutralised as what it is then: its marks move what was indented by a tab."""
    text = clean(text)
    lines = visible(text[:limit])[0].strip("\n").split("\n")
    if len(text) > limit:
        lines += ["", f"… ({len(text) - limit} characters more in the audit bundle)"]
    if not any(line.strip() for line in lines):
        lines = ["(nothing)"]
    return _inert("\n".join(f"> {line}".rstrip() for line in lines))


def fence(text: str, limit: int = 4000) -> str:
    """As a code block that the text cannot close; the tail is what matters in a log."""
    text = clean(text)
    if len(text) > limit:
        text = f"… {len(text) - limit} characters before this\n" + text[-limit:]
    ticks = "`" * max(3, 1 + max((len(m) for m in re.findall(r"`+", text)), default=0))
    return f"{ticks}\n{text}\n{ticks}"
