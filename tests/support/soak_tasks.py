"""The tasks of a soak: a few lines of work each, and for a chosen share of them one thing that goes wrong.

The one rule: what a task must come to follows from its kind alone, whatever else goes wrong around it. What
goes wrong around it (the forge, the worker, the director) must never decide.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LANDS, DEFERRED, BLOCKED = "RELEASED", "DEFERRED", "BLOCKED"
# Validation is one look at the tree: what is soaked is the harness, not a test suite.
CHECK = "test ! -e RED && test -e README.md"
VICTIM_S = 4.0
SPAM_BYTES = 3 << 20

# kind: what the issue must come to in the end
KINDS: Mapping[str, str] = {
    "fails once": LANDS,
    "hangs once": LANDS,
    "red once": LANDS,
    "limited once": LANDS,
    "killed": LANDS,
    "loud": LANDS,
    "leaves a process": LANDS,
    "collides": LANDS,
    "always fails": DEFERRED,
    "always red": DEFERRED,
    "changes nothing": BLOCKED,
    "touches what it must not": BLOCKED,
}


@dataclass(frozen=True)
class Task:
    """One issue. `kind` is empty for one of which nothing is wrong."""

    number: int
    kind: str

    @property
    def end(self) -> str:
        return KINDS.get(self.kind, LANDS)

    @property
    def title(self) -> str:
        return f"Write done/{self.number}.txt" + (f" ({self.kind})" if self.kind else "")

    @property
    def file(self) -> str:
        return f"done/{self.number}.txt"


def tasks(count: int, faults: float, dice: random.Random) -> tuple[Task, ...]:
    """Exactly `faults` of them go wrong, every kind as often as the others as far as that goes."""
    wrong = sorted(dice.sample(range(1, count + 1), round(count * faults)))
    kinds = list(KINDS)
    dice.shuffle(kinds)
    kind = {n: kinds[i % len(kinds)] for i, n in enumerate(wrong)}
    return tuple(Task(n, kind.get(n, "")) for n in range(1, count + 1))


def play(task: Task) -> list[dict[str, Any]]:
    """The rounds of the scripted agent."""
    good: dict[str, Any] = {"say": "Done.", "write": {task.file: f"{task.number}\n"}}
    failing = {"say": "It does not work.", "status": "error", "exit": 1}
    rounds: Mapping[str, list[dict[str, Any]]] = {
        "fails once": [failing, good],
        "hangs once": [{"sleep_s": 900}, good],
        "red once": [good | {"write": {"RED": "red\n"}}, good | {"delete": ["RED"]}],
        "limited once": [{"say": "429", "status": "rate_limited", "retry_after_s": 1}, good],
        "killed": [good | {"sleep_s": VICTIM_S}],
        "loud": [good | {"spam_bytes": SPAM_BYTES}],
        "leaves a process": [good | {"background": True}],
        "collides": [good | {"write": {task.file: "", "shared.txt": f"{task.number}\n"}}],
        "always fails": [failing],
        "always red": [good | {"write": {"RED": "red\n", task.file: ""}}],
        "changes nothing": [{"say": "Nothing to do."}],
        "touches what it must not": [{"say": "Done.", "write": {".github/workflows/x.yml": "on: push\n"}}],
    }
    return rounds.get(task.kind, [good])


WRITE, READ = "^(POST|PATCH|PUT|DELETE) /repos/", "^GET /repos/"


def forge_faults(rate: float, seed: int) -> list[dict[str, Any]]:
    """`rate` of all writes fare badly, half of them after they were done; of reads and of git calls a part."""
    part = rate / 5
    shapes: list[tuple[str, str, float, dict[str, Any]]] = [
        (WRITE, "status-before", part, {"status": 503}),
        (WRITE, "drop-before", part, {}),
        (WRITE, "status-after", part, {"status": 502}),
        (WRITE, "drop-after", part, {}),
        (WRITE, "secondary-limit", part / 4, {"status": 429, "retry_after": 1}),
        (READ, "status-before", part / 4, {"status": 500}),
        (READ, "drop-before", part / 4, {}),
        (READ, "secondary-limit", part / 40, {}),
        ("git-receive-pack$", "status-before", part / 2, {"status": 503}),
        ("git-receive-pack$", "drop-after", part / 2, {}),
        ("git-upload-pack$", "drop-before", part / 4, {}),
    ]
    return [
        {"match": match, "kind": kind, "rate": share, "times": 0, "seed": seed + n, **more}
        for n, (match, kind, share, more) in enumerate(shapes)
        if share > 0
    ]
