"""`harness rebuild`: a new store in the place of one that is damaged or lost.

The one rule: nothing is deleted. The old file is set aside under a name that the answer tells; what the forge
and the audit bundles know is found again by the next start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.cli.common import Failed, config_option, emit, json_option, load_config


@click.command(
    help="Set a damaged or lost store aside and begin a new one; the index of audit bundles is made anew. "
    "Tickets are found again on the forge: what was deferred is tried again."
)
@config_option
@click.option("--anyway", is_flag=True, help="Also when the store is not damaged.")
@json_option
def command(config: str | None, anyway: bool, as_json: bool) -> int:
    from harness.adapters.store.lease import Lease
    from harness.audit.index import rebuild_index
    from harness.compose.parts import audits_dir
    from harness.loop import SteadyClock

    loaded = load_config(config)
    data, clock = loaded.data_dir.absolute(), SteadyClock()
    path = Path(loaded.store_path.removeprefix("sqlite:///")).absolute()
    if not data.is_dir():
        raise Failed(f"{data} is not there: no director has run with this data folder yet")
    with Lease.take(data, clock=clock):
        wrong = _wrong(path)
        if not wrong and not anyway:
            raise Failed(
                f"{path} is not damaged, so there is nothing to rebuild (--anyway does it all the same)"
            )
        aside = _renew(path, clock.now())
    lines = rebuild_index(audits_dir(loaded, data))
    document = {
        "store": str(path), "wrong": wrong, "aside": str(aside) if aside else "", "bundles": len(lines),
    }  # fmt: skip
    kept = f"the old one is {aside}" if aside else "there was no file to set aside"
    emit(
        document,
        as_json,
        f"{path} is new, {kept}; {len(lines)} bundles are in the index. Next: harness director",
    )
    return 0


def _wrong(path: Path) -> str:
    """What is wrong with the store; empty when nothing is. Raises Failed where there never was one."""
    from harness.adapters.store import schema
    from harness.adapters.store.errors import StoreError

    try:
        found = schema.look(path, check=True)
    except StoreError as e:
        return str(e)
    if not found:
        raise Failed(f"{path} is not there and never was: the next start makes it")
    return ""


def _renew(path: Path, at: float) -> Any:
    """Set aside what is there, make an empty store; answers the old file's new name, or None."""
    from harness.adapters.store import schema

    aside = schema.set_aside(path)
    schema.create(path, at=at)
    return aside
