"""End-to-end runs, shared by the session: each scene that a collected test asks for is played once.

The one rule: scenes begin as soon as the session does, a few at a time, since most of their time is waiting;
a test that asks for one waits for it. A test that needs an engine is skipped only where none answers and none
is required.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import deliveries
import pytest
import saves
import scenes
import takeovers
import worlds
from demo_world import ROOT, Stage, docker

# In this order: what takes longest first.
SCENES: dict[str, Callable[[Stage], Any]] = {
    "crashed_process_demo": scenes.crashed_process_demo,
    "demo_with_limits": scenes.demo_with_limits,
    "demo_with_lost_writes": scenes.demo_with_lost_writes,
    "process_demo": scenes.process_demo,
    "refusals": worlds.refusals,
    "stop_and_go": worlds.stop_and_go,
    "delivered": deliveries.delivered,
    "kept": saves.kept,
    "taken": takeovers.taken,
    "upgrade": worlds.upgrade,
    "starved": worlds.starved,
    "red_base": worlds.red_base,
    "codex_in_docker": worlds.codex_in_docker,
    "codex_as_process": worlds.codex_as_process,
    "lost_in_docker": takeovers.lost_in_docker,
    "docker_demo": scenes.docker_demo,
    "crashed_docker_demo": scenes.crashed_docker_demo,
}
IMAGES = {
    "docker_demo": "dev", "crashed_docker_demo": "dev", "upgrade": "dev", "starved": "dev",
    "codex_in_docker": "codex", "lost_in_docker": "dev",
}  # fmt: skip
AT_ONCE = 4
WAIT_S = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent and isinstance(item, pytest.Function):
            item.add_marker(pytest.mark.timeout(WAIT_S))
            if _images(item):
                item.add_marker(pytest.mark.docker)


def asked(item: pytest.Function) -> set[str]:
    """The scenes that a test asks for, as an argument or as a parameter."""
    params = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return SCENES.keys() & {*item.fixturenames, *(p for p in params if isinstance(p, str))}


def _images(item: pytest.Function) -> set[str]:
    return {IMAGES[name] for name in asked(item) if name in IMAGES}


def no_engine() -> str:
    """Why there is no engine, or nothing."""
    try:
        done = subprocess.run(["docker", "version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        return str(e)
    return done.stderr.strip() if done.returncode else ""


@pytest.fixture(scope="session")
def engine() -> None:
    why = no_engine()
    if why and os.environ.get("HARNESS_REQUIRE_DOCKER"):
        pytest.fail(f"HARNESS_REQUIRE_DOCKER is set and no container engine answers: {why}")
    if why:
        pytest.skip(f"no container engine answers: {why}")


def build(kind: str) -> str:
    """The worker image of these sources under a name of this session's own, so that nobody who builds another
    one meanwhile changes what is tested. Nothing is built when it is there."""
    made = f"harness-e2e:{kind}"
    more = () if kind == "dev" else ("--agent", kind)
    subprocess.run(
        ["scripts/build-image.sh", "--name", made, *more], cwd=ROOT, check=True, timeout=600,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    name = f"harness-e2e:{kind}-{uuid.uuid4().hex[:8]}"
    docker("tag", made, name)
    return name


@pytest.fixture(scope="session", autouse=True)
def played(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Any]]]:
    """The scenes under way, by name."""
    items = [i for i in request.session.items if isinstance(i, pytest.Function)]
    wanted = [
        n for n in SCENES if any(n in asked(i) for i in items if i.path.parent == Path(__file__).parent)
    ]
    if any(n in IMAGES for n in wanted) and no_engine():
        wanted = [n for n in wanted if n not in IMAGES]
    root = tmp_path_factory.mktemp("e2e")
    stages = {n: Stage(root / n) for n in wanted}
    builds, pool = ThreadPoolExecutor(1), ThreadPoolExecutor(AT_ONCE, thread_name_prefix="scene")
    kinds = sorted({IMAGES[n] for n in wanted if n in IMAGES}, reverse=True)  # "dev" first: most need it
    images = {kind: builds.submit(build, kind) for kind in kinds}

    def play(name: str) -> Any:
        if name in IMAGES:
            stages[name].images[IMAGES[name]] = images[IMAGES[name]].result()
        return SCENES[name](stages[name])

    yield {n: pool.submit(play, n) for n in wanted}
    for stage in stages.values():
        stage.close()
    pool.shutdown(cancel_futures=True)
    builds.shutdown()
    for image in images.values():
        if image.exception() is None:
            docker("rmi", image.result(), check=False)


def _scene(name: str) -> Any:
    needs = ("engine",) if name in IMAGES else ()

    @pytest.fixture(scope="session", name=name)
    def get(request: pytest.FixtureRequest, played: dict[str, Future[Any]]) -> Any:
        for need in needs:
            request.getfixturevalue(need)
        return played[name].result(WAIT_S)

    return get


for _name in SCENES:
    globals()[_name] = _scene(_name)
