"""The tables of the operator's file: every key, its type, its bounds, its default and what it is for.

The one rule: a default or a bound stands here and nowhere else; `config/dev.toml` is made from this file.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.config.secrets import Secret
from harness.config.types import (
    Cap,
    Commands,
    Count,
    Listen,
    OptionalSize,
    Pause,
    Person,
    RefPart,
    RepoName,
    Seconds,
    Section,
    Share,
    Size,
    Texts,
    Url,
    Variable,
    Versioned,
)

PROTECTED = (
    ".github/workflows/**",
    ".github/actions/**",
    ".harness.toml",
    "**/CODEOWNERS",
    ".gitattributes",
    ".gitmodules",
    "**/.claude/**",
    "**/.codex/**",
    "**/AGENTS.md",
    "**/CLAUDE.md",
)


class Director(Section):
    """The loop: how often it looks, how much it does at once, how often it tries again."""

    data_dir: str = Field(
        default=".harness",
        min_length=1,
        description="where its state lives: on a local disk, one director each",
    )
    interval_seconds: Seconds = Field(
        default=60.0, description="time between two looks when nothing wakes it sooner"
    )
    max_workers: Count = Field(default=3, description="workers at the same time")
    max_attempts: Count = Field(default=10, description="attempts of one issue in all, whatever ended them")
    max_retries: Count = Field(default=3, description="times that an agent may fail on an issue")
    max_rework_rounds: Count = Field(
        default=3, description="red tests, conflicts and reviews that go back to the agent"
    )
    max_infra_retries: Count = Field(
        default=5, description="failures of engine, gateway or disk; no agent pays for them"
    )
    max_wait_retries: Count = Field(
        default=20, description="times that the model's provider may ask to slow down"
    )
    max_open_reviews: Count = Field(
        default=10, description="pull requests waiting for people before new work stops"
    )
    quarantine_after: Count = Field(
        default=5, description="bugs in a row after which one machine is set aside"
    )
    min_free: Size = Field(default=5 << 30, description="free disk space below which no new work starts")
    priority_labels: Texts = Field(
        default=("priority:critical", "priority:high", "priority:medium", "priority:low"),
        description="labels that order the work, most urgent first; age decides between equals",
    )


class Timeouts(Section):
    """How long things may take. Nothing waits for ever."""

    worker_heartbeat_ttl_seconds: Seconds = Field(
        default=90.0, description="silence after which a worker is looked at more closely"
    )
    worker_watchdog_seconds: Seconds = Field(default=3600.0, description="one agent run in all")
    idle_seconds: Seconds = Field(
        default=1200.0, description="no output, no CPU and no changed file for so long: stalled"
    )
    issue_claim_stale_seconds: Seconds = Field(
        default=21600.0, description="a claim of another instance that old may be taken"
    )
    validate_seconds: Seconds = Field(default=1800.0, description="one validation run")
    prepare_seconds: Seconds = Field(default=1800.0, description="dependencies and clone of an attempt")
    start_seconds: Seconds = Field(default=300.0, description="from starting a container to its first word")
    harvest_seconds: Seconds = Field(default=300.0, description="saving the work of an attempt that ended")
    clean_seconds: Seconds = Field(default=600.0, description="removing container, clone and socket")
    stop_grace_seconds: Seconds = Field(
        default=10.0, description="between asking a process to end and ending it"
    )
    answer_seconds: Seconds = Field(default=604800.0, description="a person's answer to a question")
    review_seconds: Seconds = Field(default=1209600.0, description="a person's review of a pull request")


class Retry(Section):
    """How long to wait before the next try."""

    mode: Literal["exponential", "linear", "fixed"] = Field(
        default="exponential", description="how the wait grows"
    )
    initial_seconds: Seconds = Field(default=1.0, description="the first wait")
    max_seconds: Seconds = Field(default=30.0, description="the longest wait")
    jitter: Pause = Field(
        default=1.0, description="at most so many seconds more, so that not all come back at once"
    )


class Containers(Section):
    """Where workers and validations run, and what each may use."""

    runtime: Literal["auto", "docker", "process"] = Field(
        default="auto",
        description="auto: docker where an engine answers; process: no isolation, for trusted work only",
    )
    docker_host: str = Field(
        default="", description="the engine's address; empty: DOCKER_HOST, or the local socket"
    )
    host_data_dir: str = Field(
        default="", description="data_dir as the engine sees it, when the director runs in a container"
    )
    image: str = Field(
        default="",
        description="worker image; its digest is pinned per attempt (`harness image build` makes one)",
    )
    workdir: Annotated[str, Field(pattern="^/")] = Field(
        default="/workspace", description="the clone's place in the container"
    )
    memory: Size = Field(default=4 << 30, description="memory of one container")
    cpus: Annotated[float, Field(gt=0, le=1024)] = Field(
        default=2.0, description="processors of one container"
    )
    pids: Count = Field(default=512, description="processes in one container")
    tmp: Size = Field(default=512 << 20, description="size of its /tmp")
    output: Size = Field(default=200 << 20, description="output after which a run is stopped")
    network: Literal["none", "bridge"] = Field(
        default="none", description="none: the gateway's socket is the only way out"
    )


class Forge(Section):
    """The repository and who we are there. Secrets are named, never written here."""

    kind: Literal["github"] = Field(default="github", description="which interface the forge speaks")
    url: Url = Field(
        default="https://github.com", description="the forge; another host is taken for its API's address"
    )
    repo: RepoName = Field(default="", description="OWNER/NAME of the one repository")
    token_env: Variable = Field(
        default="GITHUB_TOKEN", description="environment variable that holds the token"
    )
    token_file: str = Field(default="", description="or a file that holds it; the file wins")
    app_id: Cap = Field(default=0, description="or a GitHub App: its id, and in key_file its private key")
    key_file: str = Field(default="", description="the App's private key (PEM)")
    label_prefix: RefPart = Field(
        default="harness", description="the label that starts work, and the beginning of the others"
    )
    branch_prefix: RefPart = Field(default="agent", description="work branches are PREFIX/ISSUE")
    allowed_people: Texts = Field(
        default=(), description="who may start, answer and approve; empty: all with write access"
    )
    timeout_seconds: Seconds = Field(default=20.0, description="one request")

    @property
    def token(self) -> Secret:
        return Secret("forge.token", "" if self.token_file else self.token_env, self.token_file)

    @property
    def app_key(self) -> Secret:
        return Secret("forge.key", file=self.key_file)


class Git(Section):
    """Who the commits are by."""

    author: Person = Field(default="harness <harness@localhost>", description="author and committer")
    sign_key: str = Field(
        default="", description="an SSH key file to sign commits and tags with; empty: unsigned"
    )
    sign_off: bool = Field(default=False, description="add Signed-off-by to commits")


class Release(Section):
    """What becomes a release, when, and who merges it."""

    mode: Literal["train", "pulls"] = Field(
        default="train",
        description="train: one release from a release branch; pulls: pull requests to the default branch",
    )
    version_scheme: Literal["patch", "minor", "major", "date"] = Field(
        default="minor", description="which number goes up"
    )
    branch: Versioned = Field(default="release/{version}", description="the release branch")
    tag: Versioned = Field(default="v{version}", description="the tag")
    when: Literal["settled", "manual"] = Field(
        default="settled",
        description="settled: when all has landed or is deferred; manual: `harness release cut`",
    )
    batch_size: Count = Field(default=20, description="issues of one release")
    cutoff_seconds: Seconds = Field(default=43200.0, description="then it goes without what is not ready")
    merge: Literal["person", "auto"] = Field(
        default="person", description="who merges the release's pull request"
    )
    merge_method: Literal["merge", "squash", "rebase"] = Field(
        default="merge", description="how it is merged"
    )
    required_review: Literal["none", "issue", "release"] = Field(
        default="none", description="issue: a person approves each pull request; release: the release's"
    )
    gates: Literal["command", "checks"] = Field(
        default="command",
        description="command: our own validation; checks: the forge's required ones on that commit",
    )
    checks_appear_seconds: Seconds = Field(default=600.0, description="no check by then: a person is asked")
    prepare: Commands = Field(
        default=(), description="commands that make the release's own commit: version, changelog"
    )


class Agent(Section):
    """Who does the coding."""

    kind: Literal["codex", "command", "scripted"] = Field(
        default="codex",
        description="command: any program (see `command`); scripted: plays a script, for tests",
    )
    model: str = Field(default="", description="the model's name; empty: the agent's own default")
    command: Texts = Field(default=(), description='the program and its arguments, for kind = "command"')
    env: dict[str, str] = Field(
        default={}, description="more environment for the agent; no secrets, it can read them"
    )


class Workflow(Section):
    """One call does the coding, or one role after another."""

    mode: Literal["single", "roles"] = Field(
        default="single", description="roles: analyst, tester, developer in turn"
    )
    confidence_threshold: Share = Field(default=0.85, description="below it a role asks a person")
    max_iterations: Count = Field(default=10, description="calls of roles for one issue")
    loop_threshold: Count = Field(default=4, description="the same step so often in a row is a loop")


class Policy(Section):
    """What a change may touch without a person."""

    protected_paths: Texts = Field(
        default=PROTECTED, description="patterns as in .gitignore; the repository's file adds to them"
    )
    max_files: Count = Field(default=100, description="changed files of one issue")
    max_bytes: Size = Field(default=5 << 20, description="size of one changed file")


class PathRule(Section):
    """Commands for a part of the repository."""

    match: Texts = Field(min_length=1, description="patterns as in .gitignore")
    commands: Commands = Field(min_length=1, description="what validates a change there")


class Validation(Section):
    """What must be green. The repository's own file, on its default branch, comes before this."""

    commands: Commands = Field(
        default=("scripts/build.sh && scripts/test.sh",),
        description="shell commands, run in order in a clean clone",
    )
    paths: tuple[PathRule, ...] = Field(
        default=(),
        description="[[validation.paths]] match = […], commands = […]: in place of the general ones",
    )

    def for_changes(self, changed: tuple[str, ...]) -> Commands:
        """The commands for a change: those of each rule that it touches, and the general ones unless every
        changed path belongs to a rule."""
        if not self.paths or not changed:
            return self.commands
        import pathspec

        specs = [(r, pathspec.PathSpec.from_lines("gitignore", r.match)) for r in self.paths]
        touched = [r for r, spec in specs if any(spec.match_file(p) for p in changed)]
        rest = any(not any(spec.match_file(p) for _, spec in specs) for p in changed)
        found = [c for r in touched for c in r.commands]
        return tuple(dict.fromkeys([*(self.commands if rest else ()), *found]))


class Prepare(Section):
    """Dependencies, fetched by a container with network before any outside text is seen."""

    commands: Commands = Field(default=(), description="shell commands; what they leave is mounted read-only")
    allowed_hosts: Texts = Field(default=(), description="hosts they may reach; empty: any")


class StoreSection(Section):
    """Where journals are kept."""

    url: str = Field(default="", description="sqlite:///PATH; empty: store.db in data_dir")
    limit: OptionalSize = Field(default=0, description="largest size of the file; 0: the disk")


class Gateway(Section):
    """The one way out of a worker, and the page for people."""

    listen: Listen = Field(
        default="", description="HOST:PORT of the page, health, metrics and webhooks; empty: none"
    )
    socket_dir: str = Field(default="", description="a short path for the workers' sockets; empty: chosen")
    webhook_secret_env: Variable = Field(
        default="", description="environment variable with the webhook's secret"
    )
    webhook_secret_file: str = Field(default="", description="or a file that holds it; the file wins")

    @property
    def webhook_secret(self) -> Secret:
        env = "" if self.webhook_secret_file else self.webhook_secret_env
        return Secret("gateway.webhook_secret", env, self.webhook_secret_file)


class Memory(Section):
    """Notes of earlier runs that agents are given."""

    where: Literal["store", "repository"] = Field(
        default="store", description="repository: under memory/, as a part of releases"
    )
    max_items: Count = Field(default=500, description="notes kept; the oldest go first")
    max_bytes: Size = Field(default=1 << 20, description="size of all notes kept")
    context_bytes: Size = Field(default=16 << 10, description="size of the notes that one run is given")


class SelfReview(Section):
    """Looking for work when there is none."""

    enabled: bool = Field(default=False, description="file findings as issues that a person must approve")
    severity: Literal["low", "medium", "high", "critical"] = Field(
        default="high", description="file findings from here on"
    )
    max_issues: Count = Field(default=5, description="issues filed by one review")
    max_iterations: Count = Field(default=3, description="revisions of one analysis")


class Audit(Section):
    """The evidence of each attempt."""

    dir: Annotated[str, Field(min_length=1)] = Field(
        default="audits", description="where bundles are written"
    )
    retention_seconds: Seconds = Field(
        default=90 * 86400.0,
        description="bundles older than this go once ticket and release are over, a release's together",
    )
    log_bytes: Size = Field(
        default=5 << 20, description="size of one log in a bundle; its beginning and end are kept"
    )
    bundle_bytes: Size = Field(
        default=200 << 20,
        description="size of one bundle: what matters least is left out; journals never are",
    )
    total_bytes: OptionalSize = Field(
        default=20 << 30,
        description="size of all: above it the oldest that are over go before their time; 0: the disk",
    )


class Log(Section):
    """What the director says on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="the least that is written"
    )
    format: Literal["auto", "text", "json"] = Field(
        default="auto", description="auto: text on a terminal, else json"
    )
