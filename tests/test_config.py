"""The configuration: what is accepted, what is refused and with which line, and what a reload does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from harness.config import (
    Config,
    ConfigError,
    RepositoryConfig,
    Secret,
    load,
    load_repository,
    parse,
    parse_repository,
    policy,
    reload,
    render,
    write,
)
from harness.config.reader import RESTART, keys
from harness.policy import Policy

ROOT = Path(__file__).parent.parent


def refused(text: str | bytes, environ: Mapping[str, str] | None = None) -> str:
    """The one line that a file is refused with."""
    data = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(ConfigError) as caught:
        parse(data, "harness.toml", environ or {})
    line = str(caught.value)
    assert "\n" not in line and "Traceback" not in line
    return line


def read(text: str, environ: Mapping[str, str] | None = None) -> Config:
    return parse(text.encode(), "harness.toml", environ or {})


# ---------------------------------------------------------------- defaults and the reference


def test_the_defaults_are_those_of_the_specification() -> None:
    c = Config()
    assert (c.director.interval_seconds, c.director.max_workers, c.director.max_retries) == (60, 3, 3)
    assert c.director.max_open_reviews == 10
    assert c.timeouts.worker_heartbeat_ttl_seconds == 90
    assert c.timeouts.worker_watchdog_seconds == 3600
    assert (c.timeouts.idle_seconds, c.timeouts.issue_claim_stale_seconds) == (1200, 21600)
    assert c.timeouts.validate_seconds == 1800
    assert (c.retry.mode, c.retry.initial_seconds, c.retry.max_seconds) == ("exponential", 1, 30)
    assert (c.containers.workdir, c.containers.network, c.containers.runtime) == (
        "/workspace",
        "none",
        "auto",
    )
    assert (c.forge.kind, c.release.merge, c.release.mode, c.release.gates) == (
        "github",
        "person",
        "train",
        "command",
    )
    assert (c.workflow.mode, c.workflow.confidence_threshold, c.workflow.max_iterations) == (
        "single",
        0.85,
        10,
    )
    g = c.budget.github
    assert (g.max_concurrent_requests, g.min_seconds_between_writes, g.cooldown_seconds) == (2, 2, 60)
    assert c.validation.commands == ("scripts/build.sh && scripts/test.sh",)
    assert c.self_review.enabled is False
    assert c.data_dir == Path(".harness") and c.store_path == ".harness/store.db"


def test_the_reference_names_every_key_with_its_default() -> None:
    text = (ROOT / "config" / "dev.toml").read_text()
    assert text == render(), "write it anew: python -m harness.config.reference config/dev.toml"
    assert parse(text.encode(), "dev.toml", {}) == Config()

    written = set()

    def walk(table: Mapping[str, Any], prefix: str = "") -> None:
        for name, value in table.items():
            written.add(prefix + name)
            if isinstance(value, dict):
                walk(value, f"{prefix}{name}.")

    walk(tomllib.loads(text))
    # Prices and path rules are tables that the user names; the reference says how.
    inner = ("budget.model.prices.", "validation.paths.")
    assert written == {k for k in keys(Config) if not k.startswith(inner)}


def test_every_key_of_the_reference_is_explained() -> None:
    lines = render().splitlines()
    for before, line in pairwise(lines):
        if re.match(r"[a-z_]+ = ", line) or line.startswith("["):
            assert before.startswith("# "), line


def test_all_is_frozen() -> None:
    c = Config()
    with pytest.raises(ValidationError):
        c.director.max_workers = 5  # type: ignore[misc]
    with pytest.raises(ValidationError):
        c.director = c.director  # type: ignore[misc]


def test_importing_the_package_does_not_import_pydantic() -> None:
    code = "import sys, harness.config; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


# ---------------------------------------------------------------- mistakes


def test_a_byte_order_mark_is_accepted() -> None:
    text = b'\xef\xbb\xbf[forge]\nrepo = "acme/widget"\n'
    assert parse(text, "harness.toml", {}).forge.repo == "acme/widget"
    assert read("[director]\r\nmax_workers = 2\r\n").director.max_workers == 2


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[director]\nmax_workers = 1\nmax_workers = 2\n", ":3: the same key twice: keep one of them"),
        ("[forge]\nrepo = 'a/b'\n[forge]\n", ":3: the same table twice (cannot declare"),
        ("[director]\nmax_workers = 'two'\n", ":2: director.max_workers: expected a whole number"),
        ("[director]\nmax_workers = 2.0\n", ":2: director.max_workers: expected a whole number"),
        ("[director]\nmax_workers = true\n", ":2: director.max_workers: expected a whole number"),
        ("director.max_workers = '3'\n", ":1: director.max_workers: expected a whole number"),
        ("[director]\nmax_worker = 1\n", ":2: director.max_worker: unknown key; did you mean max_workers?"),
        ("[directer]\n", ":1: directer: unknown key; did you mean director?"),
        ("\n\n[director]\nidle_seconds = 5\n", ":4: director.idle_seconds: unknown key here; it belongs"),
        ("max_workers = 5\n", ":1: max_workers: unknown key here; it belongs to [director]"),
        ("[log]\nzzz = 5\n", ":2: log.zzz: unknown key; valid here: level, format"),
        ("[forge]\ntoken = 'ghp_1234'\n", "use token_env or token_file"),
        ("[budget.github]\ncooldown = 1\n", ":2: budget.github.cooldown: unknown key"),
        ('[forge]\nrepo = "acme\n', ":2: not TOML: "),
        ("[forge\n", ":1: not TOML: "),
        ("a = ", ":1: not TOML: "),
        ("[director]\nmax_workers = 0\n", ":2: director.max_workers: expected at least 1"),
        ("[director]\nmax_workers = -1\n", ":2: director.max_workers: expected at least 1"),
        ("[director]\nmax_workers = 1000000\n", ":2: director.max_workers: expected at most 100000"),
        ("[director]\nmax_retries = 0\n", "director.max_retries: expected at least 1"),
        ("[director]\ninterval_seconds = 0\n", "director.interval_seconds: expected more than 0"),
        ("[timeouts]\nidle_seconds = -5\n", "timeouts.idle_seconds: expected more than 0"),
        ("[timeouts]\nidle_seconds = inf\n", "timeouts.idle_seconds: expected"),
        ("[timeouts]\nidle_seconds = nan\n", "timeouts.idle_seconds: expected"),
        ("[containers]\nmemory = '4 gigs'\n", 'containers.memory: expected a size such as "512m" or "4g"'),
        ("[containers]\nmemory = 0\n", "containers.memory: expected at least 1"),
        ("[release]\nmerge = 'robot'\n", 'release.merge: expected one of "person" or "auto"'),
        ("[release]\ntag = 'v1'\n", 'release.tag: expected the word "{version}" in it'),
        ("[forge]\nrepo = 'widget'\n", "forge.repo: expected OWNER/NAME"),
        ("[forge]\nurl = 'git@github.com:a/b'\n", "forge.url: expected a URL that begins with https://"),
        ("[forge]\nurl = 'https://u:hunter2@x.example'\n", "forge.url: expected a URL without a user"),
        ("[forge]\nallowed_people = 'me'\n", "forge.allowed_people: expected a list in brackets"),
        ("[forge]\nallowed_people = [1]\n", "forge.allowed_people[0]: expected text in quotes"),
        ("[self_review]\nenabled = 'yes'\n", "self_review.enabled: expected true or false"),
        ("director = 5\n", ":1: director: expected a table"),
        ("[git]\nauthor = 'me'\n", 'git.author: expected "Name <mail@example.org>"'),
        ("[gateway]\nlisten = '8080'\n", "gateway.listen: expected HOST:PORT"),
        ("[validation]\ncommands = ['make', ' ']\n", "validation.commands: expected no empty command"),
        ("[[validation.paths]]\nmatch = []\ncommands = ['make']\n", "paths[0].match: expected at least one"),
        ("[[validation.paths]]\nmatch = ['a']\n", "validation.paths[0].commands: this key is needed here"),
        ("[budget.model.prices.gpt]\ninput = 3\n", "prices.gpt.input: unknown key; did you mean input_usd?"),
        ("[director]\nmax_workers = 0\nmax_retries = 0\nnope = 1\n", "nope: unknown key"),
        ("[director]\nmax_workers = 0\nmax_retries = 0\n", "(and 1 more)"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_place_and_remedy(text: str, line: str) -> None:
    assert line in refused(text)


def test_bytes_that_are_not_text_are_named_by_line() -> None:
    assert refused(b"[forge]\nrepo = '\xff'\n").startswith("harness.toml:2: not UTF-8")
    assert "nested too deeply" in refused("a = " + "[" * 20_000)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    for path, line in (
        (tmp_path / "missing.toml", "is not there: `harness init` writes one"),
        (tmp_path, "is not a regular file"),
    ):
        with pytest.raises(ConfigError, match=re.escape(line)):
            load(path)
    big = tmp_path / "big.toml"
    big.write_text("#" * (1 << 20) + "#")
    with pytest.raises(ConfigError, match="more than 1048576 bytes"):
        load(big)
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match="not a regular file"):
        load(pipe)


def test_a_value_in_the_wrong_place_is_never_shown() -> None:
    secret = "ghp_S3cretS3cretS3cret"
    for text in (
        f"[forge]\ntoken_env = '{secret}-x'\n",
        f"[forge]\ntoken = '{secret}'\n",
        f"[director]\nmax_workers = '{secret}'\n",
        f"[release]\nmerge = '{secret}'\n",
        f"[forge]\nurl = '{secret}'\n",
        f"[containers]\nmemory = '{secret}'\n",
    ):
        assert secret not in refused(text)
    assert "S3cret" not in refused("[forge]\nrepo = '${A}'\n", {"A": "S3cret"})


# ---------------------------------------------------------------- variables and secrets


def test_only_braced_variables_expand_and_only_once() -> None:
    text = """
    [agent.env]
    password = 'S3cret$USER!'
    x = '$${HOME}'
    y = '${A}'
    z = 'a${A}b${B}c$'
    other = '$A ${1} ${A-b} ${} $('
    dollars = '$$$$'
    """
    env = read(text, {"A": "${B}", "B": "b", "USER": "me", "HOME": "/root"}).agent.env
    assert env == {
        "password": "S3cret$USER!",
        "x": "${HOME}",
        "y": "${B}",
        "z": "a${B}bbc$",
        "other": "$A ${1} ${A-b} ${} $(",
        "dollars": "$$",
    }


def test_a_missing_variable_is_named_with_its_key() -> None:
    line = refused("[forge]\nrepo = 'acme/widget'\nallowed_people = ['me', '${MISSING}']\n", {"X": "y"})
    assert line == "harness.toml:3: forge.allowed_people[1]: the environment variable MISSING is not set"
    assert read("[log]\n# ${MISSING}\n").log.level == "info"


def test_an_expanded_value_is_checked_like_any_other() -> None:
    assert read("[forge]\nrepo = '${R}'\n", {"R": "acme/widget"}).forge.repo == "acme/widget"
    assert "expected OWNER/NAME" in refused("[forge]\nrepo = '${R}'\n", {"R": "nope"})


def test_a_repository_cannot_read_our_environment() -> None:
    found = parse_repository(b"[prompts]\ncode = '${HOME} $$'\n", ".harness.toml")
    assert found.prompts.code == "${HOME} $$"


def test_a_secret_is_read_when_it_is_used(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    c = read(f"[forge]\ntoken_file = '{file}'\n")
    assert c.forge.token.read() == "one"
    file.write_text("two")
    assert c.forge.token.read() == "two", "a file wins over a variable, and counts at once"

    c = read("[forge]\ntoken_env = 'T'\n")
    assert c.forge.token.read({"T": " three \n"}) == "three"
    for secret, line in (
        (c.forge.token, "forge.token_env: the environment variable T is not set or empty"),
        (Secret("forge.token", file=str(tmp_path / "no")), "No such file"),
        (Secret("forge.token", file=str(tmp_path)), "is not a regular file"),
        (Secret("budget.model.key"), "name a variable in budget.model.key_env"),
    ):
        with pytest.raises(ConfigError, match=re.escape(line)):
            secret.read({})
    file.write_text("  \n")
    with pytest.raises(ConfigError, match="is empty"):
        Secret("x", file=str(file)).read()
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not text"):
        Secret("x", file=str(file)).read()
    assert not Secret("x") and Secret("x", env="E")


def test_no_secret_in_hash_or_in_what_is_shown() -> None:
    text = "[agent.env]\nA = '${A}'\n[forge]\nrepo = 'acme/widget'\nallowed_people = ['x', '${B}']\n"
    one = read(text, {"A": "S3cret1", "B": "S3cret2"})
    two = read(text, {"A": "other", "B": "another"})
    assert one.hash() == two.hash() and one.agent.env != two.agent.env
    assert "S3cret" not in str(one.shown())
    assert one.shown()["forge"]["allowed_people"] == ["x", "${B}"]
    assert re.fullmatch("[0-9a-f]{64}", one.hash())


def test_the_hash_is_of_the_meaning() -> None:
    assert read("[director]\nmax_workers = 3\n").hash() == Config().hash()
    assert read("[director]\nmax_workers = 4\n").hash() != Config().hash()
    assert read("[containers]\nmemory = '4096m'\n").hash() == Config().hash()
    a = read("[director]\nmax_workers = 4\ninterval_seconds = 5\n")
    b = read("[director]\ninterval_seconds = 5.0\nmax_workers = 4\n")
    assert a.hash() == b.hash()


# ---------------------------------------------------------------- reload


def test_a_broken_file_leaves_the_last_good_one(tmp_path: Path) -> None:
    path = tmp_path / "harness.toml"
    path.write_text("[director]\nmax_workers = 3\n")
    old = load(path)
    path.write_text("[director]\nmax_workers = 'x'\n")
    new, kept = reload(old, path)
    assert isinstance(new, ConfigError) and "max_workers" in str(new) and kept == ()
    path.unlink()
    assert isinstance(reload(old, path)[0], ConfigError)


@pytest.mark.parametrize("text", ["", "# written anew\n", "[forge]\nrepo = 'acme/widget'\n"])
def test_a_file_that_lacks_what_is_needed_is_broken_too(text: str, tmp_path: Path) -> None:
    path = tmp_path / "harness.toml"
    path.write_text(
        "[forge]\nrepo = 'acme/widget'\n[agent]\nkind = 'command'\ncommand = ['true']\n"
        "[validation]\ncommands = ['true']\n"
    )
    old = load(path)
    assert old.missing() == ()
    path.write_text(text)
    new, kept = reload(old, path)
    assert isinstance(new, ConfigError) and str(path) in str(new) and "not set" in str(new) and kept == ()


def test_what_is_safe_changes_and_the_rest_is_named(tmp_path: Path) -> None:
    path = tmp_path / "harness.toml"
    path.write_text("[forge]\nrepo = 'acme/widget'\n")
    old = load(path)
    path.write_text("[director]\nmax_workers = 1\ndata_dir = '/elsewhere'\n[forge]\nrepo = 'acme/other'\n")
    new, kept = reload(old, path)
    assert isinstance(new, Config)
    assert new.director.max_workers == 1
    assert kept == ("director.data_dir", "forge.repo")
    assert (new.director.data_dir, new.forge.repo) == (".harness", "acme/widget"), "half a change is none"
    assert reload(old, path)[1] == kept
    path.write_text("[forge]\nrepo = 'acme/widget'\n")
    assert reload(old, path) == (old, ())


def test_keys_that_need_a_restart_exist() -> None:
    assert set(RESTART) <= set(keys(Config))


def test_a_kept_key_stays_out_of_sight_too(tmp_path: Path) -> None:
    path = tmp_path / "harness.toml"
    path.write_text("[forge]\nrepo = '${REPO_OF_THE_TEST}'\n")
    os.environ["REPO_OF_THE_TEST"] = "acme/widget"
    try:
        old = load(path)
    finally:
        del os.environ["REPO_OF_THE_TEST"]
    path.write_text("[forge]\nrepo = 'acme/other'\n")
    new, kept = reload(old, path)
    assert isinstance(new, Config) and kept == ("forge.repo",)
    assert new.forge.repo == "acme/widget" and new.shown()["forge"]["repo"] == "${REPO_OF_THE_TEST}"


# ---------------------------------------------------------------- the repository's file


REPOSITORY = b"""
[validation]
commands = ["make test"]

[[validation.paths]]
match = ["docs/**"]
commands = ["make docs"]

[[validation.paths]]
match = ["web/**", "*.css"]
commands = ["make web"]

[prepare]
commands = ["make deps"]
allowed_hosts = ["mirror.example"]

[prompts]
code = "Write small functions."

[policy]
protected_paths = ["deploy/**"]

[gates]
kind = "checks"
required_checks = ["ci"]
"""


def test_a_repository_says_how_it_is_built_and_adds_protection() -> None:
    found = parse_repository(REPOSITORY, ".harness.toml")
    both = Config().with_repository(found)
    assert both.validation.commands == ("make test",)
    assert both.prepare.commands == ("make deps",)
    assert both.release.gates == "checks" and found.gates.required_checks == ("ci",)
    assert both.policy.protected_paths == (*Config().policy.protected_paths, "deploy/**")
    assert Config().with_repository(RepositoryConfig()) == Config()


def test_a_repository_cannot_widen_what_is_allowed() -> None:
    for text in (
        "[director]\nmax_workers = 9\n",
        "[policy]\nmax_files = 9\n",
        "[containers]\nnetwork = 'bridge'\n",
    ):
        with pytest.raises(ConfigError, match="unknown key"):
            parse_repository(text.encode(), ".harness.toml")


@pytest.mark.parametrize(
    ("changed", "commands"),
    [
        ((), ("make test",)),
        (("src/a.py",), ("make test",)),
        (("docs/a.md",), ("make docs",)),
        (("docs/a.md", "docs/b/c.md"), ("make docs",)),
        (("docs/a.md", "src/a.py"), ("make test", "make docs")),
        (("a/b/x.css", "docs/a.md"), ("make docs", "make web")),
        (("web/x.css",), ("make web",)),
    ],
)
def test_commands_follow_the_paths_of_a_change(changed: tuple[str, ...], commands: tuple[str, ...]) -> None:
    found = parse_repository(REPOSITORY, ".harness.toml").validation
    assert found is not None and found.for_changes(changed) == commands


def test_a_repository_without_a_file_has_defaults(tmp_path: Path) -> None:
    assert load_repository(tmp_path / ".harness.toml") == RepositoryConfig()
    (tmp_path / ".harness.toml").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="is not there"):
        load_repository(tmp_path / ".harness.toml")


# ---------------------------------------------------------------- what follows from it


def test_each_decision_takes_its_number_from_one_key() -> None:
    c = read("[timeouts]\nworker_heartbeat_ttl_seconds = 600\n[git]\nauthor = 'Ann B <ann@example.org>'\n")
    p = policy(c, instance="abc", runtime="docker", image="sha256:1")
    assert p.heartbeat_ttl_s == 600
    assert p.author == ("Ann B", "ann@example.org")
    assert (p.instance, p.runtime, p.image) == ("abc", "docker", "sha256:1")


def test_the_policys_defaults_agree_with_the_configurations() -> None:
    ours, theirs = policy(Config()), Policy()
    chosen = {"repo", "retry_jitter_s", "commands", "agent", "protected"}
    differ = {f for f in Policy.__dataclass_fields__ if getattr(ours, f) != getattr(theirs, f)}
    assert differ <= chosen


def test_what_a_director_still_needs_is_listed() -> None:
    lines = Config().missing()
    assert any(line.startswith("forge.repo") for line in lines)
    assert any(line.startswith("budget.model.upstream") for line in lines)
    ready = read(
        "[forge]\nrepo = 'acme/widget'\n[agent]\nkind = 'command'\ncommand = ['my-agent']\n"
        "[containers]\nruntime = 'docker'\nimage = 'worker:1'\n"
    )
    assert ready.missing() == ()
    assert all("\n" not in line for line in lines)


def test_init_writes_a_file_that_loads_and_replaces_none(tmp_path: Path) -> None:
    path = tmp_path / "new" / "harness.toml"
    values = {
        "forge": {"repo": "acme/widget"},
        "agent": {"kind": "codex"},
        "validation": {"commands": ["make test"]},
    }
    text = write(path, values)
    assert len(text.splitlines()) <= 12 and path.read_text() == text
    assert load(path).validation.commands == ("make test",)
    with pytest.raises(ConfigError, match="is there already"):
        write(path, values)
    with pytest.raises(ConfigError, match="did you mean repo"):
        write(tmp_path / "other.toml", {"forge": {"rep": "acme/widget"}})
    assert not (tmp_path / "other.toml").exists()
