"""`harness init`: what it finds in a repository, and the dozen lines that follow."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path

import pytest
from cli_world import run

from harness.compose.survey import SurveyError, parse_remote, test_command
from harness.config import load

test_command.__test__ = False


def repository(folder: Path, remote: str = "git@github.com:acme/widget.git") -> Path:
    folder.mkdir(exist_ok=True)
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True)
    subprocess.run(["git", "-C", str(folder), "remote", "add", "origin", remote], check=True)
    return folder


def test_it_writes_a_dozen_lines_that_can_be_read(tmp_path):
    here = repository(tmp_path / "r")
    (here / "Makefile").write_text("test:\n\ttrue\n")
    told = run("init", "--yes", cwd=here)
    assert told.code == 0, told.err
    text = (here / "harness.toml").read_text()
    assert len(text.splitlines()) <= 12
    assert load(here / "harness.toml").missing() == ()
    d = tomllib.loads(text)
    assert d["forge"] == {"repo": "acme/widget"}
    assert d["validation"]["commands"] == ["make test"]
    assert "Wrote harness.toml. Next:" in told.out and "harness doctor" in told.out


def test_without_yes_and_without_a_terminal_nothing_is_written(tmp_path):
    here = repository(tmp_path / "r")
    told = run("init", cwd=here)
    assert told.code == 1
    assert told.out.endswith("Nothing was written. `harness init --yes` writes harness.toml.\n")
    assert not (here / "harness.toml").exists()


def test_a_file_that_is_there_is_never_replaced(tmp_path):
    here = repository(tmp_path / "r")
    (here / "harness.toml").write_text("# mine\n")
    told = run("init", "--yes", cwd=here)
    assert (told.code, told.out) == (2, "")
    assert told.err == "harness init: harness.toml is there already: edit it, or remove it first\n"
    assert (here / "harness.toml").read_text() == "# mine\n"


def test_it_asks_the_forge_where_there_is_a_credential(copy, forge, tmp_path):
    here = repository(tmp_path / "r", f"{forge.url}/acme/tally.git")
    token = json.loads((copy.folder / "demo.json").read_text())["bot"]
    before = forge.dump()
    told = run("init", "--yes", "--json", cwd=here, GITHUB_TOKEN=token)
    assert told.code == 0, told.err
    found = told.json["found"]
    assert (found["default_branch"], found["permission"], found["protected"]) == (
        "main",
        "admin",
        "not protected",
    )
    assert tomllib.loads(told.json["text"])["forge"] == {"url": forge.url, "repo": "acme/tally"}
    assert token not in told.out + told.err
    assert forge.dump() == before


def test_outside_of_a_repository(tmp_path):
    told = run("init", "--yes", cwd=tmp_path)
    assert told.code == 2 and "is not a git repository" in told.err and len(told.err.splitlines()) == 1


REMOTES = (
    ("git@github.com:acme/widget.git", ("acme/widget", "https://github.com")),
    ("ssh://git@github.com/acme/widget.git", ("acme/widget", "https://github.com")),
    ("ssh://git@forge.example:2222/acme/widget", ("acme/widget", "https://forge.example")),
    ("https://github.com/acme/widget", ("acme/widget", "https://github.com")),
    ("https://ada:secret@forge.example/acme/widget.git/", ("acme/widget", "https://forge.example")),
    ("http://127.0.0.1:8080/acme/widget.git", ("acme/widget", "http://127.0.0.1:8080")),
)


@pytest.mark.parametrize(("remote", "wanted"), REMOTES)
def test_remotes_in_all_their_forms(remote, wanted):
    assert parse_remote(remote) == wanted


@pytest.mark.parametrize("remote", ["/srv/git/widget.git", "../widget", "file:///srv/widget.git", ""])
def test_remotes_that_are_on_no_forge(remote):
    with pytest.raises(SurveyError, match="is not on a forge"):
        parse_remote(remote)


TREES = (
    (
        {"scripts/build.sh": "", "scripts/test.sh": "", "Makefile": "test:\n"},
        "scripts/build.sh && scripts/test.sh",
    ),
    ({"Makefile": "all:\ncheck: all\n"}, "make check"),
    ({"package.json": '{"scripts": {"test": "jest"}}'}, "npm test"),
    ({"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'}, ""),
    ({"Cargo.toml": ""}, "cargo test"),
    ({"go.mod": ""}, "go test ./..."),
    ({"pyproject.toml": "[tool.pytest.ini_options]\n"}, "python3 -m pytest -q"),
    ({"tests/test_x.py": ""}, "python3 -m unittest discover"),
    ({"README.md": ""}, ""),
)


@pytest.mark.parametrize(("files", "wanted"), TREES)
def test_what_validates_a_change(files, wanted, tmp_path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found, source = test_command(tmp_path)
    assert (found[0] if found else "") == wanted
    assert bool(source) is bool(wanted)
