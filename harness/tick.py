"""One machine, one step: finish what entering began; or else look, judge, record.

The one rule: what a machine decides is written before anything follows from it, and an effect is performed
only while its intent is open in the journal. A tick that changes nothing writes nothing.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from harness import __version__
from harness.core.codec import Codec
from harness.core.fsm import Move, Stay, step
from harness.core.item import Intent, Item, snapshot
from harness.core.journal import Draft, Record, canonical
from harness.core.result import Err, Ok, Pass
from harness.core.retry import Backoff
from harness.effects import Effect, OpenMachine
from harness.failures import Counter, Failure, rule
from harness.judgement import begin, decide, fold_record, heard
from harness.machines.all import CODEC, KINDS, kind_of
from harness.machines.kind import Kind, Seen
from harness.perform.outcome import Outcome, Sent
from harness.policy import Policy
from harness.ports import World

BLOB_ABOVE_BYTES = 2048
SNAPSHOT_EVERY = 200
EFFECT_AGE_S = 86400.0
LATER_SHARE, LATER_LIMIT_S = 0.05, 2.0
_SMALL = frozenset({bool, int, float})


class Fenced(Exception):
    """A newer director wrote to the store: this one must end at once."""


class Looking(Protocol):
    def see(self, item: Item[Any], query: str) -> Any: ...


class Performing(Protocol):
    """Runs effects in a pool per port, or at once. Keys are (machine, entry, intent, tries)."""

    def start(self, key: tuple[Any, ...], port: str, do: Callable[[], Outcome]) -> None: ...
    def take(self, key: tuple[Any, ...]) -> Outcome | None: ...
    def busy(self, key: tuple[Any, ...]) -> bool: ...


@dataclass
class Ticker:
    """Ticks machines of one world. `perform(effect, sent, world)` is the only thing that writes to it.

    `boundary(what)` is called before and after every append and effect, with its machine: a crash sweep dies
    there.
    """

    world: World
    looks: Looking
    performer: Performing
    perform: Callable[[Effect, Sent, World], Outcome]
    policy: Callable[[], Policy]
    boundary: Callable[[str], None] = lambda what: None
    blob_above_bytes: int | None = BLOB_ABOVE_BYTES  # None: everything stays in the record
    codec: Codec = CODEC
    code: str = __version__
    opened: list[Item[Any]] = field(default_factory=list)
    waiting: dict[str, str] = field(default_factory=dict)
    later: dict[tuple[Any, ...], float] = field(default_factory=dict)
    kept_policy: tuple[Policy, Any] | None = None
    unwritten: dict[tuple[Any, ...], Outcome] = field(default_factory=dict)

    # ------------------------------------------------------------ folding

    def load(self, machine: str) -> Item[Any] | None:
        """Fold a machine from its last snapshot on."""
        item: Item[Any] | None = None
        for record in self.world.store.since_snapshot(machine):
            item = self._fold(item, record)
        return item

    def _fold(self, item: Item[Any] | None, record: Record) -> Item[Any]:
        return fold_record(item, record, self.codec)

    # ------------------------------------------------------------ the tick

    def tick(self, item: Item[Any]) -> Item[Any]:
        """The item after one step; the same object when nothing was to be done."""
        kind = kind_of(item.id)
        intent = item.open_intent
        if intent is not None:
            return self._finish(item, kind, intent)
        if item.state in kind.table.final:
            return item
        return self._judge(item, kind)

    def _finish(self, item: Item[Any], kind: Kind, intent: Intent) -> Item[Any]:
        key = (item.id, item.entry, intent.n, intent.tries)
        done = self.unwritten.get(key) or self.performer.take(key)
        if done is not None:
            return self._settle(item, intent, key, done)
        if self.performer.busy(key):
            return item
        if item.state not in kind.table.final:
            seen = self._seen(item, kind.alarms(item, self.policy()))
            alarm = kind.alarm(item, seen)
            if alarm is not None:
                return self._move(item, kind, seen, alarm)
        now = self.world.clock.now()
        due = intent.not_before
        if (
            item.changed_at > now
        ):  # the clock was set back: what is left of the wait counts from this start on
            due += self.world.epoch_began - item.changed_at
        if max(due, self.later.get(key, 0.0)) > now:
            return item
        effect: Effect = self.codec.decode(dict(intent.effect))
        if isinstance(effect, OpenMachine):
            return self._settle(item, intent, key, self._open(effect))
        sent = self._sent(intent)
        self.boundary(f"before {type(effect).__name__} of {item.id}")
        self.performer.start(key, effect.port, lambda: self.perform(effect, sent, self.world))
        done = self.performer.take(key)
        return item if done is None else self._settle(item, intent, key, done)

    def _sent(self, intent: Intent) -> Sent:
        """When the effect may last have been sent: known from its outcomes in this epoch, or, after a restart, at
        the latest when this epoch began, whatever was read before. None: it surely was never sent."""
        if intent.sent_epoch != self.world.epoch:
            return Sent(self.world.epoch_began, 0, intent.tries)
        return Sent(intent.sent_at, intent.absent, intent.tries)

    def _settle(self, item: Item[Any], intent: Intent, key: tuple[Any, ...], outcome: Outcome) -> Item[Any]:
        self.boundary(f"after {intent.effect.get('$')} of {item.id}")
        if outcome.status == "later":
            # What has waited long can wait a little longer: nobody asks five times a second all night.
            now = self.world.clock.now()
            longer = min(max(now - intent.begun_at, 0.0) * LATER_SHARE, LATER_LIMIT_S)
            self.later[key] = max(outcome.not_before, now + longer)
            self.waiting[item.id] = outcome.detail
            return item
        self.later.pop(key, None)
        # Kept until it is written: an effect whose outcome was lost here would pass for one never sent.
        self.unwritten[key] = outcome
        new = self._write(item, Draft("outcome", self._outcome(intent, outcome)))
        del self.unwritten[key]
        if outcome.detail and outcome.status != "done":
            self.waiting[item.id] = outcome.detail
        return new

    def _outcome(self, intent: Intent, o: Outcome) -> dict[str, Any]:
        """The record's body. What stays open is bounded in number and time, and backs off."""
        now = self.world.clock.now()
        policy = self.policy()
        status, not_before = o.status, o.not_before
        if status in ("ambiguous", "deferred"):
            nobody = rule(o.failure).counter is Counter.NOBODY if o.failure else False
            if now - intent.begun_at > EFFECT_AGE_S or (
                not nobody and intent.tries + 1 >= policy.effect_tries
            ):
                status = "failed"
            backoff = Backoff(
                policy.retry_mode, policy.retry_initial_s, policy.retry_max_s, policy.retry_jitter_s
            )
            not_before = max(
                not_before, now + (0.0 if o.absent else backoff.delay_s(intent.tries + 1, str(intent.n)))
            )
        name = str(intent.effect.get("$", ""))
        body: dict[str, Any] = {"intent": intent.n, "effect": name, "status": status}
        if status == "failed" and getattr(self.codec.classes.get(name), "tells", False):
            body |= {"status": "done", "value": {"skipped": True}}
        elif o.value is not None:
            body["value"] = self.codec.encode(o.value)
        if o.failure:
            body["failure"] = str(o.failure)
        if o.detail:
            body["detail"] = o.detail[:8000]
        if o.sent_at is not None:
            body["sent_at"] = o.sent_at
        if o.absent:
            body["absent"] = o.absent
        if status in ("ambiguous", "deferred"):
            body["not_before"] = not_before
        return body

    def _judge(self, item: Item[Any], kind: Kind) -> Item[Any]:
        policy = self.policy()
        row = kind.table.rows[item.state]
        wants = dict.fromkeys((*kind.wants(item, policy), *kind.alarms(item, policy)))
        seen = self._seen(item, tuple(wants))
        alarm = kind.alarm(item, seen)
        if alarm is not None:
            return self._move(item, kind, seen, alarm)
        result = decide(item, kind, seen)
        if isinstance(result, Pass):
            self.waiting[item.id] = result.message
            return item
        if isinstance(result, Err):
            return self._move(item, kind, seen, kind.fails(item, seen, result))
        assert row.watch is not None
        if isinstance(result.value, Stay):
            return self._stay(item, seen, result.value)
        return self._move(item, kind, seen, result.value)

    def _seen(self, item: Item[Any], wants: tuple[str, ...]) -> Seen:
        facts = {q: self.looks.see(item, q) for q in wants}
        return Seen(self.world.clock.now(), self.policy(), self.world.epoch_began, facts)

    # ------------------------------------------------------------ writing

    def _move(self, item: Item[Any], kind: Kind, seen: Seen, move: Move) -> Item[Any]:
        to, move = step(kind.table, item.state, move.event).unwrap(), heard(item, seen, move)
        begun = begin(item, kind, seen, move, to)
        body = self._transition(item.state, move.event, to, move.why, move.note, begun, seen)
        new = self._write(item, Draft("transition", body))
        self.waiting.pop(item.id, None)
        if to in kind.table.final and not begun:
            new = self._snapshot(new)
        return new

    def _stay(self, item: Item[Any], seen: Seen, s: Stay) -> Item[Any]:
        body = self._transition(item.state, None, item.state, s.why, s.note, s.intents, seen)
        return self._write(item, Draft("transition", body))

    def _transition(
        self,
        at: str,
        event: str | None,
        to: str,
        why: str,
        note: Mapping[str, Any],
        begun: tuple[Any, ...],
        seen: Seen,
    ) -> dict[str, Any]:
        return {
            "from": at,
            "event": event,
            "to": to,
            "reason": why[:2000],
            "note": self.codec.encode(dict(note)),
            "intents": [self.codec.encode(e) for e in begun],
            "seen": self._keep_seen(seen),
        }

    def _keep_seen(self, seen: Seen) -> dict[str, Any]:
        """What the decision was given; large parts once, by content hash."""
        facts = {q: self._part(self.codec.encode(v)) for q, v in seen.facts.items()}
        return {
            "now": seen.now,
            "epoch_began": seen.epoch_began,
            "policy": self._policy(seen.policy),
            "facts": facts,
        }

    def _policy(self, policy: Policy) -> Any:
        """It changes seldom, and every record names it: kept once, by its hash."""
        if self.kept_policy is None or self.kept_policy[0] is not policy:
            self.kept_policy = (policy, self._kept(self.codec.encode(policy), above_bytes=0))
        return self.kept_policy[1]

    def _part(self, value: Any) -> Any:
        """A fact as it stands in a record; a large one is kept once, by its hash."""
        if self.blob_above_bytes is None or value is None or type(value) in _SMALL:
            return {"value": value}
        return self._kept(value, self.blob_above_bytes)

    def _kept(self, value: Any, above_bytes: int) -> Any:
        data = canonical(value)
        if len(data) <= above_bytes:
            return {"value": value}
        try:
            return {"blob": self.world.store.put_blob(data)}
        except Exception as e:
            full = getattr(e, "errno", None) == errno.ENOSPC or getattr(e, "failure", "") == Failure.DISK_FULL
            if not full:
                raise
            raise StoreUnavailable(str(e)) from e

    def _write(self, item: Item[Any] | None, draft: Draft, machine: str = "") -> Item[Any]:
        """Append and fold. A store that cannot write now leaves everything as it was:
        the tick comes again."""
        name = item.id if item is not None else machine
        self.boundary(f"before append {draft.kind} of {name}")
        result = self.world.store.append(name, draft, expect_seq=(item.seq if item else 0) + 1)
        self.boundary(f"after append {draft.kind} of {name}")
        if isinstance(result, Ok):
            new = self._fold(item, result.value)
            return self._snapshot(new) if new.seq % SNAPSHOT_EVERY == 0 and draft.kind != "snapshot" else new
        if isinstance(result, Err) and result.failure == Failure.AUTH_FAILED:
            raise Fenced(result.detail)
        there = self.load(name) if item is not None else None
        if there is not None and item is not None and there.seq > item.seq:
            return there  # an append whose answer was lost is in the journal all the same
        detail = result.detail if isinstance(result, Err) else result.message
        raise StoreUnavailable(detail)

    def _snapshot(self, item: Item[Any]) -> Item[Any]:
        """Only an abbreviation: where it cannot be written the machine goes on without it."""
        try:
            return self._write(item, Draft("snapshot", snapshot(item, self.codec.encode)))
        except StoreUnavailable:
            return item

    def _open(self, effect: OpenMachine) -> Outcome:
        existing = self.load(effect.machine)
        if existing is None:
            self.opened.append(self.open(effect.machine, effect.start))
        return Outcome.done({"machine": effect.machine})

    def open(self, machine: str, data: Any, why: str = "opened") -> Item[Any]:
        """Write a machine's first record: it enters its start state and begins what that begins. What people
        asked for before is not meant for it."""
        kind = kind_of(machine)
        seen = Seen(self.world.clock.now(), self.policy(), self.world.epoch_began, {})
        start = kind.table.start
        if hasattr(data, "control"):
            data = replace(data, control=max((c.id for c in self.world.store.controls()), default=0))
        arriving: Item[Any] = Item(machine, start, data, entry=1)
        row = kind.table.rows[start]
        begun = row.begin(arriving, seen) if row.begin else ()
        body = self._transition("", None, start, why, {}, begun, seen)
        body["start"] = self.codec.encode(data)
        return self._write(None, Draft("transition", body), machine)

    def note_exception(self, item: Item[Any], text: str) -> Item[Any]:
        """A bug in one machine is a record of that machine."""
        return self._write(
            item, Draft("outcome", {"intent": -1, "effect": "", "status": "exception", "detail": text[:4000]})
        )

    def quarantine(self, item: Item[Any], text: str) -> Item[Any]:
        """Too many in a row: the machine takes the edge of an internal error and the others go on."""
        kind = kind_of(item.id)
        seen = self._seen(item, ())
        return self._move(item, kind, seen, kind.fails(item, seen, Err(Failure.INTERNAL_ERROR, text)))


class StoreUnavailable(Exception):
    """The journal could not be written (a full disk); nothing was lost, the tick comes again."""


__all__ = ["KINDS", "Fenced", "StoreUnavailable", "Ticker"]
