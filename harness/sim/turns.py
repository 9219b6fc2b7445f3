"""The loop's pass, without threads: ticks machines of one world and does everything at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from harness.core.item import Item
from harness.looks import Looks, Own
from harness.machines.all import kind_of
from harness.perform import perform
from harness.perform.local import feed
from harness.perform.outcome import Outcome
from harness.ports import World
from harness.tick import Ticker


class AtOnce:
    """Performs where it stands."""

    def __init__(self) -> None:
        self.done: dict[tuple[Any, ...], Outcome] = {}

    def start(self, key: tuple[Any, ...], port: str, do: Callable[[], Outcome]) -> None:
        self.done[key] = do()

    def take(self, key: tuple[Any, ...]) -> Outcome | None:
        return self.done.pop(key, None)

    def busy(self, key: tuple[Any, ...]) -> bool:
        return False


def at_once(port: str, do: Callable[[], None]) -> bool:
    do()
    return True


@dataclass
class Turns:
    ticker: Ticker
    items: dict[str, Item[Any]] = field(default_factory=dict)
    out: set[str] = field(default_factory=set)

    @classmethod
    def of(
        cls, world: World, signal: Callable[[], str], rhythm: Callable[[str], float], boundary: Callable[[str], None]
    ) -> Turns:
        items: dict[str, Item[Any]] = {}
        looks = Looks(world, Own(world, items, signal), at_once, rhythm)
        ticker = Ticker(world, looks, AtOnce(), perform, world.policy, boundary)
        return cls(ticker, items)

    def load(self, machines: tuple[str, ...]) -> None:
        for m in machines:
            item = self.ticker.load(m)
            if item is not None:
                self.items[m] = item

    def open(self, machine: str, data: Any) -> None:
        self.items[machine] = self.ticker.open(machine, data)

    def turn(self) -> bool:
        moved = False
        for name in list(self.items):
            item = self.items[name]
            if name in self.out or (item.open_intent is None and item.state in kind_of(name).table.final):
                continue
            new = self.ticker.tick(item)
            if new is not item:
                moved = True
                self.items[name] = new
            for opened in self.ticker.opened:
                self.items[opened.id] = opened
                moved = True
            self.ticker.opened.clear()
        feed([i for k, i in self.items.items() if "/attempt/" in k], self.ticker.world)
        return moved
