"""Commands and files that the documentation names: they exist, and those that can run here are run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest
from pages import PAGES, ROOT, Line, all_commands, blocks, inline, name, shell, text

from harness.cli import COMMANDS, main

PLACE = re.compile(r"(?:harness|tests|scripts|docker|config|docs|audits|benchmarks|\.ci)/[\w./-]*[\w-]")
OF_A_USER = {"config/harness.toml"}
VARIABLE = re.compile(r"\bHARNESS_[A-Z_]+\b")


def command_of(line: Line) -> tuple[click.Command, list[str]]:
    """The click command that a line names, and the words that are left for it."""
    first, *rest = line.words
    assert first in COMMANDS, f"{line}: there is no command {first}"
    found = import_module(f"harness.cli.{'try_' if first == 'try' else first}").command
    if isinstance(found, click.Group) and rest and not rest[0].startswith("-"):
        assert rest[0] in found.commands, f"{line}: {first} has no {rest[0]}"
        found, rest = found.commands[rest[0]], rest[1:]
    return found, rest


@pytest.mark.parametrize("line", all_commands(), ids=str)
def test_every_command_that_is_named_exists(line: Line) -> None:
    if line.words in (("--help",), ("--version",), ("COMMAND", "--help")):
        return
    found, rest = command_of(line)
    options = {o for p in found.params for o in p.opts} | {"--help"}
    for word in rest:
        if word.startswith("--"):
            assert word.partition("=")[0] in options, f"{line}: {found.name} has no {word}"
    if line.whole:
        found.make_context("harness", ["12" if w == "N" else w for w in rest])


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_script_and_file_that_is_named_is_there(page: Path) -> None:
    named = [c.split()[0] for c in inline(page) if c.split()] + [w[0] for w in shell(page)]
    for place in {p for p in named if PLACE.fullmatch(p) and "NAME" not in p} - OF_A_USER:
        assert (ROOT / place).exists(), f"{name(page)}: {place} is not there"
    for script in {p for p in named if p.startswith("scripts/") and p.endswith(".sh")}:
        assert os.access(ROOT / script, os.X_OK), f"{name(page)}: {script} cannot be run"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_options_of_our_scripts_are_known_to_them(page: Path) -> None:
    for words in shell(page):
        if words[0].startswith("scripts/") and words[0] not in ("scripts/test.sh", "scripts/demo.sh"):
            source = (ROOT / words[0]).read_text()
            for option in (w for w in words[1:] if w.startswith("--")):
                assert option in source, f"{name(page)}: {words[0]} knows no {option}"


def test_variables_that_are_named_are_read_somewhere() -> None:
    """A name in a page that nothing reads is a promise that nobody keeps."""
    sources = "".join(
        p.read_text(errors="replace")
        for folder in ("harness", "scripts", "docker", ".ci", "tests")
        for p in sorted((ROOT / folder).rglob("*"))
        if p.is_file() and p.suffix in ("", ".py", ".sh", ".yaml") and "docs" not in p.parts
    )
    for page in PAGES:
        for variable in set(VARIABLE.findall(text(page))):
            assert variable in sources, f"{name(page)}: nothing reads {variable}"


def test_the_readmes_configuration_passes_the_check_that_it_tells_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "harness.toml"
    file.write_text(blocks(ROOT / "README.md", "toml")[0])
    assert main(["config", "check", "--config", str(file)]) == 0, capsys.readouterr().err
    assert "ok, for acme/widget" in capsys.readouterr().out


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(c in said for c in COMMANDS)


def test_the_documentation_is_what_the_code_says() -> None:
    """As CONTRIBUTING tells it: `scripts/docs.py --check`."""
    done = subprocess.run(
        [sys.executable, "scripts/docs.py", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
