"""The worker's table."""

from __future__ import annotations

from harness.core.fsm import Row, table
from harness.machines.kind import Kind
from harness.machines.worker import checkpoint, code, deliver, retry, validate, ways
from harness.machines.worker.states import E, S, Worker, fold

TABLE = table(
    "worker",
    S,
    S.START,
    {
        S.START: Row(None, ways.watch_start, {E.STARTED: S.UPGRADE_CHECKPOINT}),
        S.UPGRADE_CHECKPOINT: Row(
            None, checkpoint.watch, {E.CURRENT: S.SYNC_MAIN, E.UPGRADE_DEFERRED: S.SYNC_MAIN}
        ),
        S.SYNC_MAIN: Row(ways.begin_sync, ways.watch_sync, {E.SYNCED: S.CONTEXT_LOAD}),
        S.CONTEXT_LOAD: Row(ways.begin_context, ways.watch_context, {E.CONTEXT_LOADED: S.CODE}),
        S.CODE: Row(code.begin, code.watch, {E.CODED: S.VALIDATE}, within="worker_wall_s"),
        S.VALIDATE: Row(validate.begin, validate.watch, {E.VALIDATED: S.COMMIT}, within="validate_s"),
        S.COMMIT: Row(deliver.begin_commit, deliver.watch_commit, {E.COMMITTED: S.PR_CREATE}),
        S.PR_CREATE: Row(deliver.begin_pull, deliver.watch_pull, {E.PR_OPENED: S.REVIEW_REQUEST}),
        S.REVIEW_REQUEST: Row(deliver.begin_review, deliver.watch_review, {E.REVIEW_REQUESTED: S.DONE}),
        S.RETRY_WAIT: Row(
            retry.begin,
            retry.watch,
            {
                E.RETRY_UPGRADE: S.UPGRADE_CHECKPOINT,
                E.RETRY_SYNC: S.SYNC_MAIN,
                E.RETRY_CONTEXT: S.CONTEXT_LOAD,
                E.RETRY_CODE: S.CODE,
                E.RETRY_VALIDATE: S.VALIDATE,
                E.RETRY_COMMIT: S.COMMIT,
                E.RETRY_PR: S.PR_CREATE,
                E.RETRY_REVIEW: S.REVIEW_REQUEST,
            },
        ),
        S.DONE: Row(),
        S.BLOCKED: Row(),
    },
    final=(S.DONE, S.BLOCKED),
    anywhere={
        E.RETRYABLE: S.RETRY_WAIT,
        E.FATAL: S.BLOCKED,
        E.NEEDS_HUMAN: S.BLOCKED,
        E.RETRIES_EXHAUSTED: S.BLOCKED,
    },
)

KIND = Kind("worker", TABLE, Worker, fold, ways.wants, retry.fails, ways.alarms, ways.alarm)
