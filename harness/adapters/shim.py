"""The shim: runs one command, outlives whoever started it, and leaves an exit that anybody can read later.

Stand-alone, standard library only: `python -I shim.py RUNDIR`. It detaches itself and answers 0 once it holds
the lock. The one rule: the lock is held exactly as long as the command is looked after, so an observer tells
alive (lock held), ended (`exit.json`) and lost (neither) apart without trusting a pid.

job.json (read): argv, env, cwd, stdin (path or null), log (path), keep_bytes (kept of the output, head and
tail), limit_bytes (more output stops it), wall_s, grace_s, within (started by the command of another shim, with
which it ends). grace (read at SIGTERM): seconds in its place.
started.json: pid, start_ticks, boot_id, at. progress.json (each second, by rename): output_bytes, cpu_s, at,
progress_at (when it last printed, used more than `BUSY` of a processor, or changed a file below cwd).
exit.json (last, by rename): exit (null when a signal ended it), signal, started_at, finished_at,
output_bytes, cpu_s, strays, trouble, reason: exited, stopped (SIGTERM to us), wall, output.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any

DRAIN_S = 5.0  # a background child may hold the pipe for ever: the run is over all the same
QUIET_S, SWEEP_S, PROGRESS_S, LOCK_S = 1.0, 2.0, 1.0, 5.0
READ_BYTES, EXIT_FILE_BYTES, KILL_ROUNDS = 1 << 16, 4096, 100
BUSY = 0.05  # less is what programs use that only wait
FILES_LIMIT, FILES_EVERY_S, FILES_SHARE = 20_000, 2.0, 50  # looking for changes takes 1/50 of the time
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
TICKS = os.sysconf("SC_CLK_TCK")
LIBC = ctypes.CDLL(None, use_errno=True)


def put(path: str, data: bytes) -> None:
    """Overwrite in place, to the disk: blocks that the file has stay its own."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.write(fd, data) != len(data):
            raise OSError(f"short write to {path}")
        os.ftruncate(fd, len(data))
        os.fsync(fd)
    finally:
        os.close(fd)


def write_json(path: str, value: Any) -> None:
    put(path + ".new", json.dumps(value).encode())
    os.rename(path + ".new", path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(folder)
    os.close(folder)


class Output:
    """The log: the first half of `keep_bytes` and the newest of what follows, on disk, never in memory.

    While the command runs the newest is in two rotating files, `.tail-old` and `.tail`; `finish` joins them.
    A disk that is full costs output, not the run: the first error is kept in `trouble`.
    """

    MODE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC

    def __init__(self, path: str, keep_bytes: int) -> None:
        self.path, self.old_path, self.new_path = path, path + ".tail-old", path + ".tail"
        self.head_room, self.segment_bytes = max(keep_bytes // 2, 1), max(keep_bytes // 4, 1)
        self.total = self.kept = self.in_new = 0
        self.trouble = ""
        self.head, self.new = os.open(path, self.MODE, 0o600), -1

    def _put(self, fd: int, data: memoryview) -> int:
        done = 0
        try:
            while done < len(data):
                done += os.write(fd, data[done:])
        except OSError as e:
            self.trouble = self.trouble or f"{self.path}: {e.strerror}"
        return done

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        self.total += len(view)
        if self.head_room:
            part = view[: self.head_room]
            self.kept += self._put(self.head, part)
            self.head_room -= len(part)
            view = view[len(part) :]
        while len(view):
            if self.new < 0 or self.in_new >= self.segment_bytes:
                self._rotate()
            part = view[: self.segment_bytes - self.in_new]
            if self.new >= 0:
                self._put(self.new, part)
            self.in_new += len(part)
            view = view[len(part) :]

    def _rotate(self) -> None:
        if self.new >= 0:
            os.close(self.new)
            os.rename(self.new_path, self.old_path)
        self.in_new = 0
        try:
            self.new = os.open(self.new_path, self.MODE, 0o600)
        except OSError as e:
            self.new, self.trouble = -1, self.trouble or f"{self.new_path}: {e.strerror}"

    def finish(self) -> None:
        """Append the tail to the head, with a marker line where bytes were dropped."""
        sizes = [os.path.getsize(p) for p in (self.old_path, self.new_path) if os.path.exists(p)]
        dropped = self.total - self.kept - sum(sizes)
        if dropped > 0:
            self._put(self.head, memoryview(b"\n[harness: %d bytes dropped here]\n" % dropped))
        for path in (self.old_path, self.new_path):
            if os.path.exists(path):
                with open(path, "rb", buffering=0) as f:
                    while block := f.read(READ_BYTES):
                        self._put(self.head, memoryview(block))
                if not self.trouble:  # else the tail stays beside the log, where readers look too
                    os.unlink(path)
        os.close(self.head)


def stat(pid: int) -> list[bytes]:
    """/proc/PID/stat from the state on (proc(5) field 3 is index 0), or nothing when it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            return f.read().rsplit(b")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def family() -> dict[int, tuple[str, float]]:
    """Our descendants, zombies too: pid to (state, CPU seconds). Orphans come to us, a subreaper."""
    rows: dict[int, tuple[str, float]] = {}
    children: dict[int, list[int]] = {}
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        fields = stat(pid)
        if fields:
            rows[pid] = (fields[0].decode(), sum(map(int, fields[11:15])) / TICKS)
            children.setdefault(int(fields[1]), []).append(pid)
    found: dict[int, tuple[str, float]] = {}
    todo = [os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        found |= {pid: rows[pid] for pid in below}
        todo += below
    return found


def changed(folder: str, since: float) -> float:
    """When something below the folder changed last (of FILES_LIMIT entries), or `since`. Times to come lie."""
    newest, left, until = since, FILES_LIMIT, time.time() + 1.0
    for at, _, files in os.walk(folder):
        left -= 1 + len(files)
        if left < 0:
            break
        for name in (".", *files):
            with contextlib.suppress(OSError):
                seen = os.lstat(os.path.join(at, name)).st_mtime
                newest = seen if newest < seen < until else newest
    return newest


def living() -> list[int]:
    return [pid for pid, (state, _) in family().items() if state not in "ZX"]


def signal_all(number: int) -> None:
    for pid in living():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def before_exec() -> None:
    """In the child: die with the shim (a lost run must not go on working), be the OOM killer's choice before
    the shim, no core files, default signals."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as f:
        f.write("500")


class Run:
    """One command from its start to the sweep after it."""

    def __init__(self, folder: str, job: dict[str, Any]) -> None:
        self.folder, self.job = folder, job
        self.output = Output(job["log"], int(job["keep_bytes"]))
        self.started_at, self.began = time.time(), time.monotonic()
        self.status: int | None = None  # as waitpid gives it
        self.pid, self.cause, self.asked, self.keeper = 0, "", False, 0
        self.kill_at = self.ended = self.heard = self.began
        self.told = self.began - PROGRESS_S
        self.files_at = self.began
        self.cpu_s, self.pipe, self.progress_at, self.told_bytes = 0.0, -1, self.started_at, 0
        self.wake, wake_in = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)
        for number in (signal.SIGHUP, signal.SIGCHLD):  # not SIG_IGN: the command would inherit that
            signal.signal(number, lambda *_: None)

    def _ask(self, *_: object) -> None:
        self.asked = True

    def end_with(self, starter: int) -> None:
        """Be asked to end when the shim around us dies. We are its child once our starter has left."""
        until = time.monotonic() + LOCK_S
        while (keeper := os.getppid()) == starter and time.monotonic() < until:
            select.select([], [], [], 0.002)
        self.keeper = keeper
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != keeper:  # it died just before
            self._ask()

    def start(self) -> None:
        self.pipe, end = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.pipe, False)
        try:
            with open(self.job["stdin"] or "/dev/null", "rb") as stdin:
                child = subprocess.Popen(
                    self.job["argv"], stdin=stdin, stdout=end, stderr=end, cwd=self.job["cwd"],
                    env=self.job["env"], start_new_session=True, close_fds=True, preexec_fn=before_exec,
                )  # fmt: skip
        except (OSError, ValueError) as e:
            self.output.write(f"harness: cannot start {self.job['argv'][0]!r}: {e}\n".encode())
            self.status = (127 if isinstance(e, FileNotFoundError | NotADirectoryError) else 126) << 8
        else:
            self.pid = child.pid
            child.returncode = 0  # we reap everything ourselves; Popen must not try
        os.close(end)

    def pump(self, timeout_s: float) -> None:
        """Wait for output, a signal or the time; read what is there."""
        watched = [self.wake] + ([self.pipe] if self.pipe >= 0 else [])
        ready, _, _ = select.select(watched, [], [], max(timeout_s, 0.0))
        if self.wake in ready:
            os.read(self.wake, 512)
        if self.pipe not in ready:
            return
        self.heard = time.monotonic()
        if data := os.read(self.pipe, READ_BYTES):
            self.output.write(data)
        else:
            os.close(self.pipe)
            self.pipe = -1

    def reap(self) -> None:
        """Take every exit there is: the command's, and those of orphans."""
        with contextlib.suppress(ChildProcessError):  # there are no children
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == self.pid:
                    self.status, self.ended = found[1], time.monotonic()

    def tell(self) -> None:
        now = time.monotonic()
        if now - self.told < PROGRESS_S:
            return
        own = os.times()
        cpu_s = own.children_user + own.children_system + sum(cpu for _, cpu in family().values())
        if self.output.total > self.told_bytes or cpu_s - self.cpu_s > BUSY * (now - self.told):
            self.progress_at = time.time()
        elif now >= self.files_at:
            self.progress_at = changed(self.job["cwd"], self.progress_at)
            self.files_at = now + max(FILES_EVERY_S, FILES_SHARE * (time.monotonic() - now))
        self.cpu_s, self.told, self.told_bytes = max(self.cpu_s, cpu_s), now, self.output.total
        told = {"output_bytes": self.told_bytes, "cpu_s": round(self.cpu_s, 2), "at": time.time()}
        told["progress_at"] = self.progress_at
        path = os.path.join(self.folder, "progress.json")
        try:
            with open(path + ".new", "w") as f:
                json.dump(told, f)
            os.rename(path + ".new", path)
        except OSError as e:
            self.output.trouble = self.output.trouble or f"progress.json: {e.strerror}"

    def grace_s(self) -> float:
        """What the one who stops us asked for, else what the job says; none where the shim around us is dead."""
        if self.keeper and os.getppid() != self.keeper:
            return 0.0
        try:
            with open(os.path.join(self.folder, "grace")) as f:
                return max(float(f.read()), 0.0)
        except (OSError, ValueError):
            return float(self.job["grace_s"])

    def restrain(self) -> None:
        """Begin to stop it when a limit is reached or somebody asks; kill it when its grace is over."""
        now = time.monotonic()
        if not self.cause:
            late = now - self.began > float(self.job["wall_s"])
            much = self.output.total > int(self.job["limit_bytes"])
            self.cause = "stopped" if self.asked else "wall" if late else "output" if much else ""
            if self.cause:
                self.asked = False
                self.kill_at = now + self.grace_s()
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGTERM)
        elif self.asked:  # asked again, perhaps with less patience
            self.asked = False
            self.kill_at = min(self.kill_at, now + self.grace_s())
        if self.cause and now >= self.kill_at:
            signal_all(signal.SIGKILL)

    def watch(self) -> None:
        """Until the command itself has ended, whatever its children do."""
        self.tell()
        while self.status is None:
            self.pump(0.05 if self.cause else min(PROGRESS_S, 0.5))
            self.reap()
            self.tell()
            if self.status is None:
                self.restrain()

    def drain(self) -> None:
        """What is still in the pipe, for a moment: until its end, or silence, or too long."""
        until = self.ended + DRAIN_S
        while self.pipe >= 0 and not (self.asked or self.cause) and (now := time.monotonic()) < until:
            if now - max(self.heard, self.ended) > QUIET_S:
                return
            self.pump(0.1)
            self.reap()
            self.tell()

    def sweep(self) -> int:
        """End what is left of the family, also what made itself a session of its own; answers how many."""
        strays = len(living())
        signal_all(signal.SIGTERM)
        until = time.monotonic() + (0.0 if self.cause else min(SWEEP_S, self.grace_s()))
        while living() and time.monotonic() < until:
            self.pump(0.05)
            self.reap()
        for _ in range(KILL_ROUNDS):
            if not living():
                break
            signal_all(signal.SIGKILL)
            self.pump(0.02)
            self.reap()
        left = READ_BYTES * 64  # a pipe holds at most 1 MiB
        while self.pipe >= 0 and left > 0 and select.select([self.pipe], [], [], 0)[0]:
            self.pump(0)
            left -= READ_BYTES
        return strays

    def close(self, strays: int) -> None:
        self.told -= PROGRESS_S  # once more, at once
        self.tell()
        self.output.finish()
        ended = os.waitstatus_to_exitcode(self.status or 0)
        left = {
            "exit": ended if ended >= 0 else None, "signal": -ended if ended < 0 else None, "strays": strays,
            "started_at": self.started_at, "finished_at": time.time(), "cpu_s": round(self.cpu_s, 2),
            "output_bytes": self.output.total, "trouble": self.output.trouble,
            "reason": self.cause or "exited",
        }  # fmt: skip
        write_json(os.path.join(self.folder, "exit.json"), left)


def take_lock(folder: str) -> bool:
    """For our life. Observers hold it shared for an instant, hence the patience."""
    fd = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + LOCK_S
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() > until or os.path.exists(os.path.join(folder, "started.json")):
            return False
        select.select([], [], [], 0.02)


def begin(folder: str) -> Run | None:
    """The lock, and the mark that says: it was started, at most once. None when another was first."""
    started = os.path.join(folder, "started.json")
    if not take_lock(folder) or os.path.exists(started):
        return None
    with open(os.path.join(folder, "job.json"), encoding="utf-8") as f:
        run = Run(folder, json.load(f))
    with open("/proc/sys/kernel/random/boot_id") as f:
        boot_id = f.read().strip()
    put(os.path.join(folder, "exit.json.new"), b" " * EXIT_FILE_BYTES)  # a full disk must not lose the exit
    mark = {"pid": os.getpid(), "boot_id": boot_id, "at": run.started_at}
    write_json(started, mark | {"start_ticks": int(stat(os.getpid())[19])})
    return run


def detach(folder: str) -> int:
    """Become a process of our own, in a session of its own; a traceback of ours goes to RUNDIR/shim.err. The
    parent waits for the word that all is well and leaves; the child gets where to write it."""
    ready, word = os.pipe2(os.O_CLOEXEC)
    if os.fork():
        os.close(word)
        os._exit(0 if os.read(ready, 1) else 1)
    os.close(ready)
    os.setsid()
    os.chdir("/")
    null = os.open("/dev/null", os.O_RDWR)
    words = os.open(os.path.join(folder, "shim.err"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for fd, end in enumerate((null, null, words)):
        os.dup2(end, fd)
    return word


def main(argv: list[str]) -> int:
    if len(argv) != 2 or not os.path.isdir(argv[1]):
        print("usage: python -I shim.py RUNDIR (a folder with job.json)", file=sys.stderr)
        return 2
    folder = os.path.abspath(argv[1])
    word = detach(folder)
    starter = os.getppid()
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    run = begin(folder)
    if run is None:
        os.write(word, b"0")
        return 0
    run.start()
    os.write(word, b"1")
    if run.job.get("within"):
        run.end_with(starter)
    run.watch()
    run.drain()
    run.close(run.sweep())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
