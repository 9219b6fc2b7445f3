"""A container engine of a test's own: it may be frozen, killed and restarted without harming anybody.

The one rule: it lives in a network namespace of its own. A second `dockerd` in the host's namespace would
take the host's bridge down.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

NEEDED = ("dockerd", "containerd", "docker", "unshare")


def reason_missing() -> str:
    """Why no private engine can be had here, or an empty string."""
    if os.geteuid() != 0:
        return "a private engine needs root"
    absent = [tool for tool in NEEDED if shutil.which(tool) is None]
    return f"a private engine needs {', '.join(absent)}" if absent else ""


def _accepts(path: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(path))
            return True
    except OSError:
        return False


class PrivateEngine:
    """`dockerd` with its own data, sockets and network. Use it as a context manager."""

    def __init__(self, *, live_restore: bool = False) -> None:
        # Short: unix socket paths end at about 104 bytes, and containerd nests its own below it.
        self.root = Path(tempfile.mkdtemp(prefix="hpe-", dir="/tmp"))
        self.socket = self.root / "d.sock"
        self.host = f"unix://{self.socket}"
        self.live_restore = live_restore
        self._process: subprocess.Popen[bytes] | None = None
        self._containerd: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PrivateEngine:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the engine is not running")
        return self._process.pid

    def start(self, within_s: float = 60.0) -> None:
        """Start the daemon and wait until it answers.

        Its containerd is a process of its own, as under systemd, and outlives it."""
        end = time.monotonic() + within_s
        if self._containerd is None:
            self._containerd = self._spawn(
                "containerd", "--root", str(self.root / "cd"), "--state", str(self.root / "cs"),
                "--address", str(self.root / "cd.sock"),
            )  # fmt: skip
            while not _accepts(self.root / "cd.sock"):
                self._still(self._containerd, end)
        config = self.root / "daemon.json"
        config.write_text(json.dumps({"live-restore": self.live_restore}))
        self._process = self._spawn(
            "unshare", "--net", "--", "dockerd",
            "--config-file", str(config),
            "--data-root", str(self.root / "data"),
            "--exec-root", str(self.root / "exec"),
            "--pidfile", str(self.root / "d.pid"),
            "--containerd", str(self.root / "cd.sock"),
            "--host", self.host,
            "--iptables=false", "--ip-masq=false",
        )  # fmt: skip
        while not self.answers():
            self._still(self._process, end)

    def _spawn(self, *argv: str) -> subprocess.Popen[bytes]:
        with open(self.root / "log", "ab") as log:
            return subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _still(self, process: subprocess.Popen[bytes], end: float) -> None:
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"no private engine: {(self.root / 'log').read_text()[-2000:]}")
        time.sleep(0.05)

    def answers(self, timeout_s: float = 2.0) -> bool:
        """Whether a plain request is answered now."""
        try:
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(timeout_s)
                s.connect(str(self.socket))
                s.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
                return b"200 OK" in s.recv(200)
        except OSError:
            return False

    def freeze(self) -> None:
        """Hang: connections are accepted by the kernel and never answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Die without a word, as after an OOM kill or a crash."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """A graceful stop, as in an upgrade of the engine."""
        self._end(signal.SIGTERM)

    def restart(self, *, graceful: bool = False) -> None:
        if graceful:
            self.stop()
        else:
            self.kill()
        self.start()

    def run(self, *args: str, timeout_s: float = 120.0) -> str:
        """The command line of this engine, for preparing and for looking."""
        argv = ["docker", "-H", self.host, *args]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
        return done.stdout

    def load(self, image: str) -> str:
        """Copy an image from the machine's engine into this one; answers its id here."""
        with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as save:
            argv = ["docker", "-H", self.host, "load"]
            subprocess.run(argv, stdin=save.stdout, check=True, capture_output=True, timeout=240)
        return self.run("image", "inspect", "-f", "{{.Id}}", image).strip()

    def _end(self, sig: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        process.send_signal(sig)
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
        self._process = None

    def _left(self) -> list[int]:
        """Processes of this engine that are still there: only ours name this folder."""
        mark = f"{self.root}/".encode()
        found = []
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
            except OSError:
                continue
            if mark in line and int(folder.name) != os.getpid():
                found.append(int(folder.name))
        return found

    def close(self) -> None:
        """End it with all that it started, and remove its folder."""
        if self._process is not None and self._process.poll() is None:
            self.thaw()
            try:
                ids = self.run("ps", "-aq", timeout_s=20).split()
                if ids:
                    self.run("rm", "-fv", *ids, timeout_s=60)
            except (subprocess.SubprocessError, RuntimeError, OSError):
                pass  # An engine that a test broke; what is left of it is ended below.
            self._end(signal.SIGTERM)
        if self._containerd is not None:
            self._containerd.terminate()
            self._containerd.wait(20)
        for pid in self._left():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._unmount()
        shutil.rmtree(self.root, ignore_errors=True)

    def _unmount(self) -> None:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        ours = [line.split()[1] for line in mounts if line.split()[1].startswith(f"{self.root}/")]
        for point in reversed(ours):
            subprocess.run(["umount", "-l", point], check=False, capture_output=True)
