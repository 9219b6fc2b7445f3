"""The Runtime on a Docker engine, for one director and one repository.

The one rule: believe only what was read, and touch only what bears our labels. After any error the container
is looked for by its name; a name that somebody else holds is, for us, a name without a job.

Never used, each for a reason that was seen: `exec` (it ignores deadlines and its process outlives us), `wait`
(it blocks for ever on a hung engine, and answers 143 when the engine stops), `events` and followed logs (they
end silently when the engine dies), `auto_remove` (exit code and logs are lost with it).

**The engine's life.** An engine that dies without live-restore takes the containers with it, and their exit
codes (143, 137) look like anybody's. `Status.engine` therefore changes with every start of the engine: it is
made of the engine's id, of inode and birth of its unix socket (made anew at each start, unless systemd holds
it) and of the id of the default network `bridge` (made anew at each start as long as no container survived
one). An engine over TCP, without that network, is told apart by its id alone.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.adapters import container, engine
from harness.core.result import Err, Ok, Pass, Result
from harness.domain import Job, Mount, Status
from harness.failures import Failure
from harness.ports import Clock

Attrs = Mapping[str, Any]

DEFAULT_HOST = "unix:///var/run/docker.sock"
_ROOT_RUNS_AS = (10001, 10001)
_STOP_SLACK_S = 10.0
_LINE_BYTES = 64
_PURGE_WALL_S = 300.0
# What a machine calls itself, and what images call it.
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "armv6l": "arm", "i686": "386"}


class DockerRuntime:
    """`data` is the data folder as we see it, `host_data` as the engine's host sees it (None: the same).

    `uid` and `gid` are who must own, on the host, what a job is to write. `user` sets both and who runs
    inside; by default that is ourselves, 10001:10001 when we are root, and root inside a rootless engine,
    which is ourselves outside. Each call ends within `timeout_s` (`stop`: its grace later at most), whatever
    the engine does.
    """

    isolates = True

    def __init__(
        self, *, data: Path, host_data: Path | None = None, instance: str, repo_key: str, clock: Clock,
        user: tuple[int, int] | None = None, timeout_s: float = 20.0, docker_host: str | None = None,
    ) -> None:  # fmt: skip
        self.host = docker_host or os.environ.get("DOCKER_HOST") or DEFAULT_HOST
        is_socket = self.host.startswith("unix://")
        self._socket = Path("/" + self.host.removeprefix("unix://").lstrip("/")) if is_socket else None
        self._places = container.Places(data, host_data or data, self._socket)
        self._instance, self._repo = instance, repo_key
        self._clock = clock
        self._line = engine.Line(self.host, clock, timeout_s)
        self._given = user
        ours = (os.getuid(), os.getgid())
        self.uid, self.gid = user or (_ROOT_RUNS_AS if ours[0] == 0 else ours)
        self._engine: container.Engine | None = None
        self._began: dict[str, float | None] = {}

    @property
    def placed(self) -> bool:
        """Whether something is where the engine should be, or another machine was named."""
        return self._socket is None or self._socket.exists()

    # ------------------------------------------------------------ the port

    def probe(self) -> Result[str]:
        def ask(call: engine.Call) -> Result[str]:
            e = self._read_engine(call, fresh=True)
            if e.remaps:
                return Err(
                    Failure.CONFIG_INVALID,
                    f"the engine at {self.host} remaps user ids (userns-remap), so that jobs could not write "
                    "their folders; switch that off, or use a rootless engine",
                )
            kind = "rootless" if e.rootless else "rootful"
            live = "on" if e.live_restore else "off (a restart of the engine ends the workers)"
            return Ok(
                f"docker {e.version}, API {call.api().api_version}, {kind}, cgroup v{e.cgroup}, "
                f"seccomp {e.seccomp}, live-restore {live}, engine {e.identity}"
            )

        return self._line.attempt("ask the engine about itself", ask)

    def image(self, name: str) -> Result[str]:
        def ask(call: engine.Call) -> Result[str]:
            return Ok(str(call.api().inspect_image(name)["Id"]))

        return self._line.attempt(f"look for image {name}", ask, image=name)

    def misfit(self, name: str) -> Result[str]:
        """Why an image will hardly do for workers, in words; empty where nothing speaks against it. Only a
        hint: an engine may emulate another machine, and somebody may have copied the harness in by hand."""

        def ask(call: engine.Call) -> Result[str]:
            attrs = call.api().inspect_image(name)
            made_for, machine = str(attrs.get("Architecture") or ""), str(call.api().info()["Architecture"])
            if made_for and made_for != _MACHINES.get(machine, machine):
                return Ok(f"is made for {made_for}, and the engine's machine is {machine}")
            if container.BUILT not in ((attrs.get("Config") or {}).get("Labels") or {}):
                return Ok("is not a worker image: it was not made by `harness image build`")
            return Ok("")

        return self._line.attempt(f"look into image {name}", ask, image=name)

    def start(self, job: Job) -> Result[Status]:
        fault = container.find_fault(job)
        if fault:
            return Err(Failure.CONFIG_INVALID, fault)
        labels = container.labels_of(job, self._instance, self._repo)
        return self._start(job, labels)

    def status(self, name: str) -> Result[Status | None]:
        def ask(call: engine.Call) -> Result[Status | None]:
            attrs = self._look(call, name)
            if attrs is None:
                return Ok(None)
            seen = container.read_status(attrs, "")
            # What a worker prints is a sign of life beside its heartbeat. (The engine's figures of CPU would
            # take a second each.)
            printed = engine.last_line_at(call, str(attrs["Id"])) if seen.phase == "RUNNING" else 0.0
            # The engine's life is read after the state: a restart in between must not look like none.
            return Ok(replace(seen, progress_at=printed, engine=self._read_engine(call).identity))

        return self._line.attempt(f"look for container {name}", ask)

    def ours(self) -> Result[tuple[Status, ...]]:
        def ask(call: engine.Call) -> Result[tuple[Status, ...]]:
            marks = [f"{container.INSTANCE}={self._instance}", f"{container.REPO}={self._repo}"]
            rows = call.api().containers(all=True, filters={"label": marks})
            self._began = {k: v for k, v in self._began.items() if k in {row["Id"] for row in rows}}
            found = [s for row in rows if (s := self._read_row(call, row)) is not None]
            life = self._read_engine(call).identity
            return Ok(tuple(replace(s, engine=life) for s in found))

        return self._line.attempt("list containers", ask)

    def log(self, name: str, tail_bytes: int) -> Result[bytes]:
        """The last `tail_bytes` of both streams, joined by lines; decode them with errors="replace"."""

        def ask(call: engine.Call) -> Result[bytes]:
            attrs = self._look(call, name)
            if attrs is None:
                return Err(Failure.GONE, f"no container {name}, hence no log")
            # The engine counts lines, we count bytes: ask for few lines, then for all that can matter.
            for lines in (tail_bytes // _LINE_BYTES + 1, tail_bytes + 1):
                text = engine.read_log(call, attrs["Id"], lines, tail_bytes)
                if len(text) >= tail_bytes or text.count(b"\n") < lines:
                    break
            return Ok(text)

        return self._line.attempt(f"read the log of {name}", ask)

    def stop(self, name: str, grace_s: float) -> Result[None]:
        """TERM, then KILL after the grace. Already ended or not there is Ok. Holds the caller for up to the
        grace and ten seconds: call it from a pool."""
        grace = max(0, math.ceil(grace_s))

        def ask(call: engine.Call) -> Result[None]:
            attrs = self._look(call, name)
            if attrs is None or not container.read_status(attrs, "").alive:
                return Ok(None)
            api = call.write()
            api.timeout = _STOP_SLACK_S  # The SDK adds the grace.
            return engine.unless_missing(lambda: api.stop(attrs["Id"], timeout=grace))

        return self._line.attempt(f"stop container {name}", ask)

    def remove(self, name: str) -> Result[None]:
        def ask(call: engine.Call) -> Result[None]:
            attrs = self._look(call, name)
            if attrs is None:
                return Ok(None)
            api = call.write()
            return engine.unless_missing(lambda: api.remove_container(attrs["Id"], v=True, force=True))

        return self._line.attempt(f"remove container {name}", ask)

    # ------------------------------------------------------------ beside the port

    def purge(self, path: str, image: str) -> Result[None]:
        """Empty a folder (relative to the data folder) of files that we may not remove ourselves.

        A container of the image does it, as root, with that one mount and two capabilities. Call it again
        while it answers Pass. Err when files are left: immutable ones, or a folder that is not there."""
        if Path(path).is_absolute():
            return Err(Failure.CONFIG_INVALID, f"purge {path}: give a path below the data folder")
        name = f"h-{self._instance}-purge-{hashlib.sha256(path.encode()).hexdigest()[:12]}"
        job = Job(
            name=name,
            argv=("find", "/purge", "-xdev", "-mindepth", "1", "-delete"),
            role="purge",
            image=image,
            mounts=(Mount(path, "/purge", "rw"),),
            workdir="/",
        )
        labels = container.labels_of(job, self._instance, self._repo)
        began = self._start(job, labels, user="0:0", caps=("DAC_OVERRIDE", "FOWNER"))
        if not isinstance(began, Ok):
            self.remove(name)  # What never ran is of no use; whether this worked is seen at the next purge.
            return began
        seen = began.value
        if seen.alive and self._clock.now() - (seen.started_at or self._clock.now()) < _PURGE_WALL_S:
            return Pass(f"purging {path}")
        said = self.log(name, 300)
        gone = self.remove(name)
        if not isinstance(gone, Ok) or seen.exit == 0:
            return gone
        why = said.value.decode(errors="replace").strip() if isinstance(said, Ok) else seen.detail
        return Err(Failure.INFRA_KILLED, f"files in {path} cannot be removed: {why or 'it took too long'}")

    # ------------------------------------------------------------ starting

    def _start(
        self, job: Job, labels: Mapping[str, str], user: str | None = None, caps: tuple[str, ...] = ()
    ) -> Result[Status]:
        def ask(call: engine.Call) -> Result[Status]:
            # Read before the start: a life that ends in between must look like another one later.
            life = self._read_engine(call)
            inside = user or ("0:0" if life.rootless and not self._given else f"{self.uid}:{self.gid}")
            try:
                body = container.specify(
                    job, self._places, user=inside, engine=life, labels=labels, caps=caps
                )
            except ValueError as e:
                return Err(Failure.CONFIG_INVALID, f"job {job.name}: {e}")
            made = self._create_or_adopt(call, job, body)
            if not isinstance(made, Ok):
                return made
            attrs = made.value
            if container.read_status(attrs, "").phase in ("PENDING", "REJECTED"):
                attrs = self._begin(call, job.name, str(attrs["Id"]))
            return Ok(container.read_status(attrs, life.identity))

        return self._line.attempt(f"start container {job.name}", ask, image=job.image)

    def _create_or_adopt(self, call: engine.Call, job: Job, body: dict[str, Any]) -> Result[Attrs]:
        """A container of that name made from that job: a new one, or the one that is there already."""
        try:
            made = call.write().create_container_from_config(body, job.name)
            return Ok({"Id": made["Id"], "Name": f"/{job.name}", "State": {"Status": "created"}})
        except engine.errors() as e:
            # Whatever went wrong, the container may be there: 409, or an answer that got lost.
            error = e
        conflict = getattr(error, "status_code", None) == 409
        attrs = self._inspect(call, job.name)
        if attrs is None:
            raise error
        labels = (attrs.get("Config") or {}).get("Labels") or {}
        if not container.is_ours(labels, self._instance, self._repo):
            if not conflict:
                raise error
            return Err(
                Failure.INFRA_ENGINE,
                f"name taken: a container {job.name} that is not ours is there; rename or remove it by hand",
            )
        if labels.get(container.SPEC) != container.fingerprint(job):
            return Err(
                Failure.INFRA_ENGINE,
                f"name taken: our container {job.name} was made from another job; remove it first",
            )
        if container.read_status(attrs, "").phase == "LOST":
            return Err(Failure.INFRA_ENGINE, f"container {job.name} is just being removed; ask again")
        return Ok(attrs)

    def _begin(self, call: engine.Call, name: str, cid: str) -> Attrs:
        """Start it and answer how it is. An error is believed only when it does not run all the same."""
        error: Exception | None = None
        try:
            call.write().start(cid)
        except engine.errors() as e:
            error = e
        attrs = self._inspect(call, name)
        if attrs is not None and container.read_status(attrs, "").phase in ("RUNNING", "EXITED"):
            return attrs
        raise error or engine.VanishedError(f"container {name} was gone right after its start")

    # ------------------------------------------------------------ looking

    def _inspect(self, call: engine.Call, name: str) -> Attrs | None:
        """Whatever bears exactly that name (the engine would also take the beginning of an id), or None."""
        try:
            attrs: Attrs = call.api().inspect_container(name)
        except engine.sdk().errors.NotFound:
            return None
        return attrs if attrs.get("Name") == f"/{name}" else None

    def _look(self, call: engine.Call, name: str) -> Attrs | None:
        attrs = self._inspect(call, name)
        labels = (attrs.get("Config") or {}).get("Labels") if attrs else None
        return attrs if container.is_ours(labels, self._instance, self._repo) else None

    def _read_row(self, call: engine.Call, row: Attrs) -> Status | None:
        """One row of the list. Only what does not simply run is inspected, and what runs once, for its start:
        a hundred workers must not cost a hundred requests."""
        cid, name = str(row["Id"]), str((row.get("Names") or ["/?"])[0]).lstrip("/")
        if row.get("State") == "running" and cid in self._began:
            return Status(
                name=name, phase="RUNNING", started_at=self._began[cid], image=str(row.get("ImageID") or ""),
                labels=dict(row.get("Labels") or {}),
            )  # fmt: skip
        attrs = self._look(call, name)
        if attrs is None:
            return None  # Removed since the list was made.
        status = container.read_status(attrs, "")
        if status.phase == "RUNNING" and not status.detail:
            self._began[cid] = status.started_at
        else:
            self._began.pop(cid, None)
        return status

    def _read_engine(self, call: engine.Call, *, fresh: bool = False) -> container.Engine:
        """The engine's present life; its description is asked for only when that life is new."""
        parts = [self.host]
        if self._socket is not None:
            s = os.stat(self._socket)
            parts += [str(s.st_ino), str(s.st_mtime_ns)]
        try:
            parts.append(str(call.api().inspect_network("bridge")["Id"]))
        except engine.sdk().errors.NotFound:
            parts.append("no bridge")
        life = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
        known = self._engine
        if fresh or known is None or known.life != life:
            known = container.read_engine(call.api().info(), life)
            self._engine = known
        return known
