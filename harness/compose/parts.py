"""The pieces of a director's world, each made from its section of the configuration."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.adapters.governor import Governor
from harness.adapters.store import places
from harness.adapters.store.sql import SqlStore
from harness.audit.bundle import Caps
from harness.compose.errors import StartError
from harness.compose.retention import Bounds
from harness.config.errors import ConfigError
from harness.config.models import Config
from harness.core.budget import Limits as BudgetLimits
from harness.domain import Limits
from harness.gateway.settings import ModelSettings, Price
from harness.loop import SteadyClock

SECRET_BYTES = 32


def quiet(secret: Any, env: Mapping[str, str]) -> str:
    try:
        return str(secret.read(env)) if secret else ""
    except ConfigError:
        return ""


def budgets(config: Config) -> dict[str, BudgetLimits]:
    g = config.budget.github
    return {
        "github.read": BudgetLimits(0.0, g.reads_per_minute, g.reads_per_hour, g.cooldown_seconds),
        "github.write": BudgetLimits(
            g.min_seconds_between_writes, g.writes_per_minute, g.writes_per_hour, g.cooldown_seconds
        ),
    }


def forge_of(
    config: Config,
    governor: Governor,
    clock: SteadyClock,
    store: SqlStore,
    token: Callable[[], str],
    renew: Callable[[], str],
) -> Any:
    from harness.adapters.github import GitHubForge

    url = (
        "https://api.github.com" if config.forge.url.rstrip("/") == "https://github.com" else config.forge.url
    )
    return GitHubForge(
        url, config.forge.repo, token, governor, clock,
        label=config.forge.label_prefix, timeout_s=config.forge.timeout_seconds, remember=store, renew=renew,
    )  # fmt: skip


def remote_url(config: Config) -> str:
    return f"{config.forge.url.rstrip('/')}/{config.forge.repo}.git"


def author(config: Config) -> tuple[str, str]:
    name, _, rest = config.git.author.partition(" <")
    return name, rest.rstrip(">")


def agent_brief(config: Config) -> dict[str, Any]:
    """What the worker needs to know of its agent. A scripted agent's play goes into the brief itself."""
    brief: dict[str, Any] = {"command": list(config.agent.command), "agent_env": dict(config.agent.env)}
    if config.agent.kind == "scripted" and config.agent.command:
        path = Path(config.agent.command[0])
        if not path.is_file():
            raise StartError(f"agent.command: the play {path} is not there", 2)
        brief["play"] = path.read_text()
    return brief


def limits_of(config: Config) -> Limits:
    c = config.containers
    return Limits(c.memory, c.cpus, c.pids, c.output, config.timeouts.worker_watchdog_seconds, c.tmp)


def model_settings(config: Config, env: Mapping[str, str]) -> ModelSettings | None:
    m = config.budget.model
    if not m.upstream:
        return None
    prices = {
        k: Price(v.input_usd, v.output_usd, v.cache_read_usd, v.cache_write_usd) for k, v in m.prices.items()
    }
    return ModelSettings(
        m.upstream, m.auth, (lambda: m.key.read(env)) if m.auth != "none" else str, m.max_concurrent_requests,
        m.attempt_usd, m.attempt_tokens, m.day_usd, m.day_tokens, prices, m.request_seconds,
        m.unpriced_call_usd, per_minute=m.requests_per_minute, gap_s=m.min_seconds_between_requests,
        cooldown_s=m.cooldown_seconds, queue_s=m.queue_seconds, headers=dict(m.headers),
        proxy=m.proxy or None,
    )  # fmt: skip


def audits_dir(config: Config, data: Path) -> Path:
    found = Path(config.audit.dir).expanduser() if config.audit.dir else data / "audits"
    return found.absolute()


def caps_of(config: Config) -> Caps:
    return Caps(log_bytes=config.audit.log_bytes, bundle_bytes=config.audit.bundle_bytes)


def bounds_of(config: Config) -> Bounds:
    return Bounds(config.audit.retention_seconds, config.audit.total_bytes)


def free_bytes(folder: Path) -> int | None:
    """What is free where a folder lies; None where nobody can say."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def runtime_dir(data: Path) -> Path:
    """Short, since unix socket paths are limited to about 104 bytes; the same for the same data folder."""
    short = hashlib.sha256(str(data).encode()).hexdigest()[:10]
    base = (
        Path("/run")
        if os.geteuid() == 0
        else Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    )
    folder = base / f"harness-{short}"
    folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    return folder


def secret_of(data: Path) -> bytes:
    """The installation's own secret: markers and tokens are made from it. Made once, readable by us alone. Raises
    StartError for one that was cut off: nothing of ours would be recognised, and from an empty one anybody could
    make our markers."""
    path = data / "secret"
    if not path.exists():
        fd = os.open(path.with_suffix(".new"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as f:
            f.write(secrets.token_bytes(SECRET_BYTES))
            f.flush()
            os.fsync(f.fileno())
        os.replace(path.with_suffix(".new"), path)
        places.sync_folder(data)
    found = path.read_bytes()
    if len(found) < SECRET_BYTES:
        raise StartError(f"{path} is damaged: it has {len(found)} bytes; copy it back from a backup")
    return found
