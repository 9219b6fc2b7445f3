"""The attempt's table."""

from __future__ import annotations

from harness.core.fsm import Row, table
from harness.machines.attempt import running, ways
from harness.machines.attempt.states import Attempt, E, S, fold, rest
from harness.machines.kind import Kind

EARLY: dict[str, str] = {E.FAILED: S.HARVESTING, E.STOP: S.HARVESTING, E.INTERNAL_ERROR: S.HARVESTING}

TABLE = table(
    "attempt",
    S,
    S.PREPARING,
    {
        S.PREPARING: Row(
            ways.begin_preparing, ways.watch_preparing, {E.PREPARED: S.STARTING, **EARLY}, within="prepare_s"
        ),
        S.STARTING: Row(
            ways.begin_starting, ways.watch_starting, {E.STARTED: S.RUNNING, **EARLY}, within="start_s"
        ),
        S.RUNNING: Row(
            None,
            running.watch,
            {
                E.UPGRADE: S.STARTING,
                E.INFRA_LOST: S.STARTING,
                E.EXITED: S.HARVESTING,
                E.STALLED: S.HARVESTING,
                E.TIMED_OUT: S.HARVESTING,
                **EARLY,
            },
        ),
        S.HARVESTING: Row(
            ways.begin_harvesting, ways.watch_harvesting, {E.HARVESTED: S.CLEANING}, within="harvest_s"
        ),
        S.CLEANING: Row(
            ways.begin_cleaning,
            ways.watch_cleaning,
            {E.CLEAN: S.CLOSED, E.CLEANUP_DENIED: S.CLOSED},
            within="clean_s",
        ),
        S.CLOSED: Row(),
    },
    final=(S.CLOSED,),
)

KIND = Kind("attempt", TABLE, Attempt, fold, ways.wants, ways.fails, ways.alarms, ways.alarm, rest)
