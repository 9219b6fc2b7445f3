"""A director: its world, its loop, and the little that must be done around them.

The one rule: every start is a new epoch, taken before anything else is written, so that a stale director can
write nowhere.
"""

from __future__ import annotations

import os
import secrets
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness import __version__
from harness.adapters.agents import AGENTS
from harness.adapters.git import GitRepo
from harness.adapters.git.limits import GitLimits
from harness.adapters.governor import Governor
from harness.adapters.store.lease import Lease, instance_id
from harness.adapters.store.sql import SqlStore
from harness.compose.archive import Archive
from harness.compose.dry import DryForge, DryRepo
from harness.config import policy as policy_of
from harness.config.models import Config
from harness.config.reader import parse_repository
from harness.core.budget import Limits as BudgetLimits
from harness.core.redact import Redactor
from harness.core.result import Err, Ok, Result
from harness.domain import Imported, Limited, Limits, News
from harness.failures import Failure
from harness.gateway.server import Gateway
from harness.gateway.settings import ModelSettings, Price
from harness.looks import Looks, Own
from harness.loop import Loop, Performer, Pools, SteadyClock
from harness.machines.director.states import Director
from harness.marks import Marks
from harness.perform import perform
from harness.perform.local import feed
from harness.policy import Policy
from harness.ports import Runtime, Tools, World
from harness.screen import screen, text
from harness.tick import Ticker

EPOCH_REF = "refs/harness/epoch"
LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})


class StartError(Exception):
    """The director cannot start: one line that says what, where, and what to do. `code` is the exit code."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


@dataclass
class Running:
    """A director that was put together. `close` gives everything back."""

    config: Config
    world: World
    loop: Loop
    gateway: Gateway
    lease: Lease
    store: SqlStore
    governor: Governor
    pools: Pools
    machine: str
    note: str
    signals: list[str] = field(default_factory=list)

    def close(self) -> None:
        self.pools.close()
        self.gateway.close()
        self.governor.flush()
        self.store.close()
        self.lease.release()


@dataclass
class InForce:
    """The policy in force: the operator's file, what the start found out, and the repository's own file."""

    config: Config
    found: Mapping[str, str]
    repository: str = ""

    def __post_init__(self) -> None:
        self.policy: Policy = policy_of(self.config, **self.found)

    def use_image(self, digest: str) -> None:
        """A newer image under the configured name: what starts from now on starts in it."""
        self.found = {**self.found, "image": digest}
        self.policy = replace(self.policy, image=digest)

    def use_repository(self, raw: str) -> None:
        """Take what the default branch's `.harness.toml` says now. A broken one keeps the last good one."""
        if raw != self.repository:
            self.repository = raw
            config = (
                self.config.with_repository(parse_repository(raw.encode(), ".harness.toml"))
                if raw
                else self.config
            )
            self.policy = policy_of(config, **self.found)


def local(url: str) -> bool:
    return (urlsplit(url).hostname or "") in LOCAL_HOSTS or url.startswith("file:")


def pick_runtime(
    config: Config, data: Path, instance: str, clock: SteadyClock, env: Mapping[str, str]
) -> tuple[Runtime, str, str]:
    """The runtime, its name, and one line about it.
    `auto` is docker when an engine answers and an image is named."""
    wanted = config.containers.runtime
    if wanted in ("auto", "docker"):
        from harness.adapters.docker import DockerRuntime

        host = Path(config.containers.host_data_dir) if config.containers.host_data_dir else None
        docker = DockerRuntime(
            data=data, host_data=host, instance=instance, repo_key=config.forge.repo.lower(), clock=clock,
            docker_host=config.containers.docker_host or None,
        )  # fmt: skip
        probed = docker.probe()
        if isinstance(probed, Ok) and (config.containers.image or wanted == "docker"):
            return docker, "docker", probed.value
        if wanted == "docker":
            raise StartError(
                f"no container engine answers: {_why(probed)}; start one, or set containers.runtime"
            )
    from harness.adapters.process import ProcessRuntime

    if not local(config.forge.url) and not env.get("HARNESS_UNSAFE_PROCESS"):
        raise StartError(
            "containers.runtime: without a container engine workers are not isolated, and the forge is "
            "not local; install Docker, or set HARNESS_UNSAFE_PROCESS=1 when you trust every issue and "
            "every agent"
        )
    process = ProcessRuntime(data / "jobs", data=data, clock=clock)
    return process, "process", "workers run as processes and are NOT isolated"


def _why(result: Result[Any]) -> str:
    return result.detail if isinstance(result, Err) else ""


def tools_of(runtime: str) -> Tools:
    if runtime == "docker":
        return Tools("/opt/harness/bin/python", "/opt/harness/app/harness", ("harness",))
    package = str(Path(__file__).parents[1])
    return Tools(sys.executable, package, (sys.executable, "-m", "harness"))


def start(
    config: Config, *, dry: bool = False, boundary: Callable[[str], None] = lambda what: None,
    env: Mapping[str, str] = os.environ, take_over: bool = False,
    report: Callable[[str, Any, str], None] = lambda what, item, text: None,
) -> Running:  # fmt: skip
    """Put a director together and take its epoch. Raises StartError, ConfigError, LeaseHeld, StoreError."""
    missing = config.missing()
    if missing:
        raise StartError(missing[0], 2)
    data = config.data_dir.absolute()
    clock = SteadyClock()
    data.mkdir(parents=True, exist_ok=True)
    lease = Lease.take(data, clock=clock, take_over=take_over)
    try:
        return _start(config, data, clock, lease, dry, boundary, env, report)
    except BaseException:
        lease.release()
        raise


def _start(
    config: Config, data: Path, clock: SteadyClock, lease: Lease, dry: bool, boundary: Callable[[str], None],
    env: Mapping[str, str], report: Callable[[str, Any, str], None],
) -> Running:  # fmt: skip
    instance = instance_id(data)[:8]
    runtime, name, note = pick_runtime(config, data, instance, clock, env)
    token = config.forge.token
    token.read(env)
    store = SqlStore.open(config.store_path, clock=clock, code=__version__)
    governor = Governor(
        store.get, store.put, clock, budgets(config), config.budget.github.max_concurrent_requests
    )
    redactor = Redactor(tuple(s for s in (_quiet(token, env), _quiet(config.budget.model.key, env)) if s))
    forge = forge_of(config, governor, clock, store, env)
    repo = GitRepo(
        data, remote=remote_url(config), token=lambda: token.read(env), author=author(config), clock=clock,
        limits=GitLimits(), instance=instance,
    )  # fmt: skip
    dry_repo = DryRepo(repo)
    wake = threading.Event()
    force = InForce(config, {"instance": instance, "runtime": name, "image": image_of(runtime, config, name)})
    gateway = Gateway(
        runtime_dir(data), data, clock, model=model_settings(config, env), wake=wake.set,
        listen=address(config.gateway.listen), status=lambda: status_of(loop_box), redact=redactor.text,
    )  # fmt: skip
    loop_box: list[Running] = []
    epoch, began = take_epoch(store, repo, clock, dry)
    world = World(
        clock, store, lambda: force.policy, data, epoch, began,
        forge=DryForge(forge, dry_repo) if dry else forge, repo=dry_repo if dry else repo, runtime=runtime,
        gateway=gateway, archive=Archive(audits_dir(config, data), data, store, clock, redactor.data),
        screen=lambda i: screened(i, force.policy, repo),
        marks=Marks(secret_of(data), instance, config.forge.repo.lower()), tools=tools_of(name),
        agents=AGENTS, agent_brief=agent_brief(config), image_name=config.containers.image,
        limits=limits_of(config), redact=redactor.text,
    )  # fmt: skip
    gateway.start()
    pools = Pools()
    running = Running(config, world, Loop.__new__(Loop), gateway, lease, store, governor, pools, "", note)
    running.loop = _loop(world, wake, pools, running, force, boundary, report)
    loop_box.append(running)
    _adopt(running)
    return running


def address(listen: str) -> tuple[str, int] | None:
    """HOST:PORT as the configuration has it (checked there), or None."""
    host, _, port = listen.rpartition(":")
    return (host.strip("[]"), int(port)) if listen else None


def _quiet(secret: Any, env: Mapping[str, str]) -> str:
    from harness.config.errors import ConfigError

    try:
        return str(secret.read(env)) if secret else ""
    except ConfigError:
        return ""


def image_of(runtime: Runtime, config: Config, name: str) -> str:
    """The digest that the configured name stands for now; the name itself while it is not there."""
    found = runtime.image(config.containers.image)
    if isinstance(found, Ok):
        return found.value
    if name == "docker":
        raise StartError(_why(found) or f"image {config.containers.image} is not there")
    return config.containers.image


def budgets(config: Config) -> dict[str, BudgetLimits]:
    g = config.budget.github
    return {
        "github.read": BudgetLimits(0.0, g.reads_per_minute, g.reads_per_hour, g.cooldown_seconds),
        "github.write": BudgetLimits(
            g.min_seconds_between_writes, g.writes_per_minute, g.writes_per_hour, g.cooldown_seconds
        ),
    }


def forge_of(
    config: Config, governor: Governor, clock: SteadyClock, store: SqlStore, env: Mapping[str, str]
) -> Any:
    from harness.adapters.github import GitHubForge

    url = (
        "https://api.github.com" if config.forge.url.rstrip("/") == "https://github.com" else config.forge.url
    )
    return GitHubForge(
        url, config.forge.repo, lambda: config.forge.token.read(env), governor, clock,
        label=config.forge.label_prefix, timeout_s=config.forge.timeout_seconds, remember=store,
    )  # fmt: skip


def remote_url(config: Config) -> str:
    return f"{config.forge.url.rstrip('/')}/{config.forge.repo}.git"


def author(config: Config) -> tuple[str, str]:
    name, _, rest = config.git.author.partition(" <")
    return name, rest.rstrip(">")


def agent_brief(config: Config) -> dict[str, Any]:
    """What the worker needs to know of its agent. A scripted agent's play goes into the brief itself."""
    brief: dict[str, Any] = {"command": list(config.agent.command), "agent_env": dict(config.agent.env)}
    if config.agent.kind == "scripted" and config.agent.command:
        path = Path(config.agent.command[0])
        if not path.is_file():
            raise StartError(f"agent.command: the play {path} is not there", 2)
        brief["play"] = path.read_text()
    return brief


def limits_of(config: Config) -> Limits:
    c = config.containers
    return Limits(c.memory, c.cpus, c.pids, c.output, config.timeouts.worker_watchdog_seconds, c.tmp)


def model_settings(config: Config, env: Mapping[str, str]) -> ModelSettings | None:
    m = config.budget.model
    if not m.upstream:
        return None
    prices = {
        k: Price(v.input_usd, v.output_usd, v.cache_read_usd, v.cache_write_usd) for k, v in m.prices.items()
    }
    return ModelSettings(
        m.upstream, m.auth, (lambda: m.key.read(env)) if m.auth != "none" else str, m.max_concurrent_requests,
        m.attempt_usd, m.attempt_tokens, m.day_usd, m.day_tokens, prices, m.request_seconds,
        m.unpriced_call_usd, per_minute=m.requests_per_minute, gap_s=m.min_seconds_between_requests,
        cooldown_s=m.cooldown_seconds, queue_s=m.queue_seconds, headers=dict(m.headers),
        proxy=m.proxy or None,
    )  # fmt: skip


def audits_dir(config: Config, data: Path) -> Path:
    found = Path(config.audit.dir).expanduser() if config.audit.dir else data / "audits"
    return found.absolute()


def runtime_dir(data: Path) -> Path:
    """Short, since unix socket paths are limited to about 104 bytes; the same for the same data folder."""
    import hashlib
    import tempfile

    short = hashlib.sha256(str(data).encode()).hexdigest()[:10]
    base = (
        Path("/run")
        if os.geteuid() == 0
        else Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    )
    folder = base / f"harness-{short}"
    folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    return folder


def secret_of(data: Path) -> bytes:
    """The installation's own secret: markers and tokens are made from it. Made once, readable by us alone."""
    path = data / "secret"
    if not path.exists():
        fd = os.open(path.with_suffix(".new"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as f:
            f.write(secrets.token_bytes(32))
            f.flush()
            os.fsync(f.fileno())
        os.replace(path.with_suffix(".new"), path)
    return path.read_bytes()


def screened(imported: Imported, policy: Policy, repo: GitRepo) -> str:
    findings = screen(imported, policy, read=lambda path: _content(repo, imported.sha, path))
    blocked = tuple(f for f in findings if f.level == "block")
    return text(blocked) if blocked else ""


def _content(repo: GitRepo, sha: str, path: str) -> bytes:
    found = repo.read_file(sha, path)
    return found.value or b"" if isinstance(found, Ok) else b""


def take_epoch(store: SqlStore, repo: GitRepo, clock: SteadyClock, dry: bool) -> tuple[int, float]:
    """max(store, forge) + 1, pushed to the forge with a lease. A dry run takes it in its own store only."""
    highest, there = store.stored_epoch(), ""
    if not dry:
        ready = repo.prepare().bind(lambda _: repo.remote_refs())
        if not isinstance(ready, Ok):
            raise StartError(f"the repository cannot be read: {_why(ready)}")
        there = ready.value.get(EPOCH_REF, "")
        if there:
            told = repo.fetch((EPOCH_REF,)).bind(lambda _: repo.message(there))
            if not isinstance(told, Ok):
                raise StartError(f"{EPOCH_REF} cannot be read: {_why(told)}")
            highest = max(highest, _number(told.value))
    epoch = highest + 1
    if not dry:
        pushed = repo.note_commit(f"epoch {epoch}", there).bind(lambda sha: repo.push(EPOCH_REF, sha, there))
        if isinstance(pushed, Err) and pushed.failure == Failure.CONFLICT:
            raise StartError("another director took this repository a moment ago", 4)
        if not isinstance(pushed, Ok):
            raise StartError(f"{EPOCH_REF} cannot be advanced: {_why(pushed)}")
    taken = store.set_epoch(epoch)
    if not isinstance(taken, Ok):
        raise StartError(f"another director took this data folder: {_why(taken)}", 4)
    return epoch, clock.now()


def _number(message: str) -> int:
    words = message.split()
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


def _loop(
    world: World, wake: threading.Event, pools: Pools, running: Running, force: InForce,
    boundary: Callable[[str], None], report: Callable[[str, Any, str], None],
) -> Loop:  # fmt: skip
    items: dict[str, Any] = {}
    own = Own(
        world, items, lambda: running.signals[0] if running.signals else "", lambda: limited(running.governor)
    )
    looks = Looks(world, own, pools.start, lambda head: rhythm(head, force.policy), wake.set)
    ticker = Ticker(world, looks, Performer(pools, wake.set), perform, world.policy, boundary)

    def after(loop: Loop) -> None:
        feed([i for k, i in loop.items.items() if "/attempt/" in k], world)
        _newest_image(running, force, looks.see(loop.items[running.machine], "image"))
        refs = looks.kept.get("refs")
        if refs is not None and isinstance(refs.value, Mapping):
            _repository_file(world, force, refs.value)

    return Loop(ticker, items, wake, after=after, report=report)


def _newest_image(running: Running, force: InForce, image: Any) -> None:
    """Another digest under the image's name: workers are told, and move at their next checkpoint."""
    if isinstance(image, str) and image and image != force.policy.image:
        force.use_image(image)
        assert running.world.gateway is not None
        running.world.gateway.publish(replace(running.gateway.board.news, image=image))


def _repository_file(world: World, force: InForce, refs: Mapping[str, str]) -> None:
    """The trusted base's own `.harness.toml`, read again when the default branch moved."""
    from harness.config.errors import ConfigError

    repository = world.memo.get("repository")
    tip = refs.get(f"refs/heads/{repository[1].default_branch}", "") if repository else ""
    if not tip or world.memo.get("repository-file", (0.0, ""))[1] == tip or world.repo is None:
        return
    found = world.repo.read_file(tip, ".harness.toml")
    if isinstance(found, Ok):
        world.memo["repository-file"] = (0.0, tip)
        try:
            force.use_repository((found.value or b"").decode("utf-8", "replace"))
        except ConfigError as e:
            print(
                f"harness: .harness.toml at {tip[:12]}: {e}; the last good one stays in force",
                file=sys.stderr,
            )


def limited(governor: Governor) -> tuple[Limited, ...]:
    """The resources that somebody asked us to leave alone, and until when."""
    resources = governor.snapshot()["resources"]
    return tuple(
        Limited(k, r["closed_until"], "asked to slow down") for k, r in resources.items() if r["closed_until"]
    )


def rhythm(head: str, policy: Policy) -> float:
    """How old an answer may get. Git reads cost no quota and go faster."""
    return min(policy.interval_s, 15.0) if head == "refs" else policy.interval_s


def status_of(box: list[Running]) -> Mapping[str, Any]:
    if not box:
        return {"ok": False, "state": "starting"}
    running = box[0]
    item = running.loop.items.get(running.machine)
    trouble = running.loop.trouble
    waits = {x.resource: x.until for x in limited(running.governor)}
    return {
        "ok": not trouble, "state": item.state if item else "starting", "epoch": running.world.epoch,
        "trouble": trouble, "limited": waits, "slowest_tick_s": round(running.loop.slowest_s, 3),
        "machines": {k: i.state for k, i in list(running.loop.items.items())},
    }  # fmt: skip


def _adopt(running: Running) -> None:
    """Fold everything, open the sockets of attempts under way, say the newest news again,
    and begin the epoch."""
    world, loop = running.world, running.loop
    names = tuple(world.store.machines())
    loop.load(names)
    directors = [n for n in names if "/director/" in n]
    before = max(directors, key=lambda n: int(n.rsplit("/", 1)[1]), default="")
    head = loop.items[before].head if before in loop.items else ""
    loop.out.update(directors)
    assert world.gateway is not None and world.marks is not None
    for item in loop.items.values():
        if "/attempt/" in item.id and item.state in ("STARTING", "RUNNING"):
            token = world.marks.token(item.data.code, item.data.incarnation)
            world.gateway.open(item.data.code, token, item.data.incarnation)
    published = [i for i in loop.items.values() if "/release/" in i.id and i.state == "PUBLISHED"]
    newest = max(published, key=lambda i: i.entered_at, default=None)
    image = world.policy().image
    world.gateway.publish(
        News(newest.data.tag if newest else "", newest.data.merge_sha if newest else "", image)
    )
    repo = running.config.forge.repo.lower()
    running.machine = f"{repo}/director/{world.epoch}"
    loop.items[running.machine] = loop.ticker.open(running.machine, Director(repo, before, head))


__all__ = ["Running", "StartError", "replace", "start"]
