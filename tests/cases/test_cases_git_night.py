"""One night in a repository as people have them, with agents that leave their clones in every state.

The default branch is `trunk`; a branch `main` of another history lies beside it. What can be taken is released, byte for byte; what cannot is said on its issue in one line.
"""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from demo_world import Finished, bare_of, git, left_over, wait_for
from director_world import BOT, World
from git_stage import AS_SOMEBODY, branches, commit, world

DETACHED, GONE, LOCKED, NESTED, LARGE, NAMES = 1, 2, 3, 4, 5, 6
AGENTS = f"""
echo x >real$HARNESS_ISSUE.txt
case $HARNESS_ISSUE in
{DETACHED}) git checkout -q --detach; git add -A; {AS_SOMEBODY} commit -q -m mine; echo 2 >>real1.txt ;;
{GONE}) rm -rf .git ;;
{LOCKED}) touch .git/index.lock .git/HEAD.lock ;;
{NESTED}) git init -q vendor/tool ;;
{LARGE}) head -c 6000000 /dev/urandom >big.bin ;;
{NAMES}) echo a >'špatně.txt'; echo b >"$(printf 'bad\\377.txt')"; echo c >':colon' ;;
esac
echo done
"""


@dataclass
class Night:
    folder: Path
    finished: Finished
    repo: dict[str, Any]
    branches: dict[str, str]
    main: str

    def ticket(self, number: int) -> dict[str, Any]:
        return next(t for t in self.finished.document["tickets"] if t["issue"] == number)  # type: ignore[no-any-return]

    def comments(self, number: int) -> str:
        return "\n".join(c["body"] for c in self.repo["comments"] if c["issue"] == number)


def lead_on(made: World, branch: str) -> None:
    """Make `branch` the default one at the forge, as its settings page does."""
    request = urllib.request.Request(
        f"{made.forge.url}/repos/acme/tally", json.dumps({"default_branch": branch}).encode(), method="PATCH",
        headers={"Authorization": f"Bearer {BOT}", "Content-Type": "application/json"},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert json.load(answer)["default_branch"] == branch


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    def change(bare: Path) -> None:
        git(bare, "branch", "-m", "main", "trunk")
        commit(bare, "main", {"frozen.txt": b"another history\n"})

    titles = ["Detach", "Remove", "Lock", "Nest", "Grow", "Name"]
    with world(tmp_path_factory.mktemp("night"), titles, agent=AGENTS, change=change) as made:
        lead_on(made, "trunk")
        main = branches(made)["main"]
        finished = made.run("director", "--until-idle", "--json")
        yield Night(made.folder, finished, made.repo(), branches(made), main)


def test_what_can_be_taken_is_released_on_the_branch_that_leads(night: Night) -> None:
    assert night.finished.code == 0 and "Traceback" not in night.finished.told
    for n in (DETACHED, LOCKED, NAMES):
        assert night.ticket(n)["state"] == "RELEASED", night.ticket(n)
    assert night.branches["main"] == night.main, "a branch of that name is nothing to us"
    bare = bare_of(night.folder)
    assert git(bare, "rev-parse", "v0.1.0^{}") == night.branches["trunk"]
    raw = subprocess.run(
        ["git", "--git-dir", str(bare), "ls-tree", "-r", "-z", "--name-only", "trunk"],
        capture_output=True, check=True, timeout=30,
    ).stdout.split(b"\0")  # fmt: skip
    assert {b"real1.txt", b"real3.txt", "špatně.txt".encode(), b"bad\xff.txt", b":colon"} <= set(raw)
    assert b"frozen.txt" not in raw and b"big.bin" not in raw
    assert git(bare, "show", "trunk:real1.txt") == "x\n2", "committed and uncommitted work alike"


def test_pulls_go_to_the_release_branch_and_show_the_agents_files_only(night: Night) -> None:
    pulls = {p["head_ref"]: p for p in night.repo["pulls"]}
    assert {p["base_ref"] for h, p in pulls.items() if h.startswith("agent/")} == {"release/0.1.0"}
    assert pulls["release/0.1.0"]["base_ref"] == "trunk"
    for pull in pulls.values():
        text = json.dumps(pull, ensure_ascii=False)
        assert "\\\\305" not in text and "\\\\377" not in text, "no octal escapes of names"


SAID = (
    (GONE, "the agent damaged its clone's own .git"),
    (NESTED, "NESTED_REPO: vendor/tool is a repository of its own"),
    (LARGE, "FILE_TOO_LARGE: big.bin has 6000000 bytes, more than 5242880"),
)


@pytest.mark.parametrize(("number", "words"), SAID)
def test_what_cannot_be_taken_is_said_on_its_issue(number: int, words: str, night: Night) -> None:
    ticket = night.ticket(number)
    assert (ticket["state"], ticket["pull"]) == ("BLOCKED", 0) and words in ticket["reason"]
    told = night.comments(number)
    assert words in told and "harness retry" in told and len(told) < 10_000
    assert f"agent/{number}" not in night.branches
    issue = next(i for i in night.repo["issues"] if i["number"] == number)
    assert issue["state"] == "open" and "harness:needs-you" in issue["labels"]


def test_a_clone_without_git_holds_no_worker_for_its_whole_time(night: Night) -> None:
    assert night.finished.seconds < 300 and left_over(night.folder, "process") == []


# ---------------------------------------------------------------- somebody rewrites the release branch


@pytest.mark.parametrize("what", ["rewritten", "removed"])
def test_a_release_branch_that_changed_under_a_worker(what: str, tmp_path: Path) -> None:
    go = tmp_path / "go"
    agent = f"echo x >real.txt; while [ ! -e '{go}' ]; do sleep 0.1; done; echo done"
    with world(tmp_path, agent=agent, config={"director": {"max_rework_rounds": 1}}) as made:
        started = made.start("director", "--until-idle", "--json")
        wait_for(lambda: list((made.folder / "data").glob("attempts/1.1/clone/real.txt")), 120, "it works")
        bare, main = bare_of(made.folder), branches(made)["main"]
        git(bare, "update-ref", "-d", "refs/heads/release/0.1.0")
        theirs = commit(bare, "release/0.1.0", {"theirs.txt": b"x\n"}) if what == "rewritten" else ""
        go.touch()
        finished = started.end(180)
        assert finished.code == 0
        told = finished.document["tickets"][0]
        why = "have no history in common" if theirs else "branch release/0.1.0 is not there any more"
        # The release may notice before the worker does.
        assert told["state"] == "DEFERRED"
        assert why in told["reason"] or told["reason"] == "the release was abandoned"
        comments = "\n".join(made.comments(1))
        assert told["reason"] in comments and "bug" not in comments
        assert branches(made)["main"] == main and branches(made).get("release/0.1.0", "") == theirs
        assert not made.repo()["pulls"] and "agent/1" in branches(made), "the work stays"
