#!/usr/bin/env python3
"""Let each n-th write, sync and rename of the stores and of the audit folder fail, once and for good.

    .venv/bin/python scripts/disk-faults.py [sql|file|audit ...]

ENOSPC and EIO, n = 1, 2, 3 ... until a run is over before its fault. Needs strace. The rule: it ends with 1 and
names each n after which something is torn, lost, done twice, or cannot go on. About 1,000 runs; on two cores
that do nothing else some ten minutes.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]


def main(scenarios: list[str]) -> int:
    from disk_faults import ASKED, faults, play

    bad = 0
    for scenario in scenarios or sorted(ASKED):
        for call in ASKED[scenario]:
            for error in ("ENOSPC", "EIO"):
                for lasting in (False, True):
                    began = time.monotonic()
                    with tempfile.TemporaryDirectory(prefix="disk-faults-") as folder:
                        runs = play(scenario, call, error, Path(folder) / "runs", lasting=lasting)
                        found = [(r.folder.name, f) for r in runs for f in faults(r, lasting=lasting)]
                    hit = sum(bool(r.errors) for r in runs)
                    how = "from the n-th on" if lasting else "the n-th"
                    took = time.monotonic() - began
                    what = f"{scenario}: {how} {call} answers {error}"
                    print(
                        f"{what}: {len(runs)} runs, {hit} noticed, {len(found)} faults, {took:.0f} s",
                        flush=True,
                    )
                    for n, fault in found:
                        print(f"  n = {n}: {fault[-2000:]}", flush=True)
                    bad += len(found)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
