"""What the gateway knows of one open attempt: who may call, what was asked and answered, what was heard.

The one rule: plain values under one lock, so that the director's thread and the server's may both read
and write them; what the director's death loses here is asked and told again by both sides.
"""

from __future__ import annotations

import hmac
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from harness.core.budget import Budget, Limits
from harness.domain import Ask, Beat, News
from harness.gateway.wire import Pulse, Question
from harness.gateway.witness import Witness

if TYPE_CHECKING:
    from harness.gateway.bus import Line

ASKS_LIMIT = 64
ANSWERS_LIMIT = 1024
LINES_LIMIT = 4
MESSAGES_PER_SECOND = 500.0
MESSAGES_BURST = 2000.0


class Board:
    """The news for everyone."""

    def __init__(self) -> None:
        self.news = News()


@dataclass(slots=True)
class Pace:
    """A bucket of messages: `wait_s` takes one and says how long the reader must pause first."""

    level: float = MESSAGES_BURST
    at: float = 0.0

    def wait_s(self, now: float) -> float:
        self.level = min(MESSAGES_BURST, self.level + max(0.0, now - self.at) * MESSAGES_PER_SECOND) - 1.0
        self.at = now
        return max(0.0, -self.level / MESSAGES_PER_SECOND)


@dataclass(slots=True)
class Counts:
    """For /metrics."""

    beats: int = 0
    records: int = 0
    asks: int = 0
    refused: int = 0
    uploads: int = 0
    fetches: int = 0


class Desk:
    """`lines` are the open connections, touched by the server's loop only."""

    def __init__(self, attempt: str, token: str, incarnation: int, board: Board, witness: Witness) -> None:
        self.attempt = attempt
        self.token = token
        self.incarnation = incarnation
        self.board = board
        self.witness = witness
        self.lock = threading.Lock()
        self.lines: set[Line] = set()
        self.pace = Pace()
        self.rate: Budget = Budget("model.request", Limits())
        self.calling = 0
        self.stop = False
        self.pause = False
        self._asks: dict[str, Ask] = {}
        self._answers: dict[str, dict[str, Any]] = {}
        self._beat: Beat | None = None

    def refuses(self, token: str, incarnation: str) -> tuple[int, str] | None:
        """Why a caller is turned away: the HTTP status and the reason. None: he may come in."""
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            return 401, "the token is not that of this attempt"
        if incarnation != str(self.incarnation):
            return 409, f"incarnation {incarnation[:12]} is over, {self.incarnation} runs"
        return None

    def admit(self, token: str, incarnation: int) -> bool:
        """Let another incarnation in; the one before it is over. Answers whether anything changed."""
        with self.lock:
            if (self.token, self.incarnation) == (token, incarnation):
                return False
            self.token, self.incarnation, self._beat = token, incarnation, None
            return True

    # ---------------------------------------------------------------- asked and answered

    def asked(self) -> tuple[Ask, ...]:
        with self.lock:
            return tuple(self._asks.values())

    def ask(self, question: Question) -> Mapping[str, Any] | None:
        """File a question, or join the one with the same key; answers the reply where there is one
        already."""
        with self.lock:
            if question.key in self._answers:
                return self._answers[question.key]
            if question.key not in self._asks:
                if len(self._asks) >= ASKS_LIMIT:
                    why = f"more than {ASKS_LIMIT} requests are unanswered"
                    return {"ok": False, "failure": "policy_violation", "detail": why}
                self._asks[question.key] = Ask(question.key, question.kind, dict(question.args))
            return None

    def answer(self, key: str, reply: Mapping[str, Any]) -> bool:
        """Keep the reply; answers whether somebody waits for it."""
        with self.lock:
            self._answers[key] = dict(reply)
            while len(self._answers) > ANSWERS_LIMIT:
                self._answers.pop(next(iter(self._answers)))
            return self._asks.pop(key, None) is not None

    # ---------------------------------------------------------------- heard and told

    def beat(self) -> Beat | None:
        """The last heartbeat, with the end of the witnessed chain; a record that was refused is its
        reason."""
        with self.lock:
            if self._beat is None:
                return None
            w = self.witness
            return replace(self._beat, seq=w.seq, head=w.head, reason=w.why or self._beat.reason)

    def hear(self, pulse: Pulse, now: float) -> bool:
        """Keep a heartbeat; answers whether it says something new."""
        d = pulse.detail
        beat = Beat(
            now - pulse.age_s,
            pulse.state,
            self.incarnation,
            output_bytes=d.output_bytes,
            cpu_s=d.cpu_s,
            final=d.final,
            reason=d.reason,
            failure=d.failure,
            counters=dict(d.counters),
        )
        with self.lock:
            old, self._beat = self._beat, beat
        return old is None or (old.state, old.final, old.failure) != (beat.state, beat.final, beat.failure)

    def news(self) -> News:
        news = self.board.news
        return replace(news, stop=news.stop or self.stop, paused=news.paused or self.pause)

    def tell(self, stop: bool | None, pause: bool | None) -> None:
        with self.lock:
            self.stop = self.stop if stop is None else stop
            self.pause = self.pause if pause is None else pause
