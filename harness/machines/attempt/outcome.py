"""What a worker's end amounts to: one table from what the engine and the worker said to a class.

The one rule: no single sign is believed alone. 137 is out of memory only with the engine's flag, ours only
when we asked, the engine's only when it restarted; an exit code of 0 only says that it is worth looking for
evidence. The first row that matches decides; its failure's counter comes from the table of failures.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.failures import Counter, Failure, rule

DONE, BLOCKED = "DONE", "BLOCKED"
# Three limits, three reasons: agent_stalled when it shows no progress, timeout when its time is up, and this one.
OUTPUT_LIMIT = "OUTPUT_LIMIT"


@dataclass(frozen=True, slots=True)
class Ended:
    """What was seen of something that does not run any more.

    `exit` is None when nobody knows; `lost` says that the container itself is gone or broken.
    `engine_changed`: the engine restarted since the start. `asked` is what we asked of it last: stop, kill,
    timeout, stalled, upgrade, or nothing. `final` is the worker's last reported state when that was final,
    DONE or BLOCKED, and `failure` the class that it gave for being blocked. `deadline_passed`: its time was
    over when it ended; `flooded`: the runtime ended it because of its output.
    """

    exit: int | None = None
    oom: bool = False
    signal: int | None = None
    engine_changed: bool = False
    lost: bool = False
    asked: str = ""
    deadline_passed: bool = False
    flooded: bool = False
    final: str = ""
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`kind` is done, upgrade, stopped, fatal, person, infra (not the worker's fault: start it again) or
    failed. `failure` and `counter` are empty for the first three. `warning` goes to the record beside it."""

    kind: str
    failure: str
    counter: str
    text: str
    warning: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A pattern (None matches anything) and its outcome. `failure` "*" takes the one that the worker
    reported, else `otherwise`. `{code}` in the texts is the exit code."""

    kind: str
    failure: str
    text: str
    warning: str = ""
    otherwise: str = ""
    counter: str = ""
    code: frozenset[int | None] | None = None
    oom: bool | None = None
    changed: bool | None = None
    deadline: bool | None = None
    flooded: bool | None = None
    asked: frozenset[str] | None = None
    final: str | None = None

    def matches(self, seen: Ended, code: int | None) -> bool:
        return (
            (self.code is None or code in self.code)
            and (self.oom is None or self.oom == seen.oom)
            and (self.changed is None or self.changed == seen.engine_changed)
            and (self.deadline is None or self.deadline == seen.deadline_passed)
            and (self.flooded is None or self.flooded == seen.flooded)
            and (self.asked is None or seen.asked in self.asked)
            and (self.final is None or self.final == seen.final)
        )


def _codes(*codes: int | None) -> frozenset[int | None]:
    return frozenset(codes)


F = Failure
KILLED = _codes(None, 137, 143)  # how an engine ends a container, or nobody knows
SIGNALLED = _codes(129, 130, 131, 137, 143)  # HUP, INT, QUIT, KILL, TERM: somebody's doing
CRASHED = _codes(132, 133, 134, 135, 136, 139, 159)  # ILL, TRAP, ABRT, BUS, FPE, SEGV, SYS: its own
STOP = frozenset({"stop", "kill"})
MEMORY = "the memory limit was reached inside; the worker itself survived"
LATE = "it was done before it ended with {code}"

ROWS: tuple[Row, ...] = (
    # Its word that it was done stands, whatever ended it afterwards: the evidence decides anyway.
    Row("done", "", "it says that it is done", MEMORY, code=_codes(0), oom=True, final=DONE),
    Row("done", "", "it says that it is done", code=_codes(0), final=DONE),
    Row("done", "", "it says that it is done", LATE, final=DONE),
    # Blocked, and by its exit code it says for whom.
    Row("fatal", "*", "blocked: {failure}", otherwise=F.AGENT_FAILED, code=_codes(10)),
    Row("person", "*", "blocked, a person is needed: {failure}", otherwise=F.QUESTION, code=_codes(11)),
    Row(
        "failed", "*", "blocked: {failure}", "it ended with {code} after that", F.AGENT_FAILED, final=BLOCKED
    ),
    # We asked: the reason that we had is the reason, also for a 137 with a memory flag on it.
    Row("stopped", "", "stopped as asked", MEMORY, oom=True, asked=STOP),
    Row("stopped", "", "stopped as asked", asked=STOP),
    Row("failed", F.TIMEOUT, "its time was up", MEMORY, oom=True, asked=frozenset({"timeout"})),
    Row("failed", F.TIMEOUT, "its time was up", asked=frozenset({"timeout"})),
    Row("failed", F.AGENT_STALLED, "it showed no sign of life", asked=frozenset({"stalled"})),
    # The runtime ended it for its output, politely or not.
    Row("failed", F.AGENT_FAILED, f"{OUTPUT_LIMIT}: it wrote more output than it may", flooded=True),
    # Codes of the worker's contract.
    Row("upgrade", "", "it wants to go on in the new image", code=_codes(75)),
    Row("upgrade", "", "it ended for the new image", asked=frozenset({"upgrade"}), code=_codes(0, 143)),
    Row(
        "upgrade",
        "",
        "it was ended for the new image",
        asked=frozenset({"upgrade"}),
        code=_codes(137),
        oom=False,
    ),
    Row("done", "", "it exited 0", MEMORY, code=_codes(0), oom=True),
    Row("done", "", "it exited 0", "it did not say in what state", code=_codes(0)),
    Row("failed", F.INTERNAL_ERROR, "the worker found a bug in itself", code=_codes(70)),
    # Memory: the flag is the container's, so it may be a child's; it explains every end but a good one.
    Row("failed", F.OOM, "the memory limit was reached", code=_codes(137), oom=True),
    # The engine went away and took it along (143 on a graceful stop, 137 or 143 after a crash).
    Row("infra", F.INFRA_ENGINE, "the engine restarted", counter=Counter.NOBODY, code=KILLED, changed=True),
    Row("failed", F.OOM, "it ended with {code} after the memory limit was reached", oom=True),
    Row("failed", F.TIMEOUT, "its time was up", code=KILLED | SIGNALLED, deadline=True),
    # Nobody of ours.
    Row("infra", F.INFRA_KILLED, "killed by signal {signal}, and nobody asked for it", code=SIGNALLED),
    Row("infra", F.INFRA_KILLED, "its container is gone, and nobody asked for it", code=_codes(None)),
    Row("infra", F.UNKNOWN_EXIT, "it crashed with signal {signal}", code=CRASHED),
    Row("infra", F.INFRA_ENGINE, "the engine could not run it (125)", code=_codes(125)),
    Row("failed", F.CONFIG_INVALID, "its command cannot be executed in that image (126)", code=_codes(126)),
    Row("failed", F.CONFIG_INVALID, "its command is not in that image (127)", code=_codes(127)),
    Row("failed", F.CONFIG_INVALID, "the worker refuses its configuration (2)", code=_codes(2)),
    Row("failed", "*", "the worker gave up: {failure}", otherwise=F.UNKNOWN_EXIT, code=_codes(1)),
    Row("infra", F.UNKNOWN_EXIT, "it exited {code}, which is none of its codes"),
)


def classify(seen: Ended) -> Outcome:
    """The first row that matches. The last one matches everything."""
    code = 128 + seen.signal if seen.signal else seen.exit
    if seen.lost:
        code = None
    row = next(r for r in ROWS if r.matches(seen, code))
    failure = row.failure
    if failure == "*":
        failure = seen.failure if seen.failure in set(Failure) else row.otherwise
        # The worker saw its agent killed and could not know by whom; the flag is the container's.
        failure = F.OOM if seen.oom and failure == F.INFRA_KILLED else failure
    words = {
        "code": "an unknown exit" if code is None else code,
        "signal": (code or 128) - 128,
        "failure": rule(failure).text if failure else "",
    }
    counter = row.counter or (str(rule(failure).counter) if failure else "")
    return Outcome(
        row.kind, str(failure), str(counter), row.text.format(**words), row.warning.format(**words)
    )
