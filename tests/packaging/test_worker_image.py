"""The worker image: it runs with nothing it could misuse, and building it again costs nothing."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import time
import uuid
from collections.abc import Iterator

import pytest
from checkout import Docker, RunScript

pytestmark = pytest.mark.docker

HARDENED = (
    "run", "--rm", "--network", "none", "--read-only", "--user", "10001:10001", "--cap-drop", "ALL",
    "--security-opt", "no-new-privileges", "--pids-limit", "64", "--tmpfs", "/tmp:noexec,nosuid,nodev",
)  # fmt: skip


@pytest.fixture(scope="module")
def image(docker: Docker, run_script: RunScript) -> str:
    done = run_script("scripts/build-image.sh", timeout_s=290)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_the_last_line_is_the_images_id(docker: Docker, image: str) -> None:
    shown = docker(["image", "inspect", "--format", "{{.Id}}", "harness-worker:dev"])
    assert image == shown.stdout.strip()
    assert image.startswith("sha256:")


def test_nothing_changed_means_nothing_is_done(image: str, run_script: RunScript) -> None:
    before = image
    for _ in range(5):  # somebody may be editing the sources meanwhile: compare two builds of one state
        began = time.monotonic()
        again = run_script("scripts/build-image.sh")
        took_s = time.monotonic() - began
        assert again.returncode == 0, again.stderr
        if again.stdout.strip() == before:
            assert "up to date" in again.stderr
            assert took_s < 2
            return
        before = again.stdout.strip()
    pytest.fail("the sources change faster than images are built")


def test_the_worker_command_starts_without_any_privilege(docker: Docker, image: str) -> None:
    done = docker([*HARDENED, image, "harness", "worker", "--help"])
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


def test_every_library_is_there_and_compiled(docker: Docker, image: str) -> None:
    code = (
        "import sys, pathlib, docker, git, github, pydantic, sqlalchemy, harness\n"
        "site = pathlib.Path(docker.__file__).parent / '__pycache__'\n"
        "app = pathlib.Path(harness.__file__).parent / '__pycache__'\n"
        "print(sys.prefix, any(site.glob('*.pyc')), any(app.glob('*.pyc')))"
    )
    done = docker([*HARDENED, image, "/opt/harness/bin/python", "-c", code])
    assert done.stdout.split() == ["/opt/harness", "True", "True"], done.stderr


def test_git_certificates_and_python_are_there_and_pip_is_not(docker: Docker, image: str) -> None:
    script = (
        "git --version && test -s /etc/ssl/certs/ca-certificates.crt && python3 --version"
        " && ! command -v pip && ! command -v pip3 && ! /opt/harness/bin/python -m pip --version"
    )
    done = docker([*HARDENED, image, "sh", "-c", script])
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_projects_python_does_not_see_our_libraries(docker: Docker, image: str) -> None:
    done = docker([*HARDENED, image, "python3", "-c", "import pydantic"])
    assert "ModuleNotFoundError" in done.stderr


def test_what_the_image_says_of_itself(docker: Docker, image: str) -> None:
    (shown,) = json.loads(docker(["image", "inspect", image]).stdout)
    settings = shown["Config"]
    assert settings["User"] == "1000:1000"
    assert settings["Cmd"] == ["harness", "worker"]
    assert not settings["Entrypoint"]
    assert settings["WorkingDir"] == "/workspace"
    assert len(settings["Labels"]["harness.build-key"]) == 64
    assert not any("KEY" in line or "TOKEN" in line for line in settings["Env"] or [])


@pytest.fixture
def bare_image(docker: Docker) -> Iterator[str]:
    """An image with nothing a worker could run on."""
    name = f"harness-test-bare:{uuid.uuid4().hex[:12]}"
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("empty"))
    subprocess.run(["docker", "import", "-", name], input=data.getvalue(), check=True, capture_output=True)
    yield name
    docker(["image", "rm", name])


def test_a_base_without_git_and_python_is_refused_in_one_line(bare_image: str, run_script: RunScript) -> None:
    done = run_script("scripts/build-image.sh", "--from", bare_image, "--name", f"{bare_image}-worker")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"build-image: {bare_image} needs git and Python 3.11")


@pytest.mark.slow
def test_any_toolchain_image_can_be_the_base(image: str, docker: Docker, run_script: RunScript) -> None:
    mark = uuid.uuid4().hex[:12]
    base, worker, box = f"harness-test-base:{mark}", f"harness-test-worker:{mark}", f"harness-test-{mark}"
    try:
        tool = "printf '#!/bin/sh\\necho tool 1.0\\n' > /usr/bin/tool && chmod 755 /usr/bin/tool"
        made = docker(["run", "--name", box, "--network", "none", "harness-base:bookworm", "sh", "-c", tool])
        assert made.returncode == 0, made.stderr
        assert docker(["commit", "--change", 'ENTRYPOINT ["/usr/bin/tool"]', box, base]).returncode == 0
        done = run_script("scripts/build-image.sh", "--from", base, "--name", worker)
        assert done.returncode == 0, done.stderr
        ran = docker([*HARDENED, worker, "sh", "-c", "tool && /opt/harness/bin/python -c 'import harness'"])
        assert (ran.returncode, ran.stdout) == (0, "tool 1.0\n"), ran.stderr
    finally:
        docker(["rm", "--force", box])
        docker(["image", "rm", worker, base])
