"""The forge port over plain values: for tests, the simulator and dry runs.

The one rule: it answers as the real one does, and fails only where a hook says so. `before` and `after` see
every call with its arguments and may answer an Err: raised before, nothing happened; after, it did and the
caller does not know.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from harness.adapters.memory.hub import Hub, Remote
from harness.core.result import Err, Ok, Result
from harness.domain import Account, Check, Comment, Gone, Issue, Published, Pull, Repository, Review
from harness.failures import Failure
from harness.ports import Clock

T = TypeVar("T")

BODY_LIMIT = 65_536
HIDDEN = "not found, or hidden from this credential"
Args = Mapping[str, Any]
Before = Callable[[str, Args], Err | None]
After = Callable[[str, Args, Any], Err | None]
Lag = Callable[[str, Args], float]
"""How many seconds old a list is: what was created since is not in it."""


def _no_fault(*_: Any) -> None:
    return None


def _no_lag(*_: Any) -> float:
    return 0.0


class MemoryForge:
    """One credential on a `Hub`. A hub that is not given is made, with `login` as its administrator."""

    def __init__(
        self,
        remote: Remote,
        clock: Clock,
        *,
        hub: Hub | None = None,
        repo: str = "acme/widget",
        login: str = "harness-bot",
        label: str = "harness",
        before: Before = _no_fault,
        after: After = _no_fault,
        lag: Lag = _no_lag,
    ) -> None:
        self.hub = hub if hub is not None else Hub(remote, clock, repo, people={login: "admin"})
        self.clock = clock
        self.login = login
        self.before = before
        self.after = after
        self.lag = lag
        self._label = label.casefold()
        self._counts = {"read": 0, "write": 0, "not_modified": 0}
        self._listed = -1
        self._lock = threading.RLock()

    def counts(self) -> Mapping[str, int]:
        return dict(self._counts)

    def _do(self, name: str, args: Args, work: Callable[[], Result[T]], write: bool = False) -> Result[T]:
        """One call: the hook before, the world brought up to date, the work, the hook after."""
        with self._lock:
            fault = self.before(name, args)
            if fault is not None:
                return fault
            self._counts["write" if write else "read"] += 1
            self.hub.settle()
            done = work()
            self.hub.settle()
            return self.after(name, args, done) or done

    def _born_before(self, name: str, args: Args) -> float:
        return self.clock.now() - self.lag(name, args)

    # ------------------------------------------------------------ who and where

    def whoami(self) -> Result[Account]:
        kind = self.hub.kinds.get(self.login, "User")
        return self._do("whoami", {}, lambda: Ok(Account(self.login, kind, ("repo",))))

    def repository(self) -> Result[Repository]:
        hub = self.hub

        def work() -> Result[Repository]:
            role, url = hub.role(self.login), hub.url()
            return Ok(Repository(hub.default_branch, role, hub.private, hub.merge_methods, f"{url}.git", url))

        return self._do("repository", {}, work)

    def permission(self, login: str) -> Result[str]:
        return self._do("permission", {"login": login}, lambda: Ok(self.hub.role(login)))

    # ------------------------------------------------------------ issues

    def issues(self) -> Result[tuple[Issue, ...]]:
        """As the real one: open issues that carry the label or one below it."""

        def work() -> Result[tuple[Issue, ...]]:
            if self._listed == self.hub.version:
                self._counts["not_modified"] += 1
            self._listed = self.hub.version
            at = self._born_before("issues", {})
            found = (i for _, i in sorted(self.hub.issues.items()) if i.open and i.created_at <= at)
            return Ok(tuple(i for i in found if self._is_ours(i)))

        return self._do("issues", {}, work)

    def _is_ours(self, issue: Issue) -> bool:
        names = (n.casefold() for n in issue.labels)
        mine = self._label
        return not mine or any(n == mine or n.startswith(mine + ":") for n in names)

    def issue(self, number: int) -> Result[Issue | Gone]:
        def work() -> Result[Issue | Gone]:
            if number in self.hub.pulls:
                return Ok(Gone("the number is a pull request's"))
            found = self.hub.issues.get(number) or self.hub.gone.get(number)
            return Ok(found if found is not None else Gone(HIDDEN))

        return self._do("issue", {"number": number}, work)

    def _there(self, number: int) -> Err | None:
        if number in self.hub.issues or number in self.hub.pulls:
            return None
        gone = self.hub.gone.get(number)
        return Err(Failure.GONE, gone.why if gone else HIDDEN)

    def comments(self, number: int) -> Result[tuple[Comment, ...]]:
        args = {"number": number}

        def work() -> Result[tuple[Comment, ...]]:
            missing = self._there(number)
            if missing is not None:
                return missing
            at = self._born_before("comments", args)
            found = (c for n, c in self.hub.comments.values() if n == number and c.created_at <= at)
            return Ok(tuple(sorted(found, key=lambda c: c.id)))

        return self._do("comments", args, work)

    def comment(self, number: int, body: str) -> Result[Comment]:
        def work() -> Result[Comment]:
            missing = self._there(number)
            if missing is not None:
                return missing
            issue = self.hub.issues.get(number)
            if issue is not None and issue.locked:
                return Err(Failure.POLICY_VIOLATION, "locked")
            if not body.strip():
                return Err(Failure.INTERNAL_ERROR, "the forge answered 422: body missing")
            new = self.hub.person_comments(self.login, number, body[:BODY_LIMIT])
            return Ok(self.hub.comments[new][1])

        return self._do("comment", {"number": number, "body": body}, work, write=True)

    def edit_comment(self, comment_id: int, body: str) -> Result[Comment]:
        def work() -> Result[Comment]:
            if comment_id not in self.hub.comments:
                return Err(Failure.GONE, HIDDEN)
            self.hub.person_edits_comment(comment_id, body[:BODY_LIMIT])
            return Ok(self.hub.comments[comment_id][1])

        return self._do("edit_comment", {"comment_id": comment_id, "body": body}, work, write=True)

    def close_issue(self, number: int, reason: str = "completed") -> Result[None]:
        def work() -> Result[None]:
            missing = self._there(number)
            if missing is not None:
                return missing
            if number in self.hub.pulls or self.hub.issues[number].open:
                self.hub.person_closes(number, reason)
            return Ok(None)

        return self._do("close_issue", {"number": number, "reason": reason}, work, write=True)

    # ------------------------------------------------------------ labels

    def ensure_labels(self, labels: Mapping[str, str]) -> Result[int]:
        def work() -> Result[int]:
            known = {n.casefold() for n in self.hub.labels}
            missing = {n: t for n, t in labels.items() if n.casefold() not in known}
            if missing:
                self.hub.labels.update(missing)
                self.hub.changed()
            return Ok(len(missing))

        return self._do("ensure_labels", {"labels": dict(labels)}, work, write=True)

    def add_labels(self, number: int, labels: Sequence[str]) -> Result[None]:
        def work() -> Result[None]:
            missing = self._there(number)
            if missing is not None:
                return missing
            if labels and number in self.hub.issues:
                self.hub.person_labels(number, *labels)
            return Ok(None)

        return self._do("add_labels", {"number": number, "labels": tuple(labels)}, work, write=True)

    def remove_label(self, number: int, label: str) -> Result[None]:
        def work() -> Result[None]:
            if number in self.hub.issues:
                self.hub.person_unlabels(number, label)
            return Ok(None)

        return self._do("remove_label", {"number": number, "label": label}, work, write=True)

    # ------------------------------------------------------------ pulls

    def pulls(self, head: str, base: str | None = None, state: str = "all") -> Result[tuple[Pull, ...]]:
        args = {"head": head, "base": base, "state": state}

        def work() -> Result[tuple[Pull, ...]]:
            at = self._born_before("pulls", args)
            found = [
                replace(p, mergeable=None)
                for n, p in sorted(self.hub.pulls.items(), reverse=True)
                if p.head == head and base in (None, p.base) and self.hub.opened_at[n] <= at
            ]
            wanted = {"open": (True,), "closed": (False,)}.get(state, (True, False))
            return Ok(tuple(p for p in found if p.open in wanted))

        return self._do("pulls", args, work)

    def pull(self, number: int) -> Result[Pull]:
        def work() -> Result[Pull]:
            found = self.hub.pulls.get(number)
            if found is None:
                return Err(Failure.GONE, HIDDEN)
            return Ok(self.hub.shown(found))

        return self._do("pull", {"number": number}, work)

    def open_pull(self, head: str, base: str, title: str, body: str, draft: bool = False) -> Result[Pull]:
        args = {"head": head, "base": base, "title": title, "body": body, "draft": draft}
        return self._do(
            "open_pull", args, lambda: self._open_pull(head, base, title, body, draft), write=True
        )

    def _open_pull(self, head: str, base: str, title: str, body: str, draft: bool) -> Result[Pull]:
        hub = self.hub
        head_sha, base_sha = hub.tip(head), hub.tip(base)
        if head_sha is None:
            return Err(Failure.FORGE_DOWN, f"the forge does not show head {head} yet")
        if base_sha is None:
            return Err(Failure.INTERNAL_ERROR, "the forge answered 422: base invalid")
        if any(p.open and p.head == head and p.base == base for p in hub.pulls.values()):
            return Err(Failure.CONFLICT, "already exists")
        if hub.remote.is_ancestor(head_sha, base_sha):
            return Err(Failure.AGENT_NO_CHANGES, "no commits between base and head")
        number = hub.next_number()
        hub.opened_at[number] = self.clock.now()
        hub.pulls[number] = Pull(
            number=number,
            head=head,
            base=base,
            head_sha=head_sha,
            open=True,
            merged=False,
            title=title,
            body=body[:BODY_LIMIT],
            draft=draft,
            author=self.login,
            url=hub.url("pull", number),
        )
        hub.changed()
        return Ok(hub.shown(hub.pulls[number]))

    def edit_pull(
        self, number: int, *, title: str | None = None, body: str | None = None, base: str | None = None,
        state: str | None = None,
    ) -> Result[Pull]:  # fmt: skip
        args = {"number": number, "title": title, "body": body, "base": base, "state": state}

        def work() -> Result[Pull]:
            pull = self.hub.pulls.get(number)
            if pull is None:
                return Err(Failure.GONE, HIDDEN)
            new = replace(
                pull,
                title=pull.title if title is None else title,
                body=pull.body if body is None else body[:BODY_LIMIT],
                base=pull.base if base is None else base,
                open=pull.open if state is None or pull.merged else state == "open",
            )
            self.hub.pulls[number] = new
            self.hub.changed()
            return Ok(self.hub.shown(new))

        return self._do("edit_pull", args, work, write=True)

    def merge_pull(self, number: int, sha: str, method: str, title: str, message: str) -> Result[str]:
        args = {"number": number, "sha": sha, "method": method, "title": title, "message": message}
        return self._do("merge_pull", args, lambda: self._merge(number, sha, method, title), write=True)

    def _merge(self, number: int, sha: str, method: str, title: str) -> Result[str]:
        pull = self.hub.pulls.get(number)
        if pull is None:
            return Err(Failure.GONE, HIDDEN)
        if pull.merged and pull.head_sha == sha:
            return Ok(pull.merge_sha)
        if pull.head_sha != sha:
            return Err(Failure.CONFLICT, f"the head has moved to {pull.head_sha}")
        if not pull.open:
            return Err(Failure.POLICY_VIOLATION, "the pull request is closed")
        if pull.draft:
            return Err(Failure.POLICY_VIOLATION, "Pull Request is still a draft")
        if method not in self.hub.merge_methods:
            return Err(Failure.POLICY_VIOLATION, f"{method} is not allowed on this repository")
        why = self.hub.forbidden(pull)
        if why:
            return Err(Failure.POLICY_VIOLATION, why)
        base = self.hub.tip(pull.base)
        new = self.hub.remote.merge(base, sha, title, self.clock.now()) if base is not None else None
        if new is None:
            return Err(Failure.CONFLICT, "Pull Request is not mergeable")
        self.hub.remote.set(f"refs/heads/{pull.base}", new)
        self.hub.pulls[number] = replace(pull, open=False, merged=True, merge_sha=new)
        self.hub.changed()
        return Ok(new)

    def reviews(self, number: int) -> Result[tuple[Review, ...]]:
        def work() -> Result[tuple[Review, ...]]:
            missing = self._there(number)
            return missing if missing is not None else Ok(tuple(self.hub.reviews.get(number, ())))

        return self._do("reviews", {"number": number}, work)

    # ------------------------------------------------------------ statuses and releases

    def set_status(self, sha: str, context: str, state: str, description: str) -> Result[None]:
        args = {"sha": sha, "context": context, "state": state, "description": description}

        def work() -> Result[None]:
            shown = "failure" if state == "error" else state
            self.hub.statuses.setdefault(sha, []).append(Check(context, shown))
            self.hub.changed()
            return Ok(None)

        return self._do("set_status", args, work, write=True)

    def checks(self, sha: str) -> Result[tuple[Check, ...]]:
        def work() -> Result[tuple[Check, ...]]:
            statuses, runs = self.hub.last_statuses(sha), self.hub.runs.get(sha, {})
            return Ok((*statuses.values(), *runs.values()))

        return self._do("checks", {"sha": sha}, work)

    def release(self, tag: str) -> Result[Published | None]:
        args = {"tag": tag}
        return self._do("release", args, lambda: Ok(self.hub.releases.get(tag)))

    def create_release(self, tag: str, name: str, body: str, target: str) -> Result[Published]:
        args = {"tag": tag, "name": name, "body": body, "target": target}

        def work() -> Result[Published]:
            if tag in self.hub.releases:
                return Err(Failure.CONFLICT, "already exists")
            made = Published(tag, self.hub.next_id(), self.hub.url("releases", tag))
            self.hub.releases[tag] = made
            self.hub.release_texts[tag] = {"name": name, "body": body, "target": target}
            if f"refs/tags/{tag}" not in self.hub.remote.refs:
                self.hub.remote.set(f"refs/tags/{tag}", self.hub.tip(target) or target)
            self.hub.changed()
            return Ok(made)

        return self._do("create_release", args, work, write=True)
