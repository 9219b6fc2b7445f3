"""What a demo came to, read from the forge and the runtime themselves, not from what the director says."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness.core.result import Ok
from harness.demo.run import REPO, Demo
from harness.failures import explain
from harness.texts.issues import first_line


def result(demo: Demo, running: Any, seconds: float) -> dict[str, Any]:
    """The document of `harness demo --json`."""
    world = demo.forge.dump()
    items = running.loop.items
    tickets = {i.data.issue: i for k, i in items.items() if "/ticket/" in k}
    releases = [i for k, i in items.items() if "/release/" in k]
    release = releases[-1] if releases else None
    tag = release.data.tag if release else ""
    sha = git(_bare(demo), "rev-parse", f"{tag}^{{commit}}") if tag else ""
    deferred = [
        {"issue": n, "reason": first_line(explain(i.data.failure, i.data.detail))}
        for n, i in sorted(tickets.items())
        if i.state in ("DEFERRED", "BLOCKED")
    ]
    landed = sorted(n for n, i in tickets.items() if i.state == "RELEASED")
    counts = running.world.forge.counts()
    left = leftovers(demo, running)
    document = {
        "ok": False,
        "runtime": demo.state["runtime"],
        "seconds": round(seconds, 1),
        "release": {
            "tag": tag, "main_sha": sha, "landed": landed, "deferred": deferred,
            "pr": release.data.pull if release else 0,
        },
        "workers": [
            {"issue": i.data.issue, "attempt": i.data.code, "final": i.data.outcome, "audit": i.data.audit}
            for k, i in sorted(items.items()) if "/attempt/" in k
        ],
        "pulls": _pulls(world, tickets),
        "comments": _comments(world, tickets),
        "questions": [dict(a) for i in tickets.values() for a in i.data.answers],
        "requests": {"github.read": counts.get("read", 0), "github.write": counts.get("write", 0)},
        "left_over": left,
        "data": str(demo.folder),
    }  # fmt: skip
    document["ok"] = bool(
        tag and sha and landed and not left and passes(_bare(demo), tag) and _on_default(demo, sha)
    )
    return document


def _bare(demo: Demo) -> Path:
    found = sorted((demo.folder / "forge").rglob("HEAD"))
    return next(p.parent for p in found if p.parent.name.endswith(".git"))


def git(repo: Path, *args: str) -> str:
    done = subprocess.run(
        ["git", "--git-dir", str(repo), *args], capture_output=True, text=True, check=False, timeout=30
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def _on_default(demo: Demo, sha: str) -> bool:
    return git(_bare(demo), "rev-parse", "refs/heads/main") == sha


def passes(repo: Path, tag: str) -> bool:
    """Whether the tag's own tree passes the project's own tests."""
    with tempfile.TemporaryDirectory(prefix="harness-demo-") as folder:
        tar = subprocess.run(
            ["git", "--git-dir", str(repo), "archive", tag], capture_output=True, check=False, timeout=30
        )
        if tar.returncode != 0:
            return False
        subprocess.run(["tar", "-x", "-C", folder], input=tar.stdout, check=True, timeout=30)
        run = [sys.executable, "-m", "unittest", "discover", "--quiet", "--start-directory", "."]
        return subprocess.run(run, cwd=folder, capture_output=True, check=False, timeout=60).returncode == 0


def leftovers(demo: Demo, running: Any) -> list[str]:
    """Containers, clones, sockets and branches of ours that should not be there any more."""
    left: list[str] = []
    jobs = running.world.runtime.ours()
    left += [f"job {j.name}" for j in jobs.value] if isinstance(jobs, Ok) else ["jobs: unknown"]
    data = running.world.data
    for part in ("attempts", "gates"):
        left += (
            [f"{part}/{p.name}" for p in sorted((data / part).glob("*"))] if (data / part).is_dir() else []
        )
    refs = git(_bare(demo), "for-each-ref", "--format=%(refname)", "refs/heads").splitlines()
    deferred = {
        f"refs/heads/agent/{i.data.issue}"
        for k, i in running.loop.items.items()
        if "/ticket/" in k and i.state == "DEFERRED"
    }
    left += [r for r in refs if r != "refs/heads/main" and r not in deferred]
    return left


def _pulls(world: Any, tickets: Any) -> list[dict[str, Any]]:
    repo = world["repos"][REPO]
    states = {i["number"]: i["state"] for i in repo["issues"]}
    by_head = {f"agent/{n}": n for n in tickets}
    return [
        {
            "issue": by_head[p["head_ref"]],
            "number": p["number"],
            "state": "merged" if p["merged"] else states[p["number"]],
        }
        for p in repo["pulls"] if p["head_ref"] in by_head
    ]  # fmt: skip


def _comments(world: Any, tickets: Any) -> list[dict[str, Any]]:
    counts = dict.fromkeys(sorted(tickets), 0)
    for c in world["repos"][REPO]["comments"]:
        if c["issue"] in counts and c["user"] != "ada":
            counts[c["issue"]] += 1
    return [{"issue": n, "count": k} for n, k in counts.items()]
