"""The wheel: everything the program reads at run time, nothing else, and the same bytes every time."""

from __future__ import annotations

import hashlib
import tarfile
import zipfile
from pathlib import Path

import pytest
from checkout import CHECKOUT, RunScript

DATA = {".j2", ".sql", ".toml", ".json", ".mako", ".txt", ".html", ".typed"}
PROJECT = CHECKOUT / "harness" / "demo" / "project"  # a whole small project goes along, dot files too


@pytest.fixture(scope="module")
def built(run_script: RunScript, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    done = run_script("scripts/build.sh", str(out))
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def program() -> set[str]:
    """The files as they were before anything was built: somebody may be editing."""
    return program_files()


def program_files() -> set[str]:
    """What an installed harness must have: its modules and the data beside them."""
    return {
        str(path.relative_to(CHECKOUT))
        for path in (CHECKOUT / "harness").rglob("*")
        if path.is_file()
        and path.suffix != ".pyc"
        and (path.suffix in DATA | {".py"} or path.name == "py.typed" or path.is_relative_to(PROJECT))
    }


def test_the_wheel_has_every_module_and_all_data(program: set[str], built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert program - names == set()


def test_the_wheel_has_nothing_else(program: set[str], built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    assert names - (program | program_files()) == set()


def test_the_package_knows_no_data_that_the_wheel_would_lose() -> None:
    strange = {
        str(path.relative_to(CHECKOUT))
        for path in (CHECKOUT / "harness").rglob("*")
        if path.is_file()
        and path.suffix not in DATA | {".py", ".pyc"}
        and path.name != "py.typed"
        and not path.is_relative_to(PROJECT)
    }
    assert strange == set(), "not in [tool.setuptools.package-data]"


def test_the_wheel_says_its_licence_its_pythons_and_its_command(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        texts = {name.split("/", 1)[1]: name for name in archive.namelist() if ".dist-info/" in name}
        metadata = archive.read(texts["METADATA"]).decode()
        commands = archive.read(texts["entry_points.txt"]).decode()
        assert any(name.endswith("LICENSE") for name in texts)
    assert "Requires-Python: <3.14,>=3.11" in metadata
    assert "harness = harness.cli:main" in commands


def test_the_sdist_builds_on_its_own(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"pyproject.toml", "LICENSE", "harness/__init__.py"} <= names
    assert not any(name.startswith((".venv", ".git/", "dist/")) for name in names)


def test_the_same_sources_give_the_same_wheel(built: Path, run_script: RunScript, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert run_script("scripts/build.sh", str(tmp_path)).returncode == 0
    (again,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(again) as two:
        assert [i.date_time for i in one.infolist()] == [i.date_time for i in two.infolist()]
        assert [i.filename for i in one.infolist()] == [i.filename for i in two.infolist()]
    assert hashlib.sha256(wheel.read_bytes()).digest() == hashlib.sha256(again.read_bytes()).digest()
