"""Many attempts that start at once on one mirror, and git that is killed in the middle of things.

    python benchmarks/git_weather.py [--parallel 32] [--rounds 20] [--kills 201] [--seed N] [--json]

A start is a fetch and a clone. A kill is SIGKILL to git during a fetch, a clone or a push, of each a third; then the
same is done once more. The one rule: it fails where a start did not succeed, where what was killed does not work at
once afterwards, or where a lock stays; seconds are only printed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support"), str(ROOT / "tests" / "weather")]

import git_world as world  # noqa: E402
from git_kills import KINDS, Killed  # noqa: E402
from git_starts import Starts  # noqa: E402

from harness.core.result import Ok  # noqa: E402

PATIENCE_S = 20.0  # for one kill; a command that was faster than the signal is played again


def starts(folder: Path, parallel: int, rounds: int) -> dict[str, Any]:
    began = time.monotonic()
    tally = Starts(folder).play(parallel, rounds)
    half, most = tally.seconds[len(tally.seconds) // 2], tally.seconds[-1]
    return {
        "starts": tally.starts, "succeeded": tally.starts - len(tally.wrong), "half_within_s": round(half, 2),
        "slowest_s": round(most, 2), "seconds": round(time.monotonic() - began, 1), "wrong": tally.wrong[:5],
    }  # fmt: skip


def kills(folder: Path, number: int, seed: int) -> dict[str, Any]:
    began = time.monotonic()
    place = Killed(folder, seed)
    tally = place.play(number, number * PATIENCE_S)
    wrong = list(tally.wrong)
    # A director's start looks once more; whatever is left then would stay.
    again = place.repo.prepare()
    if again != Ok(None):
        wrong.append(f"the next start: {again}")
    stay = [p.name for p in place._locks()] + [p.name for p in place.origin.path.rglob("*.lock")]
    world.git("fsck", "--connectivity-only", "--no-dangling", cwd=place.mirror)
    return {
        "kills": sum(tally.kills.values()), **tally.kills, "failed": tally.failed, "locks_met": tally.locks,
        "locks_that_stay": stay, "seconds": round(time.monotonic() - began, 1), "wrong": wrong[:5],
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parallel", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--kills", type=int, default=201, help="in all; each kind of command gets a third")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="one document on stdout")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="git-weather-") as name:
        begun = starts(Path(name) / "starts", given.parallel, given.rounds)
        killed = kills(Path(name) / "kills", given.kills, given.seed)
    wanted = given.kills // len(KINDS) * len(KINDS)
    ok = not begun["wrong"] and begun["starts"] == given.parallel * given.rounds
    ok = ok and not killed["wrong"] and not killed["locks_that_stay"] and killed["kills"] == wanted
    if given.json:
        print(json.dumps({"ok": ok, "starts": begun, "kills": killed}, indent=2))
    else:
        for part in (begun, killed):
            for key, value in part.items():
                print(f"{key:<16} {value}")
        print(
            f"git weather: {begun['succeeded']} of {given.parallel * given.rounds} starts succeeded, "
            f"{killed['kills']} kills left {len(killed['locks_that_stay'])} locks; {'ok' if ok else 'NOT OK'}"
        )
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
