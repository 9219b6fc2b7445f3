"""Pull requests over REST: what may be opened, how it merges, what stands in the way."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from seeded_forge import REPO, World, start

from harness.forge import Settings


def out(world: World, *args: str) -> str:
    """What git says in the forge's own repository."""
    path = world.forge.state.repo_path("acme", "widgets")
    done = subprocess.run(
        ["git", f"--git-dir={path}", *args], capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout.strip()


def merge(world: World, number: int, token: str = "t-maker", **body: Any) -> tuple[int, dict[str, Any]]:
    answer = world.repo("PUT", f"/pulls/{number}/merge", body, token=token)
    return answer.status_code, answer.json()


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"head": "same", "base": "main"}, {"message": "No commits between main and same"}),
        ({"head": "nothing", "base": "main"}, {"field": "head", "code": "invalid"}),
        ({"head": "stranger:feature", "base": "main"}, {"field": "head", "code": "invalid"}),
        ({"head": "feature", "base": "nothing"}, {"field": "base", "code": "invalid"}),
        ({"head": "feature"}, {"field": "base", "code": "missing_field"}),
        (
            {"head": "acme:feature", "base": "main"},
            {"message": "A pull request already exists for acme:feature."},
        ),
        ({"head": "main", "base": "main"}, {"message": "No commits between main and main"}),
    ],
)
def test_pull_requests_that_are_refused(world: World, body: dict[str, str], error: dict[str, str]) -> None:
    git = world.clone()
    world.pull(git, "feature", {"a.txt": "a\n"})
    git("push", "-q", "origin", "origin/main:refs/heads/same")
    before = world.forge.dump()
    answer = world.repo("POST", "/pulls", {"title": "T", **body})
    assert (answer.status_code, answer.json()["message"]) == (422, "Validation Failed")
    assert error.items() <= answer.json()["errors"][0].items()
    assert world.forge.dump() == before


@pytest.mark.parametrize("method", ["merge", "squash", "rebase"])
def test_a_merge_keeps_both_sides(world: World, method: str) -> None:
    git = world.clone()
    pull = world.pull(git, "feature", {"a.txt": "a\n", "b.txt": "b\n"}, body="Fixes #1")
    git.branch("main")
    base = git.write("c.txt", "c\n")
    git("push", "-q", "origin", "main")
    status, body = merge(world, pull["number"], merge_method=method)
    assert (status, body["merged"], body["message"]) == (200, True, "Pull Request successfully merged")
    assert out(world, "rev-parse", "main") == body["sha"]
    names = out(world, "ls-tree", "--name-only", "main").split()
    assert {"a.txt", "b.txt", "c.txt", "README.md"} <= set(names)
    subjects = out(world, "log", "--format=%s", f"{base}..main").splitlines()
    parents = out(world, "log", "-1", "--format=%P", "main").split()
    if method == "merge":
        assert parents == [base, pull["head"]["sha"]]
        assert subjects[0] == f"Merge pull request #{pull['number']} from acme/feature"
    elif method == "squash":
        assert (parents, subjects) == ([base], [f"Add feature (#{pull['number']})"])
    else:
        assert subjects == ["Change b.txt", "Change a.txt"]
        assert out(world, "log", "--format=%P", "-2", "main").splitlines()[1] == base
    got = world.repo("GET", f"/pulls/{pull['number']}").json()
    assert (got["merged"], got["merge_commit_sha"], got["merged_by"]["login"]) == (True, body["sha"], "maker")
    assert world.repo("GET", "/issues/1").json()["state"] == "closed"
    assert merge(world, pull["number"])[0] == 405


def test_two_pull_requests_of_one_base_both_land(world: World) -> None:
    git = world.clone()
    pulls = [world.pull(git, f"f{index}", {f"{index}.txt": "x\n"}) for index in range(3)]
    for pull, method in zip(pulls, ("squash", "merge", "rebase"), strict=True):
        assert merge(world, pull["number"], merge_method=method)[0] == 200
    assert {"0.txt", "1.txt", "2.txt"} <= set(out(world, "ls-tree", "--name-only", "main").split())


def test_a_conflict_is_seen_and_refused(world: World) -> None:
    git = world.clone()
    pull = world.pull(git, "feature", {"README.md": "# Mine\n"})
    git.branch("main")
    git.write("README.md", "# Theirs\n")
    git("push", "-q", "origin", "main")
    got = world.repo("GET", f"/pulls/{pull['number']}").json()
    assert (got["mergeable"], got["mergeable_state"]) == (False, "dirty")
    before = world.forge.dump()
    for method in ("merge", "squash", "rebase"):
        assert merge(world, pull["number"], merge_method=method)[0] == 405
    assert world.forge.dump() == before


def test_a_stale_head_is_refused(world: World) -> None:
    git = world.clone()
    pull = world.pull(git, "feature", {"a.txt": "a\n"})
    git.write("b.txt", "b\n")
    git("push", "-q", "origin", "feature")
    status, body = merge(world, pull["number"], sha=pull["head"]["sha"])
    assert (status, body["message"]) == (409, "Head branch was modified. Review and try the merge again.")


@pytest.mark.parametrize(
    ("setting", "method", "message"),
    [
        ("allow_merge_commit", "merge", "Merge commits are not allowed on this repository."),
        ("allow_squash_merge", "squash", "Squash merges are not allowed on this repository."),
        ("allow_rebase_merge", "rebase", "Rebase merges are not allowed on this repository."),
    ],
)
def test_a_method_that_the_repository_forbids(world: World, setting: str, method: str, message: str) -> None:
    pull = world.pull(world.clone(), "feature", {"a.txt": "a\n"})
    assert world.repo("PATCH", "", {setting: False}, token="t-owner").json()[setting] is False
    status, body = merge(world, pull["number"], merge_method=method)
    assert (status, body["message"]) == (405, message)


def test_mergeable_is_unknown_for_a_while(tmp_path: Path) -> None:
    world = start(tmp_path, Settings(mergeable_delay_s=5))
    pull = world.pull(world.clone(), "feature", {"a.txt": "a\n"})
    assert (pull["mergeable"], pull["mergeable_state"]) == (None, "unknown")
    world.forge.advance(6)
    assert world.repo("GET", f"/pulls/{pull['number']}").json()["mergeable"] is True
    world.forge.close()


def test_reviews_and_checks_that_protection_asks_for(world: World) -> None:
    git = world.clone()
    pull = world.pull(git, "feature", {"a.txt": "a\n"})
    number = pull["number"]
    rule = {
        "required_status_checks": {"strict": True, "contexts": ["ci"]},
        "enforce_admins": False,
        "required_pull_request_reviews": {"required_approving_review_count": 1},
        "restrictions": None,
    }
    world.repo("PUT", "/branches/main/protection", rule, token="t-owner")
    said = "At least 1 approving review is required by reviewers with write access."
    assert merge(world, number)[1]["message"] == said
    assert world.repo("GET", f"/pulls/{number}").json()["mergeable_state"] == "blocked"
    review = {"event": "APPROVE"}
    assert world.repo("POST", f"/pulls/{number}/reviews", review, token="t-maker").status_code == 422
    world.repo("POST", f"/pulls/{number}/reviews", review, token="t-reader")
    assert merge(world, number)[1]["message"] == said
    world.repo("POST", f"/pulls/{number}/reviews", review, token="t-second")
    assert merge(world, number)[1]["message"] == 'Required status check "ci" is expected.'
    status = {"state": "failure", "context": "ci"}
    world.repo("POST", f"/statuses/{pull['head']['sha']}", status)
    assert merge(world, number)[1]["message"] == 'Required status check "ci" is failing.'
    world.repo("POST", f"/statuses/{pull['head']['sha']}", status | {"state": "success"})
    git.branch("main")
    git.write("c.txt", "c\n")
    assert git("push", "origin", "main", ok=False).returncode != 0
    git("push", "-q", world.forge.clone_url(REPO, "t-owner"), "main")
    assert world.repo("GET", f"/pulls/{number}").json()["mergeable_state"] == "behind"
    assert world.repo("PUT", f"/pulls/{number}/update-branch", {}).status_code == 202
    head = world.repo("GET", f"/pulls/{number}").json()["head"]["sha"]
    assert merge(world, number)[0] == 405
    world.repo(
        "POST", "/check-runs", {"name": "ci", "head_sha": head, "conclusion": "success"}, token="t-app"
    )
    assert merge(world, number)[0] == 200


def test_an_admin_passes_protection_unless_it_is_enforced(world: World) -> None:
    pull = world.pull(world.clone(), "feature", {"a.txt": "a\n"})
    rule: dict[str, Any] = {
        "required_status_checks": None,
        "enforce_admins": True,
        "required_pull_request_reviews": {},
        "restrictions": None,
    }
    world.repo("PUT", "/branches/main/protection", rule, token="t-owner")
    assert merge(world, pull["number"], token="t-owner")[0] == 405
    world.repo("PUT", "/branches/main/protection", rule | {"enforce_admins": False}, token="t-owner")
    assert merge(world, pull["number"], token="t-owner")[0] == 200


def test_a_draft_is_not_merged(world: World) -> None:
    pull = world.pull(world.clone(), "feature", {"a.txt": "a\n"}, draft=True)
    assert (pull["draft"], pull["mergeable_state"]) == (True, "draft")
    assert merge(world, pull["number"])[1]["message"] == "Pull Request is still a draft"


def test_reviewers_comments_and_lists(world: World) -> None:
    pull = world.pull(world.clone(), "feature", {"src/new.py": "A = 1\nB = 2\n"})
    place = f"/pulls/{pull['number']}"
    got = world.repo("POST", place + "/requested_reviewers", {"reviewers": ["second"]})
    assert [person["login"] for person in got.json()["requested_reviewers"]] == ["second"]
    refused = world.repo("POST", place + "/requested_reviewers", {"reviewers": ["maker"]})
    assert refused.json()["message"] == "Review cannot be requested from pull request author."
    line = {"body": "why?", "path": "src/new.py", "line": 2, "commit_id": pull["head"]["sha"]}
    comment = world.repo("POST", place + "/comments", line, token="t-second").json()
    assert comment["diff_hunk"].startswith("@@ -0,0 +1,2 @@")
    reply = world.repo("POST", place + "/comments", {"body": "so", "in_reply_to": comment["id"]}).json()
    assert reply["in_reply_to_id"] == comment["id"]
    assert len(world.repo("GET", place + "/comments").json()) == 2
    review = {"event": "REQUEST_CHANGES", "body": "no"}
    assert (
        world.repo("POST", place + "/reviews", review, token="t-second").json()["state"]
        == "CHANGES_REQUESTED"
    )
    assert world.repo("GET", place).json()["requested_reviewers"] == []
    files = world.repo("GET", place + "/files").json()
    assert [(item["filename"], item["status"], item["additions"]) for item in files] == [
        ("src/new.py", "added", 2)
    ]
    assert files[0]["patch"] == "@@ -0,0 +1,2 @@\n+A = 1\n+B = 2"
    assert [item["commit"]["message"] for item in world.repo("GET", place + "/commits").json()] == [
        "Change src/new.py"
    ]
    for query, count in (
        ("head=acme:feature", 1),
        ("head=other:feature", 0),
        ("base=main", 1),
        ("state=closed", 0),
    ):
        assert len(world.repo("GET", f"/pulls?{query}").json()) == count


def test_renames_deletions_and_binaries_in_a_diff(world: World) -> None:
    git = world.clone()
    git.branch("feature")
    git("mv", "src/app.py", "src/core.py")
    git("rm", "-q", "run.sh")
    (git.path / "logo.bin").write_bytes(bytes(range(256)))
    (git.path / "ünï code.txt").write_text("x\n")
    git("add", "-A")
    git("commit", "-qm", "Many")
    git("push", "-q", "origin", "feature")
    pull = world.repo("POST", "/pulls", {"title": "T", "head": "feature", "base": "main"}).json()
    files = {item["filename"]: item for item in world.repo("GET", f"/pulls/{pull['number']}/files").json()}
    assert {name: item["status"] for name, item in files.items()} == {
        "logo.bin": "added",
        "run.sh": "removed",
        "src/core.py": "renamed",
        "ünï code.txt": "added",
    }
    assert files["src/core.py"]["previous_filename"] == "src/app.py"
    assert "patch" not in files["logo.bin"]


def test_statuses_checks_and_releases(world: World) -> None:
    sha = out(world, "rev-parse", "main")
    for state, context in (("pending", "a"), ("success", "a"), ("success", "b")):
        assert world.repo("POST", f"/statuses/{sha}", {"state": state, "context": context}).status_code == 201
    got = world.repo("GET", "/commits/main/status").json()
    assert (got["state"], got["total_count"], got["sha"]) == ("success", 2, sha)
    assert world.repo("POST", f"/statuses/{'0' * 40}", {"state": "success"}).status_code == 422
    refused = world.repo("POST", "/check-runs", {"name": "c", "head_sha": sha})
    assert (refused.status_code, refused.json()["message"]) == (
        403,
        "You must authenticate via a GitHub App.",
    )
    made = world.repo("POST", "/releases", {"tag_name": "v1", "target_commitish": sha, "body": "b"})
    assert made.status_code == 201
    assert out(world, "rev-parse", "refs/tags/v1") == sha
    twice = world.repo("POST", "/releases", {"tag_name": "v1"})
    assert twice.json()["errors"] == [{"resource": "Release", "code": "already_exists", "field": "tag_name"}]
    assert (
        world.repo("POST", "/releases", {"tag_name": "v2", "target_commitish": "nothing"}).status_code == 422
    )
    world.repo("POST", "/releases", {"tag_name": "v2-rc", "prerelease": True})
    assert world.repo("GET", "/releases/latest").json()["tag_name"] == "v1"
    assert world.repo("GET", "/releases/tags/v3").status_code == 404


def test_refs_over_rest(world: World) -> None:
    sha = out(world, "rev-parse", "main")
    made = world.repo("POST", "/git/refs", {"ref": "refs/heads/agent/1", "sha": sha})
    assert made.status_code == 201
    again = world.repo("POST", "/git/refs", {"ref": "refs/heads/agent/1", "sha": sha})
    assert (again.status_code, again.json()["message"]) == (422, "Reference already exists")
    assert world.repo("GET", "/git/ref/heads/agent/1").json()["object"]["sha"] == sha
    assert world.repo("GET", "/branches/agent%2F1").json()["commit"]["sha"] == sha
    assert world.repo("GET", "/branches/agent/1").json()["name"] == "agent/1"
    git = world.clone()
    new = git.write("a.txt", "a\n")
    git("push", "-q", "origin", "HEAD:refs/heads/ahead")
    assert world.repo("PATCH", "/git/refs/heads/agent/1", {"sha": new}).status_code == 200
    back = world.repo("PATCH", "/git/refs/heads/agent/1", {"sha": sha})
    assert (back.status_code, back.json()["message"]) == (422, "Update is not a fast forward")
    assert world.repo("PATCH", "/git/refs/heads/agent/1", {"sha": sha, "force": True}).status_code == 200
    assert world.repo("DELETE", "/git/refs/heads/agent/1").status_code == 204
    assert world.repo("DELETE", "/git/refs/heads/agent/1").json()["message"] == "Reference does not exist"
    for bad in ("heads/x", "refs/heads/a..b", "refs/heads/-x", "refs/heads/a b", "refs/heads/x.lock"):
        assert world.repo("POST", "/git/refs", {"ref": bad, "sha": sha}).status_code == 422
    got = world.repo("GET", "/compare/main...ahead").json()
    assert (got["status"], got["ahead_by"], [item["filename"] for item in got["files"]]) == (
        "ahead",
        1,
        ["a.txt"],
    )
    assert world.repo("GET", "/compare/main...--output=x").status_code == 404
    assert world.repo("GET", "/commits/--all").status_code == 422
