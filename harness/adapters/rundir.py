"""A run's folder, read from outside: what its shim left there, and whether that shim lives.

The one rule: a shim is only ever signalled after its lock, boot and start time were checked; a pid from before a
reboot, or used again since, is nobody's. Else only what bears a lost run's cookie is, and what is below that.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.domain import Status

LIMITS = frozenset({"wall", "output"})
STRAYS_S, STRAYS_ROUNDS = 1.0, 10
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    return BOOT_ID.read_text().strip()


def read(path: Path) -> dict[str, Any]:
    """A JSON object, or nothing where there is no file. These files appear by rename, so never by halves."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{path} is not a JSON object")
    return value


def write(path: Path, text: str) -> None:
    new = path.with_name(path.name + ".new")
    with new.open("w", encoding="utf-8") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    new.chmod(0o600)
    new.rename(path)


def _locked(folder: Path) -> bool:
    """Whether a shim lives there."""
    try:
        fd = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _start_ticks(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat.rsplit(b")", 1)[1].split()[19])


def look(folder: Path, now: float, pending_s: float) -> Status | None:
    """What the folder says. PENDING: made, and its shim never began, but may within `pending_s`. LOST: its shim is
    gone without a word, and so is by now all that it had started: nothing of it writes any more."""
    if not (folder / "job.json").exists():
        return None
    job = read(folder / "job.json")
    # First of all: a shim that had begun by now held its lock before, and holds it as long as it lives.
    started = read(folder / "started.json")
    ended = read(folder / "exit.json")
    alive = not ended and _locked(folder)
    if not ended and not alive:
        ended = read(folder / "exit.json")  # it may have ended between the two looks
    told = read(folder / "progress.json")
    seen = Status(
        name=folder.name,
        phase="RUNNING",
        started_at=started.get("at"),
        engine=boot_id(),
        image=job["image"],
        labels=job["labels"],
        output_bytes=told.get("output_bytes", 0),
        cpu_s=told.get("cpu_s", 0.0),
        progress_at=told.get("progress_at", 0.0),
    )
    if ended:
        return _exited(seen, ended)
    if alive:
        return seen
    if not started and now - job["made_at"] < pending_s:
        return replace(seen, phase="PENDING")
    if started:
        end_strays(folder)
    return replace(seen, phase="LOST", detail=f"its shim is gone and left no exit: {last_words(folder)}")


def ask_to_stop(folder: Path, grace_s: float) -> int | None:
    """Signal the shim if it is surely the one that holds the lock; a pidfd of it, or None where none lives.

    OSError where the lock is held and yet the saved pid is not that shim: nothing is signalled then."""
    if read(folder / "exit.json") or not _locked(folder):
        return None
    started = read(folder / "started.json")
    if not started or started["boot_id"] != boot_id():
        raise OSError(f"{folder} is locked by something that is not its shim; nothing was signalled")
    try:
        shim = os.pidfd_open(int(started["pid"]))
    except ProcessLookupError:
        return None  # it ended after we saw its lock
    if _start_ticks(int(started["pid"])) != started["start_ticks"]:
        os.close(shim)
        raise OSError(f"{folder}: pid {started['pid']} is another process now; nothing was signalled")
    write(folder / "grace", f"{grace_s:g}")
    try:
        signal.pidfd_send_signal(shim, signal.SIGTERM)
    except ProcessLookupError:
        os.close(shim)
        return None
    return shim


def _exited(seen: Status, ended: dict[str, Any]) -> Status:
    """`exit` is 128 + n for a command that signal n ended, as an engine would say it."""
    number = ended["signal"]
    notes = [] if ended["reason"] == "exited" else [ended["reason"]]
    if ended["strays"]:
        notes.append(f"{ended['strays']} processes were left and ended")
    if ended["trouble"]:
        notes.append(ended["trouble"])
    return replace(
        seen,
        phase="EXITED",
        exit=ended["exit"] if number is None else 128 + number,
        signal=number,
        started_at=ended["started_at"],
        finished_at=ended["finished_at"],
        output_bytes=ended["output_bytes"],
        cpu_s=ended["cpu_s"],
        detail="; ".join(notes),
        limit=ended["reason"] if ended["reason"] in LIMITS else "",
    )


def last_words(folder: Path) -> str:
    lines = tail(folder / "shim.err", 4096).decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def tail(path: Path, limit_bytes: int) -> bytes:
    try:
        with path.open("rb") as f:
            size = f.seek(0, os.SEEK_END)
            f.seek(max(size - limit_bytes, 0))
            return f.read(limit_bytes)
    except FileNotFoundError:
        return b""


def end_strays(folder: Path) -> None:
    """Kill what bears a lost run's cookie, and what is below it; the shim that would have swept it is dead.

    OSError where something does not end."""
    cookie = read(folder / "job.json").get("env", {}).get("HARNESS_RUN_COOKIE", "")
    mark = f"HARNESS_RUN_COOKIE={cookie}".encode()
    found: list[int] = []
    for _ in range(STRAYS_ROUNDS if cookie else 0):
        found = _strays(mark)
        if not found:
            return
        for pid in found:
            _kill(pid)
    if found:
        raise OSError(f"{folder}: its shim is dead, and what it started does not end: {found}")


def _strays(mark: bytes) -> list[int]:
    """Live processes that bear the cookie, or one that begins with it (of a run in this run), and all below."""
    marked: list[int] = []
    below: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/environ"):
        pid = int(path.parent.name)
        try:
            fields = (path.parent / "stat").read_bytes().rsplit(b")", 1)[1].split()
            env = path.read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # ended meanwhile, or another user's
        if fields[0] not in b"ZX":
            below.setdefault(int(fields[1]), []).append(pid)
        if any(e == mark or e.startswith(mark + b"/") for e in env):
            marked.append(pid)
    found: list[int] = []
    while marked:
        found.append(marked.pop())
        marked += (p for p in below.get(found[-1], ()) if p not in marked and p not in found)
    return found


def _kill(pid: int) -> None:
    """And wait for its end, a moment."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
        select.select([process], [], [], STRAYS_S)
    except ProcessLookupError:
        return
    finally:
        os.close(process)
