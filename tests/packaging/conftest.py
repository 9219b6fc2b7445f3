"""What the packaging tests share: the checkout, running its scripts, and an engine or the reason for none.

The one rule: a test that needs an engine is skipped only where none answers and none is required.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

import pytest
from checkout import CHECKOUT, Docker, RunScript


@pytest.fixture(scope="session")
def run_script() -> RunScript:
    """Run a command in the checkout without a terminal; never raises for its exit code."""

    def run(
        *command: str, env: Mapping[str, str] | None = None, timeout_s: float = 240
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=CHECKOUT,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    return run


def _docker(arguments: Sequence[str], timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["docker", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


@pytest.fixture(scope="session")
def docker() -> Docker:
    try:
        answers = _docker(["version"], timeout_s=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        answers = False
    if not answers:
        if os.environ.get("HARNESS_REQUIRE_DOCKER"):
            pytest.fail("HARNESS_REQUIRE_DOCKER is set and no Docker engine answers")
        pytest.skip("no Docker engine answers")
    return _docker
