"""One run of one path: a forge, directors that die and come again, and the people, each a process of its own.

The one rule: this process stays single-threaded and warm, so that forge, directors, shims and workers are all
forked from it; a process is killed only by itself, with SIGKILL, at the boundary it was told to die at.
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

import tomli_w
from crash_facts import facts
from crash_paths import BOT, FILES, OLD_IMAGE, PERSON, REPO, Route, Scene, config_of
from crash_runtime import picker, run_shim
from demo_world import sweep

from harness.compose import director
from harness.config.reader import load
from harness.forge import Issue, User, main_serve, seed

LIMIT_S = 300.0
LIVES_LIMIT = 60
LOOK_S = 0.3
FORGE_S = 60.0


@dataclass
class Outcome:
    """`lives` are the boundaries of each director (or of the first worker), in order; `kills` the last ones of
    those that died there. `facts` are the world's at the end; `trouble` is why there is none."""

    route: str
    who: str
    at: tuple[int, ...]
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


def crossing(log: Path, at: int, place: Callable[[], str] = str) -> Callable[[str], None]:
    """Writes down each boundary with its place and dies at the one numbered `at` (0: never)."""
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    count = [0]

    def cross(what: str) -> None:
        count[0] += 1
        os.write(fd, f"{what} | {place()}\n".encode())
        if count[0] == at:
            os.kill(os.getpid(), signal.SIGKILL)

    return cross


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
    """`who` ("director" or "worker") dies at boundary `at[0]` of its first life, `at[1]` of its second …; a life
    that none is named for (or 0) is not disturbed, and with `again` the last one named stands for all."""

    folder: Path
    seeded: Path
    route: Route
    who: str
    at: tuple[int, ...]
    again: bool = False
    forge: int = 0
    url: str = ""
    starts: int = 0
    modules: Path | None = None

    def run(self) -> Outcome:
        began = time.monotonic()
        outcome = Outcome(self.route.name, self.who, self.at)
        self.folder.mkdir(parents=True)
        try:
            self._open()
            self._live()
            self._close()
            outcome.facts = dict(facts(self.folder))
        except Exception as e:
            outcome.trouble = f"{type(e).__name__}: {e}"
        finally:
            self._close()
            sweep(self.folder, "process")
        logs = [self.folder / f"{self.who}-{n}.crossed" for n in range(1, LIVES_LIMIT + 1)]
        outcome.lives = [log.read_text().splitlines() for log in logs if log.is_file()]
        outcome.kills = [x[-1] for n, x in enumerate(outcome.lives) if x and len(x) == self._dies_at(n)]
        used = os.times()
        outcome.seconds = round(time.monotonic() - began, 2)
        outcome.cpu_s = round(used.user + used.system + used.children_user + used.children_system, 2)
        return outcome

    def _dies_at(self, life: int) -> int:
        """Lives are counted from 0."""
        if life >= LIVES_LIMIT - 1 or not self.at:
            return 0
        return self.at[life] if life < len(self.at) else self.at[-1] if self.again else 0

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
        (self.folder / "harness.toml").write_text(
            tomli_w.dumps(config_of(self.route, self.folder, self.url))
        )
        self.line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.line.bind(str(self.folder / "call"))
        self.line.listen(16)
        self.route.before(Scene(self.url, self.folder))

    def _close(self) -> None:
        if self.forge:
            os.kill(self.forge, signal.SIGTERM)
            os.waitpid(self.forge, 0)
            self.forge = 0
            self.line.close()

    # ------------------------------------------------------------ the night

    def _live(self) -> None:
        """Directors one after another, until one comes to the end."""
        scene, end, looked = Scene(self.url, self.folder), time.monotonic() + LIMIT_S, 0.0
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
                raise AssertionError(f"no end within {LIMIT_S:.0f} s:\n{self._said()}")
            if time.monotonic() - looked > LOOK_S:
                self.route.person(scene)
                looked = time.monotonic()

    def _said(self) -> str:
        return (self.folder / f"director-{self.starts}.log").read_text(errors="replace")[-4000:]

    def _start(self) -> int:
        at = self._dies_at(self.starts) if self.who == "director" else 0
        self.starts += 1
        return fork(lambda: self._direct(at), self.folder / f"director-{self.starts}.log")

    def _direct(self, at: int) -> int:
        """A director, until the path's releases are out and nothing is left to do."""
        self.line.close()
        box: list[director.Running] = []
        log = self.folder / f"director-{self.starts}.crossed"
        cross = crossing(log, at, lambda: _place(box[0]) if box else "")
        pick = picker(self.folder / "call", self.folder / "image")
        running = director.start(
            load(self.folder / "harness.toml"), boundary=cross, report=_report, pick=pick
        )
        box.append(running)
        after = running.loop.after

        def each(loop: object) -> None:
            after(running.loop)
            if running.force.policy.image != OLD_IMAGE:
                (self.folder / "marks" / "seen-image").touch()

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
        """What a worker crosses: the first one of the path dies there, the first time that it lives."""
        if self.who != "worker" or attempt != "1.1":
            return lambda what: None
        life = int(env["HARNESS_INCARNATION"])
        return crossing(self.folder / f"worker-{life}.crossed", self._dies_at(life - 1))


def _place(running: director.Running) -> str:
    """Where all machines but the directors are, and what they have begun: the same in every run of a path."""
    found = []
    for name, item in sorted(running.loop.items.items()):
        kind, _, rest = name.split("/", 2)[2].partition("/")
        if kind != "director":
            begun = item.open_intent.effect.get("$") if item.open_intent is not None else ""
            found.append(f"{kind} {rest} {item.state} {begun}".rstrip())
    return ", ".join(found)


def _report(machine: str, item: object, text: str) -> None:
    state = getattr(item, "state", "")
    print(f"{time.monotonic():.2f} {machine.split('/', 2)[-1]} {state} {text[:3000]}", file=sys.stderr, flush=True)


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
