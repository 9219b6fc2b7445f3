"""The locks: every dependency pinned, every file hashed, no host named, and nothing missing."""

from __future__ import annotations

import json
import re
import tomllib

import pytest
from checkout import CHECKOUT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

LOCKS = ("run", "test", "check", "build")


def pins(group: str) -> dict[str, Version]:
    """Name to version of one lock, as `name==version` stands at the head of each entry."""
    text = (CHECKOUT / "requirements" / f"{group}.txt").read_text()
    found = re.findall(r"^([A-Za-z0-9_.-]+)==([^ ;\\]+)", text, re.MULTILINE)
    return {canonicalize_name(name): Version(version) for name, version in found}


@pytest.mark.parametrize("group", LOCKS)
def test_every_entry_is_pinned_and_hashed(group: str) -> None:
    text = (CHECKOUT / "requirements" / f"{group}.txt").read_text()
    entries = [e for e in re.split(r"\n(?=[A-Za-z0-9])", re.sub(r"(?m)^#.*\n", "", text)) if e.strip()]
    assert entries
    for entry in entries:
        head = entry.splitlines()[0]
        assert "==" in head, f"{head} is not pinned"
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), f"{head} has no hash"


@pytest.mark.parametrize("group", LOCKS)
def test_no_host_is_named(group: str) -> None:
    text = (CHECKOUT / "requirements" / f"{group}.txt").read_text()
    assert "://" not in text
    assert not re.search(r"^\s*(--|-i|-f)", re.sub(r"(?m)^\s+--hash=.*$", "", text), re.MULTILINE)


@pytest.mark.parametrize("group", ["run", "test", "check"])
def test_the_project_asks_for_nothing_that_the_lock_lacks(group: str) -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    asked = project["dependencies"] if group == "run" else project["optional-dependencies"][group]
    locked = pins(group)
    for line in asked:
        want = Requirement(line)
        name = canonicalize_name(want.name)
        assert name in locked, f"{line} is not in requirements/{group}.txt: run scripts/lock.sh"
        assert locked[name] in want.specifier, f"{group}.txt has {name} {locked[name]}, not {line}"


def test_one_environment_can_hold_them_all() -> None:
    seen: dict[str, tuple[str, Version]] = {}
    for group in LOCKS:
        for name, version in pins(group).items():
            first, other = seen.setdefault(name, (group, version))
            assert other == version, f"{name}: {first} has {other}, {group} has {version}"


def test_the_build_tools_are_locked_too() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    for line in project["build-system"]["requires"]:
        want = Requirement(line)
        assert pins("build")[canonicalize_name(want.name)] in want.specifier


def test_agents_are_pinned_with_their_hashes_and_no_host() -> None:
    locks = sorted(CHECKOUT.glob("docker/agents/*/package-lock.json"))
    assert locks
    for lock in locks:
        assert "://" not in lock.read_text()
        for name, package in json.loads(lock.read_text())["packages"].items():
            if name:
                assert package["integrity"].startswith("sha512-"), f"{lock}: {name} has no hash"
        wanted = json.loads((lock.parent / "package.json").read_text())["dependencies"]
        assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in wanted.values())
