"""Effects on our own side: an attempt's folders, its socket, its bundle, and what workers are told."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from harness import effects as fx
from harness.core.item import Item
from harness.core.result import Ok
from harness.domain import News
from harness.failures import Failure
from harness.perform import jobs, places
from harness.perform.outcome import Outcome, Sent, from_result
from harness.ports import GatewayError, World

LOG_BYTES = 2 << 20


def write_brief(e: fx.WriteBrief, world: World) -> Outcome:
    root = places.attempt_dir(world.data, e.attempt)
    for part in ("home", "audit", "audit/patches"):
        places.make(root / part, world)
    brief = {**dict(e.brief), **dict(world.agent_brief), "policy": asdict(world.policy())}
    places.write(root / "in" / "brief.json", json.dumps(brief, ensure_ascii=False, indent=1).encode())
    return Outcome.done({})


def open_socket(e: fx.OpenSocket, world: World) -> Outcome:
    assert world.gateway is not None and world.marks is not None
    try:
        world.gateway.open(e.attempt, world.marks.token(e.attempt, e.incarnation), e.incarnation)
    except GatewayError as refused:
        return Outcome.failed(Failure.INFRA_GATEWAY, str(refused))
    return Outcome.done({})


def shut_socket(e: fx.ShutSocket, world: World) -> Outcome:
    assert world.gateway is not None
    world.gateway.shut(e.attempt)
    return Outcome.done({})


def seal_bundle(e: fx.SealBundle, sent: Sent, world: World) -> Outcome:
    assert world.archive is not None and world.gateway is not None
    logs: dict[str, bytes] = {}
    for name in e.names:
        if world.runtime is None:
            continue
        log = world.runtime.log(name, LOG_BYTES)
        later = jobs.unread(log, sent, world)
        if later is not None:
            return later
        if isinstance(log, Ok):
            logs[name] = log.value
    spent = dict(world.gateway.spent(e.attempt))
    meta = {**dict(e.meta), "cost": spent, "sealed_at": world.clock.now()}
    sealed = world.archive.seal(e.attempt, str(e.meta.get("machine", "")), meta, logs)
    return from_result(
        sealed, world.clock.now(), lambda audit: {"audit": audit, "cost_usd": spent.get("usd", 0.0)}
    )


def feed(items: Iterable[Item[Any]], world: World) -> None:
    """Tell the workers what their requests came to:
    answers are in the journal, and are told again after a restart."""
    if world.gateway is None:
        return
    for item in items:
        if item.state == "RUNNING" and item.data.answers:
            waiting = {a.key for a in world.gateway.asked(item.data.code)}
            for key in waiting & set(item.data.answers):
                world.gateway.answer(item.data.code, key, item.data.answers[key])


def announce(e: fx.Announce, world: World) -> Outcome:
    assert world.gateway is not None
    world.gateway.publish(News(e.tag, e.main_sha, e.image))
    return Outcome.done({})
