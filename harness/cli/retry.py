"""`harness retry N`: a deferred or blocked issue gets another try, with all its counters at zero."""

from __future__ import annotations

import click

from harness.cli.asking import ask, ticket_of
from harness.cli.common import config_option, json_option

PARKED = frozenset({"DEFERRED", "BLOCKED"})


@click.command(help="Give the deferred or blocked issue N another try.")
@click.argument("issue", type=click.IntRange(min=1), metavar="N")
@config_option
@json_option
def command(issue: int, config: str | None, as_json: bool) -> int:
    return ask(
        config, as_json, "retry", {"issue": issue}, f"issue {issue} gets another try",
        lambda standing: ticket_of(standing, issue, PARKED, "retry"),
    )  # fmt: skip
