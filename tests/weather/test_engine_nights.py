"""A whole night while the container engine restarts under its workers; `benchmarks/engine_nights.py` plays all."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import engine_nights
import pytest
from demo_world import ROOT, Stage
from private_engine import PrivateEngine, reason_missing

IMAGE = "harness-worker:weather"


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_engine_that_restarts_costs_nobody_anything(tmp_path: Path) -> None:
    missing = reason_missing()
    if missing and not os.environ.get("HARNESS_REQUIRE_DOCKER"):
        pytest.skip(missing)
    subprocess.run(
        ["scripts/build-image.sh", "--name", IMAGE], cwd=ROOT, check=True, timeout=600,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    stage = Stage(tmp_path)
    with PrivateEngine() as engine:
        engine.load(IMAGE)
        try:
            engine_nights.check(engine_nights.night(stage, engine, IMAGE, "restart"))
        finally:
            stage.close()
