"""What the commands that ask the director for something share: check, write one row, say what follows.

The one rule: an asking that can have no effect is refused here with the reason, not written down in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from harness.cli.common import Failed, emit, load_config, open_store

LATER = "; no director is running: it takes effect when one starts"


@contextmanager
def standing_of(config: Any) -> Iterator[tuple[Any, Any]]:
    """The store, open for writing, and how things stand."""
    from harness.compose import standing

    store = open_store(config, write=True)
    try:
        yield store, standing.read(config, store)
    finally:
        store.close()


def ask(
    config: str | None, as_json: bool, verb: str, args: Mapping[str, Any], done: str,
    check: Callable[[Any], None] = lambda standing: None,
) -> int:  # fmt: skip
    """Write one row for the director and say so. `check(standing)` raises Failed when that is in vain."""
    with standing_of(load_config(config)) as (store, standing):
        check(standing)
        running = standing.running
        number = store.control(verb, args)
    document = {"ok": True, "control": number, "verb": verb, "args": dict(args), "director_running": running}
    emit(document, as_json, done + ("" if running else LATER))
    return 0


def ticket_of(standing: Any, issue: int, states: frozenset[str], what: str) -> None:
    """Raises Failed unless the issue's newest ticket is in one of the states."""
    item = standing.ticket(issue)
    if item is None:
        raise Failed(
            f"issue {issue} has no ticket, so there is nothing to {what}; harness explain {issue} says why"
        )
    if item.state not in states:
        few = f" (that is for {' and '.join(sorted(states))})" if len(states) <= 2 else ""
        raise Failed(f"issue {issue} is {item.state}: there is nothing to {what}{few}")


def progress(text: str) -> None:
    click.echo(text, err=True)


def reporter() -> Callable[[str, Any, str], None]:
    """Tells on stderr what machines do: one line for each state that one comes to, and whatever is said."""
    last: dict[str, str] = {}

    def report(machine: str, item: Any, text: str) -> None:
        if text or last.get(machine) != item.state:
            last[machine] = item.state
            progress(f"{machine.split('/', 2)[-1]} {item.state}{': ' + text if text else ''}")

    return report
