"""Waiting in a command for something outside to become so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LOOK_S = 0.3


def until(true: Callable[[], bool], timeout_s: float) -> bool:
    """Look until it is so; False when the time is up. ^C ends it."""
    ends = time.monotonic() + timeout_s
    pause = threading.Event()
    while not true():
        if time.monotonic() >= ends:
            return False
        pause.wait(LOOK_S)
    return True
