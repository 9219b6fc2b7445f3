"""What a world came to, as a bag of facts that two runs can be compared by.

The one rule: facts are read from the forge, its repository, the files that are left and the journals, never from
what a director says; what differs between any two runs (numbers, times, commit ids) is taken out.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from demo_world import bare_of, git, journals, left_over

from harness.core.item import Item
from harness.demo.crash import plain
from harness.demo.run import REPO
from harness.forge import dump
from harness.judgement import fold_record

_SHA = re.compile(r"\b[0-9a-f]{12,64}\b")
IDLE_EVENTS = frozenset({"mentioned", "subscribed"})


def facts(folder: Path, runtime: str) -> Counter[str]:
    """Of a world whose director and forge have ended."""
    repo = dump(folder / "forge", times=False)["repos"][REPO]
    return Counter(
        _forge(repo) + _tree(folder, repo) + _left(folder, runtime) + _journals(folder) + _agents(folder)
    )


def _forge(repo: dict[str, Any]) -> list[str]:
    heads = {p["number"]: p["head_ref"] for p in repo["pulls"]}

    def at(number: int) -> str:
        return f"pull {heads[number]}" if number in heads else f"issue {number}"

    states = {i["number"]: i for i in repo["issues"]}
    return [
        *(
            f"{at(i['number'])}: {i['state']} {i['state_reason']} {i['title']!r} labels {i['labels']} "
            f"assigned {i['assignees']}: {text(i['body'])}" for i in repo["issues"]
        ),
        *(f"comment at {at(c['issue'])} by {c['user']}: {text(c['body'])}" for c in repo["comments"]),
        *(
            f"pull {p['head_ref']} to {p['base_ref']}: merged {p['merged']}, draft {p['draft']}, "
            f"{states[p['number']]['state']}" for p in repo["pulls"]
        ),
        *(f"review of {at(r['pull'])} by {r['user']}: {r['state']} {r['body']}" for r in repo["reviews"]),
        *(f"status {s['context']} {s['state']}: {text(s['description'])}" for s in repo["statuses"]),
        *(f"release {r['tag_name']} {r['name']!r} draft {r['draft']}: {text(r['body'])}" for r in repo["releases"]),
        *(f"label {x['name']}: {x['description']}" for x in repo["labels"]),
        *(
            f"event at {at(e['issue'])} by {e['actor']}: {e['event']} {_named(e['data'])}".rstrip()
            for e in repo["events"] if e["event"] not in IDLE_EVENTS
        ),
        *(f"ref {r}" for r in repo["refs"] if not r.startswith("refs/pull/")),
    ]  # fmt: skip


def text(body: str | None) -> str:
    return _SHA.sub("SHA", plain(body or ""))


def _named(data: Any) -> str:
    label = data.get("label") if isinstance(data, dict) else None
    return str(label.get("name") if isinstance(label, dict) else label or "")


def _tree(folder: Path, repo: dict[str, Any]) -> list[str]:
    """What is tagged, where the default branch stands, and each commit that is in it."""
    bare = bare_of(folder)
    found = []
    tags = sorted(r for r in repo["refs"] if r.startswith("refs/tags/"))
    for tag in tags:
        found.append(f"{tag} holds {git(bare, 'rev-parse', f'{tag}^{{tree}}')}")
        if git(bare, "rev-parse", "refs/heads/main") == git(bare, "rev-parse", f"{tag}^{{commit}}"):
            found.append(f"main is at {tag}")
    subjects = git(bare, "log", "--format=%s (%an)", "refs/heads/main").splitlines()
    return found + [f"commit in main: {text(s)}" for s in subjects]


def _agents(folder: Path) -> list[str]:
    """Each time that an agent ran, where that was counted."""
    counted = sorted((folder / "marks").glob("ran-*"))
    return [f"the agent of issue {p.name.partition('-')[2]} ran" for p in counted for _ in p.read_text()]


def _left(folder: Path, runtime: str) -> list[str]:
    left = left_over(folder, runtime)
    jobs = folder / "data" / "jobs"
    left += [f"jobs/{p.name}" for p in jobs.glob(".*")] if jobs.is_dir() else []
    return [f"left over: {x.replace(str(folder), '')}" for x in left]


def _journals(folder: Path) -> list[str]:
    """Where every machine but the directors ended, and that none has an intent open."""
    found = []
    for name, records in journals(folder).items():
        item: Item[Any] | None = None
        for record in records:
            item = fold_record(item, record)
        assert item is not None, name
        kind, _, rest = name.split("/", 2)[2].partition("/")
        if kind == "director":
            continue
        outcome = f" {item.data.outcome}" if kind == "attempt" else ""
        found.append(f"machine {kind} {rest}: {item.state}{outcome}")
        if item.open_intent is not None:
            found.append(f"open intent of {kind} {rest}: {item.open_intent.effect.get('$')}")
    return found
