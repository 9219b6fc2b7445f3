"""Finished work that cannot be delivered waits, and is delivered once, however long the forge takes.

The one rule: only what the forge got, what the journals say and how often the agent ran is looked at.
"""

from __future__ import annotations

from deliveries import Delivered, tries
from demo_world import events


def test_a_push_waits_out_the_forge_and_the_wall(delivered: Delivered) -> None:
    assert "agent/1" not in delivered.early
    assert delivered.ended.code == 0, delivered.ended.told[-4000:]
    said = "\n".join(delivered.comments)
    assert [t["state"] for t in delivered.ended.document["tickets"]] == ["RELEASED"], said
    assert delivered.pulls.count("agent/1") == 1
    assert delivered.left == []


def test_the_agent_runs_once_and_nobody_is_charged(delivered: Delivered) -> None:
    assert delivered.rounds == ["1"]
    (records,) = delivered.attempts
    statuses = [t["status"] for t in tries(records)]
    assert statuses.count("done") == 1
    assert not {"failed", "exception"} & set(statuses)
    assert not {"timed_out", "infra_lost"} & set(events(records))
