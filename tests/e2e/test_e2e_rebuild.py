"""A store that is lost or damaged again and again: it is made anew from the outside, and nothing is done twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from demo_world import Finished, Stage, bundles, left_over, store_of, wait_for
from director_world import World

from harness.audit.replay import replay_bundle, replay_store
from harness.audit.verify import verify_audits, verify_store
from harness.demo.crash import compare, world

pytestmark = pytest.mark.nightly

SLOW_S = 12
TITLES = ["Take your time", "Be quick"]
PLAYS = {
    "1": [{"sleep_s": SLOW_S, "say": "Slow.", "write": {"slow.txt": "slow\n"}}],
    "2": [{"say": "Quick.", "write": {"quick.txt": "quick\n"}}],
}


def lose(store: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        store.with_name(store.name + suffix).unlink(missing_ok=True)


def damage(store: Path) -> None:
    """Garbage in the pages, as a bad disk leaves it."""
    for name in ("store.db-wal", "store.db-shm"):
        store.with_name(name).unlink(missing_ok=True)
    raw = bytearray(store.read_bytes())
    raw[100:] = b"\xff" * (len(raw) - 100)
    store.write_bytes(raw)


def truncate(store: Path) -> None:
    for name in ("store.db-wal", "store.db-shm"):
        store.with_name(name).unlink(missing_ok=True)
    with store.open("r+b") as f:
        f.truncate(600)


@dataclass
class Turn:
    """One loss: what the next start said, what rebuild said, and the workers' lives before and after."""

    refused: Finished
    told: Finished
    before: dict[str, str]
    after: dict[str, str]


@dataclass
class Lost:
    folder: Path
    last: Finished
    shown: Finished
    turns: dict[str, Turn] = field(default_factory=dict)


def _pull(w: World, head: str) -> dict[str, Any]:
    return next((p for p in w.repo()["pulls"] if p["head_ref"] == head), {})


def _at_work(w: World) -> bool:
    return bool([n for n in w.live() if "-1-1-i" in n]) and bool(_pull(w, "agent/2"))


def _landed(w: World) -> bool:
    return bool(_pull(w, "agent/2").get("merged")) and bool(_pull(w, "release/0.1.0"))


def _released(w: World) -> bool:
    return bool(w.repo()["releases"])


POINTS: dict[str, tuple[Callable[[World], bool], Callable[[Path], None]]] = {
    "at work": (_at_work, damage),
    "landed": (_landed, lose),
    "released": (_released, truncate),
}


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lost]:
    stage = Stage(tmp_path_factory.mktemp("lost"))
    with World(stage, stage.folder / "world", "process", TITLES, PLAYS) as w:
        found = Lost(w.folder, *(Finished(1, "", "not run", 0.0),) * 2)
        for name, (there, harm) in POINTS.items():
            director = w.start("director", "--until-idle")
            wait_for(lambda there=there: there(w), 200, name)  # type: ignore[misc]
            director.kill()
            before = w.live()
            harm(w.folder / "data" / "store.db")
            refused = w.run("director", "--once")
            if harm is lose:
                found.turns[name] = Turn(refused, refused, before, w.live())
                continue
            if name == "at work":
                found.shown = w.run("rebuild", "--dry-run", "--json")
            found.turns[name] = Turn(refused, w.run("rebuild", "--json"), before, w.live())
        found.last = w.run("director", "--until-idle", "--json")
        yield found
    stage.close()


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    stage = Stage(tmp_path_factory.mktemp("calm"))
    with World(stage, stage.folder / "world", "process", TITLES, PLAYS) as w:
        assert w.run("director", "--until-idle").code == 0
        yield w.folder
    stage.close()


DAMAGED = [name for name, (_, harm) in POINTS.items() if harm is not lose]


@pytest.mark.parametrize("point", DAMAGED)
def test_a_start_refuses_and_names_the_remedy(lost: Lost, point: str) -> None:
    turn = lost.turns[point]
    assert turn.refused.code == 1 and "harness rebuild" in turn.refused.told
    assert len(turn.refused.told.strip().splitlines()) == 1


def test_a_start_without_the_store_makes_it_anew_and_goes_on(lost: Lost) -> None:
    turn = lost.turns["landed"]
    assert turn.refused.code == 0, turn.refused.told[-4000:]
    lines = [json.loads(x) for x in turn.refused.told.splitlines() if x.startswith("{")]
    found = {x["machine"]: x["state"] for x in lines if x["event"] == "rebuilt" and "machine" in x}
    assert found["ticket/2"] == "LANDED" and found["release/0.1.0"] == "OPEN"


@pytest.mark.parametrize("point", DAMAGED)
def test_rebuild_says_what_it_found(lost: Lost, point: str) -> None:
    turn = lost.turns[point]
    assert turn.told.code == 0, turn.told.told
    assert turn.told.document["wrong"] and not turn.told.document["dry_run"]
    names = {m["machine"].split("/", 2)[2] for m in turn.told.document["machines"]}
    assert {"release/0.1.0", "ticket/1", "ticket/2"} <= names


def test_a_preview_shows_the_same(lost: Lost) -> None:
    shown, told = lost.shown.document, lost.turns["at work"].told.document
    assert shown["dry_run"] and shown["epoch"] == 0
    assert {m["machine"] for m in shown["machines"]} == {m["machine"] for m in told["machines"]}


def test_what_had_landed_stays_landed(lost: Lost) -> None:
    states = {
        p: {
            m["machine"].rsplit("/", 2)[-2] + m["machine"][-2:]: m["state"]
            for m in t.told.document["machines"]
        }
        for p, t in lost.turns.items()
        if p in DAMAGED
    }
    assert states["released"]["ticket/1"] in ("LANDED", "RELEASED")
    assert [b.name.split("-", 2)[2] for b in bundles(lost.folder)].count("2.1") == 1
    assert len(bundles(lost.folder)) == 2


def test_the_worker_is_adopted(lost: Lost) -> None:
    turn = lost.turns["at work"]
    mine = {n: life for n, life in turn.before.items() if "-1-1-i" in n}
    assert mine and mine.items() <= turn.after.items()
    attempt = next(m for m in turn.told.document["machines"] if m["machine"].endswith("attempt/1.1"))
    assert attempt["state"] == "RUNNING" and "adopted" in attempt["why"]


def test_the_world_is_that_of_an_undisturbed_run(lost: Lost, calm: Path) -> None:
    assert lost.last.code == 0, lost.last.told[-4000:]
    assert compare(world(calm), world(lost.folder)) == []
    assert left_over(lost.folder, "process") == []


def test_the_journals_verify_replay_and_say_that_they_were_rebuilt(lost: Lost) -> None:
    assert verify_audits(lost.folder / "audits") == []
    assert {b.name: replay_bundle(b) for b in bundles(lost.folder)} == {
        b.name: [] for b in bundles(lost.folder)
    }
    with store_of(lost.folder) as store:
        assert verify_store(store) == []
        assert [str(d) for d in replay_store(store)] == []
        first = store.read("acme/tally/ticket/2")[0]
        assert first.kind == "snapshot" and first.body["rebuilt"]["why"]
        assert store.get("rebuilt")["epoch"] == 7


def test_nothing_of_an_old_store_is_deleted(lost: Lost) -> None:
    aside = [Path(lost.turns[p].told.document["aside"]).name for p in DAMAGED]
    assert aside == ["store.db.damaged-1", "store.db.damaged-2"]
    assert all((lost.folder / "data" / name).is_file() for name in aside)
