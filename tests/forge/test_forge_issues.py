"""Issues, labels, comments and histories over plain HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from seeded_forge import REPO, World


def numbers(answer: Any) -> list[int]:
    assert answer.status_code == 200, answer.text
    return [item["number"] for item in answer.json()]


def test_an_issue_lives_and_its_timeline_says_who_did_what(world: World) -> None:
    made = world.repo(
        "POST", "/issues", {"title": "T", "body": "B", "labels": ["bug"], "assignees": ["maker"]}
    )
    assert made.status_code == 201
    assert made.headers["location"] == made.json()["url"]
    place = f"/issues/{made.json()['number']}"
    world.repo("POST", place + "/labels", {"labels": ["HARNESS:READY", "brand new"]}, token="t-owner")
    world.repo("DELETE", place + "/labels/bug")
    world.repo("PATCH", place, {"title": "T2"}, token="t-second")
    world.repo("PATCH", place, {"state": "closed", "state_reason": "not_planned"})
    world.repo("PATCH", place, {"state": "open"})
    got = world.repo("GET", place).json()
    assert [label["name"] for label in got["labels"]] == ["harness:ready", "brand new"]
    assert (got["state"], got["state_reason"], got["closed_at"]) == ("open", "reopened", None)
    events = [
        (event["event"], event["actor"]["login"], event.get("label", {}).get("name"))
        for event in world.repo("GET", place + "/timeline").json()
    ]
    assert events == [
        ("labeled", "maker", "bug"),
        ("assigned", "maker", None),
        ("labeled", "acme", "harness:ready"),
        ("labeled", "acme", "brand new"),
        ("unlabeled", "maker", "bug"),
        ("renamed", "second", None),
        ("closed", "maker", None),
        ("reopened", "maker", None),
    ]


def test_the_list_filters_sorts_and_pages(world: World) -> None:
    for index in range(5):
        world.repo("POST", "/issues", {"title": f"n{index}", "labels": ["bug"] if index % 2 else []})
    world.repo("PATCH", "/issues/3", {"state": "closed"})
    assert numbers(world.repo("GET", "/issues")) == [7, 6, 5, 4, 2, 1]
    assert numbers(world.repo("GET", "/issues?state=closed")) == [3]
    assert numbers(world.repo("GET", "/issues?state=all&labels=BUG&direction=asc")) == [1, 4, 6]
    assert numbers(world.repo("GET", "/issues?labels=bug,nothing")) == []
    assert numbers(world.repo("GET", "/issues?creator=reader")) == [1]
    assert numbers(world.repo("GET", "/issues?assignee=none&sort=comments")) == [1, 7, 6, 5, 4, 2]
    first = world.repo("GET", "/issues?per_page=2&state=all&direction=asc")
    assert numbers(first) == [1, 2]
    assert set(first.links) == {"next", "last"}
    seen: list[int] = []
    url: str | None = first.links["next"]["url"]
    while url:
        page = world.api("GET", url)
        seen += numbers(page)
        url = page.links.get("next", {}).get("url")
    assert seen == [3, 4, 5, 6, 7]
    assert set(page.links) == {"prev", "first"}


def test_since_compares_the_last_update(world: World) -> None:
    world.forge.advance(100)
    world.repo("POST", "/issues/1/comments", {"body": "later"})
    since = world.repo("GET", "/issues/1").json()["updated_at"]
    assert numbers(world.repo("GET", f"/issues?since={since}")) == [1]
    assert numbers(world.repo("GET", "/issues?since=2000-01-01T00:00:00%2B02:00")) == [2, 1]
    assert world.repo("GET", "/issues?since=yesterday").status_code == 422


def test_a_list_mixes_in_pull_requests(world: World) -> None:
    pull = world.pull(world.clone(), "feature", {"new.txt": "x\n"})
    rows = {row["number"]: row for row in world.repo("GET", "/issues").json()}
    assert rows[pull["number"]]["pull_request"]["url"] == pull["url"]
    assert "pull_request" not in rows[1]


def test_an_issue_without_triage_role_gets_no_labels(world: World) -> None:
    made = world.repo("POST", "/issues", {"title": "T", "labels": ["bug"]}, token="t-stranger")
    assert made.status_code == 201
    assert made.json()["labels"] == []
    assert made.json()["author_association"] == "NONE"
    refused = world.repo(
        "POST", f"/issues/{made.json()['number']}/labels", {"labels": ["bug"]}, token="t-stranger"
    )
    assert refused.status_code == 403
    own = world.repo("PATCH", f"/issues/{made.json()['number']}", {"state": "closed"}, token="t-stranger")
    assert own.json()["state"] == "closed"
    assert world.repo("PATCH", "/issues/1", {"state": "closed"}, token="t-stranger").status_code == 403


def test_comments_are_created_edited_and_deleted(world: World) -> None:
    made = world.repo("POST", "/issues/1/comments", {"body": "one"}, token="t-bot").json()
    assert made["user"]["type"] == "Bot"
    assert made["author_association"] == "COLLABORATOR"
    path = f"/issues/comments/{made['id']}"
    assert world.repo("PATCH", path, {"body": "two"}, token="t-bot").json()["body"] == "two"
    assert world.repo("PATCH", path, {"body": "no"}, token="t-reader").status_code == 403
    bodies = [item["body"] for item in world.repo("GET", "/issues/1/comments").json()]
    assert bodies == ["Seen", "two"]
    assert world.repo("DELETE", path, token="t-bot").status_code == 204
    assert world.repo("GET", path).status_code == 404
    assert world.repo("GET", "/issues/1").json()["comments"] == 1


def test_a_long_comment_is_refused_whole(world: World) -> None:
    assert world.repo("POST", "/issues/1/comments", {"body": "x" * 65_536}).status_code == 201
    refused = world.repo("POST", "/issues/1/comments", {"body": "x" * 65_537})
    assert refused.status_code == 422
    assert "too long" in refused.json()["errors"][0]["message"]


def test_a_locked_issue_refuses_comments(world: World) -> None:
    assert world.repo("PUT", "/issues/1/lock", {"lock_reason": "resolved"}).status_code == 204
    refused = world.repo("POST", "/issues/1/comments", {"body": "hello"})
    assert (refused.status_code, refused.json()["message"]) == (
        403,
        "Unable to create comment because issue is locked.",
    )
    assert world.repo("GET", "/issues/1").json()["locked"] is True
    world.repo("DELETE", "/issues/1/lock")
    assert world.repo("POST", "/issues/1/comments", {"body": "hello"}).status_code == 201


def test_a_deleted_issue_is_gone(world: World) -> None:
    world.forge.delete_issue(REPO, 1)
    answer = world.repo("GET", "/issues/1")
    assert (answer.status_code, answer.json()["message"]) == (410, "This issue was deleted")
    assert numbers(world.repo("GET", "/issues?state=all")) == [2]
    assert world.repo("POST", "/issues/1/comments", {"body": "hello"}).status_code == 410


def test_a_transferred_issue_points_to_its_new_place(world: World) -> None:
    world.api("POST", "/user/repos", {"name": "gadgets"}, token="t-owner")
    new = world.forge.transfer_issue(REPO, 1, "acme/gadgets")
    answer = world.repo("GET", "/issues/1")
    assert answer.status_code == 301
    there = world.api("GET", answer.headers["location"]).json()
    assert (there["number"], there["title"], there["comments"]) == (new, "First", 1)


def test_labels_compare_without_case(world: World) -> None:
    twice = world.repo("POST", "/labels", {"name": "BUG", "color": "ffffff"})
    assert twice.status_code == 422
    assert twice.json()["errors"] == [{"resource": "Label", "code": "already_exists", "field": "name"}]
    made = world.repo("POST", "/labels", {"name": "area/core ünï", "color": "ABCDEF"})
    assert made.json()["color"] == "abcdef"
    assert world.api("GET", made.json()["url"]).json()["name"] == "area/core ünï"
    world.repo("PATCH", "/labels/bug", {"new_name": "defect"})
    assert [item["name"] for item in world.repo("GET", "/issues/1/labels").json()] == ["defect"]
    missing = world.repo("DELETE", "/issues/1/labels/bug")
    assert (missing.status_code, missing.json()["message"]) == (404, "Label does not exist")
    world.repo("PUT", "/issues/1/labels", {"labels": ["area/core ünï"]})
    assert world.repo("DELETE", "/issues/1/labels/area%2Fcore%20%C3%BCn%C3%AF").json() == []


@pytest.mark.parametrize("body", [{}, {"title": ""}, {"title": "x" * 257}])
def test_a_bad_issue_is_refused_and_leaves_no_trace(world: World, body: dict[str, Any]) -> None:
    before = world.forge.dump()
    assert world.repo("POST", "/issues", body).status_code == 422
    assert world.forge.dump() == before


def test_assignees_who_may_not_be_assigned_are_ignored(world: World) -> None:
    got = world.repo("POST", "/issues/1/assignees", {"assignees": ["stranger", "nobody", "second"]}).json()
    assert [person["login"] for person in got["assignees"]] == ["second"]
    got = world.repo("DELETE", "/issues/1/assignees", {"assignees": ["second"]}).json()
    assert got["assignees"] == []
