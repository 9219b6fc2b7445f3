"""No request makes the forge fail: every route with wrong types, odd names and numbers stays below 500."""

from __future__ import annotations

import json
import random
import re
from typing import Any
from urllib.parse import quote

import pytest
from seeded_forge import World

from harness.forge import bodies, routes, service

FIELDS = tuple(name for name in bodies.KINDS if name not in ("archived", "has_issues"))  # they end it all
LIKELY: dict[str, tuple[Any, ...]] = {
    "string": (
        "main",
        "feature",
        "0" * 40,
        "open",
        "closed",
        "APPROVE",
        "COMMENT",
        "squash",
        "success",
        "a.txt",
    ),
    "boolean": (True, False),
    "integer": (0, 1, 2),
    "list of names": ([], ["bug"], ["maker", "second"], [{"name": "x"}]),
    "list of objects": ([], [{"path": "a.txt", "body": "b", "line": 1}], [{"context": "ci"}], [{}]),
    "object": ({}, {"contexts": ["ci"]}, {"name": "n", "email": "e"}, {"title": "t", "summary": "s"}),
}
ODD: tuple[Any, ...] = (
    None, True, -1, 2**70, 1.5, "", "\x00", "a\nb", "-x", "--all", "é" * 300, "\ud800", [None], [1], {"a": 1},
    [{"name": None}], {"contexts": 1}, {"checks": [{}]}, {"required_approving_review_count": "x"},
)  # fmt: skip
NAMES = (
    "1", "3", "0", "99999999999999999999", "main", "feature", "maker", "bug", "x", "-x", "..", "a b",
    "é", "\x00", "%", "README.md", "src", "heads/main", "main...feature", "...", "v1", "0" * 40, "\n",
    "refs/heads/main",
)  # fmt: skip
QUERIES = (
    "", "per_page=0", "per_page=x&page=-1", "page=99999", "state=x", "labels=%00", "since=x", "since=1",
    "sort=x", "direction=x", "head=:", "head=a:b:c", "q=repo:acme/widgets+%22", "q=%00", "ref=-x",
    "ref=%00", "sha=%00", "path=%00", "path=-x", "assignee=%00", "check_name=%00", "page=" + "9" * 30,
)  # fmt: skip


def filled(template: str, dice: random.Random) -> str:
    """A route's path with our repository and one odd name for everything else."""
    name = dice.choice(NAMES)
    path = template.replace("{owner}", "acme").replace("{repo}", "widgets")
    for found in re.findall(r"\{\w+\*?\}", path):
        path = path.replace(found, quote(name, safe="/" if "*" in found else ""))
    return path


def requests(seed: int, count: int) -> list[service.Request]:
    dice = random.Random(seed)
    made = []
    for method, template, _ in routes.TABLE * count:
        fields = dice.sample(FIELDS, dice.choice((0, 4, len(FIELDS))))
        odd = dice.choice((0.0, 0.02, 0.3))
        body = {
            field: dice.choice(ODD if dice.random() < odd else LIKELY[bodies.KINDS[field]])
            for field in fields
        }
        headers = {"authorization": f"token {dice.choice(['t-owner', 't-app'])}"}
        raw = b"" if method == "GET" else json.dumps(body).encode()
        query = dice.choice(QUERIES) if method == "GET" else ""
        made.append(service.Request(method, filled(template, dice), query, headers, raw))
    return made


@pytest.mark.parametrize("seed", range(4))
def test_no_request_makes_it_fail(world: World, seed: int) -> None:
    world.pull(world.clone(), "feature", {"a.txt": "a\n"})
    failed = []
    for request in requests(seed, 6):
        outcome = service.serve(world.forge.state, request)
        if outcome.status is None or outcome.status >= 500:
            failed.append((outcome.status, request.method, request.path, request.query, request.body[:2000]))
    assert failed == []
    assert world.repo("GET", "/issues?state=all").status_code == 200
