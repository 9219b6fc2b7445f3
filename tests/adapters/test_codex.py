"""The real Codex against a scripted model: HARNESS_CODEX=/path/of/codex. Collected only then."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.adapters.agents import contract
from harness.adapters.agents.codex import Codex
from harness.domain import AgentResult
from harness.ports import Brief
from tests.support.scripted_model import ScriptedModel, Step

BINARY = os.environ["HARNESS_CODEX"]
PLAYS = {
    "fix": [
        Step("I look.", shell="ls; echo key=$HARNESS_MODEL_KEY."),
        Step("I edit.", shell="echo one >made.txt"),
        Step("Made made.txt."),
        Step("Again.", shell="echo two >>made.txt"),
        Step("Second round."),
    ],
    "ask": [Step("Ask.", shell="echo Which one? >$HARNESS_QUESTION_FILE"), Step("I asked.")],
    "limit": [Step(fault=429)],
    "once": [Step("Through.", fault=429, times=1)],
    "overload": [Step(fault=529)],
    "login": [Step(fault=401, message="Incorrect API key provided")],
    "context": [Step(fault=400)],
    "cut": [Step("half", cut=True)],
    "loop": [*[Step("Again.", shell="echo same")] * 6, Step("Tired.")],
}


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(PLAYS) as server:
        yield server


class Stage:
    def __init__(self, folder: Path, model: ScriptedModel) -> None:
        self.workspace, self.home, self.url = folder / "ws", folder / "home", model.url
        self.workspace.mkdir()

    def run(self, play: str, **more: Any) -> AgentResult:
        brief = Brief(
            run="r1",
            prompt="Make made.txt.",
            workspace=str(self.workspace),
            home=str(self.home),
            model_url=f"{self.url}/{play}/v1",
            issue=12,
            model="gpt-5.5",
            command=(BINARY,),
        )
        launch = Codex().build(replace(brief, **more))
        for name, text in launch.files.items():
            (self.home / name).parent.mkdir(parents=True, exist_ok=True)
            (self.home / name).write_text(text)
        ended = subprocess.run(
            launch.argv,
            input=launch.stdin.encode(),
            env={"PATH": os.environ["PATH"], **launch.env},
            cwd=self.workspace,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=100,
            check=False,
        )
        files = {n: (self.home / n).read_bytes() for n in Codex.needs}
        return Codex().parse(ended.stdout, files, ended.returncode)


@pytest.fixture
def stage(tmp_path: Path, model: ScriptedModel) -> Stage:
    return Stage(tmp_path, model)


def test_it_works_and_resumes_without_ever_seeing_a_key(stage: Stage, model: ScriptedModel) -> None:
    first = stage.run("fix")
    assert (first.status, first.message, first.tokens_in) == ("done", "Made made.txt.", 3000)
    second = stage.run("fix", session=first.session_id, prompt="Validation failed. Fix it.")
    assert (second.status, second.session_id) == ("done", first.session_id)
    assert (stage.workspace / "made.txt").read_text() == "one\ntwo\n"
    assert {r.headers["authorization"] for r in model.requests} == {f"Bearer {contract.DUMMY_KEY}"}
    assert "key=." in str(model.requests[1].body) and contract.DUMMY_KEY not in str(model.requests[1].body)
    assert "Validation failed. Fix it." in str(model.requests[3].body)


def test_a_question_comes_out(stage: Stage) -> None:
    seen = stage.run("ask")
    assert (seen.status, seen.question) == ("question", "Which one?")


@pytest.mark.parametrize(
    ("play", "status"),
    [
        ("limit", "rate_limited"),
        ("once", "done"),
        ("overload", "overloaded"),
        ("login", "auth"),
        ("context", "context"),
        ("cut", "connection"),
        ("loop", "looped"),
    ],
)
def test_what_goes_wrong_is_told_apart(stage: Stage, play: str, status: str) -> None:
    began = time.monotonic()
    assert stage.run(play).status == status
    assert time.monotonic() - began < 30


def test_a_gateway_that_is_not_there_is_a_connection_at_once(stage: Stage) -> None:
    began = time.monotonic()
    assert stage.run("x", model_url="http://127.0.0.1:9/v1").status == "connection"
    assert time.monotonic() - began < 15
