"""How long a job takes to start, against the engine's own HTTP and against the SDK. Prints one table.

The one rule: all sides run in the same minutes on the same machine, one after another in turn, so that what
slows one down slows all. It measures; it never fails.

    python benchmarks/container_start.py --count 20
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.adapters import container, engine
from harness.adapters.docker import DEFAULT_HOST, DockerRuntime
from harness.core.result import Ok
from harness.domain import Job

ARGV = ("echo", "ready")
GOAL = 1.1


class WallClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class Raw(http.client.HTTPConnection):
    """The engine's HTTP with the standard library alone."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.path)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body)
        self.request(method, path, data, {"Content-Type": "application/json"} if data else {})
        answer = self.getresponse()
        said = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {said.decode(errors='replace')[:300]}")
        return json.loads(said) if said else None


def wait_for_line(path: str, name: str) -> None:
    """Until the first line of the job can be read; the same observer for all sides."""
    raw = Raw(path)
    raw.request("GET", f"/containers/{name}/logs?stdout=1&follow=1")
    answer = raw.getresponse()
    if answer.read(8)[:1] != b"\x01":
        raise RuntimeError(f"{name} printed nothing")
    raw.close()


@contextmanager
def removed(path: str) -> Iterator[str]:
    """A fresh name; what bears it afterwards is removed."""
    name = f"h-bench-{uuid.uuid4().hex[:10]}"
    try:
        yield name
    finally:
        raw = Raw(path)
        raw.request("DELETE", f"/containers/{name}?force=1&v=1")
        raw.getresponse().read()
        raw.close()


Starter = Callable[[str], None]


def sides(path: str, image: str, data: Path) -> dict[str, Starter]:
    """What is compared: each starts a job of that name and comes back."""
    runtime = DockerRuntime(
        data=data, host_data=None, instance="bench", repo_key="bench", clock=WallClock(),
        docker_host=f"unix://{path}", timeout_s=60,
    )  # fmt: skip
    sdk = engine.sdk().DockerClient(base_url=f"unix://{path}", version="auto", timeout=60)
    seen = container.Engine("", "", cpus=float(os.cpu_count() or 1))

    def raw(name: str, body: dict[str, Any]) -> None:
        line = Raw(path)
        made = line.ask("POST", f"/containers/create?name={name}", body)
        line.ask("POST", f"/containers/{made['Id']}/start")
        line.close()

    def plain(name: str) -> None:
        raw(name, {"Image": image, "Cmd": list(ARGV), "HostConfig": {"NetworkMode": "none"}})

    def hardened(name: str) -> None:
        places = container.Places(data, data)
        raw(name, container.specify(job(name), places, user="10001:10001", engine=seen, labels={}))

    def by_sdk(name: str) -> None:
        sdk.containers.run(image, list(ARGV), name=name, detach=True, network_mode="none")

    def job(name: str) -> Job:
        return Job(name, ARGV, image=image, workdir="/", env={"HOME": "/tmp"})

    def ours(name: str) -> None:
        got = runtime.start(job(name))
        if not isinstance(got, Ok):
            raise RuntimeError(str(got))

    return {"raw HTTP, no flags": plain, "raw HTTP, same flags": hardened, "SDK": by_sdk, "harness": ours}


def time_one(path: str, start: Starter) -> tuple[float, float]:
    """Milliseconds until the call came back, and until the first line could be read."""
    with removed(path) as name:
        began = time.perf_counter()
        start(name)
        back = time.perf_counter()
        wait_for_line(path, name)
        return (back - began) * 1000, (time.perf_counter() - began) * 1000


def time_many(path: str, start: Starter, many: int) -> float:
    """Milliseconds until the last of several started at once had printed."""
    began = time.perf_counter()
    with ThreadPoolExecutor(many) as pool:
        took = list(pool.map(lambda _: _until_line(path, start, began), range(many)))
    return max(took)


def _until_line(path: str, start: Starter, began: float) -> float:
    with removed(path) as name:
        start(name)
        wait_for_line(path, name)
        return (time.perf_counter() - began) * 1000


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--image", default=os.environ.get("HARNESS_TEST_IMAGE", "harness-base:bookworm"))
    asked.add_argument("--count", type=int, default=20, help="starts of each side")
    asked.add_argument("--at-once", type=int, default=8, help="how many start together in the second part")
    asked.add_argument("--host", default=os.environ.get("DOCKER_HOST", DEFAULT_HOST))
    given = asked.parse_args()
    path = "/" + given.host.removeprefix("unix://").lstrip("/")
    with tempfile.TemporaryDirectory() as folder:
        compared = sides(path, given.image, Path(folder))
        for start in compared.values():
            time_one(path, start)
        singles: dict[str, list[tuple[float, float]]] = {k: [] for k in compared}
        groups: dict[str, list[float]] = {k: [] for k in compared}
        for _ in range(given.count):
            for name, start in compared.items():
                singles[name].append(time_one(path, start))
        for _ in range(max(3, given.count // 5)):
            for name, start in compared.items():
                groups[name].append(time_many(path, start, given.at_once))
    report(singles, groups, given.at_once)


def report(singles: dict[str, list[tuple[float, float]]], groups: dict[str, list[float]], many: int) -> None:
    floor = statistics.median(x for _, x in singles["raw HTTP, no flags"])
    peers = statistics.median(groups["SDK"])
    heads = f"{'side':<22} {'call ms':>9} {'line ms':>9} {'best':>7} {'p90':>7} {'to raw':>7}"
    print(f"{heads}   {many} at once ms  to SDK")
    for name, rows in singles.items():
        call = statistics.median(x for x, _ in rows)
        lines = sorted(x for _, x in rows)
        line, late = statistics.median(lines), lines[int(len(lines) * 0.9)]
        group = statistics.median(groups[name])
        one = f"{name:<22} {call:>9.1f} {line:>9.1f} {lines[0]:>7.1f} {late:>7.1f} {line / floor:>7.2f}"
        print(f"{one} {group:>16.0f} {group / peers:>7.2f}")
    print(f"goal: harness to raw <= {GOAL}, {many} at once to SDK <= {GOAL} (medians)")


if __name__ == "__main__":
    main()
