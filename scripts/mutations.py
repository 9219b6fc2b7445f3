#!/usr/bin/env python3
"""Ten small mutations of our own code, and whether the simulator catches each: a table, exit 1 when one lives.

The one rule: a mutation is applied to a temporary copy of the tree; the tree itself is never touched.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STEP = 50


@dataclass(frozen=True)
class Mutation:
    name: str
    path: str
    old: str
    new: str


MUTATIONS = (
    Mutation(
        "drop the key lookup", "perform/outcome.py",
        "    found = look()\n", "    found = Ok(NOT_THERE)\n",
    ),
    Mutation(
        "skip an intent", "tick.py",
        "        self.performer.start(key, effect.port, lambda: self.perform(effect, sent, self.world))\n",
        "        if type(effect).__name__ == 'RemoveJob':\n"
        "            return self._settle(item, intent, key, Outcome.done({}))\n"
        "        self.performer.start(key, effect.port, lambda: self.perform(effect, sent, self.world))\n",
    ),
    Mutation(
        "charge the wrong counter", "failures.py",
        "F.INFRA_KILLED: Rule(True, _I,", "F.INFRA_KILLED: Rule(True, _A,",
    ),
    Mutation(
        "ignore the epoch", "tick.py",
        "        if intent.sent_epoch != self.world.epoch:\n", "        if False:\n",
    ),
    Mutation(
        "forget a label check", "machines/ticket/table.py",
        "    elif not issue.has(seen.policy.label()):\n", "    elif False:\n",
    ),
    Mutation(
        "believe absence at once", "perform/outcome.py",
        "    if lags and sent.at is not None and now < sent.at + lag_s:\n", "    lags = False\n    if False:\n",
    ),
    Mutation(
        "land without a gate", "machines/ticket/landing.py",
        "    verdict = gates.judge(seen, name)\n", "    verdict = Ok('green')\n",
    ),
    Mutation(
        "do not check the lane's turn", "machines/ticket/landing.py",
        "    if lane.turn != item.id:\n", "    if False:\n",
    ),
    Mutation(
        "forget to bound retries", "machines/ticket/attempting.py",
        "        if exhausted(counters.get(name, 0), most):\n", "        if False:\n",
    ),
    Mutation(
        "spawn without a slot", "machines/ticket/attempting.py",
        "    return item.id in slots.waiting[: max(free, 0)]\n", "    return True\n",
    ),
)  # fmt: skip


def copy(folder: Path) -> None:
    shutil.copytree(ROOT / "harness", folder / "harness", ignore=shutil.ignore_patterns("__pycache__"))


def mutate(folder: Path, m: Mutation) -> None:
    path = folder / "harness" / m.path
    text = path.read_text()
    if text.count(m.old) != 1:
        raise SystemExit(
            f"mutations: {m.name}: {m.path} holds the text {text.count(m.old)} times, not once: mend the mutation"
        )
    imports = (
        "from harness.core.result import Ok\n" if "Ok(" in m.new and "import Err, Ok" not in text else ""
    )
    text = text.replace(m.old, m.new)
    if imports:
        text = text.replace("from harness.core.result import", f"{imports}from harness.core.result import", 1)
    path.write_text(text)


def hunt(folder: Path, seeds: int) -> tuple[int, str, int]:
    """The first seed that finds something, what it finds, and how many seeds were played. -1: none did."""
    for first in range(0, seeds, STEP):
        last = min(first + STEP, seeds)
        args = ("-m", "harness", "sim", "--seeds", f"{first}:{last}", "--faults", "all", "--json")
        said = subprocess.run(
            [sys.executable, *args],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder)},
            capture_output=True,
            text=True,
        )
        if not said.stdout.strip():
            return first, f"the simulator stopped: {said.stderr.strip().splitlines()[-1][:80]}", last
        found = json.loads(said.stdout)["violations"]
        if found:
            return found[0]["seed"], found[0]["invariant"], last
    return -1, "", seeds


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "--seeds", type=int, default=1000, help="how many seeds a mutation may live (default 1000)"
    )
    options.add_argument("--only", default="", help="only mutations whose name contains this")
    given = options.parse_args()
    alive = 0
    print(f"{'mutation':<30} {'seed':>5}  {'caught by':<40} {'seconds':>7}")
    for m in MUTATIONS:
        if given.only not in m.name:
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="mutation-") as name:
            folder = Path(name)
            copy(folder)
            mutate(folder, m)
            seed, what, _ = hunt(folder, given.seeds)
        alive += seed < 0
        print(
            f"{m.name:<30} {seed if seed >= 0 else '-':>5}  {what or 'NOT CAUGHT':<40} {time.monotonic() - began:7.1f}",
            flush=True,
        )
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
