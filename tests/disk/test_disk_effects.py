"""Effects on a disk that has no room, or that takes nothing: put off, at nobody's cost, and never a bug."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from disk_world import Time, fill, small_disk

from harness import effects as fx
from harness.adapters.memory.store import MemoryStore
from harness.adapters.process import ProcessRuntime
from harness.adapters.store.sql import SqlStore
from harness.core.item import Item
from harness.core.result import Err, Ok
from harness.failures import Failure
from harness.loop import Loop
from harness.machines.director.states import Director
from harness.perform import perform
from harness.perform.outcome import Sent
from harness.policy import Policy
from harness.ports import World
from harness.tick import Ticker

NEVER = Sent(None)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "2m") as at:
        yield at


def world(data: Path, **more: Any) -> World:
    clock = Time()
    runtime = ProcessRuntime(data / "jobs", data=data, clock=clock)
    return World(clock, MemoryStore(clock, code="1"), lambda: Policy(min_free_bytes=1 << 20), data,
                 **{"runtime": runtime, "free": lambda: 0, **more})  # fmt: skip


STARTS = (
    fx.Clone("1.1", "a" * 40, "agent/1", "main"),
    fx.StartGate("gate-1", "a" * 40, ("true",), "image", ""),
    fx.StartPrepare("prepare-1", "a" * 40, ("true",), "image"),
    fx.StartWorker("w", "1.1", 1, "image", ""),
)


@pytest.mark.parametrize("effect", STARTS, ids=lambda e: type(e).__name__)
def test_below_the_floor_nothing_starts_and_it_is_written_once(effect: Any, tmp_path: Path) -> None:
    first = perform(effect, NEVER, world(tmp_path))
    assert (first.status, first.failure) == ("deferred", Failure.DISK_FULL)
    assert first.detail == "only 0 MiB free on disk; 1 MiB are needed to start work"
    again = perform(effect, replace(NEVER, tries=1), world(tmp_path))
    assert again.status == "later", "waiting is at nobody's cost, however long it lasts"
    assert not any(tmp_path.iterdir())


def test_what_saves_work_is_not_held_up(tmp_path: Path) -> None:
    done = perform(fx.WriteBrief("1.1", {}), NEVER, world(tmp_path))
    assert done.status == "done"


def test_a_full_disk_puts_off(disk: Path) -> None:
    fill(disk)
    out = perform(fx.WriteBrief("1.1", {"text": "x" * 50_000}), NEVER, world(disk))
    assert (out.status, out.failure) == ("deferred", Failure.DISK_FULL)
    assert "No space left on device" in out.detail and "\n" not in out.detail
    (disk / "filler").unlink()
    assert perform(fx.WriteBrief("1.1", {"text": "x" * 50_000}), NEVER, world(disk)).status == "done"


def test_a_disk_without_inodes_puts_off(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "2m", "nr_inodes=10") as disk:
        made = [disk / f"file-{n}" for n in range(9)]
        for path in made:
            path.touch()
        out = perform(fx.WriteBrief("1.1", {}), NEVER, world(disk))
        assert (out.status, out.failure) == ("deferred", Failure.DISK_FULL)
        for path in made:
            path.unlink()
        assert perform(fx.WriteBrief("1.1", {}), NEVER, world(disk)).status == "done"


def test_a_disk_that_takes_nothing_puts_off(disk: Path) -> None:
    remount(disk, "ro")
    out = perform(fx.WriteBrief("1.1", {}), NEVER, world(disk))
    assert (out.status, out.failure) == ("deferred", Failure.INFRA_ENGINE)
    assert str(disk) in out.detail and "Read-only file system" in out.detail
    remount(disk, "rw")
    assert perform(fx.WriteBrief("1.1", {}), NEVER, world(disk)).status == "done"


def remount(disk: Path, mode: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{mode}", str(disk)], check=True, timeout=30)


class Nothing:
    """Sees large facts, so that a record needs a blob; performs nothing."""

    def see(self, item: Item[Any], query: str) -> Any:
        return "x" * 10_000

    def start(self, *_: Any) -> None:
        raise AssertionError("nothing is performed here")

    take = busy = lambda self, key: None


@pytest.mark.parametrize("how", ["full", "ro"])
def test_a_store_that_cannot_write_sets_no_machine_aside(disk: Path, how: str) -> None:
    """Far more passes than `quarantine_after`; the first one with room goes on."""
    clock = Time()
    store = SqlStore.open(disk / "store.db", clock=clock, code="1")
    store.set_epoch(1)
    w = World(clock, store, Policy, disk, 1)
    ticker = Ticker(w, Nothing(), Nothing(), lambda *_: None, Policy)  # type: ignore[arg-type]
    said: list[str] = []
    loop = Loop(ticker, report=lambda what, item, text: said.append(text))
    machine = "acme/widget/director/1"
    loop.items[machine] = ticker.open(machine, Director("acme/widget"))
    if how == "full":
        fill(disk)
    else:
        store.close()
        remount(disk, "ro")
        w = replace(w, store=SqlStore.open(disk / "store.db", clock=clock, code="1", epoch=1, read_only=True))
        ticker.world = w
    for _ in range(20):
        loop.turn()
    assert loop.trouble and "\n" not in loop.trouble
    assert not loop.out and not loop.strikes and "exception" not in " ".join(said)
    assert loop.items[machine].state == "BOOT"
    if how == "full":
        (disk / "filler").unlink()
        loop.turn()
        assert loop.items[machine].state != "BOOT" and not loop.trouble


def test_a_purge_is_given_a_path_that_it_takes(tmp_path: Path) -> None:
    """A folder that we may not remove is purged by the engine, by its path below the data folder."""
    asked: list[str] = []

    class Denied:
        def discard(self, folder: Path) -> Any:
            return Ok(None) if asked else Err(Failure.INFRA_KILLED, f"removing {folder} was denied")

    class Purging(ProcessRuntime):
        def purge(self, path: str, image: str) -> Any:
            asked.append(path)
            return Ok(None)

    runtime = Purging(tmp_path / "jobs", data=tmp_path, clock=Time())
    done = perform(fx.Discard("1.1"), NEVER, world(tmp_path, repo=Denied(), runtime=runtime))
    assert done.status == "done" and asked == ["attempts/1.1/clone"]
