"""`harness drain`: nothing new is taken, the workers finish, then the director ends."""

from __future__ import annotations

import click

from harness.cli.asking import ask, progress, standing_of
from harness.cli.common import Failed, config_option, json_option, load_config
from harness.cli.waiting import until


@click.command(help="Take no new work and end the director when its workers have finished.")
@config_option
@click.option("--wait", is_flag=True, help="Return when the director has ended.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=1),
    default=86400.0,
    metavar="SECONDS",
    help="Of --wait.",
)
@json_option
def command(config: str | None, wait: bool, timeout_s: float, as_json: bool) -> int:
    def check(standing: object) -> None:
        if not standing.running:  # type: ignore[attr-defined]
            raise Failed("no director is running: there is nothing to drain")

    code = ask(
        config,
        as_json,
        "drain",
        {},
        "draining: no new work is taken, the director ends after its workers",
        check,
    )
    if wait:
        loaded = load_config(config)
        said: list[str] = []

        def ended() -> bool:
            with standing_of(loaded) as (_, standing):
                live = ", ".join(sorted(i.data.code for i in standing.kind("attempt") if i.state != "CLOSED"))
                text = f"waiting for {f'attempt {live}' if live else 'the director to end'}"
                if said[-1:] != [text]:
                    said.append(text)
                    progress(text)
                return not standing.running

        if not until(ended, timeout_s):
            raise Failed(
                f"the director still runs after {timeout_s:.0f} s; harness status says what it waits for"
            )
    return code
