"""A director that is told to stop leaves its workers to the next one; two at once are impossible."""

from __future__ import annotations

from demo_world import done, events, journals, left_over
from worlds import Red, Stopped


def test_once_looks_begins_and_ends(stop_and_go: Stopped) -> None:
    once = stop_and_go.once
    assert once.code == 0, once.told[-4000:]
    assert once.document["tickets"] or once.document["releases"], once.document


def test_a_second_director_is_refused_at_once_and_told_by_whom(stop_and_go: Stopped) -> None:
    for second in stop_and_go.second:
        assert second.code == 4
        assert "another director holds" in second.told and "process" in second.told
        assert "Traceback" not in second.told
    # On a calm machine it takes a fifth of a second; one that does nothing but look takes many times that.
    assert min(second.seconds for second in stop_and_go.second) < stop_and_go.once.seconds / 2


def test_sigterm_ends_it_within_ten_seconds_and_its_worker_goes_on(stop_and_go: Stopped) -> None:
    assert stop_and_go.code == 0, stop_and_go.told[-4000:]
    assert stop_and_go.seconds < 10.0
    assert stop_and_go.before and stop_and_go.after == stop_and_go.before == stop_and_go.adopted


def test_the_next_start_adopts_it_and_ends_when_nothing_is_left_to_do(stop_and_go: Stopped) -> None:
    last = stop_and_go.last
    assert last.code == 0, last.told[-4000:]
    assert [t["state"] for t in last.document["tickets"]] == ["RELEASED"]
    assert [r["tag"] for r in last.document["releases"]] == ["v0.1.0"]
    (attempt,) = journals(stop_and_go.folder, "/attempt/").values()
    assert "infra_lost" not in events(attempt) and len(done(attempt, "StartWorker")) == 1
    directors = journals(stop_and_go.folder, "/director/")
    adopted = {n for r in directors.values() for x in r for n in x.body.get("note", {}).get("adopted", ())}
    assert set(stop_and_go.before) <= adopted
    assert left_over(stop_and_go.folder, "process") == []


def test_a_red_default_branch_is_nobodys_fault_and_nothing_is_begun(red_base: Red) -> None:
    ended = red_base.finished
    assert ended.code == 0, ended.told[-4000:]
    assert ended.document["ended"].startswith("idle: base_red: main@")
    assert "red as it came" in ended.document["ended"]
    assert (ended.document["tickets"], ended.document["releases"]) == ([], [])
    assert red_base.repo["comments"] == [] and red_base.repo["pulls"] == []
    assert left_over(red_base.folder, "process") == []
