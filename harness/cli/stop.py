"""`harness stop`: ends the director. With --workers its workers end too, and their work is saved."""

from __future__ import annotations

from typing import Any

import click

from harness.cli.asking import progress, reporter
from harness.cli.common import Failed, config_option, emit, json_option, load_config, open_store
from harness.cli.waiting import until

STOP_S = 30.0


@click.command(help="End the director; its workers go on, and the next start adopts them.")
@config_option
@click.option(
    "--workers",
    is_flag=True,
    help="Stop the workers too: their work is saved, containers and clones removed.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=1),
    default=600.0,
    metavar="SECONDS",
    help="Of --workers.",
)
@json_option
def command(config: str | None, workers: bool, timeout_s: float, as_json: bool) -> int:
    loaded = load_config(config)
    ended = end_director(loaded)
    document: dict[str, Any] = {"ok": True, "director_ended": ended, "stopped": [], "left": []}
    text = "the director has ended" if ended else "no director is running"
    if workers:
        from harness.compose.stopping import stop_workers

        progress(f"{text}; stopping its workers")
        document |= stop_workers(loaded, timeout_s=timeout_s, report=reporter())
        document["ok"] = not document["left"]
        stopped = ", ".join(document["stopped"])
        text += f"; stopped and saved: attempt {stopped}" if stopped else "; no worker is left"
    emit(document, as_json, text)
    if document["left"]:
        raise Failed(
            f"attempt {', '.join(document['left'])} is not cleaned up after {timeout_s:.0f} s; run it again"
        )
    return 0


def end_director(config: Any) -> bool:
    """Whether one was running. Raises Failed when it does not end."""
    from harness.adapters.store.lease import is_held, owner_of

    data = config.data_dir.absolute()
    if not is_held(data):
        return False
    owner = owner_of(data / "lock")
    store = open_store(config, write=True)
    try:
        store.control("stop", {})
    finally:
        store.close()
    if not until(lambda: not is_held(data), STOP_S):
        who = f"process {owner.get('pid', '?')} on {owner.get('host', '?')}"
        raise Failed(
            f"the director ({who}) has not ended within {STOP_S:.0f} s; harness status says what it does"
        )
    return True
