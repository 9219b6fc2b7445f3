"""`harness explain N`: the final decision on an issue, and why."""

from __future__ import annotations

import click

from harness.cli.common import config_option, emit, json_option, load_config, open_store


@click.command(
    help="The final decision on issue N and its reason, from the journals. Exit 1 when none is known."
)
@click.argument("issue", type=click.IntRange(min=1), metavar="N")
@config_option
@json_option
def command(issue: int, config: str | None, as_json: bool) -> int:
    from harness.audit.explain import explain

    loaded = load_config(config)
    store = open_store(loaded)
    try:
        found = explain(store, issue, loaded.forge.repo.lower())
    finally:
        store.close()
    emit({**found.data, "known": found.known}, as_json, found.text)
    return 0 if found.known else 1
