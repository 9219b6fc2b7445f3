"""The release's states, events and data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from harness.core.journal import Record


class S(StrEnum):
    OPEN = "OPEN"
    GATING = "GATING"
    MERGING = "MERGING"
    RESOLVING = "RESOLVING"
    TAGGING = "TAGGING"
    PUBLISHING = "PUBLISHING"
    NEEDS_PERSON = "NEEDS_PERSON"
    PUBLISHED = "PUBLISHED"
    ABANDONED = "ABANDONED"


class E(StrEnum):
    SETTLED = "settled"
    GREEN = "green"
    RED = "red"
    MERGED = "merged"
    TREE_DIFFERS = "tree_differs"
    CONFLICT = "conflict"
    RESOLVED = "resolved"
    GAVE_UP = "gave_up"
    TAGGED = "tagged"
    TAG_CONFLICT = "tag_conflict"
    PUBLISHED = "published"
    PERSON_ACTED = "person_acted"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class Release:
    """The release's own data.

    `merge` is the commit that is to land on the base (sha, tree, base, head); `gated` the tree that the last
    green gate was about. `carried` is the commit of the branch that the merge brought to the base, `heads`
    what landed on the branch, by issue. `waits` says for whom it waits. `tip` and `base_tip` are the branches as last
    judged.
    """

    repo: str = ""
    version: str = ""
    branch: str = ""
    base: str = ""
    base_sha: str = ""
    tag: str = ""
    prepare: str = ""
    pull: int = 0
    body_hash: str = ""
    merge: Mapping[str, str] = field(default_factory=dict)
    gate: str = ""
    gate_tries: int = 0
    gated: str = ""
    merge_sha: str = ""
    carried: str = ""
    heads: Mapping[str, str] = field(default_factory=dict)
    waits: str = ""
    failure: str = ""
    detail: str = ""
    tip: str = ""
    base_tip: str = ""
    resolves: int = 0
    attempt: str = ""
    landed: tuple[int, ...] = ()
    reverted: tuple[int, ...] = ()
    control: int = 0
    api: bool = False
    url: str = ""


def fold(data: Release, record: Record) -> Release:
    body = record.body
    if record.kind == "transition":
        note = body.get("note", {})
        return replace(data, **note) if note else data
    if body.get("status") != "done":
        return data
    value = body.get("value") or {}
    if body["effect"] == "OpenPull":
        return replace(data, pull=value["number"])
    if body["effect"] == "BuildMerge":
        return replace(data, merge=value)
    if body["effect"] == "PublishRelease":
        return replace(data, url=value.get("url", ""))
    return data
