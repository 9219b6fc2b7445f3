"""`harness init`: look at this repository, propose a configuration, write it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from harness.cli.common import DEFAULT_CONFIGS, Failed, columns, emit, json_option


@click.command(
    help="Look at the repository in this folder, propose at most 12 lines of configuration, and write them."
)
@click.option(
    "--config",
    "config",
    metavar="FILE",
    default=DEFAULT_CONFIGS[0],
    show_default=True,
    help="The file to write.",
)
@click.option("--yes", is_flag=True, help="Write without asking.")
@json_option
def command(config: str, yes: bool, as_json: bool) -> int:
    from harness.compose import survey

    path = Path(config)
    if path.exists():
        raise Failed(f"{path} is there already: edit it, or remove it first", 2)
    try:
        found = survey.look(Path.cwd())
    except survey.SurveyError as e:
        raise Failed(str(e), 2) from e
    text = survey.propose(found)
    if not as_json:
        click.echo(
            "\n".join([*told(found), "", f"{path}:", "", *(f"    {line}" for line in text.splitlines()), ""])
        )
    wanted = yes or (not as_json and _asked(path))
    if wanted:
        survey.write(path, text)
    document = {
        "file": str(path),
        "written": wanted,
        "text": text,
        "found": asdict(found),
        "open": list(found.open),
    }
    emit(document, as_json, _end(path, wanted, found))
    return 0 if wanted else 1


def _asked(path: Path) -> bool:
    if not sys.stdin.isatty():
        return False
    return click.confirm(f"Write {path}?", default=True)


def told(f: Any) -> list[str]:
    """What was found, one line each."""
    access = (
        f"{f.token_env}, {f.permission or 'the forge did not say what it may do'}"
        if f.token_env
        else "none found"
    )
    branch = f.default_branch + (f", {f.protected}" if f.protected else "")
    tests = f"{f.commands[0]} (from {f.commands_from})" if f.commands else "none found"
    rows = [
        ("repository", f"{f.repo} on {f.url}"),
        ("branch", branch or "not known"),
        ("validation", tests),
        ("credential", access),
        ("engine", f.engine or "no Docker engine answers"),
        ("image", f.image or "no worker image yet"),
        ("model key", f.key_env or "none found"),
    ]
    return columns(rows, "")


def _end(path: Path, written: bool, f: Any) -> str:
    if not written:
        return f"Nothing was written. `harness init --yes` writes {path}."
    todo = [
        f"  {n}. {line}"
        for n, line in enumerate(
            (*f.open, "harness doctor", "harness try N, for an issue N that bears the label harness"), 1
        )
    ]
    return "\n".join([f"Wrote {path}. Next:", *todo])
