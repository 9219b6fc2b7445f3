"""Any command line as an agent: argv with placeholders, a small contract of files and exit codes.

The one rule: what it cannot say by contract is read from its last words, so that a limit or a lost login is
never taken for work.

Placeholders: {prompt_file} {session_dir} {model} {model_url} {issue} {round}. The prompt comes on standard
input, then end of file; with {prompt_file} standard input is empty. HARNESS_RESULT_FILE may get a JSON
object: status, message, tokens_in, tokens_out, cost_usd, session_id, retry_after (seconds), question. Exit
codes: 0 done, 20 rate limited, 21 overloaded, 22 auth, 23 context, 24 connection, any other an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace

from harness.adapters.agents import contract, lines
from harness.adapters.agents.scripted import from_words, result_of
from harness.domain import AgentResult
from harness.ports import Brief, Launch

_PLACE = re.compile(r"\{(prompt_file|session_dir|model|model_url|issue|round)\}")
EXITS = {20: "rate_limited", 21: "overloaded", 22: "auth", 23: "context", 24: "connection"}


class Command:
    name = "command"
    needs: tuple[str, ...] = (contract.QUESTION_FILE, contract.RESULT_FILE)

    def build(self, brief: Brief) -> Launch:
        env = contract.environment(brief)
        places = {
            "prompt_file": env["HARNESS_PROMPT_FILE"],
            "session_dir": env["HARNESS_SESSION_DIR"],
            "model": brief.model,
            "model_url": brief.model_url,
            "issue": str(brief.issue),
            "round": str(brief.round),
        }
        by_file = any("{prompt_file}" in part for part in brief.command)
        return Launch(
            argv=tuple(_fill(part, places) for part in brief.command),
            env=env,
            files=contract.fresh_files(brief),
            stdin="" if by_file else contract.prompt(brief),
        )

    def parse(self, output: bytes, files: Mapping[str, bytes], exit_code: int | None) -> AgentResult:
        told = _told(files.get(contract.RESULT_FILE, b""))
        asked = contract.question(files)
        if told is not None:
            said = result_of({**told, "retry_after_s": told.get("retry_after")})
            asked = asked or contract.plain(contract.text(told.get("question")), contract.QUESTION_LIMIT)
        else:
            line = lines.last(output, "result")
            said = result_of(line) if line is not None else from_words(lines.last_text(output), exit_code)
        if exit_code in EXITS and said.status in ("done", "error"):
            said = replace(said, status=EXITS[exit_code])
        return contract.ended(said, asked, exit_code)


def _fill(part: str, places: Mapping[str, str]) -> str:
    """Once, from left to right: a value that looks like a placeholder stays as it is."""
    return _PLACE.sub(lambda m: places[m[1]], part)


def _told(data: bytes) -> dict[str, object] | None:
    """The result file's object; None where there is none or it is none."""
    try:
        value = json.loads(data) if data.strip() else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
