"""The adapter of the scripted agent (`player.py`): the play's path is HARNESS_PLAY of the brief's
environment.

The one rule: its result line is believed like any agent's, which is: not where the exit or the words beside
it say otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from harness.adapters.agents import contract, lines, symptoms
from harness.adapters.agents.loops import looped
from harness.domain import AgentResult
from harness.ports import Brief, Launch

PLAYER = str(Path(__file__).with_name("player.py"))


class Scripted:
    name = "scripted"
    needs: tuple[str, ...] = (contract.QUESTION_FILE,)

    def build(self, brief: Brief) -> Launch:
        play = (brief.env or {}).get("HARNESS_PLAY", "")
        return Launch(
            argv=(sys.executable, "-I", PLAYER, play),
            env=contract.environment(brief),
            files=contract.fresh_files(brief),
            stdin=contract.prompt(brief),
        )

    def parse(self, output: bytes, files: Mapping[str, bytes], exit_code: int | None) -> AgentResult:
        events: list[tuple[str, str]] = []
        said: AgentResult | None = None
        asked = contract.question(files)
        for value in lines.objects(output):
            if value.get("type") == "tool":
                events.append((contract.text(value.get("command")), contract.text(value.get("output"))))
            elif value.get("type") == "result":
                said = result_of(value)
                asked = asked or contract.plain(contract.text(value.get("question")), contract.QUESTION_LIMIT)
        if said is None:
            said = from_words(lines.last_text(output), exit_code)
        if looped(events):
            said = replace(said, status="looped", message=f"again and again: {events[-1][0][:200]}")
        return contract.ended(said, asked, exit_code)


def result_of(value: Mapping[str, object]) -> AgentResult:
    """A `{"type": "result", …}` line as agents print it. `is_error` outranks its other words: some say
    "success" beside it."""
    message = contract.text(value.get("message")) or contract.text(value.get("result"))
    status = contract.text(value.get("status"))
    if value.get("is_error") is True and status in ("", "done"):
        status = symptoms.recognise(message) or "error"
    elif status not in contract.STATUSES:
        status = "error" if status else symptoms.recognise_report(message)[0] or "done"
    return AgentResult(
        status=status,
        message=message,
        session_id=contract.text(value.get("session_id")),
        tokens_in=contract.count(value.get("tokens_in")),
        tokens_out=contract.count(value.get("tokens_out")),
        cost_usd=contract.amount(value.get("cost_usd")),
        retry_after_s=contract.amount(value.get("retry_after_s")) or symptoms.retry_after_s(message)
        if status in ("rate_limited", "quota", "overloaded")
        else None,
    )


def from_words(words: str, exit_code: int | None) -> AgentResult:
    """Of an agent that left no result: what its last words say, strictly where it claims success."""
    if exit_code == 0:
        status, line = symptoms.recognise_report(words)
        final = words.strip().splitlines()[-1:] or [""]
        return AgentResult(status or "done", line or final[0], retry_after_s=symptoms.retry_after_s(line))
    status = symptoms.recognise(words)
    return AgentResult(
        status or ("interrupted" if contract.killed(exit_code) else "error"),
        words,
        retry_after_s=symptoms.retry_after_s(words) if status else None,
    )
