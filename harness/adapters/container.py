"""What a hardened container is, as data: the engine's own JSON, built and read without any I/O to the engine.

The one rule: every container of ours gets the whole hardening. There is no argument that leaves a part of it
out, except network for the role `prepare`, which runs before any outside text is seen.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from harness.domain import Job, Mount, Status

INSTANCE, REPO, ROLE, SPEC = "harness.instance", "harness.repo", "harness.role", "harness.spec"
# On every image that our Dockerfile made, and on those made from one.
BUILT = "harness.build-key"
ATTEMPT, EPOCH = "harness.attempt", "harness.epoch"

# Docker's own rule for names (RestrictedNamePattern in moby/daemon/names), with a bound on the length.
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{1,127}")
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)")
_SHM_BYTES = 64 << 20
_FILES = 4096
_PARTIAL_LIMIT_BYTES = 64 << 10
_FORBIDDEN_TARGETS = ("/proc", "/sys", "/dev")


@dataclass(frozen=True, slots=True)
class Engine:
    """What an engine told about itself. `life` differs after each of its starts (see `DockerRuntime`)."""

    id: str
    life: str
    version: str = ""
    rootless: bool = False
    remaps: bool = False
    cpus: float = 0.0
    live_restore: bool = False
    cgroup: str = ""
    seccomp: str = ""
    log_driver: str = "local"

    @property
    def identity(self) -> str:
        return f"{self.id}/{self.life}"


@dataclass(frozen=True, slots=True)
class Places:
    """Where the data folder is: as we see it, and as the engine's host sees it."""

    data: Path
    host_data: Path
    socket: Path | None = None


def read_engine(info: Mapping[str, Any], life: str) -> Engine:
    """From the answer of `GET /info`."""
    options = [str(x) for x in info.get("SecurityOptions") or []]
    profiles = [x.partition("profile=")[2] or "on" for x in options if x.startswith("name=seccomp")]
    drivers = (info.get("Plugins") or {}).get("Log") or ["local"]
    raw = re.sub(r"[^A-Za-z0-9]", "", str(info.get("ID") or "")) or "unknown"
    return Engine(
        id=raw[:12].lower(),
        life=life,
        version=str(info.get("ServerVersion") or "?"),
        rootless=any(x.startswith("name=rootless") for x in options),
        remaps=any(x.startswith("name=userns") for x in options),
        cpus=float(info.get("NCPU") or 0),
        live_restore=bool(info.get("LiveRestoreEnabled")),
        cgroup=str(info.get("CgroupVersion") or "?"),
        seccomp=profiles[0] if profiles else "off",
        log_driver="local" if "local" in drivers else "json-file",
    )


def find_fault(job: Job) -> str:
    """What is wrong with a job before any engine is asked, in one line; empty when nothing is."""
    if not _NAME.fullmatch(job.name):
        return f"job name {job.name!r}: use 2 to 128 of [a-zA-Z0-9_.-], starting with a letter or digit"
    if not job.argv or not all(job.argv[:1]):
        return f"job {job.name}: argv is empty; name the program to run"
    if not job.image:
        return f"job {job.name}: no image; set containers.image"
    if job.stdin:
        return f"job {job.name}: containers are given no standard input; pass a file in a mount instead"
    if job.network not in ("none", "bridge"):
        return f"job {job.name}: network {job.network!r}; use none or bridge"
    if job.network == "bridge" and job.role != "prepare":
        return f"job {job.name}: only the role prepare may have network, not {job.role}"
    if not PurePosixPath(job.workdir).is_absolute():
        return f"job {job.name}: workdir {job.workdir!r} is not an absolute path"
    if any("=" in k or not k or "\0" in k + v for k, v in job.env.items()):
        return f"job {job.name}: an environment name is empty or holds '=' or NUL"
    lim = job.limits
    if min(lim.memory_bytes, lim.cpus, lim.pids, lim.tmp_bytes) <= 0:
        return f"job {job.name}: limits of memory, cpus, pids and tmp must be above zero"
    return ""


def translate(mount: Mount, places: Places) -> str:
    """The source of a mount as the engine's host sees it. Raises ValueError with one clear line.

    A relative path must stay below the data folder, also through symbolic links: whoever could write a link
    there would otherwise choose what gets mounted."""
    target = PurePosixPath(mount.target)
    if not target.is_absolute() or ".." in target.parts or str(target) == "/":
        raise ValueError(f"mount target {mount.target!r}: use an absolute path below /, without ..")
    if any(str(target) == x or str(target).startswith(f"{x}/") for x in _FORBIDDEN_TARGETS):
        raise ValueError(f"mount target {mount.target!r}: /proc, /sys and /dev belong to the engine")
    if mount.mode not in ("ro", "rw"):
        raise ValueError(f"mount {mount.path}: mode {mount.mode!r}; use ro or rw")
    root = places.data.resolve()
    given = Path(mount.path)
    real = (given if given.is_absolute() else root / given).resolve()
    if places.socket is not None and places.socket.resolve().is_relative_to(real):
        raise ValueError(f"mount {mount.path}: it would hand over the engine's socket")
    if real.is_relative_to(root):
        return str(places.host_data / real.relative_to(root))
    if not given.is_absolute():
        raise ValueError(f"mount {mount.path}: it leads out of the data folder to {real}")
    return str(real)


def fingerprint(job: Job) -> str:
    """SHA-256 of the whole job, shortened: tells whether a container of that name was made from it."""
    text = json.dumps(asdict(job), sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def labels_of(job: Job, instance: str, repo: str) -> dict[str, str]:
    """The job's own labels, and over them those that say whose it is."""
    own = dict(job.labels)
    for short, full in (("attempt", ATTEMPT), ("epoch", EPOCH)):
        own.setdefault(full, own.get(short, ""))
    return {**own, INSTANCE: instance, REPO: repo, ROLE: job.role, SPEC: fingerprint(job)}


def is_ours(labels: Mapping[str, str] | None, instance: str, repo: str) -> bool:
    return labels is not None and (labels.get(INSTANCE), labels.get(REPO)) == (instance, repo)


def specify(
    job: Job,
    places: Places,
    *,
    user: str,
    engine: Engine,
    labels: Mapping[str, str],
    caps: Iterable[str] = (),
) -> dict[str, Any]:
    """The body of `POST /containers/create`. Raises ValueError for a mount that may not be.

    `caps` is for the purge of foreign-owned files only. The image's entrypoint, health check and stop signal
    are overridden: what runs is argv and nothing else."""
    lim = job.limits
    return {
        "Image": job.image,
        "Entrypoint": [job.argv[0]],
        "Cmd": list(job.argv[1:]),
        "Env": [f"{k}={v}" for k, v in job.env.items()],
        "User": user,
        "WorkingDir": job.workdir,
        "Hostname": "harness",
        "Labels": dict(labels),
        "Healthcheck": {"Test": ["NONE"]},
        "StopSignal": "SIGTERM",
        "Tty": False,
        "OpenStdin": False,
        "AttachStdin": False,
        "AttachStdout": False,
        "AttachStderr": False,
        "HostConfig": {
            "NetworkMode": job.network,
            "RestartPolicy": {"Name": "no"},
            "AutoRemove": False,
            "Privileged": False,
            "CapDrop": ["ALL"],
            "CapAdd": list(caps),
            "SecurityOpt": ["no-new-privileges"],
            "ReadonlyRootfs": True,
            # Validations and agents run what they have just built in /tmp, so it is not noexec.
            "Tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={lim.tmp_bytes}"},
            "ShmSize": _SHM_BYTES,
            "Memory": lim.memory_bytes,
            "MemorySwap": lim.memory_bytes,
            "NanoCpus": int(min(lim.cpus, engine.cpus or lim.cpus) * 1_000_000_000),
            "PidsLimit": lim.pids,
            "Ulimits": [
                {"Name": "nofile", "Soft": _FILES, "Hard": _FILES},
                {"Name": "core", "Soft": 0, "Hard": 0},
            ],
            "Init": True,
            "IpcMode": "private",
            "Devices": [],
            # When the host itself runs out of memory, a worker goes before the director does.
            "OomScoreAdj": 500,
            "LogConfig": {"Type": engine.log_driver, "Config": {"max-size": "10m", "max-file": "3"}},
            "Mounts": [
                {
                    "Type": "bind",
                    "Source": translate(m, places),
                    "Target": m.target,
                    "ReadOnly": m.mode == "ro",
                    "BindOptions": {"Propagation": "rprivate"},
                }
                for m in job.mounts
            ],
        },
    }


def parse_time(text: str | None) -> float | None:
    """POSIX seconds of one of the engine's times. Zero dates (year 1, or 1970) are None; nine-digit fractions
    and offsets are read; never through the local time zone."""
    found = _TIME.fullmatch(text or "")
    if not found or found[1] <= "1970-01-01T00:00:00":
        return None
    zone = "+00:00" if found[3] == "Z" else found[3]
    whole = datetime.fromisoformat(found[1] + zone).astimezone(UTC).timestamp()
    return whole + float(f"0.{found[2] or 0}")


_PHASES = {
    "created": "PENDING",
    "running": "RUNNING",
    "paused": "RUNNING",
    "restarting": "RUNNING",
    "exited": "EXITED",
    "dead": "EXITED",
    "removing": "LOST",
}


def read_status(attrs: Mapping[str, Any], engine: str) -> Status:
    """From the answer of `GET /containers/{id}/json`."""
    state = attrs.get("State") or {}
    word = str(state.get("Status") or "")
    phase = _PHASES.get(word, "LOST")
    error = str(state.get("Error") or "")
    # A container whose start failed stays "created", with the reason beside it: it will never run.
    if word == "created" and error:
        phase = "REJECTED"
    notes = [word] if word in ("paused", "restarting", "dead", "removing") else []
    return Status(
        name=str(attrs.get("Name") or "").lstrip("/"),
        phase=phase,
        exit=int(state["ExitCode"]) if phase == "EXITED" and "ExitCode" in state else None,
        oom=bool(state.get("OOMKilled")),
        started_at=parse_time(state.get("StartedAt")),
        finished_at=parse_time(state.get("FinishedAt")) if phase == "EXITED" else None,
        engine=engine,
        image=str(attrs.get("Image") or ""),
        labels=dict((attrs.get("Config") or {}).get("Labels") or {}),
        detail=": ".join([*notes, error] if error else notes),
    )


class Demultiplexer:
    """The engine's framed log (8 bytes of header, then payload, per stream) to plain bytes.

    The two streams are joined line by line: bytes of one never land inside a line, hence inside a character,
    of the other (an unfinished line is held back, up to a bound)."""

    def __init__(self) -> None:
        self._raw = bytearray()
        self._held: dict[int, bytearray] = {}

    def feed(self, chunk: bytes) -> bytes:
        self._raw += chunk
        out = bytearray()
        while len(self._raw) >= 8:
            size = int.from_bytes(self._raw[4:8], "big")
            if len(self._raw) < 8 + size:
                break
            held = self._held.setdefault(self._raw[0], bytearray())
            held += self._raw[8 : 8 + size]
            del self._raw[: 8 + size]
            cut = held.rfind(b"\n") + 1 or (len(held) if len(held) > _PARTIAL_LIMIT_BYTES else 0)
            out += held[:cut]
            del held[:cut]
        return bytes(out)

    def finish(self) -> bytes:
        """What was still held back."""
        out = b"".join(bytes(x) for x in self._held.values())
        self._held.clear()
        return out
