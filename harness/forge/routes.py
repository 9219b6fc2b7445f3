"""Which function answers which method and path. Data only: the first row that matches wins."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote

from harness.forge import (
    branches,
    comments,
    commits,
    issues,
    labels,
    limits,
    pulls,
    refs,
    releases,
    repos,
    reviews,
    searches,
    statuses,
)
from harness.forge.errors import ApiError, not_found
from harness.forge.state import Call, Reply

Handler = Callable[[Call], Reply]
R = "/repos/{owner}/{repo}"
ISSUE = R + "/issues/{number}"
PULL = R + "/pulls/{number}"

# A name ending in * also takes slashes: {ref*}. Others are one path segment.
TABLE: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/user", repos.current_user),
    ("GET", "/user/repos", repos.list_for_caller),
    ("POST", "/user/repos", repos.create_for_user),
    ("GET", "/users/{username}", repos.get_user),
    ("GET", "/rate_limit", limits.overview),
    ("GET", "/search/issues", searches.issues),
    ("GET", R, repos.get),
    ("PATCH", R, repos.update),
    ("GET", R + "/collaborators", repos.list_collaborators),
    ("GET", R + "/collaborators/{username}", repos.is_collaborator),
    ("PUT", R + "/collaborators/{username}", repos.add_collaborator),
    ("DELETE", R + "/collaborators/{username}", repos.remove_collaborator),
    ("GET", R + "/collaborators/{username}/permission", repos.permission),
    ("GET", R + "/assignees", repos.list_assignees),
    ("GET", R + "/issues", issues.list_for_repo),
    ("POST", R + "/issues", issues.create),
    ("GET", R + "/issues/comments", comments.list_for_repo),
    ("GET", R + "/issues/comments/{comment_id}", comments.get),
    ("PATCH", R + "/issues/comments/{comment_id}", comments.update),
    ("DELETE", R + "/issues/comments/{comment_id}", comments.delete),
    ("GET", R + "/issues/events", comments.repo_events),
    ("GET", ISSUE, issues.get),
    ("PATCH", ISSUE, issues.update),
    ("PUT", ISSUE + "/lock", issues.lock),
    ("DELETE", ISSUE + "/lock", issues.unlock),
    ("GET", ISSUE + "/comments", comments.list_for_issue),
    ("POST", ISSUE + "/comments", comments.create),
    ("GET", ISSUE + "/events", comments.events),
    ("GET", ISSUE + "/timeline", comments.timeline),
    ("GET", ISSUE + "/labels", labels.list_on_issue),
    ("POST", ISSUE + "/labels", labels.add_to_issue),
    ("PUT", ISSUE + "/labels", labels.set_on_issue),
    ("DELETE", ISSUE + "/labels", labels.clear_issue),
    ("DELETE", ISSUE + "/labels/{name*}", labels.remove_from_issue),
    ("POST", ISSUE + "/assignees", issues.add_assignees),
    ("DELETE", ISSUE + "/assignees", issues.remove_assignees),
    ("GET", R + "/labels", labels.list_for_repo),
    ("POST", R + "/labels", labels.create),
    ("GET", R + "/labels/{name*}", labels.get),
    ("PATCH", R + "/labels/{name*}", labels.update),
    ("DELETE", R + "/labels/{name*}", labels.delete),
    ("GET", R + "/branches", branches.list_branches),
    ("GET", R + "/branches/{branch*}/protection", branches.get_protection),
    ("PUT", R + "/branches/{branch*}/protection", branches.put_protection),
    ("DELETE", R + "/branches/{branch*}/protection", branches.delete_protection),
    ("GET", R + "/branches/{branch*}", branches.get_branch),
    ("GET", R + "/tags", refs.list_tags),
    ("GET", R + "/git/ref/{ref*}", refs.get_ref),
    ("GET", R + "/git/matching-refs/{ref*}", refs.matching_refs),
    ("GET", R + "/git/refs", refs.matching_refs),
    ("POST", R + "/git/refs", refs.create_ref),
    ("GET", R + "/git/refs/{ref*}", refs.get_ref),
    ("PATCH", R + "/git/refs/{ref*}", refs.update_ref),
    ("DELETE", R + "/git/refs/{ref*}", refs.delete_ref),
    ("POST", R + "/git/tags", refs.create_tag),
    ("GET", R + "/git/tags/{sha}", refs.get_tag),
    ("GET", R + "/git/commits/{sha}", commits.get_git),
    ("GET", R + "/git/blobs/{sha}", commits.raw_blob),
    ("GET", R + "/commits", commits.list_commits),
    ("GET", R + "/commits/{ref*}/status", statuses.combined),
    ("GET", R + "/commits/{ref*}/statuses", statuses.list_for_ref),
    ("GET", R + "/commits/{ref*}/check-runs", statuses.list_runs),
    ("GET", R + "/commits/{ref*}/pulls", commits.list_pulls),
    ("GET", R + "/commits/{ref*}", commits.get),
    ("GET", R + "/compare/{basehead*}", commits.compare),
    ("GET", R + "/contents", commits.get_contents),
    ("GET", R + "/contents/{path*}", commits.get_contents),
    ("PUT", R + "/contents/{path*}", commits.put_contents),
    ("POST", R + "/statuses/{sha}", statuses.create),
    ("GET", R + "/statuses/{ref*}", statuses.list_for_ref),
    ("POST", R + "/check-runs", statuses.create_run),
    ("GET", R + "/check-runs/{check_run_id}", statuses.get_run),
    ("PATCH", R + "/check-runs/{check_run_id}", statuses.update_run),
    ("GET", R + "/pulls", pulls.list_for_repo),
    ("POST", R + "/pulls", pulls.create),
    ("GET", PULL, pulls.get),
    ("PATCH", PULL, pulls.update),
    ("GET", PULL + "/files", pulls.list_files),
    ("GET", PULL + "/commits", pulls.list_commits),
    ("GET", PULL + "/merge", pulls.is_merged),
    ("PUT", PULL + "/merge", pulls.merge),
    ("PUT", PULL + "/update-branch", pulls.update_branch),
    ("GET", PULL + "/requested_reviewers", reviews.list_requested),
    ("POST", PULL + "/requested_reviewers", reviews.request_reviewers),
    ("DELETE", PULL + "/requested_reviewers", reviews.remove_reviewers),
    ("GET", PULL + "/reviews", reviews.list_reviews),
    ("POST", PULL + "/reviews", reviews.create_review),
    ("GET", PULL + "/reviews/{review_id}", reviews.get_review),
    ("PUT", PULL + "/reviews/{review_id}/dismissals", reviews.dismiss_review),
    ("GET", PULL + "/comments", reviews.list_comments),
    ("POST", PULL + "/comments", reviews.create_comment),
    ("GET", R + "/releases", releases.list_for_repo),
    ("POST", R + "/releases", releases.create),
    ("POST", R + "/releases/generate-notes", releases.generate_notes),
    ("GET", R + "/releases/latest", releases.latest),
    ("GET", R + "/releases/tags/{tag*}", releases.by_tag),
    ("GET", R + "/releases/{release_id}", releases.get),
    ("PATCH", R + "/releases/{release_id}", releases.update),
    ("DELETE", R + "/releases/{release_id}", releases.delete),
)


@dataclass(frozen=True)
class Route:
    method: str
    pattern: re.Pattern[str]
    handler: Handler


def _compile(method: str, template: str, handler: Handler) -> Route:
    parts = re.split(r"\{(\w+\*?)\}", template)
    text = ""
    for index, part in enumerate(parts):
        if index % 2 == 0:
            text += re.escape(part)
        elif part.endswith("*"):
            text += f"(?P<{part[:-1]}>.+)"
        else:
            text += f"(?P<{part}>[^/]+)"
    return Route(method, re.compile(text), handler)


ROUTES = tuple(_compile(*row) for row in TABLE)


def find(method: str, raw_path: str) -> tuple[Handler, dict[str, str]]:
    """The handler and the decoded parameters of a (still percent-encoded) path."""
    wanted = "GET" if method == "HEAD" else method
    known = False
    for route in ROUTES:
        found = route.pattern.fullmatch(raw_path)
        if found is None:
            continue
        if route.method == wanted:
            return route.handler, {name: unquote(value) for name, value in found.groupdict().items()}
        known = True
    if known and wanted not in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        raise ApiError(405, "Method not allowed")
    raise not_found()
