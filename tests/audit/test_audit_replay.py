"""Replaying: the same code decides again what it decided, and what was decided otherwise is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from audit_stage import ISSUES, REPO, Stage, begun, candidates, director, ended
from conftest import Play

from harness.adapters.memory.store import MemoryStore
from harness.audit.replay import Divergence, divergences, replay, replay_bundle, replay_store
from harness.core import journal
from harness.core.item import Item
from harness.core.journal import Draft, Record
from harness.domain import Slots, Unknown
from harness.failures import Failure
from harness.loop import Loop
from harness.machines.ticket.states import Ticket
from harness.perform.outcome import Outcome
from harness.policy import Policy
from harness.sim.night import Night

TICKET = f"{REPO}/ticket/12"
WORKER = f"{REPO}/worker/12.1"


def change(records: list[Record], n: int, **body: Any) -> list[Record]:
    """Record `n` says something else, and everything after it is sealed again: the chain is whole."""
    made: list[Record] = []
    prev = journal.GENESIS
    for r in records:
        new = {**r.body, **body} if r.seq == n else r.body
        head = {"machine": r.machine, "seq": r.seq, "at": r.at, "epoch": r.epoch, "code": r.code}
        made.append(journal.seal(Draft(r.kind, new), **head, prev=prev))  # type: ignore[arg-type]
        prev = made[-1].hash
    return made


def blobs(play: Play) -> Callable[[str], bytes | None]:
    return play.given["blobs"].get  # type: ignore[no-any-return]


# ---------------------------------------------------------------- what was decided is decided again


def test_a_whole_play_replays_without_a_divergence(play: Play) -> None:
    for stage in (play.director, play.worker):
        assert stage.store is not None
        told: list[str] = []
        assert replay_store(stage.store, tell=told.append) == []
        assert told == list(stage.store.machines())


def test_a_sealed_bundle_replays_alone(bundle: Callable[..., Path]) -> None:
    assert replay_bundle(bundle()) == []


PLAY = {
    1: [{"write": {"a": "done"}}],
    2: [{"write": {"b": "BUG"}}, {"write": {"b": "fine"}}],
    3: [{"write": {"c": "BUG"}}],
    4: [{"question": "Which colour?", "status": "done"}, {"write": {"d": "blue"}}],
}


@pytest.mark.parametrize("crashes", [0, 5])
def test_every_decision_of_a_night_replays_also_over_crashes(crashes: int) -> None:
    """Director, tickets, attempts, release and workers, from the first issue to the tag."""
    policy = Policy(repo=REPO, commands=("test",), merge="auto", interval_s=5.0, image="img")
    night = Night(policy, PLAY)
    for n in range(1, 6):
        night.hub.person_opens("ada", f"Issue number {n}", "please", ("harness",))
    began = night.clock.at
    left = [began + 20.0 * n for n in range(1, crashes + 1)]
    said: list[int] = []

    def done(night: Night) -> bool:
        if left and night.clock.at >= left[0]:
            left.pop(0)
            night.crash()
        if night.states().get("ticket/4") == "WAITING" and not said:
            said.append(night.hub.person_comments("ada", 4, "blue"))
        return night.states().get("release/0.1.0") == "PUBLISHED"

    night.run(done, limit_s=20_000)
    stores = [MemoryStore(night.clock, disk=disk) for disk in (night.disk, *night.crew.disks.values())]
    assert sum(len(s.read(m)) for s in stores for m in s.machines()) > 300
    assert [str(d) for s in stores for d in replay_store(s)] == []


def test_a_snapshot_is_checked_too(play: Play) -> None:
    records = play.worker.records("worker/12.1")
    last = records[-1]
    assert last.kind == "snapshot"
    item = {**last.body["item"], "state": "BLOCKED"}
    found = replay(change(records, last.seq, item=item), blobs(play))
    assert found is not None and (found.seq, found.what) == (last.seq, "snapshot")
    assert (found.expected, found.got) == ({"state": "DONE"}, {"state": "BLOCKED"})


def test_a_journal_whose_beginning_has_expired_is_taken_up_at_its_snapshot(play: Play) -> None:
    stage = Stage(policy=play.director.policy)
    director(stage)
    item = stage.items[f"{REPO}/director/7"]
    stage.items[item.id] = stage.ticker._snapshot(item)
    stage.facts["candidates"] = candidates()
    stage.clock.at += 600
    stage.go("director/7")
    assert stage.store is not None
    records = stage.records("director/7")
    assert len(records) > item.seq + 2
    for first in (2, item.seq):
        assert replay(records[first:], stage.store.get_blob) is None
    changed = change(records, len(records), to="SHUTDOWN")[item.seq :]
    found = replay(changed, stage.store.get_blob)
    assert found is not None and found.seq == len(records)


# ---------------------------------------------------------------- what was decided otherwise


def first(play: Play, n: int, **body: Any) -> Divergence:
    found = replay(change(play.worker.records("worker/12.1"), n, **body), blobs(play))
    assert found is not None and found.seq == n and found.machine == WORKER
    return found


def test_another_event_is_named_with_what_it_must_have_been(play: Play) -> None:
    """The validation was red, and the journal says it passed."""
    found = first(play, 11, event="validated", to="COMMIT")
    assert (found.what, found.expected, found.got, found.same_code) == (
        "event",
        "retryable",
        "validated",
        True,
    )
    assert str(found) == f"record 11 of {WORKER}: must have event retryable, the journal has validated"


def test_another_target_reason_note_or_intent_is_named(play: Play) -> None:
    assert first(play, 11, to="CODE").what == "to"
    found = first(play, 11, reason="it was not so bad")
    assert found.what == "reason" and "still red" in found.expected and found.got == "it was not so bad"
    note = play.worker.records("worker/12.1")[10].body["note"]
    found = first(play, 11, note={**note, "counters": {}})
    assert (found.what, found.expected, found.got) == ("note", {"counters": {"rework": 1}}, {"counters": {}})
    found = first(play, 7, intents=[])
    assert found.what == "intents" and found.expected[0]["$"] == "StartAgent" and found.got == []


def policies(stage: Stage) -> Callable[[str], bytes | None]:
    """Of all blobs of a stage, only the policies: no record can be replayed without its own."""

    def get(sha: str) -> bytes | None:
        found = stage.store.get_blob(sha) if stage.store is not None else None
        return found if found and b'"min_free_bytes"' in found else None

    return get


def test_the_opening_must_begin_what_its_start_state_begins(play: Play) -> None:
    records = play.director.records("attempt/12.1")
    found = replay(change(records, 1, intents=records[0].body["intents"][:1]), policies(play.director))
    assert found is not None and (found.seq, found.what) == (1, "intents")
    found = replay(change(records, 1, to="RUNNING"), policies(play.director))
    assert found is not None and (found.seq, found.what, found.expected) == (1, "to", "PREPARING")


def test_a_move_where_nothing_could_be_decided_is_named(play: Play) -> None:
    """The facts it was given say "not read yet": nothing follows from that."""
    records = play.worker.records("worker/12.1")
    seen = records[8].body["seen"]
    unread = {q: {"value": {"$": "Unknown", "why": "not read yet"}} for q in seen["facts"]}
    found = first(play, 9, seen={**seen, "facts": unread})
    assert found.what == "event" and found.expected.startswith("none (waiting: looking at the agent")


def test_an_outcome_out_of_turn_is_named(play: Play) -> None:
    found = first(play, 8, effect="Commit")
    assert (found.what, found.expected, found.got) == ("outcome", "0 StartAgent", "0 Commit")
    found = first(play, 8, intent=3)
    assert (found.what, found.got) == ("outcome", "3 StartAgent")


def test_a_move_before_its_effects_were_finished_is_named(play: Play) -> None:
    records = play.worker.records("worker/12.1")
    found = replay([*records[:7], *change(records, 9)[8:]], blobs(play))
    assert found is not None and found.seq == 9 and found.expected == "none (StartAgent was not finished)"


def test_a_move_after_the_end_is_named(play: Play) -> None:
    records = play.worker.records("worker/12.1")
    late = replace(records[22], seq=25)
    found = replay([*records, late], blobs(play))
    assert found is not None and found.seq == 25 and found.expected == "none (it had ended in DONE)"


def test_every_divergence_is_told_when_asked_for(play: Play) -> None:
    records = change(change(play.worker.records("worker/12.1"), 11, reason="a"), 16, reason="b")
    assert [d.seq for d in divergences(records, blobs(play))] == [11, 16]


def test_another_version_would_decide_otherwise(play: Play) -> None:
    records = [replace(r, code="0.0.9") for r in change(play.worker.records("worker/12.1"), 11, reason="a")]
    found = replay(records, blobs(play))
    assert found is not None and not found.same_code and found.code == "0.0.9"
    assert str(found).startswith(f"record 11 of {WORKER}: would decide otherwise (written by 0.0.9): reason ")


def test_a_missing_blob_is_said_and_the_rest_is_replayed(play: Play) -> None:
    records = change(play.worker.records("worker/12.1"), 16, reason="b")
    found = list(divergences(records, policies(play.worker)))
    assert [d.what for d in found[:1]] == ["nothing"] and "is missing" in str(found[0].expected)
    assert found[-1].seq == 16


@pytest.mark.parametrize(
    ("machine", "body", "why"),
    [
        ("nobody", {}, "no machine of that kind"),
        ("a/b/poet/1", {}, "no machine of that kind"),
        (TICKET, {}, "KeyError"),
        (TICKET, {"event": None, "to": "CLAIMING", "intents": [], "note": {}, "seen": {}}, "KeyError"),
        (TICKET, {"start": {"$": "Poet"}, "event": None, "to": "X", "intents": [], "seen": 3}, "TypeError"),
    ],
)
def test_a_foreign_journal_is_a_finding_and_no_crash(machine: str, body: Any, why: str) -> None:
    head = {"machine": machine, "seq": 1, "at": 1.0, "epoch": 1, "code": "x"}
    record = journal.seal(Draft("transition", body), **head, prev=journal.GENESIS)
    found = replay([record], lambda sha: None)
    assert found is not None and found.what == "nothing" and why in found.expected


def test_no_journal_has_no_divergence() -> None:
    assert replay([], lambda sha: None) is None


# ---------------------------------------------------------------- alarms, failures, timeouts, quarantine


def test_alarms_failures_and_timeouts_replay() -> None:
    stage = Stage(policy=Policy(commands=("t",), image="i", max_workers=2, start_s=60.0))
    stage.values["Clone"] = lambda e: Outcome.failed("disk_full", "no space") if e.attempt == "21.1" else {}
    stage.values["OpenSocket"] = Outcome("deferred", failure="infra_engine", detail="down", not_before=1.0)
    director(stage, candidates=candidates(*ISSUES[:2]))
    begun(stage)
    assert stage.state("attempt/21.1") == "CLOSED"  # a failed effect took its failure's edge
    stage.facts["issue/12"] = replace(ISSUES[0], open=False)  # an alarm, while an effect is open
    stage.go()
    assert stage.state("ticket/12") == "GONE" and stage.state("attempt/12.1") == "CLOSED"
    assert stage.store is not None and replay_store(stage.store) == []


def test_a_state_that_took_too_long_replays() -> None:
    stage = Stage(policy=Policy(commands=("t",), image="i", harvest_s=60.0))
    director(stage, candidates=candidates(ISSUES[0]))
    begun(stage)
    stage.facts["job/h-local-acme-widget-12-1-harvest"] = Unknown("the engine does not answer")
    ended(stage, "12.1", 0, "audit-12.1", 0.0, state="DONE", final="DONE")
    assert stage.state("attempt/12.1") == "HARVESTING"
    stage.clock.at += 61
    stage.go("attempt/12.1")
    assert stage.state("attempt/12.1") == "CLOSED"
    reasons = [r.body.get("reason", "") for r in stage.records("attempt/12.1")]
    assert any("HARVESTING took longer than 60 s" in r for r in reasons)
    assert stage.store is not None and replay_store(stage.store) == []


def test_a_quarantined_machine_replays() -> None:
    """A bug: the forge's answer has no form that the machine knows. After the fifth time it is harvested."""
    stage = Stage(policy=Policy(commands=("t",), image="i", quarantine_after=3))
    director(stage, candidates=candidates(ISSUES[0]))
    begun(stage)
    stage.facts["job/"] = "not a status at all"
    loop = Loop(stage.ticker, stage.items)
    for _ in range(3):
        loop.turn()
        stage.clock.at += 60.0
    states = {r.body.get("status") for r in stage.records("attempt/12.1")}
    assert "exception" in states and stage.state("attempt/12.1") in ("HARVESTING", "CLEANING", "CLOSED")
    assert stage.store is not None and replay_store(stage.store) == []
    records = stage.records("attempt/12.1")
    n = next(r.seq for r in records if r.body.get("event") == "internal_error")
    found = replay(change(records, n, to="CLOSED"), stage.store.get_blob)
    assert found is not None and (found.seq, found.what, found.expected) == (n, "to", "HARVESTING")


def test_quarantine_is_no_way_around_the_table() -> None:
    """Only a machine that had an exception just before may take the edge of an internal error unasked."""
    stage = Stage()
    director(stage, candidates=candidates(ISSUES[0]))
    begun(stage)
    item: Item[Any] = stage.items[f"{REPO}/attempt/12.1"]
    stage.items[item.id] = stage.ticker.quarantine(item, "out of the blue")
    records = stage.records("attempt/12.1")
    assert stage.store is not None
    found = replay(records, stage.store.get_blob)
    assert found is not None and found.seq == records[-1].seq and found.got == "internal_error"


def test_a_machine_that_was_opened_with_other_data_replays() -> None:
    stage = Stage()
    start = Ticket(
        REPO, 5, "A title", lands="person", counters={"agent": 2}, answers=({"question": "q", "answer": "a"},)
    )
    stage.facts |= {"controls": (), "slots": Slots(0)}
    stage.open("ticket/5", start)
    assert replay(stage.records("ticket/5"), policies(stage)) is None


def test_failures_by_class_replay() -> None:
    """Each class of failure of an effect, from each state of an attempt that can have one."""
    for failure in Failure:
        for effect in ("Clone", "SealBundle"):
            stage = Stage(policy=Policy(commands=("t",), image="i", effect_tries=2))
            stage.values[effect] = Outcome.failed(failure, f"{failure} happened")
            director(stage, candidates=candidates(ISSUES[0]))
            begun(stage)
            stage.facts["job/"] = Unknown("gone")
            stage.clock.at += 5000
            stage.go()
            assert stage.store is not None
            assert [str(d) for d in replay_store(stage.store)] == [], (failure, effect)
