"""Time in the simulator: one true time, and what each process, the engine and the forge take it for.

The one rule: time passes only when the simulator says so, except that every record and effect takes two
microseconds, so that no two of them are simultaneous.
"""

from __future__ import annotations

from dataclasses import dataclass

START = 1_796_000_000.0
STEP_S = 2e-6


@dataclass(slots=True)
class Time:
    """True time, POSIX seconds. `wall_s` is by how much the host's wall clock is off just now."""

    at: float = START
    wall_s: float = 0.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    def touch(self) -> None:
        """Something was written: the next thing is later."""
        self.at += STEP_S


@dataclass(slots=True)
class ProcessClock:
    """A process's clock: the wall clock at its start and steady from there, as `loop.SteadyClock`."""

    time: Time
    offset_s: float

    @classmethod
    def started(cls, time: Time) -> ProcessClock:
        return cls(time, time.wall_s)

    def now(self) -> float:
        return self.time.at + self.offset_s

    def monotonic(self) -> float:
        return self.time.at
