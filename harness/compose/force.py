"""The policy in force: the operator's file, what the start found out, and the repository's own file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from harness.config import parse_repository
from harness.config import policy as policy_of
from harness.config.models import Config
from harness.policy import Policy


@dataclass
class InForce:
    """The policy in force: the operator's file, what the start found out, and the repository's own file."""

    config: Config
    found: Mapping[str, str]
    repository: str = ""

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
