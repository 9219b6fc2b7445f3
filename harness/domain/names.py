"""Names that are keys on the forge and the engine, made so that no title and no path can harm them."""

from __future__ import annotations

import re

_SLUG = re.compile(r"[^a-z0-9]+")


def slug(text: str, limit: int = 40) -> str:
    """ASCII, lower case, `[a-z0-9-]`, at most `limit` characters, never empty."""
    s = _SLUG.sub("-", text.lower()).strip("-")[:limit].strip("-")
    return s or "x"


def branch_of(issue: int, prefix: str = "agent") -> str:
    """The one branch of an issue. Its name comes from the number alone, so no title can harm it."""
    return f"{prefix}/{issue}"


def repo_key(repo: str) -> str:
    """`acme/widget` for the ids of machines."""
    return repo.strip("/").lower()


def container_name(repo: str, attempt: str, part: str, instance: str = "") -> str:
    """`h-acme-widget-12-1-i1`; `instance` keeps two directors on one engine apart."""
    tail = f"-{instance}" if instance else ""
    return f"h{tail}-{slug(repo)}-{attempt.replace('.', '-')}-{part}"
