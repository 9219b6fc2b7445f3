"""Each machine's table, written out by hand from the specification, against the table that runs."""

from __future__ import annotations

import pytest

from harness.core.fsm import Table
from harness.machines.all import KINDS, kind_of

DIRECTOR = """
BOOT release_missing RELEASE_PLAN
BOOT release_active DISCOVER
RELEASE_PLAN release_planned DISCOVER
DISCOVER work_available DISPATCH
DISCOVER nothing_to_dispatch MONITOR
DISCOVER release_missing RELEASE_PLAN
DISCOVER no_work SELF_REVIEW
DISPATCH dispatched MONITOR
MONITOR tick DISCOVER
MONITOR release_ready RELEASE_FINALIZE
RELEASE_FINALIZE release_published BROADCAST
RELEASE_FINALIZE release_waits DISCOVER
RELEASE_FINALIZE gate_failed DISCOVER
BROADCAST broadcast_done DISCOVER
SELF_REVIEW reviewed DISCOVER
SELF_REVIEW tick DISCOVER
COOLDOWN cooldown_expired DISCOVER
* rate_limited COOLDOWN
* transient_failures COOLDOWN
* terminate SHUTDOWN
"""

WORKER = """
START started UPGRADE_CHECKPOINT
UPGRADE_CHECKPOINT current SYNC_MAIN
UPGRADE_CHECKPOINT upgrade_deferred SYNC_MAIN
SYNC_MAIN synced CONTEXT_LOAD
CONTEXT_LOAD context_loaded CODE
CODE coded VALIDATE
VALIDATE validated COMMIT
COMMIT committed PR_CREATE
PR_CREATE pr_opened REVIEW_REQUEST
REVIEW_REQUEST review_requested DONE
* retryable RETRY_WAIT
* fatal BLOCKED
* needs_human BLOCKED
* retries_exhausted BLOCKED
RETRY_WAIT retry_upgrade UPGRADE_CHECKPOINT
RETRY_WAIT retry_sync SYNC_MAIN
RETRY_WAIT retry_context CONTEXT_LOAD
RETRY_WAIT retry_code CODE
RETRY_WAIT retry_validate VALIDATE
RETRY_WAIT retry_commit COMMIT
RETRY_WAIT retry_pr PR_CREATE
RETRY_WAIT retry_review REVIEW_REQUEST
"""

TICKET = """
CLAIMING claim_held ATTEMPTING
CLAIMING claim_lost GONE
ATTEMPTING pull_open REVIEWING
ATTEMPTING question_asked WAITING
ATTEMPTING again ATTEMPTING
ATTEMPTING given_up DEFERRED
ATTEMPTING needs_person BLOCKED
WAITING answered ATTEMPTING
WAITING default_taken ATTEMPTING
WAITING expired DEFERRED
REVIEWING approved LANDING
REVIEWING changes_requested ATTEMPTING
REVIEWING pull_closed BLOCKED
REVIEWING review_expired BLOCKED
LANDING landed LANDED
LANDING conflict ATTEMPTING
LANDING gate_red ATTEMPTING
LANDED released RELEASED
LANDED reverted DEFERRED
DEFERRED person_retries ATTEMPTING
BLOCKED person_retries ATTEMPTING
* gone GONE
"""

ATTEMPT = """
PREPARING prepared STARTING
STARTING started RUNNING
RUNNING upgrade STARTING
RUNNING infra_lost STARTING
RUNNING exited HARVESTING
RUNNING stalled HARVESTING
RUNNING timed_out HARVESTING
HARVESTING harvested CLEANING
CLEANING clean CLOSED
CLEANING cleanup_denied CLOSED
PREPARING failed HARVESTING
PREPARING stop HARVESTING
PREPARING internal_error HARVESTING
STARTING failed HARVESTING
STARTING stop HARVESTING
STARTING internal_error HARVESTING
RUNNING failed HARVESTING
RUNNING stop HARVESTING
RUNNING internal_error HARVESTING
"""

RELEASE = """
OPEN settled GATING
GATING green MERGING
GATING red NEEDS_PERSON
MERGING merged TAGGING
MERGING tree_differs GATING
MERGING conflict RESOLVING
RESOLVING resolved GATING
RESOLVING gave_up NEEDS_PERSON
TAGGING tagged PUBLISHING
TAGGING tag_conflict NEEDS_PERSON
PUBLISHING published PUBLISHED
NEEDS_PERSON person_acted GATING
* abandoned ABANDONED
"""

SPEC = {
    "director": (DIRECTOR, "BOOT", {"SHUTDOWN"}),
    "worker": (WORKER, "START", {"DONE", "BLOCKED"}),
    "ticket": (TICKET, "CLAIMING", {"RELEASED", "GONE"}),
    "attempt": (ATTEMPT, "PREPARING", {"CLOSED"}),
    "release": (RELEASE, "OPEN", {"PUBLISHED", "ABANDONED"}),
}


@pytest.mark.parametrize("name", SPEC)
def test_a_table_is_what_the_specification_says(name: str) -> None:
    text, start, final = SPEC[name]
    t = KINDS[name].table
    assert {tuple(m) for m in t.moves()} == {tuple(x.split()) for x in text.split("\n") if x}
    assert (t.start, t.final) == (start, frozenset(final))


TIMES = {
    ("attempt", "PREPARING"): "prepare_s",
    ("attempt", "STARTING"): "start_s",
    ("attempt", "HARVESTING"): "harvest_s",
    ("attempt", "CLEANING"): "clean_s",
    ("worker", "CODE"): "worker_wall_s",
    ("worker", "VALIDATE"): "validate_s",
}


def test_every_time_limit_is_a_field_of_the_policy() -> None:
    from harness.policy import Policy

    found = {(k, s): r.within for k, kind in KINDS.items() for s, r in kind.table.rows.items() if r.within}
    assert found == TIMES
    assert all(getattr(Policy(), field) > 0 for field in found.values())


@pytest.mark.parametrize("name", SPEC)
def test_every_state_that_goes_on_is_watched(name: str) -> None:
    t: Table = KINDS[name].table
    assert [s for s, r in t.rows.items() if r.watch is None and s not in t.final] == []


def test_a_machine_is_known_by_its_name() -> None:
    assert kind_of("acme/widget/ticket/12").name == "ticket"
    assert kind_of("acme/widget/attempt/release-0.4.0.1").name == "attempt"
    assert kind_of("acme/widget/ticket/12~2").name == "ticket"
    with pytest.raises(KeyError):
        kind_of("acme/widget/gizmo/1")
