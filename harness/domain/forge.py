"""What the forge shows: issues, comments, pulls, reviews, checks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Account:
    """Who our credential is. `scopes` are the classic token's scopes,
    or empty where the forge does not tell."""

    login: str
    kind: str = "User"
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Repository:
    default_branch: str
    permission: str = "write"
    private: bool = False
    merge_methods: tuple[str, ...] = ("merge", "squash", "rebase")
    clone_url: str = ""
    html_url: str = ""


@dataclass(frozen=True, slots=True)
class Issue:
    """An issue as listed. `body` is never None; `labels` keep the forge's spelling. `seen_at`: when the
    answer that says so was asked for."""

    number: int
    title: str
    body: str = ""
    author: str = ""
    author_kind: str = "User"
    labels: tuple[str, ...] = ()
    open: bool = True
    locked: bool = False
    created_at: float = 0.0
    updated_at: float = 0.0
    url: str = ""
    seen_at: float = 0.0

    def has(self, label: str) -> bool:
        """Labels compare without regard to case, as the forge does."""
        return label.casefold() in {x.casefold() for x in self.labels}


@dataclass(frozen=True, slots=True)
class Gone:
    """The issue is not there any more: deleted, moved, or hidden from us."""

    why: str


@dataclass(frozen=True, slots=True)
class Comment:
    id: int
    author: str
    author_kind: str
    body: str
    created_at: float
    updated_at: float = 0.0
    url: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """A comment with what we know of its author. `name` and `instance` are those of a harness marker in it;
    `ours` says that the marker's MAC is ours: never that its login is. `trusted`: write access, and no
    bot."""

    id: int
    author: str
    body: str
    created_at: float
    name: str = ""
    instance: str = ""
    ours: bool = False
    trusted: bool = False


@dataclass(frozen=True, slots=True)
class Past:
    """What an issue's tickets that are over have come to: how many there were, the number that the last attempt of
    them bears, and how and when (epoch seconds) the newest ended. `busy`: one of them still has something to do."""

    tickets: int
    attempts: int
    state: str
    ended_at: float
    failure: str = ""
    detail: str = ""
    busy: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """An open issue that bears our label. `trusted`: somebody with write access asked for it. `past` is None where
    no ticket of it is over."""

    issue: Issue
    trusted: bool
    past: Past | None = None


@dataclass(frozen=True, slots=True)
class Pull:
    """`mergeable` is None while the forge is still computing it."""

    number: int
    head: str
    base: str
    head_sha: str
    open: bool
    merged: bool
    merge_sha: str = ""
    title: str = ""
    body: str = ""
    draft: bool = False
    mergeable: bool | None = None
    author: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class Review:
    id: int
    author: str
    state: str
    body: str
    sha: str
    at: float


@dataclass(frozen=True, slots=True)
class Check:
    """A commit status or a check run. `state` is success, pending, failure, cancelled or skipped."""

    name: str
    state: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class Published:
    """A release on the forge."""

    tag: str
    id: int
    url: str = ""
