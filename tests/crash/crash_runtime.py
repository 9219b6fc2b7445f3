"""A Runtime whose workers are forked from a warm process instead of started by `exec`: a sweep's thousands of
runs pay for no import.

The one rule: all else is the process runtime's own: run folders, locks, the shim that outlives its director,
and how a job's end is known. Only two things differ: the shim and a worker begin by fork, and the image is
what a file says.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from harness.adapters import shim
from harness.adapters.process import ProcessRuntime
from harness.compose import worker
from harness.config.models import Config
from harness.core.result import Ok, Result
from harness.loop import SteadyClock

WORKER = ("-m", "harness", "worker")
ANSWER_S = 60.0


class ForkedRuntime(ProcessRuntime):
    """`call` is the socket of the warm process; `image_file` holds the image's id."""

    def __init__(self, root: Path, *, data: Path, clock: SteadyClock, call: Path, image_file: Path) -> None:
        super().__init__(root, data=data, clock=clock)
        self.call, self.image_file = call, image_file

    def image(self, name: str) -> Result[str]:
        return Ok(self.image_file.read_text().strip())

    def _spawn(self, folder: Path, env: Mapping[str, str] = MappingProxyType({})) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(ANSWER_S)
            line.connect(str(self.call))
            line.sendall(f"{folder}\n".encode())
            line.recv(1)


def picker(call: Path, image_file: Path) -> Callable[..., tuple[ForkedRuntime, str, str]]:
    """What `director.start` is given to pick its runtime."""

    def pick(
        config: Config, data: Path, instance: str, clock: SteadyClock, env: Mapping[str, str]
    ) -> tuple[ForkedRuntime, str, str]:
        made = ForkedRuntime(data / "jobs", data=data, clock=clock, call=call, image_file=image_file)
        return made, "process", "workers are forked from a warm process and are NOT isolated"

    return pick


def run_shim(folder: str, boundary: Callable[[str, Mapping[str, str]], Callable[[str], None]]) -> int:
    """The shim's own `main` in this (just forked) process, but that a worker is forked too.
    `boundary(attempt, environment)` makes what the worker crosses."""
    word = shim.detach(folder)
    shim.LIBC.prctl(shim.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    run = shim.begin(folder)
    if run is None:
        os.write(word, b"0")
        return 0
    if tuple(run.job["argv"][-len(WORKER) :]) == WORKER:
        _fork_worker(run, boundary)
    else:
        run.start()
    os.write(word, b"1")
    run.watch()
    run.drain()
    run.close(run.sweep())
    return 0


def _fork_worker(run: shim.Run, boundary: Callable[[str, Mapping[str, str]], Callable[[str], None]]) -> None:
    """What `Run.start` does, without an `exec`."""
    run.pipe, end = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(run.pipe, False)
    run.pid = os.fork()
    if run.pid:
        os.close(end)
        return
    code = 70
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        shim.before_exec()
        for fd in (1, 2):
            os.dup2(end, fd)
        os.chdir(run.job["cwd"])
        os.environ.clear()
        os.environ.update(run.job["env"])
        attempt = os.environ["HARNESS_ATTEMPT"]
        code = worker.work(os.environ, boundary(attempt, os.environ))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
