"""The epoch: every start takes the next one, in the store and on the forge, before it writes anything else."""

from __future__ import annotations

from uuid import uuid4

from harness.adapters.git import GitRepo
from harness.adapters.store.sql import SqlStore
from harness.compose.errors import StartError
from harness.core.result import Err, Ok
from harness.failures import Failure
from harness.loop import SteadyClock

EPOCH_REF = "refs/harness/epoch"


def take_epoch(store: SqlStore, repo: GitRepo, clock: SteadyClock, dry: bool) -> tuple[int, float]:
    """max(store, forge) + 1, pushed to the forge with a lease. A dry run takes it in its own store only."""
    highest, there = store.stored_epoch(), ""
    if not dry:
        ready = repo.prepare().bind(lambda _: repo.remote_refs())
        if not isinstance(ready, Ok):
            raise StartError(f"the repository cannot be read: {why(ready)}")
        there = ready.value.get(EPOCH_REF, "")
        if there:
            told = repo.fetch((EPOCH_REF,)).bind(lambda _: repo.message(there))
            if not isinstance(told, Ok):
                raise StartError(f"{EPOCH_REF} cannot be read: {why(told)}")
            highest = max(highest, _number(told.value))
    epoch = highest + 1
    if not dry:
        # Two that start in the same second must not make the same commit: for a push of what is there succeeds.
        said = f"epoch {epoch} {uuid4().hex}"
        pushed = repo.note_commit(said, there).bind(lambda sha: repo.push(EPOCH_REF, sha, there))
        if isinstance(pushed, Err) and pushed.failure == Failure.CONFLICT:
            raise StartError("another director took this repository a moment ago", 4)
        if not isinstance(pushed, Ok):
            raise StartError(f"{EPOCH_REF} cannot be advanced: {why(pushed)}")
    taken = store.set_epoch(epoch)
    if not isinstance(taken, Ok):
        raise StartError(f"another director took this data folder: {why(taken)}", 4)
    return epoch, clock.now()


def _number(message: str) -> int:
    words = message.split()
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


def why(result: object) -> str:
    return result.detail if isinstance(result, Err) else ""
