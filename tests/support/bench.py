"""A ticker over a workshop: looks that a test hands out, a pool that a test runs, and a director that dies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from workshop import REPO, Workshop

from harness.adapters.memory.store import MemoryStore
from harness.core.item import Item
from harness.domain import Unknown
from harness.effects import Effect
from harness.perform import perform
from harness.perform.outcome import Outcome, Sent
from harness.sim.turns import AtOnce
from harness.tick import Ticker

TICKET = f"{REPO}/ticket/1"


class Facts:
    """Looks that a test hands out."""

    def __init__(self, **facts: Any) -> None:
        self.facts = facts

    def see(self, item: Item[Any], query: str) -> Any:
        return self.facts.get(query, Unknown("not read yet"))


class Later(AtOnce):
    """A pool that does nothing until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: dict[Any, Callable[[], Outcome]] = {}

    def start(self, key: Any, port: str, do: Callable[[], Outcome]) -> None:
        self.begun[key] = do

    def busy(self, key: Any) -> bool:
        return key in self.begun

    def run(self) -> None:
        self.done.update({k: do() for k, do in self.begun.items()})
        self.begun.clear()


class Bench:
    """A ticker over a workshop. `performed` are the effects that were sent to the world, in order."""

    def __init__(self, w: Workshop, looks: Facts | None = None, performer: AtOnce | None = None) -> None:
        self.w = w
        self.performed: list[str] = []
        self.performer = performer or AtOnce()
        self.looks = looks or Facts(controls=(), **{"issue/1": w.hub.issues.get(1)})
        self.ticker = self.made(w.world)

    def made(self, world: Any) -> Ticker:
        return Ticker(world, self.looks, self.performer, self._perform, world.policy)

    def _perform(self, effect: Effect, sent: Sent, world: Any) -> Outcome:
        self.performed.append(type(effect).__name__)
        return perform(effect, sent, world)

    def restart(self) -> Item[Any]:
        """The director dies and comes back a second later, an epoch on."""
        self.w.clock.at += 1.0
        epoch = self.w.store.epoch + 1
        self.w.store = MemoryStore(self.w.clock, epoch=epoch, disk=self.w.store.disk)
        self.w.store.disk.epoch = epoch
        world = replace(self.w.world, store=self.w.store, epoch=epoch, epoch_began=self.w.clock.at)
        self.performer = AtOnce()
        self.ticker = self.made(world)
        item = self.ticker.load(TICKET)
        assert item is not None
        return item

    def tick(self, item: Item[Any], times: int = 1) -> Item[Any]:
        for _ in range(times):
            item = self.ticker.tick(item)
            self.w.clock.at += 0.001
        return item

    def rest(self, item: Item[Any], most: int = 50) -> Item[Any]:
        """Tick until its intents are closed; time passes where it waits."""
        for _ in range(most):
            if item.open_intent is None:
                return item
            new = self.tick(item)
            self.w.clock.at += 1.0 if new is item else 0.0
            item = new
        raise AssertionError(f"still open: {item.open_intent}")
