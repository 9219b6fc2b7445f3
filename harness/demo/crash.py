"""`harness demo --crash`: kill the demo at random boundaries, go on, compare with an undisturbed run.

The one rule: the comparison is of worlds (issues, labels, comments, pulls, releases, the tagged tree), read
from the two forges, not of what the two directors say.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from harness.demo.result import _bare, git
from harness.demo.run import REPO, Demo

CRASH_VARIABLE = "HARNESS_CRASH_AT"
RUN_LIMIT_S = 900
SPREAD = (20, 260)
_EVIDENCE = re.compile(
    r"^Evidence: .*$|<!-- .*? -->|\b\d+\.\d+ s\b|in \d+\.\d+s|Attempt \d+\.\d+", re.MULTILINE
)
_LOG = re.compile(r"^(`{3,})\n.*?^\1$", re.MULTILINE | re.DOTALL)  # what a test run printed: paths and times
_NUMBER = re.compile(r"#\d+|0x[0-9a-f]+|-?\d\.\d+e-\d+")


def boundary(env: Mapping[str, str]) -> Callable[[str], None]:
    """Kills this process (SIGKILL) at the n-th append or effect; n comes from the environment."""
    at = int(env.get(CRASH_VARIABLE, "0") or 0)
    count = [0]

    def cross(what: str) -> None:
        count[0] += 1
        if at and count[0] == at:
            print(f"killed at boundary {at}: {what}", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    return cross


def crash_run(folder: Path, runtime: str, image: str, kills: int, seed: int | None, as_json: bool) -> int:
    chosen = seed if seed is not None else int(time.time())
    dice = random.Random(chosen)
    done = 0
    for _ in range(kills):
        at = dice.randint(*SPREAD)
        code = _child(folder / "crashed", runtime, image, at)
        if code == -signal.SIGKILL:
            done += 1
            click.echo(f"killed at boundary {at}; going on", err=True)
        else:
            break
    code = _child(folder / "crashed", runtime, image, 0)
    calm = _child(folder / "calm", runtime, image, 0)
    difference = compare(world(folder / "calm"), world(folder / "crashed"))
    document = {
        "ok": code == 0 and calm == 0 and not difference and done > 0, "kills": done, "seed": chosen,
        "difference": difference, "data": str(folder),
    }  # fmt: skip
    if as_json:
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(
            f"killed {done} times (seed {chosen}); difference to an undisturbed run: {difference or 'none'}"
        )
    return 0 if document["ok"] else 1


def _child(folder: Path, runtime: str, image: str, at: int) -> int:
    command = [
        sys.executable,
        "-m",
        "harness",
        "demo",
        "--runtime",
        runtime,
        "--image",
        image,
        "--keep",
        str(folder),
        "--json",
    ]
    env = {**os.environ, CRASH_VARIABLE: str(at)}
    done = subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=False, timeout=RUN_LIMIT_S)
    return done.returncode


def world(folder: Path) -> dict[str, Any]:
    """What anybody can see of the forge, without what differs between any two runs (numbers, times, SHAs)."""
    from harness.forge import dump

    repo = dump(folder / "forge", times=False)["repos"][REPO]
    demo = Demo(folder, "", "")
    heads = {p["number"]: p["head_ref"] for p in repo["pulls"]}

    def where(number: int) -> str:
        return str(heads.get(number, f"issue {number}"))

    tag = next((r for r in sorted(repo["refs"]) if r.startswith("refs/tags/")), "")
    return {
        "issues": {where(i["number"]): [i["state"], i["title"], i["labels"]] for i in repo["issues"]},
        "comments": sorted([where(c["issue"]), c["user"], plain(c["body"])] for c in repo["comments"]),
        "pulls": sorted([p["head_ref"], p["base_ref"], p["merged"]] for p in repo["pulls"]),
        "releases": sorted(str(r.get("tag_name", r.get("tag", ""))) for r in repo.get("releases", [])),
        "refs": sorted(r for r in repo["refs"] if not r.startswith(("refs/pull/", "refs/harness/"))),
        "tree": git(_bare(demo), "rev-parse", f"{tag}^{{tree}}") if tag else "",
    }


def plain(body: str) -> str:
    """A text without what differs between any two runs: markers, evidence, logs, times, numbers."""
    return " ".join(_NUMBER.sub("#", _EVIDENCE.sub("", _LOG.sub("(log)", body))).split())


def compare(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Each part that differs, in words."""
    return [f"{k}: {one[k]!r} without, {other[k]!r} with kills" for k in one if one[k] != other[k]]
