"""The fixtures of the forge's tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from seeded_forge import World, start


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = start(tmp_path)
    yield made
    made.close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of clients that are not installed (`scripts/client-tests.sh` installs them)."""
    needed = ("HARNESS_GITHUBKIT_PYTHON", "HARNESS_OCTOKIT_DIR")
    if all(os.environ.get(name) for name in needed):
        return
    out = [item for item in items if item.get_closest_marker("clients")]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]
