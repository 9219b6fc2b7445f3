"""One issue, worked on for real, with nothing written to the forge: every write is kept as "would have".

The one rule: no row and no ref of the forge changes. Reads, containers, git work and the agent are real.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.compose import director, stopping
from harness.compose.errors import StartError
from harness.compose.overlay import Overlay, git
from harness.config.models import Config
from harness.core.result import Err, Ok, Result
from harness.domain import Comment, Gone, Issue
from harness.marks import Marks

LOOK_S = 5.0
LOG_TAIL_BYTES = 4000
PATCH_LIMIT_BYTES = 4 << 20
BUSY = frozenset({"CLAIMING", "ATTEMPTING"})
STOP_S = 120.0
PREFIX = "harness-try"
PASSING = frozenset({"chosen", "no free slot", "no release is open"})
RESTING = frozenset({"MONITOR", "SELF_REVIEW"})


@dataclass
class OneIssue:
    """The real forge as a try sees it: one issue, which bears our label, and no claim of anybody's on it."""

    real: Any
    number: int
    label: str
    marks: Marks | None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def _labelled(self, found: Issue | Gone) -> Issue | Gone:
        if isinstance(found, Gone) or found.has(self.label):
            return found
        return replace(found, labels=(*found.labels, self.label))

    def issue(self, number: int) -> Result[Issue | Gone]:
        asked: Result[Issue | Gone] = self.real.issue(number)
        return asked.map(self._labelled)

    def issues(self) -> Result[tuple[Issue, ...]]:
        return self.issue(self.number).map(lambda i: () if isinstance(i, Gone) or not i.open else (i,))

    def comments(self, number: int) -> Result[tuple[Comment, ...]]:
        """Without the status comments of directors: a try takes no part in who may work on it."""
        asked: Result[tuple[Comment, ...]] = self.real.comments(number)
        return asked.map(lambda found: tuple(c for c in found if not self._claim(number, c)))

    def _claim(self, number: int, comment: Comment) -> bool:
        mark = self.marks.read(comment.body, f"issue/{number}") if self.marks else None
        return mark is not None and mark.name == "status"


@dataclass
class Tried:
    """What a try came to. `would` are the writes that were not done, in order."""

    issue: int
    title: str
    state: str
    reason: str
    attempts: list[dict[str, Any]] = field(default_factory=list)
    patch: str = ""
    patch_cut: bool = False
    logs: dict[str, str] = field(default_factory=dict)
    cost_usd: float = 0.0
    would: list[Mapping[str, Any]] = field(default_factory=list)
    data: str = ""
    audits: str = ""


def configured(config: Config, data: Path, author: str) -> Config:
    """The operator's configuration with a data folder of the try's own, and nobody asked but who runs it."""
    people = (*config.forge.allowed_people, author) if author else config.forge.allowed_people
    play = {
        "command": tuple(str(Path(c).absolute()) if Path(c).is_file() else c for c in config.agent.command)
    }
    return config.model_copy(
        update={
            "director": config.director.model_copy(
                update={
                    "data_dir": str(data), "max_workers": 1,
                    "interval_seconds": min(config.director.interval_seconds, LOOK_S),
                }
            ),
            # Branches of its own names, so that it meets none of a director that works on the same issue.
            "forge": config.forge.model_copy(update={"allowed_people": people, "branch_prefix": PREFIX}),
            "release": config.release.model_copy(update={"branch": f"{PREFIX}/release-{{version}}"}),
            "agent": config.agent.model_copy(update=play),
            "store": config.store.model_copy(update={"url": ""}),
            "audit": config.audit.model_copy(update={"dir": str(data / "audits")}),
            "gateway": config.gateway.model_copy(update={"listen": ""}),
            "self_review": config.self_review.model_copy(update={"enabled": False}),
        }
    )  # fmt: skip


def attempt(
    config: Config,
    number: int,
    data: Path,
    *,
    report: Callable[[str, Any, str], None] = lambda what, item, text: None,
    env: Mapping[str, str] = os.environ,
    stopped: Callable[[], bool] = lambda: False,
) -> Tried:
    """Work on the issue until its ticket has ended its attempts. Raises what a start raises."""
    running = director.start(configured(config, data, ""), dry=True, report=report, env=env)
    try:
        dry: Any = running.world.forge
        issue = dry.real.issue(number)
        if not isinstance(issue, Ok):
            raise StartError(
                f"issue {number} cannot be read: {issue.detail if isinstance(issue, Err) else ''}"
            )
        if isinstance(issue.value, Gone):
            raise StartError(f"issue {number} of {config.forge.repo}: {issue.value.why}")
        if not issue.value.open:
            raise StartError(f"issue {number} of {config.forge.repo} is closed: open it first")
        running.force.use_config(configured(config, data, issue.value.author))
        repo: Any = running.world.repo
        repo.real = Overlay(repo.real, data / "git" / "mirror.git", repo.moved)
        dry.real = OneIssue(dry.real, number, config.forge.label_prefix, running.world.marks)
        running.loop.run(lambda loop: stopped() or ended(loop.items) or bool(stuck(running, number)))
        if stopping.live(running.loop.items):
            stopping.harvest(running, STOP_S)
        return _told(running, number, data)
    finally:
        running.close()


def ended(items: Mapping[str, Any]) -> bool:
    """The ticket is past its attempts, and no attempt is under way."""
    tickets = [i for k, i in items.items() if "/ticket/" in k]
    live = any("/attempt/" in k and i.state != "CLOSED" for k, i in items.items())
    return bool(tickets) and not live and all(t.state not in BUSY and t.open_intent is None for t in tickets)


def stuck(running: Any, number: int) -> str:
    """Why the work cannot even begin; empty while it may."""
    items, machine = running.loop.items, running.machine
    if any("/ticket/" in k for k in items):
        return ""
    waits = str(running.loop.ticker.waiting.get(machine, ""))
    if waits.startswith("base_red"):
        return waits
    director_ = items[machine]
    reason = str(director_.data.reasons.get(str(number), ""))
    return reason if director_.state in RESTING and reason not in PASSING else ""


def _told(running: Any, number: int, data: Path) -> Tried:
    items = running.loop.items
    ticket = max((i for k, i in items.items() if "/ticket/" in k), key=lambda i: i.entered_at, default=None)
    attempts = sorted((i for k, i in items.items() if "/attempt/" in k), key=lambda i: i.seq)
    tried = Tried(number, "", "", stuck(running, number), data=str(data), audits=str(data / "audits"))
    pushed = [{"what": "push", "ref": ref, "sha": sha} for ref, sha in running.world.repo.moved.items()]
    tried.would = [*running.world.forge.would, *pushed]
    if ticket is not None:
        d = ticket.data
        tried.title, tried.state, tried.reason = d.title, ticket.state, d.detail or d.question or ""
    for a in attempts:
        spent = running.world.gateway.spent(a.data.code)
        tried.cost_usd += float(spent.get("usd", 0.0))
        names = ("outcome", "failure", "detail", "audit")
        tried.attempts.append({"attempt": a.data.code, **{n: getattr(a.data, n) for n in names}})
    done = [a for a in attempts if a.data.head]
    if done:
        _patch(tried, data, done[-1].data.base_sha, done[-1].data.head)
    audits = [a.data.audit for a in attempts if a.data.audit]
    if audits:
        folder = data / "audits" / audits[-1]
        tails = {name: _tail(folder / name) for name in ("build.log", "agent.log", "test.log")}
        tried.logs = {name: text for name, text in tails.items() if text}
        if not done:
            tried.patch, tried.patch_cut = _saved(folder / "patches" / "harvest.patch")
    return tried


def _patch(tried: Tried, data: Path, base: str, head: str) -> None:
    """What was published, from the mirror: plumbing, with nothing that a repository could have said run."""
    plain = ("--binary", "--full-index", "--no-ext-diff", "--no-textconv")
    done = git(data / "git" / "mirror.git", "diff-tree", "-p", *plain, base, head)
    tried.patch = done.stdout[:PATCH_LIMIT_BYTES].decode("utf-8", "replace")
    tried.patch_cut = len(done.stdout) > PATCH_LIMIT_BYTES


def _saved(path: Path) -> tuple[str, bool]:
    """The uncommitted work that a harvest saved."""
    if not path.is_file():
        return "", False
    with path.open("rb") as f:
        raw = f.read(PATCH_LIMIT_BYTES + 1)
    return raw[:PATCH_LIMIT_BYTES].decode("utf-8", "replace"), len(raw) > PATCH_LIMIT_BYTES


def _tail(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open("rb") as f:
        f.seek(max(path.stat().st_size - LOG_TAIL_BYTES, 0))
        return f.read(LOG_TAIL_BYTES).decode("utf-8", "replace").strip()
