"""`harness cancel N`: work on an issue ends; its pull is closed, its branch removed, unless it has landed."""

from __future__ import annotations

import click

from harness.cli.asking import ask, ticket_of
from harness.cli.common import config_option, json_option

LIVE = frozenset({"CLAIMING", "ATTEMPTING", "WAITING", "REVIEWING", "LANDING", "DEFERRED", "BLOCKED"})


@click.command(
    help="Stop working on issue N: its worker is stopped, its work saved in the bundle, its pull closed."
)
@click.argument("issue", type=click.IntRange(min=1), metavar="N")
@config_option
@json_option
def command(issue: int, config: str | None, as_json: bool) -> int:
    done = f"work on issue {issue} ends; take the label off, or it may be taken again"
    return ask(
        config,
        as_json,
        "cancel",
        {"issue": issue},
        done,
        lambda standing: ticket_of(standing, issue, LIVE, "cancel"),
    )
