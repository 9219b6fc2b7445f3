"""What every Forge must do. One suite over the forge in memory and GitHubForge against the embedded forge."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from forge_world import Remembered, Served, Server

from harness.adapters.memory.forge import MemoryForge
from harness.core.result import Err, Ok
from harness.domain import Gone, Issue
from harness.failures import Failure

World = Remembered | Served


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("forge"))
    yield running
    running.close()


@pytest.fixture(params=["memory", "http"])
def w(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "memory":
        yield Remembered()
    else:
        world = request.getfixturevalue("server").repository()
        yield world
        world.close()


def err(r: object, failure: Failure) -> Err:
    assert isinstance(r, Err), r
    assert r.failure == failure, r
    return r


def open_pull(w: World, branch: str = "agent/1", path: str = "a.txt"):
    sha = w.pushes(branch, path, f"{branch}\n")
    return sha, w.forge.open_pull(branch, "main", "Add a", "Refs #1").unwrap()


# ---------------------------------------------------------------- who and where


def test_who_we_are(w: World) -> None:
    me = w.forge.whoami().unwrap()
    assert (me.login, me.kind, me.scopes) == ("harness-bot", "User", ("repo",))


def test_the_repository_says_what_is_allowed(w: World) -> None:
    r = w.forge.repository().unwrap()
    assert (r.default_branch, r.permission, r.private) == ("main", "admin", False)
    assert r.merge_methods == ("merge", "squash", "rebase")
    assert r.clone_url.endswith(f"{w.repo}.git")
    w.methods("squash")
    assert w.forge.repository().unwrap().merge_methods == ("squash",)


@pytest.mark.parametrize(
    ("login", "expected"),
    [
        ("acme", "admin"),
        ("ANN", "write"),
        ("carl", "triage"),
        ("nobody-of-that-name", "none"),
        ("a/../b", "none"),
    ],
)
def test_permission(w: World, login: str, expected: str) -> None:
    assert w.forge.permission(login).unwrap() == expected


# ---------------------------------------------------------------- issues


def test_issues_are_open_ours_and_never_pulls(w: World) -> None:
    one = w.opens("One", "text", ("harness",))
    two = w.opens("Two", None, ("Harness:Working",))
    w.opens("Not ours", "", ("bug",))
    open_pull(w)
    closed = w.opens("Closed", "", ("harness",))
    w.closes(closed)
    found = w.forge.issues().unwrap()
    assert [i.number for i in found] == [one, two]
    assert found[0].title == "One"
    assert found[0].author == "ann"
    assert found[0].body == "text"
    assert found[1].body == ""
    assert found[0].created_at == w.clock.at
    assert found[0].has("HARNESS")


def test_issues_follow_what_people_do(w: World) -> None:
    one, two = (w.opens(t, "", ("harness",)) for t in ("One", "Two"))
    assert len(w.forge.issues().unwrap()) == 2
    w.clock.at += 5
    three = w.opens("Three", "", ("harness",))
    w.closes(one)
    w.unlabels(two, "harness")
    assert [i.number for i in w.forge.issues().unwrap()] == [three]
    w.clock.at += 5
    w.labels(two, "harness")
    assert [i.number for i in w.forge.issues().unwrap()] == [two, three]


def test_an_unchanged_world_costs_one_304_a_call(w: World) -> None:
    w.opens("One", "", ("harness",))
    w.forge.issues().unwrap()
    w.forge.issues().unwrap()
    before = dict(w.forge.counts())
    for _ in range(5):
        w.clock.at += 60
        assert len(w.forge.issues().unwrap()) == 1
    after = w.forge.counts()
    assert after["read"] - before["read"] == 5
    assert after["not_modified"] - before["not_modified"] == 5
    assert after["write"] == before["write"] == 0


def test_one_issue_and_one_that_is_gone(w: World) -> None:
    n = w.opens("One", "b", ("harness",))
    found = w.forge.issue(n).unwrap()
    assert isinstance(found, Issue)
    assert (found.number, found.body, found.open, found.locked) == (n, "b", True, False)
    w.deletes(n)
    gone = w.forge.issue(n).unwrap()
    assert isinstance(gone, Gone)
    assert "deleted" in gone.why
    assert isinstance(w.forge.issue(9999).unwrap(), Gone)
    _, pull = open_pull(w)
    assert isinstance(w.forge.issue(pull.number).unwrap(), Gone)


def test_close_an_issue_twice(w: World) -> None:
    n = w.opens("One")
    for _ in range(2):
        assert w.forge.close_issue(n) == Ok(None)
    assert w.state_of(n) == "closed"
    found = w.forge.issue(n).unwrap()
    assert isinstance(found, Issue)
    assert not found.open
    err(w.forge.close_issue(9999), Failure.GONE)


# ---------------------------------------------------------------- comments


def test_comment_and_edit_in_place(w: World) -> None:
    n = w.opens("One")
    w.comments(n, "hello")
    ours = w.forge.comment(n, "working on it <!-- m -->").unwrap()
    w.clock.at += 3
    edited = w.forge.edit_comment(ours.id, "done").unwrap()
    assert edited.id == ours.id
    found = w.forge.comments(n).unwrap()
    assert [(c.author, c.body) for c in found] == [("ann", "hello"), ("harness-bot", "done")]
    assert found[1].created_at == w.clock.at - 3
    assert found[1].updated_at == w.clock.at


def test_more_comments_than_a_page(w: World) -> None:
    n = w.opens("One")
    for i in range(130):
        w.comments(n, f"c{i}")
    assert [c.body for c in w.forge.comments(n).unwrap()] == [f"c{i}" for i in range(130)]


def test_comments_on_what_is_locked_or_gone(w: World) -> None:
    n = w.opens("One")
    w.locks(n)
    r = err(w.forge.comment(n, "hello"), Failure.POLICY_VIOLATION)
    assert r.detail == "locked"
    assert not r.maybe
    w.deletes(n)
    err(w.forge.comment(n, "hello"), Failure.GONE)
    err(w.forge.comments(n), Failure.GONE)
    err(w.forge.edit_comment(987_654, "x"), Failure.GONE)


# ---------------------------------------------------------------- labels


def test_labels_are_made_once_whatever_their_case(w: World) -> None:
    wanted = {"harness": "work on this", "harness:working": "x" * 300}
    w.labels(w.opens("One"), "Harness")
    assert w.forge.ensure_labels(wanted) == Ok(1)
    assert w.forge.ensure_labels(wanted) == Ok(0)


def test_labels_come_and_go_and_absent_is_fine(w: World) -> None:
    n = w.opens("One", "", ("harness",))
    assert w.forge.add_labels(n, ["harness:working", "HARNESS"]) == Ok(None)
    assert w.forge.add_labels(n, []) == Ok(None)
    found = w.forge.issue(n).unwrap()
    assert isinstance(found, Issue)
    assert found.labels == ("harness", "harness:working")
    for _ in range(2):
        assert w.forge.remove_label(n, "Harness:Working") == Ok(None)
    found = w.forge.issue(n).unwrap()
    assert isinstance(found, Issue)
    assert found.labels == ("harness",)
    err(w.forge.add_labels(9999, ["x"]), Failure.GONE)


# ---------------------------------------------------------------- pulls


def test_open_find_and_edit_a_pull(w: World) -> None:
    sha, pull = open_pull(w)
    assert (pull.head, pull.base, pull.head_sha) == ("agent/1", "main", sha)
    assert (pull.open, pull.merged, pull.merge_sha, pull.draft) == (True, False, "", False)
    assert pull.author == "harness-bot"
    assert [p.number for p in w.forge.pulls("agent/1").unwrap()] == [pull.number]
    assert [p.number for p in w.forge.pulls("agent/1", "main", "open").unwrap()] == [pull.number]
    assert w.forge.pulls("agent/1", "other").unwrap() == ()
    assert w.forge.pulls("agent").unwrap() == ()
    assert w.forge.pulls("agent/1", state="closed").unwrap() == ()
    edited = w.forge.edit_pull(pull.number, title="New", body="text").unwrap()
    assert (edited.title, edited.body) == ("New", "text")
    closed = w.forge.edit_pull(pull.number, state="closed").unwrap()
    assert not closed.open
    assert not closed.merged
    assert w.forge.pull(pull.number).unwrap().title == "New"
    err(w.forge.pull(9999), Failure.GONE)


def test_a_second_pull_of_the_same_branch_is_a_conflict(w: World) -> None:
    open_pull(w)
    r = err(w.forge.open_pull("agent/1", "main", "Again", ""), Failure.CONFLICT)
    assert r.detail == "already exists"
    assert not r.maybe


def test_a_pull_without_commits(w: World) -> None:
    w.branches("agent/2")
    err(w.forge.open_pull("agent/2", "main", "Nothing", ""), Failure.AGENT_NO_CHANGES)


def test_a_pull_of_a_branch_that_is_not_there_is_lag_at_first(w: World) -> None:
    err(w.forge.open_pull("agent/none", "main", "T", ""), Failure.FORGE_DOWN)


def test_a_pull_follows_its_branch(w: World) -> None:
    _, pull = open_pull(w)
    sha = w.pushes("agent/1", "b.txt", "more\n")
    assert w.forge.pull(pull.number).unwrap().head_sha == sha
    w.removes("agent/1")
    seen = w.forge.pull(pull.number).unwrap()
    assert not seen.open
    assert not seen.merged


def test_a_pull_is_merged_when_its_base_gets_its_head(w: World) -> None:
    sha, pull = open_pull(w)
    w.forwards("main", sha)
    seen = w.forge.pull(pull.number).unwrap()
    assert seen.merged
    assert not seen.open
    assert seen.merge_sha == sha


def test_merge_with_a_pinned_head(w: World) -> None:
    sha, pull = open_pull(w)
    assert pull.mergeable is True
    moved = w.pushes("agent/1", "b.txt", "more\n")
    err(w.forge.merge_pull(pull.number, sha, "merge", "Land", ""), Failure.CONFLICT)
    merged = w.forge.merge_pull(pull.number, moved, "merge", "Land", "text").unwrap()
    assert w.tip("main") == merged
    seen = w.forge.pull(pull.number).unwrap()
    assert (seen.merged, seen.merge_sha) == (True, merged)
    assert w.forge.merge_pull(pull.number, moved, "merge", "Land", "").unwrap() == merged, "twice is once"


def test_merge_of_what_conflicts(w: World) -> None:
    sha, pull = open_pull(w, path="same.txt")
    w.pushes("main", "same.txt", "otherwise\n")
    assert w.forge.pull(pull.number).unwrap().mergeable is False
    r = err(w.forge.merge_pull(pull.number, sha, "merge", "Land", ""), Failure.CONFLICT)
    assert not r.maybe


def test_merge_by_a_method_that_is_not_allowed(w: World) -> None:
    sha, pull = open_pull(w)
    w.methods("squash")
    r = err(w.forge.merge_pull(pull.number, sha, "merge", "Land", ""), Failure.POLICY_VIOLATION)
    assert "not allowed" in r.detail
    w.forge.merge_pull(pull.number, sha, "squash", "Land", "").unwrap()


def test_merge_that_needs_a_review(w: World) -> None:
    sha, pull = open_pull(w)
    w.asks_for_review()
    r = err(w.forge.merge_pull(pull.number, sha, "merge", "Land", ""), Failure.POLICY_VIOLATION)
    assert "approving review" in r.detail
    w.reviews(pull.number, "CHANGES_REQUESTED")
    err(w.forge.merge_pull(pull.number, sha, "merge", "Land", ""), Failure.POLICY_VIOLATION)
    w.reviews(pull.number, "APPROVED")
    seen = w.forge.reviews(pull.number).unwrap()
    assert [(r.author, r.state, r.sha) for r in seen] == [
        ("ann", "CHANGES_REQUESTED", sha),
        ("ann", "APPROVED", sha),
    ]
    w.forge.merge_pull(pull.number, sha, "merge", "Land", "").unwrap()


def test_merge_of_a_closed_or_unknown_pull(w: World) -> None:
    sha, pull = open_pull(w)
    w.forge.edit_pull(pull.number, state="closed").unwrap()
    err(w.forge.merge_pull(pull.number, sha, "merge", "Land", ""), Failure.POLICY_VIOLATION)
    err(w.forge.merge_pull(9999, sha, "merge", "Land", ""), Failure.GONE)


# ---------------------------------------------------------------- statuses and releases


def test_statuses_show_the_last_of_each_context(w: World) -> None:
    sha = w.pushes("agent/1", "a.txt", "a\n")
    assert w.forge.checks(sha).unwrap() == ()
    w.forge.set_status(sha, "harness", "pending", "x" * 500).unwrap()
    w.forge.set_status(sha, "other", "error", "").unwrap()
    w.forge.set_status(sha, "harness", "success", "green").unwrap()
    seen = {c.name: c.state for c in w.forge.checks(sha).unwrap()}
    assert seen == {"harness": "success", "other": "failure"}


def test_releases_are_found_by_their_tag(w: World) -> None:
    sha = w.tip("main")
    assert w.forge.release("v1.0.0") == Ok(None)
    made = w.forge.create_release("v1.0.0", "One", "text", sha).unwrap()
    assert w.forge.release("v1.0.0") == Ok(made)
    assert made.tag == "v1.0.0"
    r = err(w.forge.create_release("v1.0.0", "One", "text", sha), Failure.CONFLICT)
    assert r.detail == "already exists"
    assert w.forge.release("v1/odd tag") == Ok(None)


# ---------------------------------------------------------------- the forge in memory alone


def test_memory_faults_before_and_after_the_work() -> None:
    w = Remembered()
    forge = w.forge
    assert isinstance(forge, MemoryForge)
    n = w.opens("One", "", ("harness",))
    down = Err(Failure.FORGE_DOWN, "the forge answered 502", maybe=True)
    forge.before = lambda name, args: down if name == "comment" else None
    assert forge.comment(n, "a") == down
    assert w.hub.comments == {}
    assert forge.counts()["write"] == 0
    forge.before = lambda name, args: None
    forge.after = lambda name, args, done: down if args.get("body") == "b" else None
    assert forge.comment(n, "b") == down
    assert [c.body for c in forge.comments(n).unwrap()] == ["b"]


def test_memory_lists_may_lag_while_single_reads_do_not() -> None:
    w = Remembered()
    forge = w.forge
    assert isinstance(forge, MemoryForge)
    n = w.opens("One", "", ("harness",))
    _, pull = open_pull(w)
    forge.comment(n, "a").unwrap()
    forge.lag = lambda name, args: 5.0
    assert (forge.issues(), forge.comments(n), forge.pulls("agent/1")) == (Ok(()), Ok(()), Ok(()))
    assert forge.pull(pull.number).unwrap().number == pull.number
    w.clock.at += 5
    assert [len(r.unwrap()) for r in (forge.issues(), forge.comments(n), forge.pulls("agent/1"))] == [1, 1, 1]


def test_memory_outlives_the_client() -> None:
    w = Remembered()
    n = w.opens("One", "", ("harness",))
    again = MemoryForge(w.git, w.clock, hub=w.hub)
    again.comment(n, "from another life").unwrap()
    assert [c.author for c in w.forge.comments(n).unwrap()] == ["harness-bot"]
