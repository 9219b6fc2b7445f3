"""What a worker's container is allowed and can reach, looked at while it works."""

from __future__ import annotations

import json

import pytest
from demo_world import instance
from scenes import Played, Seen


@pytest.fixture
def workers(docker_demo: Played) -> list[Seen]:
    """Most of the demo's six workers live long enough to be looked at."""
    assert len(docker_demo.workers) >= 3
    return docker_demo.workers


def test_it_has_no_right_that_it_does_not_need(workers: list[Seen]) -> None:
    for host in (w.attrs["HostConfig"] for w in workers):
        assert host["CapDrop"] == ["ALL"] and not host["CapAdd"] and not host["Privileged"]
        assert host["SecurityOpt"] == ["no-new-privileges"]
        assert host["NetworkMode"] == "none" and host["ReadonlyRootfs"] and host["Init"]
        assert not host["Devices"] and host["PidMode"] == "" and host["IpcMode"] == "private"
        assert not host["AutoRemove"] and host["RestartPolicy"]["Name"] == "no"
    for w in workers:
        uid, gid = (int(x) for x in w.attrs["Config"]["User"].split(":"))
        assert uid > 0 and gid > 0


def test_it_is_limited(workers: list[Seen]) -> None:
    for host in (w.attrs["HostConfig"] for w in workers):
        assert host["Memory"] == host["MemorySwap"] == 512 << 20
        assert host["NanoCpus"] == 1_000_000_000
        assert 0 < host["PidsLimit"] <= 512
        assert "size=" in host["Tmpfs"]["/tmp"] and "nosuid" in host["Tmpfs"]["/tmp"]


def test_it_bears_our_labels_and_a_pinned_image(docker_demo: Played, workers: list[Seen]) -> None:
    for w in workers:
        labels = w.attrs["Config"]["Labels"]
        assert labels["harness.instance"] == instance(docker_demo.folder)[:8]
        assert labels["harness.repo"] == "acme/tally"
        assert labels["harness.role"] == "worker"
        assert labels["harness.attempt"].partition(".")[0] in "12345"
        assert w.attrs["Config"]["Image"].startswith("sha256:")


def test_it_can_write_only_its_own_folders(docker_demo: Played, workers: list[Seen]) -> None:
    data = str(docker_demo.folder / "data")
    for w in workers:
        attempt = w.attrs["Config"]["Labels"]["harness.attempt"]
        mounts = {m["Destination"]: m for m in w.attrs["Mounts"]}
        writable = {d for d, m in mounts.items() if m["RW"]}
        assert writable == {"/workspace", "/home/agent", "/audit", "/run/harness"}
        for target in ("/workspace", "/home/agent", "/audit"):
            assert mounts[target]["Source"].startswith(f"{data}/attempts/{attempt}/")
        assert not any("docker.sock" in m["Source"] for m in w.attrs["Mounts"])


def test_no_secret_is_within_its_reach(docker_demo: Played, workers: list[Seen]) -> None:
    state = json.loads((docker_demo.folder / "demo.json").read_text())
    raw = (docker_demo.folder / "data" / "secret").read_bytes()
    secrets = [state["bot"].encode(), state["ada"].encode(), raw, raw.hex().encode()]
    for w in workers:
        texts = {**w.files, "inspect": json.dumps(w.attrs).encode()}
        texts |= {f"process {i}": p for i, p in enumerate(w.processes)}
        assert any(b"HARNESS_ATTEMPT" in p for p in w.processes), "no environment was seen"
        assert "/workspace/tally/words.py" in texts and "/in/brief.json" in texts
        found = [name for name, text in texts.items() for s in secrets if s in text]
        assert found == []
