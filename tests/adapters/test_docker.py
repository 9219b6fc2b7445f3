"""The Docker adapter: against an engine that misbehaves on purpose, and against a real one.

What every runtime must do is in the conformance suite. An engine that hangs or restarts is in
test_engine_faults.py.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from harness.adapters.docker import DockerRuntime
from harness.core.result import Err, Ok, Pass
from harness.domain import Job, Limits, Mount, Status
from harness.failures import Failure

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from stub_engine import Answer, StubEngine, hang_up, silence, trickle

BASE = os.environ.get("HARNESS_TEST_IMAGE", "harness-base:bookworm")
MINE = {"harness.instance": "i1", "harness.repo": "acme/widget"}


class WallClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


# ---------------------------------------------------------------- an engine that misbehaves


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
    from harness.adapters import container

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
    """DK-14, DK-16. `maybe` where the container can have been made all the same."""
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
    """DK-06 (c)."""
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


# ---------------------------------------------------------------- a real engine


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[DockerRuntime]:
    (tmp_path / "data").mkdir()
    made = DockerRuntime(
        data=tmp_path / "data", host_data=None, instance=f"t{uuid.uuid4().hex[:8]}", repo_key="acme/widget",
        clock=WallClock(),
    )  # fmt: skip
    here = made.probe()
    if not isinstance(here, Ok) and not os.environ.get("HARNESS_REQUIRE_DOCKER"):
        pytest.skip(f"no container engine: {here}")
    yield made
    for status in made.ours().unwrap():
        assert made.remove(status.name) == Ok(None)


def job(*argv: str, **more: Any) -> Job:
    given = {"image": BASE, "env": {"HOME": "/tmp"}, "workdir": "/", **more}
    return Job(f"h-{uuid.uuid4().hex[:10]}", argv, **given)


def cli(*args: str) -> str:
    done = subprocess.run(["docker", *args], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


def run(runtime: DockerRuntime, what: Job, within_s: float = 20.0) -> tuple[Status, str]:
    """Run it to its end; answers how it ended and what it printed."""
    got = runtime.start(what)
    assert isinstance(got, Ok), got
    end = time.monotonic() + within_s
    while True:
        seen = runtime.status(what.name).unwrap()
        assert seen is not None and time.monotonic() < end, seen
        if not seen.alive:
            return seen, runtime.log(what.name, 100_000).unwrap().decode(errors="replace")
        time.sleep(0.03)


PROBE = """
import json, os, socket, subprocess
def status():
    pairs = (l.split(":", 1) for l in open("/proc/self/status"))
    return {k: v.strip() for k, v in pairs}
def tries(act):
    try:
        act()
        return "worked"
    except OSError as e:
        return e.__class__.__name__ + ": " + str(e)
def write(path):
    return tries(lambda: open(path, "w").write("x"))
def connect(host):
    return tries(lambda: socket.create_connection((host, 53), 1))
s = status()
server = socket.create_server(("127.0.0.1", 0))
print(json.dumps({
    "uid": os.getuid(), "gid": os.getgid(), "groups": os.getgroups(),
    "caps": [s[k] for k in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
    "no_new_privs": s["NoNewPrivs"], "seccomp": s["Seccomp"],
    "unshare": subprocess.run(["unshare", "-U", "true"], capture_output=True).returncode,
    "mount": subprocess.run(["mount", "-t", "tmpfs", "x", "/tmp"], capture_output=True).returncode,
    "root": write("/x"), "etc": write("/etc/x"), "usr": write("/usr/bin/x"), "tmp": write("/tmp/x"),
    "sysctl": write("/proc/sys/kernel/core_pattern"), "ro": write("/tools/x"), "rw": write("/workspace/x"),
    "exec": os.system("cp /bin/true /tmp/t && /tmp/t"),
    "loopback": tries(lambda: socket.create_connection(server.getsockname(), 1)),
    "interfaces": [n for _, n in socket.if_nameindex()],
    "gateway": connect("172.17.0.1"), "outside": connect("203.0.113.1"), "resolve": tries(
        lambda: socket.getaddrinfo("example.com", 80)),
    "raw": tries(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)),
    "devices": sorted(os.listdir("/dev")),
    "sockets": [p for p in ("/var/run/docker.sock", "/run/docker.sock") if os.path.exists(p)],
    "init": open("/proc/1/cmdline").read().split(chr(0))[0],
    "nofile": __import__("resource").getrlimit(7), "core": __import__("resource").getrlimit(4),
}))
"""


@pytest.mark.docker
def test_from_inside_there_is_nothing_to_get_at(runtime: DockerRuntime, tmp_path: Path) -> None:
    for name in ("clone", "tools"):
        (tmp_path / "data" / name).mkdir()
        os.chown(tmp_path / "data" / name, runtime.uid, runtime.gid)
    mounts = (Mount("clone", "/workspace", "rw"), Mount("tools", "/tools", "ro"))
    ended, said = run(runtime, job("python3", "-c", PROBE, mounts=mounts, workdir="/workspace"))
    assert ended.exit == 0, said
    got = json.loads(said.splitlines()[-1])
    assert (got["uid"], got["gid"]) == (runtime.uid, runtime.gid) and got["uid"] != 0
    assert got["groups"] in ([], [runtime.gid])
    assert {int(x, 16) for x in got["caps"]} == {0}
    assert (got["no_new_privs"], got["seccomp"]) == ("1", "2")
    assert got["unshare"] != 0 and got["mount"] != 0
    assert "Read-only file system" in got["root"] and "worked" not in (got["etc"], got["usr"], got["sysctl"])
    assert got["ro"] != "worked" and (got["rw"], got["tmp"], got["exec"]) == ("worked", "worked", 0)
    assert got["interfaces"] == ["lo"] and got["loopback"] == "worked"
    assert "worked" not in (got["gateway"], got["outside"], got["resolve"], got["raw"])
    assert not {"sda", "vda", "mem", "kmsg", "fuse"} & set(got["devices"])
    assert got["sockets"] == []
    assert "init" in got["init"], "PID 1 reaps zombies and hears TERM"
    assert (got["nofile"], got["core"]) == ([4096, 4096], [0, 0])
    assert (tmp_path / "data" / "clone" / "x").stat().st_uid == runtime.uid


@pytest.mark.docker
def test_the_engine_confirms_every_claim(runtime: DockerRuntime) -> None:
    """RD-05 too: nothing is in the environment, the arguments or the labels but what the job says."""
    limits = Limits(memory_bytes=256 << 20, cpus=0.5, pids=64, tmp_bytes=16 << 20)
    what = job("sleep", "60", limits=limits, labels={"attempt": "12.1", "epoch": "3"})
    assert isinstance(runtime.start(what), Ok)
    seen = json.loads(cli("inspect", what.name))[0]
    host, config = seen["HostConfig"], seen["Config"]
    assert host["CapDrop"] == ["ALL"] and not host["CapAdd"] and not host["Privileged"]
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["ReadonlyRootfs"] and host["Init"] and host["IpcMode"] == "private"
    assert (host["PidsLimit"], host["Memory"], host["MemorySwap"]) == (64, 256 << 20, 256 << 20)
    assert host["NanoCpus"] == 500_000_000
    assert host["NetworkMode"] == "none" and list(seen["NetworkSettings"]["Networks"]) == ["none"]
    assert host["RestartPolicy"]["Name"] == "no" and host["AutoRemove"] is False
    assert host["LogConfig"]["Type"] == "local"
    assert host["Binds"] is None and not host["Devices"] and seen["Mounts"] == []
    assert host["PidMode"] == "" and host["UTSMode"] == ""
    assert config["User"] == f"{runtime.uid}:{runtime.gid}" and not config["OpenStdin"] and not config["Tty"]
    assert seen["Image"] == runtime.image(BASE).unwrap()
    assert {x for x in config["Env"] if not x.startswith(("PATH=", "LANG="))} == {"HOME=/tmp"}
    labels = {k: v for k, v in config["Labels"].items() if k.startswith("harness.")}
    assert labels["harness.repo"] == "acme/widget" and labels["harness.role"] == "worker"
    assert (labels["harness.attempt"], labels["harness.epoch"]) == ("12.1", "3")


@pytest.mark.docker
def test_prepare_alone_has_network(runtime: DockerRuntime) -> None:
    show = "import socket; print([n for _, n in socket.if_nameindex()])"
    refused = runtime.start(job("true", network="bridge"))
    assert isinstance(refused, Err) and refused.failure == Failure.CONFIG_INVALID
    ended, said = run(runtime, job("python3", "-c", show, role="prepare", network="bridge"))
    assert ended.exit == 0 and "eth0" in said


@pytest.mark.docker
def test_containers_of_others_are_neither_listed_nor_touched(runtime: DockerRuntime) -> None:
    """DK-06 (c), with real decoys: no label of ours, another instance, another repository."""
    what = job("sleep", "60")
    labels = [
        [],
        ["--label", "harness.instance=other", "--label", "harness.repo=acme/widget"],
        ["--label", f"harness.instance={runtime._instance}", "--label", "harness.repo=acme/gadget"],
    ]
    decoys = []
    try:
        for n, given in enumerate(labels):
            name = what.name if n == 0 else f"{what.name}-{n}"
            decoys.append(cli("run", "-d", "--network", "none", "--name", name, *given, BASE, "sleep", "60"))
        assert runtime.ours() == Ok(())
        got = runtime.start(what)
        assert isinstance(got, Err) and "name taken" in got.detail
        for n in range(3):
            name = what.name if n == 0 else f"{what.name}-{n}"
            assert runtime.status(name) == Ok(None)
            assert runtime.stop(name, 0) == Ok(None) and runtime.remove(name) == Ok(None)
            # The beginning of an id is a name to the engine, not to us.
            assert runtime.remove(decoys[n][:12]) == Ok(None)
        assert [cli("inspect", "-f", "{{.State.Running}}", x) for x in decoys] == ["true"] * 3
    finally:
        for decoy in decoys:
            cli("rm", "-f", decoy)


@pytest.mark.docker
def test_what_is_created_and_not_started_is_listed_and_started(runtime: DockerRuntime) -> None:
    """The director died between create and start: a reaper that looks at exited ones only would miss it."""
    what = job("echo", "hello")
    assert isinstance(runtime.start(what), Ok)
    made = json.loads(cli("inspect", what.name))[0]
    assert runtime.remove(what.name) == Ok(None)
    flags = [f"--label={k}={v}" for k, v in made["Config"]["Labels"].items()]
    cli("create", "--name", what.name, "--network", "none", *flags, BASE, "echo", "hello")
    listed = runtime.ours().unwrap()
    assert [(s.name, s.phase) for s in listed] == [(what.name, "PENDING")]
    ended, said = run(runtime, what)
    assert (ended.exit, said) == (0, "hello\n")


@pytest.mark.docker
def test_a_command_that_is_not_there_is_known_by_its_exit(runtime: DockerRuntime) -> None:
    ended, _ = run(runtime, job("no-such-command"))
    assert ended.exit == 127


@pytest.mark.docker
def test_a_missing_folder_is_told_and_not_made(runtime: DockerRuntime, tmp_path: Path) -> None:
    got = runtime.start(job("true", mounts=(Mount("nowhere", "/workspace"),)))
    assert isinstance(got, Err) and got.failure == Failure.CONFIG_INVALID
    assert "nowhere" in got.detail and not (tmp_path / "data" / "nowhere").exists()


@pytest.mark.docker
def test_a_link_out_of_the_data_folder_is_not_followed(runtime: DockerRuntime, tmp_path: Path) -> None:
    (tmp_path / "data" / "clone").symlink_to("/etc")
    got = runtime.start(job("cat", "/workspace/shadow", mounts=(Mount("clone", "/workspace"),)))
    assert isinstance(got, Err) and "leads out of the data folder" in got.detail
    assert runtime.ours() == Ok(())


@pytest.mark.docker
def test_the_engine_may_see_the_data_folder_elsewhere(tmp_path: Path, runtime: DockerRuntime) -> None:
    """As for a director in a container: its own path means nothing to the engine."""
    (tmp_path / "data" / "clone").mkdir()
    (tmp_path / "data" / "clone" / "file").write_text("seen")
    (tmp_path / "inside").symlink_to(tmp_path / "data")
    there = DockerRuntime(
        data=tmp_path / "inside", host_data=tmp_path / "data", instance=runtime._instance,
        repo_key="acme/widget", clock=WallClock(),
    )  # fmt: skip
    ended, said = run(there, job("cat", "/workspace/file", mounts=(Mount("clone", "/workspace"),)))
    assert (ended.exit, said) == (0, "seen")


GREEDY = "x = bytearray(200 << 20); print(len(x))"


@pytest.mark.docker
def test_memory_is_a_flag_beside_the_exit_code(runtime: DockerRuntime) -> None:
    """DK-08: (a) the main process, (c) somebody's kill, (d) a child."""
    small = Limits(memory_bytes=64 << 20)
    whole, _ = run(runtime, job("python3", "-c", GREEDY, limits=small))
    assert (whole.exit, whole.oom) == (137, True)
    child, _ = run(runtime, job("sh", "-c", f"python3 -c '{GREEDY}'; exit 0", limits=small))
    assert (child.exit, child.oom) == (0, True)
    killed = job("sleep", "60")
    assert isinstance(runtime.start(killed), Ok)
    cli("kill", killed.name)
    end = time.monotonic() + 10
    while (seen := runtime.status(killed.name).unwrap()) is not None and seen.alive:
        assert time.monotonic() < end
    assert seen is not None and (seen.exit, seen.oom) == (137, False)


@pytest.mark.docker
def test_a_fork_bomb_and_a_full_tmp_stay_inside(runtime: DockerRuntime) -> None:
    limits = Limits(pids=32, tmp_bytes=4 << 20)
    forks = (
        "import os, time\nn = 0\ntry:\n  while n < 200:\n    if os.fork() == 0: time.sleep(9)\n    n += 1\n"
        "except OSError as e: print('stopped', n < 40, e.errno, flush=True)\nos._exit(0)"
    )
    _, said = run(runtime, job("python3", "-c", forks, limits=limits))
    assert "stopped True 11" in said
    fill = "import os\ntry: open('/tmp/x','wb').write(b'x'*(8<<20))\nexcept OSError as e: print(e.errno)"
    _, said = run(runtime, job("python3", "-c", fill, limits=limits))
    assert said == "28\n"


@pytest.mark.docker
def test_both_streams_come_whole_and_bounded(runtime: DockerRuntime) -> None:
    """DK-12, and a log of megabytes of which the end is asked for."""
    talk = (
        "import os, sys\n"
        "os.write(1, b'caf\\xc3'); os.write(2, b'err\\n'); os.write(1, b'\\xa9\\n')\n"
        "os.write(1, b'\\xff\\xfe\\n')\n"
        "for n in range(60000): os.write(1, b'%08d ' % n + b'y' * 91 + b'\\n')\n"
    )
    what = job("python3", "-c", talk)
    run(runtime, what)
    tail = runtime.log(what.name, 5000).unwrap()
    assert len(tail) == 5000 and tail.endswith(b"00059999 " + b"y" * 91 + b"\n")
    whole = runtime.log(what.name, 20 << 20).unwrap()
    assert "café".encode() + b"\n" in whole and b"err\n" in whole and b"\xff\xfe\n" in whole
    assert whole.count(b"y" * 91 + b"\n") == 60000


@pytest.mark.docker
def test_what_it_prints_is_a_sign_of_life(runtime: DockerRuntime) -> None:
    what = job("sh", "-c", "echo one; sleep 0.5; echo two >&2; sleep 60")
    assert isinstance(runtime.start(what), Ok)
    seen: list[float] = []
    end = time.monotonic() + 10
    while runtime.log(what.name, 100).unwrap().count(b"\n") < 2:
        assert time.monotonic() < end
        now = runtime.status(what.name).unwrap()
        assert now is not None
        seen.append(now.progress_at)
    last = runtime.status(what.name).unwrap()
    assert last is not None and abs(last.progress_at - time.time()) < 10
    assert last.progress_at > max(seen) or last.progress_at - min(seen) > 0.4


@pytest.mark.docker
def test_a_paused_container_runs_and_says_so_and_can_be_stopped(runtime: DockerRuntime) -> None:
    what = job("sleep", "60")
    assert isinstance(runtime.start(what), Ok)
    cli("pause", what.name)
    seen = runtime.status(what.name).unwrap()
    assert seen is not None and (seen.phase, seen.detail) == ("RUNNING", "paused")
    assert runtime.ours().unwrap()[0].detail == "paused"
    assert runtime.stop(what.name, 1.0) == Ok(None)
    after = runtime.status(what.name).unwrap()
    assert after is not None and after.phase == "EXITED"


@pytest.mark.docker
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files that are not its own")
def test_files_of_others_are_purged_by_a_container(runtime: DockerRuntime, tmp_path: Path) -> None:
    """DK-09: what root left in a clone goes, and nothing else does."""
    clone = tmp_path / "data" / "clone"
    (clone / "build" / "out").mkdir(parents=True)
    (clone / "build" / "out" / "a").write_text("x")
    (clone / "away").symlink_to(tmp_path / "data" / "kept")
    (tmp_path / "data" / "kept").mkdir()
    (tmp_path / "data" / "kept" / "file").write_text("x")
    (clone / "build" / "out").chmod(0)
    os.chown(clone / "build", 4711, 4711)
    got = _purge(runtime, "clone")
    assert got == Ok(None)
    assert list(clone.iterdir()) == [] and (tmp_path / "data" / "kept" / "file").exists()
    assert runtime.ours() == Ok(()), "nothing of the purge is left"


@pytest.mark.docker
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file immutable")
def test_files_that_cannot_be_purged_are_named(runtime: DockerRuntime, tmp_path: Path) -> None:
    clone = tmp_path / "data" / "clone"
    clone.mkdir()
    (clone / "stone").write_text("x")
    if subprocess.run(["chattr", "+i", str(clone / "stone")], capture_output=True).returncode:
        (clone / "stone").unlink()
        clone.rmdir()  # No such attribute on this file system; the folder that is missing serves as well.
    try:
        got = _purge(runtime, "clone")
    finally:
        subprocess.run(["chattr", "-i", str(clone / "stone")], capture_output=True)
    assert isinstance(got, Err) and "clone" in got.detail
    assert runtime.ours() == Ok(())
    assert isinstance(runtime.purge("/etc", BASE), Err) and isinstance(runtime.purge("../..", BASE), Err)


def _purge(runtime: DockerRuntime, path: str) -> Any:
    end = time.monotonic() + 20
    while isinstance(got := runtime.purge(path, BASE), Pass):
        assert time.monotonic() < end
        time.sleep(0.05)
    return got


@pytest.mark.docker
def test_threads_do_not_share_a_line(runtime: DockerRuntime) -> None:
    from concurrent.futures import ThreadPoolExecutor

    jobs = [job("sh", "-c", f"exit {n}") for n in range(12)]
    with ThreadPoolExecutor(12) as pool:
        ended = list(pool.map(lambda j: run(runtime, j, within_s=60), jobs))
        assert [s.exit for s, _ in ended] == list(range(12))
        assert all(len(x.unwrap()) == 12 for x in pool.map(lambda _: runtime.ours(), range(24)))
        assert set(pool.map(lambda j: runtime.remove(j.name), jobs)) == {Ok(None)}


def test_the_sdk_is_not_loaded_before_it_is_used() -> None:
    code = "import sys, harness.adapters.docker; print('requests' in sys.modules, 'docker' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["False", "False"]


def test_stdin_is_refused_before_anything_is_asked(sock: Path) -> None:
    got = stub_runtime(sock).start(replace(JOB, stdin="text"))
    assert isinstance(got, Err) and got.failure == Failure.CONFIG_INVALID
