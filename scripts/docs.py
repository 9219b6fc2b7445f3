#!/usr/bin/env python3
"""Write the generated parts of the documentation anew, from the code that runs.

Rule: what stands between `<!-- made: NAME -->` and `<!-- end -->` is never edited by hand. NAME is
`fsm MACHINE` (a picture), `failures` (the failure table) or `commands`.

    scripts/docs.py            write
    scripts/docs.py --check    write nothing; exit 1 and name the files that are behind
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = ("README.md", "DESIGN.md", "docs/machines.md", "docs/operations.md")
MADE = re.compile(r"(<!-- made: ([\w -]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def made(name: str) -> str:
    """The text of one generated part. Raises KeyError for a name that nothing makes."""
    kind, _, rest = name.partition(" ")
    return {"fsm": picture, "failures": failures, "commands": commands}[kind](rest)


def picture(machine: str) -> str:
    from harness.cli.fsm import mermaid
    from harness.machines.all import KINDS

    return f"```mermaid\n{mermaid(KINDS[machine].table)}\n```\n"


def failures(_: str) -> str:
    from harness.failures import RULES, Counter

    rows = []
    for failure, rule in RULES.items():
        again = f"`{rule.back_to.removeprefix('retry_')}`" if rule.back_to else "–"
        counter = "nobody" if rule.counter is Counter.NOBODY else str(rule.counter)
        rows.append((f"`{failure}`", rule.text, again if rule.retried else "–", counter, after(rule.after)))
    return grid(("class", "in words", "tried again from", "charged to", "then"), rows)


def after(end: str) -> str:
    return {"fatal": "it ends", "needs_human": "a person is asked", "given_up": "deferred in writing"}[end]


def commands(_: str) -> str:
    from harness.cli import COMMANDS

    return grid(("command", "what it does"), [(f"`harness {name}`", text) for name, text in COMMANDS.items()])


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def renew(text: str) -> str:
    """The text with every generated part as the code has it now."""
    return MADE.sub(lambda m: f"{m[1]}{made(m[2])}{m[3]}", text)


def main(args: Sequence[str]) -> int:
    behind = []
    for name in FILES:
        path = ROOT / name
        old = path.read_text(encoding="utf-8")
        new = renew(old)
        if new == old:
            continue
        behind.append(name)
        if "--check" not in args:
            path.write_text(new, encoding="utf-8")
    if behind:
        print(f"docs: {'behind' if '--check' in args else 'written'}: {', '.join(behind)}")
    return 1 if behind and "--check" in args else 0


def own_python() -> None:
    """Go on in .venv's Python, where the libraries are; scripts/setup.sh makes it."""
    wanted = ROOT / ".venv/bin/python"
    if Path(sys.prefix) != ROOT / ".venv" and wanted.exists():
        os.execv(wanted, [str(wanted), *sys.argv])


if __name__ == "__main__":
    own_python()
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
