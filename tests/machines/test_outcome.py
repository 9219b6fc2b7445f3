"""The table of outcomes as a table: what was seen, and what it amounts to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.failures import RULES, Counter, Failure
from harness.machines.attempt.outcome import ROWS, Ended, classify

KINDS = {"done", "upgrade", "stopped", "fatal", "person", "infra", "failed"}

# (what was seen, kind, failure, counter, a word of the warning)
TABLE = [
    # Its own codes.
    (Ended(exit=0, final="DONE"), "done", "", "", ""),
    (Ended(exit=0), "done", "", "", "did not say"),
    (Ended(exit=10), "fatal", "agent_failed", "agent", ""),
    (Ended(exit=10, final="BLOCKED", failure="gone"), "fatal", "gone", "nobody", ""),
    (Ended(exit=10, final="BLOCKED", failure="tests_failed"), "fatal", "tests_failed", "rework", ""),
    (Ended(exit=10, final="BLOCKED", failure="made_up"), "fatal", "agent_failed", "agent", ""),
    (Ended(exit=11), "person", "question", "nobody", ""),
    (
        Ended(exit=11, final="BLOCKED", failure="validation_missing"),
        "person",
        "validation_missing",
        "agent",
        "",
    ),
    (Ended(exit=11, asked="stop"), "person", "question", "nobody", ""),
    (Ended(exit=75), "upgrade", "", "", ""),
    (Ended(exit=75, engine_changed=True), "upgrade", "", "", ""),
    (Ended(exit=70), "failed", "internal_error", "nobody", ""),
    (Ended(exit=1), "failed", "unknown_exit", "infra", ""),
    (Ended(exit=1, failure="auth_failed"), "failed", "auth_failed", "nobody", ""),
    (Ended(exit=2), "failed", "config_invalid", "nobody", ""),
    # The three kinds of 137, and more.
    (Ended(exit=137, oom=True), "failed", "oom", "infra", ""),
    (Ended(exit=137, asked="timeout"), "failed", "timeout", "agent", ""),
    (Ended(exit=137, asked="stop"), "stopped", "", "", ""),
    (Ended(exit=137, asked="kill"), "stopped", "", "", ""),
    (Ended(exit=137), "infra", "infra_killed", "infra", ""),
    (Ended(exit=137, signal=9), "infra", "infra_killed", "infra", ""),
    (Ended(exit=-9, signal=9), "infra", "infra_killed", "infra", ""),
    (Ended(exit=137, oom=True, asked="timeout"), "failed", "timeout", "agent", "memory"),
    (Ended(exit=137, oom=True, asked="stop"), "stopped", "", "", "memory"),
    (Ended(exit=137, oom=True, engine_changed=True), "failed", "oom", "infra", ""),
    (Ended(exit=137, engine_changed=True), "infra", "infra_engine", "nobody", ""),
    (Ended(exit=137, deadline_passed=True), "failed", "timeout", "agent", ""),
    (Ended(exit=137, asked="stalled"), "failed", "agent_stalled", "agent", ""),
    # The three kinds of 143.
    (Ended(exit=143, engine_changed=True), "infra", "infra_engine", "nobody", ""),
    (Ended(exit=143, asked="stop"), "stopped", "", "", ""),
    (Ended(exit=143, asked="upgrade"), "upgrade", "", "", ""),
    (Ended(exit=143), "infra", "infra_killed", "infra", ""),
    (Ended(signal=15), "infra", "infra_killed", "infra", ""),
    (Ended(exit=143, asked="timeout", engine_changed=True), "failed", "timeout", "agent", ""),
    (Ended(exit=143, deadline_passed=True), "failed", "timeout", "agent", ""),
    (Ended(exit=143, oom=True), "failed", "oom", "infra", ""),
    # Three limits of the runtime; idle is `asked="stalled"` above.
    (Ended(exit=143, flooded=True), "failed", "agent_failed", "agent", ""),
    (Ended(exit=137, flooded=True), "failed", "agent_failed", "agent", ""),
    (Ended(exit=0, flooded=True), "failed", "agent_failed", "agent", ""),
    (Ended(exit=143, flooded=True, final="DONE"), "done", "", "", "143"),
    (Ended(exit=143, flooded=True, asked="stop"), "stopped", "", "", ""),
    (Ended(exit=130, deadline_passed=True), "failed", "timeout", "agent", ""),
    (Ended(exit=143, deadline_passed=True, engine_changed=True), "infra", "infra_engine", "nobody", ""),
    # Memory, and a worker that survived it.
    (Ended(exit=0, oom=True), "done", "", "", "memory"),
    (Ended(exit=0, oom=True, final="DONE"), "done", "", "", "memory"),
    (Ended(exit=1, oom=True), "failed", "oom", "infra", ""),
    (Ended(exit=134, oom=True), "failed", "oom", "infra", ""),
    (Ended(exit=10, oom=True, final="BLOCKED", failure="infra_killed"), "fatal", "oom", "infra", ""),
    (Ended(exit=70, oom=True), "failed", "internal_error", "nobody", ""),
    # It was done before something else ended it.
    (Ended(exit=137, final="DONE"), "done", "", "", "137"),
    (Ended(exit=143, final="DONE", asked="stop"), "done", "", "", "143"),
    (Ended(exit=143, final="DONE", engine_changed=True), "done", "", "", "143"),
    (Ended(lost=True, final="DONE"), "done", "", "", "unknown"),
    (Ended(exit=0, final="BLOCKED", failure="conflict"), "failed", "conflict", "rework", "0"),
    (Ended(exit=137, final="BLOCKED"), "failed", "agent_failed", "agent", "137"),
    # It obeyed us with a polite code.
    (Ended(exit=0, asked="stop"), "stopped", "", "", ""),
    (Ended(exit=0, asked="timeout"), "failed", "timeout", "agent", ""),
    (Ended(exit=0, asked="upgrade"), "upgrade", "", "", ""),
    (Ended(exit=137, asked="upgrade"), "upgrade", "", "", ""),
    (Ended(exit=137, oom=True, asked="upgrade"), "failed", "oom", "infra", ""),
    (Ended(exit=75, asked="stop"), "stopped", "", "", ""),
    (Ended(exit=75, asked="timeout"), "failed", "timeout", "agent", ""),
    # Nobody knows.
    (Ended(), "infra", "infra_killed", "infra", ""),
    (Ended(lost=True), "infra", "infra_killed", "infra", ""),
    (Ended(lost=True, exit=0), "infra", "infra_killed", "infra", ""),
    (Ended(lost=True, engine_changed=True), "infra", "infra_engine", "nobody", ""),
    (Ended(lost=True, asked="stop"), "stopped", "", "", ""),
    (Ended(lost=True, deadline_passed=True), "failed", "timeout", "agent", ""),
    # It was never really run, or crashed.
    (Ended(exit=125), "infra", "infra_engine", "infra", ""),
    (Ended(exit=126), "failed", "config_invalid", "nobody", ""),
    (Ended(exit=127), "failed", "config_invalid", "nobody", ""),
    (Ended(exit=139), "infra", "unknown_exit", "infra", ""),
    (Ended(exit=134), "infra", "unknown_exit", "infra", ""),
    (Ended(exit=139, engine_changed=True), "infra", "unknown_exit", "infra", ""),
    (Ended(exit=130), "infra", "infra_killed", "infra", ""),
    (Ended(exit=255), "infra", "unknown_exit", "infra", ""),
    (Ended(exit=3), "infra", "unknown_exit", "infra", ""),
    (Ended(exit=0, deadline_passed=True), "done", "", "", "did not say"),
    (Ended(exit=0, engine_changed=True), "done", "", "", "did not say"),
]


@pytest.mark.parametrize("seen,kind,failure,counter,warning", TABLE, ids=[str(row[0])[6:-1] for row in TABLE])
def test_an_end_is_classified(seen: Ended, kind: str, failure: str, counter: str, warning: str) -> None:
    got = classify(seen)
    assert (got.kind, got.failure, got.counter) == (kind, failure, counter)
    assert warning in got.warning if warning else got.warning == ""
    assert got.text and "{" not in got.text + got.warning


def test_an_engine_restart_is_charged_to_nobody_and_never_to_the_agent() -> None:
    for code in (137, 143, None):
        assert classify(Ended(exit=code, engine_changed=True)).counter == Counter.NOBODY


def test_every_row_can_be_reached_by_something_in_the_table() -> None:
    """A row that never decides is a rule that nobody keeps."""
    used = set()
    for seen, *_ in TABLE:
        code = None if seen.lost else 128 + seen.signal if seen.signal else seen.exit
        used.add(next(i for i, row in enumerate(ROWS) if row.matches(seen, code)))
    assert used == set(range(len(ROWS)))


ends = st.builds(
    Ended,
    exit=st.none() | st.integers(-64, 260),
    oom=st.booleans(),
    signal=st.none() | st.integers(1, 64),
    engine_changed=st.booleans(),
    lost=st.booleans(),
    asked=st.sampled_from(["", "stop", "kill", "timeout", "stalled", "upgrade", "nonsense"]),
    deadline_passed=st.booleans(),
    flooded=st.booleans(),
    final=st.sampled_from(["", "DONE", "BLOCKED", "CODE"]),
    failure=st.sampled_from(["", "conflict", "oom", "nonsense"]),
)


@given(ends)
def test_whatever_is_seen_has_an_outcome_that_the_failure_table_knows(seen: Ended) -> None:
    got = classify(seen)
    assert got.kind in KINDS
    good = got.kind in ("done", "upgrade", "stopped")
    assert (got.failure == "") == good and (got.counter == "") == good
    if not good:
        assert got.counter in (RULES[Failure(got.failure)].counter, Counter.NOBODY)
    assert "\n" not in got.text and "{" not in got.text + got.warning


@given(ends)
def test_the_engines_doings_are_never_the_agents_fault(seen: Ended) -> None:
    if seen.engine_changed and seen.exit in (137, 143) and not (seen.asked or seen.final or seen.signal):
        assert classify(seen).counter != Counter.AGENT
