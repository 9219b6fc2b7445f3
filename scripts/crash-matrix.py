#!/usr/bin/env python3
"""Kill a director (or a worker) at every boundary of every path, and write the table of what came of it.

The one rule: every figure of the table is counted from outcomes that were written down as the runs ended; the table
can be made again from that file, and names the command that made it.

    scripts/crash-matrix.py                      at every place of every path, then docs/crash-matrix.md
    scripts/crash-matrix.py --path happy         at every place of one path, and its row
    scripts/crash-matrix.py --resume             go on with a matrix that was cut short
    scripts/crash-matrix.py --mode single:1-300  one kill a run, at boundary 1, 2, 3 … of the first director
    scripts/crash-matrix.py --who worker         kill the workers instead
    scripts/crash-matrix.py --docker harness-worker:dev --sample
                                                 in real containers, a few boundaries of each path
    scripts/crash-matrix.py --table              only the table, from --log

`--log` keeps what was found of each path, process and runtime until it is looked at anew.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support"), str(ROOT / "tests" / "crash")]

from crash_paths import BY_NAME, ROUTES, Route  # noqa: E402
from crash_sweep import Mode, Sweep, at, cover, new_root, single, stairs, steps  # noqa: E402
from crash_table import table  # noqa: E402

LOG = ROOT / ".cache" / "crash-matrix.jsonl"
OUT = ROOT / "docs" / "crash-matrix.md"
LIMIT_S = 3000.0
SAMPLE_LIMIT_S = 240.0
JOBS = ("StartGate", "EndGate", "Clone", "OpenSocket", "StartWorker", "StopJob", "RemoveJob", "StartHarvest")
OURS = ("after OpenPull", "after Comment", "before append outcome", "after append transition", "after Tag")
SAMPLE = {"process": OURS, "docker": tuple(f"{when} {what}" for what in JOBS for when in ("before", "after"))}
COVER_RUNS, COVER_DEATHS = 60, 40  # a path ends with the run that came upon no new place
WORKER_RUNS, WORKER_DEATHS = 60, 3  # more than five deaths are given up, as they should be
KINDS = {"cover": cover, "steps": steps, "single": single, "stairs": single}


def modes_of(text: str) -> list[Mode]:
    """`steps:2`, `single:40`, `single:1-300`, `stairs:1-60`, `at:after Tag,before Comment`."""
    kind, _, rest = text.partition(":")
    if kind == "at":
        return [at(*rest.split(","))]
    first, _, last = rest.partition("-")
    if not first.isdigit() or (last and not last.isdigit()) or kind not in KINDS:
        raise SystemExit(f"--mode {text}: write cover:N, steps:N, single:N-M, stairs:N-M or at:WHEN WHAT,…")
    numbers = range(int(first), int(last or first) + 1)
    if kind == "stairs":
        return [stairs(numbers[0], numbers[-1])]
    return [KINDS[kind](n) for n in numbers]


def whole(who: str) -> list[Mode]:
    """At every place of a path."""
    runs, deaths = (WORKER_RUNS, WORKER_DEATHS) if who == "worker" else (COVER_RUNS, COVER_DEATHS)
    return [cover(n, deaths) for n in range(1, runs + 1)]


def is_of(document: dict[str, Any], routes: Iterable[Route], who: str, runtime: str) -> bool:
    here = document["who"] == who and document["runtime"] == runtime
    return here and document["route"] in {r.name for r in routes}


def main() -> int:
    ask = argparse.ArgumentParser(description="Kill a director at every boundary of every path.")
    ask.add_argument(
        "--path", action="append", choices=sorted(BY_NAME), help="only this path (again for more)"
    )
    ask.add_argument(
        "--mode", action="append", default=[], help="cover:N, steps:N, single:N-M, stairs:N-M, at:…"
    )
    ask.add_argument("--who", choices=("director", "worker"), default="director")
    ask.add_argument("--resume", action="store_true", help="keep what --log has, and go on from there")
    ask.add_argument("--sample", action="store_true", help="a few kills of each path, for CI")
    ask.add_argument(
        "--docker", metavar="IMAGE", default="", help="workers and gates in containers of this image"
    )
    ask.add_argument("--jobs", type=int, default=4, help="runs at the same time (most of a run is waiting)")
    ask.add_argument("--log", type=Path, default=LOG, help="where outcomes are written down")
    ask.add_argument("--out", type=Path, default=OUT, help="the table")
    ask.add_argument("--table", action="store_true", help="run nothing, make the table of --log")
    ask.add_argument("--no-table", action="store_true", help="only run")
    a = ask.parse_args()
    good = a.table or run(a)
    if not a.no_table:
        documents = read(a.log)
        if a.path:
            print(table([d for d in documents if d["route"] in a.path]))
            return 0 if good else 1
        a.out.write_text(table(documents))
        print(f"{a.out}: {sum(len(d['kills']) for d in documents)} kills", file=sys.stderr)
    return 0 if good else 1


def read(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def forget(log: Path, routes: Iterable[Route], who: str, runtime: str) -> None:
    """What the log has of the same before: its figures would be counted twice."""
    kept = [json.dumps(d) + "\n" for d in read(log) if not is_of(d, routes, who, runtime)]
    new = log.with_suffix(".new")
    new.write_text("".join(kept))
    new.rename(log)


def run(a: argparse.Namespace) -> bool:
    """Whether no world differed. Worlds that did are kept, and named."""
    began, root = time.monotonic(), new_root()
    runtime = "docker" if a.docker else "process"
    asked = [m for text in a.mode for m in modes_of(text)]
    routes = [BY_NAME[n] for n in a.path] if a.path else list(ROUTES)
    wanted = {r: asked or ([at(*SAMPLE[runtime])] if a.sample else whole(a.who)) for r in routes}
    bad: list[str] = []
    a.log.parent.mkdir(parents=True, exist_ok=True)
    if not a.resume:
        forget(a.log, routes, a.who, runtime)
    earlier = [d for d in read(a.log) if is_of(d, routes, a.who, runtime)]

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {text}", file=sys.stderr, flush=True)

    def keep(d: dict[str, Any]) -> None:
        with a.log.open("a") as f:
            f.write(json.dumps(d) + "\n")
        say(
            f"{d['route']} {d['mode']}: {len(d['kills'])} kills in {d['seconds']:.0f} s, {d['cpu_s']:.0f} s of CPU"
        )
        said = [f"+ {x}" for x in d["duplicates"]] + [f"- {x}" for x in d["losses"]] + [d["trouble"]]
        if any(said):
            bad.append(d["folder"])
            print("\n".join(["", d["folder"], *said]), file=sys.stderr, flush=True)

    sweep = Sweep(
        root,
        a.jobs,
        say,
        keep,
        limit_s=LIMIT_S,
        calm_runs=1 if a.sample else 2,
        image=a.docker,
        earlier=earlier,
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sweep.run(wanted, a.who)
    finally:
        if not bad:
            shutil.rmtree(root)
    say(f"{len(bad)} worlds differ" if bad else "every world is that of a run without a crash")
    return not bad


if __name__ == "__main__":
    sys.exit(main())
