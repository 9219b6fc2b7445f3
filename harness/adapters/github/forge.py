"""GitHubForge: the operations of the forge port.

The one rule: each operation is one request (or one list) whose answers are told apart by `refusals`; what the
operation itself knows better (a label that is already gone, a 405 that has several reasons) is said here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

from harness.adapters.github import refusals, shapes
from harness.adapters.github.bodies import SHORT_LIMIT, fit_body
from harness.adapters.github.calls import Calls, with_query
from harness.adapters.github.lag import Recent
from harness.adapters.github.listing import OpenIssues, Remember
from harness.adapters.github.wire import Answer, Wire
from harness.adapters.governor import Governor
from harness.core.result import Err, Ok, Result
from harness.domain import Account, Check, Comment, Gone, Issue, Published, Pull, Repository, Review
from harness.failures import Failure
from harness.ports import Clock

T = TypeVar("T")

PUBLIC_API = "https://api.github.com"
MERGEABLE_RETRY_S = 5.0
NO_RUNS_S = 3600.0
TITLE_LIMIT = 256
STATUS_LIMIT = 140
LABEL_TEXT_LIMIT = 100
LABEL_COLOR = "5319e7"
_FORBIDDEN = re.compile(
    r"not allowed|required|protected|approving review|status check|is expected|draft|rule violation",
    re.IGNORECASE,
)
_CONFLICT = re.compile(r"conflict", re.IGNORECASE)


class GitHubForge:
    """One repository on one forge.

    `url` is the root of the REST API (https://github.com is taken for its API), `token` gives the credential
    for each request, and `renew` a new one after a 401 (`token` itself when it is not given); the same
    credential again is not tried twice. `label` picks the issues that `issues()` lists. `remember` keeps that
    list over a restart."""

    def __init__(
        self,
        url: str,
        repo: str,
        token: Callable[[], str],
        governor: Governor,
        clock: Clock,
        *,
        label: str = "harness",
        timeout_s: float = 20.0,
        remember: Remember | None = None,
        renew: Callable[[], str] | None = None,
    ) -> None:
        owner, _, name = repo.strip("/").partition("/")
        if not owner or not name or "/" in name:
            raise ValueError(f"forge.repo {repo!r} is not OWNER/NAME")
        root = PUBLIC_API if url.rstrip("/") in ("", "https://github.com", "https://www.github.com") else url
        self._owner = owner
        self._path = f"/repos/{quote(owner, safe='')}/{quote(name, safe='')}"
        self._clock = clock
        self._calls = Calls(Wire(root, timeout_s), governor, clock, token, renew)
        self._open = OpenIssues(self._calls, f"{self._path}/issues", label, clock, remember)
        self._recent = Recent(clock)
        self._no_runs_until = 0.0

    def counts(self) -> Mapping[str, int]:
        return self._calls.counts()

    # ------------------------------------------------------------ who and where

    def whoami(self) -> Result[Account]:
        """The credential's account. An App's installation has no user: its login is "" and its kind Bot."""
        asked = self._calls.ask("GET", "/user", priority=1)
        if not isinstance(asked, Ok):
            return asked
        answer = asked.value
        if answer.status == 403 and "not accessible by integration" in refusals.words(answer):
            return Ok(Account("", "Bot"))
        scopes = answer.headers.get("x-oauth-scopes", "")
        return self._calls.read_written(answer, lambda raw: shapes.account(raw, scopes))

    def repository(self) -> Result[Repository]:
        r = self._calls.get(self._path, shapes.repository, priority=1)
        if isinstance(r, Err) and r.failure == Failure.GONE:
            return Err(
                Failure.AUTH_FAILED, f"{self._path[7:]} is not there, or this credential may not see it"
            )
        return r.map(lambda page: page.value)

    def permission(self, login: str) -> Result[str]:
        """Somebody who is no collaborator, or no account at all, has "none"."""
        path = f"{self._path}/collaborators/{quote(login, safe='')}/permission"
        r = self._calls.get(path, _permission_in, priority=1)
        if isinstance(r, Err) and r.failure == Failure.GONE:
            return self.repository().map(lambda _: "none")
        return r.map(lambda page: page.value)

    # ------------------------------------------------------------ issues

    def issues(self) -> Result[tuple[Issue, ...]]:
        """Open issues that carry our label or one below it ("harness", "harness:working"), by number; never
        pulls. Complete, or an Err; an unchanged world costs one 304."""
        return self._open.read()

    def issue(self, number: int) -> Result[Issue | Gone]:
        asked = self._calls.ask("GET", f"{self._path}/issues/{number}")
        if not isinstance(asked, Ok):
            return asked
        answer = asked.value
        gone = self._gone(answer)
        if gone is not None:
            if isinstance(gone, Ok):
                self._open.forget(number)
            return gone
        r = self._calls.read_written(answer, _issue_or_pull)
        if isinstance(r, Ok) and isinstance(r.value, Issue):
            self._open.note(r.value)
        return r

    def _gone(self, answer: Answer) -> Ok[Gone] | Err | None:
        """Whether an issue's answer says that it is gone. A 301 is a moved issue, unless the repository
        itself has moved: then every address answers so. A 404 is a deleted one, unless the repository itself is
        hidden from this credential."""
        if answer.status == 410:
            return Ok(Gone("deleted"))
        if answer.status == 404:
            seen = self.repository()
            if isinstance(seen, Ok):
                return Ok(Gone("not found: deleted, or hidden from this credential"))
            return seen if isinstance(seen, Err) else None
        if answer.status != 301:
            return None
        whole = self._calls.ask("GET", self._path)
        if not isinstance(whole, Ok):
            return whole if isinstance(whole, Err) else None
        if whole.value.status == 301:
            return refusals.refuse(whole.value, False, self._clock.now())
        return Ok(Gone(f"moved to {answer.headers.get('location', 'another repository')}"))

    def comments(self, number: int) -> Result[tuple[Comment, ...]]:
        path = with_query(f"{self._path}/issues/{number}/comments", per_page=100)
        return self._calls.get_all(path, lambda raw: tuple(shapes.comment(x) for x in raw))

    def comment(self, number: int, body: str) -> Result[Comment]:
        """Err(POLICY_VIOLATION, "locked") where the conversation is locked; GONE where the issue is gone."""
        r = self._write_text("POST", f"{self._path}/issues/{number}/comments", {"body": body}, shapes.comment)
        if isinstance(r, Ok):
            self._recent.born(f"comment {r.value.id}")
        return r

    def edit_comment(self, comment_id: int, body: str) -> Result[Comment]:
        path = f"{self._path}/issues/comments/{comment_id}"
        r = self._write_text("PATCH", path, {"body": body}, shapes.comment)
        return self._recent.unless_young(f"comment {comment_id}", r)

    def close_issue(self, number: int, reason: str = "completed") -> Result[None]:
        body = {"state": "closed", "state_reason": reason}
        return self._calls.put("PATCH", f"{self._path}/issues/{number}", body, _nothing)

    # ------------------------------------------------------------ labels

    def ensure_labels(self, labels: Mapping[str, str]) -> Result[int]:
        """Compares without regard to case, as the forge does. Stops at the first failure; the next call
        goes on from there."""
        path = with_query(f"{self._path}/labels", per_page=100)
        have = self._calls.get_all(path, lambda raw: shapes.label_names(raw))
        if not isinstance(have, Ok):
            return have
        known = {n.casefold() for n in have.value}
        made = 0
        for name, text in labels.items():
            if name.casefold() in known:
                continue
            body = {"name": name, "color": LABEL_COLOR, "description": text[:LABEL_TEXT_LIMIT]}
            r = self._calls.put("POST", f"{self._path}/labels", body, _nothing, priority=1)
            if isinstance(r, Ok):
                made += 1
            elif not (isinstance(r, Err) and r.detail == refusals.EXISTS):
                return r
            known.add(name.casefold())
        return Ok(made)

    def add_labels(self, number: int, labels: Sequence[str]) -> Result[None]:
        if not labels:
            return Ok(None)
        path = f"{self._path}/issues/{number}/labels"
        return self._calls.put("POST", path, {"labels": list(labels)}, _nothing, priority=1)

    def remove_label(self, number: int, label: str) -> Result[None]:
        """A label that is not there (404) is what was asked for."""
        path = f"{self._path}/issues/{number}/labels/{quote(label, safe='')}"
        asked = self._calls.ask("DELETE", path, priority=1)
        if isinstance(asked, Ok) and asked.value.status == 404:
            return Ok(None)
        return self._calls.read_written(asked.value, _nothing) if isinstance(asked, Ok) else asked

    # ------------------------------------------------------------ pulls

    def pulls(self, head: str, base: str | None = None, state: str = "all") -> Result[tuple[Pull, ...]]:
        """Pulls from our branch `head` (never a fork's), newest first. Lists do not tell `mergeable`."""
        path = with_query(
            f"{self._path}/pulls", head=f"{self._owner}:{head}", base=base, state=state, per_page=100
        )
        r = self._calls.get_all(path, lambda raw: tuple(shapes.pull(x) for x in raw))
        return r.map(lambda found: tuple(p for p in found if p.head == head and base in (None, p.base)))

    def pull(self, number: int) -> Result[Pull]:
        """Never from memory: `mergeable` may be computed without a new ETag."""
        asked = self._calls.ask("GET", f"{self._path}/pulls/{number}")
        if not isinstance(asked, Ok):
            return asked
        return self._recent.unless_young(f"pull {number}", self._calls.read_written(asked.value, shapes.pull))

    def open_pull(self, head: str, base: str, title: str, body: str, draft: bool = False) -> Result[Pull]:
        """Err(CONFLICT, "already exists") when a pull of this head and base is open: whoever performs
        looks it up by its key and adopts it if it bears our marker. Err(AGENT_NO_CHANGES) when there is
        nothing between. Err(FORGE_DOWN) while the forge does not see a branch that was pushed just now."""
        wanted = {"head": head, "base": base, "title": title[:TITLE_LIMIT], "draft": draft, "body": body}
        asked = self._ask_text("POST", f"{self._path}/pulls", wanted)
        if not isinstance(asked, Ok):
            return asked
        end = refusals.unseen_end(asked.value)
        if end:
            branch = head if end == "head" else base
            return self._recent.lagging(f"{end} {branch}", f"the branch {branch} is not on the forge")
        r = self._calls.read_written(asked.value, shapes.pull)
        if isinstance(r, Ok):
            self._recent.born(f"pull {r.value.number}")
        return r

    def edit_pull(
        self, number: int, *, title: str | None = None, body: str | None = None, base: str | None = None,
        state: str | None = None,
    ) -> Result[Pull]:  # fmt: skip
        wanted: dict[str, Any] = {"base": base, "state": state, "body": body}
        wanted["title"] = title[:TITLE_LIMIT] if title is not None else None
        change = {k: v for k, v in wanted.items() if v is not None}
        if not change:
            return self.pull(number)
        r = self._write_text("PATCH", f"{self._path}/pulls/{number}", change, shapes.pull)
        return self._recent.unless_young(f"pull {number}", r)

    def merge_pull(self, number: int, sha: str, method: str, title: str, message: str) -> Result[str]:
        """See the port. Already merged at this head is Ok with its merge SHA."""
        body = {"sha": sha, "merge_method": method, "commit_title": title, "commit_message": message}
        asked = self._calls.ask("PUT", f"{self._path}/pulls/{number}/merge", body=body, priority=0)
        if not isinstance(asked, Ok):
            return asked
        if asked.value.status == 405:
            return self._why_not(number, sha, asked.value)
        return self._calls.read_written(asked.value, _merge_sha)

    def _why_not(self, number: int, sha: str, answer: Answer) -> Result[str]:
        """A 405 on merge has many reasons. Where the wording does not tell, the pull itself does."""
        said = refusals.words(answer)
        known = refusals.refuse(answer, True, self._clock.now())
        if known.failure == Failure.FORGE_DOWN or _CONFLICT.search(said):
            return known
        if _FORBIDDEN.search(said):
            return Err(Failure.POLICY_VIOLATION, said)
        r = self.pull(number)
        if not isinstance(r, Ok):
            return r
        pull = r.value
        if pull.merged:
            if pull.head_sha == sha:
                return Ok(pull.merge_sha)
            return Err(Failure.CONFLICT, f"merged already, at {pull.head_sha}")
        if pull.head_sha != sha:
            return Err(Failure.CONFLICT, f"the head has moved to {pull.head_sha}")
        if not pull.open:
            return Err(Failure.POLICY_VIOLATION, "the pull request is closed")
        if pull.mergeable is False:
            return Err(Failure.CONFLICT, said or "not mergeable")
        if pull.mergeable is None:
            not_before = self._clock.now() + MERGEABLE_RETRY_S
            return Err(
                Failure.FORGE_DOWN, "the forge is still computing whether it can merge", not_before=not_before
            )
        return Err(Failure.POLICY_VIOLATION, said or "a rule of the repository forbids the merge")

    def reviews(self, number: int) -> Result[tuple[Review, ...]]:
        path = with_query(f"{self._path}/pulls/{number}/reviews", per_page=100)
        return self._calls.get_all(path, lambda raw: tuple(shapes.review(x) for x in raw))

    # ------------------------------------------------------------ statuses and releases

    def set_status(self, sha: str, context: str, state: str, description: str) -> Result[None]:
        body = {"context": context, "state": state, "description": description[:STATUS_LIMIT]}
        r = self._calls.put("POST", f"{self._path}/statuses/{sha}", body, _nothing, priority=1)
        return self._recent.unless_unseen(sha, r)

    def checks(self, sha: str) -> Result[tuple[Check, ...]]:
        """A personal token may not read check runs (403): then statuses are all there is to see, and the runs
        are asked for again after an hour."""
        path = with_query(f"{self._path}/commits/{quote(sha, safe='')}/status", per_page=100)
        statuses = self._calls.get_all(
            path, lambda raw: tuple(shapes.status_check(x) for x in raw["statuses"])
        )
        if not isinstance(statuses, Ok):
            return self._recent.unless_unseen(sha, statuses)
        if self._clock.now() < self._no_runs_until:
            return statuses
        path = with_query(f"{self._path}/commits/{quote(sha, safe='')}/check-runs", per_page=100)
        runs = self._calls.get_all(path, lambda raw: tuple(shapes.run_check(x) for x in raw["check_runs"]))
        if isinstance(runs, Err) and runs.failure == Failure.AUTH_FAILED:
            self._no_runs_until = self._clock.now() + NO_RUNS_S
            return statuses
        return runs.map(lambda found: (*statuses.value, *found))

    def release(self, tag: str) -> Result[Published | None]:
        asked = self._calls.ask("GET", f"{self._path}/releases/tags/{quote(tag, safe='')}")
        if not isinstance(asked, Ok):
            return asked
        if asked.value.status == 404:
            lag = self._recent.lag(f"release {tag}")
            return lag if lag is not None else Ok(None)
        return self._calls.read_written(asked.value, shapes.published)

    def create_release(self, tag: str, name: str, body: str, target: str) -> Result[Published]:
        """Err(CONFLICT, "already exists") when this tag has a release."""
        wanted = {"tag_name": tag, "name": name, "target_commitish": target, "body": body}
        r = self._write_text("POST", f"{self._path}/releases", wanted, shapes.published)
        if isinstance(r, Ok):
            self._recent.born(f"release {tag}")
        return r

    # ------------------------------------------------------------ texts

    def _ask_text(self, verb: str, path: str, wanted: Mapping[str, Any]) -> Result[Answer]:
        """A write with a text, cut to what the forge takes; once more and shorter when it refuses that
        too."""
        if "body" not in wanted:
            return self._calls.ask(verb, path, body=dict(wanted), priority=0)
        text = fit_body(str(wanted["body"]))
        asked = self._calls.ask(verb, path, body={**wanted, "body": text}, priority=0)
        if isinstance(asked, Ok) and refusals.too_long(asked.value) and len(text) > SHORT_LIMIT:
            short = fit_body(text, SHORT_LIMIT)
            return self._calls.ask(verb, path, body={**wanted, "body": short}, priority=0)
        return asked

    def _write_text(
        self, verb: str, path: str, wanted: Mapping[str, Any], parse: Callable[[Any], T]
    ) -> Result[T]:
        asked = self._ask_text(verb, path, wanted)
        return self._calls.read_written(asked.value, parse) if isinstance(asked, Ok) else asked


def _nothing(_: Any) -> None:
    return None


def _permission_in(raw: Any) -> str:
    """`role_name` is finer, but may be a role of somebody's own making; `permission` is the coarse one."""
    role = str(raw.get("role_name") or "")
    known = ("admin", "maintain", "write", "triage", "read", "none")
    return role if role in known else str(raw["permission"])


def _issue_or_pull(raw: Any) -> Issue | Gone:
    return Gone("the number is a pull request's") if shapes.is_pull(raw) else shapes.issue(raw)


def _merge_sha(raw: Any) -> str:
    return str(raw["sha"])
