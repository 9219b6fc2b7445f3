"""The lease on a data folder: real locks between real processes."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness.adapters.store.errors import StoreError
from harness.adapters.store.lease import Lease, LeaseHeld, instance_id, is_held, owner_of, refuse_held
from harness.compose.errors import StartError
from harness.compose.parts import secret_of


class Time:
    """A clock that stands still."""

    def now(self) -> float:
        return 1_700_000_000.0

    def monotonic(self) -> float:
        return 0.0


HOLDER = """
import sys, time
from pathlib import Path
from harness.adapters.store.lease import Lease
class Time:
    def now(self): return 1_700_000_000.0
    def monotonic(self): return 0.0
lease = Lease.take(Path(sys.argv[1]), clock=Time())
print("held", flush=True)
sys.stdin.read()
"""


def holder(data: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(data)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "held\n"
    return child


def end(child: subprocess.Popen[str]) -> None:
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=10)


def take(data: Path, **more: object) -> Lease:
    return Lease.take(data, clock=Time(), **more)  # type: ignore[arg-type]


def test_a_second_director_is_refused_at_once_and_told_whose_it_is(tmp_path: Path) -> None:
    child = holder(tmp_path)
    begun = time.monotonic()
    with pytest.raises(LeaseHeld) as caught:
        take(tmp_path)
    assert time.monotonic() - begun < 2
    line = str(caught.value)
    assert f"process {child.pid} on {os.uname().nodename} since 2023-11-14T22:13:20+00:00" in line
    assert "\n" not in line and "harness stop" in line
    assert is_held(tmp_path)
    end(child)


def test_a_killed_director_leaves_no_lock_behind(tmp_path: Path) -> None:
    end(holder(tmp_path))
    assert owner_of(tmp_path / "lock")["pid"], "its name is still in the file"
    assert not is_held(tmp_path)
    with take(tmp_path):
        assert owner_of(tmp_path / "lock")["pid"] == os.getpid()
    assert owner_of(tmp_path / "lock") == {} and not is_held(tmp_path)


def test_a_lock_that_cannot_be_looked_at_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's data folder: "no director is running" would be told of one that runs."""
    assert not is_held(tmp_path / "never" / "was")
    opened = os.open

    def refused(path: Any, *more: Any, **options: Any) -> int:
        if path == tmp_path / "lock":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opened(path, *more, **options)

    with take(tmp_path), monkeypatch.context() as m:
        m.setattr(os, "open", refused)
        with pytest.raises(StoreError, match="nobody knows whether a director runs: Permission denied"):
            is_held(tmp_path)


@pytest.mark.parametrize("pid", [2**22 + 1, os.getppid()])
@pytest.mark.parametrize("host", [os.uname().nodename, "another-host"])
def test_no_process_id_or_host_in_a_file_is_believed(tmp_path: Path, pid: int, host: str) -> None:
    (tmp_path / "lock").write_text(
        json.dumps({"pid": pid, "host": host, "since": "2020-01-01T00:00:00+00:00"})
    )
    take(tmp_path).release()


@pytest.mark.parametrize("content", [b"", b"\0\0\0", b"[]", b"{", b"\xff" * 9000])
def test_whatever_a_crash_left_in_the_file_is_no_obstacle(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "lock").write_bytes(content)
    lease = take(tmp_path)
    with pytest.raises(LeaseHeld):
        take(tmp_path)
    lease.release()
    lease.release()


def test_a_shared_folder_trusts_the_name_of_another_host(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    data = tmp_path / "data"
    data.mkdir()
    mounts.write_text(f"1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:5 / {data} rw - nfs4 host:/x rw\n")
    owner = {"pid": 5, "host": "another-host", "since": "2020-01-01T00:00:00+00:00"}
    (data / "lock").write_text(json.dumps(owner))
    with pytest.raises(LeaseHeld, match=r"process 5 on another-host .*nfs4.*--take-over"):
        take(data, mounts=mounts)
    assert json.loads((data / "lock").read_text()) == owner
    take(data, mounts=mounts, take_over=True).release()
    take(data, mounts=mounts).release()


def test_a_folder_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="the data folder must be writable"):
        take(tmp_path / "file" / "data")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError):
        take(tmp_path / "data")
    assert not (tmp_path / "elsewhere").exists()


def test_the_lock_does_not_leak_into_children(tmp_path: Path) -> None:
    lease = take(tmp_path)
    child = subprocess.Popen(["sleep", "60"])
    lease.release()
    again = take(tmp_path)
    again.release()
    child.kill()
    child.wait(10)


def test_who_has_it_is_told_without_taking_it(tmp_path: Path) -> None:
    refuse_held(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
    lease = take(tmp_path)
    with pytest.raises(LeaseHeld, match=f"process {os.getpid()} on .*; stop it first"):
        refuse_held(tmp_path)
    lease.release()
    refuse_held(tmp_path)
    take(tmp_path).release()


def test_a_secret_that_was_cut_off_is_none(tmp_path: Path) -> None:
    kept = secret_of(tmp_path)
    assert len(kept) == 32 and secret_of(tmp_path) == kept
    for bad in (b"", kept[:10]):
        (tmp_path / "secret").write_bytes(bad)
        with pytest.raises(StartError, match="is damaged"):
            secret_of(tmp_path)
        assert (tmp_path / "secret").read_bytes() == bad


def test_a_data_folder_keeps_its_name(tmp_path: Path) -> None:
    data = tmp_path / "data"
    name = instance_id(data)
    assert len(name) == 8 and int(name, 16) >= 0
    assert instance_id(data) == name and instance_id(tmp_path / "other") != name
    assert [p.name for p in data.iterdir()] == ["instance"]
    for bad in (b"", b"zzzzzzzz", b"1234"):
        (data / "instance").write_bytes(bad)
        with pytest.raises(StoreError, match="is damaged"):
            instance_id(data)
        assert (data / "instance").read_bytes() == bad


def test_two_starts_at_once_agree_on_the_name(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from harness.adapters.store.lease import instance_id;"
        "print(instance_id(Path(sys.argv[1])))"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    assert len({child.communicate(timeout=60)[0] for child in children}) == 1
