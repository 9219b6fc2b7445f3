"""The open issues that concern us, kept up to date with one conditional request a poll.

The one rule: the list is complete or it is an `Err`. A full walk happens at the start and every half hour;
between walks one `since` request with overlap, sorted by update, tells what changed (closed ones included).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from harness.adapters.github import shapes
from harness.adapters.github.calls import PAGES_LIMIT, Calls, with_query
from harness.core.result import Err, Ok, Pass, Result
from harness.domain import Issue
from harness.failures import Failure
from harness.ports import Clock

RECONCILE_S = 1800.0
OVERLAP_S = 120.0
"""Lists lag behind writes and `updated_at` has whole seconds: each look goes this far back."""
CURSOR_STEP = 50
"""The cursor stays (and so the address and its ETag) until a look brings more than this many changes."""
WALKS_IN_A_ROW = 3
REMEMBERED_BYTES = 256 << 10
GONE_LIMIT = 1_000


class Remember(Protocol):
    """Small JSON values that outlive the process."""

    def get(self, key: str) -> Any | None: ...
    def put(self, key: str, value: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class Seen:
    """One entry of the forge's list: an issue of ours, or only what is needed to forget one."""

    number: int
    issue: Issue | None
    updated_at: float
    closed_at: float


@dataclass(slots=True)
class Walk:
    """A walk under way. It survives a refusal of the governor, so that a large repository gets to its end."""

    at: str
    began: float
    forge_began: float | None = None
    pages: int = 0
    found: dict[int, Issue] = field(default_factory=dict)

    def started(self) -> float:
        """By the forge's clock when it told."""
        return self.began if self.forge_began is None else self.forge_began


class OpenIssues:
    """`label` picks the issues: those that carry it, or a label that begins with it and a colon. "" picks
    all."""

    def __init__(
        self, calls: Calls, path: str, label: str, clock: Clock, remember: Remember | None = None
    ) -> None:
        self._calls = calls
        self._path = path
        self._label = label.casefold()
        self._clock = clock
        self._remember = remember
        self._key = f"forge/issues{path}/{self._label}"
        self._lock = threading.Lock()
        self._issues: dict[int, Issue] = {}
        self._listed: tuple[Issue, ...] | None = None
        self._gone: dict[int, float] = {}
        self._cursor = 0.0
        self._changes_at: dict[str, None] = {}
        self._behind = False
        self._walk: Walk | None = None
        self._walked_at: float | None = None
        self._load()

    def read(self) -> Result[tuple[Issue, ...]]:
        """The issues by number. One 304 when nothing has changed."""
        with self._lock:
            now = self._clock.now()
            recent = self._walked_at is not None and 0 <= now - self._walked_at < RECONCILE_S
            failed = self._look() if recent and self._walk is None else self._walk_all(now)
            if failed is not None:
                return failed
            if self._listed is None:
                self._listed = tuple(self._issues[n] for n in sorted(self._issues))
            return Ok(self._listed)

    def note(self, issue: Issue) -> None:
        """A single read told of this issue: newer than the list, or the same."""
        with self._lock:
            self._merge(Seen(issue.number, self._ours(issue), issue.updated_at, 0.0))

    def forget(self, number: int) -> None:
        """A single read told that it is not there any more; no list may bring it back before the next
        walk."""
        with self._lock:
            self._listed = None
            self._issues.pop(number, None)
            self._note_gone(number, float("inf"))

    # ------------------------------------------------------------ the walk

    def _walk_all(self, now: float) -> Err | Pass | None:
        """Walk until nothing was closed meanwhile; None when the list is complete.

        Closing an issue moves the later ones up a place, and one may slip from a page not yet read to one
        that was. After three such walks the list is taken as it is, and the next read walks again."""
        for _ in range(WALKS_IN_A_ROW):
            walk = self._walk
            if walk is None:
                # Oldest first: what is opened meanwhile appears at the end, and quiet pages keep their ETag.
                first = with_query(self._path, state="open", sort="created", direction="asc", per_page=100)
                walk = self._walk = Walk(first, now)
            stopped = self._go_on(walk)
            if stopped is not None:
                return stopped
            self._take(walk)
            changes = self._read_changes()
            if not isinstance(changes, Ok):
                return changes
            self._walk = None
            if walk.pages <= 1 or not any(s.closed_at >= walk.started() for s in changes.value):
                self._walked_at = now
                break
        self._save()
        return None

    def _go_on(self, walk: Walk) -> Err | Pass | None:
        """Read the pages that remain; None at the end."""
        while walk.at:
            if walk.pages == PAGES_LIMIT:
                self._walk = None
                return Err(Failure.INTERNAL_ERROR, f"more than {PAGES_LIMIT} pages of open issues")
            r = self._calls.get(walk.at, self._parse_open, priority=2)
            if not isinstance(r, Ok):
                return r
            if walk.forge_began is None:
                walk.forge_began = r.value.date
            walk.pages += 1
            walk.found.update((i.number, i) for i in r.value.value)
            walk.at = r.value.next
        return None

    def _take(self, walk: Walk) -> None:
        """What was walked is the list now, but for what we know to be newer."""
        before, self._issues, self._listed = self._issues, {}, None
        self._gone = {n: at for n, at in self._gone.items() if at != float("inf")}
        for number, issue in walk.found.items():
            known = before.get(number)
            newer = known if known is not None and known.updated_at > issue.updated_at else issue
            self._merge(Seen(number, newer, newer.updated_at, 0.0))
        self._cursor = walk.started() - OVERLAP_S

    # ------------------------------------------------------------ the look

    def _look(self) -> Err | Pass | None:
        changes = self._read_changes()
        if not isinstance(changes, Ok):
            return changes
        if changes.value:
            self._save()
        return None

    def _read_changes(self) -> Result[tuple[Seen, ...]]:
        """Ask for what was updated since the cursor and merge it; empty when the answer was a 304. Pages that
        came before one that did not were not merged: where that was so, a 304 of the first says nothing."""
        at = with_query(
            self._path,
            state="all",
            sort="updated",
            direction="desc",
            per_page=100,
            since=shapes.iso(self._cursor),
        )
        if at not in self._changes_at:  # the cursor has moved: the addresses of the one before are dead
            self._calls.forget(self._changes_at)
            self._changes_at = {}
        found: list[Seen] = []
        behind, self._behind = self._behind, True
        for _ in range(PAGES_LIMIT):
            self._changes_at[at] = None
            r = self._calls.get(at, self._parse_changes, priority=2)
            if not isinstance(r, Ok):
                return r
            if not r.value.fresh and not found and not behind:
                self._behind = False
                return Ok(())
            found.extend(r.value.value)
            at = r.value.next
            if not at:
                break
        for seen in found:
            self._merge(seen)
        self._behind = False
        if len(found) > CURSOR_STEP:
            self._cursor = max(self._cursor, max(s.updated_at for s in found) - OVERLAP_S)
        return Ok(tuple(found))

    # ------------------------------------------------------------ merging

    def _merge(self, seen: Seen) -> None:
        """Take an entry unless we know a newer one (a list may come from a replica that lags)."""
        known = self._issues.get(seen.number)
        if known is not None and known.updated_at > seen.updated_at:
            return
        if self._gone.get(seen.number, 0.0) > seen.updated_at:
            return
        if seen.issue is None or seen.issue != known:
            self._listed = None
        if seen.issue is None:
            if known is not None:
                del self._issues[seen.number]
            self._note_gone(seen.number, seen.updated_at)
        else:
            self._gone.pop(seen.number, None)
            self._issues[seen.number] = seen.issue

    def _note_gone(self, number: int, at: float) -> None:
        self._gone.pop(number, None)
        self._gone[number] = at
        while len(self._gone) > GONE_LIMIT:
            self._gone.pop(next(iter(self._gone)))

    def _ours(self, issue: Issue) -> Issue | None:
        """The issue if it is open and bears our label or one below it."""
        return issue if issue.open and self._bears(issue.labels) else None

    def _bears(self, labels: tuple[str, ...]) -> bool:
        mine = self._label
        return not mine or any(n == mine or n.startswith(mine + ":") for n in map(str.casefold, labels))

    def _read(self, raw: Any) -> Issue | None:
        """Labels first: in a large repository most issues are not ours and need not be read."""
        if shapes.is_pull(raw) or not self._bears(shapes.label_names(raw.get("labels") or ())):
            return None
        return self._ours(shapes.issue(raw))

    def _parse_open(self, raw: Any) -> tuple[Issue, ...]:
        return tuple(i for i in map(self._read, raw) if i is not None)

    def _parse_changes(self, raw: Any) -> tuple[Seen, ...]:
        found = []
        for x in raw:
            closed_at = shapes.posix(x.get("closed_at")) if x.get("state") == "closed" else 0.0
            found.append(Seen(int(x["number"]), self._read(x), shapes.posix(x.get("updated_at")), closed_at))
        return tuple(found)

    # ------------------------------------------------------------ surviving a restart

    def _save(self) -> None:
        if self._remember is None or self._walked_at is None:
            return
        size = sum(len(i.body) + len(i.title) + 400 for i in self._issues.values())
        kept = [asdict(i) for i in self._issues.values()] if size <= REMEMBERED_BYTES else None
        value = {"v": 1, "cursor": self._cursor, "walked_at": self._walked_at, "issues": kept}
        self._remember.put(self._key, value)

    def _load(self) -> None:
        kept = self._remember.get(self._key) if self._remember is not None else None
        if not isinstance(kept, Mapping) or kept.get("v") != 1 or kept.get("issues") is None:
            return
        issues = [Issue(**{**i, "labels": tuple(i["labels"])}) for i in kept["issues"]]
        self._issues = {i.number: i for i in issues}
        self._cursor = float(kept["cursor"])
        self._walked_at = float(kept["walked_at"])
