"""The shim, with real processes: what it leaves behind is all that anybody can know of a run."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.adapters import shim

SHIM = str(Path(shim.__file__))
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


def make(folder: Path, *argv: str, **job: Any) -> Path:
    """A run folder with its job."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = {
        "argv": argv,
        "env": ENV,
        "cwd": str(folder),
        "stdin": None,
        "log": str(folder / "output.log"),
        "keep_bytes": 1 << 20,
        "limit_bytes": 1 << 40,
        "wall_s": 60,
        "grace_s": 5,
        **job,
    }
    (folder / "job.json").write_text(json.dumps(whole))
    return folder


def launch(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", SHIM, str(folder)], capture_output=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def wait(folder: Path) -> dict[str, Any]:
    """Block until the shim lets go of its lock; what it left as the exit, {} for nothing."""
    with (folder / "lock").open("rb") as f:
        fcntl.flock(f, fcntl.LOCK_SH)
    path = folder / "exit.json"
    value: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return value


def run(folder: Path, *argv: str, **job: Any) -> dict[str, Any]:
    launch(make(folder, *argv, **job))
    return wait(folder)


def shell(folder: Path, script: str, **job: Any) -> dict[str, Any]:
    return run(folder, "sh", "-c", script, **job)


def until(true: Callable[[], bool], timeout_s: float = 20.0) -> None:
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def said(folder: Path) -> bytes:
    return (folder / "output.log").read_bytes()


def shim_pid(folder: Path) -> int:
    return int(json.loads((folder / "started.json").read_text())["pid"])


def alive(pid: int) -> bool:
    fields = shim.stat(pid)
    return bool(fields) and fields[0] not in (b"Z", b"X")


def numbers(data: bytes) -> list[int]:
    return [int(x) for x in re.findall(rb"\d+", data)]


# ---------------------------------------------------------------- ends


@pytest.mark.parametrize(
    ("script", "code", "number"),
    [("exit 0", 0, None), ("exit 3", 3, None), ("kill -9 $$", None, 9), ("kill -15 $$", None, 15)],
)
def test_says_how_the_command_ended(
    tmp_path: Path, script: str, code: int | None, number: int | None
) -> None:
    before = time.time()
    seen = shell(tmp_path, script)
    assert (seen["exit"], seen["signal"], seen["reason"], seen["strays"]) == (code, number, "exited", 0)
    assert before <= seen["started_at"] <= seen["finished_at"] <= time.time()


@pytest.mark.parametrize(("argv", "code"), [(("no-such-program",), 127), (("/etc/passwd",), 126)])
def test_a_command_that_cannot_start_is_an_exit_with_a_reason(
    tmp_path: Path, argv: tuple[str, ...], code: int
) -> None:
    assert run(tmp_path, *argv)["exit"] == code
    assert said(tmp_path).startswith(f"harness: cannot start {argv[0]!r}".encode())


def test_stdin_is_the_file_and_then_its_end_or_nothing_at_all(tmp_path: Path) -> None:
    began = time.monotonic()
    reads = "test -t 0 && echo tty; cat; echo end"
    shell(tmp_path / "without", reads)
    (tmp_path / "prompt").write_text("do it\n")
    shell(tmp_path / "with", reads, stdin=str(tmp_path / "prompt"))
    assert said(tmp_path / "without") == b"end\n"
    assert said(tmp_path / "with") == b"do it\nend\n"
    assert time.monotonic() - began < 4


def test_the_environment_is_exactly_the_job_s(tmp_path: Path) -> None:
    run(tmp_path, "env", env={"PATH": "/usr/bin:/bin", "A": "b c"})
    assert sorted(said(tmp_path).decode().splitlines()) == ["A=b c", "PATH=/usr/bin:/bin"]


# ---------------------------------------------------------------- output


def test_bytes_come_through_as_they_are(tmp_path: Path) -> None:
    script = r"printf 'caf\303'; sleep 0.2; printf 'err\n' >&2; printf '\251\n'; printf '\377\376\000'"
    seen = shell(tmp_path, script)
    assert said(tmp_path) == b"caf\xc3err\n\xa9\n\xff\xfe\x00"
    assert seen["output_bytes"] == len(said(tmp_path))


@pytest.mark.parametrize("keep_bytes", [1000, 4096, 100_000, 700_000, 1 << 20])
def test_head_and_tail_are_kept_and_the_marker_counts_the_rest(tmp_path: Path, keep_bytes: int) -> None:
    seen = run(tmp_path, "seq", "1", "100000", keep_bytes=keep_bytes)
    whole = b"".join(b"%d\n" % n for n in range(1, 100_001))
    assert seen["output_bytes"] == len(whole)
    if len(whole) <= keep_bytes:
        assert said(tmp_path) == whole
        return
    head, dropped, tail = re.split(rb"\n\[harness: (\d+) bytes dropped here\]\n", said(tmp_path))
    assert len(head) + int(dropped) + len(tail) == len(whole)
    assert whole.startswith(head) and whole.endswith(tail)
    assert len(head) >= keep_bytes // 2 and len(tail) >= keep_bytes // 4
    assert len(head) + len(tail) <= keep_bytes
    assert sorted(p.name for p in tmp_path.glob("output*")) == ["output.log"]


def test_a_line_of_10_mib_is_kept_whole(tmp_path: Path) -> None:
    run(
        tmp_path,
        "sh",
        "-c",
        "head -c 10485760 /dev/zero | tr '\\0' x; echo; echo result",
        keep_bytes=32 << 20,
    )
    line, result = said(tmp_path).split(b"\n")[:2]
    assert (len(line), result) == (10 << 20, b"result")


def test_200_mib_without_a_newline_cost_no_memory_and_the_last_line_is_found(tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    script = f"head -c 209715200 /dev/zero | tr '\\0' x; printf '\\nresult\\n'; read x <{go}"
    launch(make(tmp_path, "sh", "-c", script))
    with go.open("w"):  # opens when the command has come to its read
        status = Path(f"/proc/{shim_pid(tmp_path)}/status").read_text()
    seen = wait(tmp_path)
    assert seen["output_bytes"] == (200 << 20) + 8
    assert said(tmp_path).endswith(b"x\nresult\n")
    assert len(said(tmp_path)) < (1 << 20) + 100
    assert numbers(re.search(r"VmHWM:.*", status)[0].encode())[0] < 64 << 10  # type: ignore[index]


def test_a_full_disk_costs_output_and_not_the_exit(tmp_path: Path) -> None:
    seen = shell(tmp_path, "echo lost; exit 5", log="/dev/full")
    assert (seen["exit"], seen["output_bytes"]) == (5, 5)
    assert "No space left" in seen["trouble"]


# ---------------------------------------------------------------- limits


def test_the_end_follows_the_command_and_not_what_holds_its_output(tmp_path: Path) -> None:
    began = time.monotonic()
    seen = shell(tmp_path, "setsid sleep 300 & echo $!; exit 0")
    assert time.monotonic() - began < 5
    assert (seen["exit"], seen["reason"], seen["strays"]) == (0, "exited", 1)
    assert not alive(numbers(said(tmp_path))[0])


def test_output_that_is_still_in_the_pipe_is_not_lost(tmp_path: Path) -> None:
    shell(tmp_path, "(sleep 0.5; echo late) & echo early")
    assert said(tmp_path) == b"early\nlate\n"


def test_a_child_that_never_stops_talking_does_not_hold_the_run(tmp_path: Path) -> None:
    began = time.monotonic()
    seen = shell(tmp_path, "setsid sh -c 'while :; do echo talk; sleep 0.1; done' & exit 7")
    assert seen["exit"] == 7
    assert time.monotonic() - began < 12


def test_stop_ends_the_group_and_its_own_exit_counts(tmp_path: Path) -> None:
    launch(make(tmp_path, "sh", "-c", "trap 'echo bye; exit 9' TERM; echo up; while :; do sleep 0.1; done"))
    until(lambda: said(tmp_path) == b"up\n")
    os.kill(shim_pid(tmp_path), signal.SIGTERM)
    seen = wait(tmp_path)
    assert (seen["exit"], seen["signal"], seen["reason"]) == (9, None, "stopped")
    assert said(tmp_path).endswith(b"bye\n")


def test_stop_kills_after_the_grace_whatever_refuses_to_go(tmp_path: Path) -> None:
    script = (
        "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done' & wait; wait; wait"
    )
    launch(make(tmp_path, "sh", "-c", script, grace_s=300))
    until(lambda: said(tmp_path).endswith(b"\n"))
    (tmp_path / "grace").write_text("0.3")
    began = time.monotonic()
    os.kill(shim_pid(tmp_path), signal.SIGTERM)
    seen = wait(tmp_path)
    assert time.monotonic() - began < 5
    assert (seen["exit"], seen["signal"], seen["reason"]) == (None, 9, "stopped")
    assert not alive(numbers(said(tmp_path))[0])


def test_stop_asked_again_with_less_patience(tmp_path: Path) -> None:
    launch(make(tmp_path, "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done", grace_s=300))
    until(lambda: said(tmp_path) == b"up\n")
    os.kill(shim_pid(tmp_path), signal.SIGTERM)
    (tmp_path / "grace").write_text("0")
    time.sleep(0.3)
    os.kill(shim_pid(tmp_path), signal.SIGTERM)
    assert wait(tmp_path)["signal"] == 9


def test_wall_and_output_limits_have_reasons_of_their_own(tmp_path: Path) -> None:
    assert run(tmp_path / "a", "sleep", "300", wall_s=0.3)["reason"] == "wall"
    seen = run(tmp_path / "b", "yes", limit_bytes=1 << 20)
    assert seen["reason"] == "output"
    assert len(said(tmp_path / "b")) < (1 << 20) + 100


def test_a_herd_of_sessions_is_gone_when_the_exit_is_there(tmp_path: Path) -> None:
    script = "trap '' TERM; while :; do setsid sh -c 'trap \"\" TERM; echo $$; sleep 100' & sleep 0.02; done"
    launch(make(tmp_path, "sh", "-c", script))
    until(lambda: said(tmp_path).count(b"\n") > 30)
    (tmp_path / "grace").write_text("0")
    os.kill(shim_pid(tmp_path), signal.SIGTERM)
    wait(tmp_path)
    assert not [pid for pid in numbers(said(tmp_path)) if alive(pid)]


# ---------------------------------------------------------------- who dies when


def test_it_survives_its_starter(tmp_path: Path) -> None:
    folder = make(tmp_path / "run", "sh", "-c", f"read x <{tmp_path}/go; echo on; exit 4")
    os.mkfifo(tmp_path / "go")
    argv = [sys.executable, "-I", SHIM, str(folder)]
    code = f"import subprocess, signal; subprocess.run({argv!r}); signal.pause()"
    starter = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    until(lambda: (folder / "progress.json").exists())
    os.killpg(starter.pid, signal.SIGKILL)
    starter.wait()
    (tmp_path / "go").write_text("\n")
    assert wait(folder)["exit"] == 4
    assert said(folder) == b"on\n"


def test_killed_it_leaves_no_exit_no_lock_and_no_command(tmp_path: Path) -> None:
    launch(make(tmp_path, "sh", "-c", "echo $$; exec sleep 300"))
    until(lambda: said(tmp_path).endswith(b"\n"))
    os.kill(shim_pid(tmp_path), signal.SIGKILL)
    assert wait(tmp_path) == {}
    until(lambda: not alive(numbers(said(tmp_path))[0]))


def test_a_folder_runs_once_however_often_it_is_started(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    script = f"echo ran >>{tmp_path}/times; read x <{tmp_path}/go"
    make(tmp_path, "sh", "-c", script)
    starts = [subprocess.Popen([sys.executable, "-I", SHIM, str(tmp_path)]) for _ in range(6)]
    assert [s.wait() for s in starts] == [0] * 6
    (tmp_path / "go").write_text("\n")
    wait(tmp_path)
    launch(tmp_path)
    launch(tmp_path)
    assert (tmp_path / "times").read_text() == "ran\n"


def test_it_tells_output_and_the_cpu_of_all_descendants_while_it_runs(tmp_path: Path) -> None:
    launch(make(tmp_path, "sh", "-c", "echo hello; setsid sh -c 'while :; do :; done' & wait"))

    def told() -> dict[str, Any]:
        path = tmp_path / "progress.json"
        return json.loads(path.read_text()) if path.exists() else {}

    until(lambda: told().get("cpu_s", 0) > 0.3)
    assert told()["output_bytes"] == 6
    assert abs(told()["at"] - time.time()) < 5
    os.kill(shim_pid(tmp_path), signal.SIGTERM)
    assert wait(tmp_path)["cpu_s"] > 0.3


def test_orphans_are_reaped(tmp_path: Path) -> None:
    orphans = "for i in 1 2 3 4 5 6 7 8; do sh -c 'sh -c \"exit 0\" & exit 0'; done"
    script = f"{orphans}; sleep 0.3; echo; read x <{tmp_path}/go"
    os.mkfifo(tmp_path / "go")
    launch(make(tmp_path, "sh", "-c", script))
    until(lambda: said(tmp_path) == b"\n")
    mine = str(shim_pid(tmp_path)).encode()
    pids = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]
    children = [f for f in map(shim.stat, pids) if f and f[1] == mine]
    (tmp_path / "go").write_text("\n")
    wait(tmp_path)
    assert [f[0] for f in children] == [b"S"]


def test_a_wrong_call_gets_one_clear_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", SHIM, str(tmp_path / "no")], capture_output=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(b"usage: ")
