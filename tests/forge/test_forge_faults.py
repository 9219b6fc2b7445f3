"""Faults: each does what its name says, in GitHub's words, as often as asked, and the record shows it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import github
import httpx
import pytest
from seeded_forge import REPO, World, start

from harness.forge import ForgeError, Settings
from harness.forge.faults import FaultPlan, load

ISSUES = f"/repos/{REPO}/issues"
COMMENT = r"POST .*/issues/1/comments$"


def comment(world: World, body: str = "b") -> int:
    return world.repo("POST", "/issues/1/comments", {"body": body}).status_code


def bodies(world: World) -> list[str]:
    return [item["body"] for item in world.repo("GET", "/issues/1/comments").json()]


def test_before_spares_the_work_and_after_has_done_it(world: World) -> None:
    world.forge.set_faults(
        {"match": COMMENT, "kind": "status-before", "status": 504},
        {"match": COMMENT, "kind": "status-after", "status": 502},
    )
    assert [comment(world, name) for name in ("one", "two", "three")] == [504, 502, 201]
    assert bodies(world) == ["Seen", "two", "three"]


def test_a_dropped_connection_leaves_it_open_whether_it_happened(world: World) -> None:
    world.forge.set_faults(
        {"match": COMMENT, "kind": "drop-before"},
        {"match": COMMENT, "kind": "drop-after"},
    )
    for name in ("one", "two"):
        with pytest.raises(httpx.TransportError):
            comment(world, name)
    assert bodies(world) == ["Seen", "two"]
    assert world.forge.report()["dropped"] == 2


def test_a_slow_answer_comes_after_the_work(world: World) -> None:
    world.forge.set_faults({"match": COMMENT, "kind": "slow", "seconds": 1.0})
    with pytest.raises(httpx.ReadTimeout):
        headers = {"Authorization": "Bearer t-maker"}
        httpx.post(
            f"{world.forge.url}{ISSUES}/1/comments", json={"body": "one"}, headers=headers, timeout=0.3
        )
    assert bodies(world) == ["Seen", "one"]


def test_skip_times_and_rate_are_the_same_again(world: World) -> None:
    rule = {"match": "GET /user$", "kind": "status-before", "status": 503}
    world.forge.set_faults(rule | {"skip": 2, "times": 2})
    assert [world.api("GET", "/user").status_code for _ in range(6)] == [200, 200, 503, 503, 200, 200]
    runs = []
    for _ in range(2):
        world.forge.set_faults(rule | {"times": 0, "rate": 0.3, "seed": 7})
        runs.append([world.api("GET", "/user").status_code for _ in range(40)])
    assert runs[0] == runs[1]
    assert 5 < runs[0].count(503) < 20


def test_the_primary_limit_ends_with_its_reset(world: World) -> None:
    world.forge.set_faults({"match": COMMENT, "kind": "primary-limit", "reset": 1465})
    refused = world.repo("POST", "/issues/1/comments", {"body": "b"})
    assert (refused.status_code, refused.headers["x-ratelimit-remaining"]) == (403, "0")
    assert int(refused.headers["x-ratelimit-reset"]) - world.forge.state.now() == pytest.approx(1465, abs=2)
    with pytest.raises(github.RateLimitExceededException):
        world.github().get_repo(REPO)
    world.forge.advance(1466)
    assert comment(world) == 201
    report = world.forge.report()
    assert (report["violations"]["in_penalty"], report["broken"][0]["path"]) == (1, f"/repos/{REPO}")


@pytest.mark.parametrize("status", [403, 429])
@pytest.mark.parametrize("retry_after", [None, 7])
def test_the_secondary_limit_speaks_as_github_does(
    world: World, status: int, retry_after: int | None
) -> None:
    rule: dict[str, Any] = {"match": COMMENT, "kind": "secondary-limit", "status": status, "times": 3}
    world.forge.set_faults(rule if retry_after is None else rule | {"retry_after": retry_after})
    refused = world.repo("POST", "/issues/1/comments", {"body": "b"})
    assert refused.status_code == status
    assert refused.json()["message"].startswith(
        "You have exceeded a secondary rate limit. Please wait a few minutes"
    )
    assert refused.headers.get("retry-after") == (None if retry_after is None else "7")
    assert int(refused.headers["x-ratelimit-remaining"]) > 4000
    wait = retry_after or 60
    for _ in range(2):
        world.forge.advance(wait + 1)
        assert comment(world) == status
    world.forge.advance(wait - 2)
    assert world.forge.report()["in_penalty"] == 0
    assert comment(world) == 201
    assert world.forge.report()["in_penalty"] == 1
    assert bodies(world) == ["Seen", "b"]


def test_a_limit_may_be_enforced_while_it_lasts(world: World) -> None:
    world.forge.set_faults({"match": COMMENT, "kind": "secondary-limit", "retry_after": 30, "enforce": True})
    assert [comment(world), comment(world), comment(world)] == [403, 403, 403]
    assert world.repo("GET", "", token="t-second").status_code == 200
    world.forge.advance(31)
    assert comment(world) == 201


def test_a_stale_list_answers_what_it_did_before(world: World) -> None:
    world.forge.set_faults({"match": r"GET .*/issues$", "kind": "stale", "n": 2})
    first = world.repo("GET", "/issues").json()
    world.repo("POST", "/issues", {"title": "New"})
    assert [len(world.repo("GET", "/issues").json()) for _ in range(4)] == [2, 2, 3, 3]
    assert len(first) == 2
    world.repo("POST", "/issues", {"title": "Newer"})
    assert len(world.repo("GET", "/issues").json()) == 4


def test_what_was_just_created_is_not_found_yet(world: World) -> None:
    world.forge.set_faults(
        {"match": r"POST .*/git/refs$", "kind": "not-found-after-create", "n": 2},
        {"match": r"POST .*/pulls$", "kind": "not-found-after-create", "n": 1},
    )
    git = world.clone()
    sha = git.write("a.txt", "a\n")
    git("push", "-q", "origin", "HEAD:refs/heads/first")
    world.repo("POST", "/git/refs", {"ref": "refs/heads/feature", "sha": sha})
    seen = [
        world.repo("GET", "/git/ref/heads/feature").status_code,
        world.repo("GET", "/branches/feature").status_code,
        world.repo("GET", "/git/ref/heads/feature").status_code,
    ]
    assert seen == [404, 404, 200]
    pull = world.repo("POST", "/pulls", {"title": "T", "head": "feature", "base": "main"}).json()
    assert [world.repo("GET", f"/pulls/{pull['number']}").status_code for _ in range(2)] == [404, 200]


def test_base_modified_and_null_mergeable_pass_by_themselves(world: World) -> None:
    pull = world.pull(world.clone(), "feature", {"a.txt": "a\n"})
    place = f"/pulls/{pull['number']}"
    world.forge.set_faults(
        {"match": "/merge$", "kind": "base-modified", "n": 2},
        {"match": "/pulls/", "kind": "mergeable-null", "n": 2},
    )
    assert [world.repo("GET", place).json()["mergeable"] for _ in range(3)] == [None, None, True]
    answers = [world.repo("PUT", place + "/merge", {}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [405, 405, 200]
    assert answers[0].json()["message"] == "Base branch was modified. Review and try the merge again."


def test_a_push_is_rejected_with_a_reason(world: World) -> None:
    reason = (
        "error: GH001: Large files detected. File big.bin is 120.00 MB; this exceeds the limit of 100.00 MB"
    )
    world.forge.set_faults({"match": "git-receive-pack", "kind": "push-reject", "reason": reason})
    git = world.clone()
    git.branch("feature")
    git.write("a.txt", "a\n")
    before = world.forge.dump()
    refused = git("push", "origin", "feature", ok=False)
    assert f"remote: {reason}" in refused.stderr
    assert "pre-receive hook declined" in refused.stderr
    assert world.forge.dump() == before
    git("push", "-q", "origin", "feature")


def test_git_itself_may_fail_before_and_after(world: World) -> None:
    git = world.clone()
    git.branch("feature")
    git.write("a.txt", "a\n")
    for kind, landed in (
        ("drop-before", False),
        ("status-before", False),
        ("drop-after", True),
        ("status-after", True),
    ):
        # without end: curl sends again by itself when a connection that it kept is closed
        world.forge.set_faults({"match": "POST .*git-receive-pack", "kind": kind, "status": 502, "times": 0})
        name = kind.replace("-", "")
        assert git("push", "origin", f"HEAD:refs/heads/{name}", ok=False).returncode != 0
        assert (f"refs/heads/{name}" in world.forge.dump()["repos"][REPO]["refs"]) is landed
    world.forge.set_faults({"match": "POST .*git-receive-pack", "kind": "slow", "seconds": 0.5})
    begun = time.monotonic()
    git("push", "-q", "origin", "HEAD:refs/heads/slow")
    assert time.monotonic() - begun > 0.5


def test_a_push_whose_answer_is_lost_still_moves_its_pull_request(world: World) -> None:
    git = world.clone()
    pull = world.pull(git, "feature", {"a.txt": "a\n"})
    sha = git.write("b.txt", "b\n")
    world.forge.set_faults({"match": "POST .*git-receive-pack", "kind": "drop-after"})
    git("push", "origin", "feature", ok=False)
    assert world.repo("GET", f"/pulls/{pull['number']}").json()["head"]["sha"] == sha


def test_the_write_gap_is_judged_only_when_it_is_on(tmp_path: Path) -> None:
    world = start(tmp_path, Settings(min_write_gap_s=1.0))
    comment(world)
    comment(world)
    world.forge.advance(2)
    comment(world)
    world.repo("POST", "/issues/1/comments", {"body": "b"}, token="t-second")
    report = world.forge.report()
    assert (report["writes"], report["violations"]) == (4, {"in_penalty": 0, "too_soon": 1})
    world.forge.close()


def test_the_plan_is_set_and_the_report_read_over_http(world: World) -> None:
    rule = {"match": COMMENT, "kind": "status-before", "status": 500}
    assert world.api("PUT", "/_forge/faults", {"rules": [rule]}, token="t-maker").status_code == 403
    shown = world.api("PUT", "/_forge/faults", {"rules": [rule]}, token="t-root").json()["rules"]
    assert (shown[0]["status"], shown[0]["fired"]) == (500, 0)
    assert comment(world) == 500
    world.api("POST", "/_forge/faults", {"rules": [rule | {"status": 501}]}, token="t-root")
    assert [comment(world), comment(world)] == [501, 201]
    assert world.api("DELETE", "/_forge/faults", token="t-root").json()["rules"] == []
    report = world.api("GET", "/_forge/report", token="t-root").json()
    assert (report["total"], report["writes"], report["faults"]) == (3, 3, 2)
    bad = world.api("PUT", "/_forge/faults", {"rules": [{"match": "x", "kind": "nonsense"}]}, token="t-root")
    assert (bad.status_code, "fault kind 'nonsense' is unknown" in bad.json()["message"]) == (422, True)
    world.api("POST", "/_forge/clock", {"advance_s": 100}, token="t-root")
    world.api("POST", "/_forge/delete-issue", {"repo": REPO, "number": 1}, token="t-root")
    assert world.repo("GET", "/issues/1").status_code == 410
    world.api("POST", "/_forge/revoke-token", {"token": "t-maker"}, token="t-root")
    assert world.repo("GET", "").status_code == 401
    assert world.api("POST", "/_forge/delete-issue", {"repo": "no/where"}, token="t-root").status_code == 422


def test_plans_come_from_files(tmp_path: Path) -> None:
    rules = [
        {"match": "x", "kind": "slow", "seconds": 1},
        {"match": "y", "kind": "secondary-limit", "retry-after": 3},
    ]
    plain, table = tmp_path / "plan.json", tmp_path / "plan.toml"
    plain.write_text(json.dumps({"rules": rules}))
    table.write_text(
        '[[rules]]\nmatch = "x"\nkind = "slow"\nseconds = 1\n'
        '[[rules]]\nmatch = "y"\nkind = "secondary-limit"\nretry-after = 3\n'
    )
    assert load(plain) == load(table)
    assert FaultPlan(load(plain)).show() == FaultPlan(rules).show()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not readable"),
        ('{"rules": 1}', "expected a list of rules"),
        ('[{"match": "("}]', "rule 1: fault rule needs match and kind"),
        ('[{"match": "(", "kind": "slow"}]', "rule 1: fault match '(' is not a regular expression"),
        ('[{"match": "a", "kind": "slow", "colour": 1}]', "rule 1: fault rule has unknown keys colour"),
        ('[{"match": "a", "kind": "slow", "rate": 2}]', "rule 1: fault rate 2 is not between 0 and 1"),
        ('[{"match": "a", "kind": "slow", "times": "x"}]', "rule 1: fault key times must be a number"),
    ],
)
def test_a_bad_plan_says_where(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(ForgeError, match=r"plan\.json") as caught:
        load(path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
