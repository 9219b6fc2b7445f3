"""Effects that start and end jobs. A name is a key: what bears it already is adopted, never started twice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from harness import effects as fx
from harness.core.result import Err, Ok, Result
from harness.domain import Job, Limits, Mount, Status
from harness.failures import Failure
from harness.perform import places
from harness.perform.outcome import Outcome, Sent, from_result
from harness.policy import DELIVERY_S
from harness.ports import GatewayError, Runtime, Tools, World

WORKSPACE, PREPARED, IN, OUT = "/workspace", "/prepared", "/in", "/out"
SOCKET_DIR, HOME, AUDIT = "/run/harness", "/home/agent", "/audit"
LOG_TAIL_BYTES = 20000
LOG_TRIES = 5
KILLED = frozenset({137, 143})


def _runtime(world: World) -> Runtime:
    assert world.runtime is not None
    return world.runtime


def _tools(world: World) -> Tools:
    assert world.tools is not None
    return world.tools


def commands_argv(tools: Tools, result: str, commands: str) -> tuple[str, ...]:
    return (tools.python, "-I", f"{tools.package}/adapters/commands.py", result, "--", commands)


def limits(world: World) -> Limits:
    return world.limits


def _prepared(name: str) -> tuple[Mount, ...]:
    return (Mount(f"prepared/{name}/files", PREPARED, "ro"),) if name else ()


def _start(job: Job, world: World) -> Outcome:
    started = _runtime(world).start(job)
    return from_result(
        started,
        world.clock.now(),
        lambda s: {"engine": s.engine, "image": s.image or job.image, "phase": s.phase},
    )


def start_gate(e: fx.StartGate, world: World) -> Outcome:
    if world.store.get(f"gate/{e.name}") is not None:
        return Outcome.done({"fact": True})
    there = _runtime(world).status(e.name)
    if not isinstance(there, Ok):
        return from_result(there, world.clock.now())
    if there.value is not None:
        return Outcome.done({"adopted": True})
    places.need_room(world)
    folder = places.gate_dir(world.data, e.name)
    assert world.repo is not None
    made = world.repo.checkout(folder / "tree", e.sha)
    if not isinstance(made, Ok):
        return from_result(made, world.clock.now())
    places.own(folder / "tree", world)
    return _start(
        _commands_job(e.name, "gate", f"gates/{e.name}", e.commands, e.image, e.prepare, world), world
    )


def _commands_job(
    name: str, role: str, root: str, commands: tuple[str, ...], image: str, prepare: str, world: World
) -> Job:
    folder = world.data / root
    places.write(folder / "in" / "commands.json", json.dumps(list(commands)).encode())
    places.make(folder / "out", world)
    prepared = Mount(f"prepared/{name}/files", PREPARED, "rw") if role == "prepare" else None
    return Job(
        name=name,
        argv=commands_argv(_tools(world), f"{OUT}/result.json", f"{IN}/commands.json"),
        role=role,
        image=image,
        env={"HOME": "/tmp", "HARNESS_PREPARED": PREPARED, "PYTHONDONTWRITEBYTECODE": "1"},
        mounts=(
            Mount(f"{root}/tree", WORKSPACE, "rw"),
            Mount(f"{root}/in", IN, "ro"),
            Mount(f"{root}/out", OUT, "rw"),
            *((prepared,) if prepared else _prepared(prepare)),
        ),
        network="bridge" if role == "prepare" else "none",
        limits=limits(world),
    )


def verdict_of(status: Status, world: World) -> str:
    """green, red or lost. What was killed from outside (by the engine, or for memory) has proved nothing, unless
    its own word says that it came to its end: a command that is killed in there is the commands' own failure."""
    if status.phase != "EXITED" or status.exit is None:
        return "lost"
    if status.exit == 0:
        return "green"
    if status.limit == "output":  # its own doing, and the same the next time
        return "red"
    killed = status.oom or status.exit in KILLED
    told = (
        places.read_json(places.gate_dir(world.data, status.name) / "out" / "result.json") if killed else None
    )
    return "lost" if killed and told is None else "red"


def unread(log: Result[bytes], sent: Sent, world: World) -> Outcome | None:
    """What to wait with for a log whose container is about to be removed; None where it is there, or surely not,
    or was asked for often enough: an engine that never gives it must not hold up what follows."""
    if isinstance(log, Ok) or (isinstance(log, Err) and log.failure == Failure.GONE):
        return None
    later = from_result(log, world.clock.now())
    return later if later.status != "failed" and sent.tries < LOG_TRIES else None


def end_gate(e: fx.EndGate, sent: Sent, world: World) -> Outcome:
    """The verdict outlives its container: nothing is validated twice.
    A gate that left no exit status is no fact."""
    runtime, now = _runtime(world), world.clock.now()
    there = runtime.status(e.name)
    if not isinstance(there, Ok):
        return from_result(there, now)
    status = there.value
    said = verdict_of(status, world) if status is not None else "lost"
    if status is not None and said != "lost":
        log = runtime.log(e.name, LOG_TAIL_BYTES)
        later = unread(log, sent, world) if said == "red" else None
        if later is not None:
            return later
        text = log.value.decode("utf-8", "replace") if isinstance(log, Ok) else ""
        verdict = {
            "verdict": said,
            "exit": status.exit,
            "log_tail": world.redact(text),
        }
        world.store.put(f"gate/{e.name}", verdict)
    removed = runtime.remove(e.name)
    if not isinstance(removed, Ok):
        return from_result(removed, now)
    assert world.repo is not None
    world.repo.discard(places.gate_dir(world.data, e.name) / "tree")
    places.remove(places.gate_dir(world.data, e.name))
    return Outcome.done({})


def start_prepare(e: fx.StartPrepare, world: World) -> Outcome:
    if world.store.get(f"prepared/{e.name}") is not None:
        return Outcome.done({"fact": True})
    there = _runtime(world).status(e.name)
    if not isinstance(there, Ok):
        return from_result(there, world.clock.now())
    if there.value is not None and (there.value.alive or there.value.exit == 0):
        return Outcome.done({"adopted": True})
    if there.value is not None:  # one that came to nothing makes room for the next try
        removed = _runtime(world).remove(e.name)
        if not isinstance(removed, Ok):
            return from_result(removed, world.clock.now())
    places.need_room(world)
    folder = places.prepare_dir(world.data, e.name)
    assert world.repo is not None
    made = world.repo.checkout(folder / "tree", e.sha)
    if not isinstance(made, Ok):
        return from_result(made, world.clock.now())
    places.own(folder / "tree", world)
    places.make(folder / "files", world)
    return _start(
        _commands_job(e.name, "prepare", f"prepared/{e.name}", e.commands, e.image, "", world), world
    )


def _end_prepare(name: str, world: World) -> Outcome | None:
    """Dependencies that came out well are kept as a fact; their container goes."""
    if not name or world.store.get(f"prepared/{name}") is not None:
        return None
    there = _runtime(world).status(name)
    if not isinstance(there, Ok):
        return from_result(there, world.clock.now())
    if there.value is not None and there.value.exit == 0:
        world.store.put(f"prepared/{name}", {"at": world.clock.now()})
        removed = _runtime(world).remove(name)
        return None if isinstance(removed, Ok) else from_result(removed, world.clock.now())
    return None


def start_worker(e: fx.StartWorker, world: World) -> Outcome:
    left = _end_prepare(e.prepare, world)
    if left is not None:
        return left
    there = _runtime(world).status(e.name)
    if not (isinstance(there, Ok) and there.value is not None):
        places.need_room(world)
    assert world.gateway is not None and world.marks is not None
    try:
        socket = world.gateway.open(e.attempt, world.marks.token(e.attempt, e.incarnation), e.incarnation)
    except GatewayError as refused:
        return Outcome.failed(Failure.INFRA_GATEWAY, str(refused))
    places.write(Path(socket) / "token", world.marks.token(e.attempt, e.incarnation).encode())
    places.own(Path(socket), world)
    env = {
        "HARNESS_ATTEMPT": e.attempt,
        "HARNESS_INCARNATION": str(e.incarnation),
        "HARNESS_SOCKET_DIR": SOCKET_DIR,
        "HARNESS_WORKSPACE": WORKSPACE,
        "HARNESS_AUDIT": AUDIT,
        "HARNESS_BRIEF": f"{IN}/brief.json",
        "HARNESS_IMAGE": e.image,
        "HARNESS_PREPARED": PREPARED,
        "HOME": HOME,
    }
    return _start(
        _attempt_job(e.name, "worker", e.attempt, e.image, env, ("worker",), str(socket), e.prepare, world),
        world,
    )


def _attempt_job(
    name: str, role: str, attempt: str, image: str, env: dict[str, str], args: tuple[str, ...], socket: str,
    prepare: str, world: World,
) -> Job:  # fmt: skip
    root = f"attempts/{attempt}"
    objects = str(world.data / "git" / "mirror.git" / "objects")
    sockets = (Mount(socket, SOCKET_DIR, "rw"),) if socket else ()
    # The director ends a worker that is late; one that waits for the forge is not.
    more_s = DELIVERY_S if role == "worker" else 0.0
    bounds = replace(limits(world), wall_s=limits(world).wall_s + more_s)
    return Job(
        name=name,
        argv=(*_tools(world).harness, *args),
        role=role,
        image=image,
        env=env,
        mounts=(
            Mount(f"{root}/clone", WORKSPACE, "rw"),
            Mount(f"{root}/home", HOME, "rw"),
            Mount(f"{root}/audit", AUDIT, "rw"),
            Mount(f"{root}/in", IN, "ro"),
            Mount("git/mirror.git/objects", objects, "ro"),
            *sockets,
            *_prepared(prepare),
        ),
        limits=bounds,
        labels={"harness.attempt": attempt},
    )


def start_harvest(e: fx.StartHarvest, world: World) -> Outcome:
    env = {
        "HARNESS_ATTEMPT": e.attempt,
        "HARNESS_WORKSPACE": WORKSPACE,
        "HARNESS_AUDIT": AUDIT,
        "HARNESS_BRIEF": f"{IN}/brief.json",
        "HOME": "/tmp",
    }
    return _start(
        _attempt_job(e.name, "harvest", e.attempt, e.image, env, ("worker", "--harvest"), "", "", world),
        world,
    )


def stop(name: str, grace_s: float, world: World) -> Outcome:
    there = _runtime(world).status(name)
    if not isinstance(there, Ok):
        return from_result(there, world.clock.now())
    if there.value is None or not there.value.alive:
        return Outcome.done({"already": True})
    stopped = _runtime(world).stop(name, grace_s)
    if not isinstance(stopped, Ok):
        return from_result(stopped, world.clock.now())
    again = _runtime(world).status(name)
    if not isinstance(again, Ok):
        return from_result(again, world.clock.now())
    if again.value is not None and again.value.alive:
        return Outcome("later", None, Failure.INFRA_ENGINE, f"{name} is stopping", world.clock.now() + 0.2)
    return Outcome.done({})


def remove(e: fx.RemoveJob, world: World) -> Outcome:
    return from_result(_runtime(world).remove(e.name), world.clock.now(), lambda _: {})
