"""How long one tick holds the loop, calm and while everything hangs at once.

    python benchmarks/liveness.py [--seconds N] [--workers N] [--image NAME] [--json]

Workers run in real containers. Then the engine accepts and never answers, the forge refuses every call (403 and
429) and the disk that the data folder is on is full; then all of that ends, and every issue must still land.
Needs root (a small file system is mounted) and an engine. The one rule: the director is a process of its own,
with nothing in it replaced; what it tells is its own loop's figures, a line a second. It prints, and fails only
where the work is lost.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import watched_director  # noqa: E402
from demo_world import Stage, Started, wait_for  # noqa: E402
from director_world import World  # noqa: E402
from disk_world import fill, small_disk  # noqa: E402
from engine_line import EngineLine  # noqa: E402
from soak_tasks import CHECK  # noqa: E402

DISK = "400m"
LIMITS = [
    {"match": "^(POST|PATCH|PUT|DELETE) /repos/", "kind": "secondary-limit", "times": 0},
    {"match": "^GET /repos/", "kind": "secondary-limit", "status": 429, "retry_after": 1, "times": 0},
]


def told(started: Started, seconds: float) -> list[dict[str, Any]]:
    """What the director tells in the seconds that come."""
    first = len(watched_director.lines(started)) + 1
    time.sleep(seconds)
    return watched_director.lines(started)[first:]


def _busy(world: World, started: Started, workers: int) -> bool:
    if started.process.poll() is not None:
        raise SystemExit(f"liveness: the director ended: {started.told()[-2000:]}")
    return len([n for n in world.live() if n.endswith("-i1")]) == workers


def figures(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if len(lines) < 2:
        return {"lines": len(lines)}
    span = lines[-1]["at"] - lines[0]["at"]
    return {
        "seconds": round(span, 1),
        "passes_per_s": round((lines[-1]["passes"] - lines[0]["passes"]) / span, 1),
        "ticks_per_s": round((lines[-1]["ticks"] - lines[0]["ticks"]) / span, 1),
        "slowest_tick_s": max(x["slowest_s"] for x in lines),
        "longest_gap_s": max(x["gap_s"] for x in lines),
        "states": sorted({x["state"] for x in lines}),
        "trouble": sorted({x["trouble"][:80] for x in lines if x["trouble"]}),
    }


def measure(folder: Path, seconds: float, workers: int, image: str) -> dict[str, Any]:
    stage = Stage(folder / "runs")
    titles = [f"Write {n}.txt" for n in range(1, workers + 1)]
    work = {"sleep_s": seconds, "say": "Done."}
    plays = {str(n): [work | {"write": {f"{n}.txt": "x\n"}}] for n in range(1, workers + 1)}
    files = {".harness.toml": f"[validation]\ncommands = [{json.dumps(CHECK)}]\n"}
    with EngineLine(folder / "engine.sock") as line, small_disk(folder / "world" / "data", DISK) as data:
        config = {
            "director": {"max_workers": workers, "interval_seconds": 1.0},
            "containers": {"docker_host": line.host},
            "timeouts": {"worker_heartbeat_ttl_seconds": 20},
        }
        with World(
            stage, folder / "world", "docker", titles, plays, config, files, image
        ) as world:  # fmt: skip
            world.forge.state.settings = replace(world.forge.state.settings, secondary_penalty_s=2.0)
            started = watched_director.start(world, "until-idle")
            try:
                wait_for(lambda: _busy(world, started, workers), 300, "all workers run")
                calm = told(started, seconds / 2)
                line.hang()
                world.forge.set_faults(*LIMITS)
                filler = fill(data)
                trouble = told(started, seconds)
                filler.unlink()
                world.forge.set_faults()
                line.answer()
                after = told(started, seconds / 2)
                code = started.end(600).code
                repo = world.repo()
                closed = sum(1 for i in repo["issues"] if i["state"] == "closed" and not i["is_pull"])
            finally:
                stage.close()
    return {
        "ok": code == 0 and closed == workers, "workers": workers, "released": closed,
        "asked_while_hung": line.asked, "calm": figures(calm), "trouble": figures(trouble),
        "after": figures(after),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="of trouble")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--image", default="harness-worker:dev")
    parser.add_argument("--json", action="store_true", help="one document on stdout")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="live-") as name:
        found = measure(Path(name), given.seconds, given.workers, given.image)
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        for key, value in found.items():
            print(f"{key:<18} {value}")
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
