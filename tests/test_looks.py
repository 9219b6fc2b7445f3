"""A look counts only if it was begun after the machine's last record; what could not be read is Unknown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from handlers import item as made
from short import cannot_open
from workshop import REPO, Workshop

from harness.adapters.memory.repo import MemoryRepo
from harness.compose.outages import HELD_KEY, KEY, Outages, lines
from harness.core.item import Intent, Item
from harness.core.result import Err
from harness.domain import Absent, AgentResult, Gone, Lane, Past, Slots, Status, Unknown
from harness.failures import Failure
from harness.looks import KEPT_LIMIT, LOCAL, READERS, UNWANTED_S, Looks, Own, _Kept, trusted
from harness.looks.own import ENDED, ENDED_RELEASES_LIMIT, OVER
from harness.looks.readers import MEMO_LIMIT
from harness.machines.all import KINDS
from harness.machines.attempt.states import Attempt
from harness.machines.kind import Gate, Peer
from harness.machines.release.states import Release
from harness.machines.ticket.states import Ticket


class Eye:
    """Looks over a workshop. Reads happen at once, or when `arrive` is called."""

    def __init__(self, w: Workshop, late: bool = False) -> None:
        self.w = w
        self.items: dict[str, Item[Any]] = {}
        self.reads: list[str] = []
        self.on_way: list[Callable[[], None]] = []
        self.late, self.refused = late, False
        self.looks = Looks(w.world, Own(w.world, self.items), self._start, lambda head: 60.0)

    def _start(self, port: str, do: Callable[[], None]) -> bool:
        if self.refused:
            return False
        self.reads.append(port)
        if self.late:
            self.on_way.append(do)
        else:
            do()
        return True

    def arrive(self) -> None:
        for do in self.on_way:
            do()
        self.on_way.clear()

    def see(self, query: str, changed_at: float | None = None) -> Any:
        at = self.w.clock.at - 100.0 if changed_at is None else changed_at
        return self.looks.see(replace(made("ticket", "CLAIMING"), changed_at=at), query)


@pytest.fixture
def w(tmp_path: Path) -> Workshop:
    return Workshop.open(tmp_path)


# ---------------------------------------------------------------- the rhythm


def test_what_was_never_read_is_unknown_and_then_it_is_known(w: Workshop) -> None:
    eye = Eye(w, late=True)
    assert eye.see("refs") == Unknown("not read yet")
    assert eye.see("refs") == Unknown("not read yet")
    assert eye.reads == ["git"]
    eye.arrive()
    assert eye.see("refs")["refs/heads/main"] == w.main


def test_a_look_that_was_begun_before_the_last_record_does_not_count(w: Workshop) -> None:
    eye = Eye(w, late=True)
    began = w.clock.at
    eye.see("refs", began - 1)
    w.clock.at += 1.0
    eye.arrive()
    assert isinstance(eye.see("refs", began + 0.5), Unknown)
    eye.arrive()
    assert isinstance(eye.see("refs", began + 0.5), dict)


def test_a_look_begun_at_the_very_moment_of_the_record_does_not_count(w: Workshop) -> None:
    eye = Eye(w)
    assert isinstance(eye.see("refs", w.clock.at), Unknown)
    now = w.clock.at
    w.clock.at += 0.001
    assert isinstance(eye.see("refs", now), dict)


def test_what_need_not_be_fresh_counts_for_everybody(w: Workshop) -> None:
    eye = Eye(w)
    n = w.issue()
    assert eye.see(f"issue/{n}", w.clock.at).number == n
    assert eye.see("default", w.clock.at) == "main"


def test_it_is_read_again_when_it_is_due_and_not_before(w: Workshop) -> None:
    eye = Eye(w)
    at = w.clock.at - 1
    for passed_s, reads in ((0.0, 1), (59.0, 1), (1.0, 2), (0.0, 2)):
        w.clock.at += passed_s
        eye.see("refs", at)
        assert len(eye.reads) == reads


def test_a_read_that_fails_is_unknown_says_why_and_backs_off(w: Workshop) -> None:
    eye = Eye(w)
    w.forge.before = lambda name, args: Err(Failure.FORGE_DOWN, "the forge answered 503")
    for reads in (1, 1, 2):
        assert eye.see("pull/1") == Unknown("the forge answered 503")
        assert len(eye.reads) == reads
        w.clock.at += 0.6


def test_the_forges_own_words_about_when_win(w: Workshop) -> None:
    eye = Eye(w)
    until = w.clock.at + 90.0
    w.forge.before = lambda name, args: Err(Failure.FORGE_RATE_LIMITED, "limited", not_before=until)
    eye.see("checks/x")
    w.clock.at = until - 1.0
    eye.see("checks/x")
    assert len(eye.reads) == 1
    w.clock.at = until
    w.forge.before = lambda name, args: None
    assert eye.see("checks/x") == ()


def test_our_own_spacing_is_asked_again_at_once(w: Workshop) -> None:
    eye = Eye(w)
    w.forge.before = lambda name, args: Err(Failure.FORGE_RATE_LIMITED, "own: two seconds apart")
    eye.see("checks/x")
    w.clock.at += 0.06
    eye.see("checks/x")
    assert len(eye.reads) == 2


def test_a_bug_in_a_reader_is_unknown_and_stops_nothing(w: Workshop) -> None:
    eye = Eye(w)
    assert eye.see("pull/not-a-number") == Unknown(
        "ValueError: invalid literal for int() with base 10: 'not-a-number'"
    )


def test_a_pool_that_is_full_is_asked_again(w: Workshop) -> None:
    eye = Eye(w)
    eye.refused = True
    assert eye.see("refs") == Unknown("not read yet")
    eye.refused = False
    assert isinstance(eye.see("refs"), dict)


def test_a_hung_read_is_not_begun_twice(w: Workshop) -> None:
    eye = Eye(w, late=True)
    for _ in range(5):
        w.clock.at += 100.0
        eye.see("refs")
    assert len(eye.reads) == 1


def test_an_unknown_query_is_a_bug(w: Workshop) -> None:
    with pytest.raises(KeyError):
        Eye(w).see("weather")


def test_what_cannot_be_reached_is_told_until_it_answers(w: Workshop) -> None:
    eye = Eye(w)
    eye.see("job/h-1")
    assert eye.looks.outages() == {}
    w.runtime.hang()
    w.clock.at += 1.0
    began = w.clock.at
    eye.see("job/h-1")
    w.clock.at += 5.0
    eye.see("job/h-2")
    assert eye.looks.outages() == {"runtime": (began, "cannot status h-1: no answer in time")}
    w.runtime.hang(False)
    w.clock.at += 100.0
    eye.see("job/h-2")
    assert eye.looks.outages() == {}


def test_a_silent_engine_is_told_before_its_deadline(w: Workshop) -> None:
    eye = Eye(w, late=True)
    eye.see("job/h-1")
    asked = w.clock.at
    w.clock.at += 4.0
    assert eye.looks.outages() == {}
    w.clock.at += 2.0
    assert eye.looks.outages()["runtime"][0] == asked
    eye.arrive()
    assert eye.looks.outages() == {}


def test_outages_are_written_down_when_they_change(w: Workshop) -> None:
    found: dict[str, tuple[float, str]] = {}
    held = ["base_red: main does not pass\nat all"]
    outages = Outages(w.store, lambda: found, lambda: held[0])
    w.store.put(KEY, {"forge": {"since": 1.0, "why": "of an earlier director"}})
    outages.take(100.0)
    assert w.store.get(KEY) == {} and w.store.get(HELD_KEY) == "base_red: main does not pass"
    found["runtime"], held[0] = (101.0, "nothing listens\nthere"), ""
    outages.take(100.5)
    assert w.store.get(KEY) == {}, "once a second"
    outages.take(101.5)
    told = w.store.get(KEY)
    assert w.store.get(HELD_KEY) == ""
    assert lines(told, 131.0) == ["the container engine is out of reach for 30 s: nothing listens"]
    assert lines(None, 0.0) == []


def test_what_is_kept_is_bounded(w: Workshop) -> None:
    eye = Eye(w)
    eye.see("refs")
    eye.looks.kept.update({f"pull/{n}": _Kept(begun=float(n)) for n in range(KEPT_LIMIT)})
    eye.see("default")
    assert len(eye.looks.kept) == KEPT_LIMIT // 2 + 2
    assert {"refs", "default", f"pull/{KEPT_LIMIT - 1}"} <= set(eye.looks.kept)
    assert "pull/0" not in eye.looks.kept


def test_what_nobody_wants_any_more_is_forgotten(w: Workshop) -> None:
    """Each ticket leaves a dozen answers behind: a director of months must not keep them."""
    eye = Eye(w)
    eye.late = True
    eye.see("tree/slow")
    eye.late = False
    for n in range(200):
        w.clock.at += 10.0
        eye.see("refs")
        eye.see(f"job/h-acme-{n}-1-i1")
    assert {"refs", "tree/slow", "job/h-acme-199-1-i1"} <= set(eye.looks.kept)
    assert len(eye.looks.kept) <= 2 * UNWANTED_S / 10 + 3


def test_a_memo_is_kept_for_what_is_under_way_and_for_people_of_late(w: Workshop) -> None:
    eye = Eye(w)
    n = w.issue()
    attempt = w.world.data / "attempts" / f"{n}.1"
    attempt.mkdir(parents=True)
    eye.see(f"issue/{n}")
    assert f"by-number/{n}" in w.world.memo
    attempt.rmdir()
    w.clock.at += 61
    eye.see(f"issue/{n}")
    assert f"by-number/{n}" not in w.world.memo
    for person in range(2 * MEMO_LIMIT):
        w.clock.at += 1.0
        assert trusted(w.world, f"person-{person}", "User").unwrap() is False
    assert len(w.world.memo) <= MEMO_LIMIT + 2
    assert f"permission/person-{2 * MEMO_LIMIT - 1}" in w.world.memo


# ---------------------------------------------------------------- what is read


def test_an_issue_comes_from_the_list_while_it_is_on_it(w: Workshop) -> None:
    eye = Eye(w)
    n, other = w.issue(), w.hub.person_opens("ada", "No label")
    before = w.forge.counts()["read"]
    assert eye.see(f"issue/{n}").number == n
    assert eye.see(f"issue/{other}").title == "No label"
    assert w.forge.counts()["read"] - before == 2
    w.hub.person_deletes(other)
    w.clock.at += 61
    assert eye.see(f"issue/{other}") == Gone("deleted")


@pytest.mark.parametrize("working", [True, False])
def test_an_issue_that_is_worked_on_is_asked_for_by_number_too(w: Workshop, working: bool) -> None:
    """What is deleted is in no list of changes, and a worker must not go on for half an hour."""
    eye, n, reads = Eye(w), w.issue(), []
    if working:
        (w.world.data / "attempts" / f"{n}.1").mkdir(parents=True)
    for _ in range(5):
        before = w.forge.counts()["read"]
        assert eye.see(f"issue/{n}").number == n
        reads.append(w.forge.counts()["read"] - before)
        w.clock.at += 61
    assert reads == ([1, 1, 2, 1, 2] if working else [1] * 5)


@pytest.mark.parametrize(
    ("author", "kind", "allowed", "expected"),
    [
        ("ada", "User", (), True),
        ("eve", "User", (), False),
        ("ci", "Bot", (), False),
        ("ci", "Bot", ("CI",), True),
        ("eve", "User", ("Eve",), True),
    ],
)
def test_who_may_start_work(
    tmp_path: Path, author: str, kind: str, allowed: tuple[str, ...], expected: bool
) -> None:
    w = Workshop.open(tmp_path, allowed_people=allowed)
    w.hub.people["ci"] = "write"
    w.hub.kinds[author] = kind
    w.hub.person_opens(author, "x", "", ("harness",))
    (candidate,) = Eye(w).see("candidates")
    assert candidate.trusted is expected


def test_whose_a_reply_is(w: Workshop) -> None:
    n = w.issue()
    marks = w.world.marks
    assert marks is not None
    for body in ("hello", f"x {marks.mark('status', f'issue/{n}')}", f"x {marks.mark('status', 'issue/99')}"):
        w.hub.person_comments("ada", n, body)
    found = Eye(w).see(f"replies/{n}")
    assert [(r.name, r.ours, r.trusted) for r in found] == [
        ("", False, True),
        ("status", True, True),
        ("status", False, True),
    ]


def test_reviews_count_only_from_people_who_may_write(w: Workshop) -> None:
    w.branch("agent/1")
    n = w.forge.open_pull("agent/1", "main", "x", "y").unwrap().number
    w.hub.person_reviews("eve", n, "APPROVED")
    w.hub.person_reviews("ada", n, "APPROVED")
    assert [r.author for r in Eye(w).see(f"reviews/{n}")] == ["ada"]


def test_a_gate_is_a_fact_or_the_state_of_its_container(w: Workshop) -> None:
    from harness import effects as fx

    eye = Eye(w)

    def look() -> Gate:
        w.clock.at += 2.0
        found = eye.see("gate/gate-1")
        assert isinstance(found, Gate)
        return found

    assert look() == Gate("gate-1", "lost")
    w.do(fx.StartGate("gate-1", w.main, ("test",), "img"))
    assert look().verdict == "running"
    w.runtime.say("gate-1", b"1 failed\n")
    w.runtime.finish("gate-1", 1)
    assert look() == Gate("gate-1", "red", "1 failed\n", 1)
    w.do(fx.EndGate("gate-1"))
    assert look() == Gate("gate-1", "red", "1 failed\n", 1)


def test_a_run_whose_output_cannot_be_read_just_now_has_come_to_nothing_yet(w: Workshop) -> None:
    """Without its last words an agent that did its work would be one that failed, and that is kept."""
    from harness import effects as fx

    class Last:
        needs = ()

        def parse(self, output: bytes, files: Any, code: int | None) -> AgentResult:
            return AgentResult("done" if output else "failed")

    w.world = replace(w.world, brief={"agent": "last", "home": str(w.world.data)}, agents={"last": Last()})
    eye = Eye(w)
    w.do(fx.StartHarvest("run-1", "12.1", "img"))
    w.runtime.say("run-1", b"all is done\n")
    w.runtime.finish("run-1", 0)
    w.runtime.fault = lambda op, name: "before" if op == "log" else ""
    assert isinstance(eye.see("run/run-1"), Unknown)
    w.runtime.fault = None
    w.clock.at += 2.0
    assert eye.see("run/run-1").result.status == "done"


def test_last_words_that_cannot_be_read_just_now_are_not_none(
    w: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without them a worker that says for whom it is blocked is charged as one that failed."""
    path = w.world.data / "attempts" / "12.1" / "audit" / "last.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"incarnation": 1, "final": "BLOCKED", "failure": "question"}')
    eye = Eye(w)
    with cannot_open(path, monkeypatch):
        assert isinstance(eye.see("words/12.1"), Unknown)
    w.clock.at += 2.0
    assert eye.see("words/12.1").failure == "question"


def test_a_job_is_there_gone_or_unknown(w: Workshop) -> None:
    from harness import effects as fx

    eye = Eye(w)
    assert eye.see("job/h") == Absent("h")
    w.do(fx.StartHarvest("h", "12.1", "img"))
    w.clock.at += 2.0
    assert eye.see("job/h").phase == "RUNNING"
    w.runtime.hang()
    w.clock.at += 2.0
    assert isinstance(eye.see("job/h"), Unknown)
    w.runtime.hang(False)
    w.store.put("prepared/prepare-1", {"at": 0})
    assert eye.see("job/prepare-1") == Status("prepare-1", "EXITED", 0)


def test_a_tree_that_the_mirror_lacks_is_fetched(w: Workshop) -> None:
    sha = w.remote.write("refs/heads/main", {"x": "1"}, "x")
    assert Eye(w).see(f"tree/{sha}") == w.remote.commits[sha].tree_sha


def test_pulls_of_the_forge_are_no_branches(w: Workshop) -> None:
    w.remote.set("refs/pull/1/head", w.main)
    assert set(Eye(w).see("refs")) == {"refs/heads/main"}


def test_a_repository_that_cannot_be_worked_on_says_why(tmp_path: Path) -> None:
    w = Workshop.open(tmp_path)
    w.remote.set("refs/heads/agent", w.main)
    assert Eye(w).see("preflight").why.startswith("PREFIX_CONFLICT: branch 'agent' is there")
    assert isinstance(w.repo, MemoryRepo)


# ---------------------------------------------------------------- what our own machines say


def put(eye: Eye, name: str, state: str, data: Any, entered_at: float = 0.0) -> None:
    eye.items[f"{REPO}/{name}"] = Item(f"{REPO}/{name}", state, data, entered_at=entered_at, entry=7)


def test_who_uses_the_slots_and_who_waits_for_one(w: Workshop) -> None:
    eye = Eye(w)
    now = w.clock.at
    put(eye, "attempt/1.1", "RUNNING", Attempt(code="1.1"))
    put(eye, "attempt/1.0", "CLOSED", Attempt(code="1.0"))
    put(eye, "ticket/1", "ATTEMPTING", Ticket(issue=1, spawned=7, attempt=f"{REPO}/attempt/1.1"), 1.0)
    put(eye, "ticket/2", "ATTEMPTING", Ticket(issue=2, spawned=7, attempt=f"{REPO}/attempt/2.1"), 2.0)
    put(eye, "ticket/3", "ATTEMPTING", Ticket(issue=3), 9.0)
    put(eye, "ticket/4", "CLAIMING", Ticket(issue=4), 3.0)
    put(eye, "ticket/5", "ATTEMPTING", Ticket(issue=5, not_before=now + 60), 0.0)
    put(eye, "ticket/6", "WAITING", Ticket(issue=6), 0.0)
    assert eye.see("slots") == Slots(2, (f"{REPO}/ticket/4", f"{REPO}/ticket/3"))


def test_whose_turn_it_is_to_land(w: Workshop) -> None:
    eye = Eye(w)
    assert eye.see("lane") == Lane()
    put(eye, "release/0.4.0", "OPEN", Release(version="0.4.0", branch="release/0.4.0"))
    put(eye, "ticket/1", "LANDING", Ticket(issue=1, lands="person"), 1.0)
    put(eye, "ticket/2", "LANDING", Ticket(issue=2), 5.0)
    put(eye, "ticket/3", "LANDING", Ticket(issue=3), 4.0)
    lane = eye.see("lane")
    assert (lane.machine, lane.turn) == (f"{REPO}/release/0.4.0", f"{REPO}/ticket/3")
    # Whoever is at it stays at it, also when a clock that was set back makes another look older.
    at_it = Ticket(issue=2, turn=f"{REPO}/release/0.4.0 7")
    put(eye, "ticket/2", "LANDING", at_it, 5.0)
    assert eye.see("lane").turn == f"{REPO}/ticket/2"
    put(eye, "release/0.4.0", "GATING", Release(version="0.4.0"))
    assert eye.see("lane") == Lane()


def test_the_newest_director_speaks(w: Workshop) -> None:
    eye = Eye(w)
    for epoch in (2, 10, 9):
        put(eye, f"director/{epoch}", "MONITOR", None)
    assert eye.see("director").id == f"{REPO}/director/10"


def test_a_machine_that_is_not_opened_yet_is_unknown(w: Workshop) -> None:
    eye = Eye(w)
    assert eye.see(f"item/{REPO}/attempt/1.1") == Unknown("not opened yet")
    put(eye, "attempt/1.1", "RUNNING", Attempt(code="1.1"))
    assert isinstance(eye.see(f"item/{REPO}/attempt/1.1"), Peer)


def test_entries_say_what_is_being_done(w: Workshop) -> None:
    eye = Eye(w)
    put(eye, "attempt/1.1", "RUNNING", Attempt(code="1.1"))
    put(eye, "ticket/1", "ATTEMPTING", Ticket(issue=1, title="Add it", attempt=f"{REPO}/attempt/1.1"))
    (entry,) = eye.see("entries")
    assert (entry.issue, entry.doing) == (1, "attempt 1.1 running")
    put(eye, "attempt/1.1", "CLOSED", Attempt(code="1.1"))
    assert eye.see("entries")[0].doing == ""


def test_a_ticket_that_is_over_is_shown_until_its_release_is(w: Workshop) -> None:
    eye, release = Eye(w), f"{REPO}/release/0.4.0"
    put(eye, "release/0.4.0", "PUBLISHING", Release(version="0.4.0"))
    put(eye, "ticket/1", "RELEASED", Ticket(issue=1, landed_in=release))
    put(eye, "ticket/2", "GONE", Ticket(issue=2))
    put(eye, "ticket/3", "DEFERRED", Ticket(issue=3))
    assert [e.issue for e in eye.see("entries")] == [1, 3]
    put(eye, "release/0.4.0", "PUBLISHED", Release(version="0.4.0"))
    assert [e.issue for e in eye.see("entries")] == [3]


def test_a_candidate_comes_with_what_its_issue_had_before(w: Workshop) -> None:
    eye, n = Eye(w), w.issue()
    (candidate,) = eye.see("candidates")
    assert candidate.past is None
    put(eye, f"ticket/{n}", "RELEASED", Ticket(issue=n, offset=1, attempts=4), 5.0)
    put(eye, f"ticket/{n}~2", "GONE", Ticket(issue=n, attempts=2, failure="conflict", detail="theirs"), 9.0)
    put(eye, f"ticket/{n}~3", "ATTEMPTING", Ticket(issue=n), 11.0)
    put(eye, "ticket/77", "GONE", Ticket(issue=77), 12.0)
    (candidate,) = eye.see("candidates")
    assert candidate.past == Past(2, 5, "GONE", 9.0, "conflict", "theirs")
    theirs = eye.items[f"{REPO}/ticket/{n}"]
    eye.items[theirs.id] = replace(theirs, intents=(Intent(0, {"$": "Comment"}),))
    assert eye.see("candidates")[0].past.busy


def test_of_releases_that_ended_the_last_are_shown(w: Workshop) -> None:
    eye = Eye(w)
    put(eye, "release/0.0.0", "NEEDS_PERSON", Release(version="0.0.0"), 0.0)
    for i in range(1, ENDED_RELEASES_LIMIT + 5):
        put(eye, f"release/0.{i}.0", ("PUBLISHED", "ABANDONED")[i % 2], Release(version=f"0.{i}.0"), float(i))
    assert [r.data.version for r in eye.see("releases")] == [
        "0.0.0", *(f"0.{i}.0" for i in range(5, ENDED_RELEASES_LIMIT + 5)),
    ]  # fmt: skip


def test_what_is_over_is_over_for_the_tables_too() -> None:
    assert KINDS["ticket"].table.final == OVER
    assert KINDS["release"].table.final == ENDED


def test_local_queries_and_readers_do_not_overlap() -> None:
    assert LOCAL & set(READERS) == set()


@pytest.mark.parametrize("query", ["candidates", "replies/1", "reviews/2"])
def test_whose_permission_cannot_be_asked_is_not_taken_for_a_stranger(w: Workshop, query: str) -> None:
    """Else a text would be frozen without ada's comment, or her answer passed over."""
    n = w.issue()
    w.hub.person_comments("ada", n, "And a test.")
    w.branch("agent/1")
    pull = w.forge.open_pull("agent/1", "main", "x", "y").unwrap().number
    w.hub.person_reviews("ada", pull, "APPROVED")
    w.forge.before = lambda name, args: Err(Failure.FORGE_DOWN, "503") if name == "permission" else None
    assert Eye(w).see(query) == Unknown("503")


def test_a_pause_holds_however_many_commands_came_after_it(w: Workshop) -> None:
    w.store.control("pause", {})
    for n in range(120):
        w.store.control("retry", {"issue": n})
    seen = Eye(w).see("controls")
    assert [c.verb for c in seen].count("pause") == 1 and len(seen) <= 60
    w.store.control("resume", {})
    for n in range(120):
        w.store.control("retry", {"issue": n})
    assert [c.verb for c in Eye(w).see("controls") if c.verb != "retry"] == ["resume"]


def test_a_gate_of_which_only_the_folder_is_left_is_still_ours(w: Workshop) -> None:
    (w.world.data / "gates" / "gate-lost").mkdir(parents=True)
    found = {s.name: (s.phase, s.seen_at) for s in Eye(w).see("ours")}
    assert found["gate-lost"] == ("LOST", w.clock.at)
