"""Requests to the forge: of one idle look, and of one whole issue from claim to published.

Run: python benchmarks/forge_requests.py. Counts, not times: from the embedded forge's own log, git apart.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from pathlib import Path

from harness.compose import director
from harness.config.reader import load
from harness.demo import run
from harness.demo.run import Demo

INTERVAL_S = 8.0
IDLE_LOOKS = 4


def requests(folder: Path, after: int = 0) -> list[tuple[int, str, str, int]]:
    """(id, method, path, status) of the forge's REST requests, git left out."""
    db = sqlite3.connect(folder / "forge" / "forge.db")
    ours = (
        "SELECT id, method, path, status FROM requests WHERE id > ? AND NOT is_git AND user = 'harness-bot'"
    )
    rows = db.execute(ours, (after,))
    return [tuple(r) for r in rows]


def demo(folder: Path, issues: int) -> Demo:
    run.LOOK_S = INTERVAL_S
    run.ISSUES = run.ISSUES[:issues]
    made = Demo(folder, "process", "")
    made.open()
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-requests-") as name:
        folder = Path(name)
        stage = demo(folder, 1)
        running = stage.run()
        whole = requests(folder)
        running.close()
        claimed = next(i for i, r in enumerate(whole) if r[2].split("?")[0].endswith("/issues/1/comments"))
        landed = next(i for i, r in enumerate(whole) if r[1] == "DELETE" and "/issues/1/labels/" in r[2])
        idle = director.start(load(folder / "harness.toml"))
        # Settle first: a start looks at everything once.
        settled = time.monotonic() + INTERVAL_S
        idle.loop.run(lambda loop: time.monotonic() > settled)
        last = requests(folder)[-1][0]
        end = time.monotonic() + IDLE_LOOKS * INTERVAL_S
        idle.loop.run(lambda loop: time.monotonic() > end)
        looks = requests(folder, last)
        idle.close()
        stage.close()
    unchanged = sum(1 for r in looks if r[3] == 304)
    print(f"{'what':<34} {'measured':>9}  goal")
    print(f"{'one issue, from claim to landed':<34} {landed - claimed + 1:>9}  <= 40")
    print(f"{'the same with start and release':<34} {len(whole):>9}")
    print(f"{'one idle look':<34} {len(looks) / IDLE_LOOKS:>9.2f}  1")
    print(f"{'of those answered 304':<34} {unchanged / max(len(looks), 1):>9.0%}  >= 95%")


if __name__ == "__main__":
    main()
