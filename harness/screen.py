"""The policy on what a worker changed: which paths, how much, secrets in it, tests made weaker.

The one rule: pure, and closed when in doubt. A pattern that cannot be read blocks everything; a name that
only looks different (case, composition, width, invisible characters) is the name it looks like. Judged is the
whole range, so that what was added and taken back counts too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from harness.core.redact import Redactor
from harness.core.shapes import WEAK
from harness.domain import FileChange, Imported
from harness.policy import Policy

if TYPE_CHECKING:
    from pathspec import PathSpec

Read = Callable[[str], bytes]

BLOCKED = (
    # Every folder at the top whose name begins with a dot steers a tool; two hold ordinary work.
    "/.*/", "!/.changeset/", "!/.storybook/", ".github/", ".gitlab/", ".gitlab-ci.yml", ".circleci/",
    ".buildkite/", "azure-pipelines*.yml", "Jenkinsfile", ".harness.toml", "CODEOWNERS", ".gitmodules",
    ".gitattributes", ".lfsconfig", ".mailmap", ".git/", ".githooks/", ".husky/", "/hooks/", "lefthook*",
    ".lefthook*", ".pre-commit-config.y*ml", "AGENTS.md", "AGENTS.override.md", "CLAUDE.md",
    "CLAUDE.local.md", "GEMINI.md", ".claude/", ".codex/", ".gemini/", ".cursor/", ".cursorrules",
    ".windsurfrules", ".clinerules", ".aider*", ".mcp.json", ".vscode/", ".devcontainer/", ".envrc",
    "copilot-instructions.md",
)  # fmt: skip
"""Blocked unless the operator's patterns say otherwise (`!pattern`)."""

FLAGGED = (
    "pyproject.toml", "setup.py", "setup.cfg", "requirements*.txt", "constraints*.txt", "Pipfile*",
    "*.lock", "*-lock.json", "*-lock.y*ml", "package.json", "npm-shrinkwrap.json", ".npmrc", ".yarnrc*",
    "Cargo.toml", "go.mod", "go.sum", "Gemfile", "*.gemspec", "composer.json", "pom.xml", "*.gradle",
    "*.gradle.kts", "*.csproj", "Package.swift", "mix.exs", "Dockerfile*", "*.Dockerfile", "Containerfile*",
    "docker-compose*.y*ml", "compose*.y*ml", "Makefile", "GNUmakefile", "*.mk", "justfile",
    "Taskfile*.y*ml", "tox.ini", "noxfile.py", "pytest.ini", ".coveragerc", "conftest.py", "/ci/", "/.ci/",
    "scripts/build*", "scripts/test*", "scripts/check*", "scripts/ci*",
)  # fmt: skip
"""Worth a person's look: what runs on other machines, or decides what the tests say."""

TESTS = (
    "tests/", "test/", "spec/**/*.rb", "__tests__/", "test_*.py", "*_test.py", "*_test.go", "*.test.[jt]s*",
    "*.spec.[jt]s*", "*_spec.rb", "*Test.java", "*Tests.cs",
)  # fmt: skip

SYMLINK = "120000"
GITLINK = "160000"
MOST_FINDINGS = 200
MOST_SHOWN = 30
MOST_READ_BYTES = 64 << 20
TURNS = frozenset({"LRE", "LRO", "LRI", "RLE", "RLO", "RLI", "FSI", "PDF", "PDI"})
IGNORED = frozenset("\u00ad\u034f\u180e\ufeff\u115f\u1160\u17b4\u17b5\u3164\uffa0")

SKIPS = re.compile(
    rb"@(?:pytest\.mark\.(?:skip|skipif|xfail)|unittest\.(?:skip|skipIf|skipUnless|expectedFailure))\b"
    rb"|@(?:Disabled|Ignore)\b"
    rb"|\bpytest\.(?:skip|xfail|importorskip)\(|\bself\.skipTest\(|\bpytestmark\s*=.*\b(?:skip|xfail)"
    rb"|\b(?:it|test|describe)\.(?:skip|todo|failing)\b|\bx(?:it|describe|test)\(|\bt\.Skip(?:f|Now)?\("
    rb"|#\[ignore\b|\bcollect_ignore\b"
)
TEST_CASES = re.compile(
    rb"^[ \t]*(?:(?:async )?def test\w*\(|(?:it|test)\(|#\[(?:\w+::)?test\]|@Test\b)|^func Test\w*\(",
    re.MULTILINE,
)
TRUE_ANYWAY = re.compile(rb"\|\|[ \t]*(?:true|:|exit[ \t]+0)\b|^[ \t]*set[ \t]+\+e\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Finding:
    """`block` stops the work until a person decides; `flag` is shown to whoever reviews it."""

    level: Literal["block", "flag"]
    path: str
    why: str


def screen(
    imported: Imported,
    policy: Policy,
    *,
    read: Read | None = None,
    before: Read | None = None,
    redactor: Redactor | None = None,
) -> tuple[Finding, ...]:
    """What is wrong with a change, blocks first. `read` gives the new content of a path, `before` the base's:
    with it, only what is added counts. `redactor` knows our secrets by value; shapes are known anyway."""
    found = [*_sizes(imported, policy), *_paths(imported, policy), *_names(imported), *_gone_tests(imported)]
    if read is not None:
        found += _contents(imported, policy, read, before, redactor or Redactor())
    order = sorted(set(found), key=lambda f: (f.level != "block", f.path, f.why))
    return tuple(order[:MOST_FINDINGS])


def text(findings: Sequence[Finding]) -> str:
    """For people: the first finding says how many there are, then one line each. Names are shown as
    code, with nothing in them that could act."""
    lines = [f"{_shown(f.path)} {f.why}" if f.path else f.why for f in findings]
    if len(lines) < 2:
        return "".join(lines)
    more = [f"… and {len(lines) - MOST_SHOWN} more"] if len(lines) > MOST_SHOWN else []
    return "\n".join([f"{lines[0]} (and {len(lines) - 1} more)", "", *lines[:MOST_SHOWN], *more])


def _shown(path: str) -> str:
    safe = "".join(c if c.isprintable() and c != "`" else "\ufffd" for c in path)
    return f"`{safe if len(safe) <= 200 else safe[:199] + '…'}`"


def _sizes(imported: Imported, policy: Policy) -> Iterable[Finding]:
    if len(imported.files) > policy.max_files:
        yield Finding("block", "", f"{len(imported.files)} files are changed, {policy.max_files} are allowed")
    for f in imported.files:
        if f.size > policy.max_bytes:
            yield Finding("block", f.path, f"has {f.size} bytes, {policy.max_bytes} are allowed")


def _paths(imported: Imported, policy: Policy) -> Iterable[Finding]:
    try:
        blocked = spec((*BLOCKED, *policy.protected))
    except (TypeError, ValueError, AttributeError) as e:
        why = f"a protected path of the policy cannot be read ({e}), so everything is protected"
        yield Finding("block", "", why)
        return
    flagged = spec(FLAGGED)
    for path in touched(imported):
        if matches(blocked, path):
            yield Finding("block", path, "is a path that only a person may change")
        elif matches(flagged, path):
            yield Finding("flag", path, "decides what is installed, built or tested")


def touched(imported: Imported) -> tuple[str, ...]:
    """Every path of the range, old names included."""
    paths = {p for f in imported.files for p in (f.path, f.old_path) if p} | set(imported.touched)
    return tuple(sorted(paths))


def _names(imported: Imported) -> Iterable[Finding]:
    for path in touched(imported):
        if any(unicodedata.category(c) == "Cc" or unicodedata.bidirectional(c) in TURNS for c in path):
            yield Finding(
                "block", path, "has a name with control characters, or that turns the writing around"
            )
    for f in imported.files:
        if f.mode == GITLINK and f.status != "D":
            yield Finding("block", f.path, "is a submodule, or a repository inside the repository")
        elif f.mode == SYMLINK and f.status != "D":
            yield Finding("flag", f.path, "is a symbolic link")


def _gone_tests(imported: Imported) -> Iterable[Finding]:
    tests = spec(TESTS)
    for f in imported.files:
        if f.status == "D" and matches(tests, f.path):
            yield Finding("flag", f.path, "was a test and is deleted")
        if f.status == "R" and matches(tests, f.old_path) and not matches(tests, f.path):
            yield Finding("flag", f.path, f"was the test {_shown(f.old_path)} and is none any more")


def _contents(
    imported: Imported, policy: Policy, read: Read, before: Read | None, redactor: Redactor
) -> Iterable[Finding]:
    """In the changed files: secrets, skipped and lost tests, failures made good. The sum is bounded."""
    tests, left = spec(TESTS), MOST_READ_BYTES
    for f in imported.files:
        if f.status == "D" or f.mode in (GITLINK, SYMLINK) or f.size > policy.max_bytes:
            continue
        left -= f.size
        if left < 0:
            yield Finding("block", f.path, "was not looked at for secrets: the change is too large")
            continue
        new = read(f.path)
        if f.size and not new:
            yield Finding("block", f.path, "could not be read, so nobody knows what is in it")
            continue
        old = before(f.old_path or f.path) if before is not None and f.status != "A" else b""
        yield from _secrets(f.path, new, old, redactor)
        if matches(tests, f.path):
            yield from _weaker(f, new, old, known=before is not None or f.status == "A")
        elif TRUE_ANYWAY.search(new) and len(TRUE_ANYWAY.findall(new)) > len(TRUE_ANYWAY.findall(old)):
            yield Finding("flag", f.path, "makes a command succeed whatever it finds (`|| true`, `set +e`)")


def _secrets(path: str, new: bytes, old: bytes, redactor: Redactor) -> Iterable[Finding]:
    """A secret of its maker's shape, or ours, blocks; what documentation is full of is for the reviewer.
    What the base has already is no news."""
    there = {old[s.start : s.end] for s in redactor.find(old)} if old else set()
    for s in redactor.find(new):
        if new[s.start : s.end] in there:
            continue
        line = new.count(b"\n", 0, s.start) + 1
        example = s.known < 0 and b"example" in new[s.start : s.end].lower()
        level: Literal["block", "flag"] = "flag" if s.kind in WEAK or example else "block"
        yield Finding(level, path, f"has what looks like a secret in line {line}: {s.kind}")


def _weaker(f: FileChange, new: bytes, old: bytes, known: bool) -> Iterable[Finding]:
    """Tests that were taken out of the run. Where the base is not known, a mark that is there is told of."""
    more = len(SKIPS.findall(new)) - len(SKIPS.findall(old))
    if more > 0:
        what = "skips or expects to fail" if known else "has marks that skip tests, or expect them to fail"
        yield Finding("flag", f.path, f"{what}: {more} more than before" if known else what)
    lost = len(TEST_CASES.findall(old)) - len(TEST_CASES.findall(new))
    if known and lost > 0:
        yield Finding("flag", f.path, f"has {lost} tests fewer than before")


def fold(text: str) -> str:
    """As the eye and a careless file system see a name: no case, no width, nothing invisible."""
    flat = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return "".join(c for c in flat if unicodedata.category(c) != "Cf" and c not in IGNORED)


def matches(patterns: PathSpec[Any], path: str) -> bool:
    """Also as Windows reads it: backslashes part folders, dots and blanks at a name's end are nothing."""
    name = fold(path)
    bare = "/".join(part.rstrip(". ") or part for part in name.replace("\\", "/").split("/"))
    return bool(patterns.match_file(name) or patterns.match_file(bare))


@lru_cache(maxsize=16)
def spec(patterns: tuple[str, ...]) -> PathSpec[Any]:
    """Patterns as in .gitignore; the last that matches decides. ValueError for one that says nothing."""
    import pathspec

    for p in patterns:
        if not p.strip() or p.startswith("#") or p.strip() in ("!", "/", "!/"):
            raise ValueError(f"{p!r} is no pattern")
    return pathspec.PathSpec.from_lines("gitignore", [fold(p) for p in patterns])
