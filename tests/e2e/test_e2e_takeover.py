"""A director that is killed with three workers alive: its successor takes over those that live, knows how the
one ended that ended meanwhile, and keeps what one left that vanished altogether."""

from __future__ import annotations

from typing import Any

from demo_world import done, events, journals, left_over, store_of
from takeovers import LostInDocker, TakenOver, adopted, sealed

from harness.audit.replay import replay_bundle, replay_store
from harness.audit.verify import verify_audits, verify_store
from harness.core.journal import Record, read

WITHIN_S = 90.0  # thirty is the promise, on a machine of its own


def _attempt(taken: TakenOver, code: str) -> tuple[Record, ...]:
    return next(r for m, r in journals(taken.folder, "/attempt/").items() if m.endswith(f"/{code}"))


def test_all_that_live_are_adopted_and_soon(taken: TakenOver) -> None:
    assert len(taken.before) == 4 and len(taken.between) == 3
    after_s, record = adopted(taken.folder)[0]
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
    assert taken.left == []


def test_one_that_vanished_leaves_a_bundle_as_far_as_it_got(taken: TakenOver) -> None:
    bundle = sealed(taken.folder, "4.1")[0]
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
    bundle = sealed(lost_in_docker.folder, "2.1")[0]
    records, fault = read((bundle / "journal.jsonl").read_bytes())
    assert fault is None and any(_begins(r, "StartAgent") for r in records)
    assert replay_bundle(bundle) == [] and verify_audits(lost_in_docker.folder / "audits") == []
