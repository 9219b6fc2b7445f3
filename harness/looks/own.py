"""What our own machines say of each other: always current, and read without I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from harness.core.item import Item
from harness.domain import (
    Candidate,
    Control,
    Entry,
    Lane,
    Limited,
    Past,
    Peer,
    Slots,
    Unknown,
)
from harness.ports import World

CONTROLS_LIMIT = 50
ENDED_RELEASES_LIMIT = 10
OVER = frozenset({"RELEASED", "GONE"})
ENDED = frozenset({"PUBLISHED", "ABANDONED"})
HOLDING = (frozenset({"pause", "resume"}), frozenset({"drain", "resume", "started"}))


@dataclass
class Own:
    """What our own machines say of each other: always current, read without I/O. `items` are all that are
    folded, by id; `signal` is what the process was told."""

    world: World
    items: Mapping[str, Item[Any]]
    signal: Callable[[], str] = lambda: ""
    limits: Callable[[], tuple[Limited, ...]] = tuple
    in_force: tuple[Control, ...] = ()

    def kind(self, name: str) -> list[Item[Any]]:
        part = f"/{name}/"
        return [i for k, i in self.items.items() if part in k]

    def answer(self, query: str) -> Any:
        head, _, rest = query.partition("/")
        match head:
            case "item":
                return _peer(self.items.get(rest))
            case "entries":
                return tuple(entry(i, self.items) for i in self.kind("ticket") if self._counts(i))
            case "slots":
                return self._slots()
            case "lane":
                return self._lane()
            case "releases":
                return self._releases()
            case "director":
                newest = max(self.kind("director"), key=lambda i: int(i.id.rsplit("/", 1)[1]), default=None)
                return _peer(newest)
            case "controls":
                return self._commands()
            case "signal":
                return self.signal()
            case "limits":
                return self.limits()
            case "beat":
                beat = self.world.gateway.beat(rest) if self.world.gateway else None
                return beat if beat is not None else Unknown("nothing heard yet")
            case "capped":
                return self.world.gateway.capped(rest) if self.world.gateway else ""
            case "asked":
                return self.world.gateway.asked(rest) if self.world.gateway else ()
            case "news":
                news = self.world.bus.news() if self.world.bus else None
                return news if news is not None else Unknown("no word from the director yet")
        return None

    def with_past(self, candidates: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
        """Each with what its issue's tickets that are over have come to."""
        over: dict[int, list[Item[Any]]] = {}
        for t in self.kind("ticket"):
            if t.state in OVER:
                over.setdefault(t.data.issue, []).append(t)
        return tuple(
            replace(c, past=_past(over[c.issue.number])) if c.issue.number in over else c for c in candidates
        )

    def _counts(self, ticket: Item[Any]) -> bool:
        """A ticket that is over counts until the release that it landed in is: a record keeps all that its
        decision saw, so what no decision asks for must not be in it."""
        if ticket.state not in OVER:
            return True
        release = self.items.get(ticket.data.landed_in)
        return release is not None and release.state not in ENDED

    def _releases(self) -> tuple[Peer, ...]:
        """All that are under way, and the last that ended."""
        found = self.kind("release")
        ended = sorted((i for i in found if i.state in ENDED), key=lambda i: (i.entered_at, i.id))
        left_out = {i.id for i in ended[:-ENDED_RELEASES_LIMIT]}
        return tuple(
            Peer(i.id, i.state, i.entered_at, i.entry, i.data) for i in found if i.id not in left_out
        )

    def _commands(self) -> tuple[Control, ...]:
        """Only those that are new are read: each machine asks in each of its turns."""
        new = self.world.store.controls(self.in_force[-1].id if self.in_force else 0)
        if new:
            self.in_force = _in_force((*self.in_force, *new))
        return self.in_force

    def _slots(self) -> Slots:
        tickets = self.kind("ticket")
        opening = sum(
            1
            for t in tickets
            if t.state == "ATTEMPTING" and t.data.spawned == t.entry and t.data.attempt not in self.items
        )
        live = opening + sum(1 for i in self.kind("attempt") if i.state != "CLOSED")
        want = [
            i
            for i in tickets
            if i.state == "CLAIMING"
            or (
                i.state == "ATTEMPTING"
                and i.data.spawned != i.entry
                and i.data.not_before <= self.world.clock.now()
            )
        ]
        if self._no_room():
            return Slots(live)  # nobody's turn comes before there is room on the disk
        return Slots(live, tuple(i.id for i in sorted(want, key=lambda i: (i.entered_at, i.id))))

    def _no_room(self) -> bool:
        free = self.world.free()
        return free is not None and free < self.world.policy().min_free_bytes

    def _lane(self) -> Lane:
        opened = [i for i in self.kind("release") if i.state == "OPEN"]
        if not opened:
            return Lane()
        release = min(opened, key=lambda i: i.id)
        landing = [i for i in self.kind("ticket") if i.state == "LANDING" and i.data.lands == "lane"]

        def place(i: Item[Any]) -> tuple[bool, float, str]:
            # Whoever is at it stays at it, also where the clock was set back since.
            return (i.data.turn != f"{release.id} {i.entry}", i.entered_at, i.id)

        turn = min(landing, key=place, default=None)
        d = release.data
        return Lane(release.id, d.version, d.branch, turn.id if turn else "", d.base_sha, d.prepare)


def _in_force(controls: tuple[Control, ...]) -> tuple[Control, ...]:
    """The newest commands, and the last that paused, drained or undid it however old it is: it still holds."""
    old, new = controls[:-CONTROLS_LIMIT], controls[-CONTROLS_LIMIT:]
    last = {c.id: c for verbs in HOLDING for c in [c for c in old if c.verb in verbs][-1:]}
    return (*(last[n] for n in sorted(last)), *new)


def _peer(item: Item[Any] | None) -> Peer | Unknown:
    if item is None:
        return Unknown("not opened yet")
    return Peer(item.id, item.state, item.entered_at, item.entry, item.data)


def _past(over: list[Item[Any]]) -> Past:
    last = max(over, key=lambda t: t.entered_at)
    attempts = max(t.data.offset + t.data.attempts for t in over)
    d = last.data
    busy = any(t.open_intent is not None for t in over)
    return Past(len(over), attempts, last.state, last.entered_at, d.failure, d.detail[:500], busy)


def entry(item: Item[Any], items: Mapping[str, Item[Any]]) -> Entry:
    """A ticket in short."""
    d = item.data
    attempt = items.get(d.attempt)
    doing = (
        f"attempt {attempt.data.code} {attempt.state.lower()}"
        if attempt and attempt.state != "CLOSED"
        else ""
    )
    return Entry(
        item.id, d.issue, d.title, item.state, item.entered_at, d.pull, d.head, d.landed_in, d.failure,
        d.detail[:500], d.offset + d.attempts, d.audits, d.cost_usd, doing,
    )  # fmt: skip


LOCAL = frozenset(
    {
        "item",
        "entries",
        "slots",
        "lane",
        "releases",
        "director",
        "controls",
        "signal",
        "limits",
        "beat",
        "asked",
        "capped",
        "news",
    }
)
