"""Feeds and reads one process until it has ended, or until its deadline or its output says that it must.

The one rule: every child is in a group of its own, and when this returns the whole group is gone.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from subprocess import Popen
from typing import IO

_GRACE_S = 2.0
_CHUNK = 1 << 16
_LOOK_S = 0.2


class Pump:
    """Feeds a process and reads it, until it has ended or must. `out` is capped by ending the process, of
    `err` the last bytes are kept."""

    def __init__(
        self, process: Popen[bytes], feed: bytes, until: float, output_bytes: int, stderr_bytes: int
    ) -> None:
        self.process = process
        self.out = bytearray()
        self.err = bytearray()
        self.late = False
        self.flooded = False
        self._feed = memoryview(feed)
        self._until = until
        self._out_limit = output_bytes
        self._err_limit = stderr_bytes
        self._open = sum(s is not None for s in (process.stdin, process.stdout, process.stderr))
        self._asked_at: float | None = None
        self._ended_at: float | None = None

    def drive(self) -> None:
        """Returns when the process has exited and its output is read, or when it is to be killed."""
        streams = (self.process.stdin, self.process.stdout, self.process.stderr)
        exits = _exit_fd(self.process.pid)
        with selectors.DefaultSelector() as selector:
            for stream in streams:
                if stream is not None:
                    os.set_blocking(stream.fileno(), False)
                    into = stream is self.process.stdin
                    selector.register(stream, selectors.EVENT_WRITE if into else selectors.EVENT_READ)
            if exits is not None:
                selector.register(exits, selectors.EVENT_READ)
            try:
                while not self._is_over(selector):
                    self._serve(selector)
            finally:
                for stream in streams:
                    _close(stream)
                if exits is not None:
                    os.close(exits)

    def _serve(self, selector: selectors.BaseSelector) -> None:
        for key, _ in selector.select(_LOOK_S if self._open else _LOOK_S / 10):
            stream = key.fileobj
            if isinstance(stream, int):  # it has exited
                selector.unregister(stream)
                continue
            if stream is self.process.stdin:
                done = self._write()
            else:
                done = self._read(self.out if stream is self.process.stdout else self.err, key.fd)
            if done:
                selector.unregister(stream)
                _close(stream)  # type: ignore[arg-type]
                self._open -= 1

    def _write(self) -> bool:
        stdin = self.process.stdin
        if stdin is None:
            return True
        try:
            if self._feed:
                self._feed = self._feed[os.write(stdin.fileno(), self._feed[:_CHUNK]) :]
        except BlockingIOError:
            return False
        except BrokenPipeError:
            return True  # git ended early; its exit status says why
        return not self._feed

    def _read(self, into: bytearray, fd: int) -> bool:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        into += data
        if into is self.err:
            del into[: max(0, len(into) - self._err_limit)]
        elif len(into) > self._out_limit:
            self.flooded = True
        return not data

    def _is_over(self, selector: selectors.BaseSelector) -> bool:
        now = time.monotonic()
        if _has_ended(self.process.pid):
            # Whoever still holds the pipes then is a grandchild, and what git wrote is there already.
            self._ended_at = self._ended_at or now
            return not self._open or now > self._ended_at + _LOOK_S
        if self._asked_at is None and (self.flooded or now > self._until):
            # SIGTERM first, so that git removes its locks.
            self.late = not self.flooded
            self._asked_at = now
            signal_group(self.process.pid, signal.SIGTERM)
        return self._asked_at is not None and now > self._asked_at + _GRACE_S


def _exit_fd(pid: int) -> int | None:
    """Something to select on that becomes readable when the process exits, where the system has that."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _close(stream: IO[bytes] | None) -> None:
    if stream is not None and not stream.closed:
        try:
            stream.close()
        except BrokenPipeError:
            return


def _has_ended(pid: int) -> bool:
    """Whether it has exited, without reaping it: as long as it is not reaped, its group's number is ours."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def end_group(process: Popen[bytes]) -> int:
    """End every process of the group and reap the leader; answers its exit status."""
    signal_group(process.pid, signal.SIGKILL)
    return process.wait()


def signal_group(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return
    except PermissionError:
        # macOS says so of a group of zombies only.
        return
