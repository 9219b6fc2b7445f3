"""What the gateway is told about the model's provider, and the one error it raises.

The one rule: the key is a callable, read for each call and kept nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from harness.ports import GatewayError


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens. Without prices of its own, the cache costs what input costs."""

    input_usd: float
    output_usd: float
    cache_read_usd: float | None = None
    cache_write_usd: float | None = None


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """One upstream for all attempts. Caps of 0 are no caps.

    `base_url` is given with or without `/v1`. `auth` is bearer, x-api-key or none. `prices` are looked up by
    the model's name, else by the longest name it begins with; `default_cost_usd` is what a call counts for at
    least when nothing tells its cost (no price, or no usage in the reply). `headers` are added to each call.
    """

    base_url: str
    auth: str = "bearer"
    key: Callable[[], str] = str
    max_concurrent: int = 4
    per_attempt_usd: float = 0.0
    per_attempt_tokens: int = 0
    per_day_usd: float = 0.0
    per_day_tokens: int = 0
    prices: Mapping[str, Price] = field(default_factory=dict)
    request_timeout_s: float = 600.0
    default_cost_usd: float = 0.05
    default_output_tokens: int = 8192
    per_minute: int = 300
    gap_s: float = 0.0
    cooldown_s: float = 60.0
    queue_s: float = 60.0
    body_limit_bytes: int = 32 << 20
    headers: Mapping[str, str] = field(default_factory=dict)
    proxy: str | None = None


__all__ = ["GatewayError", "ModelSettings", "Price"]
