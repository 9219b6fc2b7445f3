"""Faults to inject: rules that say which request fares how, loaded from a file or set while it runs.

The one rule: a plan with the same rules, seeds and requests does the same again.
"""

from __future__ import annotations

import json
import random
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from harness.forge.errors import ForgeError

BEFORE = ("status-before", "drop-before", "primary-limit", "secondary-limit", "base-modified", "push-reject")
AFTER = ("status-after", "drop-after", "slow")
SHAPED = ("stale", "not-found-after-create", "mergeable-null")
KINDS = BEFORE + AFTER + SHAPED
RULES_LIMIT = 1000
SERVED_LIMIT = 200


@dataclass(frozen=True)
class Rule:
    """One fault. ``match`` is a regex searched in "METHOD /path" (no query, no /api/v3).

    ``skip`` matching requests pass first, then it fires ``times`` times (0: without end), each with
    probability ``rate``. ``n`` is for the kinds with a number: how often an answer is stale, missing, null
    or "base modified".
    """

    match: str
    kind: str
    skip: int = 0
    times: int = 1
    rate: float = 1.0
    seed: int = 0
    status: int = 502
    message: str = ""
    seconds: float = 0.0
    reset_s: float = 60.0
    retry_after_s: float | None = None
    n: int = 1
    reason: str = "pre-receive hook declined"
    enforce: bool | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ForgeError(f"fault kind {self.kind!r} is unknown: use one of {', '.join(KINDS)}")
        try:
            re.compile(self.match)
        except re.error as error:
            raise ForgeError(f"fault match {self.match!r} is not a regular expression: {error}") from error
        for item in fields(self):
            value = getattr(self, item.name)
            if item.type in ("int", "float") and (
                isinstance(value, bool) or not isinstance(value, int | float)
            ):
                raise ForgeError(f"fault key {item.name} must be a number, not {value!r}")
        if not 0 <= self.rate <= 1:
            raise ForgeError(f"fault rate {self.rate} is not between 0 and 1")


@dataclass
class _Armed:
    """A rule with what it has seen so far."""

    rule: Rule
    dice: random.Random
    seen: int = 0
    fired: int = 0

    def due(self, subject: str) -> bool:
        if not re.search(self.rule.match, subject):
            return False
        self.seen += 1
        times = self.rule.n if self.rule.kind in ("base-modified", "mergeable-null") else self.rule.times
        if self.seen <= self.rule.skip or (times and self.fired >= times):
            return False
        if self.rule.rate < 1 and self.dice.random() >= self.rule.rate:
            return False
        self.fired += 1
        return True


@dataclass
class FaultPlan:
    """The rules in force, and what they remember of earlier answers. Used under the state's lock."""

    rules: Iterable[Rule | Mapping[str, Any]] = ()
    _armed: list[_Armed] = field(default_factory=list)
    _served: dict[str, bytes] = field(default_factory=dict)
    _stale_left: dict[str, int] = field(default_factory=dict)
    _hidden: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.replace(self.rules)

    def replace(self, rules: Iterable[Rule | Mapping[str, Any]]) -> None:
        """Put these rules in force instead of all others; what was remembered is forgotten."""
        made = [rule if isinstance(rule, Rule) else _rule(rule) for rule in rules]
        if len(made) > RULES_LIMIT:
            raise ForgeError(f"{len(made)} fault rules are too many: at most {RULES_LIMIT}")
        self._armed = [_Armed(rule, random.Random(rule.seed)) for rule in made]
        self._stale_left.clear()
        self._hidden.clear()

    def add(self, *rules: Rule | Mapping[str, Any]) -> None:
        made = [rule if isinstance(rule, Rule) else _rule(rule) for rule in rules]
        self._armed += [_Armed(rule, random.Random(rule.seed)) for rule in made]

    def show(self) -> list[dict[str, Any]]:
        return [asdict(item.rule) | {"seen": item.seen, "fired": item.fired} for item in self._armed]

    def pick(self, method: str, path: str) -> Rule | None:
        """The first rule that is due for a request, of those that act before or after the work."""
        subject = f"{method} {path}"
        for item in self._armed:
            kind = item.rule.kind
            elsewhere = (kind == "base-modified" and (method != "PUT" or not path.endswith("/merge"))) or (
                kind == "push-reject" and (method != "POST" or not path.endswith("/git-receive-pack"))
            )
            if kind not in SHAPED and not elsewhere and item.due(subject):
                return item.rule
        return None

    # -- faults in what is answered -----------------------------------------------------------------

    def hidden(self, method: str, path: str) -> bool:
        """Whether this object "is not there yet" for this GET."""
        left = self._hidden.get(path)
        if method != "GET" or left is None or left[0] <= 0:
            return False
        left[0] -= 1
        return True

    def created(self, method: str, path: str, paths: Iterable[str]) -> None:
        """Told of a 201; ``paths`` are where the new object can be read."""
        for item in self._armed:
            if item.rule.kind == "not-found-after-create" and item.due(f"{method} {path}"):
                left = [item.rule.n]
                self._hidden.update(dict.fromkeys(paths, left))

    def outdated(self, path: str, url: str, body: bytes) -> bytes:
        """The bytes to answer a GET with: the previous ones while a stale rule says so."""
        rule = next(
            (a for a in self._armed if a.rule.kind == "stale" and re.search(a.rule.match, f"GET {path}")),
            None,
        )
        before = self._served.pop(url, None)
        if len(self._served) >= SERVED_LIMIT:
            self._served.pop(next(iter(self._served)))
        self._served[url] = body
        if rule is None or before is None or before == body:
            self._stale_left.pop(url, None)
            return body
        if url not in self._stale_left:
            self._stale_left[url] = rule.rule.n if rule.due(f"GET {path}") else 0
        if self._stale_left[url] <= 0:
            self._stale_left.pop(url)
            return body
        self._stale_left[url] -= 1
        self._served[url] = before
        return before

    def nulls_mergeable(self, method: str, path: str) -> bool:
        if method != "GET" or not re.fullmatch(r"/repos/[^/]+/[^/]+/pulls/\d+", path):
            return False
        return any(a.rule.kind == "mergeable-null" and a.due(f"{method} {path}") for a in self._armed)


def _rule(values: Mapping[str, Any]) -> Rule:
    known = {item.name for item in fields(Rule)}
    given = {str(name).replace("-", "_"): value for name, value in values.items()}
    for short, name in (("reset", "reset_s"), ("retry_after", "retry_after_s")):
        if short in given:
            given[name] = given.pop(short)
    unknown = sorted(set(given) - known)
    if unknown:
        raise ForgeError(
            f"fault rule has unknown keys {', '.join(unknown)}: known are {', '.join(sorted(known))}"
        )
    if "match" not in given or "kind" not in given:
        raise ForgeError("fault rule needs match and kind")
    return Rule(**given)


def load(path: Path) -> list[Rule]:
    """Rules from a file: TOML with `[[rules]]`, or JSON with a list or {"rules": [...]}."""
    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise ForgeError(f"fault plan {path}: {error.strerror}") from error
    except ValueError as error:
        raise ForgeError(f"fault plan {path} is not readable: {error}") from error
    rows = data.get("rules") if isinstance(data, dict) else data
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ForgeError(f"fault plan {path}: expected a list of rules")
    made = []
    for index, row in enumerate(rows):
        try:
            made.append(_rule(row))
        except (ForgeError, TypeError) as error:
            raise ForgeError(f"fault plan {path}, rule {index + 1}: {error}") from error
    return made
