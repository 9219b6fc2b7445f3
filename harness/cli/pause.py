"""`harness pause`: nothing new is taken; what is under way goes on. It lasts over a restart."""

from __future__ import annotations

import click

from harness.cli.asking import ask
from harness.cli.common import config_option, json_option


@click.command(help="Take no new work. What is under way goes on; `harness resume` ends it.")
@config_option
@json_option
def command(config: str | None, as_json: bool) -> int:
    return ask(config, as_json, "pause", {}, "paused: no new work is taken until `harness resume`")
