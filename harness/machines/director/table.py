"""The director's table."""

from __future__ import annotations

from harness.core.fsm import Row, table
from harness.machines.director import planning, ways
from harness.machines.director.states import Director, E, S, fold
from harness.machines.kind import Kind

TABLE = table(
    "director",
    S,
    S.BOOT,
    {
        S.BOOT: Row(
            None, planning.watch_boot, {E.RELEASE_MISSING: S.RELEASE_PLAN, E.RELEASE_ACTIVE: S.DISCOVER}
        ),
        S.RELEASE_PLAN: Row(None, planning.watch_plan, {E.RELEASE_PLANNED: S.DISCOVER}),
        S.DISCOVER: Row(
            None,
            ways.watch_discover,
            {
                E.WORK_AVAILABLE: S.DISPATCH,
                E.NOTHING_TO_DISPATCH: S.MONITOR,
                E.RELEASE_MISSING: S.RELEASE_PLAN,
                E.NO_WORK: S.SELF_REVIEW,
            },
        ),
        S.DISPATCH: Row(ways.begin_dispatch, ways.watch_dispatch, {E.DISPATCHED: S.MONITOR}),
        S.MONITOR: Row(None, ways.watch_monitor, {E.TICK: S.DISCOVER, E.RELEASE_READY: S.RELEASE_FINALIZE}),
        S.RELEASE_FINALIZE: Row(
            None,
            ways.watch_finalize,
            {E.RELEASE_PUBLISHED: S.BROADCAST, E.RELEASE_WAITS: S.DISCOVER, E.GATE_FAILED: S.DISCOVER},
        ),
        S.BROADCAST: Row(ways.begin_broadcast, ways.watch_broadcast, {E.BROADCAST_DONE: S.DISCOVER}),
        S.SELF_REVIEW: Row(None, ways.watch_self_review, {E.REVIEWED: S.DISCOVER, E.TICK: S.DISCOVER}),
        S.COOLDOWN: Row(None, ways.watch_cooldown, {E.COOLDOWN_EXPIRED: S.DISCOVER}),
        S.SHUTDOWN: Row(),
    },
    final=(S.SHUTDOWN,),
    anywhere={
        E.RATE_LIMITED: S.COOLDOWN,
        E.TRANSIENT_FAILURES: S.COOLDOWN,
        E.TERMINATE: S.SHUTDOWN,
    },
)

KIND = Kind("director", TABLE, Director, fold, ways.wants, ways.fails, ways.alarms, ways.alarm)
