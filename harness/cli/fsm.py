"""`harness fsm`: the machines' tables, as a table, as Mermaid, or as JSON."""

from __future__ import annotations

from typing import Any

import click

from harness.cli.common import Failed, columns, emit, json_option

FORMATS = ("table", "mermaid", "json")


@click.group(help="The machines' rules, straight from the tables that run.")
def command() -> None:
    pass


@command.command("list", help="Every machine.")
@json_option
def list_(as_json: bool) -> int:
    from harness.machines.all import KINDS

    tables = [k.table for k in KINDS.values()]
    document = [{"name": t.name, "states": len(t.states), "moves": len(expanded(t))} for t in tables]
    rows = [(t.name, f"{len(t.states)} states", f"from {t.start} to {', '.join(ended(t))}") for t in tables]
    emit(document, as_json, "\n".join(columns(rows, "")))
    return 0


@command.command(help="One machine: harness fsm show director --format mermaid")
@click.argument("name")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)
@json_option
def show(name: str, form: str, as_json: bool) -> int:
    from harness.machines.all import KINDS

    if name not in KINDS:
        raise Failed(f"no machine {name!r}; there is {', '.join(sorted(KINDS))}", 2)
    t = KINDS[name].table
    document = {
        "name": t.name,
        "start": t.start,
        "final": ended(t),
        "states": list(t.states),
        "moves": expanded(t),
    }
    emit(document, as_json or form == "json", mermaid(t) if form == "mermaid" else text(t))
    return 0


def ended(t: Any) -> list[str]:
    return [s for s in t.states if s in t.final]


def expanded(t: Any) -> list[dict[str, str]]:
    """The whole relation: a move that is allowed anywhere stands once for every state that is not final."""
    return [
        {"from": state, "event": event, "to": to}
        for state in t.states
        for event, to in {**t.rows[state].moves, **t.targets(state)}.items()
    ]


def text(t: Any) -> str:
    moves = [("any" if a == "*" else a, event, to) for a, event, to in t.moves()]
    marked = [(a, event, f"{to} (final)" if to in t.final else to) for a, event, to in moves]
    return "\n".join([f"{t.name}: starts in {t.start}", *columns([("from", "event", "to"), *marked])])


def mermaid(t: Any) -> str:
    """A state diagram; moves from anywhere are one composite's, so that they are drawn once."""
    lines = ["stateDiagram-v2", f"    [*] --> {t.start}"]
    anywhere = [(e, to) for a, e, to in t.moves() if a == "*"]
    if anywhere:
        lines.append('    state "any" as any_state')
    for a, event, to in t.moves():
        lines.append(f"    {'any_state' if a == '*' else a} --> {to}: {event}")
    lines += [f"    {s} --> [*]" for s in ended(t)]
    return "\n".join(lines)
