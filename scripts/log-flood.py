#!/usr/bin/env python3
"""Let an agent print 2 GB of noise, and say what that costs.

    .venv/bin/python scripts/log-flood.py [MIB] [process|docker]

Escapes, one line of half of it, then bytes that are no text. It prints one JSON document: the peak memory of the
shim and of whoever looks at the log and seals it, and what was kept. The rule: it ends with 1 where either peak
is above 200 MiB.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]
PEAK_BYTES = 200 << 20


def main(argv: list[str]) -> int:
    from flood import play

    mib, kind = int(argv[0]) if argv else 2048, argv[1] if len(argv) > 1 else "process"
    image = os.environ.get("HARNESS_TEST_IMAGE", "harness-base:bookworm")
    with tempfile.TemporaryDirectory(prefix="log-flood-") as folder:
        found = play(kind, Path(folder), mib, image, within_s=3600.0)
    print(json.dumps(found, indent=1))
    return 1 if max(found["peak_bytes"], found["shim_peak_bytes"]) > PEAK_BYTES else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
