"""`harness config`: check or show the configuration."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.common import Failed, config_option, config_path, emit, json_option, load_config

REPOSITORY_FILE = ".harness.toml"


@click.group(help="Check or show the configuration. Nothing outside is contacted.")
def command() -> None:
    pass


@command.command(
    help="Read the operator's file, and .harness.toml in this folder; exit 2 when something is wrong."
)
@config_option
@json_option
def check(config: str | None, as_json: bool) -> int:
    from harness.config import load_repository

    path = config_path(config)
    loaded = load_config(config)
    own = Path(REPOSITORY_FILE)
    if own.exists():
        loaded = loaded.with_repository(load_repository(own))
    missing = loaded.missing()
    document = {
        "ok": not missing,
        "file": str(path),
        "repository_file": str(own) if own.exists() else "",
        "missing": list(missing),
    }
    if missing and not as_json:
        raise Failed("\n".join(f"{path}: {line}" for line in missing), 2)
    read = f"{path} and {own}" if own.exists() else str(path)
    emit(document, as_json, f"{read}: ok, for {loaded.forge.repo}")
    return 2 if missing else 0


@command.command(help="Every value in force, defaults included. Secrets are only named, never shown.")
@config_option
@json_option
def show(config: str | None, as_json: bool) -> int:
    import tomli_w

    loaded = load_config(config)
    shown = loaded.shown()
    emit({**shown, "hash": loaded.hash()} if as_json else shown, as_json, tomli_w.dumps(shown).rstrip())
    return 0
