"""Pushing one SHA to one ref with a lease, and telling what became of it.

The one rule: the forge's own list of refs decides. A push whose answer was lost has happened if, and only if,
the ref now has the SHA; where even that cannot be asked the result is `maybe`.
"""

from __future__ import annotations

import re

from harness.adapters.git.errors import FailedError, Ran, classify, fail, redact, tail
from harness.adapters.git.limits import GitLimits
from harness.adapters.git.mirror import Mirror, checked_ref, checked_sha
from harness.adapters.git.runner import Runner
from harness.core.result import Err
from harness.failures import Failure

_REJECTED = re.compile(r"^!\t[^\t]*\t\[(?:remote )?(?:rejected|failure)\] ?(.*)$", re.MULTILINE)
_MOVED = re.compile(
    r"stale info|non-fast-forward|fetch first|needs force|remote ref updated since checkout"
    r"|is at [0-9a-f]{7,} but expected|reference already exists|incorrect old value"
    r"|failed to update ref|failed to lock|unable to resolve reference",
    re.IGNORECASE,
)
# Somebody holds the ref's lock there. Where the ref has not moved, that is no conflict: it passes.
_BUSY = re.compile(r"failed to update ref|failed to lock|unable to resolve reference", re.IGNORECASE)
_PREFIX = re.compile(r"'(refs/heads/[^']+)' exists; cannot create|directory.file conflict", re.IGNORECASE)
_OUTAGE = re.compile(
    r"internal server error|unpacker error|remote failed|timed? ?out|cannot lock ref", re.IGNORECASE
)


def push(
    mirror: Mirror, git: Runner, limits: GitLimits, ref: str, sha: str, expect: str | None
) -> str:  # fmt: skip
    """The SHA that `ref` has now ("" after a deletion). Raises FailedError."""
    checked_ref(ref)
    for value in (sha, expect or ""):
        if value:
            checked_sha(value)
    if sha and not mirror.has(sha, "object"):
        raise fail(Failure.INTERNAL_ERROR, f"{sha} is not in the mirror, so it cannot be pushed to {ref}")
    lease = f"--force-with-lease={ref}:{expect or ''}"
    args = ("push", "--porcelain", "--no-verify", lease, git.remote, f"{sha}:{ref}")
    ran = git.net(*args, git_dir=mirror.path, deadline_s=limits.push_s)
    if ran.code == 0:
        return sha
    refusal = _refusal(ran)
    now = _now(mirror, ref)
    if now == sha:
        return sha
    raise FailedError(_verdict(ran, refusal, ref, expect, now))


def _now(mirror: Mirror, ref: str) -> str | None:
    """What the forge says the ref has: "" for nothing, None when it could not be asked."""
    try:
        return mirror.remote_refs((ref,)).get(ref, "")
    except FailedError:
        return None


def _refusal(ran: Ran) -> str:
    """Why the forge or the lease refused, in their words; empty when nobody said no."""
    match = _REJECTED.search(ran.out.decode("utf-8", "replace"))
    return redact(match[1].strip() or "refused") if match else ""


def _verdict(ran: Ran, refusal: str, ref: str, expect: str | None, now: str | None) -> Err:
    doing = f"pushing {ref}"
    if not refusal:
        lost = classify(ran, what=doing, maybe=True)
        if lost.failure in (Failure.AUTH_FAILED, Failure.CONFIG_INVALID, Failure.FORGE_RATE_LIMITED):
            return lost  # refused before anything was sent
        kept = lost.failure in (Failure.INFRA_KILLED, Failure.DISK_FULL, Failure.OOM)
        failure = lost.failure if kept else Failure.FORGE_DOWN
        return Err(failure, lost.detail, maybe=True)
    clash = _PREFIX.search(refusal) or _PREFIX.search(ran.err)
    if clash:
        other = clash[1] or "another branch"
        text = f"PREFIX_CONFLICT: {ref} cannot exist beside {other}: rename that branch or change the prefix"
        return Err(Failure.CONFIG_INVALID, text)
    if _BUSY.search(refusal) and now is not None and now == (expect or ""):
        return Err(
            Failure.FORGE_DOWN, f"{doing}: {refusal}: the forge is still at an earlier push", maybe=True
        )
    if now is None and _MOVED.search(refusal):
        # It may be our own earlier push that has moved it.
        return Err(Failure.FORGE_DOWN, f"{doing}: {refusal}: the ref could not be read back", maybe=True)
    if _MOVED.search(refusal) or (now is not None and now != (expect or "")):
        was, held = expect or "nothing", now or "nothing"
        return Err(Failure.CONFLICT, f"{ref} was expected to be at {was} and is at {held} ({refusal})")
    if _OUTAGE.search(refusal):
        return Err(Failure.FORGE_DOWN, f"{doing}: {refusal} ({tail(ran.err)})", maybe=True)
    return Err(Failure.POLICY_VIOLATION, f"{doing}: the forge refused it: {refusal} ({tail(ran.err)})")
