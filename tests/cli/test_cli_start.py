"""The way in: help costs nothing, every command tells about itself, every end has its exit code."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
from cli_world import ROOT, environment, run

from harness import __version__
from harness.cli import COMMANDS

HEAVY = (
    "click",
    "rich",
    "docker",
    "github",
    "git",
    "sqlalchemy",
    "pydantic",
    "uvicorn",
    "starlette",
    "httpx",
    "jinja2",
)
HERE = [c for c in COMMANDS if importlib.util.find_spec(f"harness.cli.{'try_' if c == 'try' else c}")]


def test_help_imports_nothing_heavy():
    code = "import sys; from harness.cli import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    loaded = {m.partition(".")[0] for m in ran.stderr.split()}
    assert not loaded & set(HEAVY)
    assert all(f"  {c} " in ran.stdout for c in COMMANDS)


def test_help_costs_at_most_six_empty_interpreters():
    ran = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks/help.py"), "7"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize("command", HERE)
def test_every_command_tells_about_itself(command, harness):
    told = harness(command, "--help")
    assert told.code == 0
    assert told.out.startswith(f"Usage: harness {command}")


@pytest.mark.parametrize("command", HERE)
def test_a_wrong_option_is_usage(command, harness):
    told = harness(command, "--no-such-thing")
    assert (told.code, told.out) == (2, "")
    assert "no-such-thing" in told.err.lower()


def test_version(harness):
    assert harness("--version").out == f"harness {__version__}\n"


def test_an_unknown_command_names_the_nearest(harness):
    told = harness("statsu")
    assert told.code == 2
    assert told.err.strip() == "harness: no command statsu; did you mean status? (see harness --help)"


def test_no_configuration_is_one_line(tmp_path):
    told = run("status", cwd=tmp_path)
    assert (told.code, told.out) == (2, "")
    assert told.err == "harness status: harness.toml is not there: `harness init` writes one\n"


def test_no_store_is_one_line(tmp_path):
    (tmp_path / "harness.toml").write_text('[forge]\nrepo = "acme/widget"\n')
    for command in (
        ("status",),
        ("explain", "3"),
        ("pause",),
        ("release", "status"),
        ("audit", "verify", "--store"),
    ):
        told = run(*command, cwd=tmp_path)
        assert (told.code, told.out) == (1, ""), command
        assert "no director has run with this data folder yet" in told.err
        assert len(told.err.splitlines()) == 1


def test_a_reader_that_goes_away_is_no_bug(demo):
    command = f"{sys.executable} -m harness config show --config {demo.config} | head -n 1"
    ran = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout == "[director]\n"
    assert ran.stderr == ""


def test_colours_are_for_terminals_that_want_them(demo):
    """A terminal gets colours, with NO_COLOR it does not, and a pipe never does."""
    command = f"{sys.executable} -m harness status --config {demo.config}"
    for more, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        args = ["script", "-qec", command, "/dev/null"]
        ran = subprocess.run(
            args, env=environment(TERM="xterm", **more), capture_output=True, text=True, check=True
        )
        assert ("\x1b[" in ran.stdout) is coloured
    assert "\x1b[" not in run("status", "--config", demo.config, cwd=demo.folder).out


def test_a_data_folder_that_knows_nothing_of_an_old_repository_is_pointed_at(copy, forge):
    """A disk that was not mounted, a path that was mistyped: not refused, and not passed over in silence."""
    copy.change(director={"data_dir": str(copy.folder / "elsewhere")})
    told = run("director", "--once", "--config", copy.config, cwd=copy.folder)
    assert told.code == 0, told.err
    assert "had a director before (epoch 1 on the forge)" in told.err
    again = run("director", "--once", "--config", copy.config, cwd=copy.folder)
    assert again.code == 0 and "had a director before" not in again.err
