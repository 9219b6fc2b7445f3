"""What GitHubForge makes of a forge that fails: the class, whether the write may have happened, and when
to ask again. Against the embedded forge's faults; only the two clocks' hands are turned, nothing waits."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from forge_world import Hands, Served, Server, Shelf

from harness.adapters.github import GitHubForge
from harness.adapters.governor import GITHUB_LIMITS, READ, WRITE, Governor
from harness.core.budget import Limits
from harness.core.result import Err, Ok
from harness.domain import Gone, Issue
from harness.failures import Failure
from harness.forge import Settings


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("forge"), Settings(min_write_gap_s=None))
    yield running
    running.close()


@pytest.fixture
def w(server: Server) -> Iterator[Served]:
    world = server.repository()
    yield world
    world.close()


def err(r: object, failure: Failure) -> Err:
    assert isinstance(r, Err), r
    assert r.failure == failure, r
    return r


def sent(w: Served) -> int:
    n = w.forge.counts()
    return n["read"] + n["write"]


def broken(w: Served) -> int:
    """Requests of our credential inside a penalty window, as the forge counts them."""
    report = w.server.running.report()
    return sum(1 for r in report["broken"] if r["in_penalty"] and f"/repos/{w.repo}" in r["path"])


# ---------------------------------------------------------------- answers that are lost


@pytest.mark.parametrize("kind", ["status-after", "drop-after"])
def test_a_write_that_was_done_and_not_answered_is_maybe(w: Served, kind: str) -> None:
    n = w.opens("One")
    w.faults({"match": "POST /issues/\\d+/comments", "kind": kind})
    r = err(w.forge.comment(n, "hello"), Failure.FORGE_DOWN)
    assert r.maybe
    assert sent(w) == 1, "it was sent once"
    assert [c.body for c in w.forge.comments(n).unwrap()] == ["hello"]


@pytest.mark.parametrize("kind", ["status-before", "drop-before"])
def test_a_write_that_was_not_done_looks_the_same(w: Served, kind: str) -> None:
    n = w.opens("One")
    w.faults({"match": "POST /issues/\\d+/comments", "kind": kind, "status": 503})
    assert err(w.forge.comment(n, "hello"), Failure.FORGE_DOWN).maybe
    assert w.forge.comments(n).unwrap() == ()


def test_a_pull_that_was_opened_and_not_answered_is_found_by_its_key(w: Served) -> None:
    w.pushes("agent/1", "a.txt", "a\n")
    w.faults({"match": "POST /pulls", "kind": "status-after", "status": 502})
    assert err(w.forge.open_pull("agent/1", "main", "T", "B"), Failure.FORGE_DOWN).maybe
    found = w.forge.pulls("agent/1", "main", "open").unwrap()
    assert len(found) == 1
    assert err(w.forge.open_pull("agent/1", "main", "T", "B"), Failure.CONFLICT).detail == "already exists"


@pytest.mark.parametrize("kind", ["status-before", "drop-before"])
def test_a_lost_read_is_never_maybe(w: Served, kind: str) -> None:
    w.faults({"match": "GET /issues", "kind": kind, "times": 0})
    assert not err(w.forge.issues(), Failure.FORGE_DOWN).maybe
    assert not err(w.forge.issue(1), Failure.FORGE_DOWN).maybe


def test_an_answer_that_comes_too_late(w: Served) -> None:
    n = w.opens("One")
    quick = w.connect(timeout_s=0.2)
    w.faults({"match": "POST /issues/\\d+/comments", "kind": "slow", "seconds": 0.6})
    r = err(quick.comment(n, "hello"), Failure.FORGE_DOWN)
    assert r.maybe
    assert r.detail == "the forge did not answer: no answer in time"


def test_a_forge_that_is_not_there_got_nothing() -> None:
    clock, shelf = Hands(), Shelf()
    governor = Governor(shelf.get, shelf.put, clock, {})
    forge = GitHubForge("http://127.0.0.1:9", "acme/widget", lambda: "t", governor, clock)
    r = err(forge.comment(1, "hello"), Failure.FORGE_DOWN)
    assert not r.maybe
    assert r.detail == "the forge did not answer: no connection"
    assert not err(forge.issues(), Failure.FORGE_DOWN).maybe


# ---------------------------------------------------------------- limits


def test_secondary_limit_without_words_waits_a_minute_and_then_longer(w: Served) -> None:
    n = w.opens("One")
    w.faults({"match": "POST /issues/\\d+/comments", "kind": "secondary-limit", "times": 3})
    waits = []
    for _ in range(3):
        r = err(w.forge.comment(n, "hello"), Failure.FORGE_RATE_LIMITED)
        assert not r.maybe
        assert r.detail == "forge: secondary rate limit"
        assert r.not_before is not None
        waits.append(r.not_before - w.clock.at)
        before = sent(w)
        for other in (w.forge.add_labels(n, ["x"]), w.forge.comment(n, "hello"), w.forge.issues()):
            assert err(other, Failure.FORGE_RATE_LIMITED).detail.startswith("forge:")
        assert sent(w) == before, "nothing is sent while we are told to wait"
        w.clock.at = r.not_before
    assert waits == [60, 120, 240]
    w.forge.comment(n, "hello").unwrap()
    assert [c.body for c in w.forge.comments(n).unwrap()] == ["hello"]
    assert broken(w) == 0


@pytest.mark.parametrize("status", [403, 429])
def test_retry_after_is_obeyed_to_the_second(w: Served, status: int) -> None:
    n = w.opens("One")
    w.faults({"match": "POST ", "kind": "secondary-limit", "retry_after_s": 7, "status": status})
    r = err(w.forge.comment(n, "hello"), Failure.FORGE_RATE_LIMITED)
    assert r.not_before == w.clock.at + 7
    w.clock.at += 7
    w.forge.comment(n, "hello").unwrap()
    assert broken(w) == 0


def test_429_without_any_words(w: Served) -> None:
    w.faults({"match": "POST ", "kind": "status-before", "status": 429, "message": "Too Many Requests"})
    assert err(w.forge.comment(1, "x"), Failure.FORGE_RATE_LIMITED).not_before == w.clock.at + 60
    w.clock.at += 61


def test_primary_limit_waits_for_its_reset_and_a_restart_knows(w: Served) -> None:
    n = w.opens("One", "", ("harness",))
    w.faults({"match": "GET /issues", "kind": "primary-limit", "reset_s": 1465})
    r = err(w.forge.issues(), Failure.FORGE_RATE_LIMITED)
    assert r.not_before is not None
    assert 1465 <= r.not_before - w.clock.at <= 1468
    again = Governor(w.shelf.get, w.shelf.put, w.clock, w.limits)
    refused = again.enter(WRITE)
    assert isinstance(refused, Err)
    assert refused.not_before == r.not_before
    w.clock.at = r.not_before
    assert [i.number for i in w.forge.issues().unwrap()] == [n]
    assert broken(w) == 0


def test_the_last_request_of_the_quota_closes_the_door_before_the_forge_does(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    small = Server(tmp_path_factory.mktemp("small"), Settings(primary_limit=5))
    try:
        w = small.repository()
        n = w.opens("One", who="acme")
        ok = [isinstance(w.forge.issue(n), Ok) for _ in range(8)]
        assert ok == [True] * 5 + [False] * 3
        assert sent(w) == 5
    finally:
        small.close()


def test_our_own_spacing_is_told_apart(server: Server) -> None:
    w = server.repository(limits={READ: Limits(), WRITE: GITHUB_LIMITS[WRITE]})
    n = w.opens("One")
    w.forge.comment(n, "a").unwrap()
    r = err(w.forge.comment(n, "b"), Failure.FORGE_RATE_LIMITED)
    assert r.detail.startswith("own:")
    assert r.not_before == w.clock.at + 1
    w.clock.at += 1
    w.forge.comment(n, "b").unwrap()


# ---------------------------------------------------------------- refusals


def test_what_we_may_not_do_is_no_rate_limit(w: Served) -> None:
    n = w.opens("One")
    low = w.connect(lambda: w.tokens["rita"])
    r = err(low.add_labels(n, ["x"]), Failure.AUTH_FAILED)
    assert r.not_before is None
    assert low.counts()["write"] == 1
    low.comment(n, "but this I may").unwrap()


def test_a_refused_credential_is_renewed_once(w: Served) -> None:
    n = w.opens("One")
    given = iter(["stale", w.tokens["harness-bot"], w.tokens["harness-bot"]])
    forge = w.connect(lambda: next(given))
    forge.comment(n, "hello").unwrap()
    assert forge.counts()["write"] == 2
    assert len(forge.comments(n).unwrap()) == 1


def test_a_credential_that_stays_refused(w: Served) -> None:
    same = w.connect(lambda: "revoked")
    r = err(same.issues(), Failure.AUTH_FAILED)
    assert not r.maybe
    assert same.counts()["read"] == 1, "the same credential is not tried twice"
    renewed = w.connect(lambda: "old", renew=lambda: "new, and no better")
    err(renewed.comment(1, "x"), Failure.AUTH_FAILED)
    assert renewed.counts()["write"] == 2


def test_a_moved_issue_is_gone_and_says_where(w: Served, server: Server) -> None:
    other = server.repository()
    n = w.opens("One", "", ("harness",))
    assert len(w.forge.issues().unwrap()) == 1
    server.running.transfer_issue(w.repo, n, other.repo)
    gone = w.forge.issue(n).unwrap()
    assert isinstance(gone, Gone)
    assert gone.why.startswith("moved to ")
    assert other.repo in gone.why
    assert w.forge.issues().unwrap() == (), "and it is not listed any more"


def test_an_archived_repository(w: Served) -> None:
    n = w.opens("One")
    w.as_person("acme", "PATCH", "", {"archived": True})
    assert err(w.forge.comment(n, "x"), Failure.POLICY_VIOLATION).detail == "archived"


# ---------------------------------------------------------------- merges


def test_a_base_that_was_modified_meanwhile_is_only_a_moment(w: Served) -> None:
    sha = w.pushes("agent/1", "a.txt", "a\n")
    pull = w.forge.open_pull("agent/1", "main", "T", "B").unwrap()
    before = w.forge.counts()["write"]
    w.faults({"match": "PUT /pulls/\\d+/merge", "kind": "base-modified", "n": 2})
    for _ in range(2):
        r = err(w.forge.merge_pull(pull.number, sha, "merge", "T", ""), Failure.FORGE_DOWN)
        assert not r.maybe
    w.forge.merge_pull(pull.number, sha, "merge", "T", "").unwrap()
    assert w.forge.counts()["write"] - before == 3


def test_a_rule_that_forbids_the_merge_is_asked_once(w: Served) -> None:
    sha = w.pushes("agent/1", "a.txt", "a\n")
    pull = w.forge.open_pull("agent/1", "main", "T", "B").unwrap()
    w.asks_for_review()
    before = sent(w)
    err(w.forge.merge_pull(pull.number, sha, "merge", "T", ""), Failure.POLICY_VIOLATION)
    assert sent(w) - before == 1


def test_a_405_while_mergeable_is_not_known_yet(w: Served) -> None:
    sha = w.pushes("agent/1", "same.txt", "a\n")
    pull = w.forge.open_pull("agent/1", "main", "T", "B").unwrap()
    w.pushes("main", "same.txt", "b\n")
    w.faults({"match": "GET /pulls/\\d+", "kind": "mergeable-null", "n": 1})
    r = err(w.forge.merge_pull(pull.number, sha, "merge", "T", ""), Failure.FORGE_DOWN)
    assert r.not_before == w.clock.at + 5
    err(w.forge.merge_pull(pull.number, sha, "merge", "T", ""), Failure.CONFLICT)


def test_mergeable_is_none_while_computed(w: Served) -> None:
    w.pushes("agent/1", "a.txt", "a\n")
    pull = w.forge.open_pull("agent/1", "main", "T", "B").unwrap()
    w.faults({"match": "GET /pulls/\\d+", "kind": "mergeable-null", "n": 2})
    seen = [w.forge.pull(pull.number).unwrap().mergeable for _ in range(3)]
    assert seen == [None, None, True]


def test_a_merge_that_was_done_and_not_answered(w: Served) -> None:
    sha = w.pushes("agent/1", "a.txt", "a\n")
    pull = w.forge.open_pull("agent/1", "main", "T", "B").unwrap()
    w.faults({"match": "PUT /pulls/\\d+/merge", "kind": "drop-after"})
    assert err(w.forge.merge_pull(pull.number, sha, "merge", "T", ""), Failure.FORGE_DOWN).maybe
    assert w.forge.merge_pull(pull.number, sha, "merge", "T", "").unwrap() == w.tip("main")


# ---------------------------------------------------------------- lag


def test_a_404_for_what_we_made_just_now_is_lag(w: Served) -> None:
    w.pushes("agent/1", "a.txt", "a\n")
    w.faults({"match": "POST /pulls", "kind": "not-found-after-create", "n": 2})
    pull = w.forge.open_pull("agent/1", "main", "T", "B").unwrap()
    waits = []
    for _ in range(2):
        r = err(w.forge.pull(pull.number), Failure.FORGE_DOWN)
        assert r.not_before is not None
        waits.append(r.not_before - w.clock.at)
        w.clock.at = r.not_before
    assert waits == [1, 2]
    assert w.forge.pull(pull.number).unwrap().number == pull.number


def test_lag_is_believed_five_times_and_for_a_minute(w: Served) -> None:
    w.pushes("agent/1", "a.txt", "a\n")
    w.faults({"match": "POST /pulls", "kind": "not-found-after-create", "n": 100})
    pull = w.forge.open_pull("agent/1", "main", "T", "B").unwrap()
    for _ in range(5):
        err(w.forge.pull(pull.number), Failure.FORGE_DOWN)
    err(w.forge.pull(pull.number), Failure.GONE)
    w.faults()
    before = sent(w)
    err(w.forge.pull(9999), Failure.GONE)
    assert sent(w) - before == 1, "what we did not make is final at once"


def test_a_branch_that_never_shows_is_given_up(w: Served) -> None:
    for _ in range(5):
        err(w.forge.open_pull("agent/none", "main", "T", ""), Failure.FORGE_DOWN)
    err(w.forge.open_pull("agent/none", "main", "T", ""), Failure.CONFLICT)
    err(w.forge.set_status("0" * 40, "c", "success", ""), Failure.FORGE_DOWN)


def test_a_list_that_lags_is_read_as_it_is_and_catches_up(w: Served) -> None:
    w.opens("One", "", ("harness",))
    w.forge.issues().unwrap()
    w.forge.issues().unwrap()
    w.faults({"match": "GET /issues", "kind": "stale", "n": 2, "times": 1})
    w.forge.issues().unwrap()
    w.clock.at += 5
    w.opens("Two", "", ("harness",))
    assert [len(w.forge.issues().unwrap()) for _ in range(3)] == [1, 1, 2]


def test_a_list_that_lags_does_not_bring_back_what_is_gone(w: Served) -> None:
    n = w.opens("One", "", ("harness",))
    w.opens("Two", "", ("harness",))
    w.forge.issues().unwrap()
    w.forge.issues().unwrap()
    w.clock.at += 5
    w.closes(n)
    found = w.forge.issue(n).unwrap()
    assert isinstance(found, Issue)
    assert not found.open
    w.faults({"match": "GET /issues", "kind": "stale", "n": 1, "times": 1})
    for _ in range(3):
        assert len(w.forge.issues().unwrap()) == 1


# ---------------------------------------------------------------- threads and secrets


def test_threads_get_their_own_answers(w: Served) -> None:
    numbers = [w.opens(f"T{i}", f"B{i}") for i in range(8)]
    wrong: list[object] = []

    def look(n: int, i: int) -> None:
        for _ in range(15):
            r = w.forge.issue(n)
            if not (isinstance(r, Ok) and isinstance(r.value, Issue) and r.value.title == f"T{i}"):
                wrong.append(r)

    threads = [threading.Thread(target=look, args=(n, i)) for i, n in enumerate(numbers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_no_log_line_holds_the_credential(w: Served, caplog: pytest.LogCaptureFixture) -> None:
    n = w.opens("One")
    with caplog.at_level(logging.DEBUG):
        w.forge.comment(n, "hello").unwrap()
        w.forge.comments(n).unwrap()
    assert "requests" in sys.modules
    assert w.token not in caplog.text
