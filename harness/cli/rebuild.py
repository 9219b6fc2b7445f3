"""`harness rebuild`: a new store from the forge, git, what runs and what was kept."""

from __future__ import annotations

from typing import Any

import click

from harness.cli.common import columns, config_option, emit, json_option, load_config


@click.command(
    help="Make a damaged or lost store anew from the forge, git, the runtime and the audit bundles. The old "
    "file is set aside, never deleted. What runs is adopted by the next start."
)
@config_option
@click.option("--dry-run", is_flag=True, help="Only show what would be found and made.")
@click.option("--anyway", is_flag=True, help="Also when the store is not damaged, or never was.")
@json_option
def command(config: str | None, dry_run: bool, anyway: bool, as_json: bool) -> int:
    from harness.compose.rebuild import rebuild

    made = rebuild(load_config(config), preview=dry_run, anyway=anyway)
    emit(document(made, dry_run), as_json, text(made, dry_run))
    return 0


def document(made: Any, dry_run: bool) -> dict[str, Any]:
    machines = [
        {
            "machine": m.item.id, "state": m.item.state, "why": m.why,
            "begins": [i.effect.get("$", "") for i in m.item.intents],
        }
        for m in made.machines
    ]  # fmt: skip
    return {
        "dry_run": dry_run, "store": str(made.store), "wrong": made.wrong,
        "aside": str(made.aside) if made.aside else "", "epoch": made.epoch, "bundles": made.bundles,
        "machines": machines, "not_ours": list(made.strangers), "notes": list(made.notes),
    }  # fmt: skip


def text(made: Any, dry_run: bool) -> str:
    rows = [(m.item.id.split("/", 2)[-1], str(m.item.state), m.why) for m in made.machines]
    lines = [f"Found again from the forge, git, what runs and {made.bundles} audit bundles:"]
    lines += columns(rows) or ["  nothing that was under way"]
    lines += [f"Left alone: {x}" for x in made.strangers]
    lines += [f"Note: {x}" for x in made.notes]
    if dry_run:
        return "\n".join([*lines, "Nothing was changed (--dry-run)."])
    kept = f"the old one is {made.aside}" if made.aside else "there was no file to set aside"
    return "\n".join([*lines, f"{made.store} is new ({kept}). Next: harness director"])
