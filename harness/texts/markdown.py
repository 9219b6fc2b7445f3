"""What of a Markdown text is code, and what of it a person does not see.

The one rule: as the forge reads it (CommonMark with tables), not as it looks: blocks come from a real parser,
and inside a block code spans, tags and comments are taken from the left, as the specification says.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

Range = tuple[int, int]

_CLOSED_BY = {"<!--": "-->", "<?": "?>", "<![CDATA[": "]]>", "<!": ">"}
_OPENED = r"<!--|<\?|<!\[CDATA\[|<!(?=[A-Za-z])"
_DEFINITION = re.compile(r"^[ >]{0,20}\[([^\]\n]{1,200})\]:", re.MULTILINE)
_LABEL = re.compile(r"\[([^\]\[\n]{1,200})\]")
_ATTRIBUTE = r"""\s+[A-Za-z_:][\w.:-]*+(?:\s*=\s*(?:[^\s"'=<>`]++|'[^']*'|"[^"]*"))?"""
_TAG = (
    rf"<[A-Za-z][A-Za-z0-9-]*+(?:{_ATTRIBUTE})*\s*/?>|</[A-Za-z][A-Za-z0-9-]*\s*>"
    r"|<[A-Za-z][A-Za-z0-9+.-]{1,31}:[^\s<>]*>"
)
_INLINE = re.compile(rf"(?P<escape>\\[!-/:-@\[-`{{-~])|(?P<ticks>`+)|(?P<opened>{_OPENED})|(?P<tag>{_TAG})")
_HTML_INSIDE = re.compile(rf"(?P<opened>{_OPENED})|(?P<tag>{_TAG})")
_TICKS = re.compile("`+")
_BAR = re.compile(r"(?<!\\)\|")
_UNSEEN_ATTRIBUTE = re.compile(
    r"\s+(?:alt|title|style|hidden|aria-[\w-]+|data-[\w-]+)"
    r"""(?:\s*=\s*(?:[^\s"'=<>`]++|'[^']*'|"[^"]*"))?(?=[\s/>])""",
    re.IGNORECASE,
)
_HTML = re.compile(
    r"<(?:a|abbr|b|blockquote|br|code|details|div|em|h[1-6]|hr|i|img|input|kbd|li|ol|p|picture|pre|source|span"
    r"|strong|sub|summary|sup|svg|table|tbody|td|th|thead|tr|ul|video)[\s/>]",
    re.IGNORECASE,
)
LEAVES = frozenset({"fence", "code_block", "html_block", "inline"})
ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Layout:
    """Ranges of a text, in characters: code (blocks and spans), what is never shown (comments), and tags.
    `indented` are the blocks of code that are such by their indentation only, which any change of place may
    undo. `open_fence` is what closes the block of code that is still open at the end, if one is."""

    code: tuple[Range, ...]
    hidden: tuple[Range, ...]
    tags: tuple[Range, ...]
    indented: tuple[Range, ...] = ()
    open_fence: str = ""


@lru_cache(maxsize=8)
def layout(text: str) -> Layout:
    """Of a text whose only line end is LF."""
    lines = _starts(text)
    code: list[Range] = []
    hidden: list[Range] = []
    tags: list[Range] = []
    tokens = [t for t in _parser().parse(text) if t.map]
    blocks = [(t.type, _span(t, lines)) for t in tokens if t.type in LEAVES]
    html = [span for kind, span in blocks if kind == "html_block"]
    code += [span for kind, span in blocks if kind in ("fence", "code_block")]
    for start, end in html:
        _html(text, start, end, hidden, tags)
    hidden += _swallowed(text, html)
    for start, end, row in _inline(tokens, lines):
        for a, b in _cells(text, start, end) if row else ((start, end),):
            _scan(text, a, b, code, hidden, tags)
    for start, end in _between(sorted(span for _, span in blocks), len(text)):
        hidden += _definitions(text, start, end)
    indented = tuple(span for kind, span in blocks if kind == "code_block")
    fence = _open_fence(text, tokens, lines)
    return Layout(_sorted(code), _sorted(hidden), _sorted(tags), indented, fence)


def visible(text: str) -> tuple[str, int]:
    """The text without what a person does not see on the forge, and how many parts that were: comments,
    declarations, link definitions without a link, attributes of tags. Code is left alone."""
    count = 0
    for _ in range(ROUNDS):
        found = layout(text)
        cuts = dict.fromkeys(found.hidden, "")
        for start, end in found.tags:
            tag = text[start:end]
            shown, n = _UNSEEN_ATTRIBUTE.subn("", tag) if _HTML.match(tag) else (tag, 0)
            if n:
                cuts[start, end] = shown
        if not cuts:
            break
        text, n = _replace(text, cuts)
        count += n
    return text, count


def outside_code(text: str, code: Iterable[Range]) -> Iterator[tuple[str, bool]]:
    """The text in pieces, each with whether it is code."""
    done = 0
    for start, end in code:
        if start < done:
            continue
        yield text[done:start], False
        yield text[start:end], True
        done = end
    yield text[done:], False


def _replace(text: str, cuts: dict[Range, str]) -> tuple[str, int]:
    out, done, n = [], 0, 0
    for (start, end), new in sorted(cuts.items()):
        if start >= done:
            out += [text[done:start], new]
            done, n = end, n + 1
    return "".join((*out, text[done:])), n


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    """Blocks only; what is inside a line is read here, where its place in the text is known."""
    from markdown_it import MarkdownIt

    md = MarkdownIt("commonmark").enable("table")
    md.core.ruler.disable("inline")
    return md


def _starts(text: str) -> list[int]:
    """Where each line begins; one more for the end."""
    return [0, *(m.end() for m in re.finditer("\n", text)), len(text) + 1]


def _span(token: Token, lines: list[int]) -> Range:
    assert token.map is not None
    last = len(lines) - 1
    return lines[min(token.map[0], last)], max(lines[min(token.map[1], last)] - 1, 0)


def _inline(tokens: list[Token], lines: list[int]) -> Iterator[tuple[int, int, bool]]:
    """The ranges with text in them, and whether they are a table's row."""
    rows = {t.map[0] for t in tokens if t.type == "tr_open" and t.map}
    seen: set[Range] = set()
    for t in tokens:
        span = _span(t, lines)
        if t.type == "inline" and span not in seen:
            seen.add(span)
            yield *span, bool(t.map and t.map[0] in rows)


def _cells(text: str, start: int, end: int) -> Iterator[Range]:
    """A row's cells: a bar parts them even inside a code span, unless a backslash is before it."""
    done = start
    for m in _BAR.finditer(text, start, end):
        yield done, m.start()
        done = m.end()
    yield done, end


def _scan(text: str, start: int, end: int, code: list[Range], hidden: list[Range], tags: list[Range]) -> None:
    """Code spans, comments and tags of one block's text. A run of backticks is closed by one as long."""
    runs: dict[int, list[int]] = {}
    for run in _TICKS.finditer(text, start, end):
        runs.setdefault(len(run[0]), []).append(run.start())
    at = start
    open_: set[str] = set()
    while m := _INLINE.search(text, at, end):
        at = m.end()
        if m["ticks"]:
            closers = runs.get(len(m["ticks"]), [])
            i = bisect_right(closers, m.start())
            if i < len(closers):
                at = closers[i] + len(m["ticks"])
                code.append((m.start(), at))
        elif m["opened"]:
            at = _closed(text, m, end, open_) or at
            hidden += [(m.start(), at)] if at > m.end() else []
        elif m["tag"]:
            tags.append(m.span())


def _closed(text: str, m: re.Match[str], end: int, open_: set[str]) -> int:
    """Where the comment (or declaration) that begins there ends; 0 when it does not, which is asked once."""
    opened = m["opened"]
    if opened == "<!--" and (short := re.compile("-?>").match(text, m.end(), end)):
        return short.end()
    if opened in open_:
        return 0
    found = text.find(_CLOSED_BY[opened], m.end(), end)
    if found < 0:
        open_.add(opened)
        return 0
    return found + len(_CLOSED_BY[opened])


def _html(text: str, start: int, end: int, hidden: list[Range], tags: list[Range]) -> None:
    at = start
    open_: set[str] = set()
    while m := _HTML_INSIDE.search(text, at, end):
        at = m.end()
        if m["tag"]:
            tags.append(m.span())
        elif closed := _closed(text, m, end, open_):
            hidden.append((m.start(), closed))
            at = closed


def _swallowed(text: str, blocks: list[Range]) -> Iterator[Range]:
    """A comment that a block of HTML leaves open hides all up to the next such block that closes it."""
    since = -1
    for start, end in blocks:
        at = start
        if since >= 0:
            closed = text.find("-->", start, end)
            if closed < 0:
                continue
            yield since, closed + 3
            since, at = -1, closed + 3
        while (opened := text.find("<!--", at, end)) >= 0:
            closed = text.find("-->", opened + 2, end)
            if closed < 0:
                since = opened
                break
            at = closed + 3
    if since >= 0:
        yield since, len(text)


def _definitions(text: str, start: int, end: int) -> Iterator[Range]:
    """Link definitions that no link uses: a way to write what nobody sees. Each goes up to the next."""
    found = list(_DEFINITION.finditer(text, start, end))
    used = Counter(label.casefold() for label in _LABEL.findall(text)) if found else Counter()
    for m, after in zip_longest(found, found[1:]):
        if used[m[1].casefold()] < 2:
            last = after.start() if after else end
            yield m.start(), m.start() + len(text[m.start() : last].rstrip())


def _between(taken: Iterable[Range], size: int) -> Iterator[Range]:
    done = 0
    for start, end in taken:
        if start > done:
            yield done, start
        done = max(done, end)
    yield done, size


def _sorted(ranges: list[Range]) -> tuple[Range, ...]:
    """In order, none inside another."""
    out: list[Range] = []
    for r in sorted(set(ranges), key=lambda r: (r[0], -r[1])):
        if not out or r[0] >= out[-1][1]:
            out.append(r)
    return tuple(out)


def _open_fence(text: str, tokens: list[Token], lines: list[int]) -> str:
    """The closing line that the last block of code lacks. Inside a quotation or a list it ends with that."""
    fences = [t for t in tokens if t.type == "fence" and t.level == 0]
    if not fences:
        return ""
    last = fences[-1]
    start, end = _span(last, lines)
    rest = text[end:].strip()
    _, _, inside = text[start:end].partition("\n")
    closing = inside.rstrip("\n").rsplit("\n", 1)[-1].strip()
    closed = set(closing) == {last.markup[0]} and len(closing) >= len(last.markup)
    return "" if rest or closed else last.markup
