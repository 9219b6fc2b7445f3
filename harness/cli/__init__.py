"""The command line: one small module a command, loaded when that command is used.

The one rule: expected failures are one clear line and exit code 1 (2 for configuration and usage, 4 for a
held lease); a traceback reaches a user only for a bug (3), with what to paste in a report.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

COMMANDS = {
    "init": "Look at this repository, propose a configuration and write it",
    "doctor": "Check all that a director needs",
    "demo": "A whole release on a small project: no token, no model, no network",
    "try": "Work on one issue and write nothing: every write is shown instead",
    "director": "Run the director",
    "worker": "Run a worker (inside its container)",
    "status": "What is going on",
    "explain": "The final decision on an issue, and why",
    "retry": "Give a deferred or blocked issue another try",
    "cancel": "Stop working on an issue",
    "pause": "Take no new work",
    "resume": "Take new work again",
    "drain": "Take no new work, wait for the workers, then end",
    "stop": "End the director, and with --workers its workers",
    "release": "status, cut, defer or abandon the release",
    "image": "Build or check the worker image",
    "fsm": "Show the machines' tables",
    "audit": "list, show, verify, replay, diff or export audit bundles",
    "rebuild": "Make a damaged or lost store anew from what the outside shows",
    "config": "Check or show the configuration",
    "forge": "Serve or seed the embedded forge",
    "sim": "The seeded simulator",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; answers the process's exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    if args in (["--version"], ["-V"]):
        from harness import __version__

        print(f"harness {__version__}")
        return 0
    if not args or args[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    name = args[0]
    if name not in COMMANDS:
        return _unknown(name)
    return _run(name, args[1:])


def _help() -> str:
    width = max(len(c) for c in COMMANDS)
    lines = "\n".join(f"  {c.ljust(width)}  {text}" for c, text in COMMANDS.items())
    return (
        "Usage: harness COMMAND [OPTIONS]\n\n"
        "Turns labelled issues into validated, reviewed, released code.\n\n"
        f"Commands:\n{lines}\n\n`harness COMMAND --help` tells more. Start with `harness demo`."
    )


def _unknown(name: str) -> int:
    import difflib

    near = difflib.get_close_matches(name, COMMANDS, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    print(f"harness: no command {name}{hint} (see harness --help)", file=sys.stderr)
    return 2


def _run(name: str, args: list[str]) -> int:
    from importlib import import_module

    module = import_module(f"harness.cli.{'try_' if name == 'try' else name}")
    from harness.cli.common import call

    return call(module.command, f"harness {name}", args)
