"""What `harness --help` costs beside an empty interpreter: `python benchmarks/help.py [PAIRS]`.

The one rule: both are started in turn, so that whatever else the machine does falls on both; medians count.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

PAIRS = 15
LIMIT = 6.0
ROOT = Path(__file__).parents[1]
EMPTY = (sys.executable, "-c", "pass")
HELP = (sys.executable, "-m", "harness", "--help")


def took_s(command: tuple[str, ...]) -> float:
    """Wall clock of one start, from the clone itself and with nothing printed."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT, env=env)
    return time.perf_counter() - began


def measure(pairs: int = PAIRS) -> dict[str, float]:
    """Medians in milliseconds, and their ratio. The first pair warms the caches and does not count."""
    times = [(took_s(EMPTY), took_s(HELP)) for _ in range(pairs + 1)][1:]
    empty, shown = (statistics.median(t[i] for t in times) for i in (0, 1))
    return {
        "empty_ms": round(empty * 1000, 1),
        "help_ms": round(shown * 1000, 1),
        "ratio": round(shown / empty, 2),
        "limit": LIMIT,
    }


def main() -> int:
    found = measure(int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS)
    print(json.dumps(found))
    return 0 if found["ratio"] <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
