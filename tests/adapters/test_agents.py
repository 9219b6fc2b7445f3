"""Agents one by one: what they print, as seen of the real ones, and what that amounts to."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.adapters.agents import contract, symptoms
from harness.adapters.agents.codex import Codex
from harness.adapters.agents.command import Command
from harness.adapters.agents.loops import looped
from harness.adapters.agents.scripted import PLAYER, Scripted
from harness.adapters.process import ProcessRuntime
from harness.domain import AgentResult, Job, Status
from harness.ports import Agent, Brief

BRIEF = Brief(
    run="r1",
    prompt="Do it.",
    workspace="/workspace",
    home="/h/",
    model_url="http://127.0.0.1:1/v1",
    issue=12,
    round=3,
)


def rows(*values: Mapping[str, Any]) -> bytes:
    return "".join(json.dumps(v) + "\n" for v in values).encode()


# ---------------------------------------------------------------- loops


SAME = ("make", "error")


@pytest.mark.parametrize(
    ("events", "limit", "expected"),
    [
        ([SAME] * 6, 4, True),
        ([SAME] * 4, 4, True),
        ([SAME] * 3, 4, False),
        ([("sleep 60", f"{n} of 9") for n in range(6)], 4, False),
        ([("a", "1"), ("b", "2")] * 4, 4, True),
        ([("a", "1"), ("b", "2")] * 3, 4, False),
        ([("a", "1"), ("b", "2"), ("c", "3")] * 4, 4, True),
        ([SAME] * 6 + [("vi x", "")], 4, False),
        ([("vi x", "")] + [SAME] * 4, 4, True),
        ([], 4, False),
        ([SAME] * 2, 2, True),
        ([SAME] * 9, 1, False),
    ],
)
def test_going_round_in_circles(events: list[tuple[str, str]], limit: int, expected: bool) -> None:
    assert looped(events, limit) is expected


# ---------------------------------------------------------------- symptoms


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("API Error: Rate limit reached", "rate_limited"),
        ('API Error: 429 {"type":"error"}', "rate_limited"),
        ("You've hit your usage limit. Try again later.", "rate_limited"),
        ("Claude AI usage limit reached|1795826706", "rate_limited"),
        ("Error: Rate limit exceeded", "rate_limited"),
        ("litellm.RateLimitError: slow down", "rate_limited"),
        ("exceeded retry limit, last status: 429 Too Many Requests", "rate_limited"),
        ("Invalid API key · Please run /login", "auth"),
        ("Please run /login", "auth"),
        ("API Error: 401 {}", "auth"),
        ("prompt is too long: 5 tokens > 4 maximum", "context"),
        ("Prompt is too long", "context"),
        ("Credit balance is too low", "quota"),
        ("API Error: 529 Overloaded", "overloaded"),
        ("API Error: Unable to connect (ConnectionRefused)", "connection"),
        ("Rate limit reached messages are now translated.", ""),
        ("I added a rate limit of 5 requests.", ""),
        ("The rate limit exceeded error is handled.", ""),
        ("Not logged in users are sent to /login now", ""),
        ("Invalid API key errors have a test.", ""),
        ("Connection refused is retried.", ""),
        ("Done: please run /login.sh to see it.", ""),
        ("", ""),
    ],
)
def test_only_a_line_that_begins_like_a_report_speaks_against_exit_0(line: str, status: str) -> None:
    assert symptoms.recognise_report(f"I did this.\n\n{line}\n")[0] == status


def test_a_report_long_ago_is_history() -> None:
    assert symptoms.recognise_report("Error: Rate limit reached\nretrying\nok\nmore\nall done")[0] == ""


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Please try again in 2s.", 2.0),
        ("retry-after: 3600", 3600.0),
        ('{"retry_after": 1.5}', 1.5),
        ("Try again in 20 minutes", 1200.0),
        ("retry in 250ms", 0.25),
        ("resets in 3 hours", 10_800.0),
        ("resets 11:33pm", None),
        ("nothing", None),
    ],
)
def test_how_long_to_wait(text: str, seconds: float | None) -> None:
    assert symptoms.retry_after_s(text) == seconds


# ---------------------------------------------------------------- any command


def parse(
    agent: Agent, output: bytes = b"", exit_code: int | None = 0, told: Any = None, asked: str = ""
) -> AgentResult:
    files = {contract.QUESTION_FILE: asked.encode()}
    if told is not None:
        files[contract.RESULT_FILE] = told if isinstance(told, bytes) else json.dumps(told).encode()
    return agent.parse(output, files, exit_code)


def test_placeholders_are_filled_once() -> None:
    template = (
        "a",
        "--in={prompt_file}",
        "{session_dir}",
        "{model}@{model_url}",
        "{issue}.{round}",
        "{x} {{}}",
    )
    launch = Command().build(replace(BRIEF, command=template, model="{issue}"))
    assert launch.argv == (
        "a",
        "--in=/h/.harness/prompt.md",
        "/h/.harness/session",
        "{issue}@http://127.0.0.1:1/v1",
        "12.3",
        "{x} {{}}",
    )
    assert launch.stdin == ""
    assert launch.files[contract.PROMPT_FILE].startswith("Do it.\n")


def test_without_a_prompt_file_the_prompt_is_standard_input() -> None:
    launch = Command().build(
        replace(BRIEF, command=("a",), env={"HARNESS_ATTEMPT": "12.1", "HARNESS_ROUND": "9"})
    )
    assert launch.stdin.startswith("Do it.\n")
    assert launch.env["HARNESS_ATTEMPT"] == "12.1"
    assert launch.env["HARNESS_ROUND"] == "3"
    assert launch.env["HARNESS_RESULT_FILE"] == "/h/.harness/result.json"


@pytest.mark.parametrize(
    ("exit_code", "status"),
    [
        (0, "done"),
        (20, "rate_limited"),
        (21, "overloaded"),
        (22, "auth"),
        (23, "context"),
        (24, "connection"),
        (1, "error"),
        (99, "error"),
        (143, "interrupted"),
        (None, "interrupted"),
    ],
)
def test_exit_codes_of_the_contract(exit_code: int | None, status: str) -> None:
    assert parse(Command(), b"some words\n", exit_code).status == status


def test_the_result_file_is_the_contract_in_full() -> None:
    told = {
        "status": "rate_limited", "message": "slow", "tokens_in": 10, "tokens_out": 2.0, "cost_usd": 0.5,
        "session_id": "s1", "retry_after": 30,
    }  # fmt: skip
    assert parse(Command(), b"whatever", 0, told) == AgentResult(
        "rate_limited", "slow", session_id="s1", tokens_in=10, tokens_out=2, cost_usd=0.5, retry_after_s=30.0
    )


@pytest.mark.parametrize("told", [b"", b"[", b"[1]", b"null", b"\xff"])
def test_a_result_file_that_is_none_is_passed_over(told: bytes) -> None:
    assert parse(Command(), b"all good\n", 0, told) == AgentResult("done", "all good")


@pytest.mark.parametrize(
    "told",
    [{"status": "wonderful"}, {"tokens_in": "many", "cost_usd": -1, "status": "error"}, {"status": "error"}],
)
def test_a_result_file_with_strange_values_is_an_error_without_numbers(told: dict[str, Any]) -> None:
    seen = parse(Command(), b"", 0, told)
    assert (seen.status, seen.tokens_in, seen.cost_usd) == ("error", 0, None)


def test_success_in_a_result_file_is_not_believed_of_a_run_that_failed() -> None:
    assert parse(Command(), b"", 1, {"status": "done"}).status == "error"
    assert parse(Command(), b"", None, {"status": "done"}).status == "interrupted"


def test_a_question_by_file_or_by_result() -> None:
    assert parse(Command(), asked="Which?").question == "Which?"
    seen = parse(Command(), told={"question": "Why?", "message": "stuck"})
    assert (seen.status, seen.question, seen.message) == ("question", "Why?", "stuck")
    assert parse(Command(), exit_code=20, asked="Which?").status == "rate_limited"


def test_exit_0_and_success_beside_an_error_is_a_limit() -> None:
    line = {
        "type": "result",
        "subtype": "success",
        "is_error": True,
        "result": "API Error: Rate limit reached",
    }
    assert parse(Command(), rows(line)).status == "rate_limited"
    assert parse(Scripted(), rows(line)).status == "rate_limited"
    vague = {"type": "result", "subtype": "success", "is_error": True, "result": "API Error: strange"}
    assert parse(Command(), rows(vague)).status == "error"


def test_the_message_of_a_limit_is_kept_for_people_and_its_wait_for_us() -> None:
    seen = parse(Command(), b"Error: Rate limit reached for x. Please try again in 2s.\n")
    assert (seen.status, seen.retry_after_s) == ("rate_limited", 2.0)
    assert seen.message == "Error: Rate limit reached for x. Please try again in 2s."


# ---------------------------------------------------------------- the scripted agent, played


class Now:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class Stage:
    """A workspace, a HOME and the process runtime: everything between an adapter and its program."""

    def __init__(self, folder: Path) -> None:
        self.workspace, self.home, self.plays = folder / "ws", folder / "home", folder / "play.json"
        self.workspace.mkdir()
        self.runtime = ProcessRuntime(folder / "runs", data=folder, clock=Now())
        self.count = 0

    def brief(self, **more: Any) -> Brief:
        self.count += 1
        return replace(
            BRIEF, run=f"r{self.count}", workspace=str(self.workspace), home=str(self.home), round=1,
            env={"HARNESS_PLAY": str(self.plays)}, **more,
        )  # fmt: skip

    def run(self, agent: Agent, brief: Brief) -> tuple[AgentResult, Status]:
        launch = agent.build(brief)
        for name, text in launch.files.items():
            (self.home / name).parent.mkdir(parents=True, exist_ok=True)
            (self.home / name).write_text(text)
        job = Job(brief.run, launch.argv, env=dict(launch.env), stdin=launch.stdin, workdir=brief.workspace)
        self.runtime.start(replace(job, workdir=str(self.workspace))).unwrap()
        end = time.monotonic() + 30
        while (seen := self.runtime.status(brief.run).unwrap()) is None or seen.alive:
            assert time.monotonic() < end
            time.sleep(0.02)
        files = {n: (self.home / n).read_bytes() for n in agent.needs if (self.home / n).exists()}
        return agent.parse(self.runtime.log(brief.run, 1 << 26).unwrap(), files, seen.exit), seen

    def play(self, *rounds: dict[str, Any], **brief: Any) -> tuple[AgentResult, Status]:
        self.plays.write_text(json.dumps({"issues": {"12": rounds}}))
        return self.run(Scripted(), replace(self.brief(), **brief))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_a_round_writes_appends_deletes_and_says(stage: Stage) -> None:
    (stage.workspace / "old.txt").write_text("x")
    part = {
        "say": "Fixed.",
        "write": {"src/a.py": "a = 1\n"},
        "append": {"src/a.py": "b = 2\n"},
        "delete": ["old.txt"],
        "tokens": [100, 20],
        "cost_usd": 0.25,
        "expect": ["Do it."],
    }
    seen, _ = stage.play(part)
    assert seen == AgentResult(
        "done", "Fixed.", session_id="play-12", tokens_in=100, tokens_out=20, cost_usd=0.25
    )
    assert (stage.workspace / "src/a.py").read_text() == "a = 1\nb = 2\n"
    assert not (stage.workspace / "old.txt").exists()


def test_rounds_follow_and_the_last_repeats(stage: Stage) -> None:
    said = [stage.play({"say": "one"}, {"say": "two"}, round=n)[0].message for n in (1, 2, 3)]
    assert said == ["one", "two", "two"]


@pytest.mark.parametrize("name", ["../out.txt", "/etc/nope", ".", "link/x"])
def test_nothing_is_written_outside(stage: Stage, name: str) -> None:
    (stage.workspace / "link").symlink_to(stage.home.parent)
    seen, status = stage.play({"write": {name: "x"}})
    assert (seen.status, status.exit) == ("error", 2)
    assert "outside the folder" in seen.message
    assert not (stage.home.parent / "out.txt").exists() and not (stage.home.parent / "x").exists()


@pytest.mark.parametrize(
    ("part", "status"),
    [
        ({"question": "Which of the two?"}, "question"),
        ({"status": "rate_limited", "retry_after_s": 60}, "rate_limited"),
        ({"silent": True, "raw_output": "API Error: Rate limit reached"}, "rate_limited"),
        ({"silent": True, "raw_output": "prompt is too long: 9 tokens > 8", "exit": 1}, "context"),
        (
            {"silent": True, "raw_output": "prompt is too long: 9 tokens > 8", "write": {"a": "1"}},
            "context",
        ),
        ({"silent": True, "exit": 1, "raw_output": "401 Unauthorized"}, "auth"),
        ({"events": [["make", "no"]] * 6}, "looped"),
        ({"events": [["sleep 60", str(n)] for n in range(6)]}, "done"),
        ({"exit": 3, "say": "I failed"}, "error"),
        ({"silent": True}, "done"),
        ({"expect": ["not in the prompt"]}, "error"),
    ],
)
def test_what_a_round_amounts_to(stage: Stage, part: dict[str, Any], status: str) -> None:
    seen, _ = stage.play(part)
    assert seen.status == status
    if status == "question":
        assert seen.question == "Which of the two?"
    if part.get("retry_after_s"):
        assert seen.retry_after_s == 60


def test_a_play_that_is_none_says_so(stage: Stage) -> None:
    stage.plays.write_text("[")
    seen, _ = stage.run(Scripted(), stage.brief())
    assert seen.status == "error" and "no play to read" in seen.message
    stage.plays.write_text('{"issues": {"7": [{}]}}')
    seen, _ = stage.run(Scripted(), stage.brief())
    assert seen.status == "error" and "no rounds for issue 12" in seen.message


def test_spam_and_a_child_in_the_background_do_not_hide_the_result(stage: Stage) -> None:
    began = time.monotonic()
    seen, status = stage.play({"spam_bytes": 11 << 20, "background": True, "say": "through"})
    assert (seen.status, seen.message) == ("done", "through")
    assert status.output_bytes > 11 << 20
    assert "1 processes were left" in status.detail
    assert time.monotonic() - began < 10


def test_any_command_gets_the_whole_prompt_and_the_files(stage: Stage) -> None:
    program = """
import json, os, sys
text = sys.stdin.read()
assert text == open(os.environ["HARNESS_PROMPT_FILE"]).read()
with open(os.environ["HARNESS_RESULT_FILE"], "w") as f:
    json.dump({"message": str(len(text)), "tokens_in": 7}, f)
open(os.environ["HARNESS_SESSION_DIR"] + "/log", "w").close()
"""
    seen, _ = stage.run(
        Command(), replace(stage.brief(), prompt="p" * 300_000, command=(sys.executable, "-c", program))
    )
    assert seen.status == "done" and int(seen.message) > 300_000 and seen.tokens_in == 7
    assert (stage.home / ".harness/session/log").exists()


def test_the_player_is_stand_alone(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"issues": {"*": [{"say": "hi"}]}}')
    done = subprocess.run(
        [sys.executable, "-I", PLAYER, str(tmp_path / "p.json")],
        input=b"prompt",
        capture_output=True,
        env={},
        check=True,
    )
    assert [json.loads(line)["type"] for line in done.stdout.splitlines()] == ["init", "message", "result"]


# ---------------------------------------------------------------- Codex


def test_codex_is_started_with_exactly_the_safe_flags() -> None:
    launch = Codex().build(replace(BRIEF, model="gpt-x"))
    settings = [
        "analytics.enabled=false",
        "check_for_update_on_startup=false",
        'model_provider="gateway"',
        'model_providers.gateway.name="gateway"',
        'model_providers.gateway.env_key="HARNESS_MODEL_KEY"',
        'model_providers.gateway.wire_api="responses"',
        "model_providers.gateway.request_max_retries=1",
        "model_providers.gateway.stream_max_retries=1",
        'shell_environment_policy.exclude=["HARNESS_MODEL_KEY"]',
        'model_providers.gateway.base_url="http://127.0.0.1:1/v1"',
    ]
    assert launch.argv == (
        "codex", "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
        "--disable", "plugins", "--disable", "unbounded_connection_retries", "-m", "gpt-x",
        *(part for s in settings for part in ("-c", s)), "-",
    )  # fmt: skip
    assert launch.env["CODEX_HOME"] == "/h/.codex"
    assert launch.env["HARNESS_MODEL_KEY"] == contract.DUMMY_KEY
    assert launch.stdin.startswith("Do it.\n")


def test_codex_resumes_a_thread_and_takes_another_binary() -> None:
    launch = Codex().build(replace(BRIEF, session="01a2", command=("/opt/codex", "--profile", "x")))
    assert launch.argv[:6] == ("/opt/codex", "--profile", "x", "exec", "resume", "01a2")
    assert "-m" not in launch.argv


THREAD = {"type": "thread.started", "thread_id": "t1"}
DONE = {
    "type": "turn.completed",
    "usage": {"input_tokens": 3000, "cached_input_tokens": 900, "output_tokens": 150},
}


def item(**more: Any) -> dict[str, Any]:
    return {"type": "item.completed", "item": more}


def ran(command: str, output: str, status: str = "completed") -> dict[str, Any]:
    return item(
        type="command_execution", command=command, aggregated_output=output, exit_code=0, status=status
    )


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("exceeded retry limit, last status: 429 Too Many Requests", "rate_limited"),
        ("We’re currently experiencing high demand, which may cause temporary errors.", "overloaded"),
        (
            "unexpected status 529 <unknown status code>: scripted error, url: http://127.0.0.1:1/v1",
            "overloaded",
        ),
        (
            "unexpected status 401 Unauthorized: Incorrect API key provided, url: http://127.0.0.1:1/v1",
            "auth",
        ),
        ("Codex ran out of room in the model's context window. Start a new thread or clear", "context"),
        ("Quota exceeded. Check your plan and billing details.", "quota"),
        ("stream disconnected before completion: stream closed before response.completed", "connection"),
        ("Connection failed: error sending request", "connection"),
        ("something new", "error"),
    ],
)
def test_a_failed_turn_of_codex(message: str, status: str) -> None:
    output = rows(THREAD, {"type": "error", "message": f"Reconnecting... 1/1 ({message})"}) + rows(
        {"type": "error", "message": message}, {"type": "turn.failed", "error": {"message": message}}
    )
    assert parse(Codex(), output, 1) == AgentResult(status, message, session_id="t1")


def test_a_turn_of_codex() -> None:
    output = b"WARNING: proceeding\n" + rows(
        THREAD,
        {"type": "error", "message": "Reconnecting... 1/1 (exceeded retry limit, last status: 429)"},
        item(type="agent_message", text="I look."),
        ran("/bin/bash -lc ls", "calc.py\n"),
        item(type="file_change", changes=[{"path": "calc.py", "kind": "update"}], status="completed"),
        item(type="agent_message", text="Fixed."),
        DONE,
    )
    seen = parse(Codex(), output)
    assert seen == AgentResult("done", "Fixed.", session_id="t1", tokens_in=3000, tokens_out=150)
    assert parse(Codex(), output, 143).status == "interrupted"
    assert parse(Codex(), output, asked="Which?").status == "question"


def test_codex_whose_every_step_was_refused_is_a_sandbox() -> None:
    words = "bwrap: No permissions to create new namespace"
    refused = [ran("ls", words, "failed"), item(type="file_change", changes=[], status="declined"), DONE]
    assert parse(Codex(), rows(THREAD, *refused)).status == "sandbox"
    assert parse(Codex(), rows(THREAD, *refused[:2], ran("ls", ""), DONE)).status == "done"
    assert parse(Codex(), rows(THREAD, ran("make", "red", "failed"), DONE)).status == "done"


def test_codex_that_goes_round_in_circles_and_one_that_only_polls() -> None:
    assert parse(Codex(), rows(THREAD, *[ran("make", "no")] * 6, DONE)).status == "looped"
    assert parse(Codex(), rows(THREAD, *[ran("make", "no")] * 6), None).status == "looped"
    assert parse(Codex(), rows(THREAD, *[ran("sleep 60", str(n)) for n in range(6)], DONE)).status == "done"


def test_codex_that_ends_without_a_turn_did_nothing() -> None:
    assert parse(Codex(), rows(THREAD), 0).status == "error"
    assert parse(Codex(), b"", 0).status == "error"
    assert parse(Codex(), b"error: unexpected argument '--bad' found\n", 2).status == "error"
