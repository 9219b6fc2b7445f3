"""What the pages say of the code: pictures, keys, links, versions; and what no page may say."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from pages import PAGES, ROOT, anchors, blocks, inline, links, name, text
from pydantic import BaseModel

from harness import __version__
from harness.cli import main
from harness.config import Config, RepositoryConfig, parse
from harness.failures import Failure
from harness.machines.all import KINDS

PICTURE = re.compile(r"<!-- made: fsm (\w+) -->\n```mermaid\n(.*?)\n```\n<!-- end -->", re.DOTALL)
KEY = re.compile(r"\[?([a-z_]+(?:\.[a-z_]+)*)\]?(?: = .*)?")
REPOSITORYS_OWN = {"prompts", "gates"}
README_LIMIT_LINES = 200
# Where a reader's machine has something: any other absolute path is one of the writer's.
PLACES = frozenset({"backup", "dev", "etc", "opt", "path", "proc", "run", "tmp", "usr", "var"})
PATH = re.compile(r"(?<![\w./:~<>-])/([a-z]+)/[\w.-]")
# Words that speak of how or where this was made, or of hosts that a mirror must be able to replace.
FORBIDDEN = re.compile(
    r"\bsessions?\b|\bhelpers?\b|pypi[.]org|pythonhosted|npmjs[.]|debian[.]org|docker[.]io",
    re.IGNORECASE,
)  # fmt: skip


def pictures(page: Path) -> list[tuple[str, str]]:
    return PICTURE.findall(text(page))


def test_every_machine_is_drawn() -> None:
    assert {machine for machine, _ in pictures(ROOT / "docs/machines.md")} == set(KINDS)
    assert pictures(ROOT / "README.md")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_pictures_are_what_fsm_show_prints(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for machine, drawn in pictures(page):
        assert main(["fsm", "show", machine, "--format", "mermaid"]) == 0
        assert capsys.readouterr().out.strip() == drawn, f"{name(page)}: run scripts/docs.py"


def test_every_failure_is_in_the_table() -> None:
    page = text(ROOT / "docs/machines.md")
    assert all(f"| `{f}` |" in page for f in Failure)


def known(path: list[str], model: type[BaseModel]) -> bool:
    """Whether a dotted key is one of the model's."""
    for i, part in enumerate(path):
        field = model.model_fields.get(part)
        if field is None:
            return False
        inner = field.annotation
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return i == len(path) - 1
        model = inner
    return True


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_keys_that_are_named_exist(page: Path) -> None:
    for code in inline(page):
        found = KEY.fullmatch(code)
        path = found[1].split(".") if found else []
        a_key = len(path) > 1 or code.startswith("[")
        if not a_key or path[0] not in {*Config.model_fields, *REPOSITORYS_OWN}:
            continue
        if len(path) == 2 and path[1] in ("py", "toml", "db", "md", "git", "log", "service"):
            continue
        model: type[BaseModel] = RepositoryConfig if path[0] in REPOSITORYS_OWN else Config
        assert known(path, model), f"{name(page)}: there is no key {'.'.join(path)}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_configuration_that_is_shown_is_accepted(page: Path) -> None:
    for block in blocks(page, "toml"):
        parse(block.encode(), name(page))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        assert not link.startswith("http"), f"{name(page)}: {link}: pages are read offline"
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{name(page)}: {link} is not there"
        if anchor:
            assert anchor in anchors(target), f"{name(page)}: {link} has no such heading"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_pages_speak_of_the_product_alone(page: Path) -> None:
    found = FORBIDDEN.search(text(page))
    assert found is None, f"{name(page)}: {found[0]!r}" if found else ""
    assert {m[1] for m in PATH.finditer(text(page))} <= PLACES


def test_the_readme_is_short() -> None:
    assert len(text(ROOT / "README.md").splitlines()) < README_LIMIT_LINES


def test_one_version_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert project == __version__
    assert f"## [{__version__}]" in text(ROOT / "CHANGELOG.md")
