"""What every Agent adapter must do, whichever agent it speaks to: two pure functions that believe little."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.adapters.agents import AGENTS, contract
from harness.ports import Agent, Brief, Launch

ARG_LIMIT_BYTES = 131_072
BRIEF = Brief(
    run="worker-12.1-9",
    prompt="Fix the bug in issue 12.",
    workspace="/workspace",
    home="/home/agent",
    model_url="http://127.0.0.1:8100/v1",
    issue=12,
    round=2,
    model="some-model",
    command=("my-agent", "--model", "{model}"),
    env={"HARNESS_PLAY": "/plays/one.json", "EXTRA": "1", "HOME": "/elsewhere"},
)
REPORTS = (
    ("API Error: Rate limit reached", "rate_limited"),
    ("You've hit your limit · resets 11:33pm (UTC)", "rate_limited"),
    ("Please run /login", "auth"),
    ("prompt is too long: 214315 tokens > 200000 maximum", "context"),
)


@pytest.fixture(params=sorted(AGENTS))
def agent(request: pytest.FixtureRequest) -> Agent:
    return AGENTS[request.param]


def prompt_of(launch: Launch) -> str:
    """What the agent is told, by the way it is told."""
    return launch.stdin or launch.files[contract.PROMPT_FILE]


def test_it_is_known_by_its_name(agent: Agent) -> None:
    assert AGENTS[agent.name] is agent
    assert contract.QUESTION_FILE in agent.needs


def test_building_is_pure(agent: Agent) -> None:
    assert agent.build(BRIEF) == agent.build(BRIEF)
    assert BRIEF.env == {"HARNESS_PLAY": "/plays/one.json", "EXTRA": "1", "HOME": "/elsewhere"}


def test_the_prompt_goes_in_whole_and_never_as_an_argument(agent: Agent) -> None:
    """E2BIG: one argument or variable holds 131071 bytes."""
    launch = agent.build(replace(BRIEF, prompt="ü" * 200_000))
    assert prompt_of(launch).startswith("ü" * 200_000)
    for text in (*launch.argv, *(f"{k}={v}" for k, v in launch.env.items())):
        assert len(text.encode()) < ARG_LIMIT_BYTES and "\0" not in text


def test_home_and_its_files_are_the_run_s_own(agent: Agent) -> None:
    launch = agent.build(BRIEF)
    assert launch.env["HOME"] == BRIEF.home
    assert launch.env["EXTRA"] == "1"
    for name in (*launch.files, *agent.needs):
        path = PurePosixPath(name)
        assert not path.is_absolute() and ".." not in path.parts
    for name in agent.needs:
        assert launch.files[name] == "", "what an earlier run left would be read as of this one"


def test_a_question_has_a_place_that_the_agent_is_told(agent: Agent) -> None:
    launch = agent.build(BRIEF)
    path = f"{BRIEF.home}/{contract.QUESTION_FILE}"
    assert launch.env["HARNESS_QUESTION_FILE"] == path
    assert prompt_of(launch).count(path) == 1
    told = agent.build(replace(BRIEF, prompt=f"Ask in {path}, please."))
    assert prompt_of(told).count(path) == 1
    seen = agent.parse(b"", {contract.QUESTION_FILE: b"Which of the two?\x1b[31m\n"}, 0)
    assert (seen.status, seen.question) == ("question", "Which of the two?[31m")


def test_no_key_is_given_that_is_one(agent: Agent) -> None:
    words = json.dumps([agent.build(BRIEF).env, agent.build(BRIEF).files])
    assert "sk-" not in words and "ghp_" not in words


@pytest.mark.parametrize(("line", "status"), REPORTS)
@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_report_of_a_limit_is_no_success_whatever_the_exit(
    agent: Agent, line: str, status: str, exit_code: int
) -> None:
    seen = agent.parse(f"Working.\n{line}\n".encode(), {}, exit_code)
    assert seen.status != "done"
    if agent.name != "codex" or exit_code != 0:
        assert seen.status == status


@pytest.mark.parametrize("exit_code", [None, 143, -15, 137])
def test_a_run_that_was_ended_is_not_done(agent: Agent, exit_code: int | None) -> None:
    assert agent.parse(b"half", {}, exit_code).status == "interrupted"


NAMES = ("type", "item", "usage", "error", "message", "status", "question", "is_error")
KINDS = ("result", "tool", "turn.completed", "turn.failed", "item.completed", "done", "agent_message")
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(),
    st.text(max_size=9),
    st.sampled_from(KINDS),
    st.just([]),
    st.just({"a": 1}),
)
ROWS = st.lists(
    st.dictionaries(
        st.sampled_from(NAMES), VALUES | st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3)
    ),
    max_size=5,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    output=st.one_of(
        st.binary(max_size=300),
        st.lists(st.binary(max_size=40), max_size=5).map(b"\n".join),
        ROWS.map(lambda rows: "\n".join(json.dumps(row) for row in rows).encode()),
    ),
    left=st.dictionaries(
        st.sampled_from([contract.QUESTION_FILE, contract.RESULT_FILE]), st.binary(max_size=60)
    ),
    exit_code=st.one_of(st.none(), st.integers(-64, 255)),
)
def test_parsing_takes_anything(output: bytes, left: Mapping[str, bytes], exit_code: int | None) -> None:
    for agent in AGENTS.values():
        seen = agent.parse(output, left, exit_code)
        assert seen == agent.parse(output, left, exit_code)
        assert seen.status in contract.STATUSES
        assert len(seen.message) <= contract.MESSAGE_LIMIT and len(seen.question) <= contract.QUESTION_LIMIT
        assert seen.tokens_in >= 0 and seen.tokens_out >= 0
        if seen.status == "done":
            assert exit_code == 0


def test_a_line_of_10_mib_and_a_flood_do_not_hide_the_end(agent: Agent) -> None:
    long = json.dumps({"type": "message", "text": "x" * (10 << 20)}).encode()
    flood = b"\n[harness: 99 bytes dropped here]\n" + b'{"type":' * 100_000
    ends: dict[str, list[dict[str, object]]] = {
        "scripted": [{"type": "result", "status": "done", "message": "fine"}],
        "command": [{"type": "result", "result": "fine"}],
        "codex": [
            {"type": "item.completed", "item": {"type": "agent_message", "text": "fine"}},
            {"type": "turn.completed", "usage": {"input_tokens": 1}},
        ],
    }
    output = b"\n".join([long, flood, *(json.dumps(e).encode() for e in ends[agent.name])])
    seen = agent.parse(output, {}, 0)
    assert (seen.status, seen.message) == ("done", "fine")
