"""`harness doctor`: all that a director needs, checked, one line each, with what to do."""

from __future__ import annotations

from typing import Any

import click

from harness.cli.common import config_option, config_path, emit, json_option, paint

COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}
WIDTH = 11


@click.command(help="Check all that a director needs. Nothing is changed. Exit 1 when there is a problem.")
@config_option
@json_option
def command(config: str | None, as_json: bool) -> int:
    from harness.compose.doctor import examine

    found = []
    for check in examine(config_path(config)):
        found.append(check)
        if not as_json:
            click.echo(line(check))
    problems = sum(c.level == "problem" for c in found)
    warnings = sum(c.level == "warning" for c in found)
    document = {
        "ok": not problems,
        "checks": [{"name": c.name, "level": c.level, "text": c.text, "do": c.do} for c in found],
    }
    emit(document, as_json, f"\n{_count(problems, 'problem')}, {_count(warnings, 'warning')}")
    return 1 if problems else 0


def line(check: Any) -> str:
    head = paint(check.level.ljust(8), COLOURS[check.level])
    do = f"\n{' ' * (9 + WIDTH)}{check.do}" if check.do and check.level != "ok" else ""
    return f"{head} {check.name.ljust(WIDTH)}{check.text}{do}"


def _count(n: int, what: str) -> str:
    return f"{n if n else 'no'} {what}{'' if n == 1 else 's'}"
