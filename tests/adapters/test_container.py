"""What a hardened container is, and how the engine's answers are read: no engine needed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.adapters import container
from harness.domain import Job, Limits, Mount

JOB = Job("h-acme-12-1-i1", ("harness", "worker"), image="sha256:1", env={"HOME": "/home/w"})
ENGINE = container.Engine("id", "life", cpus=2.0)


def places(tmp_path: Path, host: Path | None = None) -> container.Places:
    data = tmp_path / "data"
    data.mkdir(exist_ok=True)
    return container.Places(data, host or data, Path("/var/run/docker.sock"))


def specify(job: Job, where: container.Places, **more: Any) -> dict[str, Any]:
    labels = container.labels_of(job, "i", "acme/widget")
    return container.specify(job, where, user="10001:10001", engine=ENGINE, labels=labels, **more)


def test_every_container_gets_the_whole_hardening(tmp_path: Path) -> None:
    body = specify(JOB, places(tmp_path))
    host = body["HostConfig"]
    assert body["User"] == "10001:10001"
    assert (host["CapDrop"], host["CapAdd"]) == (["ALL"], [])
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["ReadonlyRootfs"] is True and host["Privileged"] is False
    assert host["Init"] is True, "without init zombies pile up and TERM is not heard"
    assert host["PidsLimit"] == 512
    assert host["Memory"] == host["MemorySwap"] == 4 << 30
    assert host["NanoCpus"] == 2_000_000_000
    assert host["NetworkMode"] == "none"
    assert host["AutoRemove"] is False and host["RestartPolicy"] == {"Name": "no"}
    assert host["LogConfig"]["Type"] == "local" and host["LogConfig"]["Config"]["max-size"]
    assert "nosuid" in host["Tmpfs"]["/tmp"] and "nodev" in host["Tmpfs"]["/tmp"]
    assert {u["Name"]: u["Hard"] for u in host["Ulimits"]} == {"nofile": 4096, "core": 0}
    assert host["Devices"] == [] and host["Mounts"] == [] and host["IpcMode"] == "private"


def test_a_job_is_given_no_more_cpus_than_there_are(tmp_path: Path) -> None:
    job = replace(JOB, limits=Limits(cpus=64))
    assert specify(job, places(tmp_path))["HostConfig"]["NanoCpus"] == 2_000_000_000


def test_labels_say_whose_it_is_and_a_job_cannot_say_otherwise() -> None:
    job = replace(JOB, labels={"attempt": "12.1", "epoch": "4", container.INSTANCE: "somebody", "x": "y"})
    labels = container.labels_of(job, "mine", "acme/widget")
    assert labels[container.INSTANCE] == "mine"
    assert (labels[container.ATTEMPT], labels[container.EPOCH], labels["x"]) == ("12.1", "4", "y")
    assert container.is_ours(labels, "mine", "acme/widget")
    assert not container.is_ours(labels, "mine", "acme/gadget")
    assert not container.is_ours(labels, "other", "acme/widget")
    assert not container.is_ours(None, "mine", "acme/widget")


def test_the_fingerprint_is_of_the_whole_job() -> None:
    assert container.fingerprint(JOB) == container.fingerprint(replace(JOB))
    others = [
        replace(JOB, argv=("x",)),
        replace(JOB, image="sha256:2"),
        replace(JOB, mounts=(Mount("a", "/a"),)),
        replace(JOB, limits=Limits(pids=1)),
        replace(JOB, env={}),
    ]
    assert len({container.fingerprint(x) for x in [JOB, *others]}) == 6


@pytest.mark.parametrize(
    "wrong,word",
    [
        ({"name": ""}, "name"),
        ({"name": "a/b"}, "name"),
        ({"name": "-rm"}, "name"),
        ({"argv": ()}, "argv"),
        ({"argv": ("",)}, "argv"),
        ({"image": ""}, "containers.image"),
        ({"stdin": "text"}, "standard input"),
        ({"network": "host"}, "network"),
        ({"network": "bridge"}, "prepare"),
        ({"network": "bridge", "role": "gate"}, "prepare"),
        ({"workdir": "x"}, "workdir"),
        ({"env": {"A=B": "c"}}, "environment"),
        ({"env": {"A": "c\0d"}}, "environment"),
        ({"limits": Limits(pids=0)}, "limits"),
        ({"limits": Limits(memory_bytes=0)}, "limits"),
    ],
)
def test_what_cannot_work_is_told_in_one_line(wrong: dict[str, Any], word: str) -> None:
    said = container.find_fault(replace(JOB, **wrong))
    assert word in said and "\n" not in said


def test_only_prepare_may_have_network(tmp_path: Path) -> None:
    job = replace(JOB, network="bridge", role="prepare")
    assert container.find_fault(job) == ""
    body = specify(job, places(tmp_path))
    assert body["HostConfig"]["NetworkMode"] == "bridge"


def test_mounts_are_translated_to_the_engines_paths(tmp_path: Path) -> None:
    where = places(tmp_path, Path("/srv/harness"))
    assert container.translate(Mount("a/../b/c", "/workspace", "rw"), where) == "/srv/harness/b/c"
    inside = str(where.data.resolve() / "b")
    assert container.translate(Mount(inside, "/x"), where) == "/srv/harness/b"
    assert container.translate(Mount("/usr/share", "/x"), where) == "/usr/share"


@pytest.mark.parametrize(
    "mount",
    [
        Mount("../outside", "/x"),
        Mount("a/../../etc", "/x"),
        Mount("link", "/x"),
        Mount("link/deeper", "/x"),
        Mount("/var/run/docker.sock", "/x"),
        Mount("/var/run", "/x"),
        Mount("/run", "/x"),
        Mount("/", "/x"),
        Mount("a", "/"),
        Mount("a", "relative"),
        Mount("a", "/a/../etc"),
        Mount("a", "/proc/self"),
        Mount("a", "/dev"),
        Mount("a", "/x", "rwx"),
    ],
)
def test_mounts_that_may_not_be_are_refused(tmp_path: Path, mount: Mount) -> None:
    where = places(tmp_path)
    (where.data / "link").symlink_to("/etc")
    with pytest.raises(ValueError) as said:
        container.translate(mount, where)
    assert "\n" not in str(said.value)


@pytest.mark.parametrize(
    "text,seconds",
    [
        ("0001-01-01T00:00:00Z", None),
        ("0001-01-01T00:00:00+00:00", None),
        ("1970-01-01T00:00:00Z", None),
        ("", None),
        (None, None),
        ("yesterday", None),
        ("2024-05-01T12:00:00Z", 1714564800.0),
        ("2024-05-01T12:00:00.5Z", 1714564800.5),
        ("2024-05-01T12:00:00.123456789Z", 1714564800.123456789),
        ("2024-05-01T14:00:00.000000001+02:00", 1714564800.0),
    ],
)
def test_times_are_read_one_way(
    text: str | None, seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    got = container.parse_time(text)
    assert got == (None if seconds is None else pytest.approx(seconds, abs=1e-6))


ZERO = "0001-01-01T00:00:00Z"
BEGAN = "2024-05-01T12:00:00.123456789Z"


@pytest.mark.parametrize(
    "state,phase,exit,detail",
    [
        ({"Status": "created", "ExitCode": 0}, "PENDING", None, ""),
        ({"Status": "created", "ExitCode": 127, "Error": "no such file"}, "REJECTED", None, "no such file"),
        ({"Status": "running", "ExitCode": 0}, "RUNNING", None, ""),
        ({"Status": "paused", "ExitCode": 0}, "RUNNING", None, "paused"),
        ({"Status": "restarting", "ExitCode": 1}, "RUNNING", None, "restarting"),
        ({"Status": "exited", "ExitCode": 0}, "EXITED", 0, ""),
        ({"Status": "exited", "ExitCode": 137}, "EXITED", 137, ""),
        ({"Status": "dead", "ExitCode": 1}, "EXITED", 1, "dead"),
        ({"Status": "removing", "ExitCode": 137}, "LOST", None, "removing"),
        ({"Status": "new-word", "ExitCode": 0}, "LOST", None, ""),
        ({}, "LOST", None, ""),
    ],
)
def test_states_are_read(state: dict[str, Any], phase: str, exit: int | None, detail: str) -> None:
    state = {"StartedAt": BEGAN, "FinishedAt": ZERO, "OOMKilled": False, **state}
    got = container.read_status({"Name": "/h-1", "Image": "sha256:1", "State": state}, "e/1")
    assert (got.name, got.phase, got.exit, got.detail, got.engine) == ("h-1", phase, exit, detail, "e/1")
    assert got.finished_at is None and got.started_at is not None


def test_the_memory_flag_is_read_beside_the_exit_code() -> None:
    """A child was killed, the main process exits 0."""
    state = {"Status": "exited", "ExitCode": 0, "OOMKilled": True, "FinishedAt": BEGAN}
    got = container.read_status({"State": state}, "")
    assert (got.exit, got.oom) == (0, True) and got.finished_at is not None


def test_an_engine_without_seccomp_or_with_remapped_ids_says_so() -> None:
    plain = container.read_engine(
        {"ID": "AB:CD", "SecurityOptions": [], "Plugins": {"Log": ["json-file"]}}, "1"
    )
    assert (plain.id, plain.seccomp, plain.log_driver, plain.identity) == (
        "abcd",
        "off",
        "json-file",
        "abcd/1",
    )
    options = ["name=seccomp,profile=default", "name=rootless", "name=userns"]
    rich = container.read_engine({"ID": "x", "SecurityOptions": options}, "1")
    assert (rich.seccomp, rich.rootless, rich.remaps, rich.log_driver) == ("default", True, True, "local")


def frame(stream: int, data: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


def test_a_character_split_over_frames_stays_whole() -> None:
    """Each stream has a decoder of its own."""
    frames = container.Demultiplexer()
    chunks = [frame(1, b"caf\xc3"), frame(2, b"err\n"), frame(1, b"\xa9\n"), frame(1, b"\xff\xfe")]
    out = b"".join(frames.feed(x) for x in chunks) + frames.finish()
    assert sorted(out.split(b"\n")) == sorted([b"err", "café".encode(), b"\xff\xfe"])
    assert "café" in out.decode(errors="replace")


parts = st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=40)), max_size=20)


@given(parts, st.integers(1, 50))
def test_no_byte_of_a_stream_is_lost_or_moved(given_parts: list[tuple[int, bytes]], step: int) -> None:
    raw = b"".join(frame(s, d) for s, d in given_parts)
    frames = container.Demultiplexer()
    out = b"".join(frames.feed(raw[i : i + step]) for i in range(0, len(raw), step)) + frames.finish()
    assert sorted(out) == sorted(b"".join(d for _, d in given_parts))
    if len({s for s, _ in given_parts}) == 1:
        assert out == b"".join(d for _, d in given_parts)


def test_a_line_without_end_is_not_held_back_for_ever() -> None:
    frames = container.Demultiplexer()
    got = sum(len(frames.feed(frame(1, b"x" * 16384))) for _ in range(64))
    assert got > 900_000
