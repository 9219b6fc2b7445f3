"""OpenAI's Codex command line, unattended: `codex exec --json` and its event lines.

The one rule: exactly the flags that were seen to be safe. Its own sandbox cannot work inside a container, so
it is off (the container is the sandbox); it retries once, else it sleeps whatever `retry-after` says; it
fetches no plugins and sends no metrics; a refused connection fails at once instead of waiting for ever;
standard input ends after the prompt, else it waits for more. The model is the gateway, in the shape of
OpenAI's Responses API.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from harness.adapters.agents import contract, lines, symptoms
from harness.adapters.agents.loops import looped
from harness.adapters.agents.scripted import from_words
from harness.domain import AgentResult
from harness.ports import Brief, Launch

KEY = "HARNESS_MODEL_KEY"
FLAGS = (
    "--json",
    "--skip-git-repo-check",
    "--dangerously-bypass-approvals-and-sandbox",
    "--disable", "plugins",
    "--disable", "unbounded_connection_retries",
)  # fmt: skip
SETTINGS = (
    ("analytics.enabled", "false"),
    ("check_for_update_on_startup", "false"),
    ("model_provider", '"gateway"'),
    ("model_providers.gateway.name", '"gateway"'),
    ("model_providers.gateway.env_key", f'"{KEY}"'),
    ("model_providers.gateway.wire_api", '"responses"'),
    ("model_providers.gateway.request_max_retries", "1"),
    ("model_providers.gateway.stream_max_retries", "1"),
    ("shell_environment_policy.exclude", f'["{KEY}"]'),
)
_REFUSED = re.compile(r"bwrap: |sandbox|namespace|not permitted|landlock|approval", re.IGNORECASE)
_GONE = ("declined", "failed")


class Codex:
    name = "codex"
    needs: tuple[str, ...] = (contract.QUESTION_FILE,)

    def build(self, brief: Brief) -> Launch:
        """`brief.command` may name the binary (and options of its own); `brief.model_url` ends in /v1."""
        program = brief.command or ("codex",)
        settings = [*SETTINGS, ("model_providers.gateway.base_url", json.dumps(brief.model_url))]
        return Launch(
            argv=(
                *program, "exec", *(("resume", brief.session) if brief.session else ()), *FLAGS,
                *(("-m", brief.model) if brief.model else ()),
                *(part for key, value in settings for part in ("-c", f"{key}={value}")),
                "-",
            ),
            env={
                **contract.environment(brief),
                "CODEX_HOME": f"{brief.home.rstrip('/')}/.codex",
                KEY: contract.DUMMY_KEY,
            },
            files={**contract.fresh_files(brief), ".codex/.keep": ""},
            stdin=contract.prompt(brief),
        )  # fmt: skip

    def parse(self, output: bytes, files: Mapping[str, bytes], exit_code: int | None) -> AgentResult:
        told = _Told()
        for value in lines.objects(output):
            told.hear(value)
        return contract.ended(told.result(output, exit_code), contract.question(files), exit_code)


@dataclass(slots=True)
class _Told:
    """What the event lines say, taken together. After a resume the usage is that of the whole thread."""

    thread: str = ""
    message: str = ""
    error: str = ""
    completed: bool = False
    tokens_in: int = 0
    tokens_out: int = 0
    steps: list[tuple[str, str]] = field(default_factory=list)
    worked: int = 0
    refused: str = ""

    def hear(self, value: Mapping[str, Any]) -> None:
        kind = value.get("type")
        if kind == "thread.started":
            self.thread = contract.text(value.get("thread_id"))
        elif kind == "turn.completed" and isinstance(value.get("usage"), dict):
            self.completed = True
            self.tokens_in += contract.count(value["usage"].get("input_tokens"))
            self.tokens_out += contract.count(value["usage"].get("output_tokens"))
        elif kind == "turn.failed" and isinstance(value.get("error"), dict):
            self.error = contract.text(value["error"].get("message")) or "turn failed"
        elif kind == "error":
            self.error = self.error or contract.text(value.get("message"))
        elif kind == "item.completed" and isinstance(value.get("item"), dict):
            self._item(value["item"])

    def _item(self, item: Mapping[str, Any]) -> None:
        kind, text = item.get("type"), contract.text
        if kind == "agent_message":
            self.message = text(item.get("text"))
        elif kind in ("command_execution", "file_change", "mcp_tool_call"):
            words = text(item.get("aggregated_output"))
            what = text(item.get("command")) or json.dumps(item.get("changes"), sort_keys=True)
            self.steps.append((what, words))
            if item.get("status") not in _GONE:
                self.worked += 1
            elif item.get("status") == "declined" or _REFUSED.search(words):
                self.refused = words or f"{kind} was declined"

    def result(self, output: bytes, exit_code: int | None) -> AgentResult:
        if looped(self.steps):
            said = AgentResult("looped", f"again and again: {self.steps[-1][0][:200]}")
        elif self.error and not self.completed:
            said = AgentResult(symptoms.recognise(self.error) or "error", self.error)
        elif self.refused and not self.worked:
            said = AgentResult("sandbox", self.refused)
        elif self.completed:
            status, line = symptoms.recognise_report(self.message)
            said = AgentResult(status or "done", line or self.message)
        else:
            said = from_words(lines.last_text(output), exit_code)
            if said.status == "done":  # exit 0 and no turn that ended: nothing was done
                said = AgentResult("error", "it ended without a finished turn")
        wait = symptoms.retry_after_s(said.message) if said.status in ("rate_limited", "overloaded") else None
        return replace(
            said,
            session_id=self.thread,
            tokens_in=self.tokens_in,
            tokens_out=self.tokens_out,
            retry_after_s=wait,
        )
