"""What a model's reply used, read from the bytes as they pass: Anthropic messages, OpenAI chat and responses.

The one rule: the bytes are never changed or held; what cannot be read counts as not told, never as nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from harness.gateway.ledger import Cost
from harness.gateway.settings import ModelSettings, Price

LINE_LIMIT_BYTES = 4 << 20
BYTES_PER_TOKEN = 3


@dataclass(frozen=True, slots=True)
class Usage:
    """`fresh` input tokens are those that no cache served."""

    fresh: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0

    @property
    def tokens_in(self) -> int:
        return self.fresh + self.cache_read + self.cache_write

    def merge(self, other: Usage) -> Usage:
        """Streams repeat their counts, growing."""
        return Usage(
            max(self.fresh, other.fresh),
            max(self.cache_read, other.cache_read),
            max(self.cache_write, other.cache_write),
            max(self.output, other.output),
        )


def usage_of(reply: Any) -> Usage | None:
    """The usage in a body or an event of any of the three shapes; None where there is none."""
    if not isinstance(reply, dict):
        return None
    for place in (reply, reply.get("message"), reply.get("response")):
        used = place.get("usage") if isinstance(place, dict) else None
        if isinstance(used, dict):
            return _read(used)
    return None


def _read(used: dict[str, Any]) -> Usage:
    if "prompt_tokens" in used or "completion_tokens" in used:
        cached = _count(_part(used, "prompt_tokens_details"), "cached_tokens")
        return Usage(
            max(0, _count(used, "prompt_tokens") - cached), cached, 0, _count(used, "completion_tokens")
        )
    given, out = _count(used, "input_tokens"), _count(used, "output_tokens")
    if "input_tokens_details" in used:  # OpenAI responses: the cached ones are among the input
        cached = _count(_part(used, "input_tokens_details"), "cached_tokens")
        return Usage(max(0, given - cached), cached, 0, out)
    read, write = _count(used, "cache_read_input_tokens"), _count(used, "cache_creation_input_tokens")
    return Usage(given, read, write, out)


def _part(used: dict[str, Any], name: str) -> dict[str, Any]:
    value = used.get(name)
    return value if isinstance(value, dict) else {}


def _count(used: dict[str, Any], name: str) -> int:
    value = used.get(name)
    return value if isinstance(value, int) and 0 <= value < 1 << 40 else 0


class Meter:
    """Reads a server-sent event stream as it passes. `events` counts its data lines: for output that is still
    coming each stands for at least one token."""

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.events = 0
        self._rest = b""
        self._skipping = False

    @property
    def output(self) -> int:
        return max(self.events, self.usage.output if self.usage else 0)

    def feed(self, chunk: bytes) -> None:
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            if self._skipping:
                self._skipping = False
                continue
            self._line(line)
        if len(self._rest) > LINE_LIMIT_BYTES:
            self._rest, self._skipping = b"", True

    def _line(self, line: bytes) -> None:
        if not line.startswith(b"data:"):
            return
        self.events += 1
        if b'"usage"' not in line:
            return
        try:
            seen = usage_of(json.loads(line[5:]))
        except (ValueError, RecursionError):
            return
        if seen is not None:
            self.usage = self.usage.merge(seen) if self.usage else seen


def price_of(settings: ModelSettings, model: str) -> Price | None:
    if model in settings.prices:
        return settings.prices[model]
    fitting = [name for name in settings.prices if name and model.startswith(name)]
    return settings.prices[max(fitting, key=len)] if fitting else None


def estimate(settings: ModelSettings, model: str, request: dict[str, Any], size: int) -> Cost:
    """The most that a call may come to, before it is made: all of its bytes as tokens, all output it
    allows."""
    tokens_in = size // BYTES_PER_TOKEN + 1
    asked = [request.get(k) for k in ("max_tokens", "max_completion_tokens", "max_output_tokens")]
    given = [n for n in asked if isinstance(n, int) and not isinstance(n, bool) and n > 0]
    tokens_out = min(max(given), 1 << 24) if given else settings.default_output_tokens
    copies = request.get("n")
    if isinstance(copies, int) and 1 < copies <= 128:
        tokens_out *= copies
    price = price_of(settings, model)
    if price is None:
        return Cost(tokens_in, tokens_out, settings.default_cost_usd)
    dearest = max(price.input_usd, price.cache_write_usd or 0.0)
    return Cost(tokens_in, tokens_out, (tokens_in * dearest + tokens_out * price.output_usd) / 1e6)


def cost_of(settings: ModelSettings, model: str, usage: Usage) -> Cost:
    """What a call came to by its usage; without a price it counts with the configured default, not 0."""
    price = price_of(settings, model)
    if price is None:
        return Cost(usage.tokens_in, usage.output, settings.default_cost_usd)
    read = price.input_usd if price.cache_read_usd is None else price.cache_read_usd
    write = price.input_usd if price.cache_write_usd is None else price.cache_write_usd
    usd = usage.fresh * price.input_usd + usage.cache_read * read + usage.cache_write * write
    return Cost(usage.tokens_in, usage.output, (usd + usage.output * price.output_usd) / 1e6)


def guess(settings: ModelSettings, model: str, sent: int, output: int, usage: Usage | None) -> Cost:
    """What a call counts for whose usage was not told, or not to the end: by its bytes and events, and
    not less than the configured default."""
    seen = usage or Usage(fresh=sent // BYTES_PER_TOKEN + 1)
    cost = cost_of(settings, model, seen.merge(Usage(output=output)))
    return Cost(cost.tokens_in, cost.tokens_out, max(cost.usd, settings.default_cost_usd))
