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
from dataclasses import dataclass, field, replace
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
    # A forge that counts objects for minutes sends a few bytes every 5 s; one that is gone sends none.
    ("http.lowSpeedLimit", "1"),
    # Our header would go along to wherever a redirect leads.
    ("http.followRedirects", "false"),
)


SERVED: tuple[tuple[str, str], ...] = (("uploadpack.allowAnySHA1InWant", "true"), ("pack.threads", "1"))


@dataclass(frozen=True, slots=True)
class Call:
    """One command, completely described."""

    args: tuple[str, ...]
    deadline_s: float
    output_bytes: int
    git_dir: Path | None = None
    work_tree: Path | None = None
    feed: bytes | IO[bytes] = b""
    env: Mapping[str, str] = field(default_factory=dict)
    config: tuple[tuple[str, str], ...] = ()
    protocols: str = "file"
    secrets: tuple[str, ...] = ()
    holding: int | None = None


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
        holding: int | None = None,
    ) -> Ran:
        """Run one command that touches only this machine. `feed` is its standard input. `holding` is the file
        of a lock that it shares: should we die, the lock is held until git has ended too."""
        return self._run(
            Call(
                args=args,
                git_dir=git_dir,
                work_tree=work_tree,
                feed=feed,
                deadline_s=self.limits.local_s if deadline_s is None else deadline_s,
                output_bytes=self.limits.output_bytes if output_bytes is None else output_bytes,
                env=env or {},
                config=tuple(config),
                holding=holding,
            )
        )

    def ok(self, *args: str, what: str = "", **options: Any) -> Ran:
        """Like `run`, but anything else than exit 0 is raised as its failure."""
        ran = self.run(*args, **options)
        if ran.code != 0:
            raise FailedError(classify(ran, what=what))
        return ran

    def net(
        self,
        *args: str,
        deadline_s: float,
        git_dir: Path | None = None,
        url: str = "",
        holding: int | None = None,
    ) -> Ran:
        """Run one command that talks to the forge. After one 401 the token is asked for again, once."""
        scheme, host = urlsplit(url or self.remote)[:2]
        call = Call(
            args=args,
            git_dir=git_dir,
            deadline_s=deadline_s,
            output_bytes=self.limits.output_bytes,
            protocols=scheme or "file",
            holding=holding,
        )
        ran = self._run(self._signed(call, scheme, host))
        if unauthorized(ran) and self._token is not None:
            ran = self._run(self._signed(call, scheme, host))
        return replace(ran, net=True)

    def _signed(self, call: Call, scheme: str, host: str) -> Call:
        """With the token, bound to the forge's own address, so that no other host ever gets it."""
        token = self._token() if self._token is not None and scheme in ("http", "https") else ""
        if not token:
            return call
        basic = base64.b64encode(f"x-access-token:{token}".encode()).decode()
        header = (f"http.{scheme}://{host}/.extraHeader", f"Authorization: Basic {basic}")
        return replace(call, config=(header,), secrets=(token, basic))

    def _run(self, call: Call) -> Ran:
        self._write_config()
        mine = self._environment(call.config, call.protocols) | dict(call.env)
        until = time.monotonic() + call.deadline_s
        process = self._start(call, mine)
        if process is None:
            return Ran(call.args, -signal.SIGTERM, closed=True)
        feed = call.feed if isinstance(call.feed, bytes) else b""
        pump = Pump(process, feed, until, call.output_bytes, self.limits.stderr_bytes)
        try:
            pump.drive()
        finally:
            code = end_group(process)
            with self._lock:
                self._live.discard(process.pid)
        words = redact(bytes(pump.err).decode("utf-8", "replace"), call.secrets)
        closed = self._closed and code != 0
        return Ran(call.args, code, bytes(pump.out), words, pump.late, pump.flooded, closed)

    def _start(self, call: Call, env: Mapping[str, str]) -> Popen[bytes] | None:
        try:
            from git.cmd import Git
        except ImportError as e:
            raise fail(Failure.CONFIG_INVALID, f"git cannot be used: {str(e).splitlines()[0]}") from e
        with self._lock:
            if self._closed:
                return None
            handle: Any = Git(str(self.home)).execute(
                self._command(call, env),
                istream=PIPE if isinstance(call.feed, bytes) else cast(BinaryIO, call.feed),
                env=env,
                as_process=True,
                start_new_session=True,
                pass_fds=() if call.holding is None else (call.holding,),
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
    def _command(call: Call, env: Mapping[str, str]) -> list[str]:
        unset = (("-u", name) for name in os.environ if name not in _PASS and name not in env)
        command = ["env", *(word for pair in unset for word in pair), "git", "--no-pager"]
        if call.git_dir is not None:
            command.append(f"--git-dir={call.git_dir}")
        if call.work_tree is not None:
            command.append(f"--work-tree={call.work_tree}")
        return [*command, *call.args]

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
