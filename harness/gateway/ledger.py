"""What model calls cost: reserved before the call, settled after it, kept across restarts.

The one rule: a call is allowed only if what was spent, what is reserved and its own estimate stay within
every cap; a reservation whose director died is settled at its full amount, because nobody knows what it
came to.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.gateway.settings import GatewayError, ModelSettings
from harness.ports import Clock

VERSION = 1
ATTEMPTS_KEPT = 2000
DAYS_KEPT = 35
_NOTHING = {"tokens_in": 0, "tokens_out": 0, "usd": 0.0, "requests": 0}


@dataclass(frozen=True, slots=True)
class Cost:
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float = 0.0

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out


@dataclass(frozen=True, slots=True)
class Capped:
    """The cap that a call ran into. `scope` is attempt or day."""

    scope: str
    why: str


class Ledger:
    """Plain data behind a lock. The caller saves it: `persist` writes the state as it is now."""

    def __init__(
        self,
        settings: ModelSettings | None,
        clock: Clock,
        load: Callable[[], Any | None],
        save: Callable[[Any], None],
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.load = load
        self.save = save
        self.lock = threading.Lock()
        self._attempts: dict[str, dict[str, Any]] = {}
        self._days: dict[str, dict[str, Any]] = {}
        self._open: dict[str, tuple[str, str, Cost]] = {}
        self._capped: dict[str, tuple[str, Capped]] = {}
        self._next = 1

    def open(self) -> None:
        """Read what the last director left and settle what it left open. Raises GatewayError when unreadable:
        an unknown spend must not become a spend of nothing."""
        try:
            state = self.load()
            if state is None:
                return
            if state["v"] != VERSION:
                raise ValueError(f"version {state['v']}, this code reads {VERSION}")
            with self.lock:
                self._attempts = {str(k): {**_NOTHING, **v} for k, v in state["attempts"].items()}
                self._days = {str(k): {**_NOTHING, **v} for k, v in state["days"].items()}
                for attempt, day, tokens_in, tokens_out, usd in state["open"]:
                    self._add(attempt, day, Cost(tokens_in, tokens_out, usd))
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise GatewayError(
                f"the model's ledger cannot be read ({e}): restore it, or delete it to count from zero"
            ) from e

    def persist(self) -> None:
        self.save(self.state())

    def state(self) -> dict[str, Any]:
        with self.lock:
            open_ = [[a, d, c.tokens_in, c.tokens_out, c.usd] for a, d, c in self._open.values()]
            attempts = {k: dict(v) for k, v in self._attempts.items()}
            days = {k: dict(v) for k, v in self._days.items()}
        return {"v": VERSION, "attempts": attempts, "days": days, "open": open_}

    # ---------------------------------------------------------------- reserve and settle

    def reserve(self, attempt: str, cost: Cost) -> str | Capped:
        """Set an estimate aside; answers the reservation's id, or the cap that forbids the call."""
        day = self._day()
        with self.lock:
            refusal = self._over(attempt, day, cost)
            if refusal is not None:
                self._note_capped(attempt, day, refusal)
                return refusal
            self._capped.pop(attempt, None)
            key = str(self._next)
            self._next += 1
            self._open[key] = (attempt, day, cost)
            return key

    def extend(self, key: str, more: Cost) -> bool:
        """Set more aside for a call that turns out longer than estimated; False when a cap forbids it."""
        with self.lock:
            attempt, day, cost = self._open[key]
            refusal = self._over(attempt, day, more)
            if refusal is not None:
                self._note_capped(attempt, day, refusal)
                return False
            grown = Cost(
                cost.tokens_in + more.tokens_in, cost.tokens_out + more.tokens_out, cost.usd + more.usd
            )
            self._open[key] = (attempt, day, grown)
            return True

    def _note_capped(self, attempt: str, day: str, refusal: Capped) -> None:
        self._capped.pop(attempt, None)
        self._capped[attempt] = (day, refusal)
        while len(self._capped) > ATTEMPTS_KEPT:
            self._capped.pop(next(iter(self._capped)))

    def settle(self, key: str, cost: Cost | None) -> None:
        """Replace a reservation by what the call came to; None when it came to nothing (it was refused)."""
        with self.lock:
            attempt, day, _ = self._open.pop(key)
            if cost is not None:
                self._add(attempt, day, cost)

    def _add(self, attempt: str, day: str, cost: Cost) -> None:
        for table, name, most in (
            (self._attempts, attempt, ATTEMPTS_KEPT),
            (self._days, day, DAYS_KEPT),
        ):
            row = table.pop(name, None) or dict(_NOTHING)
            row["tokens_in"] += cost.tokens_in
            row["tokens_out"] += cost.tokens_out
            row["usd"] = round(row["usd"] + cost.usd, 9)
            row["requests"] += 1
            table[name] = row  # the last touched stand at the end, the oldest go first
            while len(table) > most:
                table.pop(next(iter(table)))

    def _over(self, attempt: str, day: str, more: Cost) -> Capped | None:
        s = self.settings
        if s is None:
            return None
        checks = (
            ("attempt", self._used(0, attempt), s.per_attempt_usd, s.per_attempt_tokens),
            ("day", self._used(1, day), s.per_day_usd, s.per_day_tokens),
        )
        for scope, used, usd_cap, tokens_cap in checks:
            if usd_cap and used["usd"] + more.usd > usd_cap:
                spent = f"${used['usd']:.2f} of ${usd_cap:.2f} per {scope} is used"
                return Capped(scope, f"{spent}, this call may cost ${more.usd:.2f}")
            tokens = used["tokens_in"] + used["tokens_out"]
            if tokens_cap and tokens + more.tokens > tokens_cap:
                spent = f"{tokens} of {tokens_cap} tokens per {scope} are used"
                return Capped(scope, f"{spent}, this call may take {more.tokens}")
        return None

    def _used(self, place: int, name: str) -> dict[str, Any]:
        """Settled and reserved of one attempt (place 0) or day (place 1)."""
        row = dict((self._attempts, self._days)[place].get(name, _NOTHING))
        for entry in self._open.values():
            if entry[place] == name:
                cost = entry[2]
                row["tokens_in"] += cost.tokens_in
                row["tokens_out"] += cost.tokens_out
                row["usd"] += cost.usd
                row["requests"] += 1
        return row

    def _day(self) -> str:
        return datetime.fromtimestamp(self.clock.now(), UTC).date().isoformat()

    # ---------------------------------------------------------------- asked by others

    def spent(self, attempt: str) -> dict[str, Any]:
        with self.lock:
            return self._used(0, attempt)

    def today(self) -> dict[str, Any]:
        with self.lock:
            return self._used(1, self._day())

    def capped(self, attempt: str) -> str:
        """The cap that the last call of the attempt ran into; a day's cap is forgotten with the day."""
        with self.lock:
            day, refusal = self._capped.get(attempt, ("", Capped("", "")))
            return "" if refusal.scope == "day" and day != self._day() else refusal.why


# ---------------------------------------------------------------- the default place: one small file


def file_load(path: Path) -> Any | None:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as e:
        raise ValueError(f"{path} is not JSON") from e


def file_save(path: Path, state: Any) -> None:
    """Write beside it, sync, rename. Raises OSError."""
    temp = path.with_name(f".{path.name}.new")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as f:
            f.write(json.dumps(state, separators=(",", ":")).encode())
            f.flush()
            os.fsync(f.fileno())
        temp.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temp.unlink(missing_ok=True)
        raise
