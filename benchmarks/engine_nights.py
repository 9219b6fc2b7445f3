"""Whole nights on a private engine that restarts, is upgraded, hangs or is gone for a while. Prints a table.

The one rule: what must hold is checked as in the test (`tests/weather/engine_nights.py`), and one night that does
not hold fails the command. Needs root, dockerd and a worker image of the machine's engine.

    python benchmarks/engine_nights.py --image harness-worker:dev [restart] [upgrade] [hang] [leave]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support"), str(ROOT / "tests" / "weather")]

import engine_nights  # noqa: E402
from demo_world import Stage  # noqa: E402
from private_engine import PrivateEngine, reason_missing  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("troubles", nargs="*", default=list(engine_nights.TROUBLES))
    parser.add_argument("--image", default="harness-worker:dev")
    asked = parser.parse_args()
    if missing := reason_missing():
        print(f"cannot run: {missing}", file=sys.stderr)
        return 2
    failed = 0
    with tempfile.TemporaryDirectory(prefix="engine-nights-") as folder, PrivateEngine() as engine:
        engine.load(asked.image)
        stage = Stage(Path(folder))
        try:
            for number, trouble in enumerate(asked.troubles):
                stage.folder = Path(folder) / str(number)
                began = time.monotonic()
                try:
                    engine_nights.check(engine_nights.night(stage, engine, asked.image, trouble))
                    verdict = "holds"
                except AssertionError as e:
                    failed, verdict = failed + 1, f"DOES NOT HOLD: {e}"
                print(f"{trouble:8} {time.monotonic() - began:6.1f} s  {verdict}", flush=True)
        finally:
            stage.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
