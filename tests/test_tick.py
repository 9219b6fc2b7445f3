"""One step: what was begun is finished first, after a crash it is looked for, and nothing follows from what is
not written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench import TICKET, Bench, Facts, Later
from workshop import REPO, Workshop

from harness.core.item import Item
from harness.core.result import Err
from harness.domain import Status
from harness.effects import Comment
from harness.failures import Failure
from harness.machines.attempt.states import Attempt
from harness.machines.ticket.states import Ticket
from harness.perform.forge import marked
from harness.tick import SNAPSHOT_EVERY, Fenced, StoreUnavailable


@pytest.fixture
def w(tmp_path: Path) -> Workshop:
    made = Workshop.open(tmp_path)
    made.issue()
    return made


def opened(b: Bench) -> Item[Any]:
    return b.ticker.open(TICKET, Ticket(repo=REPO, issue=1, title="Add it"))


# ---------------------------------------------------------------- intents


def test_what_entering_began_is_finished_in_order_one_record_each(w: Workshop) -> None:
    b = Bench(w)
    item = opened(b)
    assert [i.effect["$"] for i in item.intents] == ["Comment", "Label"]
    item = b.tick(item)
    assert (b.performed, item.seq) == (["Comment"], 2)
    item = b.tick(item)
    assert (b.performed, item.seq) == (["Comment", "Label"], 3)
    assert item.open_intent is None


def test_a_tick_never_judges_on_the_look_before_its_own_outcome(w: Workshop) -> None:
    b = Bench(w)
    item = b.tick(opened(b))
    assert item.state == "CLAIMING" and item.open_intent is not None


def test_a_tick_that_changes_nothing_writes_nothing(w: Workshop) -> None:
    b = Bench(w)
    item = b.rest(opened(b))
    assert b.tick(item, 20) is item
    assert len(w.store.read(TICKET)) == item.seq
    assert b.ticker.waiting[TICKET] == "reading the claim back: not read yet"


def test_an_effect_under_way_is_waited_for_and_not_begun_twice(w: Workshop) -> None:
    pool = Later()
    b = Bench(w, performer=pool)
    item = opened(b)
    assert b.tick(item, 5) is item
    assert len(pool.begun) == 1
    pool.run()
    item = b.tick(item)
    assert item.intents[0].status == "done"
    assert b.performed == ["Comment"]


def test_an_alarm_is_heard_while_an_intent_is_open(w: Workshop) -> None:
    b = Bench(w)
    item = opened(b)
    w.hub.person_closes(1)
    b.looks.facts["issue/1"] = w.hub.issues[1]
    item = b.tick(item)
    assert item.state == "GONE"
    assert "Comment" not in b.performed


def test_an_alarm_waits_for_what_is_in_hand(w: Workshop) -> None:
    pool = Later()
    b = Bench(w, performer=pool)
    item = b.tick(opened(b))
    w.hub.person_closes(1)
    b.looks.facts["issue/1"] = w.hub.issues[1]
    assert b.tick(item, 3) is item
    pool.run()
    item = b.tick(item)
    assert (item.state, item.intents[0].status) == ("CLAIMING", "done")
    assert b.tick(item).state == "GONE"


def test_a_failed_intent_skips_the_rest_and_takes_its_edge_unasked(w: Workshop) -> None:
    b = Bench(w)
    attempt = Attempt(code="1.1", ticket=TICKET, base_sha=w.main, start_sha="f" * 40, base="main")
    item = b.tick(b.ticker.open(f"{REPO}/attempt/1.1", attempt))
    assert item.failed_intent is not None and item.open_intent is None
    item = b.tick(item)
    assert (item.state, item.data.outcome) == ("HARVESTING", "failed")
    assert "WriteBrief" not in b.performed


def test_what_only_tells_people_decides_nothing_when_it_cannot_be_told(w: Workshop) -> None:
    """A token that may not set labels, a comment the forge does not take: written down, and passed over."""
    b = Bench(w)
    w.forge.before = lambda name, args: (
        Err(Failure.INTERNAL_ERROR, "the forge answered 422") if name == "comment" else None
    )
    item = b.rest(opened(b))
    assert [(i.status, i.detail) for i in item.intents] == [("done", "the forge answered 422"), ("done", "")]
    assert item.intents[0].value == {"skipped": True}
    assert item.state == "CLAIMING" and b.performed == ["Comment", "Label"]


def test_our_own_spacing_is_not_journalled(w: Workshop) -> None:
    b = Bench(w)
    until = w.clock.at + 2.0
    w.forge.before = lambda name, args: (
        Err(Failure.FORGE_RATE_LIMITED, "own: spacing", not_before=until) if w.clock.at < until else None
    )
    item = opened(b)
    assert b.tick(item, 10) is item
    assert b.performed == ["Comment"]
    assert b.ticker.waiting[TICKET] == "own: spacing"
    w.clock.at = until
    assert b.tick(item).intents[0].status == "done"


def test_what_waits_for_long_is_asked_less_often(w: Workshop) -> None:
    """A worker whose director is away: five times a second at first, every other second in the end."""
    b = Bench(w)
    item, asked = opened(b), []

    def away(name: str, args: Any) -> Err:
        asked.append(w.clock.at)
        return Err(Failure.FORGE_RATE_LIMITED, "own: not yet", not_before=w.clock.at + 0.2)

    w.forge.before = away
    began = w.clock.at
    while w.clock.at < began + 600.0:
        item = b.tick(item)
        w.clock.at += 0.1
    first, last = (sum(1 for at in asked if start <= at - began < start + 10.0) for start in (0.0, 590.0))
    assert first >= 15 and last <= 6
    w.forge.before = lambda name, args: None
    assert b.rest(item).intents[0].status == "done"


def test_a_limit_of_the_forge_is_waited_out_and_charged_to_nobody(w: Workshop) -> None:
    b = Bench(w)
    until = w.clock.at + 60.0
    w.forge.before = lambda name, args: (
        Err(Failure.FORGE_RATE_LIMITED, "secondary limit", not_before=until) if w.clock.at < until else None
    )
    item = b.tick(opened(b))
    assert (item.intents[0].status, item.intents[0].not_before) == ("deferred", until)
    b.tick(item, 10)
    assert b.performed == ["Comment"]
    w.clock.at = until
    assert b.rest(item).intents[0].status == "done"


def test_what_stays_open_is_bounded_in_number(w: Workshop) -> None:
    b = Bench(w)
    b.ticker.policy = lambda: replace(w.world.policy(), effect_tries=3)
    w.runtime.hang()
    start = b.ticker.open(
        f"{REPO}/attempt/1.1", Attempt(code="1.1", ticket=TICKET, base_sha=w.main, base="main")
    )
    item = b.rest(start)
    item = b.tick(item)
    assert item.state == "STARTING"
    item = b.rest(item)
    assert (item.intents[1].status, item.intents[1].tries) == ("failed", 3)
    assert item.intents[1].failure == Failure.INFRA_ENGINE


def test_what_nobody_is_charged_for_is_bounded_in_time(w: Workshop) -> None:
    b = Bench(w)
    b.ticker.policy = lambda: replace(w.world.policy(), effect_tries=3)
    w.forge.before = lambda name, args: Err(Failure.FORGE_DOWN, "503")
    item = opened(b)
    for _ in range(30):
        item = b.tick(item)
        w.clock.at += 60
    assert item.intents[0].status == "deferred" and item.intents[0].tries > 3
    w.clock.at += 86400
    over = b.tick(item).intents[0]
    assert (over.status, over.value) == ("done", {"skipped": True})


# ---------------------------------------------------------------- after a crash


def test_an_intent_that_was_open_at_a_crash_is_looked_for_and_found(w: Workshop) -> None:
    b = Bench(w)
    item = opened(b)
    w.do(Comment(1, "status", item.intents[0].effect["body"]))  # sent, and then the director died
    item = b.restart()
    item = b.tick(item)
    assert item.intents[0].status == "ambiguous"
    assert item.intents[0].not_before == b.ticker.world.epoch_began + 5.0
    item = b.rest(item)
    assert item.intents[0].status == "done"
    assert len(w.hub.comments) == 1


def test_what_is_not_found_in_three_late_reads_is_sent_once(w: Workshop) -> None:
    b = Bench(w)
    opened(b)
    item = b.restart()
    reads: list[float] = []
    w.forge.before = lambda name, args: reads.append(w.clock.at) if name == "comments" else None  # type: ignore[func-returns-value]
    item = b.rest(item)
    assert len(w.hub.comments) == 1
    assert len(reads) == 3
    assert reads[0] >= b.ticker.world.epoch_began + 5.0


def test_a_second_crash_begins_the_counting_anew(w: Workshop) -> None:
    b = Bench(w)
    opened(b)
    item = b.restart()
    for _ in range(12):
        new = b.tick(item)
        w.clock.at += 1.0 if new is item else 0.0
        item = new
        if item.intents[0].absent == 2:
            break
    assert item.intents[0].absent == 2
    # The third read decides, it is sent, and the director dies; no list shows it yet.
    w.clock.at = item.intents[0].not_before
    body = marked(str(item.intents[0].effect["body"]), "status", "issue/1", w.world)
    w.forge.comment(1, body).unwrap()
    w.forge.lag = lambda name, args: 3.0
    item = b.restart()
    b.rest(item)
    assert len(w.hub.comments) == 1


@pytest.mark.parametrize("at", range(1, 60))
def test_a_crash_at_any_boundary_leaves_no_trace(tmp_path: Path, at: int) -> None:
    """Die at the n-th boundary of claiming an issue; the next director ends with the same issue."""
    calm = Workshop.open(tmp_path / "calm")
    calm.issue()
    b = Bench(calm)
    b.rest(opened(b))

    class Died(BaseException):
        pass

    w = Workshop.open(tmp_path / "crashed")
    w.issue()
    b, left = Bench(w), [at]

    def boundary(what: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Died

    b.ticker.boundary = boundary
    try:
        b.rest(opened(b))
    except Died:
        if not w.store.machines():
            return
        b.rest(b.restart())
    assert _texts(w) == _texts(calm)


def _texts(w: Workshop) -> Any:
    return [(n, c.body) for n, c in w.hub.comments.values()], w.hub.issues[1].labels


# ---------------------------------------------------------------- time


def test_a_state_that_takes_too_long_times_out(w: Workshop) -> None:
    looks = Facts(controls=(), **{"job/prepare-1": Status("prepare-1", "RUNNING")})
    b = Bench(w, looks)
    data = Attempt(code="1.1", ticket=TICKET, base_sha=w.main, base="main", prepare="prepare-1", image="img")
    item = b.rest(b.ticker.open(f"{REPO}/attempt/1.1", data))
    w.clock.at = item.entered_at + w.world.policy().prepare_s
    assert b.ticker.tick(item) is item
    w.clock.at += 1.0
    item = b.ticker.tick(item)
    assert (item.state, item.data.failure) == ("HARVESTING", Failure.TIMEOUT)
    assert "PREPARING took longer than 1800 s: dependencies are being prepared" in item.data.detail


def test_time_in_which_no_director_was_there_does_not_count(w: Workshop) -> None:
    looks = Facts(controls=(), **{"job/prepare-1": Status("prepare-1", "RUNNING")})
    b = Bench(w, looks)
    data = Attempt(code="1.1", ticket=TICKET, base_sha=w.main, base="main", prepare="prepare-1", image="img")
    item = b.rest(b.ticker.open(f"{REPO}/attempt/1.1", data))
    limit_s = w.world.policy().prepare_s
    w.clock.at += 3 * limit_s
    b.ticker.world = replace(b.ticker.world, epoch=2, epoch_began=w.clock.at)
    assert b.ticker.tick(item) is item
    w.clock.at += limit_s + 1.0
    assert b.ticker.tick(item).state == "HARVESTING"


def test_a_clock_that_was_set_back_does_not_stop_what_waits(w: Workshop) -> None:
    b = Bench(w)
    w.forge.before = lambda name, args: Err(Failure.FORGE_DOWN, "503") if w.clock.at >= start else None
    start = w.clock.at
    item = b.tick(opened(b))
    assert item.intents[0].status == "deferred"
    w.clock.at = start - 7200.0
    item = b.restart()
    assert b.rest(item).intents[0].status == "done"


# ---------------------------------------------------------------- the store


def test_a_full_disk_loses_no_outcome(w: Workshop) -> None:
    b = Bench(w)
    item = opened(b)
    append, full = w.store.append, [True]

    def refusing(machine: str, draft: Any, *, expect_seq: int) -> Any:
        if full[0]:
            return Err(Failure.DISK_FULL, "database or disk is full")
        return append(machine, draft, expect_seq=expect_seq)

    w.store.append = refusing  # type: ignore[method-assign]
    w.forge.lag = lambda name, args: 60.0
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="disk is full"):
            b.tick(item)
    full[0] = False
    item = b.tick(item)
    assert item.intents[0].status == "done"
    assert b.performed == ["Comment"]
    assert len(w.hub.comments) == 1


def test_an_append_whose_answer_was_lost_is_read_back(w: Workshop) -> None:
    b = Bench(w)
    item = opened(b)
    append, lost = w.store.append, [True]

    def losing(machine: str, draft: Any, *, expect_seq: int) -> Any:
        done = append(machine, draft, expect_seq=expect_seq)
        if lost[0]:
            lost[0] = False
            return Err(Failure.DISK_FULL, "disk I/O error")
        return done

    w.store.append = losing  # type: ignore[method-assign]
    item = b.tick(item)
    assert (item.seq, item.intents[0].status) == (2, "done")
    assert b.rest(item).open_intent is None
    assert w.store.verify(TICKET) is None


def test_a_snapshot_that_cannot_be_written_is_done_without(w: Workshop) -> None:
    b = Bench(w)
    item = b.rest(opened(b))
    append = w.store.append

    def no_snapshots(machine: str, draft: Any, *, expect_seq: int) -> Any:
        if draft.kind == "snapshot":
            return Err(Failure.DISK_FULL, "disk is full")
        return append(machine, draft, expect_seq=expect_seq)

    w.store.append = no_snapshots  # type: ignore[method-assign]
    while item.seq < SNAPSHOT_EVERY + 3:
        item = b.ticker.note_exception(item, "x")
    assert {r.kind for r in w.store.read(TICKET)} == {"transition", "outcome"}
    assert b.ticker.load(TICKET) == item


def test_a_long_journal_is_folded_from_its_last_snapshot(w: Workshop) -> None:
    b = Bench(w)
    item = b.rest(opened(b))
    while item.seq < SNAPSHOT_EVERY + 3:
        item = b.ticker.note_exception(item, "x")
    assert len(w.store.since_snapshot(TICKET)) < 10
    assert b.ticker.load(TICKET) == item


def test_whoever_is_fenced_ends(w: Workshop) -> None:
    b = Bench(w)
    item = opened(b)
    w.store.disk.epoch = 2
    with pytest.raises(Fenced, match="a newer director has epoch 2"):
        b.tick(item)


def test_a_decision_keeps_what_it_was_given(w: Workshop) -> None:
    from harness.judgement import unkeep

    b = Bench(w)
    item = opened(b)
    w.hub.person_edits(1, body="x" * 5000)
    w.hub.person_closes(1)
    b.looks.facts["issue/1"] = w.hub.issues[1]
    b.tick(item)
    kept = w.store.read(TICKET)[-1].body if w.store.read(TICKET)[-1].kind == "transition" else None
    record = kept or next(r.body for r in reversed(w.store.read(TICKET)) if r.kind == "transition")
    assert set(record["seen"]["facts"]["issue/1"]) == {"blob"}
    seen = unkeep(record["seen"], w.store.get_blob)
    assert seen["issue/1"] == w.hub.issues[1]
    assert seen.policy == w.world.policy()
    with pytest.raises(LookupError, match="is missing"):
        unkeep(record["seen"], lambda sha: None)


def test_an_end_is_left_alone_once_it_is_tidied_up(w: Workshop) -> None:
    b = Bench(w)
    item = opened(b)
    w.hub.person_closes(1)
    b.looks.facts["issue/1"] = w.hub.issues[1]
    item = b.rest(b.tick(item))
    assert item.state == "GONE"
    before = list(b.performed)
    assert b.tick(item, 10) is item
    assert b.performed == before
