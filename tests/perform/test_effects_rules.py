"""What each effect may and may not do: whose a comment is, what a lease is, what is believed to be absent."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from short import cannot_open
from workshop import Workshop

from harness import effects as fx
from harness.core.result import Err, Ok, Pass
from harness.domain import FileChange, Imported
from harness.failures import Failure
from harness.marks import Marks
from harness.perform import perform
from harness.perform.outcome import NOT_THERE, Outcome, Sent, from_result, keyed
from harness.ports import Screened, Unseen


@pytest.fixture
def w(tmp_path: Path) -> Workshop:
    return Workshop.open(tmp_path)


# ---------------------------------------------------------------- what an answer amounts to


@pytest.mark.parametrize(
    ("result", "status"),
    [
        (Ok(1), "done"),
        (Pass("not yet"), "later"),
        (Err(Failure.FORGE_RATE_LIMITED, "own: two seconds apart", not_before=5.0), "later"),
        (Err(Failure.FORGE_RATE_LIMITED, "secondary limit", not_before=5.0), "deferred"),
        (Err(Failure.FORGE_DOWN, "502", maybe=True), "ambiguous"),
        (Err(Failure.FORGE_DOWN, "503"), "deferred"),
        (Err(Failure.AUTH_FAILED, "401"), "deferred"),
        (Err(Failure.DISK_FULL, "no space"), "deferred"),
        (Err(Failure.INFRA_ENGINE, "hung"), "deferred"),
        (Err(Failure.CONFLICT, "moved"), "failed"),
        (Err(Failure.POLICY_VIOLATION, "no"), "failed"),
        (Err(Failure.INTERNAL_ERROR, "422"), "failed"),
    ],
)
def test_an_answer(result: Any, status: str) -> None:
    outcome = from_result(result, 100.0)
    assert outcome.status == status
    if status == "ambiguous":
        assert outcome.sent_at == 100.0


# ---------------------------------------------------------------- absent is believed late


class Asked:
    """A key that is looked for, and what was sent."""

    def __init__(self) -> None:
        self.looks = self.sends = 0
        self.there: Any = NOT_THERE

    def at(self, now: float, sent: Sent) -> Outcome:
        def look() -> Any:
            self.looks += 1
            return Ok(self.there)

        def act() -> Outcome:
            self.sends += 1
            return Outcome.done("made")

        return keyed(look, act, sent, lags=True, now=now, lag_s=5.0, lag_reads=3)


def test_what_was_surely_never_sent_is_sent_at_once() -> None:
    a = Asked()
    assert a.at(100.0, Sent(None)).value == "made"
    assert (a.looks, a.sends) == (1, 1)


def test_no_look_counts_that_was_begun_too_soon_after_the_last_possible_send() -> None:
    a = Asked()
    outcome = a.at(104.9, Sent(100.0))
    assert (outcome.status, outcome.not_before, outcome.sent_at) == ("ambiguous", 105.0, 100.0)
    assert (a.looks, a.sends) == (0, 0)


def test_three_looks_that_do_not_find_it_and_then_it_is_sent_once_more() -> None:
    a, at, sent = Asked(), 105.0, Sent(100.0)
    for absent in (1, 2):
        outcome = a.at(at, sent)
        assert (outcome.status, outcome.absent, outcome.sent_at) == ("ambiguous", absent, 100.0)
        at, sent = outcome.not_before, Sent(outcome.sent_at, outcome.absent, sent.tries + 1)
    assert a.at(at, sent).value == "made"
    assert (a.looks, a.sends) == (3, 1)


def test_what_is_found_is_not_sent_again() -> None:
    a = Asked()
    a.there = "theirs"
    assert a.at(105.0, Sent(100.0)).value == "theirs"
    assert a.sends == 0


def test_a_look_that_cannot_be_read_says_nothing_about_absence() -> None:
    outcome = keyed(
        lambda: Err(Failure.FORGE_DOWN, "503", maybe=True),
        lambda: Outcome.done("made"),
        Sent(100.0, 2),
        lags=True,
        now=110.0,
        lag_s=5.0,
        lag_reads=3,
    )
    assert (outcome.status, outcome.absent, outcome.sent_at) == ("deferred", 0, 100.0)


def test_where_lists_do_not_lag_one_look_is_enough() -> None:
    outcome = keyed(
        lambda: Ok(NOT_THERE),
        lambda: Outcome.done(1),
        Sent(100.0),
        lags=False,
        now=100.0,
        lag_s=5.0,
        lag_reads=3,
    )
    assert outcome.value == 1


# ---------------------------------------------------------------- comments


def test_a_comment_is_posted_once_although_the_list_lags(w: Workshop) -> None:
    n = w.issue()
    w.forge.lag = lambda name, args: 4.0
    w.forge.after = lambda name, args, done: (
        Err(Failure.FORGE_DOWN, "reset", maybe=True) if name == "comment" else None
    )
    told = w.drive(fx.Comment(n, "status", "Working"))
    assert [o.status for o in told] == ["ambiguous", "done"]
    assert len(w.hub.comments) == 1


def test_a_comment_is_edited_in_place(w: Workshop) -> None:
    n = w.issue()
    first = w.do(fx.Comment(n, "status", "Working"))
    second = w.do(fx.Comment(n, "status", "Landed"))
    assert first.value == second.value
    ((_, c),) = w.hub.comments.values()
    assert c.body.startswith("Landed\n\n<!-- harness:v1 key=status")


def test_a_comment_that_the_list_does_not_show_yet_is_edited_too(w: Workshop) -> None:
    """Two states in quick succession: claimed, and blocked half a second later."""
    n = w.issue()
    w.do(fx.Comment(n, "status", "Working"))
    w.forge.lag = lambda name, args: 60.0
    w.clock.at += 0.5
    assert w.do(fx.Comment(n, "status", "Blocked")).status == "done"
    ((_, c),) = w.hub.comments.values()
    assert c.body.startswith("Blocked")


def test_a_comment_that_a_person_deleted_is_written_anew(w: Workshop) -> None:
    n = w.issue()
    w.do(fx.Comment(n, "status", "Working"))
    w.hub.person_deletes_comment(next(iter(w.hub.comments)))
    assert [o.status for o in w.drive(fx.Comment(n, "status", "Landed"))] == ["later", "done"]
    ((_, c),) = w.hub.comments.values()
    assert c.body.startswith("Landed")


def test_only_our_mac_makes_a_comment_ours(w: Workshop) -> None:
    n = w.issue()
    forged = Marks(b"x" * 32, "t", "acme/widget").mark("status", f"issue/{n}")
    elsewhere = w.world.marks.mark("status", "issue/99")  # type: ignore[union-attr]
    for body in ("a comment of a person\n\n" + forged, "copied\n\n" + elsewhere):
        w.hub.person_comments("harness-bot", n, body)
    w.do(fx.Comment(n, "status", "Working"))
    assert len(w.hub.comments) == 3
    assert [c.body.split("\n")[0] for _, c in w.hub.comments.values()] == [
        "a comment of a person",
        "copied",
        "Working",
    ]


def test_a_locked_conversation_is_skipped_and_said_so(w: Workshop) -> None:
    n = w.issue()
    w.hub.person_locks(n)
    outcome = w.do(fx.Comment(n, "status", "Working"))
    assert (outcome.status, outcome.value) == ("done", {"skipped": "locked"})
    assert w.hub.comments == {}


def test_an_issue_that_is_gone_is_skipped(w: Workshop) -> None:
    n = w.issue()
    w.hub.person_deletes(n)
    assert w.do(fx.Comment(n, "status", "x")).value == {"skipped": "the issue is gone"}
    assert w.do(fx.Label(n, add=("x",))).value == {"skipped": "deleted"}
    assert w.do(fx.CloseIssue(n)).value == {"already": True}


def test_our_own_spacing_is_neither_sent_nor_a_failure(w: Workshop) -> None:
    n = w.issue()
    w.forge.before = lambda name, args: Err(
        Failure.FORGE_RATE_LIMITED, "own: writes are two seconds apart", not_before=w.clock.at + 2
    )
    outcome = w.do(fx.Label(n, add=("harness:working",)))
    assert (outcome.status, outcome.not_before) == ("later", w.clock.at + 2)


def test_labels_that_are_right_cost_no_write(w: Workshop) -> None:
    n = w.issue("Harness:Working")
    before = dict(w.forge.counts())
    w.do(fx.Label(n, add=("harness:working",), remove=("harness:deferred",)))
    assert w.forge.counts()["write"] == before["write"]


# ---------------------------------------------------------------- pulls


def test_an_open_pull_of_the_branch_is_adopted_and_brought_up_to_date(w: Workshop) -> None:
    w.branch("agent/1")
    theirs = w.forge.open_pull("agent/1", "main", "mine", "by hand").unwrap()
    outcome = w.do(fx.OpenPull("agent/1", "main", "Add it", "Refs #1", "pull-1"))
    assert outcome.value["number"] == theirs.number
    assert w.hub.pulls[theirs.number].body.startswith("Refs #1")
    assert len(w.hub.pulls) == 1


def test_a_pull_that_exists_but_is_not_listed_yet_is_waited_for(w: Workshop) -> None:
    w.branch("agent/1")
    w.forge.open_pull("agent/1", "main", "mine", "by hand")
    w.forge.lag = lambda name, args: 60.0
    effect = fx.OpenPull("agent/1", "main", "Add it", "Refs #1", "pull-1")
    outcome = w.do(effect)
    assert (outcome.status, outcome.detail) == ("deferred", "it exists, but is not listed yet")
    w.forge.lag = lambda name, args: 0.0
    assert w.do(effect).status == "done"
    assert len(w.hub.pulls) == 1


def test_a_closed_pull_is_not_written_to(w: Workshop) -> None:
    w.branch("agent/1")
    n = w.forge.open_pull("agent/1", "main", "x", "y").unwrap().number
    w.hub.person_closes(n)
    assert w.do(fx.EditPull(n, body="new")).value == {"number": n, "skipped": "it is closed"}
    assert w.hub.pulls[n].body == "y"


def test_a_merge_that_a_rule_forbids_is_asked_for_again(w: Workshop) -> None:
    sha = w.branch("agent/1")
    n = w.forge.open_pull("agent/1", "main", "x", "y").unwrap().number
    w.hub.required_reviews = 1
    effect = fx.MergePull(n, sha, "merge", "Release")
    assert w.do(effect).status == "deferred"
    w.hub.person_reviews("ada", n, "APPROVED")
    assert w.do(effect).status == "done"


def test_a_head_that_moved_is_not_merged(w: Workshop) -> None:
    sha = w.branch("agent/1")
    n = w.forge.open_pull("agent/1", "main", "x", "y").unwrap().number
    w.remote.write("refs/heads/agent/1", {"z": "1"}, "z")
    assert w.do(fx.MergePull(n, sha, "merge", "Release")).failure == Failure.CONFLICT


# ---------------------------------------------------------------- git


def test_a_branch_of_that_name_with_other_work_on_it_is_a_conflict(w: Workshop) -> None:
    w.branch("release/0.1.0")
    other = w.remote.write("refs/heads/main", {"m": "1"}, "m")
    w.repo.fetch()
    outcome = w.do(fx.CreateBranch("release/0.1.0", other))
    assert (outcome.status, outcome.failure) == ("failed", Failure.CONFLICT)
    # One that contains what was asked for is ours from before.
    assert w.do(fx.CreateBranch("release/0.1.0", w.main)).status == "done"


def test_a_branch_that_holds_nothing_of_its_own_goes_along(w: Workshop) -> None:
    """A director died between making it and opening its release, and the base moved on."""
    w.do(fx.CreateBranch("release/0.1.0", w.main))
    later = w.remote.write("refs/heads/main", {"m": "1"}, "m")
    w.repo.fetch()
    assert w.do(fx.CreateBranch("release/0.1.0", later)).value == {"sha": later}
    assert w.remote.refs["refs/heads/release/0.1.0"] == later


def test_what_somebody_pushed_since_is_left_alone(w: Workshop) -> None:
    sha = w.branch("agent/1")
    theirs = w.remote.write("refs/heads/agent/1", {"more": "1"}, "by hand")
    assert w.do(fx.DeleteBranch("agent/1", sha)).value == {"left": theirs}
    assert "refs/heads/agent/1" in w.remote.refs


def test_a_branch_that_moved_is_an_answer(w: Workshop) -> None:
    sha = w.branch("agent/1")
    w.remote.write("refs/heads/main", {"m": "1"}, "m")
    assert w.do(fx.Land("main", sha, w.main)).value == {"landed": False, "why": "moved"}


def test_what_is_in_already_has_landed(w: Workshop) -> None:
    sha = w.branch("agent/1")
    w.do(fx.Land("main", sha, w.main))
    w.remote.write("refs/heads/main", {"later": "1"}, "later")
    assert w.do(fx.Land("main", sha, w.main)).value["landed"] is True


def test_a_protected_branch_is_an_answer(w: Workshop) -> None:
    sha = w.branch("agent/1")
    w.remote.rules.append(lambda ref, old, new: "protected" if ref == "refs/heads/main" else None)
    assert w.do(fx.Land("main", sha, w.main)).value == {"landed": False, "why": "protected"}


def test_a_tag_is_never_moved(w: Workshop) -> None:
    w.do(fx.Tag("v0.1.0", w.main))
    other = w.branch("agent/1")
    outcome = w.do(fx.Tag("v0.1.0", other))
    assert (outcome.status, outcome.failure) == ("failed", Failure.CONFLICT)
    assert w.remote.refs["refs/tags/v0.1.0"] == w.main


def publish(w: Workshop, **files: str) -> fx.Publish:
    sha, bundle = w.bundle("12.1", w.main, **(files or {"new": "1"}))
    return fx.Publish("12.1", 12, sha, w.main, "agent/12", bundle)


def test_a_bundle_that_has_not_arrived_is_waited_for(w: Workshop) -> None:
    w.gateway.open("12.1", "token", 1)
    outcome = w.do(fx.Publish("12.1", 12, "a" * 40, w.main, "agent/12", "f" * 64))
    assert (outcome.status, outcome.failure) == ("deferred", Failure.INFRA_GATEWAY)


def test_what_the_policy_forbids_is_not_pushed(w: Workshop) -> None:
    seen: list[Imported] = []

    def screen(imported: Imported) -> Screened:
        seen.append(imported)
        return Screened("touches .github/workflows/ci.yml")

    world = _replaced(w, screen=screen)
    outcome = perform(publish(w), Sent(None), world)
    assert (outcome.status, outcome.failure) == ("failed", Failure.POLICY_VIOLATION)
    assert "refs/heads/agent/12" not in w.remote.refs
    assert [f.path for f in seen[0].files] == ["new"] and isinstance(seen[0].files[0], FileChange)


def test_what_the_policy_could_not_see_just_now_is_looked_at_again(w: Workshop) -> None:
    def blind(imported: Imported) -> Screened:
        raise Unseen(Err(Failure.TIMEOUT, "reading new took longer than allowed"))

    effect = publish(w)
    outcome = perform(effect, Sent(None), _replaced(w, screen=blind))
    assert (outcome.status, outcome.failure) == ("deferred", Failure.TIMEOUT)
    assert "refs/heads/agent/12" not in w.remote.refs
    assert w.do(effect).status == "done"


def _replaced(w: Workshop, **changed: Any) -> Any:
    from dataclasses import replace

    return replace(w.world, **changed)


def test_work_that_changes_nothing_is_not_published(w: Workshop) -> None:
    effect = fx.Publish("12.1", 12, w.main, w.main, "agent/12", w.bundle("12.1", w.main, x="1")[1])
    assert w.do(effect).failure == Failure.AGENT_NO_CHANGES


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("pre-receive hook declined", "deferred"),
        ("protected branch hook declined (remote: error: GH006: Protected branch update failed)", "deferred"),
        ("Cannot update this protected ref", "deferred"),
        ("pre-receive hook declined (remote: error: GH001: Large files detected)", "failed"),
        ("push declined due to repository rule violations (remote: error: GH013: Push cannot contain secrets)",
         "failed"),
        ("pre-receive hook declined (remote: File big.bin exceeds the limit)", "failed"),
    ],
)  # fmt: skip
def test_a_refusal_that_a_person_can_lift_is_waited_for(w: Workshop, said: str, expected: str) -> None:
    w.remote.rules.append(lambda ref, old, new: said if ref == "refs/heads/agent/12" else None)
    effect = publish(w)
    outcome = w.do(effect)
    assert (outcome.status, outcome.failure) == (expected, Failure.POLICY_VIOLATION)
    w.remote.rules.clear()
    assert w.do(effect).status == "done"


def test_the_next_attempt_replaces_what_we_published_but_never_a_persons_commits(w: Workshop) -> None:
    first = publish(w)
    assert w.do(first).status == "done"
    second = publish(w, new="2")
    assert w.do(second).status == "done"
    assert w.remote.refs["refs/heads/agent/12"] == second.sha
    theirs = w.remote.write("refs/heads/agent/12", {"byhand": "1"}, "by hand")
    third = publish(w, new="3")
    outcome = w.do(third)
    assert (outcome.status, outcome.failure) == ("failed", Failure.CONFLICT)
    assert w.remote.refs["refs/heads/agent/12"] == theirs


def test_what_may_have_been_pushed_is_ours_whatever_the_answer_was(w: Workshop) -> None:
    effect = publish(w)
    push = w.repo.push
    w.repo.push = lambda ref, sha, expect: (  # type: ignore[method-assign]
        push(ref, sha, expect) and Err(Failure.FORGE_DOWN, "hung up", maybe=True)
    )
    assert w.do(effect).status == "ambiguous"
    w.repo.push = push  # type: ignore[method-assign]
    assert w.do(publish(w, new="2")).status == "done"


# ---------------------------------------------------------------- jobs


@pytest.mark.parametrize(
    ("worked", "harvested", "expected"),
    [(True, False, True), (True, True, False), (False, False, False)],
)
def test_a_clone_that_could_not_be_harvested_is_set_aside(
    w: Workshop, worked: bool, harvested: bool, expected: bool
) -> None:
    for code in ("12.1", *(f"{n}.1" for n in range(20, 30))):
        clone = w.world.data / "attempts" / code / "clone"
        audit = w.world.data / "attempts" / code / "audit"
        clone.mkdir(parents=True)
        audit.mkdir()
        (clone / "half.txt").write_text(code)
        if worked:
            (audit / "journal.jsonl").touch()
        if harvested:
            (audit / "harvested").touch()
        outcome, again = w.do(fx.KeepWork(code, w.main)), w.do(fx.KeepWork(code, w.main))
        assert outcome.status == "done" and outcome.value.get("aside") == again.value.get("aside")
        assert bool(outcome.value.get("aside")) is expected and clone.exists() is not expected
        if expected:
            assert (w.world.data / "aside" / code / "half.txt").read_text() == code
    kept = sorted(p.name for p in (w.world.data / "aside").glob("*"))
    assert len(kept) == (5 if expected else 0)


@pytest.mark.parametrize("broken", ["saved.json is empty", "no bundle", "not now"])
def test_saved_work_that_cannot_be_had_now_keeps_its_clone(
    w: Workshop, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """The harvest ended well, so the clone would go: with a machine that crashed before its files were on the
    disk, or a mirror that is held just then, the work would go with it."""
    sha, _ = w.bundle("12.1", w.main, new="1")
    audit = w.world.data / "attempts" / "12.1" / "audit"
    (audit / "patches").mkdir(parents=True)
    (audit.parent / "clone").mkdir()
    (audit / "saved.json").write_text(
        "" if "empty" in broken else json.dumps({"sha": sha, "name": "harvest"})
    )
    bundle = audit / "patches" / "saved.bundle"
    if broken != "no bundle":
        bundle.touch()
        w.repo.register_bundle(bundle, sha)
    for name in ("journal.jsonl", "harvested"):
        (audit / name).touch()
    if broken == "not now":
        late = Err(Failure.TIMEOUT, "taking the bundle over took longer than allowed")
        monkeypatch.setattr(w.repo, "import_bundle", lambda *_: late)
    outcome = w.do(fx.KeepWork("12.1", w.main))
    assert outcome.status == "done" and outcome.value["kept"] == ""
    assert Path(outcome.value["aside"]).is_dir() and not (audit.parent / "clone").exists()


def test_a_verdict_is_not_given_while_its_file_cannot_be_opened(
    w: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    w.do(fx.StartGate("gate-1", w.main, ("test",), "img"))
    path = w.world.data / "gates" / "gate-1" / "out" / "result.json"
    path.write_text("{}")
    w.runtime.finish("gate-1", 137)
    with cannot_open(path, monkeypatch):
        outcome = w.do(fx.EndGate("gate-1"))
    assert (outcome.status, outcome.failure) == ("deferred", Failure.INFRA_ENGINE)
    assert w.do(fx.EndGate("gate-1")).status == "done" and w.store.get("gate/gate-1")["verdict"] == "red"


def test_a_verdict_outlives_its_container(w: Workshop) -> None:
    gate = fx.StartGate("gate-1", w.main, ("test",), "img")
    w.do(gate)
    w.runtime.say("gate-1", b"3 failed\n")
    w.runtime.finish("gate-1", 1)
    w.do(fx.EndGate("gate-1"))
    assert w.runtime.ours().unwrap() == ()
    assert w.store.get("gate/gate-1") == {"verdict": "red", "exit": 1, "log_tail": "3 failed\n"}
    assert w.do(gate).value == {"fact": True}
    assert w.runtime.starts == ["gate-1"]


@pytest.mark.parametrize("passes", [True, False])
def test_a_log_that_cannot_be_read_just_now_does_not_go_with_its_container(w: Workshop, passes: bool) -> None:
    """The log is what the agent is told of a red gate, and the evidence of a worker; with the container it is
    gone for good. An engine that never gives it does not hold up what follows."""
    for name, code in (("gate-1", 1), ("h-1", 0)):
        w.do(fx.StartGate(name, w.main, ("test",), "img"))
        w.runtime.say(name, b"3 failed\n")
        w.runtime.finish(name, code)
    left = [2 if passes else 100]

    def fault(op: str, name: str) -> str:
        left[0] -= op == "log"
        return "before" if op == "log" and left[0] >= 0 else ""

    w.runtime.fault = fault
    told = w.drive(fx.EndGate("gate-1"))
    assert [o.status for o in told[:-1]] == ["deferred"] * (2 if passes else 5)
    assert w.store.get("gate/gate-1")["log_tail"] == ("3 failed\n" if passes else "")
    left[0] = 2 if passes else 100
    w.drive(fx.SealBundle("12.1", {"machine": "acme/widget/attempt/12.1"}, ("h-1", "never-there")))
    assert w.shelf.sealed["12.1"][2] == ({"h-1": b"3 failed\n"} if passes else {})


def test_a_gate_that_left_no_exit_status_is_no_fact(w: Workshop) -> None:
    w.do(fx.StartGate("gate-1", w.main, ("test",), "img"))
    w.runtime.lose("gate-1")
    w.do(fx.EndGate("gate-1"))
    assert w.store.get("gate/gate-1") is None


def test_what_bears_our_name_and_is_not_ours_is_not_touched(w: Workshop) -> None:
    w.runtime.take_name("h-harvest")
    outcome = w.do(fx.StartHarvest("h-harvest", "12.1", "img"))
    assert (outcome.status, outcome.failure) == ("deferred", Failure.INFRA_ENGINE)
    assert "not ours" in outcome.detail
    assert "h-harvest" in w.runtime.foreign


def test_an_engine_that_hangs_is_waited_for(w: Workshop) -> None:
    w.runtime.hang()
    assert w.do(fx.StartHarvest("h", "12.1", "img")).status == "ambiguous"
    assert w.do(fx.StartGate("gate-1", w.main, ("test",), "img")).status == "deferred"


def test_an_image_that_is_not_there_is_a_failure_with_a_name(w: Workshop) -> None:
    w.runtime.images = {}
    outcome = w.do(fx.StartHarvest("h", "12.1", "img"))
    assert (outcome.status, outcome.failure) == ("failed", Failure.IMAGE_UNAVAILABLE)


def test_a_brief_holds_the_policy_and_is_written_whole(w: Workshop) -> None:
    import json

    w.do(fx.WriteBrief("12.1", {"issue": 12, "title": "é"}))
    brief = json.loads((w.world.data / "attempts/12.1/in/brief.json").read_text())
    assert (brief["issue"], brief["title"], brief["policy"]["repo"]) == (12, "é", "acme/widget")
    assert not list((w.world.data / "attempts/12.1/in").glob("*.new"))


def test_nobody_performs_what_is_no_effect(w: Workshop) -> None:
    with pytest.raises(TypeError, match="nobody performs Effect"):
        perform(fx.Effect(), Sent(None), w.world)


def test_every_effect_has_a_key_and_a_pool() -> None:
    from harness.loop import PORTS

    assert {e.port for e in fx.EFFECTS} <= set(PORTS)
    lagging = {e.__name__ for e in fx.EFFECTS if e.lags}
    assert lagging == {"Comment", "OpenPull", "PublishRelease"}


# ---------------------------------------------------------------- leaving for another image


@pytest.mark.parametrize(("runs_in", "codes"), [("img1", [75]), ("img2", [])])
def test_a_worker_leaves_once_for_an_image(w: Workshop, runs_in: str, codes: list[int]) -> None:
    left: list[int] = []
    world = replace(w.world, brief={"image": runs_in}, leave=left.append)
    assert perform(fx.Exit(75, "img2"), Sent(None), world).status == "done"
    assert left == codes


def test_a_pull_of_a_branch_that_a_person_deleted_is_not_waited_for(w: Workshop) -> None:
    """Not shown yet and gone for good look the same at the forge; the remote's refs tell them apart."""
    effect = fx.OpenPull("agent/none", "main", "Add it", "Refs #1", "pull-1")
    outcome = w.do(effect)
    assert (outcome.status, outcome.failure) == ("failed", Failure.CONFLICT)
    assert outcome.detail == "branch agent/none is not there any more"
