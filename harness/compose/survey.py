"""What `harness init` finds out about a repository, and the configuration that follows from it.

The one rule: it only looks. What it cannot find out is left to the default or named as open, never invented.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness.core.result import Ok

GIT_S = 10.0
FORGE_S = 10.0
LINES_LIMIT = 12
GITHUB = "github.com"
TOKENS = ("GITHUB_TOKEN", "GH_TOKEN", "GITHUB_PAT")
MODELS: Mapping[str, str] = {"OPENAI_API_KEY": "https://api.openai.com/v1"}
IMAGES = ("harness-worker:codex", "harness-worker:dev")
READ_LIMIT_BYTES = 1 << 20
_SCP = re.compile(r"^(?:[^@/]+@)?([^:/]+):(?!//)(.+)$")


class SurveyError(Exception):
    """Nothing can be proposed: one line that says why."""


@dataclass(frozen=True)
class Found:
    """`open` names what a person must still do. `permission` and `protected` may not be known."""

    repo: str
    url: str
    default_branch: str = ""
    commands: tuple[str, ...] = ()
    commands_from: str = ""
    token_env: str = ""
    permission: str = ""
    protected: str = ""
    engine: str = ""
    image: str = ""
    key_env: str = ""
    upstream: str = ""
    open: tuple[str, ...] = field(default=())


def look(folder: Path, env: Mapping[str, str] = os.environ) -> Found:
    """Everything about the repository in `folder`. Raises SurveyError."""
    repo, url = remote(folder)
    commands, source = test_command(folder)
    token = next((name for name in TOKENS if env.get(name)), "")
    engine, image = _engine(repo)
    key = next((name for name in MODELS if env.get(name)), "")
    found = Found(
        repo, url, _branch(folder), commands, source, token, "", "", engine, image, key, MODELS.get(key, "")
    )
    if token:
        found = _ask(found, env[token])
    return replace(found, open=tuple(_open(found)))


def _open(f: Found) -> list[str]:
    lines = []
    if not f.token_env:
        lines.append(
            f"set {TOKENS[0]} where the director starts: a token that may write contents, issues and pulls"
        )
    elif f.permission in ("read", "none", "triage"):
        lines.append(f"{f.token_env} has {f.permission} on {f.repo}, and needs write")
    if not f.engine:
        lines.append("install Docker: without it workers are not isolated")
    elif not f.image:
        lines.append("harness image build --from IMAGE --agent codex, then set containers.image")
    if not f.key_env:
        lines.append(f"set {next(iter(MODELS))} where the director starts: the model's key")
    if not f.commands:
        lines.append('write what validates a change below [validation]: commands = ["…"]')
    return lines


# ---------------------------------------------------------------- the repository


def _git(folder: Path, *args: str) -> str:
    """One line of a git command's answer; empty when it has none."""
    path = shutil.which("git")
    if path is None:
        raise SurveyError("git is not installed: install git 2.46 or newer")
    done = subprocess.run(
        [path, "-C", str(folder), *args], capture_output=True, text=True, check=False, timeout=GIT_S
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def remote(folder: Path) -> tuple[str, str]:
    """OWNER/NAME and the forge's address, from the remote `origin` or the only one there is."""
    if not _git(folder, "rev-parse", "--git-dir"):
        raise SurveyError(f"{folder.absolute()} is not a git repository: run this in a clone of yours")
    names = _git(folder, "remote").split()
    name = "origin" if "origin" in names else names[0] if len(names) == 1 else ""
    if not name:
        what = f"has the remotes {', '.join(names)} and no origin" if names else "has no remote"
        raise SurveyError(f"{folder.absolute()} {what}: git remote add origin URL")
    return parse_remote(_git(folder, "remote", "get-url", name))


def parse_remote(text: str) -> tuple[str, str]:
    """`git@github.com:acme/widget.git` and the like. A credential in a URL is dropped, never shown."""
    scp = _SCP.match(text)
    if scp and "://" not in text:
        host, path, scheme, port = scp[1], scp[2], "https", ""
    else:
        parts = urlsplit(text)
        host, path = parts.hostname or "", parts.path
        plain = parts.scheme == "http"
        scheme = "http" if plain else "https"
        port = f":{parts.port}" if parts.port and parts.scheme in ("http", "https") else ""
    pieces = [p for p in path.removesuffix("/").removesuffix(".git").split("/") if p]
    if not host or len(pieces) < 2:
        raise SurveyError("the remote is not on a forge (HOST/OWNER/NAME): set the remote origin to one")
    return "/".join(pieces[-2:]), f"{scheme}://{host}{port}"


def _branch(folder: Path) -> str:
    head = _git(folder, "symbolic-ref", "--short", "refs/remotes/origin/HEAD")
    return head.partition("/")[2] or _git(folder, "symbolic-ref", "--short", "HEAD")


# ---------------------------------------------------------------- what validates a change


def test_command(folder: Path) -> tuple[tuple[str, ...], str]:
    """The commands, and the file that they were guessed from; nothing where nothing fits."""
    scripts = tuple(f"scripts/{n}.sh" for n in ("build", "test") if (folder / f"scripts/{n}.sh").is_file())
    if scripts:
        return (" && ".join(scripts),), "scripts/"
    for name, target in (("Makefile", "check"), ("Makefile", "test"), ("justfile", "test")):
        if re.search(rf"^{target}\s*:", _read(folder / name), re.MULTILINE):
            return (f"{'make' if name == 'Makefile' else 'just'} {target}",), name
    if '"test"' in _read(folder / "package.json") and _npm_test(folder):
        return ("npm test",), "package.json"
    known = (
        ("Cargo.toml", "cargo test"), ("go.mod", "go test ./..."), ("pom.xml", "mvn -q verify"),
        ("gradlew", "./gradlew check"), ("mix.exs", "mix test"),
    )  # fmt: skip
    for name, command in known:
        if (folder / name).is_file():
            return (command,), name
    return _python(folder)


def _npm_test(folder: Path) -> bool:
    """Whether there is a test script, and it is not the one that npm writes by itself."""
    try:
        scripts = json.loads(_read(folder / "package.json")).get("scripts", {})
    except (ValueError, AttributeError):
        return False
    test = scripts.get("test", "") if isinstance(scripts, dict) else ""
    return bool(test) and "no test specified" not in str(test)


def _python(folder: Path) -> tuple[tuple[str, ...], str]:
    for name in ("pyproject.toml", "setup.cfg", "tox.ini", "pytest.ini", "requirements-dev.txt"):
        if "pytest" in _read(folder / name):
            return ("python3 -m pytest -q",), name
    if (
        any((folder / n).is_file() for n in ("pyproject.toml", "setup.py"))
        or list(folder.glob("test*/test_*.py"))[:1]
    ):
        return ("python3 -m unittest discover",), "its Python files"
    return (), ""


def _read(path: Path) -> str:
    """The beginning of a text file; empty when it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(READ_LIMIT_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


# ---------------------------------------------------------------- engine and forge


def _engine(repo: str) -> tuple[str, str]:
    """One line about the engine, and a worker image that is there."""
    from harness.adapters.docker import DockerRuntime
    from harness.loop import SteadyClock

    docker = DockerRuntime(
        data=Path("/nonexistent"), instance="init", repo_key=repo.lower(), clock=SteadyClock(), timeout_s=5.0
    )
    probed = docker.probe()
    if not isinstance(probed, Ok):
        return "", ""
    image = next((n for n in IMAGES if isinstance(docker.image(n), Ok)), "")
    return probed.value.split(",")[0], image


def _ask(found: Found, token: str) -> Found:
    """What the forge itself says, where it answers and the token is good."""
    from harness.adapters.github.calls import Calls
    from harness.adapters.github.forge import PUBLIC_API
    from harness.adapters.github.shapes import repository
    from harness.adapters.github.wire import Wire
    from harness.adapters.governor import GITHUB_LIMITS, Governor
    from harness.loop import SteadyClock

    clock = SteadyClock()
    governor = Governor(lambda key: None, lambda key, value: None, clock, GITHUB_LIMITS)
    url = PUBLIC_API if found.url == f"https://{GITHUB}" else found.url
    calls = Calls(Wire(url, FORGE_S), governor, clock, lambda: token)
    page = calls.get(f"/repos/{found.repo}", repository)
    if not isinstance(page, Ok):
        return found
    there = page.value.value
    branch = calls.get(f"/repos/{found.repo}/branches/{there.default_branch}", _protected)
    protected = branch.value.value if isinstance(branch, Ok) else ""
    return replace(
        found, default_branch=there.default_branch, permission=there.permission, protected=protected
    )


def _protected(raw: Any) -> str:
    return "protected" if raw.get("protected") else "not protected"


# ---------------------------------------------------------------- the file


def propose(f: Found) -> str:
    """The operator's file: at most 12 lines; what the defaults say already is not in it."""
    sections: dict[str, dict[str, Any]] = {
        "forge": {
            **({"url": f.url} if f.url != f"https://{GITHUB}" else {}),
            "repo": f.repo,
            **({"token_env": f.token_env} if f.token_env not in ("", TOKENS[0]) else {}),
        },
        "containers": {"image": f.image or IMAGES[0]},
        "budget.model": {
            "upstream": f.upstream or next(iter(MODELS.values())),
            "key_env": f.key_env or next(iter(MODELS)),
        },
        "validation": {"commands": list(f.commands)} if f.commands else {},
    }
    lines = []
    for name, keys in sections.items():
        if keys:
            lines.append(f"[{name}]")
            lines += [f"{k} = {json.dumps(v, ensure_ascii=False)}" for k, v in keys.items()]
    assert len(lines) <= LINES_LIMIT, "a proposal is a dozen lines at most"
    return "\n".join(lines) + "\n"


def write(path: Path, text: str) -> None:
    """Write it, checked first; what is there already is never replaced. Raises ConfigError and OSError."""
    from harness.config.errors import ConfigError
    from harness.config.reader import parse

    parse(text.encode(), str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        raise ConfigError(f"{path} is there already: edit it, or remove it first") from None
    with os.fdopen(fd, "wb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(fd)
