"""The policy on a worker's diff: what is blocked, what is shown to the reviewer, what is ordinary work."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.redact import Redactor
from harness.domain import FileChange, Imported
from harness.policy import Policy
from harness.screen import BLOCKED, MOST_FINDINGS, Finding, screen, text

TOKEN = "ghp_" + "A" * 36


def change(
    *paths: str, status: str = "M", mode: str = "100644", size: int = 100, touched: tuple[str, ...] = ()
) -> Imported:
    files = tuple(FileChange(p, status, mode, size) for p in paths)
    return Imported("a" * 40, "b" * 40, 1, files, (*paths, *touched))


def content(**files: str) -> Callable[[str], bytes]:
    return reading({k.replace("__", "/") + ".py": v for k, v in files.items()})


def reading(files: Mapping[str, str]) -> Callable[[str], bytes]:
    return lambda path: files.get(path, "x = 1\n").encode()


def levels(findings: tuple[Finding, ...]) -> set[tuple[str, str]]:
    return {(f.level, f.path) for f in findings}


def test_an_ordinary_change_of_a_python_project_is_fine() -> None:
    paths = (
        "src/widget/colour.py",
        "tests/test_colour.py",
        "tests/data/a.json",
        "README.md",
        "docs/a.md",
        "CHANGELOG.md",
        ".gitignore",
    )
    files = {
        "tests/test_colour.py": "import pytest\n\n\ndef test_a():\n    assert colour('red') == 'f00'\n",
        "README.md": "Clone git@host.example:acme/widget.git at 3f786850e387550fdab836ed7e6dc881de23001b\n",
    }
    assert screen(change(*paths), Policy(), read=reading(files), before=reading({})) == ()
    assert screen(change(*paths, status="A"), Policy(), read=reading(files)) == ()


@pytest.mark.parametrize(
    "path",
    [
        ".github/workflows/ci.yml", ".github/dependabot.yml", "sub/.github/workflows/x.yml",
        "CODEOWNERS", "docs/CODEOWNERS",
        ".gitmodules", ".gitattributes", "src/.gitattributes", ".husky/pre-commit", ".githooks/pre-push",
        ".pre-commit-config.yaml",
        "lefthook.yml", "AGENTS.md", "src/deep/CLAUDE.md", "GEMINI.md", ".claude/commands/x.md",
        ".codex/config.toml", ".mcp.json",
        ".cursor/rules", ".vscode/tasks.json", ".devcontainer/devcontainer.json", ".harness.toml",
        ".anything/at-all",
        ".gitlab-ci.yml", ".circleci/config.yml", "Jenkinsfile",
        # the same names for a file system or an eye that does not look closely
        ".GitHub/workflows/ci.yml", ".GITHUB/WORKFLOWS/CI.YML", "codeowners", "Agents.MD",
        ".gith\u200bub/workflows/ci.yml",
        "\uff0egithub/workflows/ci.yml", ".ｇｉｔｈｕｂ/workflows/ci.yml", ".github\\workflows\\ci.yml",
        ".github./workflows/ci.yml",
        "CODEOWNERS ", ".gıthub/../.github/x", "\u2024github/workflows/ci.yml",
    ],
)  # fmt: skip
def test_what_only_a_person_may_change_is_blocked(path: str) -> None:
    assert ("block", path) in levels(screen(change(path, "src/a.py"), Policy()))


@pytest.mark.parametrize(
    "path",
    ["pyproject.toml", "requirements-dev.txt", "poetry.lock", "web/package-lock.json", "go.sum",
     "Dockerfile", "docker/base.Dockerfile",
     "Makefile", "compose.yaml", "tox.ini", "tests/conftest.py", "scripts/test.sh"],
)  # fmt: skip
def test_what_decides_a_build_is_shown_to_the_reviewer(path: str) -> None:
    assert levels(screen(change(path), Policy())) == {("flag", path)}


def test_what_was_added_and_taken_back_counts() -> None:
    seen = screen(change("src/a.py", touched=(".github/workflows/evil.yml",)), Policy())
    assert levels(seen) == {("block", ".github/workflows/evil.yml")}


def test_both_names_of_a_renamed_file_count() -> None:
    away = Imported(
        "a", "b", 1, (FileChange("old/ci.yml", "R", "100644", 5, old_path=".github/workflows/ci.yml"),)
    )
    to = Imported("a", "b", 1, (FileChange("CODEOWNERS", "R", "100644", 5, old_path="notes.txt"),))
    assert ("block", ".github/workflows/ci.yml") in levels(screen(away, Policy()))
    assert ("block", "CODEOWNERS") in levels(screen(to, Policy()))


def test_the_operators_paths_are_added_and_may_take_one_back() -> None:
    policy = Policy(protected=("migrations/", "!.github/ISSUE_TEMPLATE/"))
    seen = screen(
        change("app/Migrations/0001.py", ".github/ISSUE_TEMPLATE/bug.md", ".github/CODEOWNERS", "app/a.py"),
        policy,
    )
    assert levels(seen) == {("block", "app/Migrations/0001.py"), ("block", ".github/CODEOWNERS")}


@pytest.mark.parametrize("pattern", ["", "   ", "!", "/", "# a comment", None, 7, ("src/",)])
def test_a_policy_that_cannot_be_read_blocks_everything(pattern: object) -> None:
    seen = screen(change("src/a.py"), Policy(protected=("docs/", pattern)))  # type: ignore[arg-type]
    assert [f.level for f in seen] == ["block"]
    assert "everything is protected" in text(seen)


def test_too_many_and_too_large_files_are_blocked() -> None:
    policy = Policy(max_files=3, max_bytes=1000)
    many = screen(change("a", "b", "c", "d"), policy)
    assert text(many) == "4 files are changed, 3 are allowed"
    large = screen(change("a.bin", size=1001), policy, read=lambda p: pytest.fail("too large to read"))
    assert text(large) == "`a.bin` has 1001 bytes, 1000 are allowed"


@pytest.mark.parametrize(
    ("path", "mode", "level"),
    [
        ("vendor/lib", "160000", "block"),
        ("docs/link", "120000", "flag"),
        ("a\nb.py", "100644", "block"),
        ("a\u202ecod.py", "100644", "block"),
    ],
)
def test_strange_entries_are_noticed(path: str, mode: str, level: str) -> None:
    seen = screen(change(path, mode=mode), Policy(), read=reading({}))
    assert levels(seen) == {(level, path)}
    assert "\n" not in text(seen) and "\u202e" not in text(seen)


def test_a_secret_in_what_is_added_is_blocked_and_not_shown() -> None:
    read = reading({"src/a.py": f'x = 1\nTOKEN = "{TOKEN}"\n'})
    seen = screen(change("src/a.py", "src/b.py"), Policy(), read=read)
    assert text(seen) == "`src/a.py` has what looks like a secret in line 2: github-token"
    assert [f.level for f in seen] == ["block"]


def test_our_own_secret_is_blocked_in_any_form() -> None:
    ours = Redactor(("S3cr3t/value+42=",))
    read = reading({"src/a.py": "s = '" + "S3cr3t/value+42="[::-1] + "'"})
    assert [f.level for f in screen(change("src/a.py"), Policy(), read=read, redactor=ours)] == ["block"]
    assert screen(change("src/a.py"), Policy(), read=read) == ()


def test_what_the_base_has_already_is_no_news() -> None:
    old, new = reading({"a.py": f"T = '{TOKEN}'"}), reading({"a.py": f"# moved\n\nT = '{TOKEN}'"})
    assert screen(change("a.py"), Policy(), read=new, before=old) == ()
    assert [f.level for f in screen(change("a.py"), Policy(), read=new)] == ["block"]


def test_examples_as_documentation_has_them_are_for_the_reviewer() -> None:
    read = reading(
        {
            "README.md": "postgres://me:hunter22@localhost/db, AKIAIOSFODNN7EXAMPLE, "
            "Authorization: Bearer 0123456789abcdef"
        }
    )
    seen = screen(change("README.md"), Policy(), read=read)
    assert {f.level for f in seen} == {"flag"} and len(seen) == 3


def test_a_file_that_cannot_be_read_is_blocked() -> None:
    seen = screen(change("src/a.py"), Policy(), read=lambda path: b"")
    assert [f.level for f in seen] == ["block"] and "could not be read" in text(seen)


def test_weakened_tests_are_shown_to_the_reviewer() -> None:
    old = "def test_a(): ...\ndef test_b(): ...\ndef test_c(): ...\n"
    new = "@pytest.mark.skip\ndef test_a(): ...\ndef test_b(): ...\n"
    files = (
        FileChange("tests/test_gone.py", "D", "000000"),
        FileChange("tests/test_weak.py", "M", "100644", 60),
        FileChange("helpers.py", "R", "100644", 60, old_path="tests/test_hidden.py"),
        FileChange("run.sh", "M", "100755", 60),
    )
    imported = Imported("a", "b", 1, files)
    read = reading({"tests/test_weak.py": new, "run.sh": "pytest || true\n"})
    before = reading({"tests/test_weak.py": old, "run.sh": "pytest\n"})
    seen = screen(imported, Policy(), read=read, before=before)
    assert {f.level for f in seen} == {"flag"}
    assert text(seen).splitlines()[2:] == [
        "`helpers.py` was the test `tests/test_hidden.py` and is none any more",
        "`run.sh` makes a command succeed whatever it finds (`|| true`, `set +e`)",
        "`tests/test_gone.py` was a test and is deleted",
        "`tests/test_weak.py` has 1 tests fewer than before",
        "`tests/test_weak.py` skips or expects to fail: 1 more than before",
    ]
    unknown = screen(change("tests/test_weak.py"), Policy(), read=read)
    assert levels(unknown) == {("flag", "tests/test_weak.py")}


@pytest.mark.parametrize(
    "line",
    ["@pytest.mark.skipif(True, reason='x')", "@pytest.mark.xfail", "    pytest.skip('x')",
     "@unittest.skip('x')", "self.skipTest('x')",
     "it.skip('a', () => {})", "xdescribe('a', f)", "\tt.Skip()", "#[ignore]", "@Disabled"],
)  # fmt: skip
def test_ways_to_skip_are_known(line: str) -> None:
    path = "tests/test_a.py"
    assert levels(screen(change(path, status="A"), Policy(), read=reading({path: line}))) == {("flag", path)}


def test_the_text_says_the_first_and_how_many_more() -> None:
    seen = screen(change(*(f".github/{i}" for i in range(40))), Policy())
    lines = text(seen).splitlines()
    assert lines[0] == "`.github/0` is a path that only a person may change (and 39 more)"
    assert lines[-1] == "… and 10 more" and len(lines) == 33
    assert text(()) == ""
    assert text((Finding("block", "`@x`\n<!--", "why"),)) == "`\ufffd@x\ufffd\ufffd<!--` why"


def test_there_is_a_bound() -> None:
    assert len(screen(change(*(f".x/{i}" for i in range(999))), Policy())) == MOST_FINDINGS


@settings(deadline=None)
@given(st.sampled_from([p for p in BLOCKED if not set(p) & set("*!/")]), st.data())
def test_no_spelling_of_a_protected_name_gets_through(name: str, data: st.DataObject) -> None:
    chars = [data.draw(st.sampled_from([c, c.upper(), c.lower(), c + "\u200b", full(c)])) for c in name]
    folder = data.draw(st.sampled_from(["", "a/", "A/b/"]))
    path = folder + "".join(chars)
    assert ("block", path) in levels(screen(change(path), Policy()))


def full(c: str) -> str:
    """The wide form of a character."""
    return chr(ord(c) + 0xFEE0) if 0x21 <= ord(c) <= 0x7E else c
