"""Jobs as plain processes: real shims, real folders, and every way in which their starter may come back."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.adapters import commands, rundir
from harness.adapters.process import ProcessRuntime
from harness.core.result import Err, Ok
from harness.domain import Job, Limits, Mount, Status
from harness.failures import Failure
from harness.ports import Runtime

LABELS = {"harness.instance": "i1", "harness.attempt": "12.1"}
COMMANDS = str(Path(commands.__file__))


class Time:
    """Real time, and what a test adds to it."""

    ahead_s = 0.0

    def now(self) -> float:
        return time.time() + self.ahead_s

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_s


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def runtime(tmp_path: Path, clock: Time) -> Iterator[ProcessRuntime]:
    (tmp_path / "data").mkdir()
    made = ProcessRuntime(tmp_path / "runs", data=tmp_path / "data", clock=clock)
    yield made
    left_over = made.ours()
    for left in left_over.value if isinstance(left_over, Ok) else ():
        made.remove(left.name)


def job(*argv: str, name: str = "h-12-1", **more: Any) -> Job:
    return Job(name=name, argv=argv, labels=LABELS, **more)


def shell(script: str, name: str = "h-12-1", **more: Any) -> Job:
    return job("sh", "-c", script, name=name, **more)


def look(runtime: ProcessRuntime, name: str = "h-12-1") -> Status:
    found = runtime.status(name).unwrap()
    assert found is not None
    return found


def wait(runtime: ProcessRuntime, name: str = "h-12-1") -> Status:
    """Block until its shim is gone."""
    with (runtime.root / name / "lock").open("rb") as f:
        fcntl.flock(f, fcntl.LOCK_SH)
    return look(runtime, name)


def run(runtime: ProcessRuntime, what: Job) -> Status:
    runtime.start(what).unwrap()
    return wait(runtime, what.name)


def text(runtime: ProcessRuntime, name: str = "h-12-1", tail_bytes: int = 1 << 20) -> str:
    return runtime.log(name, tail_bytes).unwrap().decode()


def until(true: Callable[[], bool], timeout_s: float = 20.0) -> None:
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def shim_pid(runtime: ProcessRuntime, name: str = "h-12-1") -> int:
    return int(json.loads((runtime.root / name / "started.json").read_text())["pid"])


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


# ---------------------------------------------------------------- what it is


def test_it_is_a_runtime_that_says_loudly_that_it_does_not_isolate(runtime: ProcessRuntime) -> None:
    port: Runtime = runtime
    assert not port.isolates
    line = port.probe().unwrap()
    assert "NO ISOLATION" in line and "\n" not in line
    assert line.endswith(rundir.BOOT_ID.read_text().strip())


def test_the_image_is_the_harness_and_its_python(
    runtime: ProcessRuntime, tmp_path: Path, clock: Time
) -> None:
    digest = runtime.image("whatever").unwrap()
    assert digest.startswith("process:") and digest == runtime.image("else").unwrap()
    other = ProcessRuntime(tmp_path, python="/no/python", data=tmp_path, clock=clock)
    assert isinstance(failed := other.image("x"), Err) and failed.failure == Failure.IMAGE_UNAVAILABLE


# ---------------------------------------------------------------- from start to end


def test_a_job_runs_and_its_end_is_known(runtime: ProcessRuntime) -> None:
    started = runtime.start(shell("echo out; echo err >&2; exit 3")).unwrap()
    assert started.phase in ("RUNNING", "EXITED") and started.labels == LABELS
    seen = wait(runtime)
    assert (seen.phase, seen.exit, seen.signal, seen.oom, seen.detail) == ("EXITED", 3, None, False, "")
    assert seen.started_at and seen.finished_at and seen.started_at <= seen.finished_at
    assert seen.engine == rundir.BOOT_ID.read_text().strip()
    assert (text(runtime), seen.output_bytes) == ("out\nerr\n", 8)


def test_a_signal_is_told_and_counted_as_an_engine_does(runtime: ProcessRuntime) -> None:
    seen = run(runtime, shell("kill -9 $$"))
    assert (seen.exit, seen.signal) == (137, 9)


def test_the_environment_has_nothing_that_the_job_did_not_ask_for(runtime: ProcessRuntime) -> None:
    run(runtime, job("env", env={"A": "1", "LANG": "C"}))
    found = dict(line.split("=", 1) for line in text(runtime).splitlines())
    assert found.pop("HARNESS_RUN_COOKIE")
    assert found == {"A": "1", "LANG": "C", "PATH": os.environ["PATH"]}


def test_standard_input_of_any_size_arrives(runtime: ProcessRuntime) -> None:
    run(runtime, job("wc", "-c", stdin="ü" * 200_000))
    assert text(runtime).strip() == "400000"


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (job(), "no command"),
        (job("true", name="../x"), "job name '../x'"),
        (job("true", name=""), "job name ''"),
        (job("echo", "x" * 131_072), "give it as stdin or in a file"),
        (job("true", env={"A": "x" * 131_072}), "give it as stdin or in a file"),
        (job("echo", "a\0b"), "NUL"),
        (job("true", mounts=(Mount("no/such", "/workspace"),)), "no/such is not there"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(runtime: ProcessRuntime, what: Job, words: str) -> None:
    refused = runtime.start(what)
    assert isinstance(refused, Err) and refused.failure == Failure.CONFIG_INVALID
    assert words in refused.detail and "\n" not in refused.detail and len(refused.detail) < 400
    assert runtime.ours().unwrap() == ()


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        ("/workspace", "DATA/clone"),
        ("/workspace/a b", "DATA/clone/a b"),
        ("/workspace2", "/workspace2"),
        ("/x/workspace", "/x/workspace"),
        ("--dir=/workspace/x", "--dir=DATA/clone/x"),
        ("/workspace/src:/workspace/deps:/opt", "DATA/clone/src:DATA/deps:/opt"),
        ("unix:/run/h/gw.sock", "unix:/abs/sock/gw.sock"),
        ("http://127.0.0.1:8080/workspace", "http://127.0.0.1:8080/workspace"),
        ("cd /workspace && make", "cd /workspace && make"),
    ],
)
def test_targets_of_mounts_become_real_paths(
    runtime: ProcessRuntime, tmp_path: Path, given: str, becomes: str
) -> None:
    data = tmp_path / "data"
    (data / "clone" / "sub").mkdir(parents=True)
    mounts = (Mount("clone", "/workspace"), Mount("deps", "/workspace/deps"), Mount("/abs/sock", "/run/h/"))
    what = shell('pwd; echo "$0"; echo "$V"', mounts=mounts, env={"V": given}, workdir="/workspace/sub")
    run(runtime, replace(what, argv=(*what.argv, given)))
    expected = becomes.replace("DATA", str(data))
    assert text(runtime).splitlines() == [str(data / "clone" / "sub"), expected, expected]


def test_a_workdir_that_nothing_is_mounted_on_is_a_folder_of_the_run(runtime: ProcessRuntime) -> None:
    run(runtime, shell("pwd; touch here"))
    assert text(runtime).strip() == str(runtime.root / "h-12-1" / "work")


def test_the_log_is_its_newest_bytes_also_while_it_runs(runtime: ProcessRuntime, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    script = f"seq 1 50000; echo last; read x <{tmp_path}/go; echo after"
    runtime.keep_bytes = 280_000
    runtime.start(shell(script)).unwrap()
    until(lambda: text(runtime, tail_bytes=5) == "last\n")
    assert look(runtime).phase == "RUNNING"
    newest = text(runtime, tail_bytes=90_000)
    assert newest.endswith("\n49999\n50000\nlast\n") and len(newest) == 90_000
    (tmp_path / "go").write_text("\n")
    assert wait(runtime).exit == 0
    whole = text(runtime)
    assert (
        whole.startswith("1\n2\n")
        and whole.endswith("50000\nlast\nafter\n")
        and "bytes dropped here" in whole
    )
    assert isinstance(gone := runtime.log("other", 10), Err) and gone.failure == Failure.GONE


@pytest.mark.parametrize(
    ("what", "moves"),
    [
        ("while :; do echo on; sleep 0.2; done", True),
        ("while :; do :; done", True),
        ("mkdir -p a/b; while :; do date >a/b/c; sleep 0.3; done", True),
        ("sleep 60", False),
    ],
    ids=["it prints", "it computes", "it changes files", "it hangs"],
)
def test_output_or_work_is_progress_and_silence_is_none(
    runtime: ProcessRuntime, what: str, moves: bool
) -> None:
    runtime.start(shell(what))
    first = time.time() + 5.0
    until(lambda: rundir.read(runtime.root / "h-12-1" / "progress.json").get("at", 0.0) > first)
    seen = look(runtime)
    assert seen.started_at is not None and (seen.progress_at - seen.started_at > 1.5) is moves
    assert seen.progress_at >= seen.started_at


def test_a_paused_job_makes_no_progress_until_it_goes_on(runtime: ProcessRuntime) -> None:
    """It computes all the time, and is stopped in the middle of it."""
    started = runtime.start(shell("while :; do :; done")).unwrap()

    def told() -> tuple[float, float]:
        seen = rundir.read(runtime.root / "h-12-1" / "progress.json")
        return seen.get("at", 0.0), seen.get("progress_at", 0.0)

    until(lambda: told()[1] > (started.started_at or 0.0))
    (pid,) = rundir_children(shim_pid(runtime))
    os.kill(pid, signal.SIGSTOP)
    stopped = time.time()
    until(lambda: told()[0] > stopped + 4.0)
    assert told()[1] < stopped + 2.0
    os.kill(pid, signal.SIGCONT)
    until(lambda: told()[1] > stopped + 3.0)


def rundir_children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_limits_are_told_apart(runtime: ProcessRuntime) -> None:
    ends = {
        "wall": job("sleep", "300", name="a", limits=Limits(wall_s=0.3)),
        "output": job("yes", name="b", limits=Limits(output_bytes=1 << 20)),
        "": job("sh", "-c", "kill -KILL $$", name="c"),
    }
    for limit, what in ends.items():
        seen = run(runtime, what)
        assert (seen.limit, seen.detail) == (limit, limit)


# ---------------------------------------------------------------- who starts, looks, comes back


def test_a_second_start_adopts(runtime: ProcessRuntime, tmp_path: Path, clock: Time) -> None:
    os.mkfifo(tmp_path / "go")
    what = shell(f"echo ran >>{tmp_path}/times; read x <{tmp_path}/go")
    first = runtime.start(what).unwrap()
    again = ProcessRuntime(runtime.root, data=runtime.data, clock=clock)  # as after a restart
    assert again.start(what).unwrap().started_at == first.started_at
    (tmp_path / "go").write_text("\n")
    wait(again)
    assert again.start(what).unwrap().phase == "EXITED"
    assert (tmp_path / "times").read_text() == "ran\n"


def test_many_starts_at_once_run_it_once(runtime: ProcessRuntime, tmp_path: Path) -> None:
    what = shell(f"echo ran >>{tmp_path}/times")
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(runtime.start(what))) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    wait(runtime)
    assert all(isinstance(f, Ok) for f in found) and len(found) == 8
    assert (tmp_path / "times").read_text() == "ran\n"
    assert [p.name for p in runtime.root.iterdir()] == ["h-12-1"]


def test_what_bears_the_name_and_not_the_labels_is_left_alone(runtime: ProcessRuntime) -> None:
    runtime.start(job("sleep", "300")).unwrap()
    refused = runtime.start(replace(job("true"), labels={"harness.instance": "other"}))
    assert isinstance(refused, Err) and refused.failure == Failure.CONFIG_INVALID
    assert look(runtime).phase == "RUNNING"
    runtime.remove("h-12-1").unwrap()


def test_a_folder_whose_start_was_cut_short_is_pending_then_lost_and_can_be_started(
    runtime: ProcessRuntime, clock: Time
) -> None:
    what = shell("exit 6")
    assert run(runtime, what).exit == 6
    for left in ("started.json", "exit.json", "lock"):  # as when the starter died before it called the shim
        (runtime.root / what.name / left).unlink()
    assert look(runtime).phase == "PENDING"
    clock.ahead_s = 60
    assert look(runtime).phase == "LOST"
    assert run(runtime, what).exit == 6


def test_a_job_whose_shim_was_killed_is_lost_once_its_strays_have_ended(runtime: ProcessRuntime) -> None:
    what = shell("setsid sh -c 'echo $$; exec sleep 300' & exec sleep 300")
    runtime.start(what).unwrap()
    until(lambda: text(runtime).endswith("\n"))
    stray = int(text(runtime))
    os.kill(shim_pid(runtime), signal.SIGKILL)
    assert wait(runtime).phase == "LOST"
    assert not alive(stray), "nothing of a run that was called lost writes any more"
    assert runtime.start(what).unwrap().phase == "LOST"
    assert runtime.stop(what.name, 1.0) == Ok(None)
    assert runtime.remove(what.name) == Ok(None)
    assert runtime.status(what.name) == Ok(None)
    assert run(runtime, shell("exit 0")).exit == 0


# A job that starts a job of its own, as a worker does its agent: that one leaves strays in a session of their own,
# of which one has nothing in its environment.
INNER = """
import sys, time
from pathlib import Path
from harness.adapters.process import ProcessRuntime
from harness.domain import Job
class Clock:
    now, monotonic = staticmethod(time.time), staticmethod(time.monotonic)
root = Path(sys.argv[1])
runtime = ProcessRuntime(root, data=root, clock=Clock())
script = "trap '' TERM; setsid sleep 300 & env -i sleep 300 & echo $$ $! >pids.new; mv pids.new pids; wait; wait"
print(runtime.start(Job(name="agent", argv=("sh", "-c", script), labels={})), flush=True)
time.sleep(300)
"""


def nested(runtime: ProcessRuntime, tmp_path: Path) -> list[int]:
    """Starts both; the processes of the inner one: its shim, its command, and what that had started."""
    job_ = job(sys.executable, "-c", INNER, str(tmp_path / "inner"), env={"PYTHONPATH": os.getcwd()})
    runtime.start(job_).unwrap()
    inner = tmp_path / "inner" / "agent"
    until((inner / "work" / "pids").exists)
    command, _ = (int(p) for p in (inner / "work" / "pids").read_text().split())
    shim = int(json.loads((inner / "started.json").read_text())["pid"])
    until(lambda: len(below(command)) >= 2)
    return [shim, command, *below(command)]


def below(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if int(path.read_text().rsplit(")", 1)[1].split()[1]) == parent:
                found.append(int(path.parent.name))
    return found


def test_a_run_in_a_run_whose_shim_was_killed_ends_with_it(runtime: ProcessRuntime, tmp_path: Path) -> None:
    """The worker's shim is killed: the agent does not go on writing while what it left is read."""
    processes = nested(runtime, tmp_path)
    assert all(alive(p) for p in processes)
    os.kill(shim_pid(runtime), signal.SIGKILL)
    assert wait(runtime).phase == "LOST"
    assert not [p for p in processes if alive(p)]


def test_a_run_in_a_run_ends_also_where_nobody_looks(runtime: ProcessRuntime, tmp_path: Path) -> None:
    """With the director dead as well: its shim is told by the kernel, and ends what it looks after."""
    processes = nested(runtime, tmp_path)
    os.kill(shim_pid(runtime), signal.SIGKILL)
    until(lambda: not any(alive(p) for p in processes))


@pytest.mark.parametrize("delay_s", [0, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08])
def test_a_shim_killed_at_any_time_leaves_a_state_that_can_be_told_and_removed(
    runtime: ProcessRuntime, tmp_path: Path, delay_s: float
) -> None:
    what = shell(f"echo ran >>{tmp_path}/times; exit 7")
    runtime.start(what).unwrap()
    time.sleep(delay_s)
    with contextlib.suppress(ProcessLookupError):
        os.kill(shim_pid(runtime), signal.SIGKILL)
    seen = wait(runtime)
    assert (seen.phase, seen.exit) in (("LOST", None), ("EXITED", 7))
    assert runtime.start(what).unwrap() == seen
    ran = tmp_path / "times"
    assert not ran.exists() or ran.read_text() == "ran\n"
    assert runtime.remove(what.name) == Ok(None)
    assert runtime.ours() == Ok(())


def test_ours_is_everything_in_every_state(runtime: ProcessRuntime) -> None:
    assert runtime.ours() == Ok(())
    run(runtime, job("true", name="ended"))
    runtime.start(job("sleep", "300", name="lost")).unwrap()
    runtime.start(job("sleep", "300", name="runs")).unwrap()
    os.kill(shim_pid(runtime, "lost"), signal.SIGKILL)
    wait(runtime, "lost")
    found = runtime.ours().unwrap()
    assert [(s.name, s.phase) for s in found] == [("ended", "EXITED"), ("lost", "LOST"), ("runs", "RUNNING")]
    for s in found:
        assert runtime.remove(s.name) == Ok(None)
    assert runtime.ours() == Ok(()) and list(runtime.root.iterdir()) == []


def test_what_cannot_be_read_is_an_error_and_not_an_absence(runtime: ProcessRuntime) -> None:
    run(runtime, job("true"))
    (runtime.root / "h-12-1" / "job.json").write_text("[")
    for answer in (runtime.status("h-12-1"), runtime.ours(), runtime.start(job("true"))):
        assert isinstance(answer, Err) and answer.failure == Failure.INFRA_ENGINE


def test_absent_is_absent(runtime: ProcessRuntime) -> None:
    for name in ("nobody", "../nobody", ""):
        assert runtime.status(name) == Ok(None)
        assert runtime.stop(name, 1.0) == Ok(None)
        assert runtime.remove(name) == Ok(None)


# ---------------------------------------------------------------- stop and remove


def test_stop_only_asks_and_the_status_tells(runtime: ProcessRuntime) -> None:
    runtime.start(shell("trap 'exit 9' TERM; echo up; while :; do sleep 0.1; done")).unwrap()
    until(lambda: text(runtime) == "up\n")
    assert runtime.stop("h-12-1", 20.0) == Ok(None)
    seen = wait(runtime)
    assert (seen.phase, seen.exit, seen.detail) == ("EXITED", 9, "stopped")
    assert runtime.stop("h-12-1", 20.0) == Ok(None)


def test_stop_without_grace_kills(runtime: ProcessRuntime) -> None:
    runtime.start(shell("trap '' TERM; echo up; while :; do sleep 0.1; done")).unwrap()
    until(lambda: text(runtime) == "up\n")
    began = time.monotonic()
    runtime.stop("h-12-1", 0.0).unwrap()
    assert wait(runtime).signal == 9
    assert time.monotonic() - began < 3


def test_remove_ends_what_lives(runtime: ProcessRuntime) -> None:
    runtime.start(shell("trap '' TERM; setsid sh -c 'echo $$; exec sleep 300' & wait; wait")).unwrap()
    until(lambda: text(runtime).endswith("\n"))
    stray, shim = int(text(runtime)), shim_pid(runtime)
    assert runtime.remove("h-12-1") == Ok(None)
    assert not alive(stray) and not alive(shim)
    assert runtime.status("h-12-1") == Ok(None)


def test_remove_takes_away_what_an_unfinished_start_left(runtime: ProcessRuntime) -> None:
    half = runtime.root / ".new-h-12-1-0a1b2c3d"
    other = runtime.root / ".new-h-12-10-0a1b2c3d"
    for folder in (half, other):
        folder.mkdir(parents=True)
        (folder / "stdin").write_text("a prompt")
    assert runtime.remove("h-12-1") == Ok(None)
    assert not half.exists() and other.exists()


@pytest.mark.parametrize(
    "mark",
    [
        {"boot_id": "another boot"},
        {"start_ticks": 1},
    ],
)
def test_a_pid_of_another_life_is_never_signalled(runtime: ProcessRuntime, mark: dict[str, Any]) -> None:
    """As after a reboot, or when the pid was used again: somebody else's process has the number."""
    run(runtime, job("true"))
    folder = runtime.root / "h-12-1"
    (folder / "exit.json").unlink()
    victim = subprocess.Popen(["sleep", "300"])
    true_mark = json.loads((folder / "started.json").read_text())
    (folder / "started.json").write_text(json.dumps({**true_mark, "pid": victim.pid, **mark}))
    try:
        assert runtime.stop("h-12-1", 0.0) == Ok(None)  # nobody holds the lock: lost, nothing to signal
        with (folder / "lock").open("rb") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            for answer in (runtime.stop("h-12-1", 0.0), runtime.remove("h-12-1")):
                assert isinstance(answer, Err) and "nothing was signalled" in answer.detail
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


# ---------------------------------------------------------------- validation commands as one job


def validate(runtime: ProcessRuntime, listed: Any) -> tuple[Status, dict[str, Any]]:
    what = job(sys.executable, "-I", COMMANDS, "/data/r.json", "--", "-", stdin=json.dumps(listed))
    seen = run(runtime, replace(what, mounts=(Mount(".", "/data"),)))
    path = runtime.data / "r.json"
    return seen, json.loads(path.read_text()) if path.exists() else {}


@pytest.mark.parametrize(
    ("listed", "count", "failed", "code", "log"),
    [
        (["echo a", "echo b | tr b c"], 2, "", 0, "$ echo a\na\n$ echo b | tr b c\nc\n"),
        (["echo a", "exit 4", "echo b"], 2, "exit 4", 4, "$ echo a\na\n$ exit 4\n[exit 4]\n"),
        (["kill -9 $$"], 1, "kill -9 $$", 137, "$ kill -9 $$\n[exit 137]\n"),
        (["cat"], 1, "", 0, "$ cat\n"),
        ([], 0, "", 0, ""),
    ],
)
def test_commands_run_until_one_fails(
    runtime: ProcessRuntime, listed: list[str], count: int, failed: str, code: int, log: str
) -> None:
    seen, result = validate(runtime, listed)
    assert result.pop("seconds") >= 0
    assert result == {"commands_run": count, "failed_command": failed, "exit": code}
    assert (seen.exit, text(runtime)) == (code, log)


@pytest.mark.parametrize("listed", [{"a": 1}, ["ok", 5], [""], ["true"] * 101])
def test_commands_that_are_none_are_refused(runtime: ProcessRuntime, listed: Any) -> None:
    (runtime.data / "r.json").write_text('{"exit": 0}')  # an earlier run's word
    seen, result = validate(runtime, listed)
    assert (seen.exit, result) == (2, {})
    assert text(runtime).startswith("commands.py: ") and text(runtime).count("\n") == 1
