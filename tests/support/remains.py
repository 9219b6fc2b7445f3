"""What a run left behind, and what it did twice: read from processes, files, refs and the forge's own database.

The one rule: every answer is a list of lines for people, empty when all is well, and nothing is asked of the
director.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from demo_world import bare_of, git, left_over
from soak_tasks import DEFERRED, LANDS, Task

from harness.forge import dump

TEMPORARY = (".new", ".tmp", ".part", ".lock")
# Held locks are looked for by `left_over`; these files stay, empty, for the next one who takes them.
LASTING = frozenset({"mirror.lock", "quarantine.lock", ".lock"})
# Saved work is kept like the bundles of its attempts; of what was imported, the last few.
KEPT = ("refs/tags/", "refs/harness/saved/", "refs/harness/import/")
IMPORTS_KEPT = 100


def processes(folder: Path) -> list[str]:
    """Processes other than ours and our parents that name the folder in their command, place or environment."""
    ours, pid = {os.getpid()}, os.getpid()
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        ours.add(pid)
    mark, found = str(folder).encode(), []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in ours:
            continue
        try:
            line = (entry / "cmdline").read_bytes()
            near = mark in line or mark in (entry / "environ").read_bytes()
            if near or os.readlink(entry / "cwd").encode().startswith(mark):
                found.append(f"process {entry.name}: {line.replace(bytes(1), b' ').decode()[:200]}")
        except OSError:
            continue  # it ended meanwhile
    return found


def files(folder: Path) -> list[str]:
    """Temporary files, locks and sockets below the data folder, the evidence, and the run's own TMPDIR."""
    left = []
    for part in ("data", "audits"):
        for at, dirs, names in os.walk(folder / part):
            for name in (*dirs, *names):
                path = Path(at) / name
                odd = name.startswith((".new-", ".gone-", "tmp_")) or name.endswith(TEMPORARY)
                if (odd and name not in LASTING) or path.is_socket():
                    left.append(str(path.relative_to(folder)))
    left += [f"tmp/{p.name}" for p in sorted((folder / "tmp").glob("*"))]
    return left


def refs(folder: Path, given_up: Iterable[int]) -> list[str]:
    """Branches on the forge but main and those that a person was told of; odd refs in our own repositories."""
    expected = {"refs/heads/main", "refs/harness/epoch", "refs/forge/harness/epoch"}
    expected |= {f"refs/heads/agent/{n}" for n in given_up}
    forge = git(bare_of(folder), "for-each-ref", "--format=%(refname)").split()
    left = [
        f"forge {r}" for r in forge if r not in expected and not r.startswith(("refs/pull/", "refs/tags/"))
    ]
    for name in ("mirror", "quarantine"):
        inside = git(folder / "data" / "git" / f"{name}.git", "for-each-ref", "--format=%(refname)").split()
        # Branches of the mirror are the forge's as of its last fetch; the next one prunes them.
        kept = (*KEPT, "refs/heads/") if name == "mirror" else KEPT
        left += [f"{name} {r}" for r in inside if r not in expected and not r.startswith(kept)]
        imports = sum(1 for r in inside if r.startswith("refs/harness/import/"))
        left += [f"{name}: {imports} imports"] if imports > IMPORTS_KEPT else []
    return left


def behind(folder: Path, runtime: str, given_up: Iterable[int]) -> list[str]:
    """All of it together."""
    return [*left_over(folder, runtime), *processes(folder), *files(folder), *refs(folder, given_up)]


def _repo(folder: Path) -> dict[str, Any]:
    (repo,) = dump(folder / "forge")["repos"].values()
    return dict(repo)


def twice(folder: Path) -> list[str]:
    """What is on the forge more than once: comments by marker, pulls by head, labels, tags, releases, merges."""
    repo = _repo(folder)
    keys = Counter(
        (c["issue"], c["body"].split("key=", 1)[-1].split()[0])
        for c in repo["comments"]
        if c["user"] != "ada"
    )
    found = [f"comment {key} on {n}: {k} times" for (n, key), k in keys.items() if k > 1]
    heads = Counter(p["head_ref"] for p in repo["pulls"])
    found += [f"pull of {head}: {k} times" for head, k in heads.items() if k > 1]
    for issue in repo["issues"]:
        labels = Counter(issue["labels"])
        found += [f"label {name} on {issue['number']}: {k} times" for name, k in labels.items() if k > 1]
    names = Counter(r["tag_name"] for r in repo["releases"])
    found += [f"release {name}: {k} times" for name, k in names.items() if k > 1]
    tags = git(bare_of(folder), "for-each-ref", "--format=%(refname:short)", "refs/tags").split()
    if sorted(tags) != sorted(names):
        found.append(f"tags {sorted(tags)} are not the releases {sorted(names)}")
    at = Counter(git(bare_of(folder), "rev-parse", f"{t}^{{commit}}") for t in tags)
    found += [f"commit {sha} is tagged {k} times" for sha, k in at.items() if k > 1]
    return found


def lost(folder: Path, chosen: Iterable[Task]) -> list[str]:
    """Tasks that did not come to what they must: landed, or given up with a reason that people can read."""
    repo = _repo(folder)
    issues = {i["number"]: i for i in repo["issues"] if not i["is_pull"]}
    tree = set(git(bare_of(folder), "ls-tree", "-r", "--name-only", "main").split())
    merged = {p["head_ref"] for p in repo["pulls"] if p["merged"]}
    found = []
    for task in chosen:
        issue, n = issues[task.number], task.number
        labels = {label for label in issue["labels"] if label.startswith("harness:")}
        if task.end == LANDS:
            if issue["state"] != "closed" or task.file not in tree or f"agent/{n}" not in merged or labels:
                found.append(
                    f"{n} ({task.kind or 'healthy'}) has not landed: {issue['state']}, labels {labels},"
                    f" in the tree: {task.file in tree}, pull merged: {f'agent/{n}' in merged}"
                )
            continue
        label = "harness:deferred" if task.end == DEFERRED else "harness:needs-you"
        said = "\n".join(c["body"] for c in repo["comments"] if c["issue"] == n)
        if issue["state"] != "open" or labels != {label} or not _reasoned(said):
            found.append(f"{n} ({task.kind}) was not given up in writing: {labels}, said: {said[:300]!r}")
        if task.file in tree:
            found.append(f"{n} ({task.kind}) was given up and is in the tree")
    return found


def _reasoned(said: str) -> bool:
    """Whether a comment names why, in the words of the table of failures."""
    from harness.failures import RULES

    return any(rule.text.lower() in said.lower() for rule in RULES.values())
