"""Codex, for real, in a hardened container without a network: one issue from claim to release through the model
proxy. The model is a script; the key is the director's and nowhere else."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from demo_world import sweep
from scripted_model import Request, ScriptedModel, Step

from harness.core.result import Ok
from harness.demo.result import result
from harness.demo.run import Demo

IMAGE = "harness-worker:codex"
KEY = "sk-proj-" + "e2e" * 12
WORK = """python3 - <<'P'
from pathlib import Path
p = Path("tally/words.py")
p.write_text(p.read_text().replace("text.split()", "text.lower().split()"))
P
cat > tests/test_case.py <<'P'
import unittest
from tally import count

class CaseTest(unittest.TestCase):
    def test_case(self):
        self.assertEqual(count("A a"), {"a": 2})
P
python3 -m unittest discover --quiet --start-directory . 2>&1 | tail -3
"""
# Built from halves, so that the search itself does not hold what it looks for.
SEARCH = """half=sk-proj-; rest=e2ee2ee2e
if cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -aq "$half$rest"; then echo KEY"" FOUND; fi
if grep -rasq "$half$rest" /run/harness /in /audit "$HOME" /workspace /tmp; then echo KEY"" FOUND; fi
python3 -c "import socket; socket.create_connection(('192.0.2.1', 80), 2)" 2>&1 | tail -1
grep -E 'CapEff|NoNewPrivs' /proc/self/status
echo SEARCHED
"""


@dataclass
class Night:
    folder: Path
    document: dict[str, Any]
    requests: list[Request]
    inspected: list[dict[str, Any]] = field(default_factory=list)


def _image_there() -> str:
    done = subprocess.run(["docker", "image", "inspect", IMAGE], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip()


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    missing = _image_there()
    if missing:
        if os.environ.get("HARNESS_REQUIRE_DOCKER"):
            pytest.fail(f"{IMAGE} is needed: scripts/build-image.sh --agent codex ({missing})")
        pytest.skip(f"{IMAGE} is not there: scripts/build-image.sh --agent codex")
    folder = tmp_path_factory.mktemp("codex")
    plays = {"fix": [Step(shell=SEARCH), Step(shell=WORK), Step("Words are compared in lower case.")]}
    os.environ["E2E_MODEL_KEY"] = KEY
    with ScriptedModel(plays) as model:
        settings = {
            "agent": {"kind": "codex", "model": "gpt-5.5", "command": []},
            "containers": {"memory": "1GiB"},
            "budget": {
                "github": {"min_seconds_between_writes": 0.0, "cooldown_seconds": 1.0},
                "model": {"upstream": f"{model.url}/fix/v1", "auth": "bearer", "key_env": "E2E_MODEL_KEY"},
            },
        }
        issue = ("Count words regardless of case", "`count('A a')` gives two entries. It should give one.")
        demo = Demo(folder, "docker", IMAGE, issues=(issue,), settings=settings)
        seen = Night(folder, {}, model.requests)
        try:
            demo.open()
            running = demo.run()
            try:
                seen.document = result(demo, running, 0.0)
                jobs = running.world.runtime.ours() if running.world.runtime else None
                assert isinstance(jobs, Ok) and not jobs.value
            finally:
                running.close()
            yield seen
        finally:
            demo.close()
            sweep(folder, "docker")
            del os.environ["E2E_MODEL_KEY"]


pytestmark = pytest.mark.docker


def test_the_issue_is_released(night: Night) -> None:
    assert night.document["ok"], json.dumps(night.document, indent=1)
    assert night.document["release"]["landed"] == [1]
    assert [p["state"] for p in night.document["pulls"]] == ["merged"]


def test_the_key_reached_the_model_and_nothing_else(night: Night) -> None:
    asked = [r for r in night.requests if r.api == "responses"]
    assert len(asked) >= 3
    assert {r.headers.get("authorization") for r in asked} == {f"Bearer {KEY}"}
    said = json.dumps([r.body for r in asked])
    assert "SEARCHED" in said and "KEY FOUND" not in said
    assert KEY not in said


def test_inside_there_was_no_network_and_no_right(night: Night) -> None:
    said = json.dumps([r.body for r in night.requests])
    assert "Network is unreachable" in said
    assert re.search(r"CapEff:\W*t0{16}", said) and re.search(r"NoNewPrivs:\W*t1", said)


def test_what_it_cost_is_in_the_bundle_and_the_key_is_not(night: Night) -> None:
    (bundle,) = (p for p in (night.folder / "audits").iterdir() if p.is_dir() and (p / "meta.json").is_file())
    cost = json.loads((bundle / "meta.json").read_text())["cost"]
    assert cost["requests"] >= 3 and cost["tokens_in"] >= 3000
    assert (bundle / "ledger").is_dir()
    for path in night.folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert KEY.encode() not in path.read_bytes(), path
