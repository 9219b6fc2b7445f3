"""Whether the repository can be worked on at all, asked before anything is written there.

The one rule: only what a person must mend stops the start. An outage is told by what follows, and waited for.
"""

from __future__ import annotations

from typing import Any

from harness.compose.errors import StartError
from harness.config.models import Config
from harness.core.result import Err, Ok
from harness.failures import Failure


def refuse_unfit(config: Config, forge: Any, repo: Any) -> None:
    """Raises StartError: no commits, no such branch, a branch in the way of ours, Git LFS without git-lfs."""
    found = forge.repository()
    if not isinstance(found, Ok):
        return
    for prefix in prefixes(config):
        base = found.value.default_branch
        fit = repo.prepare().bind(lambda _, p=prefix, b=base: repo.preflight(b, p))
        if isinstance(fit, Err) and fit.failure == Failure.CONFIG_INVALID:
            raise StartError(f"{config.forge.repo}: {fit.detail}", 2)


def prefixes(config: Config) -> tuple[str, ...]:
    """What the names of our branches begin with, up to the last slash: git has no branch of that name beside
    them. A pattern without a slash begins with nothing that could be in the way."""
    release = config.release.branch.partition("{")[0].rpartition("/")[0]
    return tuple(dict.fromkeys(p for p in (config.forge.branch_prefix, release) if p))
