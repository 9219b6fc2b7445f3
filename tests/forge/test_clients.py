"""Fidelity is proven by what we did not write: PyGithub, githubkit's strict models, octokit.

The two that need an installation of their own (`scripts/client-tests.sh`) are marked `clients`.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import github
import pytest
from seeded_forge import REPO, World

HERE = Path(__file__).parent / "clients"
GITHUBKIT = "HARNESS_GITHUBKIT_PYTHON"
OCTOKIT = "HARNESS_OCTOKIT_DIR"


def pushed(world: World) -> str:
    git = world.clone()
    git.branch("walk")
    sha = git.write("src/walk.py", "X = 1\n")
    git("push", "-q", "origin", "walk")
    return sha


def run(command: list[str], cwd: Path) -> dict[str, Any]:
    env = {"PATH": os.environ["PATH"], "HOME": str(cwd), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-4000:]
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


@pytest.mark.parametrize("prefix", ["", "/api/v3"])
def test_pygithub_walks_a_release(world: World, prefix: str) -> None:
    sha = pushed(world)
    client = world.github(prefix=prefix)
    repo = client.get_repo(REPO)
    assert client.get_user().login == "maker"
    made = [repo.create_issue(f"n{index}", labels=["bug"]) for index in range(5)]
    client.per_page = 2
    assert [issue.number for issue in repo.get_issues(labels=["bug"], direction="asc")] == [1, 3, 4, 5, 6, 7]
    comment = made[0].create_comment("hello")
    comment.edit("bye")
    assert [item.body for item in made[0].get_comments()] == ["bye"]
    made[0].add_to_labels("harness:ready")
    actors = {event.actor.login for event in made[0].get_timeline() if event.event == "labeled"}
    assert actors == {"maker"}
    made[0].remove_from_labels("bug")
    with pytest.raises(github.GithubException, match="Label does not exist: 404"):
        made[0].remove_from_labels("bug")
    pull = repo.create_pull("main", "walk", title="Walk", body=f"Fixes #{made[1].number}")
    assert (pull.mergeable, pull.mergeable_state, pull.head.sha) == (True, "clean", sha)
    assert [item.filename for item in pull.get_files()] == ["src/walk.py"]
    assert repo.get_pulls(state="open", head="acme:walk")[0].number == pull.number
    with pytest.raises(github.GithubException, match="A pull request already exists for acme:walk"):
        repo.create_pull("main", "walk", title="Again")
    repo.get_commit(sha).create_status("success", context="gate", description="green")
    assert repo.get_commit(sha).get_combined_status().state == "success"
    done = pull.merge(sha=sha)
    assert repo.get_git_ref("heads/main").object.sha == done.sha
    assert repo.get_issue(made[1].number).state == "closed"
    assert repo.get_pull(pull.number).merge_commit_sha == done.sha
    repo.get_git_ref("heads/walk").delete()
    with pytest.raises(github.GithubException):
        repo.get_branch("walk")
    release = repo.create_git_release("v1", "One", "notes", target_commitish=done.sha)
    assert repo.get_release("v1").id == release.id == repo.get_latest_release().id
    assert repo.get_git_ref("tags/v1").object.sha == done.sha
    assert repo.compare("v1", "main").status == "identical"
    assert repo.get_collaborator_permission("reader") == "read"
    headers, _ = client.requester.requestJsonAndCheck("GET", f"/repos/{REPO}/issues")
    status, _, body = client.requester.requestJson(
        "GET", f"/repos/{REPO}/issues", headers={"If-None-Match": headers["etag"]}
    )
    assert (status, body) == (304, "")
    assert client.get_rate_limit().rate.limit == 5000
    assert [item.title for item in client.search_issues(f"repo:{REPO} is:pr walk")] == ["Walk"]


@pytest.mark.clients
def test_githubkits_strict_models_accept_every_answer(world: World) -> None:
    python = os.environ[GITHUBKIT]
    more = ["t-maker", "t-app", "t-owner", pushed(world)]
    found = run([python, str(HERE / "githubkit_walk.py"), world.forge.url, REPO, *more], world.home)
    assert found["failed"] == []
    assert found["checked"] >= 90


@pytest.mark.clients
def test_octokit_walks_a_release(world: World) -> None:
    script = HERE / "octokit_walk.mjs"
    place = Path(os.environ[OCTOKIT]) / script.name
    place.write_text(script.read_text(encoding="utf-8"), encoding="utf-8")
    found = run(["node", str(place), world.forge.url, REPO, "t-maker", pushed(world)], world.home)
    assert found.pop("notes").endswith(f"/{REPO}/commits/v1")
    assert found == {"login": "maker", "files": ["src/walk.py"], "text": "# Widgets\n", "permission": "read"}
