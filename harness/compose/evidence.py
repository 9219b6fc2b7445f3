"""What can be read back of a director's work when its store is lost: the forge, git, what runs, what was kept.

The one rule: it only reads, and what could not be read ends the rebuild. A pull that was overlooked would be
opened twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.audit.bundle import ATTEMPT
from harness.audit.index import META
from harness.compose.errors import StartError
from harness.core.journal import Fault, scan
from harness.core.result import Err, Ok, Result
from harness.domain import Gone, Imported, Issue, Pull, Reply, Status
from harness.failures import Failure
from harness.looks.readers import READERS
from harness.machines.all import CODEC
from harness.machines.attempt.states import Attempt
from harness.perform import places
from harness.policy import Policy
from harness.ports import Screened, Unseen, World

JOURNAL_LIMIT_BYTES = 64 << 20
NEWEST_TAGS = 5
NEWEST_BUNDLES = 50
_CODE = re.compile(r"(\d+)\.(\d+)")
_VERSION = r"(\d+\.\d+\.\d+)"


@dataclass(frozen=True, slots=True)
class Bundle:
    """A sealed attempt: its `meta.json`, and what it was begun with."""

    audit: str
    code: str
    meta: Mapping[str, Any]
    start: Attempt | None = None

    @property
    def at(self) -> str:
        return str(self.meta.get("sealed_at", ""))


@dataclass(frozen=True, slots=True)
class Folder:
    """An attempt that was not cleaned away: the brief that we wrote (None: unreadable), the commits that its
    worker was told are published, and whether the worker ever wrote anything."""

    code: str
    brief: Mapping[str, Any] | None
    published: frozenset[str] = frozenset()
    ran: bool = False


@dataclass(frozen=True, slots=True)
class Thread:
    """An issue, its comments, its newest pull (an open one first), and what the policy says of that pull's
    change. `release` is the version that its pull's head has reached."""

    number: int
    issue: Issue | Gone
    replies: tuple[Reply, ...] = ()
    pull: Pull | None = None
    release: str = ""
    review: bool = False


@dataclass(frozen=True, slots=True)
class Version:
    """A release as the forge shows it. `tip` and `tag` are commits, "" where there is none; `base_sha` is where
    the branch began, as far as known; `asked` the second of the newest call for a person, with its text."""

    version: str
    branch: str
    name: str
    tip: str = ""
    tag: str = ""
    published: str = ""
    pull: Pull | None = None
    ours: bool = False
    asked: int = 0
    asked_text: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All of it, at `now`. `prepared` names the newest dependencies that are there, `strangers` says which
    claims are none of this installation's."""

    now: float
    policy: Policy
    base: str
    refs: Mapping[str, str]
    threads: Mapping[int, Thread] = field(default_factory=dict)
    versions: Mapping[str, Version] = field(default_factory=dict)
    bundles: tuple[Bundle, ...] = ()
    folders: tuple[Folder, ...] = ()
    jobs: Mapping[str, Status] = field(default_factory=dict)
    strangers: tuple[str, ...] = ()
    prepared: str = ""

    def of(self, issue: int) -> list[Bundle]:
        """The sealed attempts of an issue, oldest first."""
        mine = [b for b in self.bundles if b.code.rpartition(".")[0] == str(issue)]
        return sorted(mine, key=lambda b: int(b.code.rpartition(".")[2]))

    def folder(self, issue: int) -> Folder | None:
        """The newest attempt of an issue that is not cleaned away."""
        mine = [f for f in self.folders if f.code.rpartition(".")[0] == str(issue)]
        return max(mine, key=lambda f: int(f.code.rpartition(".")[2]), default=None)

    def sealed(self, code: str) -> Bundle | None:
        return next((b for b in self.bundles if b.code == code), None)


def must(result: Result[Any], what: str) -> Any:
    """The value, or the one line that says what could not be read."""
    if isinstance(result, Ok):
        return result.value
    why = result.detail or str(result.failure) if isinstance(result, Err) else result.message
    raise StartError(f"{what} cannot be read: {why}; nothing was changed, run it again")


def gather(world: World, audits: Path, base: str, refs: Mapping[str, str]) -> Evidence:
    """Read everything there is of what was begun: a few requests for each issue that bears a sign of ours, and
    none for those that were closed long ago. `refs` are the forge's, already fetched. Raises StartError."""
    assert world.forge is not None and world.runtime is not None
    policy = world.policy()
    jobs = {s.name: s for s in must(world.runtime.ours(), "what runs")}
    bundles, folders = tuple(sealed(audits)), tuple(left(world.data))
    versions = {v.version: v for v in _versions(world, refs)}
    listed: dict[int, Issue] = {i.number: i for i in must(world.forge.issues(), "the list of issues")}
    signs = {n for n, i in listed.items() if any(_is_part(x, policy) for x in i.labels)}
    signs |= {_issue_of(f.code) for f in folders}
    prefix = f"refs/heads/{policy.branch_prefix}/"
    signs |= {int(r.removeprefix(prefix)) for r in refs if r.removeprefix(prefix).isdigit()}
    worked = [_issue_of(b.code) for b in sorted(bundles, key=lambda b: b.at)]
    signs |= {n for n in worked if n in listed} | set(worked[-NEWEST_BUNDLES:])
    found = Evidence(
        world.clock.now(), policy, base, refs, {}, versions, bundles, folders, jobs,
        prepared=_prepared(world.data) if policy.prepare else "",
    )  # fmt: skip
    threads = {n: _thread(world, found, n, listed.get(n)) for n in sorted(signs - {0})}
    threads |= {n: Thread(n, Gone("the issue was closed")) for n in {*worked} - {*threads, 0}}
    strangers = sorted(
        f"#{n} bears the mark of instance {r.instance}"
        for n, t in threads.items()
        for r in t.replies[-200:]
        if r.name == "status" and not r.ours and r.trusted
    )
    return replace(found, threads=threads, strangers=tuple(strangers))


def _is_part(label: str, policy: Policy) -> bool:
    """Whether it is one of ours that says that work has begun. A claim without any is claimed again by its
    key."""
    return label.casefold().startswith(f"{policy.label().casefold()}:")


def _issue_of(code: str) -> int:
    found = _CODE.fullmatch(code)
    return int(found.group(1)) if found else 0


# ---------------------------------------------------------------- the forge and git


def _thread(world: World, o: Evidence, number: int, listed: Issue | None) -> Thread:
    assert world.forge is not None
    issue = listed if listed is not None else must(world.forge.issue(number), f"issue {number}")
    if isinstance(issue, Gone):
        return Thread(number, issue)
    replies = must(READERS["replies"].read(world, str(number)), f"the comments of issue {number}")
    branch = f"{o.policy.branch_prefix}/{number}"
    pulls = must(world.forge.pulls(branch, None, "all"), f"the pulls of {branch}")
    mine = [p for p in pulls if p.head == branch]
    pull = max(mine, key=lambda p: (p.open, p.number), default=None)
    if pull is None:
        return Thread(number, issue, replies)
    review = pull.open and _needs_review(world, o, number, pull)
    return Thread(number, issue, replies, pull, _reached(world, o, pull), review)


def _reached(world: World, o: Evidence, pull: Pull) -> str:
    """The release that holds the pull's head: what git says counts, the forge may not show it yet. A head that
    is not in the mirror is in no branch that was fetched."""
    assert world.repo is not None
    mine = next((v for v in o.versions.values() if v.branch == pull.base), None)
    if mine is None:
        return ""
    if pull.merged:
        return mine.version
    end = mine.tip or mine.tag
    held: Result[bool] = world.repo.is_ancestor(pull.head_sha, end) if end else Ok(False)
    if isinstance(held, Err) and held.failure == Failure.INTERNAL_ERROR:
        return ""
    return mine.version if must(held, f"whether {end[:12]} holds pull {pull.number}") else ""


def _needs_review(world: World, o: Evidence, number: int, pull: Pull) -> bool:
    """What the policy says of the change, seen again. What cannot be seen needs a person's eyes."""
    assert world.repo is not None
    folder, past = o.folder(number), o.of(number)
    begun = str((folder.brief or {}).get("base_sha", "")) if folder else ""
    start = past[-1].start if past else None
    base = begun or (start.base_sha if start else "") or o.refs.get(f"refs/heads/{pull.base}", "")
    changed: Result[Imported] = world.repo.changes(base, pull.head_sha)
    if not isinstance(changed, Ok) or world.screen is None:
        return True
    try:
        seen: Screened = world.screen(changed.value)
    except Unseen:
        return True
    return seen.review or bool(seen.blocked)


def _versions(world: World, refs: Mapping[str, str]) -> Iterable[Version]:
    p = world.policy()
    branches = _named(refs, "refs/heads/", p.release_branch)
    tags = _named(refs, "refs/tags/", p.tag)
    newest = sorted(tags, key=lambda v: [int(x) for x in v.split(".")])[-NEWEST_TAGS:]
    for version in sorted({*branches, *newest}):
        yield _version(world, refs, version, branches.get(version, ""), tags.get(version, ""))


def _named(refs: Mapping[str, str], prefix: str, form: str) -> dict[str, str]:
    """Version to commit, of the refs whose names have that form. An annotated tag is what it points at."""
    pattern = re.compile(re.escape(prefix + form).replace(re.escape("{version}"), _VERSION))
    found = {m.group(1): sha for ref, sha in refs.items() if (m := pattern.fullmatch(ref))}
    peeled = {v: refs.get(prefix + form.format(version=v) + "^{}", "") for v in found}
    return {v: peeled[v] or sha for v, sha in found.items()}


def _version(world: World, refs: Mapping[str, str], version: str, tip: str, tag: str) -> Version:
    assert world.forge is not None and world.marks is not None
    p, marks = world.policy(), world.marks
    branch, name = p.release_branch.format(version=version), p.tag.format(version=version)
    pulls = must(world.forge.pulls(branch, None, "all"), f"the pulls of {branch}")
    pull = max((q for q in pulls if q.head == branch), key=lambda q: (q.open, q.number), default=None)
    mark = marks.read(pull.body, f"pull/{branch}") if pull else None
    published = must(world.forge.release(name), f"release {name}") if tag else None
    asked, text = 0, ""
    if pull is not None and pull.open:
        for c in must(world.forge.comments(pull.number), f"the comments of pull {pull.number}"):
            said = marks.read(c.body, f"issue/{pull.number}")
            number = said.name.removeprefix("release-") if said and said.ours else ""
            if number.isdigit():
                asked, text = int(number), c.body
    ours = bool(mark and mark.ours)
    if tip and pull is None:
        checks = must(world.forge.checks(tip), f"the statuses of {tip[:12]}")
        ours = any(c.name == "harness/release" for c in checks)
    url = (published.url or name) if published is not None else ""
    return Version(version, branch, name, tip, tag, url, pull, ours, asked, text)


# ---------------------------------------------------------------- what was kept here


def sealed(audits: Path) -> Iterable[Bundle]:
    """Every bundle that can be read."""
    for folder in sorted(audits.iterdir()) if audits.is_dir() else ():
        meta = places.read_json(folder / META) if not folder.name.startswith(".") else None
        if meta is not None and "/attempt/" in str(meta.get("machine", "")):
            code = str(meta["machine"]).rsplit("/", 1)[1]
            yield Bundle(folder.name, code, meta, _start(folder / ATTEMPT))


def _start(path: Path) -> Attempt | None:
    raw = places.read(path, JOURNAL_LIMIT_BYTES) or b""
    first = next(iter(scan(raw)), None)
    if first is None or isinstance(first, Fault):
        return None
    kept = first.body["start"] if "start" in first.body else first.body.get("item", {}).get("data")
    found = CODEC.decode(kept) if kept is not None else None
    return found if isinstance(found, Attempt) else None


def left(data: Path) -> Iterable[Folder]:
    """Every attempt whose folder is still there."""
    root = data / "attempts"
    for path in sorted(root.iterdir()) if root.is_dir() else ():
        if not path.is_dir() or path.is_symlink():
            continue
        raw = places.read(path / "in" / "brief.json")
        try:
            brief = json.loads(raw) if raw else None
        except (ValueError, RecursionError):
            brief = None
        brief = brief if isinstance(brief, dict) and brief.get("attempt") == path.name else None
        told, ran = _testimony(path)
        yield Folder(path.name, brief, told, ran)


def _prepared(data: Path) -> str:
    root = data / "prepared"
    found = [p for p in root.glob("prepare-*") if p.is_dir()] if root.is_dir() else []
    return max(found, key=lambda p: p.stat().st_mtime).name if found else ""


def _testimony(path: Path) -> tuple[frozenset[str], bool]:
    """The commits that the worker was told are published, and whether it wrote a journal at all."""
    shas: set[str] = set()
    ran = False
    for name in ("witness.jsonl", "audit/journal.jsonl"):
        for record in scan(places.read(path / name, JOURNAL_LIMIT_BYTES) or b""):
            if isinstance(record, Fault):
                break
            ran = True
            body = record.body
            if body.get("effect") == "Request" and body.get("status") == "done":
                value = body.get("value")
                shas.add(str(value.get("sha", "")) if isinstance(value, dict) else "")
    return frozenset(shas - {""}), ran
