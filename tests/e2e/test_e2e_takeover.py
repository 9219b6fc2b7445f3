"""A director that is killed with three workers alive: its successor takes over those that live, knows how the
one ended that ended meanwhile, and keeps what one left that vanished altogether."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from demo_world import Finished, Stage, bundles, done, events, journals, left_over, store_of, wait_for
from director_world import World
from takeovers import LostInDocker

from harness.audit.replay import replay_bundle, replay_store
from harness.audit.verify import verify_audits, verify_store
from harness.core.journal import Record, read

pytestmark = pytest.mark.nightly

# The first two are at work until they may go on, the third fails at once when it may, the fourth hangs.
WORK = """
case $HARNESS_ISSUE in
3) while [ ! -e MARKS/fail ]; do sleep 0.2; done; exit 1 ;;
4) while [ ! -e MARKS/again ]; do sleep 0.2; done; echo four >four.txt ;;
*) while [ ! -e MARKS/go ]; do sleep 0.2; done; echo $HARNESS_ISSUE >work$HARNESS_ISSUE.txt ;;
esac
"""
TITLES = ["Go on", "Go on as well", "Fail alone", "Vanish"]
WITHIN_S = 30.0


@dataclass
class TakenOver:
    """`before`, `between` and `after` are the lives of the workers: at the kill, when the third had ended, and
    once the next director had adopted what it found."""

    folder: Path
    before: dict[str, str]
    between: dict[str, str]
    after: dict[str, str]
    last: Finished


def tree(pid: int) -> list[int]:
    """A process and all below it, by /proc."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(entry.name))
    found, left = [], [pid]
    while left:
        found.append(left.pop())
        left += parents.get(found[-1], [])
    return found


def vanish(job: Path) -> None:
    """The whole process tree of a job dies at once, its shim too, and its folder is gone."""
    life = next(f for f in Path("/proc").iterdir() if f.name.isdigit() and str(job) in _argv(f))
    for pid in tree(int(life.name)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(job)


def _argv(entry: Path) -> list[str]:
    try:
        return (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _workers(w: World) -> dict[str, str]:
    return {n: life for n, life in w.live().items() if n.endswith("-i1")}


def _journalled(w: World, code: str) -> bool:
    """Whether the director has heard of that attempt's agent at work."""
    witness = w.folder / "data" / "attempts" / code / "witness.jsonl"
    return witness.exists() and b'"StartAgent"' in witness.read_bytes()


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TakenOver]:
    stage = Stage(tmp_path_factory.mktemp("taken"))
    marks = stage.folder / "marks"
    marks.mkdir(parents=True)
    config = {
        "director": {"max_workers": 4, "max_retries": 1, "max_infra_retries": 1, "max_attempts": 1},
        "agent": {"kind": "command", "command": ["sh", "-c", _script(marks)]},
    }
    with World(stage, stage.folder / "world", "process", TITLES, config=config) as w:
        first = w.start("director")
        wait_for(lambda: all(_journalled(w, f"{n}.1") for n in (1, 2, 3, 4)), 200, "four agents at work")
        first.kill()
        before = _workers(w)
        (marks / "fail").touch()
        third = next(n for n in before if "-3-1-" in n)
        exited = w.folder / "data" / "jobs" / third / "exit.json"
        wait_for(exited.exists, 120, "the third worker ends")
        between = _workers(w)
        second = w.start("director", "--until-idle", "--json")
        wait_for(lambda: _adopted(w.folder), 200, "the next director adopts")
        after = _workers(w)
        fourth = next(n for n in before if "-4-1-" in n)
        vanish(w.folder / "data" / "jobs" / fourth)
        wait_for(lambda: _sealed(w.folder, "4.1"), 120, "the fourth attempt is sealed")
        (marks / "again").touch()
        (marks / "go").touch()
        yield TakenOver(w.folder, before, between, after, second.end())
    stage.close()


def _script(marks: Path) -> str:
    return WORK.replace("MARKS", str(marks)).replace("$", "$$")


def _adopted(folder: Path) -> list[tuple[float, Record]]:
    """The records in which a director after the first says what it adopted, and how long after its first."""
    found = []
    for machine, records in journals(folder, "/director/").items():
        if not machine.endswith("/1"):
            found += [(r.at - records[0].at, r) for r in records if r.body.get("note", {}).get("adopted")]
    return found


def _sealed(folder: Path, code: str) -> list[Path]:
    there = (folder / "audits").exists()
    return [b for b in bundles(folder) if b.name.endswith(f"-{code}")] if there else []


def _attempt(taken: TakenOver, code: str) -> tuple[Record, ...]:
    return next(r for m, r in journals(taken.folder, "/attempt/").items() if m.endswith(f"/{code}"))


def test_all_that_live_are_adopted_and_soon(taken: TakenOver) -> None:
    assert len(taken.before) == 4 and len(taken.between) == 3
    after_s, record = _adopted(taken.folder)[0]
    assert set(taken.between) <= set(record.body["note"]["adopted"])
    assert taken.between.items() <= taken.after.items()
    assert after_s < WITHIN_S


def test_the_exit_of_one_that_ended_meanwhile_is_known(taken: TakenOver) -> None:
    records = _attempt(taken, "3.1")
    end = next(r for r in records if r.body.get("event") == "exited")
    assert end.body["note"]["exit"] == 10 and end.body["note"]["failure"] == "agent_failed"
    assert "infra_lost" not in events(records) and len(done(records, "StartWorker")) == 1


def test_adopted_workers_end_their_work_in_their_first_incarnation(taken: TakenOver) -> None:
    assert taken.last.code == 0, taken.last.told[-4000:]
    tickets = {t["issue"]: t["state"] for t in taken.last.document["tickets"]}
    assert (tickets[1], tickets[2]) == ("RELEASED", "RELEASED")
    for code in ("1.1", "2.1"):
        records = _attempt(taken, code)
        assert "infra_lost" not in events(records) and len(done(records, "StartWorker")) == 1
    assert left_over(taken.folder, "process") == []


def test_one_that_vanished_leaves_a_bundle_as_far_as_it_got(taken: TakenOver) -> None:
    bundle = _sealed(taken.folder, "4.1")[0]
    records, fault = read((bundle / "journal.jsonl").read_bytes())
    assert fault is None and any(_begins(r, "StartAgent") for r in records)
    assert replay_bundle(bundle) == []
    assert events(_attempt(taken, "4.1"))[-3:] == ["exited", "harvested", "clean"]


def _begins(record: Record, effect: str) -> bool:
    intents: list[Any] = record.body.get("intents", [])
    return any(i.get("$") == effect for i in intents)


def test_everything_verifies_and_replays(taken: TakenOver) -> None:
    assert verify_audits(taken.folder / "audits") == []
    with store_of(taken.folder) as store:
        assert verify_store(store) == []
        assert [str(d) for d in replay_store(store)] == []


# ---------------------------------------------------------------- containers, and the store lost with the director


def test_a_container_is_taken_over_also_where_the_store_is_lost(lost_in_docker: LostInDocker) -> None:
    seen = lost_in_docker
    assert seen.told.code == 0, seen.told.told
    states = {m["machine"].rsplit("/", 1)[1]: m["state"] for m in seen.told.document["machines"]}
    assert (states["1.1"], states["2.1"]) == ("RUNNING", "RUNNING")
    mine = {n: i for n, i in seen.before.items() if "-1-1-" in n}
    assert mine and mine.items() <= seen.after.items()
    assert seen.last.code == 0, seen.last.told[-4000:]
    tickets = {t["issue"]: t["state"] for t in seen.last.document["tickets"]}
    assert tickets[1] == "RELEASED"
    assert len([p for p in seen.repo["pulls"] if p["head_ref"] == "agent/1"]) == 1
    assert left_over(seen.folder, "docker") == []


def test_a_container_that_was_removed_leaves_a_bundle(lost_in_docker: LostInDocker) -> None:
    bundle = _sealed(lost_in_docker.folder, "2.1")[0]
    records, fault = read((bundle / "journal.jsonl").read_bytes())
    assert fault is None and any(_begins(r, "StartAgent") for r in records)
    assert replay_bundle(bundle) == [] and verify_audits(lost_in_docker.folder / "audits") == []
