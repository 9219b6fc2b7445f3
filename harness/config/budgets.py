"""The `[budget]` tables of the operator's file: what may be asked of the forge and of the model's provider.

The one rule: these limits hold over all workers together, because everything goes through one place.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.config.secrets import Secret
from harness.config.types import Cap, Count, Dollars, Pause, Seconds, Section, Url, Variable


class GithubBudget(Section):
    """What the forge's interface may be asked for, per credential."""

    max_concurrent_requests: Count = Field(default=2, description="requests at the same time")
    min_seconds_between_writes: Pause = Field(
        default=2.0, description="spacing of writes (the forge asks for 1 at least)"
    )
    cooldown_seconds: Seconds = Field(
        default=60.0, description="first pause after a refusal that names no time"
    )
    reads_per_minute: Count = Field(default=300, description="reads in a minute")
    reads_per_hour: Count = Field(default=4500, description="reads in an hour")
    writes_per_minute: Count = Field(default=60, description="writes in a minute")
    writes_per_hour: Count = Field(default=400, description="writes in an hour")


class Price(Section):
    """US dollars per million tokens of one model."""

    input_usd: Dollars = Field(default=0.0, description="input")
    output_usd: Dollars = Field(default=0.0, description="output")
    cache_read_usd: Dollars | None = Field(
        default=None, description="input read from the cache; as input when not given"
    )
    cache_write_usd: Dollars | None = Field(
        default=None, description="input written to it; as input when not given"
    )


class ModelBudget(Section):
    """The model's provider, and what may be spent there. A cap of 0 is no cap."""

    upstream: Url = Field(
        default="", description="the provider's address; workers reach it through the gateway only"
    )
    auth: Literal["bearer", "x-api-key", "none"] = Field(default="bearer", description="how the key is sent")
    key_env: Variable = Field(default="", description="environment variable that holds the key")
    key_file: str = Field(default="", description="or a file that holds it; the file wins")
    proxy: Url = Field(default="", description="an HTTP proxy to the provider")
    headers: dict[str, str] = Field(default={}, description="headers added to each call; no secrets")
    max_concurrent_requests: Count = Field(default=4, description="calls at the same time, over all workers")
    min_seconds_between_requests: Pause = Field(default=0.0, description="spacing of calls")
    requests_per_minute: Count = Field(
        default=300, description="calls in a minute of one attempt: more is a runaway loop"
    )
    cooldown_seconds: Seconds = Field(
        default=60.0, description="first pause after a refusal that names no time"
    )
    request_seconds: Seconds = Field(default=600.0, description="one call, streamed or not")
    queue_seconds: Seconds = Field(
        default=60.0, description="a call waits so long for its turn before it is refused"
    )
    attempt_usd: Dollars = Field(default=0.0, description="spend of one attempt")
    issue_usd: Dollars = Field(default=0.0, description="spend of one issue")
    release_usd: Dollars = Field(default=0.0, description="spend of one release")
    day_usd: Dollars = Field(default=0.0, description="spend of a day")
    attempt_tokens: Cap = Field(default=0, description="tokens of one attempt")
    day_tokens: Cap = Field(default=0, description="tokens of a day")
    unpriced_call_usd: Dollars = Field(
        default=0.05, description="what a call counts for when nothing tells its cost"
    )
    prices: dict[str, Price] = Field(
        default={}, description="[budget.model.prices.NAME]: input_usd, output_usd, …"
    )

    @property
    def key(self) -> Secret:
        return Secret("budget.model.key", "" if self.key_file else self.key_env, self.key_file)


class Budget(Section):
    """Limits that hold over all workers together."""

    github: GithubBudget = GithubBudget()
    model: ModelBudget = ModelBudget()
