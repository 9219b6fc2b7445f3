"""Containers that end in odd ways, engines that answer in odd ways, and images that are none for workers.

The one rule: how a run ended is what the engine's record says, never how a stream or a timeout felt.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from demo_world import Stage, wait_for
from director_world import World
from stub_engine import Answer, StubEngine, hang_up, silence, trickle

from harness.adapters.docker import DockerRuntime
from harness.core.result import Err, Ok
from harness.domain import Job, Limits, Status
from harness.failures import Failure, rule

BASE = os.environ.get("HARNESS_TEST_IMAGE", "harness-base:bookworm")
NAME = "h-acme-12-1-i1"
LOOK, LOGS = f"GET /containers/{NAME}/json", "GET /containers/c1/logs"
REMOVE = "DELETE /containers/c1"
MINE = {"harness.instance": "i1", "harness.repo": "acme/widget"}


class WallClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


def attrs(status: str, **state: Any) -> dict[str, Any]:
    return {
        "Id": "c1", "Name": f"/{NAME}", "Image": "sha256:1", "State": {"Status": status, "ExitCode": 0, **state},
        "Config": {"Labels": MINE},
    }  # fmt: skip


def stubbed(sock: Path, timeout_s: float = 1.0) -> DockerRuntime:
    return DockerRuntime(
        data=sock.parent, instance="i1", repo_key="acme/widget", clock=WallClock(), timeout_s=timeout_s,
        docker_host=f"unix://{sock}",
    )  # fmt: skip


# ---------------------------------------------------------------- an engine of our own making


def ours() -> int:
    """Threads but for those of the stub, which wait on connections that are kept open."""
    return sum("process_request_thread" not in t.name for t in threading.enumerate())


NEVER_ENDING: tuple[Answer, ...] = (trickle, silence, hang_up)


@pytest.mark.parametrize("log", NEVER_ENDING)
def test_a_log_that_never_ends_keeps_no_run_from_ending(log: Answer, tmp_path: Path) -> None:
    ended = attrs("exited", ExitCode=7, FinishedAt="2024-05-01T12:00:00Z")
    before = ours()
    with StubEngine(tmp_path / "s", **{LOOK: (200, ended), LOGS: log}):
        runtime = stubbed(tmp_path / "s")
        for _ in range(3):
            began = time.monotonic()
            seen = runtime.status(NAME)
            assert isinstance(seen, Ok) and seen.value is not None
            assert (seen.value.phase, seen.value.exit) == ("EXITED", 7)
            said = runtime.log(NAME, 1000)
            assert isinstance(said, Ok) or said.failure == Failure.INFRA_ENGINE
            assert time.monotonic() - began < 10
    wait_for(lambda: ours() <= before, 10, "no thread is left behind")


def test_a_running_container_whose_log_cannot_be_read_is_not_known_to_have_ended(tmp_path: Path) -> None:
    with StubEngine(tmp_path / "s", **{LOOK: (200, attrs("running")), LOGS: silence}):
        seen = stubbed(tmp_path / "s").status(NAME)
        assert isinstance(seen, Err) and seen.failure == Failure.INFRA_ENGINE and not seen.maybe


REMOVALS: tuple[tuple[Answer, bool], ...] = (
    ((204, None), True),
    ((404, {"message": "No such container: c1"}), True),
    ((409, {"message": "removal of container c1 is already in progress"}), False),
    ((500, {"message": "driver failed to remove root filesystem: device or resource busy"}), False),
    (hang_up, False),
)


@pytest.mark.parametrize(("answer", "gone"), REMOVALS)
def test_what_is_gone_already_is_removed(answer: Answer, gone: bool, tmp_path: Path) -> None:
    with StubEngine(tmp_path / "s", **{LOOK: (200, attrs("exited")), REMOVE: answer}):
        told = stubbed(tmp_path / "s").remove(NAME)
        assert told == Ok(None) if gone else isinstance(told, Err) and told.failure == Failure.INFRA_ENGINE
        if isinstance(told, Err):
            assert "\n" not in told.detail and rule(told.failure).retried


IMAGES: tuple[tuple[Answer, Failure, str], ...] = (
    ((404, {"message": "No such image: nowhere:1"}), Failure.IMAGE_UNAVAILABLE, "set containers.image"),
    ((400, {"message": "invalid reference format"}), Failure.CONFIG_INVALID, "invalid reference format"),
    ((500, {"message": "layer does not exist"}), Failure.INFRA_ENGINE, "layer does not exist"),
    (silence, Failure.INFRA_ENGINE, "does the engine hang?"),
)


@pytest.mark.parametrize(("answer", "failure", "words"), IMAGES)
def test_an_image_that_cannot_be_had_is_nobodys_attempt(
    answer: Answer, failure: Failure, words: str, tmp_path: Path
) -> None:
    """Never pulled by us: it is on the engine, or the operator is told to build or to pull it."""
    with StubEngine(tmp_path / "s", **{"GET /images/nowhere:1/json": answer}) as engine:
        told = stubbed(tmp_path / "s").image("nowhere:1")
        assert isinstance(told, Err) and told.failure == failure and words in told.detail
        assert rule(failure).counter != "agent"
        assert not any(x.startswith("POST") for x in engine.asked)


FITS = {"Architecture": "amd64", "Config": {"Labels": {"harness.build-key": "x"}}}
MISFITS: tuple[tuple[dict[str, Any], str, str], ...] = (
    (FITS, "x86_64", ""),
    ({**FITS, "Architecture": "arm64"}, "aarch64", ""),
    ({**FITS, "Architecture": ""}, "x86_64", ""),
    ({**FITS, "Architecture": "riscv64"}, "riscv64", ""),
    ({**FITS, "Architecture": "arm64"}, "x86_64", "is made for arm64, and the engine's machine is x86_64"),
    ({**FITS, "Architecture": "amd64"}, "aarch64", "is made for amd64, and the engine's machine is aarch64"),
    ({**FITS, "Config": {"Labels": None}}, "x86_64", "is not a worker image"),
    ({**FITS, "Config": None}, "x86_64", "is not a worker image"),
)


@pytest.mark.parametrize(("image", "machine", "words"), MISFITS)
def test_an_image_for_another_machine_or_purpose_is_told(
    image: dict[str, Any], machine: str, words: str, tmp_path: Path
) -> None:
    answers: dict[str, Answer] = {
        "GET /images/some:1/json": (200, {"Id": "sha256:1", **image}),
        "GET /info": (200, {"ID": "STUB", "NCPU": 2, "Architecture": machine}),
    }
    with StubEngine(tmp_path / "s", **answers):
        told = stubbed(tmp_path / "s").misfit("some:1")
        assert isinstance(told, Ok) and told.value.startswith(words) and bool(told.value) == bool(words)


# ---------------------------------------------------------------- a real engine


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[DockerRuntime]:
    """A runtime of an instance of its own on the real engine; nothing of it is left."""
    (tmp_path / "data").mkdir()
    made = DockerRuntime(
        data=tmp_path / "data", instance=f"c{uuid.uuid4().hex[:8]}", repo_key="acme/widget", clock=WallClock(),
        timeout_s=20.0,
    )  # fmt: skip
    here = made.probe()
    if not isinstance(here, Ok):
        assert not os.environ.get("HARNESS_REQUIRE_DOCKER"), f"a container engine is required: {here}"
        pytest.skip(f"no container engine answers: {here}")
    yield made
    for status in made.ours().unwrap():
        assert made.remove(status.name) == Ok(None)


def job(*argv: str, **more: Any) -> Job:
    return Job(f"h-{uuid.uuid4().hex[:10]}", argv, image=BASE, env={"HOME": "/tmp"}, workdir="/", **more)


def ended(runtime: DockerRuntime, name: str, within_s: float = 60.0) -> Status:
    def look() -> Status | None:
        seen = runtime.status(name).unwrap()
        assert seen is not None
        return None if seen.alive else seen

    return wait_for(look, within_s, "it ends")


@pytest.mark.docker
def test_silence_is_no_failure_and_its_line_comes_once(engine: DockerRuntime, tmp_path: Path) -> None:
    impatient = DockerRuntime(
        data=tmp_path / "data",
        instance=engine._instance,
        repo_key="acme/widget",
        clock=WallClock(),
        timeout_s=1.5,
    )
    quiet = job("sh", "-c", "sleep 4; echo here I am")
    assert isinstance(engine.start(quiet), Ok)
    answers = 0
    end = time.monotonic() + 60
    while time.monotonic() < end:
        seen = impatient.status(quiet.name)
        answers += isinstance(seen, Ok)
        if isinstance(seen, Ok) and seen.value is not None and not seen.value.alive:
            break
        time.sleep(0.2)
    last = ended(engine, quiet.name)
    assert (last.phase, last.exit) == ("EXITED", 0) and answers
    assert engine.log(quiet.name, 1000).unwrap() == b"here I am\n"


ENDS = (
    ("exit 7", 7),
    ("echo out; echo err >&2; exit 7", 7),
    ("kill -TERM $$", 143),
    ("kill -SEGV $$", 139),
    ("exec no-such-program", 127),
    ("exec /etc/passwd", 126),
    ("exit 0", 0),
    ("exit 255", 255),
)


@pytest.mark.docker
def test_the_shortest_runs_keep_their_code_and_their_log(engine: DockerRuntime) -> None:
    jobs = [(job("sh", "-c", f"echo begun; {script}"), code) for script, code in ENDS]
    for made, _ in jobs:
        assert isinstance(engine.start(made), Ok)
    for made, code in jobs:
        seen = ended(engine, made.name)
        assert (seen.phase, seen.exit, seen.oom) == ("EXITED", code, False), made.argv
        assert b"begun\n" in engine.log(made.name, 1000).unwrap()
        assert engine.remove(made.name) == Ok(None) == engine.remove(made.name)
        assert engine.status(made.name) == Ok(None)


@pytest.mark.docker
def test_an_endless_loop_that_ignores_everything_is_ended(engine: DockerRuntime) -> None:
    made = job("sh", "-c", "trap '' TERM INT HUP; echo begun; while :; do sleep 0.1; done")
    assert isinstance(engine.start(made), Ok)
    wait_for(lambda: engine.log(made.name, 100).unwrap(), 30, "it runs")
    assert engine.stop(made.name, 0.5) == Ok(None)
    seen = ended(engine, made.name, 20)
    assert (seen.exit, seen.oom) == (137, False)


@pytest.mark.docker
def test_children_left_behind_are_reaped_and_counted(engine: DockerRuntime) -> None:
    """Two hundred orphans end: none stays as a zombie, and the limit of processes is not eaten up."""
    script = (
        "for i in $(seq 200); do sh -c '(sleep 0.01 &) ; exit 0'; done; sleep 1; "
        "cat /proc/[0-9]*/stat 2>/dev/null | cut -d' ' -f3 | grep -c Z"
    )
    made = job("sh", "-c", script, limits=Limits(pids=40))
    assert isinstance(engine.start(made), Ok)
    ended(engine, made.name)
    assert engine.log(made.name, 1000).unwrap() == b"0\n"


@pytest.mark.docker
def test_an_image_without_the_harness_starts_no_work_and_says_why(
    engine: DockerRuntime, tmp_path: Path
) -> None:
    stage = Stage(tmp_path / "stage")
    try:
        with World(
            stage, tmp_path / "world", "docker", ["Do it"], image=BASE,
            config={"validation": {"commands": ["true"]}},
        ) as made:  # fmt: skip
            finished = made.run("director", "--until-idle", "--json", within_s=180)
            assert finished.code == 0 and "Traceback" not in finished.told
            assert "exec /opt/harness/bin/python failed" in finished.document["ended"]
            assert "exec /opt/harness/bin/python failed" in finished.told, "the log says it too"
            assert finished.document["tickets"] == []
            assert made.issue(1)["labels"] == ["harness"] and made.comments(1) == []
            lines = [" ".join(x.split()) for x in made.run("doctor").out.splitlines()]
            assert any(x.startswith(f"warning image {BASE} is not a worker image") for x in lines)
    finally:
        stage.close()
