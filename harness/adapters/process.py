"""A Runtime of plain processes: one folder a job, one shim a process. It does not isolate.

The one rule: what a job is doing is read from its folder (lock held, `exit.json`, or neither), never guessed
from a pid.

What it does not do: network, memory, cpu and pids limits, capabilities, a read-only root. There is no mount
namespace either. Instead every mount's `target` is replaced by the real path where it stands as a path in the
job's argv elements, environment values and workdir: at the beginning of the value or right after one of `=`,
`:` or `,` (so `--dir=/workspace/x` and `PYTHONPATH=/workspace/src:/deps` are translated), and only up to the
end or the next `/`, `:` or `,` (so `/workspace2` is not). Text in a shell command or a file is left alone.
The job's environment is its own, plus PATH and LANG where it has none, plus HARNESS_RUN_COOKIE, by which the
strays of a run whose shim was killed are found again. Nothing else is inherited, so no secret is. A job that is
started from within another one (an agent by its worker) bears that one's cookie in front of its own, and ends
with it. Who is told that a run is lost is told so after its last process has ended.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import select
import shutil
import subprocess
import sys
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness import __version__
from harness.adapters import rundir
from harness.core.result import Err, Ok, Result
from harness.domain import Job, Mount, Status
from harness.failures import Failure
from harness.ports import Clock

SHIM = Path(__file__).with_name("shim.py")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LANG = "C.UTF-8"
KEEP_BYTES = 32 << 20
GRACE_S = 10.0
START_S = 20.0
COOKIE = "HARNESS_RUN_COOKIE"
REMOVE_S = 10.0
PENDING_S = 30.0
ARG_LIMIT_BYTES = 128 << 10  # Linux MAX_ARG_STRLEN: execve answers E2BIG from here on
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class ProcessRuntime:
    """Jobs as processes of our own user, in folders under `root`; mounts are relative to `data`."""

    isolates = False

    def __init__(
        self,
        root: Path,
        *,
        python: str = sys.executable,
        data: Path,
        clock: Clock,
        keep_bytes: int = KEEP_BYTES,
    ) -> None:
        """`keep_bytes` of each job's output are kept, head and tail; `limits.output_bytes` ends the job."""
        self.root, self.python, self.data, self.clock = root, python, data, clock
        self.keep_bytes = keep_bytes
        self._digest = ""

    # ------------------------------------------------------------ what it is

    def probe(self) -> Result[str]:
        try:
            boot = rundir.boot_id()
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as e:
            return Err(Failure.CONFIG_INVALID, f"the process runtime needs Linux and a writable folder: {e}")
        return Ok(
            "process runtime: NO ISOLATION, jobs run as this user with its files and network within reach; "
            f"boot {boot}"
        )

    def image(self, name: str) -> Result[str]:
        """There are no images: what would change with an upgrade is the harness and its Python."""
        if not self._digest:
            try:
                text = subprocess.run(
                    [self.python, "-I", "-VV"], stdin=subprocess.DEVNULL, capture_output=True, check=True,
                    timeout=START_S, env={},
                ).stdout  # fmt: skip
            except (OSError, subprocess.SubprocessError) as e:
                return Err(Failure.IMAGE_UNAVAILABLE, f"{self.python} does not run: {e}")
            self._digest = hashlib.sha256(text).hexdigest()[:12]
        return Ok(f"process:{__version__}-{self._digest}")

    # ------------------------------------------------------------ start

    def start(self, job: Job) -> Result[Status]:
        wrong = self._refuse(job)
        if wrong is not None:
            return wrong
        folder = self.root / job.name
        try:
            if not folder.exists():
                made = self._make(job, folder)
                if made is not None:
                    return made
            saved = rundir.read(folder / "job.json")
            if saved.get("labels") != job.labels:
                return Err(
                    Failure.CONFIG_INVALID,
                    f"{folder} belongs to something else (its labels differ): remove it or use another name",
                )
            if not (folder / "started.json").exists():
                self._spawn(folder, saved["env"])
            found = self._look(job.name)
        except subprocess.TimeoutExpired:
            return Err(Failure.INFRA_ENGINE, f"{job.name}: its shim is silent for {START_S:g} s", maybe=True)
        except (OSError, ValueError) as e:
            return _err(e)
        if found is None or found.phase == "PENDING":
            words = rundir.last_words(folder)
            return Err(Failure.INFRA_ENGINE, f"the shim of {job.name} did not start: {words}")
        return Ok(found)

    def _refuse(self, job: Job) -> Err | None:
        """What can be told to be wrong before anything is written."""
        if not _NAME.fullmatch(job.name):
            return Err(Failure.CONFIG_INVALID, f"job name {job.name!r}: use letters, digits and . _ -")
        if not job.argv:
            return Err(Failure.CONFIG_INVALID, f"job {job.name} has no command")
        for text in (*job.argv, *(f"{k}={v}" for k, v in job.env.items())):
            if _size(text) >= ARG_LIMIT_BYTES:
                return Err(
                    Failure.CONFIG_INVALID,
                    f"job {job.name}: {text[:40]!r}… has {_size(text)} bytes; "
                    "arguments and variables take fewer than 131072, give it as stdin or in a file",
                )
            if "\0" in text:
                return Err(Failure.CONFIG_INVALID, f"job {job.name}: {text[:40]!r} has a NUL byte")
        workdir = Path(self._translate(job.workdir, job.mounts))
        if str(workdir) != job.workdir and not workdir.is_dir():
            return Err(Failure.CONFIG_INVALID, f"job {job.name}: its workdir {workdir} is not there")
        return None

    def _translate(self, text: str, mounts: tuple[Mount, ...]) -> str:
        real = {m.target.rstrip("/"): str(self.data / m.path) for m in mounts if m.target.rstrip("/")}
        if not real:
            return text
        targets = "|".join(re.escape(t) for t in sorted(real, key=len, reverse=True))
        return re.sub(rf"(?:^|(?<=[=:,]))({targets})(?=$|[/:,])", lambda m: real[m[1]], text)

    def _env(self, job: Job) -> dict[str, str]:
        own = {k: self._translate(v, job.mounts) for k, v in job.env.items()}
        path = os.environ.get("PATH", PATH)
        around = os.environ.get(COOKIE)
        cookie = f"{around}/{uuid.uuid4().hex}" if around else uuid.uuid4().hex
        return {"PATH": path, "LANG": LANG, **own, COOKIE: cookie}

    def _make(self, job: Job, folder: Path) -> Err | None:
        """The run folder, complete, by one rename: a crash leaves none or all of it."""
        new = self.root / f".new-{job.name}-{uuid.uuid4().hex[:8]}"
        new.mkdir(mode=0o700, parents=True)
        workdir = Path(self._translate(job.workdir, job.mounts))
        if not workdir.is_dir():  # an engine would make it; here it is a folder of the run
            (new / "work").mkdir()
            workdir = folder / "work"
        if job.stdin:
            (new / "stdin").write_text(job.stdin, encoding="utf-8", errors="surrogatepass")
        saved: dict[str, Any] = {
            "name": job.name,
            "labels": job.labels,
            "image": job.image,
            "role": job.role,
            "mounts": [asdict(m) for m in job.mounts],
            "argv": [self._translate(a, job.mounts) for a in job.argv],
            "env": self._env(job),
            "cwd": str(workdir),
            "stdin": str(folder / "stdin") if job.stdin else None,
            "log": str(folder / "output.log"),
            "keep_bytes": min(job.limits.output_bytes, self.keep_bytes),
            "limit_bytes": job.limits.output_bytes,
            "wall_s": job.limits.wall_s,
            "grace_s": GRACE_S,
            "within": COOKIE in os.environ,
            "made_at": self.clock.now(),
        }
        rundir.write(new / "job.json", json.dumps(saved, indent=1))
        try:
            new.rename(folder)
        except OSError:
            shutil.rmtree(new)
            if not folder.exists():
                raise
        return None

    def _spawn(self, folder: Path, env: dict[str, str]) -> None:
        """Start the shim and wait until it has detached; it starts a folder's job at most once. It bears its
        job's cookie as well: it is a stray of the run around it."""
        subprocess.run(
            [self.python, "-I", "-S", str(SHIM), str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            timeout=START_S,
            check=False,
            env={COOKIE: env[COOKIE]},
        )

    # ------------------------------------------------------------ look

    def status(self, name: str) -> Result[Status | None]:
        if not _NAME.fullmatch(name):
            return Ok(None)
        try:
            return Ok(self._look(name))
        except (OSError, ValueError) as e:
            return _err(e)

    def ours(self) -> Result[tuple[Status, ...]]:
        try:
            if not self.root.exists():
                return Ok(())
            names = sorted(p.name for p in self.root.iterdir() if _NAME.fullmatch(p.name))
            found = [self._look(n) for n in names]
        except (OSError, ValueError) as e:
            return _err(e)
        return Ok(tuple(s for s in found if s is not None))

    def _look(self, name: str) -> Status | None:
        return rundir.look(self.root / name, self.clock.now(), PENDING_S)

    def log(self, name: str, tail_bytes: int) -> Result[bytes]:
        """The newest `tail_bytes` of what was kept. Bytes as they came: they may begin amid a character."""
        if not _NAME.fullmatch(name):
            return Err(Failure.GONE, f"there is no job {name!r}")
        log = self.root / name / "output.log"
        left, parts = max(tail_bytes, 0), []
        try:
            for path in (Path(f"{log}.tail"), Path(f"{log}.tail-old"), log):
                part = rundir.tail(path, left)
                parts.append(part)
                left -= len(part)
            if not log.exists() and not (self.root / name).exists():
                return Err(Failure.GONE, f"there is no job {name!r}")
        except OSError as e:
            return _err(e)
        return Ok(b"".join(reversed(parts)))

    # ------------------------------------------------------------ end

    def stop(self, name: str, grace_s: float) -> Result[None]:
        """Ask the shim to end it; TERM, `grace_s`, KILL is the shim's work. Look at `status` for the end."""
        if not _NAME.fullmatch(name):
            return Ok(None)
        try:
            shim = rundir.ask_to_stop(self.root / name, grace_s)
        except (OSError, ValueError) as e:
            return _err(e)
        if shim is not None:
            os.close(shim)
        return Ok(None)

    def remove(self, name: str) -> Result[None]:
        """Stop it without grace if it lives, end strays of a lost one, delete the folder."""
        if not _NAME.fullmatch(name):
            return Ok(None)
        folder = self.root / name
        try:
            shim = rundir.ask_to_stop(folder, 0.0)
            if shim is not None:
                ended = bool(select.select([shim], [], [], REMOVE_S)[0])
                os.close(shim)
                if not ended:
                    return Err(Failure.INFRA_KILLED, f"{name} is still stopping after {REMOVE_S:g} s")
            if folder.exists():
                if not rundir.read(folder / "exit.json"):
                    rundir.end_strays(folder)
                gone = self.root / f".gone-{name}-{uuid.uuid4().hex[:8]}"
                folder.rename(gone)
            # `.new-` is what a director left that died while it made the folder.
            for kind in ("gone", "new"):
                for rest in self.root.glob(f".{kind}-{name}-*"):
                    shutil.rmtree(rest)
        except (OSError, ValueError) as e:
            return _err(e)
        return Ok(None)


def _err(e: OSError | ValueError) -> Err:
    full = isinstance(e, OSError) and e.errno in (28, 122)
    return Err(Failure.DISK_FULL if full else Failure.INFRA_ENGINE, f"process runtime: {e}")


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
