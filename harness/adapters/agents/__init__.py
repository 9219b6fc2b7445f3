"""The coding agents that can be chosen: one module each, two pure functions, one line here."""

from __future__ import annotations

from collections.abc import Mapping

from harness.adapters.agents.codex import Codex
from harness.adapters.agents.command import Command
from harness.adapters.agents.scripted import Scripted
from harness.ports import Agent

AGENTS: Mapping[str, Agent] = {a.name: a for a in (Scripted(), Command(), Codex())}
