"""Dry runs: the real forge and git for reads, and every write recorded as "would have".

The one rule: nothing that would be seen outside is done. Own work (mirror, clones, merges) is done for real.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.core.result import Err, Ok, Result
from harness.domain import Comment, Gone, Published, Pull
from harness.failures import Failure

COMMENT_ID, PULL_NUMBER = 10**9, 10**6


@dataclass
class DryForge:
    """Reads go through; writes are kept in `would` and shown to later reads as if they had been done."""

    real: Any
    repo: DryRepo
    would: list[Mapping[str, Any]] = field(default_factory=list)
    _comments: dict[int, list[Comment]] = field(default_factory=dict)
    _labels: dict[int, tuple[set[str], set[str]]] = field(default_factory=dict)
    _pulls: dict[int, Pull] = field(default_factory=dict)
    _closed: set[int] = field(default_factory=set)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def _note(self, what: str, **args: Any) -> None:
        self.would.append({"what": what, **args})

    def _seen(self, issue: Any) -> Any:
        if isinstance(issue, Gone):
            return issue
        add, gone = self._labels.get(issue.number, (set(), set()))
        labels = tuple(x for x in issue.labels if x not in gone) + tuple(
            x for x in add if x not in issue.labels
        )
        return replace(issue, labels=labels, open=issue.open and issue.number not in self._closed)

    def issues(self) -> Result[Any]:
        found: Result[Any] = self.real.issues()
        return found.map(lambda issues: tuple(self._seen(i) for i in issues))

    def issue(self, number: int) -> Result[Any]:
        found: Result[Any] = self.real.issue(number)
        return found.map(self._seen)

    def comments(self, number: int) -> Result[tuple[Comment, ...]]:
        mine = tuple(self._comments.get(number, ()))
        if number in self._pulls:
            return Ok(mine)
        found: Result[tuple[Comment, ...]] = self.real.comments(number)
        return found.map(lambda theirs: (*theirs, *mine))

    def comment(self, number: int, body: str) -> Result[Comment]:
        self._note("comment", on=number, body=body)
        made = Comment(COMMENT_ID + len(self.would), "harness", "User", body, 0.0)
        self._comments.setdefault(number, []).append(made)
        return Ok(made)

    def edit_comment(self, comment_id: int, body: str) -> Result[Comment]:
        for number, found in self._comments.items():
            for i, c in enumerate(found):
                if c.id == comment_id:
                    self._note("edit comment", on=number, body=body)
                    found[i] = replace(c, body=body)
                    return Ok(found[i])
        self._note("edit comment", id=comment_id, body=body)
        return Ok(Comment(comment_id, "harness", "User", body, 0.0))

    def ensure_labels(self, labels: Mapping[str, str]) -> Result[int]:
        return Ok(0)

    def add_labels(self, number: int, labels: Sequence[str]) -> Result[None]:
        self._note("add labels", on=number, labels=list(labels))
        add, gone = self._labels.setdefault(number, (set(), set()))
        add.update(labels)
        gone.difference_update(labels)
        return Ok(None)

    def remove_label(self, number: int, label: str) -> Result[None]:
        self._note("remove label", on=number, labels=[label])
        add, gone = self._labels.setdefault(number, (set(), set()))
        gone.add(label)
        add.discard(label)
        return Ok(None)

    def close_issue(self, number: int, reason: str = "completed") -> Result[None]:
        self._note("close issue", on=number)
        self._closed.add(number)
        return Ok(None)

    def pulls(self, head: str, base: str | None = None, state: str = "all") -> Result[tuple[Pull, ...]]:
        mine = tuple(p for p in self._pulls.values() if p.head == head and base in (None, p.base))
        return Ok(mine) if mine else self.real.pulls(head, base, state)

    def pull(self, number: int) -> Result[Pull]:
        return Ok(self._pulls[number]) if number in self._pulls else self.real.pull(number)

    def reviews(self, number: int) -> Result[Any]:
        return Ok(()) if number in self._pulls else self.real.reviews(number)

    def open_pull(self, head: str, base: str, title: str, body: str, draft: bool = False) -> Result[Pull]:
        self._note("open pull", head=head, base=base, title=title, body=body)
        made = Pull(
            PULL_NUMBER + len(self._pulls),
            head,
            base,
            self.repo.moved.get(f"refs/heads/{head}", ""),
            True,
            False,
            title=title,
            body=body,
            draft=draft,
        )
        self._pulls[made.number] = made
        return Ok(made)

    def edit_pull(self, number: int, **fields: Any) -> Result[Pull]:
        changed = {k: v for k, v in fields.items() if v is not None}
        self._note("edit pull", number=number, **changed)
        if number not in self._pulls:
            found: Result[Pull] = self.real.pull(number)
            return found
        state = changed.pop("state", None)
        pull = replace(self._pulls[number], **changed)
        self._pulls[number] = replace(pull, open=state == "open") if state else pull
        return Ok(self._pulls[number])

    def merge_pull(self, number: int, sha: str, method: str, title: str, message: str) -> Result[str]:
        self._note("merge pull", number=number, sha=sha)
        return Err(Failure.POLICY_VIOLATION, "a dry run merges nothing")

    def set_status(self, sha: str, context: str, state: str, description: str) -> Result[None]:
        self._note("set status", sha=sha, context=context, state=state)
        return Ok(None)

    def create_release(self, tag: str, name: str, body: str, target: str) -> Result[Published]:
        self._note("create release", tag=tag, body=body)
        return Ok(Published(tag, 0))


@dataclass
class DryRepo:
    """The mirror and its merges are ours; a push moves a ref in memory only, and later reads see it moved."""

    real: Any
    moved: dict[str, str] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def remote_refs(self) -> Result[Mapping[str, str]]:
        found: Result[Mapping[str, str]] = self.real.remote_refs()
        return found.map(self._over)

    def fetch(self, refs: Sequence[str] = ()) -> Result[Mapping[str, str]]:
        found: Result[Mapping[str, str]] = self.real.fetch(refs)
        return found.map(self._over)

    def _over(self, refs: Mapping[str, str]) -> Mapping[str, str]:
        seen = {**refs, **self.moved}
        return {k: v for k, v in seen.items() if v}

    def push(self, ref: str, sha: str, expect: str | None) -> Result[str]:
        now = self.remote_refs()
        if not isinstance(now, Ok):
            return now if isinstance(now, Err) else Err(Failure.FORGE_DOWN, now.message)
        there = now.value.get(ref, "")
        if there != sha and there != (expect or ""):
            return Err(Failure.CONFLICT, f"{ref} is at {there[:12]}, not at {(expect or 'nothing')[:12]}")
        self.moved[ref] = sha
        return Ok(sha)
