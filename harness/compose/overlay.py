"""The mirror of a dry run: refs that would have been pushed stand in it as if they had been.

The one rule: only the director's own mirror is written. A worker fetches from there, so it must find the
branch that it works on; the forge never hears of it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.result import Err, Ok, Result
from harness.failures import Failure

GIT_S = 60.0


def git(mirror: Path, *args: str) -> subprocess.CompletedProcess[bytes]:
    """Plumbing on the mirror, with nothing of this machine's configuration."""
    env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "HOME": "/nonexistent"}
    clean = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    return subprocess.run(
        ["git", "-c", f"safe.directory={mirror}", "--git-dir", str(mirror), *args],
        capture_output=True, check=False, timeout=GIT_S, env=env | clean,
    )  # fmt: skip


@dataclass
class Overlay:
    """The real repository below a `DryRepo`; `moved` is that one's record of refs and what they would be."""

    real: Any
    mirror: Path
    moved: Mapping[str, str]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def fetch(self, refs: Sequence[str] = ()) -> Result[Mapping[str, str]]:
        """As the real one, but without pruning: a ref of ours must not be gone between two moments."""
        wanted: Result[Sequence[str]] = Ok(refs) if refs else self.real.remote_refs().map(_branches_and_tags)
        if not isinstance(wanted, Ok):
            return wanted
        found: Result[Mapping[str, str]] = self.real.fetch(tuple(wanted.value)) if wanted.value else Ok({})
        return found.bind(self._lay_over)

    def _lay_over(self, found: Mapping[str, str]) -> Result[Mapping[str, str]]:
        for ref, sha in dict(self.moved).items():
            done = git(self.mirror, *(("update-ref", ref, sha) if sha else ("update-ref", "-d", ref)))
            if done.returncode != 0:
                said = done.stderr.decode("utf-8", "replace").strip()
                return Err(Failure.INFRA_KILLED, f"{self.mirror}: {ref} cannot be set: {said[:300]}")
        return Ok(found)


def _branches_and_tags(refs: Mapping[str, str]) -> list[str]:
    return [r for r in refs if r.startswith(("refs/heads/", "refs/tags/")) and not r.endswith("^{}")]
