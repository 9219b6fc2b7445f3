"""The machines' tables, written down by hand from the specification: "any" is every state that is not final."""

from __future__ import annotations

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
any rate_limited COOLDOWN
any transient_failures COOLDOWN
any terminate SHUTDOWN
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
any retryable RETRY_WAIT
any fatal BLOCKED
any needs_human BLOCKED
any retries_exhausted BLOCKED
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
any gone GONE
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
any abandoned ABANDONED
"""

# name: (rows, start, final states)
TABLES: dict[str, tuple[str, str, set[str]]] = {
    "director": (DIRECTOR, "BOOT", {"SHUTDOWN"}),
    "worker": (WORKER, "START", {"DONE", "BLOCKED"}),
    "ticket": (TICKET, "CLAIMING", {"RELEASED", "GONE"}),
    "attempt": (ATTEMPT, "PREPARING", {"CLOSED"}),
    "release": (RELEASE, "OPEN", {"PUBLISHED", "ABANDONED"}),
}


def relation(rows: str, final: set[str]) -> tuple[set[str], set[tuple[str, str, str]]]:
    """The states, and every (from, event, to)."""
    moves = [tuple(line.split()) for line in rows.strip().splitlines()]
    states = {s for a, _, to in moves for s in (a, to)} - {"any"}
    whole = {
        (state, event, to) for a, event, to in moves for state in (states - final if a == "any" else {a})
    }
    return states, whole
