"""The policy in force: the operator's file, what the start found out, and the repository's own file.

The one rule: the loop never waits for it. The repository's file is read in git's pool, and taken by the loop.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from harness.config import parse_repository
from harness.config import policy as policy_of
from harness.config.errors import ConfigError
from harness.config.models import Config
from harness.core.result import Err, Ok, Result
from harness.failures import Failure
from harness.policy import Policy
from harness.ports import Repo

NAME = ".harness.toml"


@dataclass
class InForce:
    """`tip` is the commit of the default branch whose file is in force; `read` is what was read last: its
    commit, the text, and why there is none."""

    config: Config
    found: Mapping[str, str]
    repository: str = ""
    tip: str = ""
    read: tuple[str, str, str] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.policy: Policy = policy_of(self.config, **self.found)

    def use_config(self, config: Config) -> None:
        """A reloaded file: running workers go on as they were started."""
        self.config = config
        raw, self.repository = self.repository, ""
        self.policy = policy_of(config, **self.found)
        self.use_repository(raw)

    def use_image(self, digest: str) -> None:
        """A newer image under the configured name: what starts from now on starts in it."""
        self.found = {**self.found, "image": digest}
        self.policy = replace(self.policy, image=digest)

    def use_repository(self, raw: str) -> None:
        """Take what the default branch's `.harness.toml` says now. A broken one keeps the last good one."""
        if raw != self.repository:
            self.repository = raw
            config = (
                self.config.with_repository(parse_repository(raw.encode(), ".harness.toml"))
                if raw
                else self.config
            )
            self.policy = policy_of(config, **self.found)

    def look(self, repo: Repo, branch: str, tip: str) -> Result[None]:
        """Read the file at the default branch's tip, in git's pool, before anybody is told of that tip: what
        is gated there is gated by its own commands."""
        if not tip or tip == self.tip:
            return Ok(None)
        found = repo.read_file(tip, NAME)
        if isinstance(found, Err) and found.failure != Failure.POLICY_VIOLATION:
            # The forge told of a commit that is not here yet.
            found = repo.fetch((f"refs/heads/{branch}",)).bind(lambda _: repo.read_file(tip, NAME))
        if isinstance(found, Ok):
            self.read = (tip, (found.value or b"").decode("utf-8", "replace"), "")
        elif isinstance(found, Err) and found.failure == Failure.POLICY_VIOLATION:
            self.read = (tip, "", found.detail)
        else:
            return found.map(lambda _: None)
        return Ok(None)

    def take(self) -> None:
        """What was read last is in force from here on. To be called by the loop."""
        if self.read is None or self.read[0] == self.tip:
            return
        self.tip, raw, wrong = self.read
        try:
            if not wrong:
                self.use_repository(raw)
        except ConfigError as e:
            wrong = str(e)
        if wrong:
            text = f"harness: {NAME} at {self.tip[:12]}: {wrong}; the last good one stays in force"
            print(text, file=sys.stderr)
