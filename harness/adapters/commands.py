"""Runs the trusted repository's own validation commands, one after another, until one fails.

Stand-alone, standard library only: `python -I commands.py RESULT.json -- COMMANDS.json`, where COMMANDS.json
is a JSON list of command lines, or `-` for standard input. The one rule: this is the only place that gives
text to a shell (`/bin/sh -c`), and that text comes from the trusted base, never from a worker's branch.

RESULT.json, by rename: commands_run, failed_command ("" when none failed), exit, seconds. The exit code is
the failing command's, 128 + n where signal n ended it, or 0. Without RESULT.json it did not come to its end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

USAGE = "usage: python -I commands.py RESULT.json -- COMMANDS.json (a JSON list of texts, - for stdin)"
COMMANDS_LIMIT = 100
TEXT_LIMIT_BYTES = 1 << 20


def read_commands(source: str) -> list[str]:
    """ValueError or OSError with one clear line when it is not a short list of texts."""
    if source == "-":
        text = sys.stdin.buffer.read(TEXT_LIMIT_BYTES + 1)
    else:
        with Path(source).open("rb") as f:
            text = f.read(TEXT_LIMIT_BYTES + 1)
    if len(text) > TEXT_LIMIT_BYTES:
        raise ValueError(f"{source}: more than {TEXT_LIMIT_BYTES} bytes of commands")
    value = json.loads(text)
    if not isinstance(value, list) or not all(isinstance(c, str) and c.strip() for c in value):
        raise ValueError(f"{source}: not a JSON list of command lines")
    if len(value) > COMMANDS_LIMIT:
        raise ValueError(f"{source}: {len(value)} commands, at most {COMMANDS_LIMIT}")
    return value


def run_all(commands: list[str]) -> dict[str, Any]:
    began = time.monotonic()
    done, failed, code = 0, "", 0
    for command in commands:
        print(f"$ {command}", flush=True)
        ended = subprocess.run(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, check=False).returncode
        done += 1
        if ended != 0:
            failed, code = command, ended if ended > 0 else 128 - ended
            print(f"[exit {code}]", flush=True)
            break
    seconds = round(time.monotonic() - began, 3)
    return {"commands_run": done, "failed_command": failed, "exit": code, "seconds": seconds}


def write(path: Path, value: dict[str, Any]) -> None:
    new = path.with_name(path.name + ".new")
    with new.open("w", encoding="utf-8") as f:
        json.dump(value, f)
        f.flush()
        os.fsync(f.fileno())
    new.rename(path)


def main(argv: list[str]) -> int:
    if len(argv) != 4 or argv[2] != "--":
        print(USAGE, file=sys.stderr)
        return 2
    result = Path(argv[1])
    result.unlink(missing_ok=True)  # an earlier run's word must not stand for this one
    try:
        commands = read_commands(argv[3])
    except (OSError, ValueError) as e:
        print(f"commands.py: {e}", file=sys.stderr)
        return 2
    value = run_all(commands)
    write(result, value)
    return int(value["exit"])


if __name__ == "__main__":
    sys.exit(main(sys.argv))
