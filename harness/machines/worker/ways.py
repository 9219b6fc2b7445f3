"""The worker's short states, what it looks at in each, and the moves that are allowed from anywhere."""

from __future__ import annotations

from typing import Any

from harness.core.fsm import Move
from harness.core.item import Item
from harness.effects import Effect, LoadContext, Sync
from harness.failures import Failure
from harness.machines.kind import Seen, Watch, known, ok, wait
from harness.machines.worker.states import E, S, Worker, run_id
from harness.policy import Policy

MIDDLE = (S.CODE, S.VALIDATE)


def wants(item: Item[Worker], policy: Policy) -> tuple[str, ...]:
    if item.state == S.UPGRADE_CHECKPOINT:
        return ("news", "tree")
    if item.state == S.RETRY_WAIT:
        return ("news",)
    if item.state == S.CODE:
        return (f"run/{run_id(item)}", "tree")
    if item.state == S.VALIDATE:
        return (f"run/{run_id(item)}",)
    return ()


def alarms(item: Item[Worker], policy: Policy) -> tuple[str, ...]:
    return ("news",)


def alarm(item: Item[Worker], seen: Seen) -> Move | None:
    """A person or the director wants this worker to stop: its work is saved by the harvest."""
    news = seen["news"]
    if known(news) and news.stop:
        return Move(E.FATAL, "told to stop", {"failure": str(Failure.GONE), "detail": "told to stop"})
    return None


def watch_start(item: Item[Worker], seen: Seen) -> Watch:
    return ok(E.STARTED, f"issue {item.data.issue} on {item.data.base}")


def begin_sync(item: Item[Worker], seen: Seen) -> tuple[Effect, ...]:
    return (Sync(item.data.base),)


def watch_sync(item: Item[Worker], seen: Seen) -> Watch:
    value: Any = item.value_of("Sync")
    if value is None:
        return wait("synchronising")
    why = f"{value['what']} {value['base_sha'][:12]}"
    if value.get("conflicts"):
        why = f"{why}, conflicts left for the agent in {', '.join(value['conflicts'])}"
    return ok(E.SYNCED, why)


def begin_context(item: Item[Worker], seen: Seen) -> tuple[Effect, ...]:
    return (LoadContext(item.data.issue),)


def watch_context(item: Item[Worker], seen: Seen) -> Watch:
    value: Any = item.value_of("LoadContext")
    if value is None:
        return wait("loading the context")
    return ok(E.CONTEXT_LOADED, f"{value['bytes']} bytes, {value['hidden']} hidden parts removed")
