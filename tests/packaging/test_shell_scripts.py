"""The scripts: they parse, they stop at the first error, and bad input gets one clear line."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from checkout import CHECKOUT, Docker, RunScript

SCRIPTS = [*sorted(CHECKOUT.glob("scripts/*.sh")), CHECKOUT / ".ci" / "run"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_parses_runs_and_says_what_it_is_for(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)
    lines = script.read_text().splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert lines[1].startswith("# ")
    assert os.access(script, os.X_OK), f"{script.name} has no run bit"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_refuses_unset_names_and_broken_pipes(script: Path) -> None:
    if script.name == "setup.sh":  # sourced too: it must not change its caller's options
        assert "set -" not in script.read_text()
        return
    assert any(
        line.startswith(("set -euo pipefail", "set -uo pipefail")) for line in script.read_text().splitlines()
    )


def test_git_knows_the_run_bits(run_script: RunScript) -> None:
    listed = run_script(
        "git", "-c", f"safe.directory={CHECKOUT}", "ls-files", "--stage", "scripts/*.sh", ".ci/run"
    )
    modes = {line.split("\t")[1]: line.split()[0] for line in listed.stdout.splitlines()}
    assert ".ci/run" in modes
    assert {name: mode for name, mode in modes.items() if mode != "100755"} == {}


def test_setting_up_again_does_nothing_and_is_quick(run_script: RunScript) -> None:
    assert run_script("scripts/setup.sh").returncode == 0
    began = time.monotonic()
    again = run_script("scripts/setup.sh")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("scripts/setup.sh", "nonsense"), "the groups are run, build, test and check"),
        (("scripts/build-image.sh", "--nonsense"), "unknown argument --nonsense"),
        (("scripts/build-image.sh", "--from"), "--from needs a value"),
        (("scripts/build-image.sh", "--agent", "nobody"), "no agent 'nobody'; there is: codex"),
    ],
)
def test_a_wrong_argument_gets_one_line_and_exit_2(
    run_script: RunScript, command: tuple[str, ...], says: str
) -> None:
    done = run_script(*command)
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_no_python_that_fits_is_said_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "setup.sh").write_bytes((CHECKOUT / "scripts" / "setup.sh").read_bytes())
    done = subprocess.run(
        ["bash", "scripts/setup.sh"],
        cwd=tmp_path,
        env={**os.environ, "PYTHON": "/nowhere/python3.2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "no Python 3.11, 3.12 or 3.13 found" in done.stderr
    assert "PYTHON=" in done.stderr


def test_without_an_engine_building_an_image_says_so(run_script: RunScript, tmp_path: Path) -> None:
    done = run_script("scripts/build-image.sh", env={"DOCKER_HOST": f"unix://{tmp_path}/none.sock"})
    assert done.returncode == 1
    assert done.stderr.startswith("build-image: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_required_engine_must_be_there(run_script: RunScript, tmp_path: Path) -> None:
    lost = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock", "HARNESS_REQUIRE_DOCKER": "1"}
    done = run_script("scripts/test.sh", "--collect-only", env=lost)
    assert done.returncode == 1
    assert "no Docker engine answers" in done.stderr


def test_an_engine_named_and_dead_is_not_replaced(run_script: RunScript, tmp_path: Path) -> None:
    done = run_script("scripts/engine.sh", env={"DOCKER_HOST": f"unix://{tmp_path}/none.sock"})
    assert done.returncode == 1
    assert "DOCKER_HOST" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.docker
def test_an_engine_that_answers_is_left_alone(docker: Docker, run_script: RunScript) -> None:
    done = run_script("scripts/engine.sh")
    assert done.returncode == 0
    assert done.stdout.endswith("answers already\n")
    assert len(done.stdout.splitlines()) == 1
