"""A director: its world, its loop, and the little that must be done around them.

The one rule: every start is a new epoch, taken before anything else is written, so that a stale director can
write nowhere.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness import __version__
from harness.adapters.agents import AGENTS
from harness.adapters.git import GitRepo
from harness.adapters.git.limits import GitLimits
from harness.adapters.governor import Governor
from harness.adapters.store.errors import StoreError
from harness.adapters.store.lease import Lease, instance_id
from harness.adapters.store.sql import SqlStore
from harness.compose.archive import Archive
from harness.compose.credentials import token_source
from harness.compose.dry import DryForge, DryRepo
from harness.compose.epoch import Succession, take_epoch
from harness.compose.errors import StartError
from harness.compose.fitness import refuse_unfit
from harness.compose.force import InForce
from harness.compose.outages import PLANS, Outages
from harness.compose.parts import (
    agent_brief,
    audits_dir,
    author,
    bounds_of,
    budgets,
    caps_of,
    forge_of,
    free_bytes,
    limits_of,
    model_settings,
    quiet,
    remote_url,
    runtime_dir,
    secret_of,
)
from harness.compose.retention import EVERY_S, Keeper
from harness.compose.runtimes import image_of, pick_runtime, tools_of
from harness.config.models import Config
from harness.core.redact import Redactor
from harness.core.result import Err, Ok, Result
from harness.domain import Imported, Limited, News
from harness.failures import Failure
from harness.gateway.server import Gateway
from harness.looks import Looks, Own
from harness.loop import Loop, Performer, Pools, SteadyClock
from harness.machines.director.states import Director
from harness.marks import Marks
from harness.perform import perform
from harness.perform.local import feed
from harness.policy import Policy
from harness.ports import Runtime, Screened, Unseen, World
from harness.screen import TESTS, matches, screen, spec, text
from harness.tick import Ticker

Sweep = Callable[[Mapping[str, Any]], None]
STRANGER = (
    "this data folder is new, but the repository had a director before (epoch {epoch} on the forge): what that one "
    "knew is not known here; if this is a surprise, stop, and see to it that the old data folder is in its place"
)


# (configuration, data folder, instance, clock, environment) to the runtime, its name and one line about it.
Pick = Callable[[Config, Path, str, SteadyClock, Mapping[str, str]], tuple[Runtime, str, str]]


@dataclass
class Running:
    """A director that was put together. `stranger` says that the data folder knows nothing of a repository that
    had a director before; `begun` numbers the last command that was given before it. `signals` say why it should
    end, `told_at` since when (monotonic seconds). `close` gives everything back."""

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
    force: InForce
    redactor: Redactor
    stranger: str = ""
    begun: int = 0
    signals: list[str] = field(default_factory=list)
    told_at: float | None = None

    def reload(self, path: Path) -> list[str]:
        """Read the operator's file again (SIGHUP): what is safe to change now changes, the rest is named."""
        from harness.config import reload

        new, restart = reload(self.force.config, path)
        if isinstance(new, Exception):
            return [f"{new}; the last good configuration stays in force"]
        self.force.use_config(new)
        return [f"{key} needs a restart; the old value stays in force" for key in restart] or [
            "configuration reloaded"
        ]

    def close(self) -> None:
        """Each of it, whatever the others say: on a full disk what was granted last cannot be written."""
        with ExitStack() as last_first:
            last_first.callback(self.lease.release)
            last_first.callback(self.store.close)
            last_first.enter_context(suppress(StoreError))
            last_first.callback(self.governor.flush)
            last_first.callback(self.gateway.close)
            last_first.callback(getattr(self.world.repo, "close", int))
            last_first.callback(self.pools.close)


def start(
    config: Config, *, dry: bool = False, boundary: Callable[[str], None] = lambda what: None,
    env: Mapping[str, str] = os.environ, take_over: bool = False,
    report: Callable[[str, Any, str], None] = lambda what, item, text: None, pick: Pick = pick_runtime,
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
        return _start(config, data, clock, lease, dry, boundary, env, report, pick)
    except BaseException:
        lease.release()
        raise


def _start(
    config: Config, data: Path, clock: SteadyClock, lease: Lease, dry: bool, boundary: Callable[[str], None],
    env: Mapping[str, str], report: Callable[[str, Any, str], None], pick: Pick,
) -> Running:  # fmt: skip
    instance = instance_id(data)[:8]
    runtime, name, note = pick(config, data, instance, clock, env)
    token, renew = token_source(config, clock, env)
    if not config.forge.app_id:
        token()
    store = SqlStore.open(config.store_path, clock=clock, code=__version__)
    governor = Governor(
        store.get, store.put, clock, budgets(config), config.budget.github.max_concurrent_requests
    )
    redactor = Redactor(
        tuple(s for s in (quiet(config.forge.token, env), quiet(config.budget.model.key, env)) if s)
    )
    forge = forge_of(config, governor, clock, store, token, renew)
    repo = GitRepo(
        data, remote=remote_url(config), token=token, author=author(config), clock=clock,
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
    audits = audits_dir(config, data)
    refuse_unfit(config, forge, repo)
    epoch, began = take_epoch(store, repo, clock, dry)
    before = max((c.id for c in store.controls()), default=0)
    begun = before if dry else store.control("started", {"epoch": epoch})
    succession = Succession(epoch)
    world = World(
        clock, store, lambda: force.policy, data, epoch, began,
        on_refs=lambda refs: _refs(world, force, None if dry else succession, refs),
        forge=DryForge(forge, dry_repo) if dry else forge, repo=dry_repo if dry else repo, runtime=runtime,
        gateway=gateway,
        archive=Archive(audits, data, store, clock, redactor.data, lambda: caps_of(force.config)),
        screen=lambda i: screened(i, force.policy, repo, redactor),
        marks=Marks(secret_of(data), instance, config.forge.repo.lower()), tools=tools_of(name),
        agents=AGENTS, agent_brief=agent_brief(config), image_name=config.containers.image,
        limits=limits_of(config), redact=redactor.text, free=lambda: free_bytes(data),
    )  # fmt: skip
    gateway.start()
    pools = Pools()
    running = Running(
        config, world, Loop.__new__(Loop), gateway, lease, store, governor, pools, "", note, force, redactor,
        stranger="" if epoch == 1 or dry or store.machines() else STRANGER.format(epoch=epoch - 1),
        begun=begun,
    )  # fmt: skip
    keeper = Keeper(
        world, audits, lambda: bounds_of(force.config), pools.start, tidy=repo.tidy,
        every_s=min(EVERY_S, 10 * config.director.interval_seconds),
    )  # fmt: skip
    sweep: Sweep = (lambda items: None) if dry else keeper.after
    running.loop = _loop(world, wake, pools, running, force, succession, sweep, boundary, report)
    loop_box.append(running)
    _adopt(running)
    return running


def address(listen: str) -> tuple[str, int] | None:
    """HOST:PORT as the configuration has it (checked there), or None."""
    host, _, port = listen.rpartition(":")
    return (host.strip("[]"), int(port)) if listen else None


def screened(imported: Imported, policy: Policy, repo: GitRepo, redactor: Redactor) -> Screened:
    """What the policy says of a change; tests that became fewer or weaker need a person's eyes."""
    spelled = _spelled(imported)
    findings = screen(
        imported, policy, read=lambda path: _content(repo, imported.sha, spelled.get(path, path)),
        before=lambda path: _content(repo, imported.base, spelled.get(path, path)), redactor=redactor,
    )  # fmt: skip
    blocked = tuple(f for f in findings if f.level == "block")
    flags = tuple(f for f in findings if f.level == "flag")
    review = any(matches(spec(TESTS), f.path) for f in flags)
    return Screened(text(blocked) if blocked else "", tuple(f"{f.path} {f.why}" for f in flags), review)


def _spelled(imported: Imported) -> Mapping[str, str]:
    """Path as shown to path as git knows it, which need not be UTF-8. What two files are shown as is neither's
    name: such a file cannot be read, and is blocked for that."""
    found: dict[str, str] = {}
    for f in imported.files:
        found[f.path] = "" if f.path in found else os.fsdecode(bytes.fromhex(f.raw_hex))
    return found


def _content(repo: GitRepo, sha: str, path: str) -> bytes:
    """Empty where it is no file that may be read (a link, one that is too large). Raises Unseen."""
    found = repo.read_file(sha, path)
    if isinstance(found, Err) and found.failure != Failure.POLICY_VIOLATION:
        raise Unseen(found)
    return found.value or b"" if isinstance(found, Ok) else b""


def _loop(
    world: World, wake: threading.Event, pools: Pools, running: Running, force: InForce,
    succession: Succession, sweep: Sweep, boundary: Callable[[str], None],
    report: Callable[[str, Any, str], None],
) -> Loop:  # fmt: skip
    items: dict[str, Any] = {}
    own = Own(
        world, items, lambda: running.signals[0] if running.signals else "", lambda: limited(running.governor)
    )
    looks = Looks(world, own, pools.start, lambda head: rhythm(head, force.policy), wake.set)
    ticker = Ticker(world, looks, Performer(pools, wake.set), perform, world.policy, boundary)

    def held() -> str:
        item = items.get(running.machine)
        return ticker.waiting.get(item.id, "") if item is not None and item.state in PLANS else ""

    outages = Outages(world.store, looks.outages, held)

    def after(loop: Loop) -> None:
        feed([i for k, i in loop.items.items() if "/attempt/" in k], world)
        _newest_image(running, force, looks.see(loop.items[running.machine], "image"))
        # Asked for also while no machine needs it: a worker's long run must not hide who came after us.
        looks.see(loop.items[running.machine], "refs")
        succession.check()
        force.take()
        outages.take(world.clock.now())
        sweep(loop.items)

    return Loop(ticker, items, wake, after=after, report=report)


def _newest_image(running: Running, force: InForce, image: Any) -> None:
    """Another digest under the image's name: workers are told, and move at their next checkpoint."""
    if isinstance(image, str) and image and image != force.policy.image:
        force.use_image(image)
        assert running.world.gateway is not None
        running.world.gateway.publish(replace(running.gateway.board.news, image=image))


def _refs(
    world: World, force: InForce, succession: Succession | None, refs: Mapping[str, str]
) -> Result[None]:
    """Before any machine hears of the forge's refs: who holds the repository, and the trusted base's own
    `.harness.toml`, read again when the default branch moved."""
    repository = world.memo.get("repository")
    if world.repo is not None and succession is not None:
        succession.look(world.repo, refs)
    if repository is None or world.repo is None:
        return Ok(None)
    branch = repository[1].default_branch
    return force.look(world.repo, branch, refs.get(f"refs/heads/{branch}", ""))


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
        "ticks": running.loop.ticks,
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
