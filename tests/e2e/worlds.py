"""Directors on worlds of their own: agents that misbehave, stops and starts, a coding agent, images, memory.

The one rule: as in `scenes`: each is played once a session and tells what it saw; the tests say what must be.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo_world import (
    Finished,
    Stage,
    bare_of,
    bundles,
    containers,
    docker,
    git,
    inspect,
    journals,
    relabel,
    terminate,
    wait_for,
)
from director_world import World
from scenes import Seen, watch
from scripted_model import Request, ScriptedModel, Step

from harness.core.journal import Record, read

# ---------------------------------------------------------------- agents that do what they should not


@dataclass
class Refused:
    """What a director that ran until it was idle made of each issue."""

    folder: Path
    finished: Finished
    repo: dict[str, Any]
    attempts: dict[str, list[Record]]
    workers: dict[str, list[Record]]
    marks: dict[str, str]

    def issue(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = next(i for i in self.repo["issues"] if i["number"] == number)
        return found

    def comments(self, number: int) -> str:
        return "\n".join(c["body"] for c in self.repo["comments"] if c["issue"] == number)

    def ticket(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = next(t for t in self.finished.document["tickets"] if t["issue"] == number)
        return found


POLICY, NOTHING, STALLS, GOOD, ENDLESS = 1, 2, 3, 4, 5
MISCHIEF = f"""
case $HARNESS_ISSUE.$HARNESS_ROUND in
{POLICY}.*) mkdir -p .github/workflows && echo 'on: push' >.github/workflows/x.yml && echo edited ;;
{NOTHING}.*) echo nothing to do here ;;
{STALLS}.1) echo $$ >MARKS/stalled; exec sleep 600 ;;
{STALLS}.*) ! kill -0 $(cat MARKS/stalled) 2>/dev/null && echo alone >MARKS/second || echo two >MARKS/second
  echo mended >mended.txt ;;
{ENDLESS}.*) while :; do echo still at it; sleep 0.3; done ;;
*) echo good >good.txt ;;
esac
"""


def refusals(stage: Stage) -> Refused:
    marks = stage.folder / "marks"
    marks.mkdir(parents=True)
    titles = ["Change the workflow", "Change nothing", "Hang once", "Behave", "Never end"]
    config = {
        "director": {"max_workers": 6, "max_retries": 2, "max_attempts": 1},
        "agent": {
            "kind": "command",
            "command": ["sh", "-c", MISCHIEF.replace("MARKS", str(marks)).replace("$", "$$")],
        },
        "timeouts": {"idle_seconds": 6, "worker_watchdog_seconds": 30, "stop_grace_seconds": 1},
    }
    # A program of the project that bears our own name must never be taken for ours.
    files = {"harness/__init__.py": "", "harness/__main__.py": "raise SystemExit('the project ran')\n"}
    with World(stage, stage.folder / "world", "process", titles, config=config, files=files) as world:
        ended = world.run("director", "--until-idle", "--json")
        return Refused(
            world.folder, ended, world.repo(), _journals(world.folder, "/attempt/"), _testimony(world.folder),
            {p.name: p.read_text().strip() for p in marks.iterdir()},
        )  # fmt: skip


def _journals(folder: Path, kind: str) -> dict[str, list[Record]]:
    return {m.rsplit("/", 1)[1]: list(r) for m, r in journals(folder, kind).items()}


def _testimony(folder: Path) -> dict[str, list[Record]]:
    """The workers' own journals, by attempt, from their bundles."""
    return {
        b.name.split("-", 2)[2]: list(read(b.joinpath("journal.jsonl").read_bytes())[0])
        for b in bundles(folder)
    }


# ---------------------------------------------------------------- a director that is stopped and started


@dataclass
class Stopped:
    """`once`, `second` and `last` are directors that ended by themselves; `code` and `seconds` are those of
    the one that got SIGTERM. `before` and `after` are the lives of the jobs around its end."""

    folder: Path
    once: Finished
    after_once: list[str]
    second: list[Finished]
    code: int
    seconds: float
    told: str
    before: dict[str, str]
    after: dict[str, str]
    adopted: dict[str, str]
    last: Finished


def stop_and_go(stage: Stage) -> Stopped:
    plays = {"1": [{"sleep_s": 20, "say": "Slow.", "write": {"slow.txt": "slow\n"}}]}
    with World(stage, stage.folder / "world", "process", ["Take your time"], plays) as world:
        once = world.run("director", "--once", "--json")
        after_once = sorted(world.live())
        started = world.start("director")
        name, life = world.worker()
        second = [world.run("director") for _ in range(3)]
        before = world.live()
        seconds = terminate(started, 60)
        after = world.live()
        going = world.start("director", "--until-idle", "--json")
        wait_for(lambda: "BOOT" in going.told(), 60, "the next director boots")
        adopted = world.live()
        return Stopped(
            world.folder, once, after_once, second, started.process.returncode, seconds, started.told(),
            {name: life} | before, after, adopted, going.end(),
        )  # fmt: skip


# ---------------------------------------------------------------- a default branch that is red


@dataclass
class Red:
    folder: Path
    finished: Finished
    repo: dict[str, Any]


def red_base(stage: Stage) -> Red:
    files = {
        "tests/test_red.py": "import unittest\n\n\nclass RedTest(unittest.TestCase):\n"
        "    def test_red(self):\n        self.fail('red as it came')\n"
    }
    with World(stage, stage.folder / "world", "process", ["Whatever"], files=files) as world:
        return Red(world.folder, world.run("director", "--until-idle", "--json"), world.repo())


# ---------------------------------------------------------------- a real coding agent on a scripted model

# What the agent's own shell can find of a key: in its environment, in every process that it may read, in
# every file that it may read. The pattern is written so that it does not match itself.
PROBE = (
    "echo found=$( (env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null) | tr '\\0' '\\n' "
    "| grep -cE 'sk-e2[e]-[0-9a-f]{32}'); "
    "echo files=$(grep -rlE 'sk-e2[e]-[0-9a-f]{32}' /workspace /home /audit /in /run /tmp /etc 2>/dev/null | wc -l); "
    "echo links=$(tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | tr '\\n' ,); "
    "echo who=$(id -u) root=$(touch /here 2>&1 | tail -1)"
)
CODING = (
    Step("I look around.", shell=PROBE),
    Step("I add it.", shell="printf 'made by an agent\\n' >agent.txt; git status --short"),
    Step("Added agent.txt."),
)


@dataclass
class Coded:
    folder: Path
    finished: Finished
    key: str
    requests: list[Request]
    tree: list[str]
    containers: list[Seen]


def codex_in_docker(stage: Stage) -> Coded:
    return _coded(stage, "docker", ())


def codex_as_process(stage: Stage) -> Coded:
    return _coded(stage, "process", (os.environ["HARNESS_CODEX"],))


def _coded(stage: Stage, runtime: str, command: tuple[str, ...]) -> Coded:
    key = f"sk-e2e-{uuid.uuid4().hex}"
    with ScriptedModel({"default": CODING}) as model:
        config = {
            "agent": {"kind": "codex", "model": "gpt-5.5", "command": list(command)},
            "budget": {"model": {"upstream": model.url, "key_env": "E2E_MODEL_KEY"}},
        }
        with World(
            stage, stage.folder / "world", runtime, ["Add agent.txt"], config=config,
            image=stage.images.get("codex", ""), env={"E2E_MODEL_KEY": key},
        ) as world:  # fmt: skip
            started = world.start("director", "--until-idle", "--json")
            seen = watch(world.folder, started) if runtime == "docker" else []
            ended = started.end()
            tree = git(bare_of(world.folder), "ls-tree", "-r", "--name-only", "main").split()
            return Coded(world.folder, ended, key, list(model.requests), tree, seen)


# ---------------------------------------------------------------- a newer image while a worker is at work


@dataclass
class Upgraded:
    """`old` and `new` are image ids. `first` is the container of the first incarnation, while it worked and
    after it had ended; `second` that of the next one while it worked."""

    folder: Path
    finished: Finished
    old: str
    new: str
    cut: Finished
    first: list[dict[str, Any]]
    second: dict[str, Any]
    repo: dict[str, Any]
    tree: list[str]
    note: str


# The second issue's first round waits until it is told to go on, and leaves a red test.
PATIENT = """
case $HARNESS_ISSUE.$HARNESS_ROUND in
1.*) echo one >one.txt ;;
2.1) echo kept >kept.txt; echo from the first incarnation >"$HOME/note"
  while [ ! -e "$HOME/go" ]; do sleep 0.2; done
  printf 'import unittest\n\n\nclass TwoTest(unittest.TestCase):\n    def test_two(self):\n' >tests/test_two.py
  echo '        open("two.txt").close()' >>tests/test_two.py ;;
2.*) cp "$HOME/note" two.txt ;;
esac
"""


def upgrade(stage: Stage) -> Upgraded:
    image = f"{stage.images['dev']}-upgrade"
    old = _tag(stage.images["dev"], image)
    config = {"agent": {"kind": "command", "command": ["sh", "-c", PATIENT.replace("$", "$$")]}}
    titles = ["Be quick", "Take long"]
    try:
        with World(stage, stage.folder / "world", "docker", titles, config=config, image=image) as world:
            started = world.start("director", "--until-idle", "--json")
            home = world.folder / "data" / "attempts" / "2.1" / "home"
            wait_for(lambda: (home / "note").exists(), 120, "the slow agent works")
            first = [_container(world.folder, "-2-1-i1")]
            wait_for(lambda: world.states("/ticket/").get("1") == "LANDED", 120, "issue 1 has landed")
            new = relabel(image)
            cut = world.run("release", "cut")
            wait_for(lambda: world.repo()["releases"], 120, "the first release is published")
            director = "\n".join(world.states("/director/").values())
            wait_for(lambda: "BROADCAST" in started.told(), 60, f"it is broadcast ({director})")
            (home / "go").touch()
            second = wait_for(lambda: _container(world.folder, "-2-1-i2"), 120, "the next incarnation runs")
            first.append(_container(world.folder, "-2-1-i1"))
            note = (home / "note").read_text().strip()
            ended = started.end()
            tree = git(bare_of(world.folder), "ls-tree", "-r", "--name-only", "main").split()
            return Upgraded(
                world.folder, ended, old, new, cut, first, second, world.repo(), tree, note
            )  # fmt: skip
    finally:
        docker("rmi", image, check=False)


def _tag(image: str, name: str) -> str:
    docker("tag", image, name)
    return docker("image", "inspect", "-f", "{{.Id}}", name)


def _container(folder: Path, end: str) -> dict[str, Any]:
    found = [c for c in inspect(*containers(folder)) if c["Name"].endswith(end)]
    return found[0] if found else {}


# ---------------------------------------------------------------- too little memory


@dataclass
class Starved:
    """`worker`: the worker itself does not fit; `agent`: it does, and its agent does not."""

    worker: Finished
    agent: Finished
    comments: dict[str, str]
    reasons: dict[str, list[Record]]
    patches: dict[str, list[str]]


HOG = "echo half >half.txt; python3 -c 'x = b\"x\" * (1 << 30)'"


def starved(stage: Stage) -> Starved:
    ends: dict[str, Finished] = {}
    comments: dict[str, str] = {}
    records: dict[str, list[Record]] = {}
    patches: dict[str, list[str]] = {}
    for name, memory, command in (("worker", "20MiB", "true"), ("agent", "320MiB", HOG)):
        config = {
            "director": {"max_infra_retries": 2, "max_attempts": 2},
            "containers": {"memory": memory},
            "agent": {"kind": "command", "command": ["sh", "-c", command]},
            "validation": {"commands": ["true"]},
        }
        image = stage.images["dev"]
        with World(stage, stage.folder / name, "docker", ["Eat"], config=config, image=image) as world:
            ends[name] = world.run("director", "--until-idle", "--json")
            comments[name] = "\n".join(world.comments(1))
            records[name] = [r for j in journals(world.folder, "/attempt/").values() for r in j]
            kept = [b / "patches" / "harvest.patch" for b in bundles(world.folder)]
            patches[name] = [p.read_text() for p in kept if p.is_file()]
    return Starved(ends["worker"], ends["agent"], comments, records, patches)
