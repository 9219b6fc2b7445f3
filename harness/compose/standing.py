"""How things stand, told from the store and the lock alone, beside a director that runs or without one.

The one rule: it only reads. What no journal says is not told, and what waits says for whom.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.adapters.store.lease import is_held, owner_of
from harness.compose import outages
from harness.config import policy as policy_of
from harness.config.models import Config
from harness.core.item import Item
from harness.core.journal import iso
from harness.domain import Lane, Slots
from harness.failures import explain
from harness.gateway.ledger import Ledger, file_load
from harness.judgement import fold_record
from harness.looks import Own
from harness.loop import SteadyClock
from harness.machines.director.plan import paused
from harness.policy import Policy
from harness.ports import Store, World
from harness.texts.issues import first_line

OVER = frozenset({"RELEASED", "GONE"})
PARKED = frozenset({"DEFERRED", "BLOCKED"})
ENDED = frozenset({"PUBLISHED", "ABANDONED"})
REASON_LIMIT = 300


@dataclass(frozen=True)
class Standing:
    """All machines of one repository, folded. `broken` are those that could not be, with the reason."""

    config: Config
    policy: Policy
    data: Path
    now: float
    items: Mapping[str, Item[Any]]
    own: Own
    broken: Mapping[str, str] = field(default_factory=dict)

    def kind(self, name: str) -> list[Item[Any]]:
        return [i for k, i in self.items.items() if f"/{name}/" in k]

    def ticket(self, issue: int) -> Item[Any] | None:
        """The newest ticket of an issue."""
        found = [i for i in self.kind("ticket") if i.data.issue == issue]
        return max(found, key=lambda i: (i.entered_at, i.id), default=None)

    def attempt(self, ticket: Item[Any]) -> Item[Any] | None:
        """The attempt that a ticket has under way."""
        found = self.items.get(ticket.data.attempt)
        return found if found is not None and found.state != "CLOSED" else None

    @property
    def director(self) -> Item[Any] | None:
        return max(self.kind("director"), key=lambda i: int(i.id.rsplit("/", 1)[1]), default=None)

    @property
    def release(self) -> Item[Any] | None:
        """The release that is under way, else the one that ended last."""
        found = self.kind("release")
        open_ = [i for i in found if i.state not in ENDED]
        if open_:
            return min(open_, key=lambda i: i.id)
        return max(found, key=lambda i: i.entered_at, default=None)

    @property
    def running(self) -> bool:
        return is_held(self.data)


def read(config: Config, store: Store) -> Standing:
    """Fold everything there is of the configured repository. Raises StoreError."""
    clock = SteadyClock()
    policy = policy_of(config)
    items: dict[str, Item[Any]] = {}
    broken: dict[str, str] = {}
    for machine in store.machines(f"{policy.repo}/"):
        try:
            items[machine] = _fold(store, machine)
        except Exception as e:  # one journal that cannot be read is shown as such; the others are told
            broken[machine] = f"{type(e).__name__}: {e}"
    data = config.data_dir.absolute()
    world = World(clock, store, lambda: policy, data)
    return Standing(config, policy, data, clock.now(), items, Own(world, items), broken)


def _fold(store: Store, machine: str) -> Item[Any]:
    item: Item[Any] | None = None
    for record in store.since_snapshot(machine):
        item = fold_record(item, record)
    if item is None:
        raise ValueError("it has no records")
    return item


# ---------------------------------------------------------------- the document


def document(s: Standing) -> dict[str, Any]:
    """The document of `harness status --json`. Times are ISO 8601 in UTC, ages seconds."""
    slots: Slots = s.own.answer("slots")
    waiting = [s.items[m].data.issue for m in slots.waiting]
    return {
        "repo": s.policy.repo,
        "at": iso(s.now),
        "data": str(s.data),
        "director": _director(s),
        "paused": paused(s.own.answer("controls")),
        "limited": _limited(s),
        "workers": {"used": slots.live, "of": s.policy.max_workers, "waiting": waiting},
        "release": _release(s),
        "tickets": [_ticket(s, i) for i in sorted(s.kind("ticket"), key=lambda i: (i.data.issue, i.id))],
        "attempts": [_attempt(s, i) for i in s.kind("attempt") if i.state != "CLOSED"],
        "passed_over": _passed_over(s),
        "held": _held(s),
        "trouble": _trouble(s),
        "spent_today": _spent(s),
        "disk_free_bytes": _free(s.data),
    }


def _since(s: Standing, item: Item[Any]) -> dict[str, Any]:
    return {"since": iso(item.entered_at), "age_s": round(max(s.now - item.entered_at, 0.0), 1)}


def _director(s: Standing) -> dict[str, Any]:
    """Who holds the lease, and the newest director's state. `owner` is empty when none runs."""
    item = s.director
    running = s.running
    known = (
        {}
        if item is None
        else {"epoch": int(item.id.rsplit("/", 1)[1]), "state": item.state, **_since(s, item)}
    )
    cooling = item.data.cooldown if item is not None and item.state == "COOLDOWN" else ""
    return {
        "running": running,
        "owner": dict(owner_of(s.data / "lock")) if running else {},
        "cooldown": cooling,
        "waits_for": str(s.own.world.store.get(outages.HELD_KEY) or "") if running else "",
        **known,
    }


def _limited(s: Standing) -> list[dict[str, Any]]:
    """Resources that the forge asked us to leave alone, from what the governor keeps in the store."""
    kept = s.own.world.store.get("governor/forge")
    resources = kept.get("resources", {}) if isinstance(kept, Mapping) else {}
    until = {name: float(r.get("closed_until") or 0.0) for name, r in resources.items()}
    return [
        {"resource": name, "until": iso(at), "left_s": round(at - s.now, 1)}
        for name, at in sorted(until.items())
        if at > s.now
    ]


def _release(s: Standing) -> dict[str, Any] | None:
    item = s.release
    if item is None:
        return None
    d = item.data
    mine = [t for t in s.kind("ticket") if t.data.landed_in == item.id and t.state in ("LANDED", "RELEASED")]
    landed = d.landed or tuple(sorted(t.data.issue for t in mine))
    return {
        "version": d.version, "state": item.state, **_since(s, item), "branch": d.branch, "base": d.base,
        "tag": d.tag, "pull": d.pull, "landed": list(landed), "waits_for": _release_waits(s, item),
        "merge_sha": d.merge_sha, "url": d.url,
    }  # fmt: skip


def _release_waits(s: Standing, item: Item[Any]) -> str:
    d = item.data
    if item.state == "OPEN":
        under_way = [t.data.issue for t in s.kind("ticket") if t.state not in OVER | PARKED | {"LANDED"}]
        issues = ", ".join(f"#{n}" for n in sorted(under_way))
        return f"{issues} to land or to be deferred" if issues else "the director to settle it"
    if item.state == "GATING":
        return f"the validation of {d.branch}"
    if item.state == "MERGING":
        return d.waits or f"the merge into {d.base}"
    if item.state == "NEEDS_PERSON":
        why = first_line(explain(d.failure, d.detail), REASON_LIMIT)
        return f"a person: {why} (harness release cut, or harness release abandon)"
    if item.state == "RESOLVING":
        return f"the merge agent: {d.branch} conflicts with {d.base}"
    return {"TAGGING": "its tag", "PUBLISHING": "the forge to publish it"}.get(item.state, "")


def _ticket(s: Standing, item: Item[Any]) -> dict[str, Any]:
    d = item.data
    attempt = s.attempt(item)
    parked = item.state in PARKED or (item.state == "GONE" and d.detail)
    why = (
        explain(d.failure, first_line(d.detail, REASON_LIMIT))
        if parked and d.failure
        else d.detail
        if parked
        else ""
    )
    return {
        "issue": d.issue, "title": d.title, "state": item.state, **_since(s, item), "pull": d.pull,
        "attempt": attempt.data.code if attempt else "", "attempts": d.attempts,
        "waits_for": waits_for(s, item), "reason": first_line(why, REASON_LIMIT), "machine": item.id,
    }  # fmt: skip


def waits_for(s: Standing, item: Item[Any]) -> str:
    """For whom or what a ticket waits, in words; empty when it has ended."""
    d = item.data
    match item.state:
        case "CLAIMING":
            return "its claim to show on the forge"
        case "ATTEMPTING":
            return _attempting(s, item)
        case "WAITING":
            return f"an answer on the issue: {first_line(d.question, 200)}"
        case "REVIEWING":
            return f"a review of pull #{d.pull}"
        case "LANDING":
            lane: Lane = s.own.answer("lane")
            ahead = s.items.get(lane.turn)
            return "its gate" if ahead is None or ahead is item else f"#{ahead.data.issue} to land first"
        case "LANDED":
            return f"release {d.landed_in.rsplit('/', 1)[-1]}"
        case "DEFERRED" | "BLOCKED":
            return f"a person (harness retry {d.issue})"
    return ""


def _attempting(s: Standing, item: Item[Any]) -> str:
    attempt = s.attempt(item)
    if attempt is None and not s.running:
        return "a director to run"
    if attempt is not None:
        return f"attempt {attempt.data.code}: {attempt.state.lower()}"
    if item.data.not_before > s.now:
        return f"its next attempt, in {int(item.data.not_before - s.now) + 1} s"
    free = _free(s.data)
    if free is not None and free < s.policy.min_free_bytes:
        return "room on the director's disk"
    slots: Slots = s.own.answer("slots")
    if item.id not in slots.waiting[: max(s.policy.max_workers - slots.live, 0)]:
        return "a free worker"
    lane: Lane = s.own.answer("lane")
    return "its attempt to begin" if lane.machine or item.data.lands != "lane" else "a release to be planned"


def _attempt(s: Standing, item: Item[Any]) -> dict[str, Any]:
    d = item.data
    return {
        "attempt": d.code, "issue": d.issue, "state": item.state, **_since(s, item),
        "incarnation": d.incarnation, "image": d.image_now or d.image, "pull": d.pull,
    }  # fmt: skip


def _passed_over(s: Standing) -> list[dict[str, Any]]:
    """Candidates without a ticket under way, each with the director's last reason."""
    director = s.director
    if director is None:
        return []
    busy = {t.data.issue for t in s.kind("ticket") if t.state not in OVER}
    # What has ended a moment ago is still on the forge's list; that is nobody's news.
    ended = {(t.data.issue, f"{t.state.lower()} just now") for t in s.kind("ticket")}
    reasons = [(int(n), why) for n, why in director.data.reasons.items()]
    return [
        {"issue": n, "reason": why}
        for n, why in sorted(reasons)
        if n not in busy and why != "chosen" and (n, why) not in ended
    ]


def _held(s: Standing) -> list[dict[str, Any]]:
    """Effects that could not be finished yet, with what the last try said."""
    found = []
    for item in s.items.values():
        intent = item.open_intent
        if intent is None or not intent.tries or (item in s.kind("director") and item is not s.director):
            continue
        found.append(
            {
                "machine": item.id, "effect": intent.effect.get("$", ""), "status": intent.status,
                "tries": intent.tries,
                "why": first_line(_said(intent.failure, intent.detail)),
                "not_before": iso(intent.not_before) if intent.not_before else "",
            }
        )  # fmt: skip
    return found


def _said(failure: str, detail: str) -> str:
    return explain(failure, detail) if failure else detail


def _trouble(s: Standing) -> list[str]:
    lines = [f"{machine} cannot be read: {why}" for machine, why in s.broken.items()]
    for item in s.kind("attempt"):
        if item.state == "CLOSED" and item.data.warning:
            lines.append(f"attempt {item.data.code}: {first_line(item.data.warning)}")
    if s.running:
        lines += outages.lines(s.own.world.store.get(outages.KEY), s.now)
    free = _free(s.data)
    if free is not None and free < s.policy.min_free_bytes:
        need = s.policy.min_free_bytes >> 20
        lines.append(f"only {free >> 20} MiB free in {s.data}; {need} MiB are needed to start work")
    return lines


def _spent(s: Standing) -> dict[str, Any]:
    """What the model's provider was paid today, from the gateway's ledger; empty where there is none."""
    path = s.data / "model-ledger.json"
    if not path.is_file():
        return {}
    ledger = Ledger(None, SteadyClock(), lambda: file_load(path), lambda state: None)
    ledger.open()
    return dict(ledger.today())


def _free(data: Path) -> int | None:
    try:
        return shutil.disk_usage(data).free
    except OSError:
        return None
