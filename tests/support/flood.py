"""A job that prints without end, and what it costs whoever looks at it and keeps its log.

As a program: `flood.py RUNTIME FOLDER MIB IMAGE` prints one JSON document. The one rule: what is measured is the
peak of whole processes, as the kernel counts it: this one, which does what a worker and a director do with a
log, and the shim.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from harness.adapters.docker import DockerRuntime
from harness.adapters.memory.store import MemoryStore
from harness.adapters.process import ProcessRuntime
from harness.audit.bundle import Caps
from harness.compose.archive import Archive
from harness.core.redact import Redactor
from harness.domain import Job, Limits
from harness.loop import SteadyClock

KEEP_BYTES = 1 << 20
LOOK_BYTES = 200_000  # what a worker looks at
ROOT = Path(__file__).parents[2]


def noise(mib: int) -> str:
    """A shell program: escapes, one line of half of it, then bytes that are no text, NULs among them."""
    half = mib << 19
    return (
        r"printf 'first line\n\033[2J\033]0;title\007\n'; "
        f"head -c {half} /dev/zero | tr '\\0' x; echo; head -c {half} /dev/urandom; "
        r"printf '\n\377\376\000\nlast line\n'"
    )


def main(kind: str, folder: Path, mib: int, image: str) -> dict[str, Any]:
    clock = SteadyClock()
    code = "1.1"
    audit = folder / "attempts" / code / "audit"
    audit.mkdir(parents=True)
    runtime: Any = ProcessRuntime(audit / "jobs", data=folder, clock=clock, keep_bytes=KEEP_BYTES)
    if kind == "docker":
        runtime = DockerRuntime(
            data=folder, instance=uuid.uuid4().hex[:8], repo_key="acme/widget", clock=clock
        )
    limits = Limits(output_bytes=1 << 40, wall_s=3600.0)
    job = Job(
        f"flood-{uuid.uuid4().hex[:8]}", ("sh", "-c", noise(mib)), image=image, limits=limits, workdir="/"
    )
    began = time.monotonic()
    try:
        runtime.start(job).unwrap()
        shim = looks = 0
        while runtime.status(job.name).unwrap().alive:
            looks += len(runtime.log(job.name, LOOK_BYTES).unwrap()) <= LOOK_BYTES
            shim = max(shim, shim_peak(audit / "jobs" / job.name)) if kind == "process" else 0
            time.sleep(0.1)
        tail = runtime.log(job.name, LOOK_BYTES).unwrap()
        exit_code = runtime.status(job.name).unwrap().exit
        seconds = time.monotonic() - began
        archive = Archive(
            folder / "audits", folder, MemoryStore(clock, code="1"), clock, Redactor(("secret-token",)).data,
            lambda: Caps(log_bytes=KEEP_BYTES // 2),
        )  # fmt: skip
        machine = f"acme/widget/attempt/{code}"
        sealed = archive.seal(code, machine, {"machine": machine, "attempt": code}, {job.name: tail}).unwrap()
        log = audit / "jobs" / job.name / "output.log"
        kept = log.read_bytes() if kind == "process" else b""
        dropped = re.search(rb"\n\[harness: (\d+) bytes dropped here\]\n", kept)
        return {
            "exit": exit_code, "seconds": round(seconds, 1), "looks": looks, "shim_peak_bytes": shim,
            "peak_bytes": peak(os.getpid()),
            "log_bytes": len(kept), "dropped": int(dropped[1]) if dropped else 0,
            "bundle": str(folder / "audits" / sealed),
            "tail_bytes": len(tail), "ends_well": tail.endswith(b"\nlast line\n"),
        }  # fmt: skip
    finally:
        runtime.remove(job.name)


def shim_peak(run: Path) -> int:
    """Of the shim of a run, 0 when it is not there."""
    try:
        return peak(json.loads((run / "started.json").read_text())["pid"])
    except (OSError, ValueError):
        return 0


def peak(pid: int) -> int:
    """VmHWM in bytes. (What getrusage says begins with the peak of whoever started the process.)"""
    status = Path(f"/proc/{pid}/status").read_text()
    return next((int(x.split()[1]) << 10 for x in status.splitlines() if x.startswith("VmHWM")), 0)


def play(kind: str, folder: Path, mib: int, image: str = "", within_s: float = 120.0) -> dict[str, Any]:
    """A process of its own does it; answers its document."""
    argv = [sys.executable, str(Path(__file__).resolve()), kind, str(folder), str(mib), image]
    env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=within_s, check=False)
    if done.returncode:
        raise AssertionError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])))
