"""The documentation as data: its pages, their code, links and commands.

The one rule: what a reader could copy or follow is found by the same few patterns in every page.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("README.md", "DESIGN.md", "CONTRIBUTING.md", "CHANGELOG.md", "audits/README.md")
PAGES = (*(ROOT / n for n in NAMES), *sorted((ROOT / "docs").glob("*.md")))

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_COMMENT = re.compile(r"(?:^|\s)#.*$")


@dataclass(frozen=True)
class Line:
    """One command as a reader sees it: `whole` ones stand in a block and can be parsed as they are."""

    page: str
    words: tuple[str, ...]
    whole: bool

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[str]:
    return [body for found, body in _BLOCK.findall(text(page)) if found == language]


def inline(page: Path) -> list[str]:
    """Code inside of prose and tables."""
    return _INLINE.findall(_BLOCK.sub("", text(page)))


def links(page: Path) -> list[str]:
    return _LINK.findall(_BLOCK.sub("", text(page)))


def anchors(page: Path) -> set[str]:
    """The names of its headings, as GitHub makes them."""
    heads = _HEADING.findall(_BLOCK.sub("", text(page)))
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}


def shell(page: Path) -> Iterator[tuple[str, ...]]:
    """The words of each command of its shell blocks, without comments and what stands before the command."""
    for block in blocks(page, "sh"):
        for line in block.splitlines():
            words = shlex.split(_COMMENT.sub("", line))
            while words and re.fullmatch(r"[A-Z_]+=\S*|sudo", words[0]):
                words = words[1:]
            if words:
                yield tuple(words)


def commands(page: Path) -> list[Line]:
    """Every `harness …` of a page."""
    whole = [Line(name(page), w[1:], True) for w in shell(page) if w[0] == "harness"]
    parts = [Line(name(page), tuple(c.split()[1:]), False) for c in inline(page) if c.startswith("harness ")]
    return [*whole, *parts]


def all_commands() -> list[Line]:
    return [line for page in PAGES for line in commands(page)]
