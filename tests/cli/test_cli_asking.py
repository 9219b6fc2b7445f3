"""The commands that ask the director for something, while none runs: what is in vain is refused, with a reason."""

from __future__ import annotations

import pytest

from harness import __version__
from harness.adapters.store.sql import SqlStore
from harness.loop import SteadyClock


def controls(demo) -> list[tuple[str, dict]]:
    """What people asked for; each start of a director is among the commands, too."""
    store = SqlStore.open(
        demo.folder / "data/store.db", clock=SteadyClock(), code=__version__, read_only=True
    )
    try:
        return [(c.verb, dict(c.args)) for c in store.controls() if c.verb != "started"]
    finally:
        store.close()


def test_retry_of_a_deferred_issue_is_written_down(copy, harness):
    told = harness("retry", 3, "--config", copy.config)
    assert told.code == 0
    assert told.out == "issue 3 gets another try; no director is running: it takes effect when one starts\n"
    assert controls(copy) == [("retry", {"issue": 3})]


def test_pause_and_resume(copy, harness):
    assert harness("pause", "--config", copy.config).code == 0
    assert harness("resume", "--config", copy.config).code == 0
    assert [verb for verb, _ in controls(copy)] == ["pause", "resume"]


def test_cancel_of_a_deferred_issue(copy, harness):
    d = harness("cancel", 3, "--json", "--config", copy.config).json
    assert (d["ok"], d["verb"], d["args"], d["director_running"]) == (True, "cancel", {"issue": 3}, False)


IN_VAIN = (
    (("retry", 1), "issue 1 is RELEASED: there is nothing to retry (that is for BLOCKED and DEFERRED)"),
    (("retry", 99), "issue 99 has no ticket, so there is nothing to retry; harness explain 99 says why"),
    (("cancel", 1), "issue 1 is RELEASED: there is nothing to cancel"),
    (("drain",), "no director is running: there is nothing to drain"),
    (("release", "cut"), "no release is under way"),
    (("release", "abandon"), "no release is under way"),
    (
        ("release", "defer", 3),
        "issue 3 is DEFERRED: there is nothing to defer (that is for ATTEMPTING and WAITING)",
    ),
)


@pytest.mark.parametrize(("command", "why"), IN_VAIN)
def test_what_is_in_vain_is_refused_and_not_written(command, why, copy, harness):
    told = harness(*command, "--config", copy.config)
    assert (told.code, told.out) == (1, "")
    assert told.err == f"harness {command[0]}: {why}\n"
    assert controls(copy) == []


def test_stop_where_nothing_runs_is_no_failure(demo, harness):
    told = harness("stop", "--config", demo.config)
    assert (told.code, told.out) == (0, "no director is running\n")


def test_the_releases(demo, harness):
    told = harness("release", "status", "--config", demo.config)
    sha = demo.document["release"]["main_sha"][:12]
    assert told.out == f"v0.1.0 published at {sha}: #1, #2, #4, #5\n"
    d = harness("release", "status", "--json", "--config", demo.config).json
    assert d["release"]["state"] == "PUBLISHED"
    assert [e["version"] for e in d["earlier"]] == ["0.1.0"]
