"""VALIDATE: build and test the work. Green is committed; red goes back to the agent with the log.

It is advice to the agent. What lands is decided by the director's own gate.
"""

from __future__ import annotations

from harness.core.item import Item
from harness.core.result import Err, Pass
from harness.domain import Run
from harness.effects import Effect, StartValidation
from harness.failures import Failure
from harness.machines.attempt.outcome import SIGNALLED
from harness.machines.kind import Seen, Watch, known, ok, wait
from harness.machines.worker.code import over
from harness.machines.worker.states import E, Worker, run_id


def begin(item: Item[Worker], seen: Seen) -> tuple[Effect, ...]:
    return (StartValidation(run_id(item), item.data.commands),)


def watch(item: Item[Worker], seen: Seen) -> Watch:
    run: Run = seen[f"run/{run_id(item)}"]
    if not known(run):
        return wait("looking at the validation", run)
    if run.running:
        return Pass("validation is running")
    if run.limit:
        return over(run, "the validation")
    if run.lost or run.exit is None or (run.exit in SIGNALLED and not run.commands_run):
        return Err(Failure.INFRA_KILLED, "the validation left no exit status")
    if run.commands_run == 0:
        return Err(Failure.VALIDATION_MISSING, "nothing was validated")
    if run.exit == 0:
        return ok(E.VALIDATED, f"{run.commands_run} commands passed")
    return Err(Failure.TESTS_FAILED, f"{run.failed_command} exited {run.exit}\n{run.log_tail}")
