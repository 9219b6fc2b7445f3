"""127.0.0.1:PORT inside the container to the gateway's socket outside, for agents and git.

The one rule: a request that finds the director restarting is held, not failed, and each gap is counted.
"""

from __future__ import annotations

from pathlib import Path


class Forwarder:
    gaps: int
    port: int

    def __init__(
        self, socket: Path, token: str, incarnation: int, *, port: int = 0, hold_s: float = 600.0
    ) -> None: ...

    @property
    def url(self) -> str: ...
    @property
    def git_url(self) -> str: ...
    def start(self) -> None: ...
    def close(self) -> None: ...
