"""The readers: one function a kind of query, each a `Result` of a frozen value.

The one rule: what could not be read is an `Err` or a `Pass`, never an empty answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from harness.core.result import Err, Ok, Result
from harness.domain import (
    Absent,
    AgentResult,
    Beat,
    Candidate,
    Gate,
    Issue,
    Reply,
    Run,
    Status,
)
from harness.looks.own import Own
from harness.perform import places
from harness.perform.jobs import verdict_of
from harness.ports import World

Reader = Callable[[World, str], Result[Any]]
WRITERS = frozenset({"admin", "maintain", "write"})
PERMISSION_S = 600.0
MEMO_LIMIT = 1_000
REPOSITORY_S = 3600.0


@dataclass(frozen=True, slots=True)
class Reading:
    """How one kind of query is read: by whom, in which pool, how old it may get, whether it must be
    younger than the asking machine's last record, and which answers will not change any more. `joined` adds what
    our own machines say, each time that it is asked for."""

    read: Reader
    port: str
    age_s: float
    fresh: bool = True
    final: Callable[[Any], bool] = lambda value: False
    joined: Callable[[Own, Any], Any] = lambda own, value: value


# ---------------------------------------------------------------- the forge


def memo(world: World, key: str, age_s: float, read: Callable[[], Result[Any]]) -> Result[Any]:
    """An answer that is shared for `age_s` seconds: who may write changes seldom, the list is one request."""
    kept, now = world.memo.get(key), world.clock.now()
    if kept is not None and 0 <= now - kept[0] < age_s:
        return Ok(kept[1])
    found = read()
    if isinstance(found, Ok):
        world.memo[key] = (now, found.value)
        if len(world.memo) > MEMO_LIMIT:
            _forget_permissions(world.memo, now)
    return found


def _forget_permissions(kept: dict[str, tuple[float, Any]], now: float) -> None:
    """Whoever writes below an issue is looked up once, and most never write again."""
    for key, (at, _) in list(kept.items()):
        if key.startswith("permission/") and now - at >= PERMISSION_S:
            kept.pop(key, None)


def _listed(world: World, age_s: float) -> Result[Any]:
    assert world.forge is not None
    return memo(world, "issues", age_s, world.forge.issues)


def _candidates(world: World, _: str) -> Result[Any]:
    listed = _listed(world, 0.0)
    if not isinstance(listed, Ok):
        return listed
    found = []
    for i in listed.value:
        if i.has(world.policy().label()) and i.open:
            may = trusted(world, i.author, i.author_kind)
            if not isinstance(may, Ok):
                return may
            found.append(Candidate(i, may.value))
    return Ok(tuple(found))


def trusted(world: World, login: str, kind: str) -> Result[bool]:
    """Write access, or named in the configuration. Bots only when named. What could not be asked is no "no":
    a text must not be frozen without a comment whose author could not be looked up just then."""
    if login.casefold() in {x.casefold() for x in world.policy().allowed_people}:
        return Ok(True)
    if kind == "Bot" or world.forge is None or not login:
        return Ok(False)
    forge = world.forge
    found = memo(world, f"permission/{login}", PERMISSION_S, lambda: forge.permission(login))
    return found.map(lambda role: role in WRITERS)


def _issue(world: World, n: str) -> Result[Any]:
    """From the list while it is on it; what is not on it is asked for by number."""
    assert world.forge is not None
    listed = _listed(world, world.policy().interval_s)
    if isinstance(listed, Ok):
        for i in listed.value:
            if i.number == int(n) and not _due_by_number(world, n):
                return Ok(replace(i, seen_at=world.memo["issues"][0]))
    elif isinstance(listed, Err):
        return listed
    now = world.clock.now()
    return world.forge.issue(int(n)).map(lambda i: replace(i, seen_at=now) if isinstance(i, Issue) else i)


def _due_by_number(world: World, n: str) -> bool:
    """What is deleted is in no list of changes: while a worker is at it, an issue is asked for by number too."""
    now, key = world.clock.now(), f"by-number/{n}"
    asked = world.memo.get(key)
    working = any((world.data / "attempts").glob(f"{n}.*"))
    if not working:
        world.memo.pop(key, None)
    due = working and asked is not None and now - asked[0] > world.policy().heartbeat_ttl_s
    if working and (asked is None or due):
        world.memo[key] = (now, None)
    return due


def _closed(world: World, n: str) -> Result[Any]:
    assert world.forge is not None
    return world.forge.issue(int(n))


def _replies(world: World, n: str) -> Result[Any]:
    assert world.forge is not None and world.marks is not None
    marks, found = world.marks, world.forge.comments(int(n))
    if not isinstance(found, Ok):
        return found
    replies = []
    for c in found.value:
        mark, may = marks.read(c.body, f"issue/{n}"), trusted(world, c.author, c.author_kind)
        if not isinstance(may, Ok):
            return may
        replies.append(
            Reply(
                c.id, c.author, c.body, c.created_at, mark.name if mark else "",
                mark.instance if mark else "", bool(mark and mark.ours), may.value,
            )
        )  # fmt: skip
    return Ok(tuple(replies))


def _pull(world: World, n: str) -> Result[Any]:
    assert world.forge is not None
    return world.forge.pull(int(n))


def _reviews(world: World, n: str) -> Result[Any]:
    assert world.forge is not None
    found = world.forge.reviews(int(n))
    if not isinstance(found, Ok):
        return found
    counted = []
    for review in found.value:
        may = trusted(world, review.author, "User")
        if not isinstance(may, Ok):
            return may
        if may.value:
            counted.append(review)
    return Ok(tuple(counted))


def _checks(world: World, sha: str) -> Result[Any]:
    assert world.forge is not None
    return world.forge.checks(sha)


def _repository(world: World, _: str) -> Result[Any]:
    assert world.forge is not None
    return memo(world, "repository", REPOSITORY_S, world.forge.repository)


def _default(world: World, _: str) -> Result[Any]:
    return _repository(world, "").map(lambda r: r.default_branch)


# ---------------------------------------------------------------- git and the runtime


def _refs(world: World, _: str) -> Result[Any]:
    assert world.repo is not None
    found = world.repo.remote_refs().map(
        lambda refs: {k: v for k, v in refs.items() if not k.startswith("refs/pull/")}
    )
    told = world.on_refs
    return found if told is None else found.bind(lambda refs: told(refs).map(lambda _: refs))


def _tree(world: World, sha: str) -> Result[Any]:
    assert world.repo is not None
    found = world.repo.tree(sha)
    return found if isinstance(found, Ok) else world.repo.fetch().bind(lambda _: world.repo.tree(sha))  # type: ignore[union-attr]


def _holds(world: World, rest: str) -> Result[Any]:
    """Whether the first commit has the second in its history."""
    assert world.repo is not None
    new, _, old = rest.partition("/")
    repo = world.repo
    found = repo.is_ancestor(old, new)
    return found if isinstance(found, Ok) else repo.fetch().bind(lambda _: repo.is_ancestor(old, new))


def _preflight(world: World, _: str) -> Result[Any]:
    """git works, and the repository can be worked on at all."""
    assert world.repo is not None
    repo, prefix = world.repo, world.policy().branch_prefix
    ready = repo.prepare().bind(lambda _: _default(world, "")).bind(lambda base: repo.preflight(base, prefix))
    return ready.map(lambda _: True)


def _image(world: World, _: str) -> Result[Any]:
    assert world.runtime is not None
    return world.runtime.image(world.image_name or world.policy().image)


def _ours(world: World, _: str) -> Result[Any]:
    """Our jobs, and gates of which only the folder is left: somebody took their container away."""
    assert world.runtime is not None
    now = world.clock.now()
    found = world.runtime.ours()
    if not isinstance(found, Ok):
        return found
    names = {s.name for s in found.value}
    left = sorted(p.name for p in (world.data / "gates").glob("gate-*") if p.name not in names)
    return Ok(tuple(replace(s, seen_at=now) for s in (*found.value, *(Status(n, "LOST") for n in left))))


def _job(world: World, name: str) -> Result[Any]:
    assert world.runtime is not None
    if name.startswith("prepare-") and world.store.get(f"prepared/{name}") is not None:
        return Ok(Status(name, "EXITED", 0))
    found = world.runtime.status(name)
    now = world.clock.now()
    return found.map(lambda s: replace(s, seen_at=now) if s is not None else Absent(name))


def _gate(world: World, name: str) -> Result[Any]:
    """A verdict that is a fact already, or the state of its container."""
    fact = world.store.get(f"gate/{name}")
    if fact is not None:
        return Ok(Gate(name, fact["verdict"], fact["log_tail"], fact["exit"]))
    assert world.runtime is not None
    found = world.runtime.status(name)
    if not isinstance(found, Ok):
        return found
    status = found.value
    if status is None or status.phase in ("LOST", "REJECTED"):
        return Ok(Gate(name, "lost"))
    if status.alive:
        return Ok(Gate(name, "running"))
    log = world.runtime.log(name, 20000)
    tail = world.redact(log.value.decode("utf-8", "replace")) if isinstance(log, Ok) else ""
    return Ok(Gate(name, verdict_of(status, world), tail, status.exit))


def _words(world: World, attempt: str) -> Result[Any]:
    """The last words of a worker, from its audit folder: they are there also when nobody listened at its end.
    `at` is when they were looked for; incarnation 0 means that there are none."""
    now = world.clock.now()
    none = Ok(Beat(now, "", 0))
    found = places.read_json(places.audit_dir(world.data, attempt) / "last.json")
    if found is None:
        return none
    try:
        counters = {str(k)[:32]: int(v) for k, v in dict(found.get("counters", {})).items()}
        state, final, reason, failure = (
            str(found.get(k, ""))[:2000] for k in ("state", "final", "reason", "failure")
        )
        number = int(found["incarnation"])
        return Ok(Beat(now, state, number, final=final, reason=reason, failure=failure, counters=counters))
    except (KeyError, TypeError, ValueError):
        return none


def _disk(world: World, _: str) -> Result[Any]:
    import shutil

    try:
        return Ok(shutil.disk_usage(world.data).free >> 20 << 20)
    except OSError as e:
        return Err("disk_full", f"{world.data}: {e.strerror}")


# ---------------------------------------------------------------- inside a worker


def _run(world: World, name: str) -> Result[Any]:
    assert world.runtime is not None and world.brief is not None
    found = world.runtime.status(name)
    if not isinstance(found, Ok):
        return found
    s = found.value
    if s is None or s.phase in ("LOST", "REJECTED"):
        return Ok(Run(name, running=False, lost=True))
    log = world.runtime.log(name, 200_000)
    if not s.alive and not isinstance(log, Ok):
        return log  # what an agent came to is read from its last words
    raw = log.value if isinstance(log, Ok) else b""
    tail = world.redact(raw[-20000:].decode("utf-8", "replace"))
    run = Run(
        name,
        s.alive,
        s.exit,
        False,
        s.output_bytes,
        s.cpu_s,
        s.progress_at,
        s.started_at or 0.0,
        log_tail=tail,
        gaps=world.gaps(),
        seen_at=world.clock.now(),
        limit=s.limit,
    )
    if s.alive:
        return Ok(run)
    done = places.read_json(world.data / "runs" / name / "result.json")
    if done is not None:
        return Ok(
            replace(run, commands_run=int(done["commands_run"]), failed_command=str(done["failed_command"]))
        )
    return Ok(replace(run, result=_agent_result(world, raw, s.exit)))


def _agent_result(world: World, output: bytes, code: int | None) -> AgentResult:
    assert world.agents is not None and world.brief is not None
    agent = world.agents[str(world.brief["agent"])]
    from pathlib import Path

    home = Path(str(world.brief["home"]))
    files = {n: raw for n in agent.needs if (raw := places.read(home / n)) is not None}
    return agent.parse(output, files, code)


def _worktree(world: World, _: str) -> Result[Any]:
    assert world.clone is not None and world.brief is not None
    now = world.clock.now()
    return world.clone.look(str(world.brief["base_sha"])).map(lambda tree: replace(tree, seen_at=now))


READERS: Mapping[str, Reading] = {
    "candidates": Reading(_candidates, "forge", 0.0, fresh=False, joined=Own.with_past),
    "issue": Reading(_issue, "forge", 0.0, fresh=False),
    "closed": Reading(_closed, "forge", 2.0),
    "replies": Reading(_replies, "forge", 0.0),
    "pull": Reading(_pull, "forge", 0.0),
    "reviews": Reading(_reviews, "forge", 0.0),
    "checks": Reading(_checks, "forge", 0.0),
    "repository": Reading(_repository, "forge", 3600.0, fresh=False),
    "default": Reading(_default, "forge", 3600.0, fresh=False),
    "refs": Reading(_refs, "git", 0.0),
    "tree": Reading(_tree, "git", 3600.0, fresh=False),
    "holds": Reading(_holds, "git", 3600.0, fresh=False),
    "preflight": Reading(_preflight, "git", 3600.0, fresh=False),
    "image": Reading(_image, "runtime", 5.0, fresh=False),
    "ours": Reading(_ours, "runtime", 30.0, fresh=False),
    "job": Reading(_job, "runtime", 0.5, final=lambda s: isinstance(s, Status) and s.phase == "EXITED"),
    "gate": Reading(_gate, "runtime", 0.5),
    "words": Reading(_words, "local", 0.5),
    "disk": Reading(_disk, "local", 10.0, fresh=False),
    "run": Reading(_run, "runtime", 0.3, final=lambda r: isinstance(r, Run) and not r.running),
    "worktree": Reading(_worktree, "git", 0.3),
}
