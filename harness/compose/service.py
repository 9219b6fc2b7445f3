"""systemd's notification socket. The one rule:
the watchdog is fed by the loop itself, so a stuck loop is seen."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping


class Notify:
    """Does nothing where no service manager asks."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._address = env.get("NOTIFY_SOCKET", "")
        self._every_s = int(env.get("WATCHDOG_USEC", "0") or 0) / 2e6
        self._ready = False
        self._fed = 0.0

    def _say(self, text: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.sendto(text.encode(), address)

    def alive(self, ready: bool) -> None:
        now = time.monotonic()
        if ready and not self._ready:
            self._ready = True
            self._say("READY=1")
        if self._every_s and now - self._fed >= self._every_s:
            self._fed = now
            self._say("WATCHDOG=1")

    def stopping(self) -> None:
        self._say("STOPPING=1")
