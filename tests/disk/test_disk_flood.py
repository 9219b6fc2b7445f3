"""A flood of output: memory stays bounded, the log within its cap, head and tail are kept."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from flood import KEEP_BYTES, LOOK_BYTES, play

MIB = 64
DOCKER_MIB = 36  # the engine keeps 30
IMAGE = os.environ.get("HARNESS_TEST_IMAGE", "harness-base:bookworm")
# Interpreter, libraries and some windows of a log; the flood itself is far more.
PEAK_BYTES = 48 << 20
DOCKER_PEAK_BYTES = 64 << 20


def cut(found: dict[str, Any], name: str) -> dict[str, Any]:
    manifest = json.loads((Path(found["bundle"]) / "manifest.json").read_text())
    return next(x for x in manifest["cut"] if x["name"] == name)


def test_a_process_that_floods_is_kept_by_head_and_tail(tmp_path: Path) -> None:
    found = play("process", tmp_path, MIB)
    assert found["exit"] == 0 and found["ends_well"] and found["tail_bytes"] <= LOOK_BYTES
    assert found["peak_bytes"] < PEAK_BYTES and 0 < found["shim_peak_bytes"] < PEAK_BYTES
    log = (Path(found["bundle"]) / "agent.log").read_bytes()
    assert len(log) <= KEEP_BYTES // 2
    assert b"first line\n" in log[:200] and log.endswith(b"last line\n")
    assert b" left out here]" in log and cut(found, "agent.log")["bytes"] <= KEEP_BYTES + 200
    assert found["log_bytes"] <= KEEP_BYTES + 200 and found["dropped"] > (MIB << 20) - 2 * KEEP_BYTES


@pytest.mark.docker
def test_a_container_that_floods_stays_within_the_engines_cap(tmp_path: Path) -> None:
    engine = subprocess.run(["docker", "version"], capture_output=True, timeout=30, check=False)
    if engine.returncode and not os.environ.get("HARNESS_REQUIRE_DOCKER"):
        pytest.skip("no container engine answers")
    found = play("docker", tmp_path, DOCKER_MIB, IMAGE)
    assert found["exit"] == 0 and found["ends_well"] and found["tail_bytes"] <= LOOK_BYTES
    assert found["peak_bytes"] < DOCKER_PEAK_BYTES
    assert (Path(found["bundle"]) / "build.log").read_bytes().endswith(b"last line\n")
