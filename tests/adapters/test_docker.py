"""The Docker adapter on a real engine: what a job can reach, what is kept, and what is left alone.

What every runtime must do is in the conformance suite; an engine that misbehaves is in test_docker_errors.py,
one that hangs or restarts in test_engine_faults.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.adapters.docker import DockerRuntime
from harness.core.result import Err, Ok, Pass
from harness.domain import Job, Limits, Mount, Status
from harness.failures import Failure

BASE = os.environ.get("HARNESS_TEST_IMAGE", "harness-base:bookworm")


class WallClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


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
    """Nothing is in the environment, the arguments or the labels but what the job says."""
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
    """Real decoys: no label of ours, another instance, another repository."""
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
    """The main process, somebody's kill, a child."""
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
    """Also of a log of megabytes, of which the end is asked for."""
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
    """What root left in a clone goes, and nothing else does."""
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
