"""A demo, made once, as the world that the commands are used in; and copies of it, to be changed at will."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_world import Demo, Ran, run

from harness.cli import main
from harness.forge import Forge, serve

DEMO_S = 240
Harness = Callable[..., Ran]


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    folder = tmp_path_factory.mktemp("demo")
    ran = run("demo", "--runtime", "process", "--keep", folder, "--json", cwd=folder, timeout_s=DEMO_S)
    assert ran.code == 0, ran.err
    return Demo(folder, ran.json)


@pytest.fixture
def copy(demo: Demo, tmp_path: Path) -> Demo:
    """The demo as it ended, in another folder, for a test to change."""
    folder = tmp_path / "copy"
    shutil.copytree(demo.folder, folder, symlinks=True)
    made = Demo(folder)
    made.change(director={"data_dir": str(folder / "data")}, audit={"dir": str(folder / "audits")})
    made.change(forge={"token_file": str(folder / "token")}, agent={"command": [str(folder / "play.json")]})
    return made


@pytest.fixture
def forge(copy: Demo) -> Iterator[Forge]:
    """The copy's own forge, served."""
    served = serve(copy.folder / "forge")
    copy.change(forge={"url": served.url})
    yield served
    served.close()


@pytest.fixture
def harness(capsys: pytest.CaptureFixture[str]) -> Harness:
    """`harness(ARGS…)` in this process."""

    def call(*args: object) -> Ran:
        capsys.readouterr()
        code = main([str(a) for a in args])
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return call


@pytest.fixture(scope="session")
def engine() -> str:
    """The version of the container engine that answers."""
    try:
        command = ["docker", "version", "--format", "{{.Server.Version}}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        said, answers = done.stdout.strip(), done.returncode == 0
    except (OSError, subprocess.TimeoutExpired) as e:
        said, answers = str(e), False
    if not answers:
        assert not os.environ.get("HARNESS_REQUIRE_DOCKER"), f"a container engine is required: {said}"
        pytest.skip("no container engine answers")
    return said
