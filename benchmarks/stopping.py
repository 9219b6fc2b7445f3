"""How long a director takes to end on SIGTERM with many live workers, and what becomes of them.

    python benchmarks/stopping.py [--workers 20] [--runtime process|docker] [--image NAME] [--json]

The one rule: it fails where a worker was killed, was not adopted by the next director, or did not finish. The
seconds are printed beside the goal; a loaded machine may miss it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import busy  # noqa: E402
from demo_world import Stage  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, default=20)
    parser.add_argument("--runtime", choices=("process", "docker"), default="process")
    parser.add_argument("--image", default="harness-worker:dev")
    parser.add_argument("--sleep", type=float, help="seconds that each agent takes; default by the runtime")
    parser.add_argument("--json", action="store_true", help="one document on stdout")
    given = parser.parse_args()
    image = given.image if given.runtime == "docker" else ""
    sleep_s = given.sleep or (60.0 if given.runtime == "docker" else 600.0)
    with tempfile.TemporaryDirectory(prefix="stop-") as name:
        stage = Stage(Path(name))
        try:
            ended = busy.end_and_go_on(stage, given.runtime, given.workers, image, sleep_s)
        finally:
            stage.close()
        adopted = busy.adopted_by(ended.folder)
    closed = sum(1 for i in ended.repo["issues"] if i["state"] == "closed" and not i["is_pull"])
    found = {
        "ok": ended.code == 0 and ended.last.code == 0 and closed == ended.workers
        and ended.before == ended.after and ended.before.keys() <= adopted,
        "runtime": given.runtime, "workers": ended.workers, "seconds": round(ended.seconds, 2), "goal_s": 10.0,
        "alive_after": len(ended.after), "adopted": len(ended.before.keys() & adopted), "finished": closed,
        "codes": [ended.code, ended.last.code],
    }  # fmt: skip
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        for key, value in found.items():
            print(f"{key:<12} {value}")
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
