"""One run of one path: a forge, directors that die and come again, and the people, each a process of its own.

The one rule: this process stays single-threaded and warm, so that forge, directors, shims and workers are all
forked from it; a process is killed by itself, with SIGKILL, at the boundary it was told to die at (a container by its
engine, in a state).
"""

from __future__ import annotations

import importlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import tomli_w
from crash_facts import facts
from crash_kills import CALM, KILLED, Covered, Kills, Strikes, covered_file, crossing, numbers, stands
from crash_paths import BOT, FILES, OLD_IMAGE, PERSON, REPO, Route, Scene, config_of
from crash_runtime import picker, run_shim
from demo_world import docker, sweep

from harness.compose import director
from harness.compose.runtimes import pick_runtime
from harness.config.reader import load
from harness.core.item import Item
from harness.forge import Issue, User, main_serve, seed

LIMIT_S = 300.0
LOOK_S = 0.3
FORGE_S = 60.0


@dataclass
class Outcome:
    """`lives` are the boundaries of each director (or worker), in order; `kills` the last ones of
    those that died there. `facts` are the world's at the end; `trouble` is why there is none."""

    route: str
    who: str
    mode: str
    runtime: str = "process"
    kills: list[str] = field(default_factory=list)
    lives: list[list[str]] = field(default_factory=list)
    facts: dict[str, int] = field(default_factory=dict)
    trouble: str = ""
    seconds: float = 0.0
    cpu_s: float = 0.0


def make_seed(folder: Path, route: Route) -> None:
    """The forge's data as it is before a run."""
    users = (User("acme", role="admin"), User("harness-bot", BOT, "admin"), User("ada", PERSON, "write"))
    issues = tuple(Issue(t, f"Please: {t}.", "ada", ("harness",)) for t in route.issues)
    seed(folder, repo=REPO, files=FILES, users=users, labels=("harness",), issues=issues)


def learn(modules: Path) -> None:
    """Import what an earlier run's processes had imported at their end."""
    for name in modules.read_text().split():
        try:
            importlib.import_module(name)
        except ImportError as e:
            print(f"{name}: {e}", file=sys.stderr)


def teach(modules: Path) -> None:
    """What this process has imported, one name a line."""
    names = [n for n in sys.modules if n.partition(".")[0] != "__main__"]
    with modules.open("a") as f:
        f.write("\n".join(names) + "\n")


def fork(do: Callable[[], int], out: Path | None = None) -> int:
    """A child that does it and never comes back; what it prints goes to `out`."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if out is not None:
            fd = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(fd, 1)
            os.dup2(fd, 2)
        code = do()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


@dataclass
class Case:
    """`who` ("director", or "worker": any of them) dies as `kills` says. With an `image` workers and gates are
    containers of a real engine, of a name of its own for that image; else processes."""

    folder: Path
    seeded: Path
    route: Route
    who: str
    kills: Kills = CALM
    mode: str = ""
    limit_s: float = LIMIT_S
    image: str = ""
    forge: int = 0
    url: str = ""
    starts: int = 0
    modules: Path | None = None

    @property
    def covered(self) -> Path:
        return covered_file(self.folder.parent, self.route)

    @property
    def runtime(self) -> str:
        return "docker" if self.image else "process"

    @property
    def scene(self) -> Scene:
        own = f"harness-crash:{self.folder.parent.name}-{self.folder.name}".lower()
        return Scene(self.url, self.folder, own if self.image else "")

    def run(self) -> Outcome:
        began = time.monotonic()
        outcome = Outcome(self.route.name, self.who, self.mode, self.runtime)
        self.folder.mkdir(parents=True)
        try:
            self._open()
            self._live()
            self._close()
            outcome.facts = dict(facts(self.folder, self.runtime))
        except Exception as e:
            outcome.trouble = f"{type(e).__name__}: {e}"
        finally:
            self._close()
            self.sweep()
        for log in sorted(self.folder.glob(f"{self.who}-*.crossed"), key=numbers):
            life = log.read_text().splitlines()
            if life[-1:] == [KILLED]:
                life.pop()
                outcome.kills.append(life[-1])
            outcome.lives += [life] if life else []
        used = os.times()
        outcome.seconds = round(time.monotonic() - began, 2)
        outcome.cpu_s = round(used.user + used.system + used.children_user + used.children_system, 2)
        return outcome

    def sweep(self) -> None:
        """What is left of a run: nothing, where it ended well but for its image."""
        sweep(self.folder, self.runtime)
        if self.image:
            docker("rmi", self.scene.image, check=False)

    # ------------------------------------------------------------ the stage

    def _open(self) -> None:
        shutil.copytree(self.seeded, self.folder / "forge")
        (self.folder / "marks").mkdir()
        (self.folder / "image").write_text(OLD_IMAGE)
        (self.folder / "token").write_text(BOT)
        out, into = os.pipe()

        def serve() -> int:
            main_serve(self.folder / "forge", port=0, announce=lambda url: _tell(into, url))
            self._teach()
            return 0

        self.forge = fork(serve, self.folder / "forge.log")
        os.close(into)
        self.url = _hear(out)
        config = config_of(
            self.route, self.folder, self.url, self.scene.image, self.who == "director" and not self.image
        )
        if self.image:
            docker("tag", self.image, self.scene.image)
        (self.folder / "harness.toml").write_text(tomli_w.dumps(config))
        self.line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.line.bind(str(self.folder / "call"))
        self.line.listen(16)
        self.route.before(self.scene)

    def _close(self) -> None:
        if self.forge:
            os.kill(self.forge, signal.SIGTERM)
            os.waitpid(self.forge, 0)
            self.forge = 0
            self.line.close()

    # ------------------------------------------------------------ the night

    def _live(self) -> None:
        """Directors one after another, until one comes to the end."""
        scene, end, looked = self.scene, time.monotonic() + self.limit_s, 0.0
        struck = Strikes(self.folder, self.kills, Covered(self.covered))
        pid = self._start()
        while True:
            if select.select([self.line], [], [], 0.1)[0]:
                self._answer()
            gone, status = os.waitpid(pid, os.WNOHANG)
            if gone and os.waitstatus_to_exitcode(status) == -signal.SIGKILL:
                pid = self._start()
            elif gone and status:
                raise AssertionError(f"a director ended with {status}:\n{self._said()}")
            elif gone:
                return
            if time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise AssertionError(f"no end within {self.limit_s:.0f} s:\n{self._said()}")
            if self.image and self.who == "worker":
                struck.look()
            if time.monotonic() - looked > LOOK_S:
                self.route.person(scene)
                looked = time.monotonic()

    def _said(self) -> str:
        return (self.folder / f"director-{self.starts}.log").read_text(errors="replace")[-4000:]

    def _start(self) -> int:
        kills = self.kills.of(self.starts) if self.who == "director" else CALM
        self.starts += 1
        return fork(lambda: self._direct(kills), self.folder / f"director-{self.starts}.log")

    def _direct(self, kills: Kills) -> int:
        """A director, until the path's releases are out and nothing is left to do."""
        self.line.close()
        box: list[director.Running] = []
        log = self.folder / f"director-{self.starts}.crossed"
        cross = crossing(log, kills, lambda machine: _places(box[0] if box else None, machine), self.covered)
        warm = picker(self.folder / "call", self.folder / "image")
        pick: director.Pick = pick_runtime if self.image else warm
        running = director.start(
            load(self.folder / "harness.toml"), boundary=cross, report=_report, pick=pick
        )
        box.append(running)
        seen, built = self.scene.marks / "seen-image", self.scene.marks / "new-image"
        after = running.loop.after

        def each(loop: object) -> None:
            after(running.loop)
            if not seen.exists() and built.exists() and running.force.policy.image == built.read_text():
                seen.touch()

        running.loop.after = each
        running.loop.run(lambda loop: self._over(running))
        running.close()
        self._teach()
        return 0

    def _over(self, running: director.Running) -> bool:
        items = running.loop.items
        out = [k for k, i in items.items() if "/release/" in k and i.state == "PUBLISHED"]
        return (
            len(out) >= self.route.published
            and items[running.machine].state == "SELF_REVIEW"
            and all(i.open_intent is None for k, i in items.items() if k not in running.loop.out)
        )

    def _teach(self) -> None:
        if self.modules is not None:
            teach(self.modules)

    # ------------------------------------------------------------ forks

    def _answer(self) -> None:
        """A director asks for a shim: it is forked from here, and outlives whoever asked."""
        with self.line.accept()[0] as asked:
            folder = asked.makefile("r").readline().strip()
            pid = fork(lambda: self._shim(folder, asked))
            os.waitpid(pid, 0)
            try:
                asked.sendall(b"1")
            except OSError as e:
                print(f"whoever asked for {folder} is gone: {e}", file=sys.stderr)

    def _shim(self, folder: str, asked: socket.socket) -> int:
        asked.close()
        self.line.close()
        return run_shim(folder, self._boundary)

    def _boundary(self, attempt: str, env: Mapping[str, str]) -> Callable[[str], None]:
        """What a worker crosses. Each incarnation is a life."""
        if self.who != "worker":
            return lambda what: None
        life = int(env["HARNESS_INCARNATION"])
        journal = Path(env["HARNESS_AUDIT"]) / "journal.jsonl"
        log = self.folder / f"worker-{attempt}-{life}.crossed"
        kills = self.kills.of(life - 1)
        return crossing(log, kills, lambda machine: (stands(attempt, journal), machine), self.covered)


def _places(running: director.Running | None, machine: str) -> tuple[str, str | None]:
    """Where one machine is, and where all machines but the directors are."""
    kind, _, rest = "/".join(machine.split("/", 2)[2:]).partition("/")
    if running is None:
        return "a director that starts", None
    items = running.loop.items
    world = [_place(k, i) for k, i in sorted(items.items()) if "/director/" not in k]
    name = "director" if kind == "director" else f"{kind} {rest}"
    item = items.get(machine)
    return f"{name} {'that is opened' if item is None else _place('', item)}", ", ".join(world)


def _place(name: str, item: Item[Any]) -> str:
    begun = item.open_intent.effect.get("$") if item.open_intent is not None else ""
    return f"{name} {item.state} {begun}".strip()


def _report(machine: str, item: object, text: str) -> None:
    state = getattr(item, "state", "")
    print(
        f"{time.monotonic():.2f} {machine.split('/', 2)[-1]} {state} {text[:3000]}",
        file=sys.stderr,
        flush=True,
    )


def _tell(fd: int, text: str) -> None:
    os.write(fd, f"{text}\n".encode())
    os.close(fd)


def _hear(fd: int) -> str:
    if not select.select([fd], [], [], FORGE_S)[0]:
        raise AssertionError(f"the forge said nothing for {FORGE_S:.0f} s")
    said = os.read(fd, 4096).decode().strip()
    os.close(fd)
    if not said:
        raise AssertionError("the forge did not start")
    return said


def run_case(case: Case, answer: Path) -> int:
    """In a process of its own; the outcome goes to a file."""
    outcome = case.run()
    answer.write_text(json.dumps(asdict(outcome)))
    return 0
