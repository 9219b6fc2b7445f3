"""The epoch: every start takes the next one, in the store and on the forge, before it writes anything else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import uuid4

from harness.adapters.git import GitRepo
from harness.adapters.store.sql import SqlStore
from harness.compose.errors import StartError
from harness.core.result import Err, Ok
from harness.failures import Failure
from harness.loop import SteadyClock
from harness.ports import Repo
from harness.tick import Fenced

EPOCH_REF = "refs/harness/epoch"


@dataclass
class Succession:
    """Whether another director took the repository since: with a copy of our data folder, or with one of its
    own, which our store cannot know of. `known` are epochs by the commit that the forge's ref pointed at."""

    epoch: int
    known: dict[str, int] = field(default_factory=dict)
    successor: int = 0

    def look(self, repo: Repo, refs: Mapping[str, str]) -> None:
        """To be told of the forge's refs. What cannot be read now is read with the next ones; an older epoch
        is only a list that lags."""
        sha = refs.get(EPOCH_REF, "")
        if sha and sha not in self.known:
            told = repo.fetch((EPOCH_REF,)).bind(lambda _: repo.message(sha))
            if isinstance(told, Ok):
                self.known = {sha: _number(told.value)}
        if self.known.get(sha, 0) > self.epoch:
            self.successor = self.known[sha]

    def check(self) -> None:
        """Raises Fenced: whoever came later acts, and this one ends at once."""
        if self.successor:
            raise Fenced(
                f"another director took this repository (epoch {self.successor} on the forge, ours is "
                f"{self.epoch}): only one may run; see which data folder and machine it is started from"
            )


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
