"""Gates: the name of a validation is the fact it establishes, so the same thing is never validated twice."""

from __future__ import annotations

from typing import Any

from harness.core.item import Item
from harness.core.journal import digest
from harness.core.result import Err, Ok, Pass, Result
from harness.domain import Absent
from harness.effects import StartGate
from harness.failures import Failure
from harness.machines.kind import Gate, Seen, known, wait
from harness.policy import Policy

KILLED = frozenset({None, 137, 143})  # what an engine or a stranger did to them, not they themselves


def gate_name(policy: Policy, tree: str, prepare: str = "") -> str:
    """`gate-<hash of (tree, commands, image, prepare key)>`."""
    return f"gate-{digest([tree, list(policy.commands), policy.image, prepare])[:20]}"


def prepare_name(policy: Policy, sha: str) -> str:
    """Names the dependencies prepared from the trusted commit that a release began with; empty when nothing
    is to be prepared. All attempts and gates of the release share them."""
    if not policy.prepare:
        return ""
    return f"prepare-{digest([list(policy.prepare), policy.image, sha])[:20]}"


def start_gate(policy: Policy, tree: str, sha: str, prepare: str = "") -> StartGate:
    return StartGate(gate_name(policy, tree, prepare), sha, policy.commands, policy.image, prepare)


def prepared(seen: Seen, name: str) -> Result[str]:
    """Whether these dependencies are there: Ok, an Err when their commands failed, or Pass."""
    if not name:
        return Ok("nothing to prepare")
    job = seen[f"job/{name}"]
    if not known(job):
        return wait("looking at the dependencies", job)
    if isinstance(job, Absent) or job.phase in ("LOST", "REJECTED"):
        return Err(Failure.INFRA_KILLED, "the prepare commands left no exit status")
    if job.phase != "EXITED":
        return Pass("dependencies are being prepared")
    if job.oom or job.exit in KILLED:
        return Err(Failure.INFRA_KILLED, "the prepare commands were killed")
    if job.exit != 0:
        return Err(Failure.CONFIG_INVALID, f"the prepare commands exited {job.exit}")
    return Ok(name)


def ended(item: Item[Any], name: str) -> bool:
    """Whether this gate's verdict was kept and its container removed, after it was last started."""
    mine = [i for i in item.intents if i.effect.get("name") == name and i.status == "done"]
    return bool(mine) and mine[-1].effect.get("$") == "EndGate"


def judge(seen: Seen, name: str) -> Result[str]:
    """Ok("green"), an Err with the class of what went wrong, or Pass while it runs."""
    if not seen.policy.commands:
        return Err(Failure.VALIDATION_MISSING, "no validation command is configured")
    gate: Gate = seen[f"gate/{name}"]
    if not known(gate):
        return wait("looking at the gate", gate)
    if gate.verdict == "running":
        return Pass("the gate is running")
    if gate.verdict == "lost":
        return Err(Failure.INFRA_KILLED, "the gate left no exit status")
    if gate.verdict == "red":
        return Err(Failure.TESTS_FAILED, f"the gate exited {gate.exit}\n{gate.log_tail}")
    return Ok("green")
