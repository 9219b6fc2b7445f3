"""Heartbeats: N workers at 1 Hz, each on its own socket, against a bare JSON line over a unix socket.

Both sides run in the same call: servers in a process of their own (its CPU is what is reported, once all
workers are connected), all clients in one other process.
Run it as `python benchmarks/heartbeats.py [WORKERS] [SECONDS]`.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

TOKEN = "token-of-a-benchmark-0123456789"


class RealClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


def _report(pipe: Connection) -> None:
    """Answer each "cpu" with the CPU seconds used so far, until "end"."""
    while pipe.recv() == "cpu":
        used = resource.getrusage(resource.RUSAGE_SELF)
        pipe.send((used.ru_utime + used.ru_stime, used.ru_maxrss // 1024))


def serve_gateway(pipe: Connection, folder: str, workers: int) -> None:
    from harness.gateway.server import Gateway

    gateway = Gateway(Path(folder) / "r", Path(folder) / "data", RealClock())
    gateway.start()
    pipe.send([str(gateway.open(f"{i}.1", TOKEN, 1) / "gateway.sock") for i in range(1, workers + 1)])
    _report(pipe)
    gateway.close()


def serve_floor(pipe: Connection, folder: str, workers: int) -> None:
    async def beat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(json.dumps({"n": json.loads(line)["n"]}).encode() + b"\n")

    async def main() -> None:
        path = str(Path(folder) / "floor.sock")
        async with await asyncio.start_unix_server(beat, path, backlog=workers):
            pipe.send([path] * workers)
            await asyncio.to_thread(_report, pipe)

    asyncio.run(main())


async def _floor_worker(path: str, start: asyncio.Barrier, seconds: float, seen: list[float]) -> None:
    reader, writer = await asyncio.open_unix_connection(path)
    n = 0
    await start.wait()
    end = time.monotonic() + seconds
    await asyncio.sleep(random.random())
    while time.monotonic() < end:
        n, began = n + 1, time.perf_counter()
        writer.write(json.dumps({"type": "beat", "n": n, "state": "CODE"}).encode() + b"\n")
        await reader.readline()
        seen.append(time.perf_counter() - began)
        await asyncio.sleep(1.0)
    writer.close()


async def _gateway_worker(path: str, start: asyncio.Barrier, seconds: float, seen: list[float]) -> None:
    from websockets.asyncio.client import unix_connect

    from harness.gateway import wire

    headers = {wire.TOKEN_HEADER: TOKEN, wire.INCARNATION_HEADER: "1"}
    detail = wire.Detail(output_bytes=1000, cpu_s=2.0)
    async with unix_connect(
        path, "ws://gateway/bus", additional_headers=headers, compression=None, ping_interval=None
    ) as line:
        await line.send(wire.Hello(v=wire.PROTOCOL).model_dump_json())
        await line.recv()
        n = 0
        await start.wait()
        end = time.monotonic() + seconds
        await asyncio.sleep(random.random())
        while time.monotonic() < end:
            n, began = n + 1, time.perf_counter()
            await line.send(wire.Pulse(n=n, state="CODE", detail=detail).model_dump_json())
            await line.recv()
            seen.append(time.perf_counter() - began)
            await asyncio.sleep(1.0)


async def _drive(paths: list[str], seconds: float, floor: bool, cpu: Connection) -> tuple[list[float], float]:
    """The round trips of all workers, and the CPU seconds that the server had used when they began."""
    seen: list[float] = []
    start = asyncio.Barrier(len(paths) + 1)
    worker = _floor_worker if floor else _gateway_worker
    async with asyncio.TaskGroup() as group:
        for path in paths:
            group.create_task(worker(path, start, seconds, seen))
        await start.wait()
        cpu.send("cpu")
        before, _ = cpu.recv()
    return seen, before


def measure(floor: bool, workers: int, seconds: float) -> tuple[str, int, float, float, float, int]:
    with tempfile.TemporaryDirectory(prefix="hb", dir="/tmp") as folder:
        ours, theirs = multiprocessing.Pipe()
        serve = serve_floor if floor else serve_gateway
        server = multiprocessing.Process(target=serve, args=(theirs, folder, workers))
        server.start()
        theirs.close()
        paths = ours.recv()
        seen, before = asyncio.run(_drive(paths, seconds, floor, ours))
        ours.send("cpu")
        after, rss = ours.recv()
        ours.send("end")
        server.join(30)
    seen.sort()
    name = "bare JSON line, unix socket" if floor else "gateway, one socket a worker"
    p99 = seen[int(len(seen) * 0.99)] * 1000
    return name, len(seen), statistics.median(seen) * 1000, p99, 100 * (after - before) / seconds, rss


def main() -> None:
    workers = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 20.0
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * workers + 200
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    print(f"{workers} workers at 1 Hz for {seconds:.0f} s, {os.cpu_count()} cores")
    print(f"{'':32}{'beats':>8}{'p50 ms':>10}{'p99 ms':>10}{'CPU %':>8}{'MiB':>7}")
    for floor in (True, False):
        name, count, p50, p99, cpu, rss = measure(floor, workers, seconds)
        print(f"{name:32}{count:>8}{p50:>10.3f}{p99:>10.3f}{cpu:>8.1f}{rss:>7}")


if __name__ == "__main__":
    main()
