"""What a forge in memory holds, and what people do there: the other half of `memory.forge`.

The one rule: it behaves as GitHub is documented to: pulls follow their branches, a base that came to hold a
head makes the pull merged, a deleted branch closes it. Everything is deterministic; time is handed in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from harness.domain import Check, Comment, Gone, Issue, Published, Pull, Review
from harness.ports import Clock

ROLES = ("none", "read", "triage", "write", "maintain", "admin")


class Remote(Protocol):
    """The forge's git: full ref name to SHA, and the little that must be known of commits."""

    @property
    def refs(self) -> Mapping[str, str]: ...
    def set(self, ref: str, sha: str) -> None: ...
    def is_ancestor(self, old: str, new: str) -> bool: ...
    def merge(self, base: str, head: str, message: str, at: float) -> str | None:
        """Make the merge commit of two commits; None when they conflict. Moves no ref."""
        ...


@dataclass(slots=True)
class Hub:
    """One repository. Shared by every `MemoryForge` on it, so it outlives a crashed director.

    `people` are logins with their permission, `kinds` those that are not users (Bot). `version` counts
    changes."""

    remote: Remote
    clock: Clock
    repo: str = "acme/widget"
    default_branch: str = "main"
    private: bool = False
    merge_methods: tuple[str, ...] = ("merge", "squash", "rebase")
    required_reviews: int = 0
    required_checks: tuple[str, ...] = ()
    people: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    issues: dict[int, Issue] = field(default_factory=dict)
    closed_why: dict[int, str] = field(default_factory=dict)
    gone: dict[int, Gone] = field(default_factory=dict)
    comments: dict[int, tuple[int, Comment]] = field(default_factory=dict)
    pulls: dict[int, Pull] = field(default_factory=dict)
    opened_at: dict[int, float] = field(default_factory=dict)
    reviews: dict[int, list[Review]] = field(default_factory=dict)
    statuses: dict[str, list[Check]] = field(default_factory=dict)
    runs: dict[str, dict[str, Check]] = field(default_factory=dict)
    releases: dict[str, Published] = field(default_factory=dict)
    release_texts: dict[str, Mapping[str, str]] = field(default_factory=dict)
    mergeable_delay_s: float = 0.0
    version: int = 0
    _next: int = 1
    _next_id: int = 1000
    _seen: dict[str, str] = field(default_factory=dict)
    _moved_at: dict[int, float] = field(default_factory=dict)
    _tried: dict[tuple[str, str], bool] = field(default_factory=dict)

    # ------------------------------------------------------------ numbers and times

    def next_number(self) -> int:
        """Issues and pulls share one row of numbers."""
        self._next += 1
        return self._next - 1

    def next_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def changed(self, number: int | None = None) -> None:
        self.version += 1
        if number is not None and number in self.issues:
            self.issues[number] = replace(self.issues[number], updated_at=self.clock.now())

    def url(self, *parts: object) -> str:
        return "/".join(["memory:/", self.repo, *(str(p) for p in parts)])

    def role(self, login: str) -> str:
        """A collaborator's permission; anybody known may read a public repository."""
        found = next((r for who, r in self.people.items() if who.casefold() == login.casefold()), None)
        return found or "none"

    def may(self, login: str, role: str) -> bool:
        return ROLES.index(self.role(login)) >= ROLES.index(role)

    def spelled(self, label: str) -> str:
        """The label as it is spelled here, made when it is missing."""
        known = next((n for n in self.labels if n.casefold() == label.casefold()), None)
        if known is None:
            self.labels[label] = ""
        return known or label

    # ------------------------------------------------------------ pulls follow their branches

    def tip(self, branch: str) -> str | None:
        return self.remote.refs.get(f"refs/heads/{branch}")

    def settle(self) -> None:
        """Bring the pulls in line with the refs. Comparing with those seen last makes it idempotent."""
        now = dict(self.remote.refs)
        if now == self._seen:
            return
        seen, self._seen = self._seen, now
        self.version += 1
        moved = {r for r in {**seen, **now} if seen.get(r) != now.get(r)}
        for number, pull in self.pulls.items():
            if pull.open and moved & {f"refs/heads/{pull.head}", f"refs/heads/{pull.base}"}:
                self.pulls[number] = self._judge(number, pull, seen)

    def _judge(self, number: int, pull: Pull, seen: Mapping[str, str]) -> Pull:
        head, base = self.tip(pull.head), self.tip(pull.base)
        base_before = seen.get(f"refs/heads/{pull.base}")
        if base != base_before or head != pull.head_sha:
            self._moved_at[number] = self.clock.now()
        now_at = head or pull.head_sha
        inside = base is not None and self.remote.is_ancestor(now_at, base)
        was_inside = base_before is not None and self.remote.is_ancestor(now_at, base_before)
        if inside and base is not None and base_before is not None and not was_inside:
            return replace(pull, head_sha=now_at, open=False, merged=True, merge_sha=base)
        if head is None or base is None or inside:
            return replace(pull, head_sha=now_at, open=False)
        return replace(pull, head_sha=now_at)

    def mergeable(self, pull: Pull) -> bool | None:
        """None once it is closed, and while "being computed"."""
        base = self.tip(pull.base)
        if not pull.open or base is None:
            return None
        if self.clock.now() < self._moved_at.get(pull.number, 0.0) + self.mergeable_delay_s:
            return None
        tried = (base, pull.head_sha)
        if tried not in self._tried:
            self._tried[tried] = self.remote.merge(*tried, "a try", 0.0) is not None
        return self._tried[tried]

    def shown(self, pull: Pull) -> Pull:
        return replace(pull, mergeable=self.mergeable(pull))

    def forbidden(self, pull: Pull) -> str:
        """Why the repository's rules forbid a merge now; "" when they do not."""
        last: dict[str, str] = {}
        for r in self.reviews.get(pull.number, ()):
            if r.state in ("APPROVED", "CHANGES_REQUESTED", "DISMISSED") and self.may(r.author, "write"):
                last[r.author] = r.state
        if self.required_reviews and "CHANGES_REQUESTED" in last.values():
            return "Changes have been requested by a reviewer with write access."
        approved = sum(1 for s in last.values() if s == "APPROVED")
        if approved < self.required_reviews:
            return f"At least {self.required_reviews} approving review is required."
        have = {**self.last_statuses(pull.head_sha), **self.runs.get(pull.head_sha, {})}
        for name in self.required_checks:
            if name not in have or have[name].state != "success":
                return f'Required status check "{name}" is expected.'
        return ""

    def last_statuses(self, sha: str) -> dict[str, Check]:
        """Of each context the newest: a forge keeps all that were ever set."""
        return {c.name: c for c in self.statuses.get(sha, ())}

    # ------------------------------------------------------------ people

    def person_opens(self, login: str, title: str, body: str = "", labels: tuple[str, ...] = ()) -> int:
        """A new issue; answers its number."""
        now, number = self.clock.now(), self.next_number()
        self.issues[number] = Issue(
            number=number,
            title=title,
            body=body,
            author=login,
            author_kind=self.kinds.get(login, "User"),
            labels=tuple(self.spelled(x) for x in labels),
            created_at=now,
            updated_at=now,
            url=self.url("issues", number),
        )
        self.changed()
        return number

    def person_edits(self, number: int, **fields: Any) -> None:
        """Change `title` or `body` of an issue."""
        self.issues[number] = replace(self.issues[number], **fields)
        self.changed(number)

    def person_labels(self, number: int, *labels: str) -> None:
        have = self.issues[number]
        new = tuple(self.spelled(x) for x in labels if not have.has(x))
        self.issues[number] = replace(have, labels=have.labels + new)
        self.changed(number)

    def person_unlabels(self, number: int, *labels: str) -> None:
        gone = {x.casefold() for x in labels}
        have = self.issues[number]
        kept = tuple(x for x in have.labels if x.casefold() not in gone)
        if kept != have.labels:
            self.issues[number] = replace(have, labels=kept)
            self.changed(number)

    def person_closes(self, number: int, reason: str = "completed") -> None:
        """Close an issue or a pull."""
        if number in self.pulls:
            self.pulls[number] = replace(self.pulls[number], open=False)
        else:
            self.issues[number] = replace(self.issues[number], open=False)
            self.closed_why[number] = reason
        self.changed(number)

    def person_reopens(self, number: int) -> None:
        if number in self.pulls:
            self.pulls[number] = replace(self.pulls[number], open=True)
        else:
            self.issues[number] = replace(self.issues[number], open=True)
            self.closed_why.pop(number, None)
        self.changed(number)

    def person_locks(self, number: int, locked: bool = True) -> None:
        self.issues[number] = replace(self.issues[number], locked=locked)
        self.changed(number)

    def person_deletes(self, number: int) -> None:
        del self.issues[number]
        self.gone[number] = Gone("deleted")
        self.changed()

    def person_transfers(self, number: int, to: str) -> None:
        """`to` as OWNER/NAME#N."""
        del self.issues[number]
        self.gone[number] = Gone(f"moved to {to}")
        self.changed()

    def person_comments(self, login: str, number: int, body: str) -> int:
        """A comment on an issue or pull; answers its id."""
        now, new = self.clock.now(), self.next_id()
        kind = self.kinds.get(login, "User")
        url = self.url("issues", f"{number}#issuecomment-{new}")
        self.comments[new] = (number, Comment(new, login, kind, body, now, now, url))
        self.changed(number)
        return new

    def person_edits_comment(self, comment_id: int, body: str) -> None:
        number, old = self.comments[comment_id]
        self.comments[comment_id] = (number, replace(old, body=body, updated_at=self.clock.now()))
        self.changed(number)

    def person_deletes_comment(self, comment_id: int) -> None:
        number, _ = self.comments.pop(comment_id)
        self.changed(number)

    def person_reviews(self, login: str, number: int, state: str, body: str = "") -> int:
        """`state` is APPROVED, CHANGES_REQUESTED, COMMENTED or DISMISSED; answers the review's id."""
        self.settle()
        new, sha = self.next_id(), self.pulls[number].head_sha
        review = Review(new, login, state, body, sha, self.clock.now())
        self.reviews.setdefault(number, []).append(review)
        self.changed()
        return new

    def check_runs(self, sha: str, name: str, state: str) -> None:
        """What a CI system reports of a commit."""
        self.runs.setdefault(sha, {})[name] = Check(name, state, self.url("runs", name))
        self.changed()
