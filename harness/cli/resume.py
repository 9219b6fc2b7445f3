"""`harness resume`: the end of a pause or a drain."""

from __future__ import annotations

import click

from harness.cli.asking import ask
from harness.cli.common import config_option, json_option


@click.command(help="Take new work again, after a pause or a drain.")
@config_option
@json_option
def command(config: str | None, as_json: bool) -> int:
    return ask(config, as_json, "resume", {}, "resumed: new work is taken again")
