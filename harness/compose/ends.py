"""When a director's loop ends, what it came to, and what it stands still for meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.compose.director import Running
from harness.core.item import Item
from harness.failures import Failure
from harness.looks import entry
from harness.machines.director.plan import paused

QUIET = frozenset({"DEFERRED", "BLOCKED", "LANDED", "RELEASED", "GONE"})
ORDERLY_END_S = 4.0
FOR_PEOPLE = frozenset({"WAITING", "REVIEWING"})
# What the director cools down for and only a person can mend: afterwards it would come to the same.
FOR_GOOD = frozenset(
    {Failure.CONFIG_INVALID, Failure.POLICY_VIOLATION, Failure.AUTH_FAILED, Failure.CONFLICT}
)

# Before anything can begin: whoever reads the log at night must find the reason there.
STANDS = frozenset({"BOOT", "RELEASE_PLAN", "COOLDOWN"})
STANDS_S = 5.0
REASON_CHARS = 500


@dataclass
class Standstill:
    """What the director stands still for, told once when it has stood for it for `STANDS_S`."""

    reason: str = ""
    since: float = 0.0
    told: str = ""

    def news(self, running: Running) -> str:
        item = running.loop.items[running.machine]
        waits = item.data.cooldown if item.state == "COOLDOWN" else _waits(running, running.machine)
        reason = " / ".join(waits.split("\n"))[:REASON_CHARS] if item.state in STANDS else ""
        now = running.world.clock.monotonic()
        if reason != self.reason:
            self.reason, self.since = reason, now
        if not reason or reason == self.told or now - self.since < STANDS_S:
            return ""
        self.told = reason
        return reason


def ended(running: Running, *, once: bool = False, until_idle: bool = False) -> bool:
    """Told to stop; or, where asked for, nothing is left that could go on without a person."""
    item = running.loop.items[running.machine]
    if item.state == "SHUTDOWN" or _overdue(running):
        return True
    controls = tuple(running.store.controls(running.begun))
    if any(c.verb == "stop" for c in controls) and not running.signals:
        running.signals.append("stop")
    if paused(controls).startswith("draining") and not _live(running) and not running.signals:
        running.signals.append("drained")
    if once and item.state in ("MONITOR", "SELF_REVIEW") and not running.signals:
        running.signals.append("once")
    if until_idle and idle(running) and not running.signals:
        waits = _waits(running, running.machine)
        running.signals.append(f"idle: {waits.removeprefix('idle: ')}" if waits else "idle")
    return False


def _overdue(running: Running) -> bool:
    """It was told to end and could not write so: the disk is full, or what its own machine does hangs. The
    next start finds it as after a crash."""
    now = running.world.clock.monotonic()
    if running.signals and running.told_at is None:
        running.told_at = now
    return running.told_at is not None and now - running.told_at > ORDERLY_END_S


def _waits(running: Running, machine: str) -> str:
    """What a machine waits for since it entered its state; empty until it looked."""
    return running.loop.ticker.waiting.get(machine, "")


def _live(running: Running) -> bool:
    return any("/attempt/" in k and i.state != "CLOSED" for k, i in running.loop.items.items())


def idle(running: Running) -> bool:
    items = running.loop.items
    director = items[running.machine]
    if director.state == "SELF_REVIEW":
        return all(i.open_intent is None for i in items.values()) and not _untold(items)
    if _live(running) or any(i.open_intent for k, i in items.items() if k not in running.loop.out):
        return False
    if director.state == "COOLDOWN":
        return director.data.cooldown.partition(":")[0] in FOR_GOOD
    if director.state == "RELEASE_PLAN":
        return _waits(running, running.machine).startswith("base_red")
    return director.state == "MONITOR" and _all_wait(running)


def _untold(items: Mapping[str, Item[Any]]) -> bool:
    """A ticket has landed in a release that has ended, and has not said so on its issue yet."""
    over = {k for k, i in items.items() if "/release/" in k and i.state in ("PUBLISHED", "ABANDONED")}
    return any("/ticket/" in k and i.state == "LANDED" and i.data.landed_in in over for k, i in items.items())


def _all_wait(running: Running) -> bool:
    """Every ticket is where only a person moves it on, and no release can move."""
    items = running.loop.items
    tickets = [i for k, i in items.items() if "/ticket/" in k]
    moving = [
        i
        for k, i in items.items()
        if "/release/" in k and i.state not in ("OPEN", "PUBLISHED", "ABANDONED", "NEEDS_PERSON")
    ]
    # A ticket that entered such a state just now may leave it at once: where no review is required, say.
    asks = [t for t in tickets if t.state in FOR_PEOPLE and _waits(running, t.id).startswith("waiting for a")]
    stuck = {k for k, i in items.items() if i.state == "NEEDS_PERSON" and _waits(running, k)}
    landed = any(t.state == "LANDED" and t.data.landed_in not in stuck for t in tickets)
    quiet = all(t.state in QUIET or t in asks for t in tickets)
    waits = all(i.state == "MERGING" and i.data.waits for i in moving)
    return quiet and waits and (bool(asks) or not landed or bool(moving))


def summary(running: Running) -> dict[str, Any]:
    items = running.loop.items
    tickets = [entry(i, items) for k, i in items.items() if "/ticket/" in k]
    releases = [i for k, i in items.items() if "/release/" in k]
    return {
        "epoch": running.world.epoch,
        "state": items[running.machine].state,
        "ended": running.signals[0] if running.signals else "",
        "tickets": [
            {"issue": t.issue, "state": t.state, "pull": t.pull, "reason": t.detail or t.doing}
            for t in tickets
        ],
        "releases": [{"version": r.data.version, "state": r.state, "tag": r.data.tag} for r in releases],
        "reasons": dict(items[running.machine].data.reasons),
        "requests": dict(running.world.forge.counts()) if running.world.forge else {},
    }
