"""Git over HTTP with a real git: who may push, what follows a push, what is refused."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from seeded_forge import REPO, World


def pull_of(world: World, number: int) -> dict[str, Any]:
    answer: dict[str, Any] = world.repo("GET", f"/pulls/{number}").json()
    return answer


def state_of(world: World, number: int) -> str:
    return str(world.repo("GET", f"/issues/{number}").json()["state"])


def test_anonymous_may_read_but_not_push(world: World) -> None:
    git = world.clone(token=None)
    git.branch("feature")
    git.write("a.txt", "a\n")
    refused = git("push", "origin", "feature", ok=False)
    assert refused.returncode != 0
    assert "could not read Username" in refused.stderr


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ("t-reader", "Write access to acme/widgets.git not granted to reader"),
        ("t-stranger", "Write access to acme/widgets.git not granted to stranger"),
        ("wrong", "Authentication failed"),
    ],
)
def test_a_push_needs_the_role_write(world: World, token: str, said: str) -> None:
    git = world.clone()
    before = world.forge.dump()
    refused = git("push", world.forge.clone_url(REPO, token), "HEAD:refs/heads/x", ok=False)
    assert refused.returncode != 0
    assert said in refused.stderr
    assert world.forge.dump() == before


def test_every_way_to_send_a_token_works(world: World) -> None:
    git = world.clone()
    host = world.forge.url.removeprefix("http://")
    for user in ("x-access-token:t-maker", "t-maker:x-oauth-basic", "anything:t-maker"):
        git("ls-remote", f"http://{user}@{host}/{REPO}.git")
        git("push", "-q", f"http://{user}@{host}/{REPO}.git", f"HEAD:refs/heads/{user[:4]}x")
    git(
        "-c",
        "http.extraHeader=Authorization: Bearer t-maker",
        "push",
        "-q",
        f"http://{host}/{REPO}",
        "HEAD:refs/heads/b",
    )


def test_a_private_repository_is_not_found_without_access(world: World) -> None:
    world.repo("PATCH", "", {"private": True}, token="t-owner")
    git = world.clone()
    assert "could not read Username" in git("ls-remote", world.forge.clone_url(REPO), ok=False).stderr
    assert "not found" in git("ls-remote", world.forge.clone_url(REPO, "t-stranger"), ok=False).stderr


def test_large_pushes_and_shallow_clones(world: World, tmp_path: Path) -> None:
    git = world.clone()
    git.branch("big")
    (git.path / "big.bin").write_bytes(os.urandom(8_000_000))
    git("add", "-A")
    git("commit", "-qm", "Big")
    git("push", "-q", "origin", "big")
    shallow = tmp_path / "shallow"
    command = ["git", "clone", "-q", "--depth", "1", "-b", "big", world.forge.clone_url(REPO), str(shallow)]
    subprocess.run(command, check=True, timeout=60)
    assert (shallow / "big.bin").read_bytes() == (git.path / "big.bin").read_bytes()


def test_leases_and_non_fast_forwards(world: World) -> None:
    git = world.clone()
    git.branch("feature")
    first = git.write("a.txt", "a\n")
    git("push", "-q", "origin", "feature")
    git("commit", "-q", "--amend", "-m", "Amended")
    assert "non-fast-forward" in git("push", "origin", "feature", ok=False).stderr
    wrong = "--force-with-lease=feature:" + "1" * 40
    assert "stale info" in git("push", wrong, "origin", "feature", ok=False).stderr
    git("push", "-q", f"--force-with-lease=feature:{first}", "origin", "feature")


def test_refs_of_our_own_can_be_pushed_with_a_lease(world: World) -> None:
    git = world.clone()
    sha = git("rev-parse", "HEAD").stdout.strip()
    git("push", "-q", "--force-with-lease=refs/harness/epoch:", "origin", "HEAD:refs/harness/epoch")
    again = git(
        "push", "--force-with-lease=refs/harness/epoch:", "origin", "HEAD~0:refs/harness/epoch", ok=False
    )
    assert world.forge.dump()["repos"][REPO]["refs"]["refs/harness/epoch"] == sha
    assert again.returncode == 0  # nothing to move
    hidden = git("push", "origin", "HEAD:refs/pull/9/head", ok=False)
    assert "deny updating a hidden ref" in hidden.stderr


def test_a_push_moves_the_head_of_its_pull_request(world: World) -> None:
    git = world.clone()
    pull = world.pull(git, "feature", {"a.txt": "a\n"})
    sha = git.write("b.txt", "b\n")
    git("push", "-q", "origin", "feature")
    got = pull_of(world, pull["number"])
    assert (got["head"]["sha"], got["commits"], got["changed_files"]) == (sha, 2, 2)
    git("commit", "-q", "--amend", "-m", "Rewritten")
    git("push", "-qf", "origin", "feature")
    events = [item["event"] for item in world.repo("GET", f"/issues/{pull['number']}/timeline").json()]
    assert events == ["head_ref_force_pushed"]
    git("fetch", "-q", "origin", f"refs/pull/{pull['number']}/head")


def test_pushing_the_merge_commit_marks_the_pull_request_merged(world: World) -> None:
    git = world.clone()
    pull = world.pull(
        git, "feature", {"a.txt": "a\n"}, body="Closes #1, fixes acme/widgets#2 and resolves o/r#1"
    )
    git.branch("main")
    git("merge", "-q", "--no-ff", "-m", "Land it", "feature")
    landed = git("rev-parse", "HEAD").stdout.strip()
    git.write("later.txt", "later\n")
    git("push", "-q", "origin", "main")
    got = pull_of(world, pull["number"])
    assert (got["state"], got["merged"], got["merge_commit_sha"]) == ("closed", True, landed)
    assert got["merged_by"]["login"] == "maker"
    assert got["merged_at"] == got["closed_at"]
    assert (state_of(world, 1), state_of(world, 2)) == ("closed", "closed")
    events = [item["event"] for item in world.repo("GET", f"/issues/{pull['number']}/timeline").json()]
    assert events == ["merged", "closed"]
    assert world.repo("GET", f"/pulls/{pull['number']}/merge").status_code == 204
    assert [item["number"] for item in world.repo("GET", f"/commits/{landed}/pulls").json()] == [
        pull["number"]
    ]


def test_a_fast_forward_is_a_merge_too(world: World) -> None:
    git = world.clone()
    pull = world.pull(git, "feature", {"a.txt": "a\n"})
    git("push", "-q", "origin", "feature:main")
    got = pull_of(world, pull["number"])
    assert (got["merged"], got["merge_commit_sha"]) == (True, pull["head"]["sha"])


def test_issues_close_only_when_the_words_land_on_the_default_branch(world: World) -> None:
    git = world.clone()
    git.branch("release/1.0")
    git("push", "-q", "origin", "release/1.0")
    pull = world.pull(git, "feature", {"a.txt": "a\n"}, base="release/1.0", body="Fixes #1")
    git.branch("release/1.0", "origin/release/1.0")
    git("merge", "-q", "--no-ff", "-m", "Land\n\nfixed: #2", "feature")
    git("push", "-q", "origin", "release/1.0")
    assert pull_of(world, pull["number"])["merged"] is True
    assert (state_of(world, 1), state_of(world, 2)) == ("open", "open")
    git("push", "-q", "origin", "release/1.0:main")
    assert (state_of(world, 1), state_of(world, 2)) == ("open", "closed")


def test_a_pull_request_whose_branch_is_deleted_is_closed(world: World) -> None:
    git = world.clone()
    pull = world.pull(git, "feature", {"a.txt": "a\n"})
    git("push", "-q", "origin", ":feature")
    got = pull_of(world, pull["number"])
    assert (got["state"], got["merged"]) == ("closed", False)
    refused = world.repo("PATCH", f"/pulls/{pull['number']}", {"state": "open"})
    assert refused.status_code == 422
    git("push", "-q", "origin", "feature")
    assert world.repo("PATCH", f"/pulls/{pull['number']}", {"state": "open"}).json()["state"] == "open"


def test_a_head_reset_to_the_base_closes_without_merging(world: World) -> None:
    git = world.clone()
    pull = world.pull(git, "feature", {"a.txt": "a\n"})
    git("push", "-qf", "origin", "origin/main:refs/heads/feature")
    got = pull_of(world, pull["number"])
    assert (got["state"], got["merged"]) == ("closed", False)


def test_a_deleted_base_closes_its_pull_requests(world: World) -> None:
    git = world.clone()
    git("push", "-q", "origin", "HEAD:refs/heads/next")
    pull = world.pull(git, "feature", {"a.txt": "a\n"}, base="next")
    git("push", "-q", "origin", ":next")
    assert pull_of(world, pull["number"])["state"] == "closed"


def test_a_protected_branch_refuses_pushes(world: World) -> None:
    git = world.clone()
    first = git.write("a.txt", "a\n")
    rule: dict[str, Any] = {
        "required_status_checks": {"strict": False, "contexts": ["ci"]},
        "enforce_admins": True,
        "required_pull_request_reviews": None,
        "restrictions": None,
    }
    assert world.repo("PUT", "/branches/main/protection", rule, token="t-owner").status_code == 200
    before = world.forge.dump()
    refused = git("push", "origin", "HEAD:main", ok=False)
    assert "GH006: Protected branch update failed for refs/heads/main" in refused.stderr
    assert 'Required status check "ci" is expected.' in refused.stderr
    assert world.forge.dump() == before
    git("push", "-q", "origin", "HEAD:refs/heads/candidate")
    world.repo("POST", f"/statuses/{first}", {"state": "success", "context": "ci"})
    git("push", "-q", "origin", "HEAD:main")
    git("commit", "-q", "--amend", "-m", "Other")
    assert "Cannot force-push" in git("push", "-f", "origin", "HEAD:main", ok=False).stderr
    rule["required_pull_request_reviews"] = {"required_approving_review_count": 1}
    world.repo("PUT", "/branches/main/protection", rule, token="t-owner")
    git("reset", "-q", "--hard", "origin/main")
    git.write("b.txt", "b\n")
    assert "through a pull request" in git("push", "origin", "HEAD:main", ok=False).stderr


def test_the_host_s_git_configuration_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seeded_forge import start

    marker = tmp_path / "ran"
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("pre-receive", "post-receive", "reference-transaction", "update"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {marker}\nexit 1\n")
        (hooks / name).chmod(0o755)
    config = tmp_path / "gitconfig"
    config.write_text(f"[core]\n\thooksPath = {hooks}\n[transfer]\n\tfsckObjects = nonsense\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    world = start(tmp_path)
    git = world.clone()
    pull = world.pull(git, "feature", {"a.txt": "a\n"})
    assert world.repo("PUT", f"/pulls/{pull['number']}/merge").status_code == 200
    assert not marker.exists()
    world.forge.close()
