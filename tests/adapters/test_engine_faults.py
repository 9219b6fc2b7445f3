"""An engine that hangs, dies, restarts or comes back: a real one, of the test's own, in its own network."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.adapters.docker import DockerRuntime
from harness.core.result import Err, Ok
from harness.domain import Job, Status
from harness.failures import Failure
from harness.machines.attempt.outcome import Ended, classify

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from private_engine import PrivateEngine, reason_missing

pytestmark = [pytest.mark.docker, pytest.mark.slow]
BASE = os.environ.get("HARNESS_TEST_IMAGE", "harness-base:bookworm")


class WallClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


@pytest.fixture(scope="module")
def private() -> Iterator[PrivateEngine]:
    """One engine for all tests here: copying the image takes most of the time."""
    missing = reason_missing()
    if missing and not os.environ.get("HARNESS_REQUIRE_DOCKER"):
        pytest.skip(missing)
    with PrivateEngine() as made:
        made.load(BASE)
        yield made


@pytest.fixture
def engine(private: PrivateEngine) -> Iterator[PrivateEngine]:
    yield private
    private.thaw()
    ids = private.run("ps", "-aq").split()
    if ids:
        private.run("rm", "-fv", *ids)


@pytest.fixture
def runtime(engine: PrivateEngine, tmp_path: Path) -> DockerRuntime:
    return connect(engine, tmp_path)


def connect(engine: PrivateEngine, data: Path, timeout_s: float = 2.0, host: str = "") -> DockerRuntime:
    return DockerRuntime(
        data=data, host_data=None, instance="i1", repo_key="acme/widget", clock=WallClock(),
        timeout_s=timeout_s, docker_host=host or engine.host,
    )  # fmt: skip


def job(*argv: str, **more: Any) -> Job:
    return Job(f"h-{uuid.uuid4().hex[:10]}", argv or ("sleep", "300"), image=BASE, workdir="/", **more)


def begun(runtime: DockerRuntime, what: Job) -> Status:
    got = runtime.start(what)
    assert isinstance(got, Ok), got
    return got.value


def soon(look: Callable[[], Any], within_s: float = 20.0) -> Any:
    """Ask until something true is answered: a real engine needs a moment."""
    end = time.monotonic() + within_s
    while not (seen := look()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return seen


def outcome(before: Status, after: Status, asked: str = "") -> tuple[str, str]:
    got = classify(
        Ended(after.exit, after.oom, engine_changed=after.engine != before.engine, lost=False, asked=asked)
    )
    return got.failure, got.counter


def test_a_hung_engine_is_an_error_within_the_deadline(engine: PrivateEngine, runtime: DockerRuntime) -> None:
    what = job()
    first = begun(runtime, what)
    asks: list[tuple[Callable[[], Any], bool]] = [
        (runtime.probe, False),
        (lambda: runtime.image(BASE), False),
        (lambda: runtime.status(what.name), False),
        (runtime.ours, False),
        (lambda: runtime.log(what.name, 100), False),
        (lambda: runtime.stop(what.name, 1.0), False),
        (lambda: runtime.remove(what.name), False),
        (lambda: runtime.start(job()), False),
    ]
    engine.freeze()
    for ask, maybe in asks:
        began = time.monotonic()
        got = ask()
        assert time.monotonic() - began < 3.0
        assert isinstance(got, Err) and (got.failure, got.maybe) == (Failure.INFRA_ENGINE, maybe)
        assert "no answer in time" in got.detail
    engine.thaw()
    again = soon(lambda: runtime.status(what.name).unwrap())
    assert again == first, "after the thaw it is the same container in the same life of the engine"


def test_many_calls_on_a_hung_engine_all_come_back(engine: PrivateEngine, runtime: DockerRuntime) -> None:
    """More than the socket's queue holds: connecting itself must not block either."""
    from concurrent.futures import ThreadPoolExecutor

    engine.freeze()
    with ThreadPoolExecutor(40) as pool:
        began = time.monotonic()
        answers = list(pool.map(lambda n: runtime.status(f"h-none-{n}"), range(80)))
        assert time.monotonic() - began < 10.0
    assert {a.failure for a in answers if isinstance(a, Err)} == {Failure.INFRA_ENGINE}
    assert len(answers) == 80 and all(isinstance(a, Err) for a in answers)


def test_a_create_that_was_lost_in_a_hang_is_adopted_later(
    engine: PrivateEngine, runtime: DockerRuntime, tmp_path: Path
) -> None:
    """The engine makes the container after we gave up on it: once, and it is found by its name."""
    what = job()
    with FreezingLine(engine, tmp_path / "line", b"POST ") as line:
        got = connect(engine, tmp_path, host=line.host).start(what)
        assert isinstance(got, Err) and (got.failure, got.maybe) == (Failure.INFRA_ENGINE, True)
        engine.thaw()
        listed = soon(lambda: [s for s in runtime.ours().unwrap() if s.name == what.name])
    assert listed[0].phase == "PENDING", "created, and never started"
    assert begun(runtime, what).phase == "RUNNING"
    assert [s.name for s in runtime.ours().unwrap()].count(what.name) == 1


class FreezingLine:
    """A socket in front of the engine's, which freezes the engine when a request of that kind passes."""

    def __init__(self, engine: PrivateEngine, path: Path, begins: bytes) -> None:
        self.engine, self.begins, self.host = engine, begins, f"unix://{path}"
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen(8)

    def __enter__(self) -> FreezingLine:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._listening.accept()
            except OSError:
                return  # Closed: the test is over.
            there = socket.socket(socket.AF_UNIX)
            there.connect(str(self.engine.socket))
            for source, sink in ((here, there), (there, here)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                if data.startswith(self.begins):
                    self.engine.freeze()
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return  # One end hung up.


@pytest.mark.parametrize("graceful", [True, False])
def test_what_ends_with_the_engine_is_charged_to_nobody(
    engine: PrivateEngine, runtime: DockerRuntime, graceful: bool
) -> None:
    what, over = job(), job("sh", "-c", "exit 7")
    first, short = begun(runtime, what), begun(runtime, over)
    soon(lambda: not runtime.status(over.name).unwrap().alive)
    engine.restart(graceful=graceful)
    after = soon(lambda: s if isinstance(r := runtime.status(what.name), Ok) and (s := r.value) else None)
    assert after.phase == "EXITED" and after.exit in (137, 143)
    assert after.engine != first.engine
    assert outcome(first, after) == ("infra_engine", "nobody")
    kept = runtime.status(over.name).unwrap()
    assert kept is not None and kept.exit == 7, "what had ended before keeps its own exit"
    assert outcome(short, kept)[0] == "unknown_exit"
    assert {s.name for s in runtime.ours().unwrap()} == {what.name, over.name}


def test_while_it_is_gone_nothing_is_absent(engine: PrivateEngine, runtime: DockerRuntime) -> None:
    what = job()
    begun(runtime, what)
    engine.kill()
    try:
        for got in (
            runtime.status(what.name),
            runtime.ours(),
            runtime.remove(what.name),
            runtime.start(job()),
        ):
            assert isinstance(got, Err) and (got.failure, got.maybe) == (Failure.INFRA_ENGINE, False)
            assert "nothing listens" in got.detail
    finally:
        engine.start()
    assert runtime.status(what.name).unwrap() is not None


def test_a_life_is_the_same_until_the_engine_restarts(
    engine: PrivateEngine, runtime: DockerRuntime, tmp_path: Path
) -> None:
    what = job()
    lives = {begun(runtime, what).engine, runtime.status(what.name).unwrap().engine}  # type: ignore[union-attr]
    lives |= {s.engine for s in runtime.ours().unwrap()}
    lives |= {connect(engine, tmp_path).status(what.name).unwrap().engine}  # type: ignore[union-attr]
    assert len(lives) == 1, "another director sees the same life"
    engine.restart()
    now = runtime.status(what.name).unwrap()
    assert now is not None and now.engine not in lives
    assert now.engine.partition("/")[0] in {x.partition("/")[0] for x in lives}, (
        "the same engine, another life"
    )


@pytest.mark.usefixtures("private")  # Where that one cannot be had, neither can this.
def test_with_live_restore_the_workers_outlive_the_engine(tmp_path: Path) -> None:
    with PrivateEngine(live_restore=True) as engine:
        engine.load(BASE)
        runtime = connect(engine, tmp_path, timeout_s=10.0)
        assert "live-restore on" in runtime.probe().unwrap()
        stays = job("sh", "-c", "for n in 1 2 3 4 5 6 7 8 9 10 11 12; do echo $n; sleep 0.3; done; exit 75")
        ends = job("sh", "-c", "sleep 1; exit 10")
        first = begun(runtime, stays)
        begun(runtime, ends)
        engine.kill()
        time.sleep(1.5)  # One of them ends while nobody listens.
        engine.start()
        after = soon(lambda: (s := runtime.status(stays.name).unwrap()) and not s.alive and s)
        assert after.exit == 75 and after.started_at == first.started_at
        assert outcome(first, after) == ("", "")
        said = runtime.log(stays.name, 1000).unwrap().split()
        assert said == [str(n).encode() for n in range(1, 13)]
        over = runtime.status(ends.name).unwrap()
        assert over is not None and over.exit == 10
