"""What is kept no longer: old bundles, and what attempts that are over have left in the data folder.

The one rule: evidence goes only when nobody can come back to it. Its attempt, its ticket and its release are
over and past their time, all bundles of a release go together, and the index says that they went.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import effects as fx
from harness.audit import index
from harness.audit.files import AuditError
from harness.core.item import Item
from harness.core.journal import posix
from harness.core.result import Err, Ok
from harness.perform import perform, places
from harness.perform.outcome import Sent
from harness.ports import World

EVERY_S = 600.0
LEFT_OVER_S = 86400.0
TIDY_S = 86400.0
PREPARED_KEPT = 3
TICKET_OVER = frozenset({"RELEASED", "GONE"})
RELEASE_OVER = frozenset({"PUBLISHED", "ABANDONED"})


@dataclass(frozen=True, slots=True)
class Bounds:
    """`total_bytes` 0: no bound but the disk's."""

    retention_s: float
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Told:
    """What the machines say. `group` names for each attempt that is over (a machine) the release or the ticket
    whose evidence it belongs to, where that is over as a whole. `closed` says of each attempt that ended (its
    code) whether it was sealed; `prepared` are the names of dependencies that somebody may still use."""

    group: Mapping[str, str]
    closed: Mapping[str, bool]
    prepared: frozenset[str]


# ---------------------------------------------------------------- what is over


def told(items: Iterable[Item[Any]]) -> Told:
    """Pure; `items` are all machines of the director."""
    kinds: dict[str, dict[str, Item[Any]]] = {}
    for item in items:
        kinds.setdefault(item.id.rsplit("/", 2)[1], {})[item.id] = item
    tickets, releases = kinds.get("ticket", {}), kinds.get("release", {})
    attempts = kinds.get("attempt", {})
    groups = {t.id: t.data.landed_in or t.id for t in tickets.values()}
    open_ = {groups[t.id] for t in tickets.values() if t.state not in TICKET_OVER or t.open_intent}
    open_ |= {r.id for r in releases.values() if r.state not in RELEASE_OVER or r.open_intent}
    belongs = {a.id: groups.get(a.data.ticket, "") for a in attempts.values()}
    ended = {a.id for a in attempts.values() if a.state == "CLOSED" and not a.open_intent}
    open_ |= {group for a, group in belongs.items() if a not in ended}
    over = {a: group for a, group in belongs.items() if group and group not in open_}
    directors = sorted(kinds.get("director", {}).values(), key=lambda d: int(d.id.rsplit("/", 1)[1]))
    using = [*directors[-1:], *(r for r in releases.values() if r.state not in RELEASE_OVER)]
    using += [a for a in attempts.values() if a.id not in ended]
    return Told(
        over,
        {a.data.code: bool(a.data.audit) for a in attempts.values() if a.id in ended},
        frozenset(i.data.prepare for i in using if i.data.prepare),
    )


def expired(
    lines: Iterable[index.Line],
    sizes: Mapping[str, int],
    group: Mapping[str, str],
    bounds: Bounds,
    now: float,
) -> list[tuple[str, str]]:
    """Which bundles go (their audit ids), oldest group first, each with the reason. Pure. `sizes` has those
    that are there, in bytes; a bundle whose attempt is in no group stays."""
    groups: dict[str, list[index.Line]] = {}
    for line in lines:
        if line.audit in sizes and line.machine in group:
            groups.setdefault(group[line.machine], []).append(line)
    newest = {name: max(_posix(x.at, now) for x in found) for name, found in groups.items()}
    total = sum(sizes.values())
    gone: list[tuple[str, str]] = []
    for name in sorted(groups, key=lambda g: (newest[g], g)):
        if newest[name] < now - bounds.retention_s:
            why = f"removed by retention: older than {bounds.retention_s / 86400:g} days"
        elif bounds.total_bytes and total > bounds.total_bytes:
            why = f"removed by retention: all bundles together had more than {bounds.total_bytes} bytes"
        else:
            continue
        gone += [(x.audit, why) for x in sorted(groups[name], key=lambda x: x.audit)]
        total -= sum(sizes[x.audit] for x in groups[name])
    return gone


def _posix(at: str, now: float) -> float:
    """A line whose time cannot be read counts as of now."""
    try:
        return posix(at)
    except ValueError:
        return now


# ---------------------------------------------------------------- removing


@dataclass
class Keeper:
    """Sweeps from time to time, in a pool: the loop only says how things stand. `start` is that of a pool's
    port, `bounds` is asked at each sweep, `tidy` packs the mirror."""

    world: World
    audits: Path
    bounds: Callable[[], Bounds]
    start: Callable[[str, Callable[[], None]], bool]
    every_s: float = EVERY_S
    tidy: Callable[[], object] = lambda: None
    due: float = 0.0
    tidied: float = 0.0
    sweeping: bool = False
    trouble: str = ""
    sizes: dict[str, int] = field(default_factory=dict)

    def after(self, items: Mapping[str, Item[Any]]) -> None:
        """To be called after each pass of the loop; begins a sweep when one is due."""
        now = self.world.clock.now()
        if self.sweeping or now < self.due:
            return
        self.due, self.sweeping = now + self.every_s, True
        known = told(list(items.values()))
        if not self.start("local", lambda: self._run(known)):
            self.sweeping = False

    def _run(self, known: Told) -> None:
        try:
            said = "; ".join(self.sweep(known))
        except Exception as e:  # housekeeping is never a reason to end a director; the next sweep tries again
            said = f"{type(e).__name__}: {e}"
        finally:
            self.sweeping = False
        if said and said != self.trouble:
            print(f"harness director: cleaning up: {said}", file=sys.stderr, flush=True)
        self.trouble = said

    def sweep(self, known: Told) -> list[str]:
        """Remove what is over; answers what could not be removed, a line each."""
        trouble = [*self._bundles(known), *self._attempts(known), *self._jobs(known), *self._prepared(known)]
        now = self.world.clock.now()
        if not trouble and now - self.tidied >= TIDY_S:
            self.tidied = now
            self.tidy()
        return trouble

    def _bundles(self, known: Told) -> Iterator[str]:
        if not self.audits.is_dir():
            return
        bounds, now = self.bounds(), self.world.clock.now()
        try:
            with index.locked(self.audits):
                index.end_removals(self.audits, "removed by retention", now)
                there = index.bundles_on_disk(self.audits)
                self.sizes = {n: self.sizes.get(n) or _bytes(self.audits / n) for n in there}
                lines = index.list_bundles(self.audits)
                for audit, why in expired(lines, self.sizes, known.group, bounds, now):
                    index.remove_bundle(self.audits, audit, why, now)
                    del self.sizes[audit]
        except (OSError, AuditError) as e:
            yield f"bundles in {self.audits}: {e}"
        total = sum(self.sizes.values())
        if bounds.total_bytes and total > bounds.total_bytes:
            yield (
                f"the bundles in {self.audits} have {total} bytes, more than audit.total_bytes, and all of them "
                "belong to something that is not over"
            )

    def _attempts(self, known: Told) -> Iterator[str]:
        """An attempt whose cleaning was denied (by a full disk, say) left its folder. Unsealed evidence stays
        for as long as a bundle would; its clone, which is the bulk of it, does not."""
        root = self.world.data / "attempts"
        for folder in sorted(root.iterdir()) if root.is_dir() else ():
            code = folder.name
            if code not in known.closed:
                continue
            if known.closed[code] or self._older(folder, self.bounds().retention_s):
                gone = perform(fx.Discard(code), Sent(None), self.world)
                if gone.status == "failed":
                    yield gone.detail
            elif (folder / "clone").exists() and self.world.repo is not None:
                dropped = self.world.repo.discard(folder / "clone")
                if isinstance(dropped, Err):
                    yield dropped.detail

    def _jobs(self, known: Told) -> Iterator[str]:
        """Containers and run folders of attempts that are over, and halves of run folders."""
        runtime = self.world.runtime
        found = runtime.ours() if runtime is not None else None
        if runtime is None or not isinstance(found, Ok):
            return
        for job in found.value:
            if not job.alive and job.labels.get("harness.attempt", "") in known.closed:
                removed = runtime.remove(job.name)
                if isinstance(removed, Err):
                    yield removed.detail
        for half in (self.world.data / "jobs").glob(".[gn]*-*"):
            if half.name.startswith((".gone-", ".new-")) and self._older(half, LEFT_OVER_S):
                places.remove(half)

    def _prepared(self, known: Told) -> Iterator[str]:
        """Dependencies that nobody uses any more, but for the newest few. Their fact goes first: whoever wants
        them after all prepares them again."""
        root = self.world.data / "prepared"
        folders = sorted((p for p in root.glob("prepare-*") if p.is_dir()), key=lambda p: p.stat().st_mtime)
        for folder in folders[:-PREPARED_KEPT]:
            if folder.name in known.prepared or not self._older(folder, LEFT_OVER_S):
                continue
            self.world.store.put(f"prepared/{folder.name}", None)
            dropped = self.world.repo.discard(folder / "tree") if self.world.repo is not None else None
            places.remove(folder)
            if folder.exists():
                why = dropped.detail if isinstance(dropped, Err) else "something in it cannot be removed"
                yield f"{folder}: {why}"

    def _older(self, folder: Path, age_s: float) -> bool:
        return self.world.clock.now() - folder.lstat().st_mtime > age_s


def _bytes(folder: Path) -> int:
    """Size of all files in a bundle; it never changes."""
    return sum(p.lstat().st_size for p in folder.rglob("*") if not p.is_dir())


__all__ = ["Bounds", "Keeper", "Told", "expired", "told"]
