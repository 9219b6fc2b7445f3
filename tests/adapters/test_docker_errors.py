"""The Docker adapter against an engine that misbehaves on purpose: each fault has one class and one line."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from harness.adapters import container
from harness.adapters.docker import DockerRuntime
from harness.compose.errors import StartError
from harness.compose.runtimes import pick_runtime
from harness.config.reader import parse
from harness.core.result import Err, Ok
from harness.domain import Job
from harness.failures import Failure
from harness.loop import SteadyClock

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from stub_engine import Answer, StubEngine, hang_up, silence, trickle


class WallClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


MINE = {"harness.instance": "i1", "harness.repo": "acme/widget"}
JOB = Job("h-acme-12-1-i1", ("true",), image="sha256:1")
CREATE, START = "POST /containers/create", f"POST /containers/{JOB.name}/start"
LOOK = f"GET /containers/{JOB.name}/json"


def attrs(status: str = "running", labels: dict[str, str] | None = None, **state: Any) -> dict[str, Any]:
    return {
        "Id": "c1",
        "Name": f"/{JOB.name}",
        "Image": "sha256:1",
        "State": {"Status": status, "ExitCode": 0, **state},
        "Config": {"Labels": MINE if labels is None else labels},
    }


@pytest.fixture
def sock(tmp_path: Path) -> Path:
    return tmp_path / "s"


def stub_runtime(sock: Path, timeout_s: float = 1.0) -> DockerRuntime:
    return DockerRuntime(
        data=sock.parent, host_data=None, instance="i1", repo_key="acme/widget", clock=WallClock(),
        timeout_s=timeout_s, docker_host=f"unix://{sock}",
    )  # fmt: skip


def labelled(job: Job) -> dict[str, str]:
    return container.labels_of(job, "i1", "acme/widget")


@pytest.mark.parametrize(
    "answer,failure,maybe",
    [
        ((404, {"message": "No such image: sha256:1"}), Failure.IMAGE_UNAVAILABLE, False),
        ((500, {"message": "mkdir /var/lib/x: no space left on device"}), Failure.DISK_FULL, False),
        ((500, {"message": "open /x: Disk quota exceeded"}), Failure.DISK_FULL, False),
        (
            (400, {"message": "invalid mount config: bind source path does not exist"}),
            Failure.CONFIG_INVALID,
            False,
        ),
        ((403, {"message": "authorization denied by plugin"}), Failure.CONFIG_INVALID, False),
        ((500, {"message": "context deadline exceeded"}), Failure.INFRA_ENGINE, True),
        ((503, {"message": "the engine is shutting down"}), Failure.INFRA_ENGINE, True),
        (hang_up, Failure.INFRA_ENGINE, True),
        (silence, Failure.INFRA_ENGINE, True),
    ],
)
def test_a_failed_create_is_named_and_looked_for(
    sock: Path, answer: Answer, failure: Failure, maybe: bool
) -> None:
    """`maybe` where the container can have been made all the same."""
    with StubEngine(sock, **{CREATE: answer}) as engine:
        began = time.monotonic()
        got = stub_runtime(sock).start(JOB)
        assert time.monotonic() - began < 1.5
        assert isinstance(got, Err)
        assert (got.failure, got.maybe) == (failure, maybe)
        assert "\n" not in got.detail and ("sha256:1" in got.detail or JOB.name in got.detail)
        assert LOOK in engine.asked, "after an error it is looked for by its name"
        assert engine.asked.count(CREATE) == 1, "nothing is sent twice"


@pytest.mark.parametrize("answer", [silence, hang_up, (500, {"message": "context deadline exceeded"})])
def test_what_was_created_although_the_answer_was_lost_is_adopted(sock: Path, answer: Answer) -> None:
    there = (200, attrs("running", labelled(JOB)))
    with StubEngine(sock, **{CREATE: answer, LOOK: there}):
        got = stub_runtime(sock).start(JOB)
        assert isinstance(got, Ok) and got.value.phase == "RUNNING"


def test_what_was_created_and_not_started_is_started(sock: Path) -> None:
    conflict = (409, {"message": f'Conflict. The container name "/{JOB.name}" is already in use'})
    answers: dict[str, Answer] = {
        CREATE: conflict,
        LOOK: (200, attrs("created", labelled(JOB))),
        "POST /containers/c1/start": (500, {"message": "OCI runtime create failed"}),
    }
    with StubEngine(sock, **answers) as engine:
        got = stub_runtime(sock).start(JOB)
        assert isinstance(got, Err) and "OCI runtime" in got.detail
        assert "POST /containers/c1/start" in engine.asked


def not_json(handler: BaseHTTPRequestHandler) -> None:
    """As a proxy in between would answer."""
    handler.send_response(200)
    handler.send_header("Content-Length", "6")
    handler.end_headers()
    handler.wfile.write(b"<html>")


@pytest.mark.parametrize("answer", [silence, hang_up, not_json, (500, {"message": "bad"})])
def test_what_cannot_be_read_is_never_absent(sock: Path, answer: Answer) -> None:
    with StubEngine(sock, **{LOOK: answer, "GET /containers/json": answer}) as engine:
        runtime = stub_runtime(sock)
        looks = (runtime.status(JOB.name), runtime.ours(), runtime.log(JOB.name, 9))
        for got in (*looks, runtime.remove(JOB.name), runtime.stop(JOB.name, 1)):
            assert isinstance(got, Err) and got.failure == Failure.INFRA_ENGINE
            assert not got.maybe, "only looking had been tried"
        assert not any(x.startswith(("POST", "DELETE")) for x in engine.asked)


def test_a_log_that_trickles_ends_with_the_deadline(sock: Path) -> None:
    answers: dict[str, Answer] = {LOOK: (200, attrs()), "GET /containers/c1/logs": trickle}
    with StubEngine(sock, **answers):
        began = time.monotonic()
        got = stub_runtime(sock).log(JOB.name, 1000)
        assert isinstance(got, Err) and got.failure == Failure.INFRA_ENGINE
        assert time.monotonic() - began < 2.0


def test_no_engine_and_no_permission_are_said_plainly(sock: Path) -> None:
    got = stub_runtime(sock).start(JOB)
    assert isinstance(got, Err) and (got.failure, got.maybe) == (Failure.INFRA_ENGINE, False)
    assert "nothing listens" in got.detail and str(sock) in got.detail
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(sock))
    again = stub_runtime(sock).probe()
    assert isinstance(again, Err) and "nothing listens" in again.detail


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_a_socket_that_we_may_not_open_is_a_matter_of_configuration(sock: Path) -> None:
    code = (
        "import os, sys, time, docker, urllib3\nfrom pathlib import Path\n"
        "from harness.adapters.docker import DockerRuntime\nos.setuid(12345)\n"
        "r = DockerRuntime(data=Path('/tmp'), host_data=None, instance='i', repo_key='r', clock=time,\n"
        "                  docker_host=sys.argv[1])\n"
        "time.now = time.time\nprint(r.probe())"
    )
    folder = Path(f"/tmp/hse-{uuid.uuid4().hex[:6]}")
    folder.mkdir(mode=0o755)
    try:
        with StubEngine(folder / "s"):
            (folder / "s").chmod(0o600)
            done = subprocess.run(
                [sys.executable, "-c", code, f"unix://{folder / 's'}"],
                capture_output=True,
                text=True,
                timeout=60,
            )
    finally:
        (folder / "s").unlink()
        folder.rmdir()
    assert "config_invalid" in done.stdout and "group of the socket" in done.stdout, done.stderr


@pytest.mark.parametrize("labels", [{}, {"harness.instance": "i2", "harness.repo": "acme/widget"}])
def test_a_name_that_somebody_else_holds_is_left_alone(sock: Path, labels: dict[str, str]) -> None:
    """Also when it is asked to stop or to remove it."""
    answers: dict[str, Answer] = {
        CREATE: (409, {"message": "Conflict. The container name is already in use"}),
        LOOK: (200, attrs("running", labels)),
    }
    with StubEngine(sock, **answers) as engine:
        runtime = stub_runtime(sock)
        got = runtime.start(JOB)
        assert isinstance(got, Err) and got.failure == Failure.INFRA_ENGINE and "name taken" in got.detail
        assert runtime.status(JOB.name) == Ok(None)
        assert runtime.stop(JOB.name, 1) == Ok(None) and runtime.remove(JOB.name) == Ok(None)
        assert not any(x.startswith(("POST /containers/c1", "DELETE")) for x in engine.asked)


def test_a_name_that_is_the_beginning_of_an_id_finds_nothing(sock: Path) -> None:
    other = {**attrs("running", MINE), "Name": "/h-another"}
    with StubEngine(sock, **{LOOK: (200, other)}) as engine:
        runtime = stub_runtime(sock)
        assert runtime.status(JOB.name) == Ok(None)
        assert runtime.remove(JOB.name) == Ok(None)
        assert not any(x.startswith("DELETE") for x in engine.asked)


def test_remapped_user_ids_are_refused_with_the_reason(sock: Path) -> None:
    info = {"ID": "STUB", "SecurityOptions": ["name=userns", "name=seccomp,profile=default"]}
    with StubEngine(sock, **{"GET /info": (200, info)}):
        got = stub_runtime(sock).probe()
        assert isinstance(got, Err) and got.failure == Failure.CONFIG_INVALID and "userns-remap" in got.detail


@pytest.mark.parametrize("options,user", [([], None), (["name=rootless"], "0:0")])
def test_inside_a_rootless_engine_root_is_ourselves(sock: Path, options: list[str], user: str | None) -> None:
    made = (201, {"Id": "c1", "Warnings": []})
    info = {"ID": "STUB", "SecurityOptions": options, "NCPU": 2}
    with StubEngine(sock, **{"GET /info": (200, info), CREATE: made}) as engine:
        runtime = stub_runtime(sock)
        runtime.start(JOB)
        assert engine.bodies[0]["User"] == (user or f"{runtime.uid}:{runtime.gid}")
        assert runtime.uid != 0


def test_the_list_does_not_inspect_what_simply_runs(sock: Path) -> None:
    """A hundred workers must not cost a hundred requests at every look."""
    row = {"Id": "c1", "Names": [f"/{JOB.name}"], "ImageID": "sha256:1", "State": "running", "Labels": MINE}
    began = "2024-05-01T12:00:00.5Z"
    answers: dict[str, Answer] = {
        "GET /containers/json": (200, [row]),
        LOOK: (200, attrs("running", StartedAt=began)),
    }
    with StubEngine(sock, **answers) as engine:
        runtime = stub_runtime(sock)
        first, second = runtime.ours().unwrap(), runtime.ours().unwrap()
        assert first == second and first[0].started_at == 1714564800.5
        assert engine.asked.count(LOOK) == 1
        engine.answers["GET /containers/json"] = (200, [{**row, "State": "exited"}])
        engine.answers[LOOK] = (200, attrs("exited", ExitCode=3))
        assert runtime.ours().unwrap()[0].exit == 3


def test_a_container_that_is_gone_leaves_no_connection_behind(sock: Path) -> None:
    """The SDK keeps one for each address: every container that was ever asked about cost a descriptor."""
    with StubEngine(sock) as engine:
        runtime = stub_runtime(sock)
        runtime.status("h-acme-0-1-i1").unwrap()
        before = len(os.listdir("/proc/self/fd"))
        for n in range(1, 20):
            assert runtime.status(f"h-acme-{n}-1-i1").unwrap() is None
        assert len(engine.asked) > 20
        # The stub is in this process: each connection has two ends here, and the stub's goes a moment later.
        end = time.monotonic() + 20
        while len(os.listdir("/proc/self/fd")) - before > 2 * 4 and time.monotonic() < end:
            time.sleep(0.05)
        assert len(os.listdir("/proc/self/fd")) - before <= 2 * 4


def test_proxies_and_contexts_of_our_environment_are_not_for_the_engine(
    sock: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "cli"
    folder.mkdir()
    (folder / "config.json").write_text(
        json.dumps(
            {"currentContext": "elsewhere", "proxies": {"default": {"httpProxy": "http://127.0.0.1:1"}}}
        )
    )
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    monkeypatch.setenv("DOCKER_CONTEXT", "elsewhere")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{sock}")
    with StubEngine(sock, **{CREATE: (201, {"Id": "c1"})}) as engine:
        runtime = DockerRuntime(
            data=tmp_path, host_data=None, instance="i1", repo_key="acme/widget", clock=WallClock()
        )
        assert isinstance(runtime.probe(), Ok)
        runtime.start(JOB)
        assert engine.bodies[0]["Env"] == [], "the command line's proxies are not for the job either"


def test_stdin_is_refused_before_anything_is_asked(sock: Path) -> None:
    got = stub_runtime(sock).start(replace(JOB, stdin="text"))
    assert isinstance(got, Err) and got.failure == Failure.CONFIG_INVALID


def test_an_engine_that_does_not_answer_now_is_not_taken_for_none(sock: Path, tmp_path: Path) -> None:
    """Workers would run as processes, and those in its containers would be gone, and run a second time."""
    text = f"""
    [forge]
    url = "http://127.0.0.1:1"
    repo = "acme/widget"
    [containers]
    image = "w:1"
    docker_host = "unix://{sock}"
    """
    config = parse("\n".join(x.strip() for x in text.splitlines()).encode(), "harness.toml")

    def pick() -> str:
        return pick_runtime(config, tmp_path, "i1", SteadyClock(), {})[1]

    assert pick() == "process", "there is none"
    with (
        StubEngine(sock, **{"GET /version": hang_up}),
        pytest.raises(StartError, match="no container engine"),
    ):
        pick()
    with pytest.raises(StartError, match="nothing listens"):
        pick()  # it was ended and left its socket
    sock.unlink()
    with StubEngine(sock):
        assert pick() == "docker"
