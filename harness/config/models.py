"""The whole configuration: the operator's file, the repository's file, and the two together.

The one rule: what a repository says can add protection and say how it is built, never widen what is allowed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PrivateAttr

from harness.config import budgets, sections
from harness.config.types import Commands, Section, Texts


class Config(Section):
    """The operator's configuration. `Config()` is all defaults."""

    director: sections.Director = sections.Director()
    timeouts: sections.Timeouts = sections.Timeouts()
    retry: sections.Retry = sections.Retry()
    containers: sections.Containers = sections.Containers()
    forge: sections.Forge = sections.Forge()
    git: sections.Git = sections.Git()
    release: sections.Release = sections.Release()
    agent: sections.Agent = sections.Agent()
    workflow: sections.Workflow = sections.Workflow()
    budget: budgets.Budget = budgets.Budget()
    policy: sections.Policy = sections.Policy()
    validation: sections.Validation = sections.Validation()
    prepare: sections.Prepare = sections.Prepare()
    store: sections.StoreSection = sections.StoreSection()
    gateway: sections.Gateway = sections.Gateway()
    memory: sections.Memory = sections.Memory()
    self_review: sections.SelfReview = sections.SelfReview()
    audit: sections.Audit = sections.Audit()
    log: sections.Log = sections.Log()

    # Where a ${VARIABLE} stood: dotted key to the text as written. It keeps values of variables, which may be
    # secret, out of the hash and of everything that is shown.
    _written: Mapping[tuple[str | int, ...], str] = PrivateAttr(default_factory=dict)

    @property
    def data_dir(self) -> Path:
        """Relative paths are relative to the working directory."""
        return Path(self.director.data_dir).expanduser()

    @property
    def store_path(self) -> str:
        """What the store is opened with."""
        return self.store.url or str(self.data_dir / "store.db")

    def shown(self) -> dict[str, Any]:
        """The configuration as plain values, each ${VARIABLE} as written."""
        plain = self.model_dump(mode="json")
        for path, text in self._written.items():
            place: Any = plain
            for part in path[:-1]:
                place = place[part]
            place[path[-1]] = text
        return plain

    def hash(self) -> str:
        """SHA-256 of the canonical JSON of `shown`: the same for the same meaning, and without any secret."""
        import rfc8785

        return hashlib.sha256(rfc8785.dumps(self.shown())).hexdigest()

    def with_repository(self, found: RepositoryConfig) -> Config:
        """What holds for a repository: its own commands where it says any, and its protected paths added."""
        protected = (*self.policy.protected_paths, *found.policy.protected_paths)
        changed: dict[str, Any] = {
            "policy": self.policy.model_copy(update={"protected_paths": tuple(dict.fromkeys(protected))})
        }
        if found.validation is not None:
            changed["validation"] = found.validation
        if found.prepare is not None:
            changed["prepare"] = found.prepare
        if found.gates.kind is not None:
            changed["release"] = self.release.model_copy(update={"gates": found.gates.kind})
        return self.model_copy(update=changed)

    def missing(self) -> tuple[str, ...]:
        """What a director still needs, one line each; empty when the configuration can work."""
        lines = []
        if not self.forge.repo:
            lines.append('forge.repo is not set: write repo = "OWNER/NAME" below [forge]')
        if bool(self.forge.app_id) != bool(self.forge.key_file):
            lines.append("forge.app_id and forge.key_file belong together: set both or neither")
        if not self.forge.token and not self.forge.app_id:
            lines.append(
                "forge.token_env is empty: name the variable that holds the token, or use token_file"
            )
        if self.containers.runtime == "docker" and not self.containers.image:
            lines.append("containers.image is not set: `harness image build --from IMAGE` makes one")
        if self.agent.kind == "command" and not self.agent.command:
            lines.append('agent.command is not set: agent.kind = "command" needs the program to run')
        if self.agent.kind == "codex" and not self.budget.model.upstream:
            lines.append("budget.model.upstream is not set: the agent needs its model's address")
        if self.budget.model.upstream and self.budget.model.auth != "none" and not self.budget.model.key:
            lines.append("budget.model.key_env is not set: name the variable that holds the model's key")
        if not self.validation.commands:
            lines.append("validation.commands is empty: what is not validated is not landed")
        return tuple(lines)


class Prompts(Section):
    """Texts of the repository for its agents, added to ours."""

    code: str = Field(default="", max_length=20_000, description="for every coding run")
    rework: str = Field(
        default="", max_length=20_000, description="when tests were red or a reviewer asked for changes"
    )
    review: str = Field(default="", max_length=20_000, description="for reviews")


class RepositoryPolicy(Section):
    """What only a person may change here, beside what the operator protects."""

    protected_paths: Texts = Field(default=(), description="patterns as in .gitignore")


class Gates(Section):
    """What must be green before something lands."""

    kind: Literal["command", "checks"] | None = Field(
        default=None, description="as release.gates of the operator"
    )
    required_checks: Texts = Field(
        default=(), description="names of checks that must have passed, beside the forge's own"
    )


class RepositoryConfig(Section):
    """`.harness.toml` on the default branch. It sees no environment: ${VARIABLE} stays as it is."""

    validation: sections.Validation | None = None
    prepare: sections.Prepare | None = None
    prompts: Prompts = Prompts()
    policy: RepositoryPolicy = RepositoryPolicy()
    gates: Gates = Gates()


__all__ = ["Commands", "Config", "Gates", "Prompts", "RepositoryConfig", "RepositoryPolicy"]
