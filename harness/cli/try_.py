"""`harness try N`: work on one issue, write nothing to the forge, show what would have been written."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from harness.cli.asking import reporter
from harness.cli.common import Failed, config_option, emit, json_option, load_config

DELIVERED = frozenset({"REVIEWING", "LANDING", "LANDED", "WAITING"})
TEXT_LINES = 60
_MARK = re.compile(r"<!-- harness:.*?-->", re.DOTALL)


@click.command(
    help="Work on issue N for real and write nothing to the forge: ends in a patch, the log, the cost and "
    "the texts that would have been posted. Exit 1 when nothing would have been delivered."
)
@click.argument("issue", type=click.IntRange(min=1), metavar="N")
@config_option
@click.option(
    "--keep", metavar="DIR", default=None, help="Keep everything in this folder (default: a temporary one)."
)
@json_option
def command(issue: int, config: str | None, keep: str | None, as_json: bool) -> int:
    from harness.compose import tryout

    loaded = load_config(config)
    folder = Path(keep).absolute() if keep else Path(tempfile.mkdtemp(prefix="harness-try-"))
    if keep and (folder / "store.db").exists():
        raise Failed(f"{folder} holds an earlier try or a director's data: name a new folder")
    told: list[int] = []
    _on_signal(told)
    try:
        tried = tryout.attempt(loaded, issue, folder, report=reporter(), stopped=lambda: bool(told))
        emit(asdict(tried), as_json, text(asdict(tried), bool(keep)))
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if told:
        raise Failed("stopped; the worker was ended and its work saved" + (f" in {folder}" if keep else ""))
    return 0 if tried.state in DELIVERED else 1


def _on_signal(told: list[int]) -> None:
    """The first asks, the second ends at once."""

    def asked(number: int, _: object) -> None:
        if told:
            os._exit(128 + number)
        told.append(number)
        print("harness try: stopping the worker (once more ends at once)", file=sys.stderr)

    signal.signal(signal.SIGTERM, asked)
    signal.signal(signal.SIGINT, asked)


def text(d: Mapping[str, Any], kept: bool) -> str:
    parts = [_would(d["would"])] if d["would"] else []
    shown = [n for n in d["logs"] if n != "build.log"] or list(d["logs"])
    parts += [f"The end of {name}\n\n{_indent(d['logs'][name])}" for name in shown]
    if d["patch"]:
        cut = "\n(cut)" if d["patch_cut"] else ""
        parts.append(f"The patch\n\n{d['patch'].rstrip()}{cut}")
    return "\n\n".join([*parts, _end(d, kept)])


def _indent(raw: str) -> str:
    return "\n".join(f"    {line}" for line in raw.splitlines()[-TEXT_LINES:])


def _would(would: list[Mapping[str, Any]]) -> str:
    """What would have been written to the forge, in order; our hidden markers are left out."""
    lines = ["What would have been written to the forge"]
    for w in would:
        where = w.get("on") or w.get("number") or w.get("ref") or w.get("head") or w.get("sha") or ""
        rest = ", ".join(str(x) for x in w.get("labels", ())) or w.get("title") or w.get("context") or ""
        lines.append(
            f"\n  {w['what']} {f'#{where}' if isinstance(where, int) else where}{f': {rest}' if rest else ''}"
        )
        if w.get("body"):
            lines.append(_indent(_MARK.sub("", str(w["body"])).strip()))
    return "\n".join(lines)


def _end(d: Mapping[str, Any], kept: bool) -> str:
    lines = [f"Issue {d['issue']}{': ' + d['title'] if d['title'] else ''}"]
    for a in d["attempts"]:
        why = f" ({a['failure']})" if a["failure"] else ""
        lines.append(f"  attempt {a['attempt']}: {a['outcome']}{why}")
    lines.append(
        f"  came to {d['state'] or 'nothing'}{': ' + d['reason'].splitlines()[0] if d['reason'] else ''}"
    )
    lines.append(f"  model cost ${d['cost_usd']:.2f}; nothing was written to the forge")
    if kept:
        lines.append(f"  evidence: harness audit list --audits {d['audits']}")
    return "\n".join(lines)
