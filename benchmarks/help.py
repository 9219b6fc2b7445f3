"""Start of the command: `harness --help` against an empty interpreter, in pairs, medians.

Run: python benchmarks/help.py [PAIRS]. The ratio counts, not the times: both sides are measured in turn.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

PAIRS = 15
HELP = [sys.executable, "-c", "from harness.cli import main; main(['--help'])"]
EMPTY = [sys.executable, "-c", "pass"]


def seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS
    seconds(HELP), seconds(EMPTY)
    measured = [(seconds(HELP), seconds(EMPTY)) for _ in range(pairs)]
    ours, empty = (statistics.median(x) for x in zip(*measured, strict=True))
    ratio = statistics.median(a / b for a, b in measured)
    print(f"{'what':<24} {'harness --help':>15} {'python -c pass':>15} {'ratio':>7}  goal")
    print(f"{'median of ' + str(pairs):<24} {ours * 1e3:>12.1f} ms {empty * 1e3:>12.1f} ms {ratio:>7.2f}  <= 6")


if __name__ == "__main__":
    main()
