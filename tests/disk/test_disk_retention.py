"""Retention on real folders: what goes, what must stay, and that the index says what went and why."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from disk_world import Time, small_disk
from hypothesis import given
from hypothesis import strategies as st

from harness.adapters.git import GitRepo
from harness.adapters.git.limits import GitLimits
from harness.adapters.memory.store import MemoryStore
from harness.adapters.process import ProcessRuntime
from harness.audit import index
from harness.audit.bundle import seal
from harness.audit.files import AuditError
from harness.audit.index import Line
from harness.audit.verify import verify_audits
from harness.compose.retention import Bounds, Keeper, Told, expired, told
from harness.core.item import Intent, Item
from harness.core.journal import iso
from harness.domain import Job
from harness.machines.attempt.states import Attempt
from harness.machines.director.states import Director
from harness.machines.release.states import Release
from harness.machines.ticket.states import Ticket
from harness.policy import Policy
from harness.ports import World

REPO = "acme/widget"
DAY = 86400.0
NOW = 1_800_000_000.0


def attempt(code: str, state: str = "CLOSED", **more: Any) -> Item[Any]:
    ticket = f"{REPO}/ticket/{code.partition('.')[0]}"
    return Item(f"{REPO}/attempt/{code}", state, Attempt(code=code, ticket=ticket, audit="yes", **more))


def ticket(n: int, state: str = "RELEASED", release: str = "1.0.0") -> Item[Any]:
    return Item(
        f"{REPO}/ticket/{n}", state, Ticket(issue=n, landed_in=f"{REPO}/release/{release}" if release else "")
    )


def release(version: str = "1.0.0", state: str = "PUBLISHED", prepare: str = "") -> Item[Any]:
    return Item(f"{REPO}/release/{version}", state, Release(version=version, prepare=prepare))


def open_(item: Item[Any]) -> Item[Any]:
    return Item(item.id, item.state, item.data, intents=(Intent(0, {"$": "Comment"}),))


# ---------------------------------------------------------------- what is over

OVER = (release(), ticket(1), ticket(2), attempt("1.1"), attempt("2.1"), attempt("2.2"))


def over(*items: Item[Any]) -> set[str]:
    """The attempts whose evidence may go, with these in place of those in `OVER`."""
    known = {i.id: i for i in (*OVER, *items)}
    return {a.rsplit("/", 1)[1] for a in told(known.values()).group}


def test_what_is_over_may_go() -> None:
    assert over() == {"1.1", "2.1", "2.2"}


@pytest.mark.parametrize(
    "item",
    [
        release(state="OPEN"), release(state="NEEDS_PERSON"), open_(release()), ticket(2, "LANDED"),
        ticket(2, "DEFERRED"), open_(ticket(2)), attempt("2.2", "CLEANING"), open_(attempt("2.2")),
    ],
    ids=lambda i: f"{i.id.split('/', 2)[2]}-{i.state}{'-open' if i.intents else ''}",
)  # fmt: skip
def test_a_release_goes_as_a_whole_or_not_at_all(item: Item[Any]) -> None:
    assert over(item) == set()


@pytest.mark.parametrize("state", ["CLAIMING", "ATTEMPTING", "WAITING", "REVIEWING", "DEFERRED", "BLOCKED"])
def test_a_ticket_that_somebody_may_take_up_again_keeps_its_evidence(state: str) -> None:
    assert over(ticket(3, state, ""), attempt("3.1")) == {"1.1", "2.1", "2.2"}
    assert "3.1" in over(ticket(3, "GONE", ""), attempt("3.1"))


def test_an_attempt_that_no_ticket_claims_stays() -> None:
    assert "9.1" not in over(attempt("9.1"))


def line(audit: str, code: str, age_days: float) -> Line:
    return Line(audit, iso(NOW - age_days * DAY), f"{REPO}/attempt/{code}")


LINES = (line("a", "1.1", 100), line("b", "2.1", 95), line("c", "2.2", 50), line("d", "3.1", 91))
GROUPS = {f"{REPO}/attempt/{c}": g for c, g in (("1.1", "r1"), ("2.1", "r2"), ("2.2", "r2"), ("3.1", "t3"))}


def gone(sizes: dict[str, int], **more: Any) -> list[str]:
    bounds = Bounds(more.pop("retention_s", 90 * DAY), more.pop("total_bytes", 0))
    return [a for a, _ in expired(LINES, sizes, more.pop("group", GROUPS), bounds, NOW)]


ALL = dict.fromkeys("abcd", 10)


def test_only_what_is_past_its_time_goes_oldest_first() -> None:
    assert gone(ALL) == ["a", "d"], "b waits for the youngest bundle of its release"
    assert gone(ALL, retention_s=49 * DAY) == ["a", "d", "b", "c"]
    assert gone({"b": 1, "c": 1}) == [], "what is not there does not go"
    assert gone(ALL, group={}) == [], "what belongs to nothing that is over stays, however old"


def test_above_the_bound_the_oldest_go_before_their_time() -> None:
    assert gone(ALL, retention_s=1000 * DAY, total_bytes=40) == []
    assert gone(ALL, retention_s=1000 * DAY, total_bytes=39) == ["a"]
    assert gone(ALL, retention_s=1000 * DAY, total_bytes=15) == ["a", "d", "b", "c"]


@given(
    st.lists(st.tuples(st.integers(0, 6), st.floats(0, 200), st.integers(0, 50)), max_size=12),
    st.sets(st.integers(0, 6)), st.integers(0, 300),
)  # fmt: skip
def test_no_group_is_ever_split_and_none_that_is_not_over_is_touched(
    made: list[tuple[int, float, int]], over_: set[int], total: int
) -> None:
    lines = [line(str(n), f"{g}.{n}", age) for n, (g, age, _) in enumerate(made)]
    sizes = {str(n): size for n, (_, _, size) in enumerate(made)}
    group = {x.machine: f"g{g}" for x, (g, _, _) in zip(lines, made, strict=True) if g in over_}
    went = {a for a, _ in expired(lines, sizes, group, Bounds(90 * DAY, total), NOW)}
    for n, (g, _, _) in enumerate(made):
        mates = {str(m) for m, (other, _, _) in enumerate(made) if other == g}
        assert str(n) not in went or (g in over_ and mates <= went)
    left = sum(s for a, s in sizes.items() if a not in went)
    stay = sum(s for n, s in sizes.items() if made[int(n)][0] not in over_)
    assert not total or left <= max(total, stay)


# ---------------------------------------------------------------- on a disk


@dataclass
class House:
    """An audit folder and a data folder, and a keeper of both."""

    folder: Path
    clock: Time
    keeper: Keeper

    @property
    def audits(self) -> Path:
        return self.folder / "audits"

    def seal(self, code: str, age_days: float = 100, size: int = 1000) -> str:
        (self.folder / "agent.log").write_bytes(b"x" * size)
        meta = {"machine": f"{REPO}/attempt/{code}", "attempt": code, "issue": int(float(code))}
        return seal(
            self.audits, meta=meta, journal_lines=b"", blobs={}, at=NOW - age_days * DAY,
            extra={"agent.log": self.folder / "agent.log"},
        )  # fmt: skip

    def sweep(self, *items: Item[Any]) -> list[str]:
        return self.keeper.sweep(told(items))

    def there(self) -> list[str]:
        return index.bundles_on_disk(self.audits)


def house(folder: Path, **bounds: Any) -> House:
    folder.mkdir(parents=True, exist_ok=True)
    clock = Time(NOW)
    data = folder / "data"
    repo = GitRepo(
        data, remote=str(folder / "no.git"), token=str, author=("h", "h@localhost"), clock=clock,
        limits=GitLimits(), instance="i",
    )  # fmt: skip
    world = World(
        clock, MemoryStore(clock, code="1"), Policy, data, repo=repo,
        runtime=ProcessRuntime(data / "jobs", data=data, clock=clock),
    )  # fmt: skip
    kept = Bounds(bounds.get("retention_s", 90 * DAY), bounds.get("total_bytes", 0))
    return House(folder, clock, Keeper(world, folder / "audits", lambda: kept, lambda port, do: True))


def test_a_removed_bundle_is_written_down_and_verifies(tmp_path: Path) -> None:
    h = house(tmp_path)
    old, young = h.seal("1.1"), h.seal("2.1", 10)
    tickets = (ticket(1, "GONE", ""), ticket(2, "GONE", ""))
    assert h.sweep(*tickets, attempt("1.1"), attempt("2.1")) == []
    assert h.there() == [young] and verify_audits(h.audits) == []
    with pytest.raises(AuditError, match=r"1\.1 in .* was removed on 2027-01-15: .* older than 90 days"):
        index.find(h.audits, "1.1")
    whole = index.read_index(h.audits)
    assert whole[old].removed and whole[old].manifest and not whole[young].removed
    index.rebuild_index(h.audits)
    assert index.read_index(h.audits) == whole and verify_audits(h.audits) == []
    assert h.seal("1.1") == old, "what was sealed once is not sealed again"


def test_a_bundle_that_went_by_hand_is_still_missed(tmp_path: Path) -> None:
    h = house(tmp_path)
    shutil.rmtree(h.audits / h.seal("1.1"))
    h.sweep(ticket(1, "GONE", ""), attempt("1.1"))
    assert [f.what for f in verify_audits(h.audits)] == ["its bundle is missing: the index has a line for it"]


@pytest.mark.parametrize("after", ["rename", "emptying", "line"])
def test_a_removal_that_was_cut_off_is_ended(tmp_path: Path, after: str) -> None:
    h = house(tmp_path)
    old = h.seal("1.1")
    aside = h.audits / f".{old}.removing"
    os.rename(h.audits / old, aside)
    if after != "rename":
        (aside / "agent.log").unlink()
    if after == "line":
        known = index.read_index(h.audits)[old]
        index.append_line(h.audits, Line(old, known.at, known.machine, removed=iso(NOW), why="by retention"))
    assert verify_audits(h.audits) == [] and h.there() == []
    h.sweep()
    assert not aside.exists() and index.read_index(h.audits)[old].removed
    assert (h.audits / "index.jsonl").read_text().count('"removed"') == 1


def test_room_is_made_on_a_disk_that_is_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "2m") as disk:
        h = house(disk)
        names = [h.seal(f"{n}.1", size=300_000) for n in range(1, 4)]
        fill = disk / "fill"
        with pytest.raises(OSError), fill.open("wb", buffering=0) as f:
            while True:
                f.write(b"x" * 4096)
        items = [x for n in range(1, 4) for x in (ticket(n, "GONE", ""), attempt(f"{n}.1"))]
        assert h.sweep(*items) == []
        assert h.there() == [] and verify_audits(h.audits) == []
        assert set(index.read_index(h.audits)) == set(names)


def test_a_bound_that_cannot_be_held_is_said(tmp_path: Path) -> None:
    h = house(tmp_path, total_bytes=1000)
    h.seal("1.1", 1)
    said = h.sweep(ticket(1, "DEFERRED", ""), attempt("1.1"))
    assert len(said) == 1 and "more than audit.total_bytes" in said[0] and "\n" not in said[0]
    assert h.sweep(ticket(1, "GONE", ""), attempt("1.1")) == [] and h.there() == []


def test_what_ended_attempts_left_goes_and_what_lives_stays(tmp_path: Path) -> None:
    h = house(tmp_path)
    data = tmp_path / "data"
    for code in ("1.1", "2.1", "3.1", "4.1"):
        for part in ("clone", "audit/jobs/run-1"):
            (data / "attempts" / code / part).mkdir(parents=True)
        (data / "attempts" / code / "clone.owner.json").write_text('{"complete": true}')
        (data / "attempts" / code / "audit" / "jobs" / "run-1" / "output.log").write_text("x")
        (data / "attempts" / code / "clone" / "big").write_bytes(b"x" * 5000)
    unsealed = Item(f"{REPO}/attempt/3.1", "CLOSED", Attempt(code="3.1", ticket=f"{REPO}/ticket/3"))
    items = (attempt("1.1"), attempt("2.1", "RUNNING"), unsealed)
    for code in ("1.1", "3.1"):
        os.utime(data / "attempts" / code, (NOW - DAY, NOW - DAY))
    assert h.sweep(*items) == []
    assert sorted(p.name for p in (data / "attempts").iterdir()) == ["2.1", "3.1", "4.1"]
    assert (data / "attempts" / "2.1" / "clone" / "big").exists()
    assert not (data / "attempts" / "3.1" / "clone").exists(), "its clone is no evidence"
    assert (data / "attempts" / "3.1" / "audit" / "jobs" / "run-1" / "output.log").exists()
    os.utime(data / "attempts" / "3.1", (NOW - 91 * DAY, NOW - 91 * DAY))
    assert h.sweep(*items) == []
    assert sorted(p.name for p in (data / "attempts").iterdir()) == ["2.1", "4.1"]


def test_jobs_of_ended_attempts_go(tmp_path: Path) -> None:
    h = house(tmp_path)
    h.clock.at = time.time()
    runtime = h.keeper.world.runtime
    assert runtime is not None
    for code, argv in (("1.1", ("true",)), ("2.1", ("true",)), ("1.2", ("sleep", "60"))):
        job = Job(name=f"w-{code}", argv=argv, role="worker", labels={"harness.attempt": code})
        runtime.start(job).unwrap()
    try:
        _until_ended(runtime, {"w-1.1", "w-2.1"})
        assert h.sweep(attempt("1.1"), attempt("1.2"), attempt("2.1", "RUNNING")) == []
        assert {s.name for s in runtime.ours().unwrap()} == {"w-1.2", "w-2.1"}, (
            "what lives is not ours to end"
        )
    finally:
        for name in ("w-1.2", "w-2.1"):
            runtime.remove(name)


def _until_ended(runtime: Any, names: Iterable[str]) -> None:
    end = time.monotonic() + 30
    while any(runtime.status(n).unwrap().alive for n in names):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_dependencies_that_nobody_uses_go_but_for_the_newest(tmp_path: Path) -> None:
    h = house(tmp_path)
    root = tmp_path / "data" / "prepared"
    store = h.keeper.world.store
    for n in range(8):
        (root / f"prepare-{n}" / "files").mkdir(parents=True)
        store.put(f"prepared/prepare-{n}", {"at": 1})
        os.utime(root / f"prepare-{n}", (NOW - (10 - n) * DAY, NOW - (10 - n) * DAY))
    items = (
        release("1.0.0", "PUBLISHED", "prepare-0"), release("2.0.0", "GATING", "prepare-1"),
        attempt("1.1", "RUNNING", prepare="prepare-2"), attempt("1.2", prepare="prepare-3"),
        Item(f"{REPO}/director/9", "DISPATCHING", Director(REPO, prepare="prepare-0")),
        Item(f"{REPO}/director/10", "DISPATCHING", Director(REPO, prepare="prepare-4")),
    )  # fmt: skip
    assert h.sweep(*items) == []
    left = {int(p.name[8:]) for p in root.iterdir()}
    assert left == {1, 2, 4, 5, 6, 7}
    assert {n for n in range(8) if store.get(f"prepared/prepare-{n}")} == left


def test_a_sweep_that_fails_is_one_line_and_comes_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    h = house(tmp_path)
    ran: list[str] = []
    h.keeper.start = lambda port, do: (ran.append(port), do()) is not None
    (tmp_path / "audits").mkdir()
    (tmp_path / "audits" / "index.jsonl").symlink_to("/nonexistent")
    for n in range(3):
        h.keeper.after({})
        assert h.keeper.trouble and len(ran) == n + 1
        h.keeper.after({})
        assert len(ran) == n + 1, "not before it is due"
        h.clock.at += 601
    assert capsys.readouterr().err.count("\n") == 1, "the same trouble is said once"
    (tmp_path / "audits" / "index.jsonl").unlink()
    h.keeper.after({})
    assert not h.keeper.trouble and not h.keeper.sweeping


def test_the_mirror_is_packed_once_a_day(tmp_path: Path) -> None:
    h = house(tmp_path)
    calls: list[float] = []
    h.keeper.tidy = lambda: calls.append(h.clock.at)
    for hours in (0, 1, 12, 25, 26):
        h.clock.at = NOW + hours * 3600
        h.keeper.sweep(Told({}, {}, frozenset()))
    assert calls == [NOW, NOW + 25 * 3600]
