"""Long scenes, begun together as soon as the session is: most of their time is waiting.

The one rule: a scene is a function of a module's own, called `scene`, that takes a folder and tells what it
saw; it is played once, and a test that asks for `seen` waits for its module's.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

WAIT_S = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(WAIT_S))


@pytest.fixture(scope="session")
def played(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Any]]]:
    """What is under way, by module."""
    modules = {
        i.module.__name__: i.module
        for i in request.session.items
        if i.path.parent == Path(__file__).parent and isinstance(i, pytest.Function)
    }
    root = tmp_path_factory.mktemp("soak")
    pool = ThreadPoolExecutor(max(len(modules), 1), thread_name_prefix="soak")
    yield {name: pool.submit(m.scene, root / name) for name, m in modules.items() if hasattr(m, "scene")}
    pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def seen(request: pytest.FixtureRequest, played: dict[str, Future[Any]]) -> Any:
    return played[request.module.__name__].result(WAIT_S)
