"""What every Runtime must do. One suite over memory, plain processes and a real container engine."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from harness.adapters.docker import DockerRuntime
from harness.adapters.memory.runtime import MemoryRuntime, Plan
from harness.adapters.process import ProcessRuntime
from harness.core.result import Err, Ok
from harness.domain import Job, Limits, Mount, Status
from harness.failures import Failure
from harness.ports import Runtime

BASE = os.environ.get("HARNESS_TEST_IMAGE", "harness-base:bookworm")


class WallClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


@dataclass
class TurnedClock:
    """A clock that `Kind.until` turns."""

    at: float = 1_700_000_000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


@dataclass
class Kind:
    """One implementation under test, and how to say in its terms what a job does."""

    name: str
    runtime: Runtime
    data: Path
    clock: WallClock | TurnedClock
    image: str = ""
    plans: dict[str, Plan] = field(default_factory=dict)
    prefix: str = field(default_factory=lambda: f"h-{uuid.uuid4().hex[:8]}")

    def job(
        self,
        part: str = "i1",
        *,
        exit: int | None = 0,
        says: str = "",
        complains: str = "",
        deaf: bool = False,
    ) -> Job:
        """A job that prints, then exits (or stays until it is stopped, where `exit` is None)."""
        name = f"{self.prefix}-{part}"
        lines = [
            f"printf '%s\\n' {says}" if says else "",
            f"printf '%s\\n' {complains} >&2" if complains else "",
        ]
        lines.append("trap '' TERM" if deaf else "")
        # A shell that waits for a child in the foreground would not hear TERM.
        lines.append("while :; do sleep 0.1; done" if exit is None else f"exit {exit}")
        printed = "".join(f"{x}\n" for x in (says, complains) if x).encode()
        self.plans[name] = Plan(None if exit is None else 0.0, exit or 0, stops=not deaf, output=printed)
        labels = {"attempt": "12.1", "part": part}
        return Job(
            name,
            ("sh", "-c", "; ".join(x for x in lines if x)),
            image=self.image,
            labels=labels,
            env={"HOME": "/tmp"},
        )

    def until(self, ready: Callable[[Status | None], bool], name: str, within_s: float = 20.0) -> Status:
        """Look until it is so. Only real things take time."""
        end = time.monotonic() + within_s
        while True:
            seen = self.runtime.status(name).unwrap()
            if ready(seen):
                assert seen is not None
                return seen
            assert time.monotonic() < end, f"still {seen}"
            if isinstance(self.clock, TurnedClock):
                self.clock.at += 1.0
            else:
                time.sleep(0.03)

    def ended(self, name: str, within_s: float = 20.0) -> Status:
        return self.until(lambda s: s is not None and not s.alive, name, within_s)

    def begun(self, job: Job) -> Status:
        got = self.runtime.start(job)
        assert isinstance(got, Ok), got
        return got.value


def make_docker(tmp_path: Path) -> Kind:
    clock = WallClock()
    data = tmp_path / "data"
    data.mkdir()
    instance = uuid.uuid4().hex[:8]
    runtime = DockerRuntime(data=data, host_data=None, instance=instance, repo_key="acme/widget", clock=clock)
    here = runtime.probe()
    if not isinstance(here, Ok) and not os.environ.get("HARNESS_REQUIRE_DOCKER"):
        pytest.skip(f"no container engine: {here}")
    found = runtime.image(BASE)
    assert isinstance(found, Ok), found
    return Kind("docker", runtime, data, clock, found.value)


def make_process(tmp_path: Path) -> Kind:
    clock = WallClock()
    data = tmp_path / "data"
    data.mkdir()
    return Kind("process", ProcessRuntime(tmp_path / "runs", data=data, clock=clock), data, clock)


def make_memory(tmp_path: Path) -> Kind:
    clock = TurnedClock()
    plans: dict[str, Plan] = {}
    runtime = MemoryRuntime(clock, script=lambda job: plans.get(job.name), images={"worker:1": "sha256:1"})
    return Kind("memory", runtime, tmp_path, clock, "worker:1", plans)


MAKERS = {"memory": make_memory, "process": make_process, "docker": make_docker}
ALL = ["memory", "process", pytest.param("docker", marks=pytest.mark.docker)]


@pytest.fixture(params=ALL)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    made = MAKERS[request.param](tmp_path)
    yield made
    for status in made.runtime.ours().unwrap():
        assert made.runtime.remove(status.name) == Ok(None)


@pytest.fixture(params=ALL[1:])
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    """Those that run something."""
    made = MAKERS[request.param](tmp_path)
    yield made
    for status in made.runtime.ours().unwrap():
        assert made.runtime.remove(status.name) == Ok(None)


def test_it_says_in_one_line_what_it_is(kind: Kind) -> None:
    line = kind.runtime.probe().unwrap()
    assert line and "\n" not in line
    assert isinstance(kind.runtime.isolates, bool)


def test_an_image_has_an_identity_that_stays(kind: Kind) -> None:
    first = kind.runtime.image(kind.image).unwrap()
    assert first and kind.runtime.image(kind.image).unwrap() == first


def test_a_missing_image_is_told_before_and_at_the_start(kind: Kind) -> None:
    if not kind.runtime.isolates:
        assert isinstance(kind.runtime.image("nowhere:1"), Ok)  # Plain processes have no images.
        return
    for got in (kind.runtime.image("nowhere:1"), kind.runtime.start(replace(kind.job(), image="nowhere:1"))):
        assert isinstance(got, Err)
        assert (got.failure, got.maybe) == (Failure.IMAGE_UNAVAILABLE, False)
        assert "nowhere:1" in got.detail and "containers.image" in got.detail
    assert kind.runtime.ours().unwrap() == ()


def test_what_is_not_there_is_none(kind: Kind) -> None:
    assert kind.runtime.status("h-never-1") == Ok(None)
    assert kind.runtime.ours() == Ok(())


def test_a_started_job_bears_its_name_and_labels(kind: Kind) -> None:
    job = kind.job(exit=None)
    seen = kind.begun(job)
    assert (seen.name, seen.alive, seen.exit) == (job.name, True, None)
    later = kind.until(lambda s: s is not None and s.phase == "RUNNING", job.name)
    assert job.labels.items() <= later.labels.items()
    assert later.started_at is not None and abs(later.started_at - kind.clock.now()) < 60
    assert later.finished_at is None


@pytest.mark.parametrize("code", [0, 7, 75])
def test_the_exit_code_is_kept_however_short_it_ran(kind: Kind, code: int) -> None:
    job = kind.job(exit=code, says="last-words")
    kind.begun(job)
    seen = kind.ended(job.name)
    assert (seen.phase, seen.exit, seen.oom) == ("EXITED", code, False)
    assert seen.started_at is not None and seen.finished_at is not None
    assert seen.finished_at >= seen.started_at - 0.1  # Engines' own clocks differ by milliseconds.
    assert kind.runtime.log(job.name, 1000) == Ok(b"last-words\n")
    assert kind.runtime.status(job.name).unwrap() == seen


def test_starting_again_adopts_what_runs(kind: Kind) -> None:
    job = kind.job(exit=None)
    first = kind.begun(job)
    again = kind.begun(job)
    assert again.alive
    assert (
        again.started_at == kind.until(lambda s: s is not None and s.phase == "RUNNING", job.name).started_at
    )
    assert [s.name for s in kind.runtime.ours().unwrap()] == [first.name]


def test_starting_again_what_has_ended_answers_so_and_runs_nothing(kind: Kind) -> None:
    job = kind.job(exit=10, says="once")
    kind.begun(job)
    kind.ended(job.name)
    again = kind.begun(job)
    assert (again.phase, again.exit) == ("EXITED", 10)
    assert kind.runtime.log(job.name, 1000) == Ok(b"once\n")


def test_a_name_is_never_given_to_another_job(kind: Kind) -> None:
    job = kind.job(exit=None)
    kind.begun(job)
    other = replace(job, argv=("sh", "-c", "exit 1"), labels={"attempt": "13.1"})
    got = kind.runtime.start(other)
    assert isinstance(got, Err) and job.name in got.detail
    seen = kind.runtime.status(job.name).unwrap()
    assert seen is not None and seen.alive and seen.labels["attempt"] == "12.1"


def test_the_list_has_every_state(kind: Kind) -> None:
    running, over = kind.job("run", exit=None), kind.job("over", exit=3)
    kind.begun(running)
    kind.begun(over)
    kind.ended(over.name)
    for _ in range(2):  # The second look may come from what the first one kept.
        listed = {s.name: s for s in kind.runtime.ours().unwrap()}
        assert set(listed) == {running.name, over.name}
        assert (listed[over.name].phase, listed[over.name].exit) == ("EXITED", 3)
        assert listed[running.name].alive and listed[running.name].labels["part"] == "run"
        assert listed[running.name].started_at is not None
        assert len({s.engine for s in listed.values()}) == 1


def test_the_end_of_the_log_is_what_is_asked_for(kind: Kind) -> None:
    job = kind.job(says="out-" + "x" * 200, complains="err")
    kind.begun(job)
    kind.ended(job.name)
    whole = kind.runtime.log(job.name, 100_000).unwrap()
    assert sorted(whole.splitlines()) == sorted([b"out-" + b"x" * 200, b"err"])
    assert kind.runtime.log(job.name, 20).unwrap() == whole[-20:]
    assert kind.runtime.log(job.name, 0) == Ok(b"")
    missing = kind.runtime.log("h-never-1", 10)
    assert isinstance(missing, Err) and missing.failure == Failure.GONE


def test_stopping_is_term_first(kind: Kind) -> None:
    job = kind.job(exit=None)
    kind.begun(job)
    kind.until(lambda s: s is not None and s.phase == "RUNNING", job.name)
    assert kind.runtime.stop(job.name, 10.0) == Ok(None)
    assert kind.ended(job.name, within_s=9.0).exit == 143
    assert kind.runtime.stop(job.name, 10.0) == Ok(None), "stopping what has ended is done"
    assert kind.runtime.stop("h-never-1", 1.0) == Ok(None), "so is stopping what is not there"


def test_stopping_is_kill_after_the_grace(kind: Kind) -> None:
    job = kind.job(exit=None, deaf=True, says="deaf")
    kind.begun(job)
    end = time.monotonic() + 10
    while kind.runtime.log(job.name, 100).unwrap() != b"deaf\n":
        assert time.monotonic() < end
    time.sleep(0 if kind.name == "memory" else 0.2)  # From the print to the trap.
    assert kind.runtime.stop(job.name, 1.0) == Ok(None)
    assert kind.ended(job.name, within_s=10.0).exit == 137


def test_removing_ends_it_and_frees_the_name(kind: Kind) -> None:
    job = kind.job(exit=None)
    kind.begun(job)
    assert kind.runtime.remove(job.name) == Ok(None)
    assert kind.runtime.status(job.name) == Ok(None)
    assert kind.runtime.remove(job.name) == Ok(None), "already gone is fine"
    assert kind.runtime.ours() == Ok(())
    kind.begun(kind.job(exit=4))
    assert kind.ended(job.name).exit == 4


@pytest.mark.parametrize("wrong", [{"argv": ()}])
def test_a_job_that_cannot_work_is_refused_in_one_line(kind: Kind, wrong: dict[str, object]) -> None:
    got = kind.runtime.start(replace(kind.job(), **wrong))  # type: ignore[arg-type]
    assert isinstance(got, Err) and got.failure == Failure.CONFIG_INVALID
    assert "\n" not in got.detail and not got.maybe
    assert kind.runtime.ours() == Ok(())


# ---------------------------------------------------------------- of those that run something


def test_the_environment_is_the_jobs_own(real: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_CANARY_TOKEN", "c4n4ry")
    monkeypatch.setenv("HTTP_PROXY", "http://user:c4n4ry@127.0.0.1:1")
    job = replace(real.job(), argv=("sh", "-c", "env"), env={"HOME": "/tmp", "TEXT": "a b=c 'd'"})
    real.begun(job)
    real.ended(job.name)
    lines = real.runtime.log(job.name, 100_000).unwrap().decode()
    assert "TEXT=a b=c 'd'\n" in lines and "HOME=/tmp\n" in lines
    assert "c4n4ry" not in lines


def test_standard_input_is_empty_and_closed(real: Kind) -> None:
    job = replace(real.job(), argv=("sh", "-c", "cat; echo end"))
    real.begun(job)
    assert real.ended(job.name, within_s=5.0).exit == 0
    assert real.runtime.log(job.name, 100) == Ok(b"end\n")


def test_what_it_writes_into_a_mount_is_in_the_data_folder(real: Kind) -> None:
    for name in ("clone", "tools"):
        (real.data / name).mkdir()
    (real.data / "tools" / "given").write_text("given")
    if isinstance(real.runtime, DockerRuntime):
        os.chown(real.data / "clone", real.runtime.uid, real.runtime.gid)
    job = replace(
        real.job(),
        argv=("cp", "/tools/given", "/workspace/made"),
        mounts=(Mount("clone", "/workspace", "rw"), Mount("tools", "/tools", "ro")),
        workdir="/workspace",
    )
    real.begun(job)
    assert real.ended(job.name).exit == 0, real.runtime.log(job.name, 1000)
    assert (real.data / "clone" / "made").read_text() == "given"


def test_a_child_left_behind_neither_delays_the_end_nor_survives_it(real: Kind) -> None:
    """A background child that keeps the pipe open."""
    seconds = f"3{uuid.uuid4().int % 10**8:08d}"
    job = replace(real.job(), argv=("sh", "-c", f"setsid sleep {seconds} & echo done"))
    real.begun(job)
    assert real.ended(job.name, within_s=6.0).exit == 0
    assert real.runtime.log(job.name, 100) == Ok(b"done\n")
    assert real.runtime.remove(job.name) == Ok(None)
    assert _processes_with(seconds) == []


def _processes_with(word: str) -> list[str]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                line = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if word.encode() in line:
                found.append(line.replace(b"\0", b" ").decode(errors="replace"))
    return found


def test_arguments_are_passed_as_they_are(real: Kind) -> None:
    """No shell is between: quotes, dollars, new lines and options stay text."""
    args = ["$(touch /tmp/PWN)", "a;b", "--", "-x", "'", '"', "two\nlines", "🚀", ""]
    show = "import json,sys; print(json.dumps(sys.argv[1:]))"
    job = replace(real.job(), argv=("python3", "-c", show, *args))
    real.begun(job)
    assert real.ended(job.name).exit == 0
    assert json.loads(real.runtime.log(job.name, 10_000).unwrap()) == args


def test_bytes_that_are_no_text_are_kept(real: Kind) -> None:
    job = replace(real.job(), argv=("printf", r"caf\303\251 \377\376\n"), limits=Limits(output_bytes=1 << 20))
    real.begun(job)
    real.ended(job.name)
    assert real.runtime.log(job.name, 100) == Ok(b"caf\xc3\xa9 \xff\xfe\n")
