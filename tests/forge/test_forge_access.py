"""Who may do what; conditional requests; limits; headers."""

from __future__ import annotations

from pathlib import Path

import pytest
from seeded_forge import REPO, World, start

from harness.forge import Settings, User, seed


@pytest.mark.parametrize(
    ("token", "method", "path", "body", "status"),
    [
        ("wrong", "GET", "/user", None, 401),
        (None, "GET", "/user", None, 401),
        (None, "GET", f"/repos/{REPO}", None, 200),
        (None, "POST", f"/repos/{REPO}/issues", {"title": "T"}, 401),
        ("t-reader", "POST", f"/repos/{REPO}/issues/1/comments", {"body": "b"}, 201),
        ("t-reader", "POST", f"/repos/{REPO}/labels", {"name": "l"}, 403),
        ("t-reader", "POST", f"/repos/{REPO}/releases", {"tag_name": "v1"}, 403),
        ("t-maker", "PATCH", f"/repos/{REPO}", {"private": True}, 403),
        ("t-owner", "PATCH", f"/repos/{REPO}", {"description": "d"}, 200),
        ("t-maker", "GET", "/repos/acme/other", None, 404),
        ("t-maker", "GET", "/nowhere", None, 404),
        ("t-app", "GET", "/user", None, 403),
        ("t-maker", "GET", "/_forge/report", None, 403),
        ("t-root", "GET", "/_forge/report", None, 200),
    ],
)
def test_access(
    world: World, token: str | None, method: str, path: str, body: dict[str, object] | None, status: int
) -> None:
    assert world.api(method, path, body, token=token).status_code == status


def test_a_token_can_do_less_than_its_person(world: World) -> None:
    seed(world.forge.state.data_dir, users=[User("maker", token="t-narrow", cap="read")])
    refused = world.repo("POST", "/labels", {"name": "l"}, token="t-narrow")
    assert (refused.status_code, refused.json()["message"]) == (
        403,
        "Resource not accessible by personal access token",
    )
    refused = world.repo("POST", "/labels", {"name": "l"}, token="t-app")
    assert refused.status_code == 201


def test_a_private_repository_is_not_there_for_others(world: World) -> None:
    world.repo("PATCH", "", {"private": True}, token="t-owner")
    assert world.repo("GET", "", token="t-stranger").status_code == 404
    assert world.repo("GET", "/issues", token=None).status_code == 404
    assert world.repo("GET", "", token="t-reader").status_code == 200
    assert world.repo("GET", "/collaborators/stranger/permission").json()["permission"] == "none"


def test_a_revoked_or_expired_token_is_refused(world: World) -> None:
    seed(
        world.forge.state.data_dir,
        users=[User("maker", token="t-short", expires_at=world.forge.state.now() + 60)],
    )
    first = world.api("GET", "/user", token="t-short")
    assert first.status_code == 200
    assert first.headers["github-authentication-token-expiration"].endswith("UTC")
    world.forge.advance(61)
    assert world.api("GET", "/user", token="t-short").status_code == 401
    world.forge.revoke("t-maker")
    assert world.api("GET", "/user").json()["message"] == "Bad credentials"


@pytest.mark.parametrize(
    ("login", "permission", "role"),
    [
        ("acme", "admin", "admin"),
        ("maker", "write", "write"),
        ("reader", "read", "read"),
        ("stranger", "read", "read"),
    ],
)
def test_permission_of_a_person(world: World, login: str, permission: str, role: str) -> None:
    got = world.repo("GET", f"/collaborators/{login}/permission").json()
    assert (got["permission"], got["role_name"], got["user"]["login"]) == (permission, role, login)


def test_every_get_has_an_etag_and_a_304_is_free(world: World) -> None:
    for path in ("", "/issues", "/issues/1", "/labels", "/branches", "/pulls", "/commits", "/releases"):
        first = world.repo("GET", path)
        left = int(first.headers["x-ratelimit-remaining"])
        again = world.repo("GET", path, If_None_Match=first.headers["etag"])
        assert (again.status_code, again.content) == (304, b"")
        assert int(again.headers["x-ratelimit-remaining"]) == left
    tag = world.repo("GET", "/issues").headers["etag"]
    world.repo("POST", "/issues/1/comments", {"body": "b"})
    assert world.repo("GET", "/issues", If_None_Match=tag).status_code == 200


def test_headers_say_what_is_left_and_what_time_it_is(world: World) -> None:
    world.forge.advance(3600 * 24 * 365)
    answer = world.repo("GET", "")
    assert answer.headers["x-ratelimit-limit"] == "5000"
    assert int(answer.headers["x-ratelimit-reset"]) >= world.forge.state.now()
    assert len(answer.headers["x-github-request-id"]) == 32
    assert answer.headers["x-oauth-scopes"] == "repo"
    assert answer.headers.get_list("date") == [answer.headers["date"]]
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    before = world.api("GET", "/rate_limit").json()["resources"]["core"]
    assert world.api("GET", "/rate_limit").json()["resources"]["core"]["used"] == before["used"]


def test_the_primary_limit_is_enforced_and_ends(tmp_path: Path) -> None:
    world = start(tmp_path, Settings(primary_limit=3))
    codes = [world.repo("GET", "").status_code for _ in range(5)]
    assert codes == [200, 200, 200, 403, 403]
    refused = world.repo("GET", "")
    assert refused.json()["message"].startswith("API rate limit exceeded")
    assert refused.headers["x-ratelimit-remaining"] == "0"
    assert world.repo("GET", "", token="t-second").status_code == 200
    world.forge.advance(3601)
    assert world.repo("GET", "").status_code == 200
    world.forge.close()


def test_both_prefixes_link_to_themselves(world: World) -> None:
    for prefix in ("", "/api/v3"):
        got = world.api("GET", f"{prefix}/repos/{REPO}/issues/1").json()
        assert got["url"] == f"{world.forge.url}{prefix}/repos/{REPO}/issues/1"
        assert got["html_url"] == f"{world.forge.url}/{REPO}/issues/1"


def test_links_carry_the_public_url(tmp_path: Path) -> None:
    world = start(tmp_path, Settings(public_url="http://forge.example:8080/"))
    assert world.forge.url == "http://forge.example:8080"
    got = world.api("GET", f"http://127.0.0.1:{world.forge.port}/repos/{REPO}/issues?per_page=1")
    assert got.json()[0]["url"] == f"http://forge.example:8080/repos/{REPO}/issues/2"
    assert got.links["next"]["url"].startswith(f"http://forge.example:8080/repos/{REPO}/issues?")
    world.forge.close()


@pytest.mark.parametrize("body", [b"{", b'"text"', b"7"])
def test_a_body_that_is_no_object_is_refused(world: World, body: bytes) -> None:
    import httpx

    headers = {"Authorization": "token t-maker"}
    url = f"{world.forge.url}/repos/{REPO}/issues"
    assert httpx.post(url, content=body, headers=headers).status_code == 400
