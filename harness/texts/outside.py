"""Text from outside on its way out again: no mention, no closing keyword, no marker, capped.

The one rule: nothing that somebody else wrote may notify a person, close an issue, steer a bot or hide what follows
when we post it. Code stays as it is: the forge acts on nothing in it.
"""

from __future__ import annotations

import re

from harness.texts.markdown import ROUNDS, layout, outside_code, visible

STOP = "\u200b"
"""Put where a word must not act: nobody sees it, and no rule of a forge matches across it."""

_KEYWORD = r"(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?)"
_REFERENCE = r"(?:[\w.-]+/[\w.-]+)?#\d|GH-\d|(?:https?://|www\.)[^\s<>]+/(?:issues|pulls?)/\d"
# Up to twelve characters that are no word may stand between: a colon, a line end, a quotation's mark, emphasis.
_CLOSING = re.compile(rf"\b({_KEYWORD})\b([^\w#]{{1,12}}?)(?={_REFERENCE})", re.IGNORECASE | re.ASCII)
_MENTION = re.compile(r"(?<![A-Za-z0-9])@(?=[A-Za-z0-9])")
_URL = re.compile(r"https?://[^\s<>]+", re.IGNORECASE)
_COMMAND = re.compile(r"^([ \t>]*)/(?=[a-z])", re.MULTILINE)
_CHARACTER = re.compile(r"&(?=#|(?!(?:lt|gt|amp|quot|apos|nbsp|hellip|[mn]dash|[lr]arr|times|copy);)[A-Za-z]\w{0,30};)")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_ANSI = re.compile(r"\x1b(?:\[[0-?]{0,40}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)|[@-Z\\^_])|\x9b[0-?]{0,40}[@-~]")
_EMOJI = "\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
_JOINS = "\u0600-\u109f\u1780-\u17ff"
# Kept: a joiner inside an emoji or between letters of scripts that need it, and one variation selector.
_KEPT = rf"(?<=[{_EMOJI}\ufe0f])\u200d(?=[{_EMOJI}])|(?<=[{_JOINS}])[\u200c\u200d](?=[{_JOINS}])|(?<![\ufe00-\ufe0f])[\ufe0e\ufe0f]"
_UNSEEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_INVISIBLE = re.compile(rf"({_KEPT})|[{_UNSEEN}]+?(?=[^{_UNSEEN}]|\Z|{_KEPT})|[{_UNSEEN}]")


def clean(text: str) -> str:
    """Without terminal sequences, control and invisible characters; the only line end is LF."""
    return strip_invisible(text)[0]


def strip_invisible(text: str) -> tuple[str, int]:
    """The cleaned text, and how many runs of invisible characters were in it."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    text = _CONTROL.sub("", _ANSI.sub("", text))
    runs = len(re.findall(f"[{_UNSEEN}]+", text))
    kept = 0

    def keep(m: re.Match[str]) -> str:
        nonlocal kept
        kept += bool(m[1])
        return m[1] or ""

    return _INVISIBLE.sub(keep, text), max(runs - kept, 0)
