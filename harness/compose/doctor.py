"""Checks of all that a director needs, one finding each, with what to do about it.

The one rule: it changes nothing, inside or outside; every check ends within seconds and none stops another.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from harness.adapters.docker import DockerRuntime
from harness.adapters.store import places, schema
from harness.adapters.store.errors import StoreError
from harness.adapters.store.lease import is_held, owner_of
from harness.compose.doctor_forge import forge
from harness.compose.findings import CONNECT_S, OK, PROBLEM, WARNING, Check, why
from harness.compose.runtimes import local, silent
from harness.config.errors import ConfigError
from harness.config.models import Config
from harness.config.reader import load
from harness.core.result import Ok
from harness.loop import SteadyClock

GIT_OLDEST, GIT_GOOD = (2, 39, 4), (2, 46, 0)
GIT_S = 10.0
SOCKET_LIMIT_BYTES = 104


def examine(path: Path, env: Mapping[str, str] = os.environ) -> Iterator[Check]:
    """Every check, in an order in which one explains the next."""
    config = Config()
    try:
        config = load(path, env)
        missing = config.missing()
        yield from (Check("config", PROBLEM, line) for line in missing)
        if not missing:
            yield Check("config", OK, f"{path}, for {config.forge.repo}")
    except ConfigError as e:
        # What follows would judge a configuration that nobody wrote.
        yield Check("config", PROBLEM, str(e), "the checks of engine, forge and model need a good file")
        yield from _each(git)
        return
    clock = SteadyClock()
    data = config.data_dir.absolute()
    for check in (
        git, lambda: disk(config, data), lambda: store(config, data), lambda: lease(data),
        lambda: engine(config, data, clock, env), lambda: agent(config), lambda: sockets(config, data),
    ):  # fmt: skip
        yield from _each(check)
    yield from _each(lambda: port(config, data))
    yield from _each(lambda: model(config, env))
    if config.forge.repo:
        yield from forge(config, clock, env)


def _each(check: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    try:
        yield from check()
    except OSError as e:
        yield Check("system", PROBLEM, f"{e.filename or 'the system'}: {e.strerror or e}")
    except StoreError as e:
        yield Check("system", PROBLEM, str(e))


# ---------------------------------------------------------------- this machine


def git() -> Iterator[Check]:
    path = shutil.which("git")
    if path is None:
        yield Check("git", PROBLEM, "git is not installed", "install git 2.46 or newer")
        return
    said = subprocess.run(
        [path, "version"], capture_output=True, text=True, timeout=GIT_S, check=False
    ).stdout
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", said)
    version = tuple(int(x) for x in found.groups()) if found else ()
    if not found or version < GIT_OLDEST:
        text = f"{said.strip() or 'git does not tell its version'}: versions before 2.39.4 have known holes"
        yield Check("git", PROBLEM, text, "install git 2.46 or newer")
    elif version < GIT_GOOD:
        text = f"git {found[0]} ignores fetch.fsckObjects for bundles; a second hop checks them all the same"
        yield Check("git", WARNING, text, "better: git 2.46 or newer")
    else:
        yield Check("git", OK, f"git {found[0]}")


def disk(config: Config, data: Path) -> Iterator[Check]:
    there = next(p for p in (data, *data.parents) if p.exists())
    if not os.access(there, os.W_OK):
        yield Check("disk", PROBLEM, f"{there} cannot be written", "change its owner, or director.data_dir")
        return
    kind = places.network_filesystem(there)
    if kind:
        yield Check(
            "disk",
            PROBLEM,
            f"{there} is on a network file system ({kind})",
            "put director.data_dir on a local disk",
        )
        return
    free, need = shutil.disk_usage(there).free, config.director.min_free
    if free < need:
        text = f"{free >> 20} MiB free in {there}, {need >> 20} MiB are needed to start work"
        yield Check("disk", PROBLEM, text, "make room, or lower director.min_free")
    else:
        yield Check("disk", OK, f"{free >> 30} GiB free in {there}")


def store(config: Config, data: Path) -> Iterator[Check]:
    path = Path(config.store_path.removeprefix("sqlite:///")).absolute()
    try:
        found = schema.look(path, check=True)
    except StoreError as e:
        yield Check("store", PROBLEM, str(e))
        return
    if not found:
        yield Check("store", OK, f"none yet; the first start makes {path}")
    elif found != schema.schemas()[-1]:
        yield Check(
            "store", WARNING, f"{path} has the older schema {found}; the next start migrates it, after a copy"
        )
    else:
        yield Check("store", OK, f"{path}, {path.stat().st_size >> 20} MiB, undamaged")


def lease(data: Path) -> Iterator[Check]:
    if is_held(data):
        o = owner_of(data / "lock")
        who = f"process {o.get('pid', '?')} on {o.get('host', '?')} since {o.get('since', '?')}"
        yield Check("director", OK, f"one is running: {who}")
    else:
        yield Check("director", OK, "none is running")


def engine(config: Config, data: Path, clock: SteadyClock, env: Mapping[str, str]) -> Iterator[Check]:
    c = config.containers
    if c.runtime == "process":
        yield from _process(config, env, "containers.runtime is process")
        return
    docker = DockerRuntime(
        data=data, instance="doctor", repo_key=config.forge.repo.lower() or "none", clock=clock,
        docker_host=c.docker_host or None, timeout_s=CONNECT_S,
    )  # fmt: skip
    probed = docker.probe()
    hangs = bool(c.image) and silent(docker, probed)
    if (
        c.runtime == "auto"
        and local(config.forge.url)
        and not (isinstance(probed, Ok) and c.image)
        and not hangs
    ):
        cause = "containers.image is not set" if isinstance(probed, Ok) else why(probed)
        yield from _process(config, env, cause)
        return
    if not isinstance(probed, Ok):
        do = "start Docker, or set containers.docker_host"
        yield Check("engine", PROBLEM, why(probed), do)
        return
    text = probed.value.rsplit(", engine ", 1)[0]
    if "live-restore off" in text:
        do = 'set "live-restore": true in the engine\'s daemon.json'
        yield Check("engine", WARNING, text, do)
    else:
        yield Check("engine", OK, text)
    if not c.image:
        do = "harness image build --from IMAGE makes one; then set containers.image"
        yield Check("image", PROBLEM, "containers.image is not set", do)
        return
    found, misfit = docker.image(c.image), docker.misfit(c.image)
    if isinstance(found, Ok) and isinstance(misfit, Ok) and misfit.value:
        do = "harness image build --from IMAGE makes one that fits"
        yield Check("image", WARNING, f"{c.image} {misfit.value}", do)
    elif isinstance(found, Ok):
        yield Check("image", OK, f"{c.image} is {found.value[:19]}")
    else:
        yield Check("image", PROBLEM, why(found), "harness image build --from IMAGE makes one")


def _process(config: Config, env: Mapping[str, str], cause: str) -> Iterator[Check]:
    text = f"{cause}: workers run as processes and are NOT isolated"
    if local(config.forge.url) or env.get("HARNESS_UNSAFE_PROCESS"):
        yield Check("engine", WARNING, text, "only for a forge of your own and agents that you trust")
    else:
        do = 'install Docker and set containers.runtime = "docker", or set HARNESS_UNSAFE_PROCESS=1'
        yield Check("engine", PROBLEM, f"{text}, and the forge is not local", do)


def agent(config: Config) -> Iterator[Check]:
    a = config.agent
    if a.kind == "scripted":
        play = a.command[0] if a.command else ""
        if play and not Path(play).is_file():
            yield Check("agent", PROBLEM, f"agent.command: the play {play} is not there")
            return
    name = " ".join(a.command) if a.kind == "command" else a.model
    yield Check("agent", OK, f"{a.kind}{f' ({name})' if name else ''}")


def sockets(config: Config, data: Path) -> Iterator[Check]:
    folder = Path("/run") if os.geteuid() == 0 else Path(os.environ.get("XDG_RUNTIME_DIR") or "/tmp")
    longest = f"{folder}/harness-0123456789/1234567890.12/gateway.sock"
    if len(longest.encode()) > SOCKET_LIMIT_BYTES:
        yield Check(
            "sockets",
            PROBLEM,
            f"{folder} is too long for unix sockets",
            "set XDG_RUNTIME_DIR to a short path",
        )
    elif not os.access(folder, os.W_OK):
        yield Check(
            "sockets", PROBLEM, f"{folder} cannot be written", "set XDG_RUNTIME_DIR to a folder of yours"
        )


# ---------------------------------------------------------------- ports and the model


def port(config: Config, data: Path) -> Iterator[Check]:
    host, _, number = config.gateway.listen.rpartition(":")
    if not host:
        yield Check("port", OK, "gateway.listen is empty: no page, metrics or webhooks")
        return
    host = host.strip("[]")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind((host, int(number)))
        except OSError as e:
            if is_held(data):
                yield Check("port", OK, f"{config.gateway.listen} is the running director's")
                return
            text = f"gateway.listen: {config.gateway.listen}: {e.strerror}"
            yield Check("port", PROBLEM, text, "choose another port, or end what listens there")
            return
    yield Check("port", OK, f"{config.gateway.listen} is free")


def model(config: Config, env: Mapping[str, str]) -> Iterator[Check]:
    m = config.budget.model
    if not m.upstream:
        yield Check("model", OK, "budget.model.upstream is empty: agents have no model")
        return
    if m.auth != "none":
        try:
            m.key.read(env)
        except ConfigError as e:
            yield Check("model", PROBLEM, str(e), "set it where the director starts")
            return
    parts = urlsplit(m.proxy or m.upstream)
    number = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", number), CONNECT_S).close()
    except OSError as e:
        where = f"{parts.hostname}:{number}"
        yield Check(
            "model",
            PROBLEM,
            f"{where} cannot be reached: {e.strerror or e}",
            "look at the network, or budget.model.proxy",
        )
        return
    if not (m.day_usd or m.day_tokens or m.attempt_usd or m.attempt_tokens):
        yield Check(
            "model", WARNING, f"{m.upstream}: no spend cap is set", "set budget.model.day_usd or attempt_usd"
        )
    else:
        yield Check("model", OK, m.upstream)
