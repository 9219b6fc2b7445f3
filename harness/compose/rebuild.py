"""`harness rebuild`: a new store in the place of one that is damaged or lost, from what the outside shows.

The one rule: nothing is deleted and nothing is half done. The new store is made beside the old one, which is
set aside under a name that is told; until the very end a start finds what it found before.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness import __version__
from harness.adapters.agents import AGENTS
from harness.adapters.git import GitRepo
from harness.adapters.git.limits import GitLimits
from harness.adapters.governor import Governor
from harness.adapters.store import places, schema
from harness.adapters.store.errors import StoreError
from harness.adapters.store.lease import Lease, instance_id
from harness.adapters.store.sql import SqlStore
from harness.audit.index import rebuild_index
from harness.compose.credentials import token_source
from harness.compose.director import screened
from harness.compose.epoch import take_epoch
from harness.compose.errors import StartError
from harness.compose.evidence import Evidence, gather, must
from harness.compose.force import InForce
from harness.compose.parts import audits_dir, author, budgets, forge_of, quiet, remote_url, secret_of
from harness.compose.regain import Regained, attempt, ticket
from harness.compose.regain_release import release
from harness.compose.runtimes import image_of, pick_runtime, tools_of
from harness.config.models import Config
from harness.core.item import Item, snapshot
from harness.core.journal import Draft
from harness.core.redact import Redactor
from harness.core.result import Ok
from harness.loop import SteadyClock
from harness.machines.all import CODEC
from harness.marks import Marks
from harness.ports import Runtime, World

NEW = ".rebuilding"
SUFFIXES = ("", "-wal", "-shm")
Pick = Callable[[Config, Path, str, SteadyClock, Mapping[str, str]], tuple[Runtime, str, str]]


@dataclass(frozen=True)
class Rebuilt:
    """What was found and what was made of it. `wrong` is what was wrong with the store, `aside` its new name;
    `epoch` is 0 in a preview."""

    store: Path
    wrong: str
    aside: Path | None
    epoch: int
    bundles: int
    machines: tuple[Regained, ...]
    strangers: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)


def rebuild(
    config: Config, *, preview: bool = False, anyway: bool = False, env: Mapping[str, str] = os.environ,
    pick: Pick = pick_runtime,
) -> Rebuilt:  # fmt: skip
    """Read everything back and, unless it is a preview, put the new store in place. Raises StartError,
    ConfigError, LeaseHeld, StoreError."""
    missing = config.missing()
    if missing:
        raise StartError(missing[0], 2)
    data, clock = config.data_dir.absolute(), SteadyClock()
    path = store_path(config)
    if not data.is_dir() and not anyway:
        raise StartError(f"{data} is not there: no director has run with this data folder yet")
    data.mkdir(parents=True, exist_ok=True)
    places.refuse_network(path.parent)
    wrong = _wrong(path, anyway)
    with Lease.take(data, clock=clock):
        return _rebuild(config, data, path, clock, wrong, preview, env, pick)


def store_path(config: Config) -> Path:
    return Path(config.store_path.removeprefix("sqlite:///")).absolute()


def _wrong(path: Path, anyway: bool) -> str:
    """What is wrong with the store. Raises StartError where nothing is, unless it is to be made all the same."""
    try:
        found = schema.look(path, check=True)
    except StoreError as e:
        if "newer version" in str(e):
            raise
        return re.split(": (?:run|copy) ", str(e))[0]
    if anyway:
        return "" if found else f"{path} is not there"
    if not found:
        raise StartError(f"{path} is not there and never was: the next start makes it (or --anyway)")
    raise StartError(f"{path} is not damaged, so there is nothing to rebuild (--anyway does it all the same)")


def _rebuild(
    config: Config, data: Path, path: Path, clock: SteadyClock, wrong: str, preview: bool,
    env: Mapping[str, str], pick: Pick,
) -> Rebuilt:  # fmt: skip
    notes = _notes(data)
    new = path.with_name(path.name + NEW)
    _remove(new)
    store = SqlStore.open(new, clock=clock, code=__version__)
    try:
        schema.marker(new).unlink(missing_ok=True)
        world, force = _world(config, data, clock, store, env, pick)
        assert isinstance(world.repo, GitRepo)
        epoch, began = take_epoch(store, world.repo, clock, preview)
        world = replace(world, epoch=epoch, epoch_began=began)
        found = _look(world, force, audits_dir(config, data))
        machines = conclude(found, force.policy.instance)
        for one in machines:
            _write(store, one, wrong)
        kept = {m.item.id: f"{m.item.state}: {m.why}" for m in machines}
        store.put("rebuilt", {"at": clock.now(), "epoch": epoch, "wrong": wrong, "machines": kept})
        getattr(world.repo, "close", int)()
        store.close()
        bundles = len(found.bundles)
        told = Rebuilt(path, wrong, None, 0 if preview else epoch, bundles, machines, found.strangers, notes)
        if preview:
            return told
        aside = _put_in_place(path, new)
        rebuild_index(audits_dir(config, data))
        return replace(told, aside=aside)
    finally:
        store.close()
        _remove(new)


def _remove(new: Path) -> None:
    for suffix in SUFFIXES:
        new.with_name(new.name + suffix).unlink(missing_ok=True)
    schema.marker(new).unlink(missing_ok=True)


def _put_in_place(path: Path, new: Path) -> Path | None:
    """The old file is renamed, then the new one takes its name. Killed between the two, the marker is still
    there, and a start refuses as for a lost store."""
    schema.mark(path)
    aside = None
    if any(path.with_name(path.name + s).exists() for s in SUFFIXES):
        aside = places.free_name(path.with_name(path.name + ".damaged"))
        for suffix in SUFFIXES:
            old = path.with_name(path.name + suffix)
            if old.exists():
                os.rename(old, aside.with_name(aside.name + suffix))
        places.sync_folder(path.parent)
    os.rename(new, path)
    places.sync_folder(path.parent)
    return aside


def _notes(data: Path) -> tuple[str, ...]:
    """What is lost with the store and cannot be read back, in words."""
    lost = ["what people asked for by command (pause, cancel, drain) is forgotten: ask again"]
    if not (data / "secret").exists():
        lost.append(
            f"{data / 'secret'} is missing: nothing on the forge can be recognised as ours; "
            "copy it (and `instance`) from a backup and run this again, or claims wait until they are stale"
        )
    return tuple(lost)


# ---------------------------------------------------------------- looking


def _world(
    config: Config, data: Path, clock: SteadyClock, store: SqlStore, env: Mapping[str, str], pick: Pick
) -> tuple[World, InForce]:
    """As a director has it, without a gateway: nobody is served here."""
    instance = instance_id(data)[:8]
    runtime, name, _ = pick(config, data, instance, clock, env)
    token, renew = token_source(config, clock, env)
    # It reads once and cannot come again later, as a director's look can: only the hour's cap holds here.
    once = {name: replace(limits, per_minute=0) for name, limits in budgets(config).items()}
    governor = Governor(store.get, store.put, clock, once, config.budget.github.max_concurrent_requests)
    redactor = Redactor(
        tuple(s for s in (quiet(config.forge.token, env), quiet(config.budget.model.key, env)) if s)
    )
    repo = GitRepo(
        data, remote=remote_url(config), token=token, author=author(config), clock=clock,
        limits=GitLimits(), instance=instance,
    )  # fmt: skip
    force = InForce(config, {"instance": instance, "runtime": name, "image": image_of(runtime, config, name)})
    return World(
        clock, store, lambda: force.policy, data,
        forge=forge_of(config, governor, clock, store, token, renew), repo=repo, runtime=runtime,
        screen=lambda i: screened(i, force.policy, repo, redactor),
        marks=Marks(secret_of(data), instance, config.forge.repo.lower()), tools=tools_of(name),
        agents=AGENTS, image_name=config.containers.image, redact=redactor.text,
    ), force  # fmt: skip


def _look(world: World, force: InForce, audits: Path) -> Evidence:
    assert world.repo is not None and world.forge is not None
    must(world.repo.prepare(), "git's mirror")
    base = must(world.forge.repository(), "the repository").default_branch
    must(world.repo.fetch(), "the repository's branches")
    refs: Mapping[str, str] = must(world.repo.remote_refs(), "the forge's branches")
    must(force.look(world.repo, base, refs.get(f"refs/heads/{base}", "")), "the repository's own file")
    force.take()
    try:
        return gather(world, audits, base, refs)
    except OSError as e:
        why = f"{e.filename or 'a file'} cannot be read: {e.strerror or e}; nothing was changed, run it again"
        raise StartError(why) from e


# ---------------------------------------------------------------- concluding and writing


def conclude(o: Evidence, instance: str) -> tuple[Regained, ...]:
    """All machines that the evidence speaks of: releases, tickets, attempts. Pure."""
    found = [r for v in o.versions.values() if (r := release(o, v)) is not None]
    found += [r for t in o.threads.values() if (r := ticket(o, t)) is not None]
    return (*found, *(attempt(o, f, instance) for f in o.folders))


def _write(store: SqlStore, one: Regained, wrong: str) -> None:
    """The machine's first record says that it was rebuilt, from what."""
    item: Item[Any] = one.item
    body = {**snapshot(item, CODEC.encode), "rebuilt": {"why": one.why, "wrong": wrong}}
    done = store.append(item.id, Draft("snapshot", body), expect_seq=1)
    if not isinstance(done, Ok):
        raise StoreError(f"{store.path} cannot be written: {done}")
