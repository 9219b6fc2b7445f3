"""Runs git: argv lists, a clean environment, a process group of its own, a deadline, bounded output.

The one rule: nothing of the host's configuration, and no credential, is on the command line or on disk. The
token goes to git in its environment (`GIT_CONFIG_COUNT`), which other users cannot read.

GitPython's `Git.execute` starts the processes. It is used with `as_process` only: its `kill_after_timeout`
kills the first two generations and nothing deeper, buffers without bound, and its environment is always an
addition to ours, which is why what must not be inherited is unset by `env -u` (names, never values).
"""

from __future__ import annotations

import base64
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from subprocess import PIPE, Popen
from typing import IO, Any, BinaryIO, cast
from urllib.parse import urlsplit

from harness.adapters.git.errors import FailedError, Ran, classify, fail, redact, unauthorized
from harness.adapters.git.limits import GitLimits
from harness.adapters.git.pump import Pump, end_group, signal_group
from harness.failures import Failure

# What may pass from our own environment to git: where to find programs, proxies and certificates.
_PASS = frozenset(
    {"PATH", "TMPDIR", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"}
    | {name for p in ("http_proxy", "https_proxy", "all_proxy", "no_proxy") for name in (p, p.upper())}
)
CONFIG: tuple[tuple[str, str], ...] = (
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    ("core.autocrlf", "false"),
    ("core.askPass", ""),
    ("core.bigFileThreshold", "8m"),
    ("credential.helper", ""),
    ("diff.external", ""),
    ("protocol.ext.allow", "never"),
    ("submodule.recurse", "false"),
    ("push.recurseSubmodules", "no"),
    ("push.followTags", "false"),
    ("fetch.recurseSubmodules", "no"),
    ("gc.auto", "0"),
    ("gc.pruneExpire", "never"),
    ("maintenance.auto", "false"),
    ("pack.threads", "1"),
    ("safe.bareRepository", "explicit"),
    ("transfer.bundleURI", "false"),
    ("advice.detachedHead", "false"),
    ("http.lowSpeedLimit", "1000"),
)


SERVED: tuple[tuple[str, str], ...] = (("uploadpack.allowAnySHA1InWant", "true"), ("pack.threads", "1"))


class Runner:
    """Starts git with our environment. `home` is an empty folder of ours that plays HOME and holds the one
    configuration file; `safe` are the repositories that local transports may open. Thread-safe."""

    def __init__(
        self,
        home: Path,
        *,
        remote: str,
        token: Callable[[], str] | None,
        limits: GitLimits,
        safe: Sequence[Path] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.home = home
        self.remote = remote
        self.limits = limits
        self._token = token
        self._safe = tuple(safe)
        self._extra = dict(env or {})
        self._lock = threading.Lock()
        self._live: set[int] = set()
        self._written = False
        self._closed = False

    # ------------------------------------------------------------ running

    def run(
        self,
        *args: str,
        git_dir: Path | None = None,
        work_tree: Path | None = None,
        feed: bytes | IO[bytes] = b"",
        deadline_s: float | None = None,
        output_bytes: int | None = None,
        env: Mapping[str, str] | None = None,
        config: Sequence[tuple[str, str]] = (),
    ) -> Ran:
        """Run one command that touches only this machine. `feed` is its standard input."""
        return self._run(
            args, git_dir, work_tree, feed, deadline_s, output_bytes, env or {}, config, "file", ()
        )

    def ok(self, *args: str, what: str = "", **options: object) -> Ran:
        """Like `run`, but anything else than exit 0 is raised as its failure."""
        ran = self.run(*args, **options)  # type: ignore[arg-type]
        if ran.code != 0:
            raise FailedError(classify(ran, what=what))
        return ran

    def net(self, *args: str, deadline_s: float, git_dir: Path | None = None, url: str = "") -> Ran:
        """Run one command that talks to the forge. After one 401 the token is asked for again, once."""
        url = url or self.remote
        ran = self._net(args, git_dir, deadline_s, url)
        if unauthorized(ran) and self._token is not None:
            ran = self._net(args, git_dir, deadline_s, url)
        return ran

    def _net(self, args: tuple[str, ...], git_dir: Path | None, deadline_s: float, url: str) -> Ran:
        parts = urlsplit(url)
        token = self._token() if self._token is not None and parts.scheme in ("http", "https") else ""
        config: list[tuple[str, str]] = []
        secrets: tuple[str, ...] = ()
        if token:
            basic = base64.b64encode(f"x-access-token:{token}".encode()).decode()
            # Bound to the forge's own address, so that no other host ever gets it.
            config.append(
                (f"http.{parts.scheme}://{parts.netloc}/.extraHeader", f"Authorization: Basic {basic}")
            )
            secrets = (token, basic)
        return self._run(
            args, git_dir, None, b"", deadline_s, None, {}, config, parts.scheme or "file", secrets
        )

    def _run(
        self,
        args: tuple[str, ...],
        git_dir: Path | None,
        work_tree: Path | None,
        feed: bytes | IO[bytes],
        deadline_s: float | None,
        output_bytes: int | None,
        env: Mapping[str, str],
        config: Sequence[tuple[str, str]],
        protocols: str,
        secrets: tuple[str, ...],
    ) -> Ran:
        self._write_config()
        mine = self._environment(config, protocols) | dict(env)
        command = self._command(args, git_dir, work_tree, mine)
        until = time.monotonic() + (self.limits.local_s if deadline_s is None else deadline_s)
        process = self._start(command, mine, feed)
        if process is None:
            return Ran(args, -signal.SIGTERM, closed=True)
        pump = Pump(process, feed if isinstance(feed, bytes) else b"", until, self.limits, output_bytes)
        try:
            pump.drive()
        finally:
            code = end_group(process)
            with self._lock:
                self._live.discard(process.pid)
        words = redact(bytes(pump.err).decode("utf-8", "replace"), secrets)
        return Ran(args, code, bytes(pump.out), words, pump.late, pump.flooded, self._closed and code != 0)

    def _start(
        self, command: list[str], env: Mapping[str, str], feed: bytes | IO[bytes]
    ) -> Popen[bytes] | None:
        try:
            from git.cmd import Git
        except ImportError as e:
            raise fail(Failure.CONFIG_INVALID, f"git cannot be used: {str(e).splitlines()[0]}") from e
        with self._lock:
            if self._closed:
                return None
            handle: Any = Git(str(self.home)).execute(
                command,
                istream=PIPE if isinstance(feed, bytes) else cast(BinaryIO, feed),
                env=env,
                as_process=True,
                start_new_session=True,
            )
            process = cast("Popen[bytes]", handle.proc)
            handle.proc = None  # we end it ourselves
            self._live.add(process.pid)
            return process

    def close(self) -> None:
        """End what runs (git removes its locks on SIGTERM) and start nothing more."""
        with self._lock:
            self._closed = True
            live = tuple(self._live)
        for pid in live:
            signal_group(pid, signal.SIGTERM)

    # ------------------------------------------------------------ environment

    def _environment(self, config: Sequence[tuple[str, str]], protocols: str) -> dict[str, str]:
        pairs = (*CONFIG, ("http.lowSpeedTime", str(self.limits.stall_s)), *config)
        env = {
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home),
            "LC_ALL": "C",
            "LANGUAGE": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": str(self.home / "gitconfig"),
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_LITERAL_PATHSPECS": "1",
            "GIT_ALLOW_PROTOCOL": protocols,
            "GIT_CONFIG_COUNT": str(len(pairs)),
        }
        for index, (key, value) in enumerate(pairs):
            env[f"GIT_CONFIG_KEY_{index}"] = key
            env[f"GIT_CONFIG_VALUE_{index}"] = value
        return env | self._extra

    @staticmethod
    def _command(
        args: tuple[str, ...], git_dir: Path | None, work_tree: Path | None, env: Mapping[str, str]
    ) -> list[str]:
        unset = [
            flag for name in os.environ if name not in _PASS and name not in env for flag in ("-u", name)
        ]
        command = ["env", *unset, "git", "--no-pager"]
        if git_dir is not None:
            command.append(f"--git-dir={git_dir}")
        if work_tree is not None:
            command.append(f"--work-tree={work_tree}")
        return [*command, *args]

    def _write_config(self) -> None:
        """The other side of a local transport is a process that git strips of our settings; this file reaches
        it. Hooks stay on there: where the forge is a folder, its rules are hooks."""
        with self._lock:
            if self._written:
                return
            self.home.mkdir(parents=True, exist_ok=True)
            pairs = [*SERVED, *(("safe.directory", str(path)) for path in self._safe)]
            path = self.home / "gitconfig"
            partial = path.with_suffix(f".{os.getpid()}")
            partial.write_text("".join(config_line(key, value) for key, value in pairs), encoding="utf-8")
            os.replace(partial, path)
            self._written = True


def config_line(key: str, value: str) -> str:
    """One setting in git's file format, `section.sub.name` with any value."""
    section, _, name = key.rpartition(".")
    head, _, sub = section.partition(".")
    title = f'[{head} "{_escaped(sub)}"]' if sub else f"[{head}]"
    return f'{title}\n\t{name} = "{_escaped(value)}"\n'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
