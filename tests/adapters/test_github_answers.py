"""What GitHubForge makes of odd answers: null bodies, naive times, pages, proxies, and a list of many
thousands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from forge_world import START, Hands, Shelf
from scripted_forge import Got, Says, ScriptedForge

from harness.adapters.github import GitHubForge, refusals, shapes
from harness.adapters.github.calls import next_of, with_query
from harness.adapters.github.wire import Answer
from harness.adapters.governor import READ, Governor
from harness.core.budget import Limits
from harness.core.result import Err, Ok
from harness.domain import Gone, Issue
from harness.failures import Failure

REPO = "/repos/acme/widget"


def make(
    url: str, limits: dict[str, Limits] | None = None, shelf: Shelf | None = None, **more: Any
) -> GitHubForge:
    clock = more.pop("clock", None) or Hands()
    kept = Shelf()
    governor = Governor(kept.get, kept.put, clock, limits or {})
    return GitHubForge(url, "acme/widget", lambda: "t", governor, clock, remember=shelf, **more)


def raw_issue(number: int, **more: Any) -> dict[str, Any]:
    at = shapes.iso(START + number)
    return {
        "number": number,
        "title": f"Issue {number}",
        "body": None,
        "state": "open",
        "user": {"login": "ann", "type": "User"},
        "labels": [{"name": "harness"}],
        "created_at": at,
        "updated_at": at,
        "closed_at": None,
        **more,
    }


def err(r: object, failure: Failure) -> Err:
    assert isinstance(r, Err), r
    assert r.failure == failure, r
    return r


# ---------------------------------------------------------------- values


def test_null_bodies_and_ghosts() -> None:
    issue = shapes.issue({"number": 1, "title": None, "body": None, "user": None, "labels": None})
    assert (issue.body, issue.title, issue.author, issue.labels) == ("", "", "ghost", ())
    assert shapes.comment({"id": 5, "body": None, "user": None, "created_at": None}).body == ""
    pull = shapes.pull({"number": 2, "title": "T", "body": None, "head": None, "base": {"ref": "main"}})
    assert (pull.body, pull.head, pull.mergeable) == ("", "", None)
    assert (
        shapes.review({"id": 1, "state": "approved", "body": None, "submitted_at": None}).state == "APPROVED"
    )


def test_null_bodies_do_not_stop_the_list() -> None:
    both = [raw_issue(1), raw_issue(2, body="text", user=None)]
    with ScriptedForge(Says(r"^GET .*/issues\?", both)) as s:
        found = make(s.url).issues().unwrap()
    assert [(i.number, i.body) for i in found] == [(1, ""), (2, "text")]


@pytest.fixture
def auckland() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Pacific/Auckland"
    time.tzset()
    yield
    os.environ.pop("TZ")
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.usefixtures("auckland")
@pytest.mark.parametrize("text", ["2027-01-15T08:00:00Z", "2027-01-15T08:00:00", "2027-01-15T10:00:00+02:00"])
def test_times_are_the_same_in_any_zone(text: str) -> None:
    assert shapes.posix(text) == START
    assert shapes.iso(START) == "2027-01-15T08:00:00Z"
    assert shapes.posix(None) == 0.0


def test_pull_merge_sha_is_a_test_merge_until_it_is_merged() -> None:
    raw = {"number": 1, "state": "open", "merge_commit_sha": "abc", "merged": False}
    assert shapes.pull(raw).merge_sha == ""
    merged = shapes.pull({**raw, "state": "closed", "merged_at": "2027-01-15T08:00:00Z"})
    assert (merged.merged, merged.merge_sha, merged.open) == (True, "abc", False)


@pytest.mark.parametrize(
    ("status", "conclusion", "state"),
    [
        ("queued", None, "pending"),
        ("in_progress", None, "pending"),
        ("completed", "success", "success"),
        ("completed", "neutral", "skipped"),
        ("completed", "skipped", "skipped"),
        ("completed", "cancelled", "cancelled"),
        ("completed", "stale", "cancelled"),
        ("completed", "timed_out", "failure"),
        ("completed", "action_required", "failure"),
        ("completed", "something new", "failure"),
        ("completed", None, "failure"),
    ],
)
def test_check_runs_pass_only_when_they_say_so(status: str, conclusion: str | None, state: str) -> None:
    assert shapes.run_check({"name": "ci", "status": status, "conclusion": conclusion}).state == state


def test_a_repository_that_we_may_only_read() -> None:
    r = shapes.repository({"default_branch": "trunk", "permissions": {"pull": True, "push": False}})
    assert (r.default_branch, r.permission, r.merge_methods) == (
        "trunk",
        "read",
        ("merge", "squash", "rebase"),
    )


# ---------------------------------------------------------------- pages


def paged(pages: list[list[Any]], link: str = '<{url}>; rel="next"') -> list[Says]:
    """Rules for a list in pages, told by Link headers only."""
    rules = []
    for i, page in enumerate(pages, 1):
        nxt = link.format(url=f"http://elsewhere.example{REPO}/issues?page={i + 1}&per_page=100")
        headers = {"Link": nxt} if i < len(pages) else {}
        match = rf"/issues\?.*page={i}(&|$)" if i > 1 else r"/issues\?direction=asc"
        rules.append(Says(match, page, headers=headers))
    return rules


def test_pulls_fill_a_page_and_the_issue_behind_them_is_found() -> None:
    pulls = [raw_issue(i, pull_request={"url": "x"}) for i in range(1, 101)]
    with ScriptedForge(*paged([pulls, [], [raw_issue(101)]]), Says(r"direction=desc", [])) as s:
        found = make(s.url).issues().unwrap()
        assert [i.number for i in found] == [101]
        assert s.count(r"^GET ") == 4
        assert s.count("total_count") == 0


def test_a_list_without_an_end_is_an_error() -> None:
    loop = {"Link": f'<{REPO}/issues/1/comments?page=2>; rel="next"'}
    with ScriptedForge(Says(r"/comments", [], headers=loop)) as s:
        assert make(s.url).comments(1) == Ok(())
        assert s.count("comments") == 2, "an address that was read already ends it"


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ('<https://x/a?page=2>; rel="next", <https://x/a?page=9>; rel="last"', "https://x/a?page=2"),
        (
            '<https://x/a?page=1>; rel="prev", <https://x/a?q=a,b&page=3>; rel="next"',
            "https://x/a?q=a,b&page=3",
        ),
        ('<https://x/a?page=1>; rel="first"', ""),
        ("", ""),
    ],
)
def test_next_of_a_link_header(link: str, expected: str) -> None:
    assert next_of(Answer(200, {"link": link}, "")) == expected


def test_addresses_are_in_a_fixed_order() -> None:
    assert with_query("/x", b=1, a="é&", c=None) == "/x?a=%C3%A9%26&b=1"


# ---------------------------------------------------------------- the list of issues


class Many:
    """A list of `n` issues that answers pages, ETags and `since` as GitHub does."""

    def __init__(self, n: int) -> None:
        self.rows = {i: raw_issue(i) for i in range(1, n + 1)}
        self.asked: list[str] = []
        self.date = DATE

    def answer(self, got: Got) -> bool:
        """Fill the rule's answer for this request."""
        q = {k: v[0] for k, v in parse_qs(urlsplit(got.path).query).items()}
        self.asked.append(got.path)
        rows = [r for r in self.rows.values() if q["state"] == "all" or r["state"] == "open"]
        if "since" in q:
            rows = [r for r in rows if r["updated_at"] >= q["since"]]
        rows.sort(key=lambda r: (r["updated_at" if q["sort"] == "updated" else "created_at"], r["number"]))
        if q["direction"] == "desc":
            rows.reverse()
        page = int(q.get("page", 1))
        cut = rows[(page - 1) * 100 : page * 100]
        etag = f'"{hash(str(cut))}"'
        self.rule.status, self.rule.body, self.rule.headers = 200, cut, {"ETag": etag, "Date": self.date}
        if len(rows) > page * 100:
            path = re.sub(r"&page=\d+", "", got.path)
            self.rule.headers["Link"] = f'<http://x{path}&page={page + 1}>; rel="next"'
        if got.headers.get("If-None-Match") == etag:
            self.rule.status, self.rule.body = 304, ""
        return True

    def serve(self) -> ScriptedForge:
        self.rule = Says(r"/issues\?", when=self.answer)
        return ScriptedForge(self.rule)


DATE = "Fri, 15 Jan 2027 08:20:00 GMT"


def test_a_large_list_is_walked_once_and_then_costs_one_304() -> None:
    many = Many(1050)
    with many.serve() as s:
        forge = make(s.url)
        assert len(forge.issues().unwrap()) == 1050
        assert forge.counts()["read"] == 12, "11 pages and one look"
        assert len(forge.issues().unwrap()) == 1050
        before = dict(forge.counts())
        for _ in range(10):
            forge.issues().unwrap()
        after = forge.counts()
        assert after["read"] - before["read"] == after["not_modified"] - before["not_modified"] == 10


def test_reconciling_a_quiet_list_costs_304s_and_finds_what_no_look_shows() -> None:
    many, clock = Many(250), Hands()
    with many.serve() as s:
        forge = make(s.url, clock=clock)
        forge.issues().unwrap()
        del many.rows[7]  # deleted: no list of changes tells
        assert len(forge.issues().unwrap()) == 250
        clock.at += 1801
        found = forge.issues().unwrap()
        assert len(found) == 249
        before = dict(forge.counts())
        clock.at += 1801
        forge.issues().unwrap()
        after = forge.counts()
        assert after["read"] - before["read"] == 4
        assert after["not_modified"] - before["not_modified"] == 4


def test_a_walk_that_the_governor_stops_goes_on_where_it_was() -> None:
    many, clock = Many(1050), Hands()
    with many.serve() as s:
        forge = make(s.url, {READ: Limits(per_minute=5, reserve=0.0)}, clock=clock)
        for _ in range(2):
            r = err(forge.issues(), Failure.FORGE_RATE_LIMITED)
            assert r.detail.startswith("own:")
            assert r.not_before is not None
            clock.at = r.not_before + 0.001
        assert len(forge.issues().unwrap()) == 1050
        pages = [p for p in many.asked if "since" not in p]
        assert len(pages) == len(set(pages)) == 11


def test_what_is_closed_during_a_walk_over_pages_makes_it_walk_again() -> None:
    many, clock = Many(350), Hands()
    with many.serve() as s:
        forge = make(s.url, {READ: Limits(per_minute=2, reserve=0.0)}, clock=clock)
        err(forge.issues(), Failure.FORGE_RATE_LIMITED)
        at = "2027-01-15T08:20:01Z"
        many.rows[3].update(state="closed", closed_at=at, updated_at=at)  # 201 slips to the page just read
        many.date = DATE.replace("08:20", "08:25")
        for _ in range(10):
            r = forge.issues()
            if isinstance(r, Ok):
                break
            assert isinstance(r, Err)
            clock.at = (r.not_before or 0) + 0.001
        assert [i.number for i in r.unwrap()] == [n for n in range(1, 351) if n != 3]
        assert len([p for p in many.asked if "since" not in p]) == 8, "two walks over four pages"


def test_many_changes_move_the_cursor() -> None:
    many, clock = Many(100), Hands()
    with many.serve() as s:
        forge = make(s.url, clock=clock)
        forge.issues().unwrap()
        first = many.asked[-1]
        at = shapes.iso(START + 5_000)
        for n in range(1, 61):
            many.rows[n].update(updated_at=at, title="new")
        assert sum(i.title == "new" for i in forge.issues().unwrap()) == 60
        assert many.asked[-1] == first
        forge.issues().unwrap()
        assert many.asked[-1] != first
        assert sum(i.title == "new" for i in forge.issues().unwrap()) == 60


def test_changes_of_a_look_that_failed_on_its_second_page_are_not_lost() -> None:
    """The first page came and is remembered, so the forge says of it that nothing has changed since."""
    many, clock, down = Many(250), Hands(), Says(r"&page=2", {}, status=502, times=0)
    with many.serve() as s:
        forge = make(s.url, clock=clock)
        forge.issues().unwrap()
        at = shapes.iso(START + 5_000)
        for n in range(1, 151):
            many.rows[n].update(state="closed", closed_at=at, updated_at=at)
        s.rules.insert(0, down)
        err(forge.issues(), Failure.FORGE_DOWN)
        s.rules.remove(down)
        assert [i.number for i in forge.issues().unwrap()] == list(range(151, 251))
        before = dict(forge.counts())
        forge.issues().unwrap()
        forge.issues().unwrap()
        assert forge.counts()["not_modified"] == before["not_modified"] + 1, (
            "one look of a new cursor, one 304"
        )


def test_addresses_of_cursors_that_have_moved_on_are_forgotten() -> None:
    """A page of a busy list has half a megabyte, and its address is another one with each cursor."""
    many, clock = Many(100), Hands()
    with many.serve() as s:
        forge = make(s.url, clock=clock)
        forge.issues().unwrap()
        for step in range(1, 8):
            clock.at += 200
            at = shapes.iso(START + 5_000 + 200 * step)
            for row in many.rows.values():
                row.update(updated_at=at, title=f"new {step}")
            assert sum(i.title == f"new {step}" for i in forge.issues().unwrap()) == 100
            forge.issues().unwrap()
        assert len(set(many.asked)) > 7
        assert len(forge._calls._pages) == 2, "one of the walk, one of the newest cursor"
        assert forge._calls._pages_bytes == sum(p.size for p in forge._calls._pages.values())


def test_what_nobody_asked_for_in_an_hour_is_forgotten() -> None:
    said = Says(r"/comments", [], headers={"ETag": '"x"'})
    with ScriptedForge(said) as s:
        clock = Hands()
        forge = make(s.url, clock=clock)
        for number in range(2, 12):
            forge.comments(number).unwrap()
            clock.at += 1200
        assert len(forge._calls._pages) == 3, "of the last hour"
        said.status, said.body = 304, ""
        assert forge.comments(11).unwrap() == () and forge.counts()["not_modified"] == 1


def test_a_restart_goes_on_from_what_is_remembered() -> None:
    many, clock, shelf = Many(250), Hands(), Shelf()
    with many.serve() as s:
        first = make(s.url, shelf=shelf, clock=clock).issues().unwrap()
        again = make(s.url, shelf=shelf, clock=clock)
        assert again.issues().unwrap() == first
        assert again.counts()["read"] == 1
        clock.at += 1801
        late = make(s.url, shelf=shelf, clock=clock)
        late.issues().unwrap()
        assert late.counts()["read"] == 4


# ---------------------------------------------------------------- odd answers


def test_a_proxys_page_is_no_answer() -> None:
    page = Says(r"", "<html>hello</html>", status=200)
    with ScriptedForge(page) as s:
        forge = make(s.url)
        assert not err(forge.issues(), Failure.FORGE_DOWN).maybe
        assert err(forge.comment(1, "x"), Failure.FORGE_DOWN).maybe


def test_a_202_is_answered_at_once() -> None:
    with ScriptedForge(Says(r"", {"message": "computing"}, status=202)) as s:
        began = time.monotonic()
        err(make(s.url).issues(), Failure.INTERNAL_ERROR)
        assert time.monotonic() - began < 1.5
        assert len(s.got) == 1


def test_a_repository_that_has_moved_is_a_matter_of_configuration() -> None:
    moved = Says(r"/repos/acme/widget", {}, status=301, headers={"Location": "/repositories/7"})
    with ScriptedForge(moved) as s:
        forge = make(s.url)
        assert "set forge.repo" in err(forge.issues(), Failure.CONFIG_INVALID).detail
        err(forge.issue(1), Failure.CONFIG_INVALID)
        err(forge.comment(1, "x"), Failure.CONFIG_INVALID)
        assert s.count("POST") == 1, "a redirect never replays a write"


def test_a_repository_that_is_not_there() -> None:
    with ScriptedForge() as s:
        r = err(make(s.url).repository(), Failure.AUTH_FAILED)
        assert r.detail.startswith("acme/widget is not there")


def test_a_deleted_issue_and_a_pull_in_its_place() -> None:
    gone = Says(r"/issues/1$", {"message": "This issue was deleted"}, status=410)
    pull = Says(r"/issues/2$", raw_issue(2, pull_request={"url": "x"}))
    there = Says(r"/repos/acme/widget$", {"default_branch": "main"})
    with ScriptedForge(gone, pull, there) as s:
        forge = make(s.url)
        assert forge.issue(1) == Ok(Gone("deleted"))
        assert isinstance(forge.issue(2).unwrap(), Gone)
        assert len(s.got) == 2
        assert isinstance(forge.issue(3).unwrap(), Gone)
        assert len(s.got) == 4, "whether the repository is still to be seen"


def test_what_is_not_found_in_a_repository_that_is_hidden_is_not_known() -> None:
    """A credential that lost its access gets a 404 for everything: no issue is gone, and nobody has no role."""
    with ScriptedForge() as s:
        forge = make(s.url)
        err(forge.issue(3), Failure.AUTH_FAILED)
        err(forge.permission("ada"), Failure.AUTH_FAILED)
        down = Says(r"/repos/acme/widget$", {}, status=502)
        s.rules.append(down)
        err(forge.issue(3), Failure.FORGE_DOWN)
        err(forge.permission("ada"), Failure.FORGE_DOWN)
        down.status, down.body = 200, {"default_branch": "main"}
        assert forge.permission("ada") == Ok("none")


def test_check_runs_that_a_personal_token_may_not_read_are_asked_for_once_an_hour() -> None:
    status = Says(r"/status\?", {"statuses": [{"context": "ci", "state": "error"}]})
    runs = Says(r"/check-runs", {"message": "Resource not accessible by personal access token"}, status=403)
    clock = Hands()
    with ScriptedForge(status, runs) as s:
        forge = make(s.url, clock=clock)
        for _ in range(3):
            assert [(c.name, c.state) for c in forge.checks("a" * 40).unwrap()] == [("ci", "failure")]
        assert s.count("check-runs") == 1
        clock.at += 3601
        runs.status, runs.body = 200, {"total_count": 0, "check_runs": [{"name": "b", "status": "queued"}]}
        assert [c.name for c in forge.checks("a" * 40).unwrap()] == ["ci", "b"]


def test_an_app_has_no_user() -> None:
    says = Says(r"/user$", {"message": "Resource not accessible by integration"}, status=403)
    with ScriptedForge(says) as s:
        me = make(s.url).whoami().unwrap()
        assert (me.login, me.kind) == ("", "Bot")


def test_scopes_come_from_the_header() -> None:
    headers = {"X-OAuth-Scopes": "workflow, repo"}
    with ScriptedForge(Says(r"/user$", {"login": "ann", "type": "User"}, headers=headers)) as s:
        assert make(s.url).whoami().unwrap().scopes == ("repo", "workflow")


def test_a_text_that_is_still_too_long_is_shortened_once() -> None:
    said = {
        "message": "Validation Failed",
        "errors": [{"message": "body is too long (maximum is 40000 characters)"}],
    }
    small = Says(r"POST", {"id": 9, "body": "x"}, 201, when=lambda g: len(g.body["body"]) <= 40_000)
    with ScriptedForge(small, Says(r"POST", said, status=422)) as s:
        text = "word\n" * 30_000 + "\nRefs #12\n<!-- harness:v1 key=a mac=b -->"
        assert make(s.url).comment(1, text).unwrap().id == 9
        sizes = [len(g.body["body"]) for g in s.got]
        assert len(sizes) == 2
        assert 40_000 < sizes[0] <= 65_000
        assert sizes[1] <= 32_500
        for g in s.got:
            assert "Refs #12" in g.body["body"]
            assert g.body["body"].endswith("mac=b -->")


def test_a_text_that_nothing_can_shorten_enough_is_an_error_and_not_silence() -> None:
    said = {"message": "Validation Failed", "errors": [{"message": "body is too long"}]}
    with ScriptedForge(Says(r"POST", said, status=422)) as s:
        err(make(s.url).comment(1, "x" * 60_000), Failure.INTERNAL_ERROR)
        assert len(s.got) == 2


# ---------------------------------------------------------------- the table of refusals


def answer(status: int, message: str = "", headers: dict[str, str] | None = None, **more: Any) -> Answer:
    import json

    return Answer(status, headers or {}, json.dumps({"message": message, **more}))


@pytest.mark.parametrize(
    ("status", "message", "failure"),
    [
        (401, "Bad credentials", Failure.AUTH_FAILED),
        (403, "Resource not accessible by integration", Failure.AUTH_FAILED),
        (403, "Must have admin rights to Repository.", Failure.AUTH_FAILED),
        (403, "Unable to create comment because issue is locked.", Failure.POLICY_VIOLATION),
        (403, "Repository was archived so is read-only.", Failure.POLICY_VIOLATION),
        (403, "User is blocked", Failure.AUTH_FAILED),
        (404, "Not Found", Failure.GONE),
        (405, "Base branch was modified. Review and try the merge again.", Failure.FORGE_DOWN),
        (405, "Pull Request has merge conflicts", Failure.CONFLICT),
        (409, "Head branch was modified. Review and try the merge again.", Failure.CONFLICT),
        (410, "This issue was deleted", Failure.GONE),
        (422, "No commits between main and agent/1", Failure.AGENT_NO_CHANGES),
        (422, "A pull request already exists for acme:agent/1.", Failure.CONFLICT),
        (422, "Something of ours is wrong", Failure.INTERNAL_ERROR),
        (451, "Repository access blocked", Failure.GONE),
        (500, "", Failure.FORGE_DOWN),
        (418, "", Failure.INTERNAL_ERROR),
    ],
)
def test_the_table(status: int, message: str, failure: Failure) -> None:
    r = refusals.refuse(answer(status, message), True, START)
    assert r.failure == failure
    assert r.maybe == (status >= 500)
    assert r.detail


def test_the_errors_of_a_422_are_read_too() -> None:
    exists = answer(
        422, "Validation Failed", errors=[{"resource": "Label", "code": "already_exists", "field": "name"}]
    )
    assert refusals.refuse(exists, True, START).detail == refusals.EXISTS
    texts = answer(422, "Validation Failed", errors=["No commits between main and main"])
    assert refusals.refuse(texts, True, START).failure == Failure.AGENT_NO_CHANGES


@pytest.mark.parametrize(
    ("status", "message", "headers", "limited"),
    [
        (
            403,
            "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
            {},
            True,
        ),
        (403, "You have triggered an abuse detection mechanism.", {}, True),
        (403, "API rate limit exceeded for user ID 1.", {"x-ratelimit-remaining": "0"}, True),
        (403, "Forbidden", {"retry-after": "30"}, True),
        (403, "was submitted too quickly", {}, True),
        (429, "", {}, True),
        (403, "Resource not accessible by integration", {"x-ratelimit-remaining": "4000"}, False),
        (403, "Unable to create comment because issue is locked.", {}, False),
        (422, "secondary rate limit", {}, False),
    ],
)
def test_what_is_a_rate_limit(status: int, message: str, headers: dict[str, str], limited: bool) -> None:
    assert (refusals.limit_in(answer(status, message, headers), START) is not None) == limited


def test_the_reset_is_by_the_forges_own_clock() -> None:
    headers = {
        "x-ratelimit-remaining": "0",
        "x-ratelimit-reset": str(int(START) + 7_200 + 600),
        "date": "Fri, 15 Jan 2027 10:00:00 GMT",
    }
    limit = refusals.limit_in(answer(403, "API rate limit exceeded", headers), START)
    assert limit is not None
    assert limit.primary
    assert limit.reset_at == START + 600, "their clock is two hours ahead of ours"


# ---------------------------------------------------------------- setting it up


@pytest.mark.parametrize("repo", ["", "widget", "a/b/c", "/"])
def test_a_repository_must_have_an_owner_and_a_name(repo: str) -> None:
    clock = Hands()
    with pytest.raises(ValueError, match=r"forge\.repo"):
        GitHubForge("https://github.com", repo, str, Governor(Shelf().get, Shelf().put, clock, {}), clock)


def test_an_address_must_be_one() -> None:
    with pytest.raises(ValueError, match=r"forge\.url"):
        make("github.com")


def test_importing_it_loads_no_client() -> None:
    code = (
        "import sys, harness.adapters.github, harness.adapters.governor\n"
        "sys.exit(', '.join(m for m in ('github', 'requests', 'urllib3') if m in sys.modules) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_issue_values_have_no_client_in_them() -> None:
    with ScriptedForge(Says(r"/issues/1$", raw_issue(1))) as s:
        found = make(s.url).issue(1).unwrap()
    assert type(found) is Issue
