"""Our marker in texts on the forge: `<!-- harness:v1 key=… instance=… mac=… -->`.

The one rule: ours is what bears our MAC, never what bears our login: with a personal token the harness shares
its maintainer's login, and anybody can write a comment that looks like ours.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from hashlib import sha256

_MARK = re.compile(r"<!-- harness:v1 key=([\w.~-]{1,80}) instance=([\w-]{1,40}) mac=([0-9a-f]{32}) -->")


@dataclass(frozen=True, slots=True)
class Mark:
    name: str
    instance: str
    ours: bool


@dataclass(frozen=True, slots=True)
class Marks:
    """Writes and reads markers of one installation. `secret` never leaves it."""

    secret: bytes
    instance: str
    repo: str

    def mac(self, name: str, where: str) -> str:
        text = f"{self.repo}\n{self.instance}\n{where}\n{name}".encode()
        return hmac.new(self.secret, text, sha256).hexdigest()[:32]

    def mark(self, name: str, where: str) -> str:
        """`where` is the issue's or pull's place,
        so that a marker that is copied elsewhere is not ours there."""
        return f"<!-- harness:v1 key={name} instance={self.instance} mac={self.mac(name, where)} -->"

    def read(self, body: str, where: str) -> Mark | None:
        """The last marker of a text, or None."""
        found = _MARK.findall(body)
        if not found:
            return None
        name, instance, mac = found[-1]
        return Mark(
            name, instance, instance == self.instance and hmac.compare_digest(mac, self.mac(name, where))
        )

    def token(self, attempt: str, incarnation: int) -> str:
        """The attempt's own token at the gateway."""
        text = f"{self.repo}\n{self.instance}\n{attempt}\n{incarnation}".encode()
        return hmac.new(self.secret, b"token\n" + text, sha256).hexdigest()
