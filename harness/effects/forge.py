"""Changes to the forge: comments, labels, pulls, statuses, releases. Where lists lag, the effect says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.effects.base import Effect


@dataclass(frozen=True, slots=True)
class Comment(Effect):
    """The comment of an issue that bears our marker for `name`: written once, then edited in place."""

    issue: int
    name: str
    body: str
    port: ClassVar[str] = "forge"
    tells: ClassVar[bool] = True
    lags: ClassVar[bool] = True

    @property
    def key(self) -> str:
        return f"comment {self.issue} {self.name}"


@dataclass(frozen=True, slots=True)
class Label(Effect):
    issue: int
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    port: ClassVar[str] = "forge"
    tells: ClassVar[bool] = True

    @property
    def key(self) -> str:
        return f"labels {self.issue} +{','.join(self.add)} -{','.join(self.remove)}"


@dataclass(frozen=True, slots=True)
class CloseIssue(Effect):
    issue: int
    reason: str = "completed"
    port: ClassVar[str] = "forge"

    @property
    def key(self) -> str:
        return f"close {self.issue}"


@dataclass(frozen=True, slots=True)
class OpenPull(Effect):
    """`name` is what our marker in its body says; the key on the forge is head and base."""

    head: str
    base: str
    title: str
    body: str
    name: str
    draft: bool = False
    port: ClassVar[str] = "forge"
    lags: ClassVar[bool] = True

    @property
    def key(self) -> str:
        return f"pull {self.head} {self.base}"


@dataclass(frozen=True, slots=True)
class EditPull(Effect):
    """Empty fields are left alone."""

    number: int
    title: str = ""
    body: str = ""
    base: str = ""
    state: str = ""
    port: ClassVar[str] = "forge"

    @property
    def key(self) -> str:
        return f"edit pull {self.number}"


@dataclass(frozen=True, slots=True)
class MergePull(Effect):
    """Only where the forge lets nothing but its API merge: the head is pinned."""

    number: int
    sha: str
    method: str
    title: str
    port: ClassVar[str] = "forge"

    @property
    def key(self) -> str:
        return f"merge pull {self.number} {self.sha}"


@dataclass(frozen=True, slots=True)
class SetStatus(Effect):
    sha: str
    context: str
    state: str
    description: str
    port: ClassVar[str] = "forge"
    tells: ClassVar[bool] = True

    @property
    def key(self) -> str:
        return f"status {self.sha} {self.context} {self.state}"


@dataclass(frozen=True, slots=True)
class PublishRelease(Effect):
    tag: str
    title: str
    body: str
    sha: str
    port: ClassVar[str] = "forge"
    lags: ClassVar[bool] = True

    @property
    def key(self) -> str:
        return f"release {self.tag}"


@dataclass(frozen=True, slots=True)
class EnsureLabels(Effect):
    names: tuple[str, ...]
    port: ClassVar[str] = "forge"
    tells: ClassVar[bool] = True

    @property
    def key(self) -> str:
        return "labels of the repository"
