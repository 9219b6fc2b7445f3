"""`harness forge` and `harness image`: the tools around."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request

import pytest
from cli_world import run, start

from harness import __version__

WORKER = "harness-worker:dev"


def test_a_forge_is_seeded_and_served(tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/hello.txt").write_text("hello\n")
    args = ("--data", tmp_path / "f", "--repo", "acme/widget", "--tree", tmp_path / "tree")
    made = run("forge", "seed", *args, "--user", "ada:admin", "--issue", "First", "--json", cwd=tmp_path)
    assert made.code == 0, made.err
    token = made.json["tokens"]["ada"]
    serving = start("forge", "serve", "--data", tmp_path / "f", "--port", 0, cwd=tmp_path)
    try:
        url = serving.stdout.readline().strip()
        request = urllib.request.Request(
            f"{url}/repos/acme/widget/issues", headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(request, timeout=10) as reply:
            assert [(i["title"], i["labels"][0]["name"]) for i in json.load(reply)] == [("First", "harness")]
        clone = [
            "git",
            "clone",
            "-q",
            f"{url.replace('://', f'://x:{token}@')}/acme/widget.git",
            str(tmp_path / "c"),
        ]
        subprocess.run(clone, check=True)
        assert (tmp_path / "c/hello.txt").read_text() == "hello\n"
        port = url.rsplit(":", 1)[1]
        other = run("forge", "serve", "--data", tmp_path / "other", "--port", port, cwd=tmp_path)
        assert other.code == 1
        assert other.err.startswith(f"harness forge: cannot listen on 127.0.0.1:{port}: ")
        same = run("forge", "serve", "--data", tmp_path / "f", "--port", 0, cwd=tmp_path)
        assert same.code == 1 and "is served already" in same.err
    finally:
        serving.send_signal(signal.SIGTERM)
        _, err = serving.communicate(timeout=20)
    assert serving.returncode == 0 and err == "harness forge: ended\n"


def test_seeding_says_what_is_wrong(tmp_path):
    args = ("forge", "seed", "--data", tmp_path / "f")
    assert run(*args, "--repo", "widget", cwd=tmp_path).err.startswith(
        "harness forge: repository 'widget' is not"
    )
    role = run(*args, "--user", "ada:king", cwd=tmp_path)
    assert (role.code, role.out) == (2, "") and "one of admin, maintain" in role.err
    plan = run("forge", "serve", "--data", tmp_path / "f", "--fault", tmp_path / "no.json", cwd=tmp_path)
    assert plan.code == 2 and "no.json is not there" in plan.err


def image(tmp_path, name: str):
    config = tmp_path / "harness.toml"
    config.write_text(f'[forge]\nrepo = "acme/widget"\n[containers]\nimage = "{name}"\n')
    return config


def test_an_image_that_is_not_there(tmp_path, engine):
    config = image(tmp_path, "harness-worker:nowhere")
    for what in ("show", "check"):
        told = run("image", what, "--config", config, cwd=tmp_path)
        assert (told.code, told.out) == (1, "")
        assert told.err.startswith(
            "harness image: image harness-worker:nowhere is not there: `harness image build"
        )


def test_no_image_is_configured(tmp_path, harness):
    told = harness("image", "show", "--config", image(tmp_path, ""))
    assert told.code == 2 and "containers.image is not set" in told.err


def test_the_worker_image_has_this_harness(tmp_path, engine):
    config = image(tmp_path, WORKER)
    told = run("image", "check", "--json", "--config", config, cwd=tmp_path)
    if told.code == 1 and "is not there" in told.err:
        pytest.skip("the worker image is not built on this machine")
    assert told.json["harness"] == __version__ and told.json["ok"] is True
    shown = run("image", "show", "--config", config, cwd=tmp_path).out
    assert f"harness  {__version__}" in shown


def test_an_installed_harness_has_no_build_files(tmp_path):
    """Only a clone has them; a copy of the package alone says so."""
    import shutil
    import sys

    import harness

    package = tmp_path / "site"
    shutil.copytree(harness.__path__[0], package / "harness", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "harness", "image", "build"]
    done = subprocess.run(
        command,
        env={"PYTHONPATH": str(package), "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(
        "harness image: this is an installed harness, which has no build files: run scripts/"
    )
