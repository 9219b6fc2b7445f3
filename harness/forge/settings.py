"""The knobs of one running forge. Every number that is a policy is here, with its unit in its name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Limits and delays.

    ``min_write_gap_s`` of None turns the write-gap rule off. ``mergeable_delay_s`` is how long
    ``mergeable`` stays null after head or base moved. ``public_url`` of None means the bound address.
    """

    public_url: str | None = None
    mergeable_delay_s: float = 0.0
    primary_limit: int = 5000
    anonymous_limit: int = 60
    min_write_gap_s: float | None = None
    write_gap_tolerance_s: float = 0.02
    secondary_penalty_s: float = 60.0
    body_limit_bytes: int = 10_000_000
    push_limit_bytes: int = 2_000_000_000
    git_timeout_s: float = 600.0
    requests_kept: int = 200_000
