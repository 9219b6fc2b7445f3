"""Doing an effect twice equals doing it once, and losing its answer changes nothing in the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from workshop import Workshop

from harness import effects as fx
from harness.core.result import Err
from harness.failures import Failure
from harness.perform.outcome import Sent

Make = Callable[[Workshop], fx.Effect]


def comment(w: Workshop) -> fx.Effect:
    return fx.Comment(w.issue(), "status", "**Working on it.**")


def label(w: Workshop) -> fx.Effect:
    return fx.Label(w.issue("harness:deferred"), add=("harness:working",), remove=("harness:deferred",))


def close(w: Workshop) -> fx.Effect:
    return fx.CloseIssue(w.issue())


def open_pull(w: Workshop) -> fx.Effect:
    w.branch("agent/1")
    return fx.OpenPull("agent/1", "main", "Add it", "Refs #1", "pull-1")


def _pull(w: Workshop) -> int:
    w.branch("agent/1")
    w.branch("release/0.1.0", other="1")
    return w.forge.open_pull("agent/1", "main", "Add it", "old text").unwrap().number


def edit_pull(w: Workshop) -> fx.Effect:
    return fx.EditPull(_pull(w), body="new text", base="release/0.1.0")


def close_pull(w: Workshop) -> fx.Effect:
    return fx.EditPull(_pull(w), state="closed")


def merge_pull(w: Workshop) -> fx.Effect:
    return fx.MergePull(_pull(w), w.remote.refs["refs/heads/agent/1"], "merge", "Release")


def status(w: Workshop) -> fx.Effect:
    return fx.SetStatus(w.main, "harness/release", "pending", "being prepared")


def release(w: Workshop) -> fx.Effect:
    w.remote.set("refs/tags/v0.1.0", w.main)
    return fx.PublishRelease("v0.1.0", "Release 0.1.0", "notes", w.main)


def labels(w: Workshop) -> fx.Effect:
    return fx.EnsureLabels(("harness", "harness:working"))


def create_branch(w: Workshop) -> fx.Effect:
    return fx.CreateBranch("release/0.1.0", w.main)


def delete_branch(w: Workshop) -> fx.Effect:
    return fx.DeleteBranch("agent/1", w.branch("agent/1"))


def build_merge(w: Workshop) -> fx.Effect:
    w.branch("agent/1")
    main = w.remote.write("refs/heads/main", {"x": "1"}, "x", w.clock.now())
    return fx.BuildMerge(main, w.remote.refs["refs/heads/agent/1"], "merge it", 1000.0)


def land(w: Workshop) -> fx.Effect:
    return fx.Land("main", w.branch("agent/1"), w.main)


def tag(w: Workshop) -> fx.Effect:
    return fx.Tag("v0.1.0", w.main)


def publish(w: Workshop) -> fx.Effect:
    sha, bundle = w.bundle("12.1", w.main, new="1")
    return fx.Publish("12.1", 12, sha, w.main, "agent/12", bundle)


def clone(w: Workshop) -> fx.Effect:
    return fx.Clone("12.1", w.main, "agent/12", "main")


def discard(w: Workshop) -> fx.Effect:
    w.do(clone(w))
    return fx.Discard("12.1")


def start_gate(w: Workshop) -> fx.Effect:
    return fx.StartGate("gate-1", w.main, ("test",), "img")


def end_gate(w: Workshop) -> fx.Effect:
    w.do(start_gate(w))
    w.runtime.finish("gate-1", 0)
    return fx.EndGate("gate-1")


def prepare(w: Workshop) -> fx.Effect:
    return fx.StartPrepare("prepare-1", w.main, ("install",), "img")


def brief(w: Workshop) -> fx.Effect:
    return fx.WriteBrief("12.1", {"issue": 12})


def open_socket(w: Workshop) -> fx.Effect:
    return fx.OpenSocket("12.1", 1)


def shut_socket(w: Workshop) -> fx.Effect:
    w.do(open_socket(w))
    return fx.ShutSocket("12.1")


def start_worker(w: Workshop) -> fx.Effect:
    w.gateway.folder = w.world.data / "run"  # type: ignore[attr-defined]
    return fx.StartWorker("h-worker", "12.1", 1, "img")


def harvest(w: Workshop) -> fx.Effect:
    return fx.StartHarvest("h-harvest", "12.1", "img")


def stop(w: Workshop) -> fx.Effect:
    w.do(harvest(w))
    return fx.StopJob("h-harvest")


def remove(w: Workshop) -> fx.Effect:
    w.do(harvest(w))
    w.runtime.finish("h-harvest", 0)
    return fx.RemoveJob("h-harvest")


def seal(w: Workshop) -> fx.Effect:
    return fx.SealBundle("12.1", {"machine": "acme/widget/attempt/12.1"}, ())


def announce(w: Workshop) -> fx.Effect:
    return fx.Announce("v0.1.0", w.main, "img2")


def keep(w: Workshop) -> fx.Effect:
    return fx.KeepWork("12.1", w.main)


ON_FORGE: tuple[Make, ...] = (
    comment,
    label,
    close,
    open_pull,
    edit_pull,
    close_pull,
    merge_pull,
    status,
    release,
    labels,
)
ON_GIT: tuple[Make, ...] = (
    create_branch,
    delete_branch,
    build_merge,
    land,
    tag,
    publish,
    clone,
    discard,
    keep,
)
ON_ENGINE: tuple[Make, ...] = (start_gate, end_gate, prepare, harvest, stop, remove)
HERE: tuple[Make, ...] = (brief, open_socket, shut_socket, seal, announce)


def ident(make: Any) -> str:
    return str(getattr(make, "__name__", make))


@pytest.fixture
def w(tmp_path: Path) -> Workshop:
    return Workshop.open(tmp_path)


@pytest.mark.parametrize("make", [*ON_FORGE, *ON_GIT, *ON_ENGINE, *HERE], ids=ident)
def test_twice_is_once(make: Make, w: Workshop) -> None:
    effect = make(w)
    before = w.seen()
    first = w.drive(effect)[-1]
    assert first.status == "done", first
    once = w.seen()
    if make not in (build_merge, brief, keep, seal, announce):
        assert once != before
    again = w.drive(effect, Sent(w.clock.at - 60.0))[-1]
    assert again.status == "done", again
    assert w.seen() == once


@pytest.mark.parametrize("make", [*ON_FORGE, *ON_GIT, *ON_ENGINE], ids=ident)
def test_a_lost_answer_changes_nothing_in_the_end(make: Make, tmp_path: Path) -> None:
    calm, lossy = Workshop.open(tmp_path / "calm"), Workshop.open(tmp_path / "lossy")
    assert calm.drive(make(calm))[-1].status == "done"
    effect = make(lossy)
    _lose_each_answer_once(lossy)
    told = lossy.drive(effect)
    assert told[-1].status == "done"
    assert _plain(lossy, tmp_path / "lossy") == _plain(calm, tmp_path / "calm")


@pytest.mark.parametrize("make", [*ON_FORGE, *ON_ENGINE], ids=ident)
def test_a_request_that_never_arrived_is_sent_once_more(make: Make, tmp_path: Path) -> None:
    calm, lossy = Workshop.open(tmp_path / "calm"), Workshop.open(tmp_path / "lossy")
    assert calm.drive(make(calm))[-1].status == "done"
    effect = make(lossy)
    seen: set[str] = set()

    def never_arrives(name: str) -> bool:
        first = name not in seen
        seen.add(name)
        return first

    lossy.forge.before = lambda name, args: (
        Err(Failure.FORGE_DOWN, "no answer", maybe=name in WRITES) if never_arrives(name) else None
    )
    lossy.runtime.fault = lambda op, name: "before" if never_arrives(f"{op} {name}") else ""
    assert lossy.drive(effect)[-1].status == "done"
    assert _plain(lossy, tmp_path / "lossy") == _plain(calm, tmp_path / "calm")


@pytest.mark.parametrize("make", [*ON_FORGE, *ON_GIT, *ON_ENGINE], ids=ident)
def test_what_could_not_be_read_is_not_taken_for_absent(make: Make, w: Workshop) -> None:
    """It was done and its answer lost; then each read fails once before it succeeds."""
    effect = make(w)
    assert w.drive(effect)[-1].status == "done"
    once = w.seen()
    _fail_each_read_once(w)
    again = w.drive(effect, Sent(w.clock.at - 60.0))[-1]
    assert again.status == "done", again
    assert w.seen() == once


def test_work_waits_while_nobody_can_tell_whose_branch_it_is(w: Workshop) -> None:
    """A fetch that fails says nothing of who pushed what is there: no conflict, and no work given up."""
    base = w.branch("agent/12", theirs="1")
    sha, bundle = w.bundle("12.1", base, new="1")
    effect = fx.Publish("12.1", 12, sha, w.main, "agent/12", bundle)
    _fail_each_read_once(w)
    told = w.drive(effect)
    assert [o.failure for o in told if o.status == "failed"] == []
    assert told[-1].status == "done" and w.remote.refs["refs/heads/agent/12"] == sha


WRITES = frozenset(
    {
        "comment",
        "edit_comment",
        "close_issue",
        "ensure_labels",
        "add_labels",
        "remove_label",
        "open_pull",
        "edit_pull",
        "merge_pull",
        "set_status",
        "create_release",
    }
)


def _plain(w: Workshop, folder: Path) -> str:
    return w.seen().replace(str(folder), "")


def _fail_each_read_once(w: Workshop) -> None:
    failed: set[str] = set()

    def first(name: str) -> bool:
        before = name in failed
        failed.add(name)
        return not before

    def failing(name: str, read: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*args: Any) -> Any:
            return Err(Failure.FORGE_DOWN, "no answer") if first(name) else read(*args)

        return asked

    w.forge.before = lambda name, args: (
        Err(Failure.FORGE_DOWN, "no answer") if name not in WRITES and first(name) else None
    )
    w.runtime.fault = lambda op, name: "before" if op not in ("start", "stop", "remove") and first(op) else ""
    for name in ("remote_refs", "fetch", "is_ancestor"):
        setattr(w.repo, name, failing(name, getattr(w.repo, name)))


def _lose_each_answer_once(w: Workshop) -> None:
    lost: set[str] = set()

    def after(name: str, args: Any, done: Any) -> Err | None:
        if name in WRITES and name not in lost:
            lost.add(name)
            return Err(Failure.FORGE_DOWN, "the connection was reset", maybe=True)
        return None

    def fault(op: str, name: str) -> str:
        if op in ("start", "stop", "remove") and op not in lost:
            lost.add(op)
            return "after"
        return ""

    push = w.repo.push

    def pushed(ref: str, sha: str, expect: str | None) -> Any:
        answer = push(ref, sha, expect)
        if "push" not in lost:
            lost.add("push")
            return Err(Failure.FORGE_DOWN, "the remote end hung up", maybe=True)
        return answer

    w.forge.after, w.runtime.fault = after, fault
    w.repo.push = pushed  # type: ignore[method-assign]
