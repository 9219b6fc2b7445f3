"""The body of a request and the types of its fields, in one table: a name means one thing everywhere.

The one rule: what passes here can be used without asking for its type again (null is as good as absent).
"""

from __future__ import annotations

import json
import re
from typing import Any

from harness.forge.errors import ApiError

_TEXT = [
    "title", "body", "state", "state_reason", "name", "new_name", "color", "description", "head",
    "base", "sha", "ref", "object", "type", "tag", "message", "content", "branch", "context",
    "target_url", "tag_name", "target_commitish", "previous_tag_name", "event", "commit_id", "path",
    "side", "merge_method", "commit_title", "commit_message", "permission", "head_sha", "status",
    "conclusion", "default_branch", "lock_reason", "expected_head_sha", "details_url", "external_id",
    "started_at", "completed_at", "email", "date",
]  # fmt: skip
_FLAG = [
    "draft", "force", "prerelease", "private", "has_issues", "archived", "allow_merge_commit",
    "allow_squash_merge", "allow_rebase_merge", "delete_branch_on_merge", "allow_auto_merge",
    "enforce_admins", "allow_force_pushes", "allow_deletions", "lock_branch", "strict",
    "generate_release_notes", "maintainer_can_modify",
]  # fmt: skip
_NUMBER = ["line", "position", "in_reply_to", "required_approving_review_count"]
_NAMES = ["labels", "assignees", "assignee", "reviewers", "team_reviewers", "contexts"]
_OBJECTS = ["comments", "checks", "annotations"]
_OBJECT = [
    "tagger",
    "author",
    "committer",
    "output",
    "required_status_checks",
    "required_pull_request_reviews",
]
KINDS = {
    **dict.fromkeys(_TEXT, "string"),
    **dict.fromkeys(_FLAG, "boolean"),
    **dict.fromkeys(_NUMBER, "integer"),
    **dict.fromkeys(_NAMES, "list of names"),
    **dict.fromkeys(_OBJECTS, "list of objects"),
    **dict.fromkeys(_OBJECT, "object"),
}
INTEGER_LIMIT = 2**53
_UNCLEAN = re.compile("[\x00\ud800-\udfff]")


def parse(raw: bytes) -> dict[str, Any]:
    """The JSON object of a request; an empty body is an empty object, an array one of labels."""
    if not raw.strip():
        return {}
    try:
        value = json.loads(raw)
    except ValueError as error:
        raise ApiError(400, "Problems parsing JSON") from error
    if isinstance(value, list):
        value = {"labels": value}  # only labels may be sent as a bare array
    if not isinstance(value, dict):
        raise ApiError(400, "Body should be a JSON object")
    _check(value)
    return value


def clean(text: str) -> bool:
    """Whether a text can be stored, sent and given to git: no NUL, no half of a surrogate pair."""
    return _UNCLEAN.search(text) is None


def _check(fields: dict[str, Any], depth: int = 0) -> None:
    for name, value in fields.items():
        kind = KINDS.get(name)
        if value is None or kind is None:
            continue
        if not _is(kind, value) or depth > 4:
            shown = json.dumps(value)[:80]
            raise ApiError(422, f"Invalid request.\n\nFor 'properties/{name}', {shown} is not a {kind}.")
        if isinstance(value, dict):
            _check(value, depth + 1)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, dict):
                    _check(item, depth + 1)


def _is(kind: str, value: Any) -> bool:
    if kind == "string":
        return isinstance(value, str) and clean(value)
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < INTEGER_LIMIT
    if kind == "object":
        return isinstance(value, dict)
    if kind == "list of objects":
        return isinstance(value, list) and all(isinstance(item, dict) for item in value)
    items = value if isinstance(value, list) else [value]
    return all(_is_name(item) for item in items)


def _is_name(item: Any) -> bool:
    if isinstance(item, dict):
        item = item.get("name")
    return isinstance(item, str) and clean(item)
