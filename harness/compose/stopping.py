"""Ending the workers of a director that is gone: their work is saved, containers and clones are removed.

The one rule: only attempts move here. No ticket and no release takes a step, and nothing is written to the
forge; what the stop means for each ticket is decided by the next director.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from harness.compose import director
from harness.config.models import Config

ATTEMPT = "/attempt/"
END_S = 5.0


def live(items: Mapping[str, Any]) -> list[Any]:
    """Attempts that are not closed."""
    return [i for k, i in items.items() if ATTEMPT in k and i.state != "CLOSED"]


def stop_workers(
    config: Config,
    *,
    timeout_s: float,
    report: Callable[[str, Any, str], None] = lambda what, item, text: None,
    env: Mapping[str, str] = os.environ,
) -> dict[str, list[str]]:
    """Stop and harvest every attempt; answers the codes of those that were `stopped` and of those `left`
    when the time was up. Raises what a start of the director raises: LeaseHeld while one runs."""
    running = director.start(config, dry=True, report=report, env=env)
    try:
        return harvest(running, timeout_s)
    finally:
        running.close()


def harvest(running: Any, timeout_s: float) -> dict[str, list[str]]:
    """The same for a director that was put together; its own machine ends with it."""
    loop, machine = running.loop, running.machine
    codes = [i.data.code for i in live(loop.items)]
    loop.out.update(k for k in loop.items if ATTEMPT not in k)
    running.store.control("stop-workers", {})
    ends = time.monotonic() + timeout_s
    loop.run(lambda loop: not live(loop.items) or time.monotonic() > ends)
    left = [i.data.code for i in live(loop.items)]
    # The epoch that was taken for this ends like any other.
    loop.out.discard(machine)
    running.signals.append("stop --workers")
    ends = time.monotonic() + END_S
    loop.run(lambda loop: loop.items[machine].state == "SHUTDOWN" or time.monotonic() > ends)
    return {"stopped": [c for c in codes if c not in left], "left": left}
