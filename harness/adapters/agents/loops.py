"""Whether an agent goes round in circles.

The one rule: the same command with the same output, again and again with nothing between, is a loop; the same
command with other output each time (a poll) is not.
"""

from __future__ import annotations

from collections.abc import Sequence

LIMIT = 4
PERIOD_LIMIT = 3


def looped(events: Sequence[tuple[str, str]], limit: int = LIMIT) -> bool:
    """Whether `events` (command, output) end in one pair, or one cycle of two or three, `limit` times over.

    Only the end counts: who got out of a circle by itself is not stuck in it."""
    for period in range(1, PERIOD_LIMIT + 1):
        size = period * limit
        if limit > 1 and len(events) >= size:
            end = list(events[-size:])
            if all(pair == end[i % period] for i, pair in enumerate(end)):
                return True
    return False
