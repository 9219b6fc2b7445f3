"""The one table of failures: class → retried?, on which counter, back to which state, and a text for people.

The one rule: handlers name the class; nobody else decides what follows from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Failure(StrEnum):
    AGENT_FAILED = "agent_failed"
    AGENT_NO_CHANGES = "agent_no_changes"
    AGENT_STALLED = "agent_stalled"
    AGENT_LOOPED = "agent_looped"
    AGENT_RATE_LIMITED = "agent_rate_limited"
    TESTS_FAILED = "tests_failed"
    VALIDATION_MISSING = "validation_missing"
    BASE_RED = "base_red"
    POLICY_VIOLATION = "policy_violation"
    CONFLICT = "conflict"
    INFRA_ENGINE = "infra_engine"
    INFRA_GATEWAY = "infra_gateway"
    INFRA_KILLED = "infra_killed"
    OOM = "oom"
    TIMEOUT = "timeout"
    FORGE_RATE_LIMITED = "forge_rate_limited"
    FORGE_DOWN = "forge_down"
    AUTH_FAILED = "auth_failed"
    BUDGET_EXHAUSTED = "budget_exhausted"
    CONFIG_INVALID = "config_invalid"
    IMAGE_UNAVAILABLE = "image_unavailable"
    DISK_FULL = "disk_full"
    GONE = "gone"
    UNKNOWN_EXIT = "unknown_exit"
    INTERNAL_ERROR = "internal_error"
    # Not failures of a run but ends that need a person; they take the same road through the table.
    QUESTION = "question"
    REVIEW_CHANGES = "review_changes"


class Counter(StrEnum):
    """What a failure is charged to. `NOBODY` is charged to nobody:
    a limit, a red base, a restarted engine."""

    AGENT = "agent"
    REWORK = "rework"
    INFRA = "infra"
    WAIT = "wait"
    NOBODY = "nobody"


class After(StrEnum):
    """What follows when it is not retried, or no more."""

    FATAL = "fatal"
    PERSON = "needs_human"
    GIVE_UP = "given_up"


@dataclass(frozen=True, slots=True)
class Rule:
    """`back_to` is the worker state that a retry inside the same attempt returns to, as a RETRY_WAIT event;
    empty when only a new attempt can help. `waits` says that the retry backs off instead of going at once."""

    retried: bool
    counter: Counter
    back_to: str
    after: After
    text: str
    waits: bool = True


_A, _R, _I, _W, _N = Counter.AGENT, Counter.REWORK, Counter.INFRA, Counter.WAIT, Counter.NOBODY
_FATAL, _PERSON, _UP = After.FATAL, After.PERSON, After.GIVE_UP
F = Failure

RULES: Mapping[Failure, Rule] = MappingProxyType(
    {
        F.AGENT_FAILED: Rule(True, _A, "retry_code", _UP, "the agent stopped with an error"),
        F.AGENT_NO_CHANGES: Rule(
            True, _A, "retry_code", _PERSON, "the agent ended without changing anything"
        ),
        F.AGENT_STALLED: Rule(True, _A, "retry_code", _UP, "the agent showed no sign of progress"),
        F.AGENT_LOOPED: Rule(False, _A, "", _UP, "the agent repeated the same step again and again"),
        F.AGENT_RATE_LIMITED: Rule(True, _W, "retry_code", _UP, "the model's provider asked to slow down"),
        F.TESTS_FAILED: Rule(True, _R, "retry_code", _UP, "the tests are still red", waits=False),
        F.VALIDATION_MISSING: Rule(
            False, _A, "", _PERSON, "nothing was validated: no validation command ran"
        ),
        F.BASE_RED: Rule(True, _N, "retry_sync", _PERSON, "the base branch itself is red"),
        F.POLICY_VIOLATION: Rule(False, _A, "", _PERSON, "the change touches what only a person may change"),
        F.CONFLICT: Rule(True, _R, "retry_sync", _UP, "the change conflicts with what has landed since"),
        F.INFRA_ENGINE: Rule(True, _I, "retry_code", _UP, "the container engine failed"),
        F.INFRA_GATEWAY: Rule(True, _I, "retry_code", _UP, "the gateway could not be reached"),
        F.INFRA_KILLED: Rule(True, _I, "retry_code", _UP, "the process was killed and nobody asked for it"),
        F.OOM: Rule(True, _I, "retry_code", _PERSON, "the memory limit was reached; raise containers.memory"),
        F.TIMEOUT: Rule(True, _A, "retry_code", _UP, "the time allowed for it has passed"),
        F.FORGE_RATE_LIMITED: Rule(True, _N, "retry_pr", _UP, "the forge asked to slow down"),
        F.FORGE_DOWN: Rule(True, _N, "retry_pr", _UP, "the forge does not answer"),
        F.AUTH_FAILED: Rule(False, _N, "", _PERSON, "a credential was refused"),
        F.BUDGET_EXHAUSTED: Rule(False, _N, "", _PERSON, "the budget is used up"),
        F.CONFIG_INVALID: Rule(False, _N, "", _PERSON, "the configuration cannot work"),
        F.IMAGE_UNAVAILABLE: Rule(True, _I, "retry_code", _PERSON, "the worker image is not there"),
        F.DISK_FULL: Rule(True, _I, "retry_code", _UP, "the disk is full"),
        F.GONE: Rule(False, _N, "", _FATAL, "the issue was closed, deleted, moved or unlabelled"),
        F.UNKNOWN_EXIT: Rule(True, _I, "retry_code", _UP, "it ended in a way that nothing explains"),
        F.INTERNAL_ERROR: Rule(False, _N, "", _PERSON, "the harness itself has a bug here"),
        F.QUESTION: Rule(False, _N, "", _PERSON, "the agent asks a person"),
        F.REVIEW_CHANGES: Rule(True, _R, "retry_code", _UP, "a reviewer asks for changes", waits=False),
    }
)

# The bug "a class without a rule" must be found on import, not at night.
_missing = set(Failure) - set(RULES)
if _missing:
    raise RuntimeError(f"failures without a rule: {sorted(_missing)}")


def rule(failure: str) -> Rule:
    """The rule of a class; an unknown class is a bug of ours and treated as one."""
    try:
        return RULES[Failure(failure)]
    except ValueError:
        return RULES[Failure.INTERNAL_ERROR]


def explain(failure: str, detail: str) -> str:
    """One sentence for people: the class in words, then what was seen. What went away is said by the detail
    alone, for it need not be the issue: a pull that was closed, a release that was abandoned."""
    text = rule(failure).text
    if failure == Failure.GONE and detail[:1].isalpha():
        return detail
    return f"{text}: {detail}" if detail else text
