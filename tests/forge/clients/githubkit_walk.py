"""Run by githubkit's own interpreter: call every operation; its strict models judge every answer.

Arguments: base URL, owner/name, token of a writer, token of an app, token of the owner, SHA on branch
"walk" (pushed beforehand, not in the default branch).
Prints one JSON object: {"checked": N, "failed": [...]}.
"""

import json
import sys
from typing import Any

from githubkit import GitHub
from githubkit.exception import RequestFailed
from pydantic import ValidationError

base, full_name, writer, app, admin, sha = sys.argv[1:7]
owner, repo = full_name.split("/")
at = {"owner": owner, "repo": repo}
gh, bot, boss = (
    GitHub(token, base_url=base, http_cache=False, auto_retry=False) for token in (writer, app, admin)
)
failed: list[str] = []
checked = 0


def check(name: str, answer: Any) -> Any:
    """Parse the answer with the strict model of its operation."""
    global checked
    checked += 1
    try:
        return answer.parsed_data if answer.status_code != 204 else None
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()[:8]]
        failed.append(f"{name}: {'; '.join(lines)}")
        return None


def expect_status(name: str, status: int, call: Any) -> None:
    global checked
    checked += 1
    try:
        call()
    except RequestFailed as error:
        if error.response.status_code == status:
            return
        failed.append(f"{name}: {error.response.status_code} instead of {status}")
        return
    failed.append(f"{name}: no error instead of {status}")


def issues() -> None:
    rest = gh.rest.issues
    made = check(
        "issues/create", rest.create(**at, title="Walk", body="b", labels=["bug"], assignees=["maker"])
    )
    n = {"issue_number": made.number}
    # GitHub's description of this list leaves out "closed", which it does send: so ask before that
    check("issues/list-events", rest.list_events(**at, **n))
    check("issues/list-for-repo", rest.list_for_repo(**at, state="all"))
    check("issues/get", rest.get(**at, **n))
    check("issues/update", rest.update(**at, **n, state="closed", state_reason="completed"))
    check("issues/update", rest.update(**at, **n, state="open"))
    comment = check("issues/create-comment", rest.create_comment(**at, **n, body="hello"))
    check("issues/list-comments", rest.list_comments(**at, **n))
    check("issues/list-comments-for-repo", rest.list_comments_for_repo(**at))
    check("issues/get-comment", rest.get_comment(**at, comment_id=comment.id))
    check("issues/update-comment", rest.update_comment(**at, comment_id=comment.id, body="bye"))
    check("issues/create-label", rest.create_label(**at, name="walk", color="00ff00", description="d"))
    check("issues/get-label", rest.get_label(**at, name="walk"))
    check("issues/list-labels-for-repo", rest.list_labels_for_repo(**at))
    check("issues/add-labels", rest.add_labels(**at, **n, data={"labels": ["walk"]}))
    check("issues/set-labels", rest.set_labels(**at, **n, data={"labels": ["walk", "bug"]}))
    check("issues/list-labels-on-issue", rest.list_labels_on_issue(**at, **n))
    check("issues/remove-label", rest.remove_label(**at, **n, name="bug"))
    check("issues/add-assignees", rest.add_assignees(**at, **n, assignees=["second"]))
    check("issues/remove-assignees", rest.remove_assignees(**at, **n, assignees=["second"]))
    check("issues/lock", rest.lock(**at, **n, data={"lock_reason": "resolved"}))
    check("issues/unlock", rest.unlock(**at, **n))
    check("issues/list-events-for-repo", rest.list_events_for_repo(**at))
    check("issues/list-events-for-timeline", rest.list_events_for_timeline(**at, **n))
    check("issues/list-assignees", rest.list_assignees(**at))
    check("issues/delete-comment", rest.delete_comment(**at, comment_id=comment.id))
    check(
        "search/issues-and-pull-requests", gh.rest.search.issues_and_pull_requests(q=f"repo:{full_name} walk")
    )
    expect_status("issues/get of none", 404, lambda: rest.get(**at, issue_number=99999))


def repositories() -> None:
    rest = gh.rest.repos
    check("users/get-authenticated", gh.rest.users.get_authenticated())
    check("users/get-by-username", gh.rest.users.get_by_username("reader"))
    check("rate-limit/get", gh.rest.rate_limit.get())
    check("repos/get", rest.get(**at))
    check("repos/list-branches", rest.list_branches(**at))
    check("repos/get-branch", rest.get_branch(**at, branch="main"))
    check("repos/list-commits", rest.list_commits(**at))
    check("repos/get-commit", rest.get_commit(**at, ref="walk"))
    check("repos/compare", rest.compare_commits(**at, basehead="main...walk"))
    check("repos/list-collaborators", rest.list_collaborators(**at))
    check("repos/permission", rest.get_collaborator_permission_level(**at, username="reader"))
    check("repos/get-content", rest.get_content(**at, path="README.md"))
    check("repos/get-content of a folder", rest.get_content(**at, path="src"))
    written = {"path": "docs/new.md", "message": "Add", "content": "aGk=", "branch": "walk2"}
    check("git/create-ref", gh.rest.git.create_ref(**at, ref="refs/heads/walk2", sha=sha))
    check("repos/create-or-update-file-contents", rest.create_or_update_file_contents(**at, **written))
    check(
        "repos/create-commit-status", rest.create_commit_status(**at, sha=sha, state="success", context="ci")
    )
    check("repos/get-combined-status-for-ref", rest.get_combined_status_for_ref(**at, ref="walk"))
    check("repos/list-commit-statuses-for-ref", rest.list_commit_statuses_for_ref(**at, ref="walk"))
    check("repos/list-tags", rest.list_tags(**at))
    protected = {
        "required_status_checks": {"strict": True, "contexts": ["ci"]},
        "enforce_admins": True,
        "required_pull_request_reviews": {"required_approving_review_count": 1},
        "restrictions": None,
    }
    check(
        "repos/update-branch-protection",
        boss.rest.repos.update_branch_protection(**at, branch="walk2", data=protected),
    )
    check("repos/get-branch-protection", rest.get_branch_protection(**at, branch="walk2"))
    check("repos/get-branch of a protected", rest.get_branch(**at, branch="walk2"))
    boss.rest.repos.delete_branch_protection(**at, branch="walk2")
    expect_status("repos/get-branch of none", 404, lambda: rest.get_branch(**at, branch="nothing"))


def git() -> None:
    rest = gh.rest.git
    check("git/get-ref", rest.get_ref(**at, ref="heads/walk"))
    check("git/list-matching-refs", rest.list_matching_refs(**at, ref="heads/wa"))
    check("git/get-commit", rest.get_commit(**at, commit_sha=sha))
    check("git/update-ref", rest.update_ref(**at, ref="heads/walk2", sha=sha, force=True))
    check("git/delete-ref", rest.delete_ref(**at, ref="heads/walk2"))
    tag = check("git/create-tag", rest.create_tag(**at, tag="v0", message="m", object_=sha, type="commit"))
    check("git/get-tag", rest.get_tag(**at, tag_sha=tag.sha))
    check("git/create-ref of a tag", rest.create_ref(**at, ref="refs/tags/v0", sha=tag.sha))
    check("git/get-ref of a tag", rest.get_ref(**at, ref="tags/v0"))


def pulls() -> None:
    rest = gh.rest.pulls
    made = check("pulls/create", rest.create(**at, title="Walk", head="walk", base="main", body="Fixes #1"))
    n = {"pull_number": made.number}
    check("pulls/list", rest.list(**at))
    check("pulls/get", rest.get(**at, **n))
    check("pulls/update", rest.update(**at, **n, title="Walk on"))
    files = check("pulls/list-files", rest.list_files(**at, **n))
    check("pulls/list-commits", rest.list_commits(**at, **n))
    check("pulls/request-reviewers", rest.request_reviewers(**at, **n, data={"reviewers": ["second"]}))
    check("pulls/list-requested-reviewers", rest.list_requested_reviewers(**at, **n))
    check("pulls/create-review", bot.rest.pulls.create_review(**at, **n, event="APPROVE", body="good"))
    check("pulls/list-reviews", rest.list_reviews(**at, **n))
    line = {"body": "nit", "commit_id": sha, "path": files[0].filename, "line": 1, "side": "RIGHT"}
    check("pulls/create-review-comment", rest.create_review_comment(**at, **n, **line))
    check("pulls/list-review-comments", rest.list_review_comments(**at, **n))
    check("issues/list-for-repo with a pull request", gh.rest.issues.list_for_repo(**at))
    check(
        "repos/list-pull-requests-associated",
        gh.rest.repos.list_pull_requests_associated_with_commit(**at, commit_sha=sha),
    )
    expect_status("pulls/check-if-merged before", 404, lambda: rest.check_if_merged(**at, **n))
    check(
        "issues/list-events-for-timeline of a pull request",
        gh.rest.issues.list_events_for_timeline(**at, issue_number=made.number),
    )
    check("pulls/merge", rest.merge(**at, **n, sha=sha, merge_method="squash"))
    check("pulls/check-if-merged", rest.check_if_merged(**at, **n))
    check("pulls/get of a merged", rest.get(**at, **n))


def checks() -> None:
    rest = bot.rest.checks
    made = check(
        "checks/create", rest.create(**at, data={"name": "gate", "head_sha": sha, "status": "in_progress"})
    )
    done = {"conclusion": "success", "output": {"title": "t", "summary": "s"}}
    check("checks/update", rest.update(**at, check_run_id=made.id, data=done))
    check("checks/get", gh.rest.checks.get(**at, check_run_id=made.id))
    check("checks/list-for-ref", gh.rest.checks.list_for_ref(**at, ref=sha))
    body = {"name": "gate", "head_sha": sha, "status": "queued"}
    expect_status("checks/create with a personal token", 403, lambda: gh.rest.checks.create(**at, data=body))


def releases() -> None:
    rest = gh.rest.repos
    made = check("repos/create-release", rest.create_release(**at, tag_name="v1", name="One", body="b"))
    check("repos/get-release", rest.get_release(**at, release_id=made.id))
    check("repos/get-release-by-tag", rest.get_release_by_tag(**at, tag="v1"))
    check("repos/get-latest-release", rest.get_latest_release(**at))
    check("repos/list-releases", rest.list_releases(**at))
    check("repos/update-release", rest.update_release(**at, release_id=made.id, body="c"))
    check("repos/generate-release-notes", rest.generate_release_notes(**at, tag_name="v2"))
    draft = check("repos/create-release of a draft", rest.create_release(**at, tag_name="v3", draft=True))
    check("repos/delete-release", rest.delete_release(**at, release_id=draft.id))
    check("repos/create-for-authenticated-user", boss.rest.repos.create_for_authenticated_user(name="fresh"))


for part in (issues, repositories, git, pulls, checks, releases):
    try:
        part()
    except RequestFailed as error:
        answer = f"{error.response.status_code} {error.response.text}"
        failed.append(f"{part.__name__}: {error.request.method} {error.request.url}: {answer}")
    except (AttributeError, TypeError) as error:
        failed.append(f"{part.__name__}: {type(error).__name__}: {error}")
print(json.dumps({"checked": checked, "failed": failed}))
