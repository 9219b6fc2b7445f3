"""Nights on a private engine that restarts, hangs or goes away while a worker runs.

The one rule: a night is looked at as people look: by the forge, the engine, the journals and what the commands
say. The engine's trouble is made from outside, with signals, and nothing of ours is told of it. When the first
agent ends is not left to the clock: it works until it is let go.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo_world import Finished, Late, Stage, Started, journals, left_over, wait_for
from director_world import World
from private_engine import PrivateEngine

from harness.core.journal import Record

HANG_S = 20.0
GONE_S = 12.0
WORK = """
if [ $HARNESS_ISSUE = 1 ]; then
  touch "$HOME/works"
  while [ ! -e "$HOME/go" ]; do sleep 0.2; done
fi
echo $HARNESS_ISSUE >work$HARNESS_ISSUE.txt
"""
# Whether the first agent may end while the engine is in trouble, or only afterwards.
ENDS_WITHIN = {"restart": False, "upgrade": False, "hang": True, "leave": True}
TITLES = ("Take a while", "Be quick")


@dataclass
class Night:
    """What is left of a night. `status` and `doctor` are what those commands said in the middle of the trouble,
    `after` the status at its end. `before` is the container of the first worker, `left` what is left over."""

    trouble: str
    folder: Path
    ended: Finished
    repo: dict[str, Any]
    attempts: dict[str, tuple[Record, ...]]
    status: dict[str, Any]
    doctor: Finished
    after: dict[str, Any]
    before: str
    left: list[str]
    decoys: list[str]
    seconds: float


def restart(engine: PrivateEngine, look: Callable[[], None]) -> None:
    engine.kill()
    try:
        look()
    finally:
        engine.start()


def upgrade(engine: PrivateEngine, look: Callable[[], None]) -> None:
    engine.stop()
    try:
        look()
    finally:
        engine.start()


def hang(engine: PrivateEngine, look: Callable[[], None]) -> None:
    until = time.monotonic() + HANG_S
    engine.freeze()
    try:
        look()
        time.sleep(max(until - time.monotonic(), 0.0))
    finally:
        engine.thaw()


def leave(engine: PrivateEngine, look: Callable[[], None]) -> None:
    until = time.monotonic() + GONE_S
    engine.kill()
    try:
        look()
        time.sleep(max(until - time.monotonic(), 0.0))
    finally:
        engine.start()


TROUBLES: dict[str, Callable[[PrivateEngine, Callable[[], None]], None]] = {
    "restart": restart, "upgrade": upgrade, "hang": hang, "leave": leave,
}  # fmt: skip


def night(stage: Stage, engine: PrivateEngine, image: str, trouble: str) -> Night:
    """Two issues; the trouble comes while the first one's agent works. A stranger's container is beside."""
    began = time.monotonic()
    config = {
        "agent": {"kind": "command", "command": ["sh", "-c", WORK.replace("$", "$$")]},
        "containers": {"docker_host": engine.host, "memory": "256MiB"},
        "timeouts": {"stop_grace_seconds": 1},
    }
    decoy = engine.run("create", "--name", f"decoy-{trouble}", image, "true").strip()
    with World(stage, stage.folder / trouble, "docker", TITLES, config=config, image=image) as world:
        started = world.start("director", "--until-idle", "--json")
        home = world.folder / "data" / "attempts" / "1.1" / "home"
        seen: dict[str, Any] = {}

        def look() -> None:
            _ask(world, seen)
            if ENDS_WITHIN[trouble]:
                (home / "go").touch()

        try:
            before = wait_for(lambda: _works(engine, started, home), 300.0, "the first agent works")
            TROUBLES[trouble](engine, look)
            if not ENDS_WITHIN[trouble]:
                (home / "go").touch()
            ended = started.end(400.0)
        except Late as late:
            raise Late(f"{late}\n{started.told()[-4000:]}") from None
        finally:
            if started.process.poll() is None:
                started.kill()
        found = engine.run("ps", "-aq", "--no-trunc").split()
        engine.run("rm", decoy)
        left = left_over(world.folder, "process")  # containers are looked for above, in their own engine
        after = world.run("status", "--all", "--json").document
        return Night(
            trouble, world.folder, ended, world.repo(), journals(world.folder, "/attempt/"), seen["status"],
            seen["doctor"], after, before, [*left, *(c for c in found if c != decoy)],
            [c for c in found if c == decoy], time.monotonic() - began,
        )  # fmt: skip


def _works(engine: PrivateEngine, started: Started, home: Path) -> str:
    """Id of the first issue's worker once its agent has begun."""
    assert started.process.poll() is None, started.told()
    if not (home / "works").exists():
        return ""
    for line in engine.run("ps", "--no-trunc", "--format", "{{.ID}} {{.Names}}").splitlines():
        cid, _, name = line.partition(" ")
        if name.endswith("-1-1-i1"):
            return cid
    return ""


def _ask(world: World, seen: dict[str, Any]) -> None:
    """Until the status says what is wrong; then the doctor."""

    def look() -> bool:
        seen["status"] = world.run("status", "--json", within_s=120.0).document
        return any("container engine" in line for line in seen["status"]["trouble"])

    wait_for(look, 60.0, "the status says what is wrong")
    seen["doctor"] = world.run("doctor", within_s=120.0)


# ---------------------------------------------------------------- what must hold


def check(night: Night) -> None:
    """What must hold after every such night: nobody charged, nothing twice, nothing lost, nothing left."""
    assert night.ended.code == 0 and night.ended.document["ended"].startswith("idle"), night.ended.out[:300]
    assert {t["issue"]: (t["state"], t["attempts"]) for t in night.after["tickets"]} == {
        1: ("RELEASED", 1), 2: ("RELEASED", 1),
    }  # fmt: skip
    heads = [p["head_ref"] for p in night.repo["pulls"]]
    assert len(heads) == len(set(heads)) == 3, "one of each ticket, and the release's"
    said = [(c["issue"], c["body"]) for c in night.repo["comments"]]
    assert len(said) == len(set(said))
    assert [r for r in night.repo["refs"] if r.startswith("refs/tags/")] == ["refs/tags/v0.1.0"]
    assert (night.left, len(night.decoys)) == ([], 1)
    assert night.after["trouble"] == []
    problem = next(line for line in night.doctor.out.splitlines() if line.startswith("problem  engine"))
    assert night.doctor.code != 0 and "cannot ask the engine" in problem
    _charged_to_nobody(night)


def _charged_to_nobody(night: Night) -> None:
    """A worker that ended with its engine is started again, once; one whose engine only hung goes on. One that
    came to its end while the engine was away may have left an exit, or went away with it."""
    again = {"restart": (1,), "upgrade": (1,), "leave": (0, 1), "hang": (0,)}[night.trouble]
    first = next(records for machine, records in night.attempts.items() if machine.endswith("/1.1"))
    assert [m.rsplit("/", 1)[1] for m in night.attempts] == ["1.1", "2.1"]
    moved = [r.body for r in first if r.kind == "transition"]
    assert [b["event"] for b in moved].count("infra_lost") in again, [
        (b["event"], b.get("reason")) for b in moved
    ]
    for body in moved:
        assert body.get("note", {}).get("infra", 0) == 0
