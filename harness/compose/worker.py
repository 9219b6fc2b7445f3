"""The worker's process inside its container: everything it needs is in its environment and mounts.

The one rule: it holds no credential. What leaves it goes through the gateway's socket, and what it says is
testimony: the director judges by what it saw itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import __version__
from harness.adapters.agents import AGENTS
from harness.adapters.clone import WorkClone
from harness.adapters.process import ProcessRuntime
from harness.adapters.store.file import FileStore
from harness.core.redact import Redactor
from harness.core.result import Ok
from harness.domain import Limits
from harness.gateway.client import BusClient
from harness.gateway.forwarder import Forwarder
from harness.looks import Looks, Own
from harness.loop import Loop, Performer, Pools, SteadyClock
from harness.machines.worker.states import Worker
from harness.perform import perform, places
from harness.policy import Policy
from harness.ports import Tools, World
from harness.tick import Ticker

FINAL = {"DONE": 0}
FATAL_CODE, PERSON_CODE, BUG_CODE, STOP_CODE = 10, 11, 70, 143
PERSON = frozenset(
    {"question", "policy_violation", "validation_missing", "agent_no_changes", "budget_exhausted"}
)
FLUSH_S = 15.0
WORKSPACE = "/workspace"
RHYTHM_S = 0.3


@dataclass(frozen=True, slots=True)
class Place:
    """Where things are in the container, as its environment says."""

    attempt: str
    incarnation: int
    socket: Path
    workspace: Path
    audit: Path
    brief: Path
    home: Path
    image: str
    prepared: str

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Place:
        def get(name: str) -> str:
            value = env.get(name, "")
            if not value:
                raise SystemExit(f"harness worker: {name} is not set; workers are started by the director")
            return value

        return cls(
            get("HARNESS_ATTEMPT"), int(env.get("HARNESS_INCARNATION", "1")),
            Path(env.get("HARNESS_SOCKET_DIR", "")), Path(get("HARNESS_WORKSPACE")),
            Path(get("HARNESS_AUDIT")), Path(get("HARNESS_BRIEF")), Path(get("HOME")),
            env.get("HARNESS_IMAGE", ""), env.get("HARNESS_PREPARED", ""),
        )  # fmt: skip


def harvest(env: Mapping[str, str]) -> int:
    """Save what is in the clone; no agent, no network, no director."""
    place = Place.of(env)
    brief = json.loads(place.brief.read_text())
    clone = WorkClone(place.workspace, place.audit, brief["branch"], place.home, str)
    saved = clone.save("harvest", brief["base_sha"])
    print(saved, file=sys.stderr)
    if isinstance(saved, Ok):
        (place.audit / places.HARVESTED).touch()  # without it the director keeps the clone itself
    return 0 if isinstance(saved, Ok) else 1


def work(env: Mapping[str, str], boundary: Callable[[str], None] = lambda what: None) -> int:
    """Run the worker's machine to its end; answers the process's exit code."""
    place = Place.of(env)
    brief: dict[str, Any] = json.loads(place.brief.read_text())
    token = (place.socket / "token").read_text().strip()
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in brief["policy"].items()}
    policy = Policy(**fields)
    clock = SteadyClock()
    wake = threading.Event()
    if "play" in brief:
        play = place.home / "play.json"
        play.write_text(brief["play"])
        brief["agent_env"] = {**brief.get("agent_env", {}), "HARNESS_PLAY": str(play)}
    code: list[int] = []
    store: list[FileStore] = []
    bus = BusClient(
        place.socket / "gateway.sock", token, place.attempt, place.incarnation, clock,
        replay=lambda n: _lines(store[0], n) if store else (),
    )  # fmt: skip
    machine = f"{policy.repo}/worker/{place.attempt}"
    store.append(
        FileStore.open(
            place.audit,
            clock=clock,
            code=__version__,
            epoch=place.incarnation,
            machine=machine,
            on_append=bus.record,
        )
    )
    forwarder = Forwarder(place.socket / "gateway.sock", token, place.incarnation)
    forwarder.start()
    redactor = Redactor((token,))
    world = World(
        clock, store[0], lambda: policy, place.audit, place.incarnation, clock.now(),
        runtime=ProcessRuntime(place.audit / "jobs", data=place.audit, clock=clock), bus=bus, agents=AGENTS,
        clone=WorkClone(place.workspace, place.audit, brief["branch"], place.home, lambda: forwarder.git_url),
        tools=Tools(sys.executable, str(Path(__file__).parents[1]), ()), model_url=forwarder.url,
        brief={
            **brief, "home": str(place.home), "workspace": str(place.workspace),
            "prepared": place.prepared, "image": place.image,
        },
        gaps=lambda: forwarder.gaps,
        leave=code.append,
        redact=lambda said: redactor.text(said.replace(str(place.workspace), WORKSPACE)),
    )  # fmt: skip
    loop = _loop(world, wake, bus, boundary)
    loop.load(tuple(store[0].machines()))
    if machine not in loop.items:
        loop.items[machine] = loop.ticker.open(machine, first(brief, place.image))
    stop = threading.Event()

    def asked(*_: Any) -> None:
        stop.set()
        wake.set()

    signal.signal(signal.SIGTERM, asked)
    loop.run(lambda _: _over(loop.items[machine], code, stop))
    return _end(world, loop, machine, bus, forwarder, code, stop.is_set())


def _over(item: Any, code: list[int], stop: threading.Event) -> bool:
    """Told to stop, at its end, or leaving: that not before it is written, or the next one would leave too."""
    left = bool(code) and item.open_intent is None
    return left or stop.is_set() or item.state in ("DONE", "BLOCKED")


def _lines(store: FileStore, first_seq: int) -> list[bytes]:
    from harness.core.journal import line

    return [line(r) for r in store.read(store.machine, first_seq - 1)]


def _loop(
    world: World, wake: threading.Event, bus: BusClient, boundary: Callable[[str], None]
) -> Loop:  # fmt: skip
    pools = Pools()
    items: dict[str, Any] = {}
    own = Own(world, items)
    looks = Looks(world, own, pools.start, lambda head: RHYTHM_S, wake.set)
    ticker = Ticker(world, looks, Performer(pools, wake.set), perform, world.policy, boundary)

    def beat(loop: Loop) -> None:
        for item in loop.items.values():
            _beat(bus, item, "")

    return Loop(ticker, items, wake, after=beat, report=_report)


def _report(machine: str, item: Any, text: str) -> None:
    line = text or f"{item.state}"
    print(f"{machine.rsplit('/', 1)[-1]}: {line}", file=sys.stderr, flush=True)


def _beat(bus: BusClient, item: Any, final: str) -> None:
    d: Worker = item.data
    bus.beat(
        item.state,
        {
            "final": final,
            "reason": d.detail or d.summary,
            "failure": d.failure if final != "DONE" else "",
            "counters": dict(d.counters),
        },
    )


def _end(
    world: World,
    loop: Loop,
    machine: str,
    bus: BusClient,
    forwarder: Forwarder,
    code: list[int],
    stopped: bool,
) -> int:
    item = loop.items[machine]
    assert world.clone is not None and world.runtime is not None
    running = world.runtime.ours()
    for job in running.value if isinstance(running, Ok) else ():
        if job.alive:
            world.runtime.stop(job.name, 2.0)
    if stopped and item.state not in ("DONE", "BLOCKED"):
        world.clone.save("stop", item.data.base_sha or str((world.brief or {})["base_sha"]))
    final = item.state if item.state in ("DONE", "BLOCKED") else ""
    _beat(bus, item, final)
    _last_words(world, item, final)
    bus.close(FLUSH_S)
    forwarder.close()
    if final:
        return FINAL.get(final, PERSON_CODE if item.data.failure in PERSON else FATAL_CODE)
    return code[0] if code else STOP_CODE


def _last_words(world: World, item: Any, final: str) -> None:
    """In the audit folder too: the director may be down when a worker ends."""
    d: Worker = item.data
    words = {
        "incarnation": world.epoch, "state": item.state, "final": final, "reason": (d.detail or d.summary)[:2000],
        "failure": d.failure if final != "DONE" else "", "counters": dict(d.counters),
    }  # fmt: skip
    try:
        places.write(world.data / "last.json", json.dumps(words).encode())
    except OSError as e:  # on a full disk; the director has heard them, or looks at the exit code
        print(f"harness worker: {world.data / 'last.json'}: {e.strerror}", file=sys.stderr, flush=True)


def first(brief: Mapping[str, Any], image: str) -> Worker:
    """The worker's first data, from its brief."""
    return Worker(
        issue=int(brief["issue"]), title=str(brief["title"]), base=str(brief["base"]),
        base_sha=str(brief["base_sha"]), branch=str(brief["branch"]), agent=str(brief["agent"]),
        commands=tuple(brief["commands"]), image=image, counters=dict(brief.get("counters", {})),
        feedback=str(brief.get("feedback", "")),
    )  # fmt: skip


def main(argv: list[str]) -> int:
    return harvest(os.environ) if "--harvest" in argv else work(os.environ)


__all__ = ["Limits", "Place", "first", "harvest", "main", "work"]
