"""What commands share: how they end, how they print, where they find configuration and data."""

from __future__ import annotations

import errno
import json
import os
import platform
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

# What the world can do to any command, and what to do about it: no bug of ours.
WORLD_ERRNO = {
    errno.ENOSPC: ": make room and start again",
    errno.EDQUOT: ": make room and start again",
    errno.EFBIG: ": raise the file size limit",
    errno.EACCES: ": look at its owner and mode",
    errno.EPERM: ": look at its owner and mode",
    errno.ENOENT: "",
    errno.ENOTDIR: "",
    errno.EISDIR: "",
    errno.EROFS: "",
    errno.EADDRINUSE: ": another process listens there",
}
DEFAULT_CONFIGS = ("harness.toml", "config/harness.toml", ".harness/config.toml")


class Failed(Exception):
    """An expected failure: one clear line, and the exit code."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


def call(command: click.Command, name: str, args: list[str]) -> int:
    """Run a click command; maps everything that can happen to an exit code."""
    try:
        done = command.main(args=args, prog_name=name, standalone_mode=False)
        return done if isinstance(done, int) else 0
    except click.exceptions.Exit as e:
        return int(e.exit_code)
    except click.UsageError as e:
        e.show()
        return 2
    except click.Abort:
        print("\nharness: stopped", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nharness: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as e:
        expected = _expected(e)
        if expected is not None:
            print(f"{name}: {expected[0]}", file=sys.stderr)
            return expected[1]
        return _bug(name, e)


def _expected(e: Exception) -> tuple[str, int] | None:
    """Text and exit code of the failures that are foreseen, whoever raises them."""
    if isinstance(e, Failed):
        return str(e), e.code
    kind = type(e).__name__
    if kind == "ConfigError":
        return str(e), 2
    if kind == "StartError":
        return str(e), int(getattr(e, "code", 1))
    if kind == "LeaseHeld":
        return str(e), 4
    if kind in ("StoreError", "StoreMissing", "ForgeError", "GatewayError", "AuditError"):
        return str(e), 1
    if isinstance(e, OSError) and e.errno in WORLD_ERRNO:
        where = e.filename or "the disk"
        return f"{where}: {(e.strerror or str(e)).lower()}{WORLD_ERRNO[e.errno]}", 1
    return None


def _bug(name: str, e: Exception) -> int:
    from harness import __version__

    text = "".join(traceback.format_exception(e))
    print(
        f"{name}: this is a bug in the harness. Please report what follows.\n\n"
        f"harness {__version__}, Python {platform.python_version()}, {platform.system()} "
        f"{platform.release()}\n{text}",
        file=sys.stderr,
    )
    return 3


def emit(document: Any, as_json: bool, text: str = "") -> None:
    """One JSON document on stdout, or the text for people."""
    if as_json:
        click.echo(json.dumps(document, indent=2, ensure_ascii=False, default=str))
    elif text:
        click.echo(text)


def paint(text: str, colour: str) -> str:
    """Coloured where that is wanted: NO_COLOR, a pipe and --json stay plain (click strips it in a pipe)."""
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=colour)


def columns(rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """Rows of cells as aligned lines; the last cell of a row is as long as it is."""
    if not rows:
        return []
    widths = [max(len(r[i]) for r in rows if len(r) > i) for i in range(max(len(r) for r in rows) - 1)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        lines.append((indent + "  ".join((*cells, row[-1]))).rstrip())
    return lines


def config_path(given: str | None) -> Path:
    if given:
        return Path(given)
    found = os.environ.get("HARNESS_CONFIG")
    if found:
        return Path(found)
    for name in DEFAULT_CONFIGS:
        if Path(name).is_file():
            return Path(name)
    return Path(DEFAULT_CONFIGS[0])


def load_config(given: str | None) -> Any:
    from harness.config.reader import load

    return load(config_path(given))


def open_store(config: Any, *, write: bool = False) -> Any:
    """The director's store beside a director that may be running. Raises StoreError when there is none."""
    from harness import __version__
    from harness.adapters.store.sql import SqlStore
    from harness.loop import SteadyClock

    return SqlStore.open(
        config.store_path,
        clock=SteadyClock(),
        code=__version__,
        read_only=not write,
        create=False,
        check=False,
    )


config_option = click.option(
    "--config", "config", metavar="FILE", default=None, help="The operator's file (default: ./harness.toml)."
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
