"""Result: it happened (`Ok`), it failed as foreseen (`Err`), or there is nothing to do yet (`Pass`).

The one rule: a bug is none of these. A bug raises, and only the loop and the command line catch it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, NoReturn, TypeAlias, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")


class Code(StrEnum):
    """Codes that a caller of a machine can get, beside the failure classes of `harness.failures`."""

    INVALID_TRANSITION = "INVALID_TRANSITION"
    TERMINAL_STATE_VIOLATION = "TERMINAL_STATE_VIOLATION"
    MISSING_TRANSITION_DEFINITION = "MISSING_TRANSITION_DEFINITION"
    TRANSIENT_ERROR = "TRANSIENT_ERROR"


ILLEGAL = frozenset(
    {Code.INVALID_TRANSITION, Code.TERMINAL_STATE_VIOLATION, Code.MISSING_TRANSITION_DEFINITION}
)


class IllegalTransitionError(Exception):
    """A move that no table allows was unwrapped: the caller has a bug."""


class UnwrapError(Exception):
    """A result without a value was unwrapped."""


@dataclass(frozen=True, slots=True)
class Ok(Generic[T_co]):
    """It happened."""

    value: T_co

    @property
    def is_ok(self) -> bool:
        return True

    def map(self, f: Callable[[T_co], U]) -> Ok[U]:
        return Ok(f(self.value))

    def bind(self, f: Callable[[T_co], Result[U]]) -> Result[U]:
        return f(self.value)

    def fold(
        self, ok: Callable[[T_co], U], err: Callable[[Err], U], wait: Callable[[Pass], U] | None = None
    ) -> U:
        return ok(self.value)

    def unwrap(self) -> T_co:
        return self.value


@dataclass(frozen=True, slots=True)
class Err:
    """It failed as foreseen.

    `failure` is a class of the one failure table, or a `Code`. `maybe` says that the change may have
    happened all the same (the answer was lost); `not_before` (POSIX seconds) that asking sooner is pointless.
    """

    failure: str
    detail: str = ""
    maybe: bool = False
    not_before: float | None = None

    @property
    def is_ok(self) -> bool:
        return False

    @property
    def retryable(self) -> bool:
        """Of the machine's own codes only; for failure classes ask `harness.failures`."""
        return self.failure == Code.TRANSIENT_ERROR

    def map(self, f: Callable[..., object]) -> Err:
        return self

    def bind(self, f: Callable[..., object]) -> Err:
        return self

    def fold(
        self, ok: Callable[..., U], err: Callable[[Err], U], wait: Callable[[Pass], U] | None = None
    ) -> U:
        return err(self)

    def unwrap(self) -> NoReturn:
        if self.failure in ILLEGAL:
            raise IllegalTransitionError(f"{self.failure}: {self.detail}")
        raise UnwrapError(f"{self.failure}: {self.detail}")


@dataclass(frozen=True, slots=True)
class Pass:
    """Nothing to do yet; people see `message` as "waiting: …"."""

    message: str = ""

    @property
    def is_ok(self) -> bool:
        return False

    def map(self, f: Callable[..., object]) -> Pass:
        return self

    def bind(self, f: Callable[..., object]) -> Pass:
        return self

    def fold(
        self, ok: Callable[..., U], err: Callable[[Err], U], wait: Callable[[Pass], U] | None = None
    ) -> U:
        if wait is None:
            raise UnwrapError(f"waiting: {self.message}")
        return wait(self)

    def unwrap(self) -> NoReturn:
        raise UnwrapError(f"waiting: {self.message}")


Result: TypeAlias = Ok[T] | Err | Pass
