"""The checker: looks at the world and at the journals, and says what must never be.

The one rule: it shares no code with what decides. What is right is written down here a second time, from the
specification; it reads the hub, the refs, the engine, the gateway and journal records, never a decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.adapters.memory.commits import history
from harness.audit.replay import replay
from harness.core.journal import check
from harness.sim.night import OURS, REPO, Night
from harness.sim.people import People
from harness.sim.weather import Weather

SETTLE_S = 36_000.0
WRITES_LIMIT = 600
HEARD_S = 150.0
INCARNATIONS_LIMIT = 40
# Which counter each class of failure is charged to (specification 1.2 and 1.6), "" for nobody.
COUNTERS: Mapping[str, str] = {
    "agent_failed": "agent", "agent_no_changes": "agent", "agent_stalled": "agent", "agent_looped": "agent",
    "agent_rate_limited": "wait", "tests_failed": "rework", "validation_missing": "agent", "base_red": "",
    "policy_violation": "agent", "conflict": "rework", "infra_engine": "infra", "infra_gateway": "infra",
    "infra_killed": "infra", "oom": "infra", "timeout": "agent", "forge_rate_limited": "", "forge_down": "",
    "auth_failed": "", "budget_exhausted": "", "config_invalid": "", "image_unavailable": "infra",
    "disk_full": "infra", "gone": "", "unknown_exit": "infra", "internal_error": "", "question": "",
    "review_changes": "rework",
}  # fmt: skip
RESTING = frozenset({"RELEASED", "GONE", "DEFERRED", "BLOCKED", "WAITING", "REVIEWING", "LANDED"})
WAITING_RELEASE = frozenset({"NEEDS_PERSON", "MERGING"})


@dataclass(frozen=True, slots=True)
class Violation:
    invariant: str
    step: int
    text: str = ""


@dataclass
class Checker:
    """`step` after every step, `end` when the night is over. Everything found is in `found`, each kind once.

    A `thorough` one also verifies and replays every journal at the end."""

    night: Night
    weather: Weather
    people: People
    thorough: bool = True
    found: list[Violation] = field(default_factory=list)
    moves: list[tuple[str, str, str]] = field(default_factory=list)
    published: dict[str, str] = field(default_factory=dict)
    comments_seen: int = -1
    hub_version: int = -1
    bugs_seen: int = 0

    def __post_init__(self) -> None:
        self.night.remote.on_push.append(self._pushed)

    def say(self, invariant: str, text: str) -> None:
        if all(v.invariant != invariant for v in self.found):
            self.found.append(Violation(invariant, self.night.steps, text))
            self.night.tell(f"VIOLATION {invariant}: {text}")

    # ------------------------------------------------------------ while it goes on

    def _pushed(self, ref: str, old: str, new: str) -> None:
        """Every change of a ref, as it happens."""
        if self.people.acting:
            return
        remote, runtime = self.night.remote, self.night.runtime
        runtime.look()
        if ref.startswith("refs/tags/") and old:
            self.say("a tag never moves", f"{ref} {old[:12]} -> {new[:12]}")
        if ref.startswith("refs/heads/agent/") and new:
            self.published[new] = ref
        born = ref.startswith("refs/heads/release/") and not old
        gated = ref == "refs/heads/main" or ref.startswith(("refs/heads/release/", "refs/tags/"))
        # What a merge agent resolved comes to the release branch first; it is gated there before it goes on.
        mended = ref.startswith("refs/heads/release/") and "release" in self.published.get(new, "")
        if new and gated and not mended and remote.commits[new].tree_sha not in runtime.proved:
            self.say("only what was gated green lands", f"{ref} -> {new[:12]}{' (new)' if born else ''}")
        if new and gated and not self.night.green(remote.commits[new].tree):
            self.say("only green trees land", f"{ref} -> {new[:12]}")
        if old and (not new or not remote.is_ancestor(old, new)):
            kept = [s for r, s in remote.refs.items() if r != ref] + [new]
            safe = {c.sha: True for c in history(remote.commits, kept, {})}
            lost = [c.sha for c in history(remote.commits, [old], safe)]
            theirs = [s for s in lost if s in self.people.commits]
            if theirs:
                self.say("no commit of a person is lost", f"{ref}: {theirs[0][:12]}")

    def step(self) -> None:
        self._live()
        for text in self.night.forge.broken[:1]:
            self.say("no call in a penalty window", text)
        if self.hub_version != self.night.hub.version:
            self.hub_version = self.night.hub.version
            self._doubles()

    def _live(self) -> None:
        per_issue: dict[str, int] = {}
        landing = 0
        for name, entry in self.night.runtime.entries().items():
            if entry.phase != "RUNNING" or not self.night.runtime.alive(name):
                continue
            if entry.job.role == "worker":
                issue = entry.job.env["HARNESS_ATTEMPT"].rsplit(".", 1)[0]
                per_issue[issue] = per_issue.get(issue, 0) + 1
            landing += entry.job.role == "gate"
        for issue, n in per_issue.items():
            if n > 1:
                self.say("one live attempt an issue", f"issue {issue}: {n}")
        working = sum(n for i, n in per_issue.items() if not i.startswith("release"))
        if working > self.night.policy.max_workers:
            self.say("never more than max_workers", f"{working} live")
        lane = [
            k for k, i in self.night.turns.items.items()
            if "/ticket/" in k and i.state == "LANDING" and i.data.gate and not i.value_of("Land")
        ]  # fmt: skip
        if landing > 1 and len(lane) > 1:
            self.say("one ticket lands at a time", ", ".join(sorted(lane)))

    def _doubles(self) -> None:
        hub, marks = self.night.hub, self.night.marks
        heads: dict[str, int] = {}
        for p in hub.pulls.values():
            if p.open and p.author == OURS:
                heads[p.head] = heads.get(p.head, 0) + 1
        for head, n in heads.items():
            if n > 1:
                self.say("one pull a head", f"{head}: {n}")
        if len(hub.comments) == self.comments_seen:
            return
        self.comments_seen = len(hub.comments)
        keys: dict[tuple[int, str], int] = {}
        for number, c in hub.comments.values():
            mark = marks.read(c.body, f"issue/{number}")
            if mark is not None and mark.ours:
                keys[(number, mark.name)] = keys.get((number, mark.name), 0) + 1
        for (number, name), n in keys.items():
            if n > 1:
                self.say("one comment a key", f"#{number} {name}: {n}")

    # ------------------------------------------------------------ at the end

    def settled(self) -> bool:
        """Nothing is under way any more, and the rest waits for people."""
        night = self.night
        if night.down_until or night.clock.at < self.weather.quiet_at or self.people.planned:
            return False
        if any(e.phase == "RUNNING" and night.runtime.alive(n) for n, e in night.runtime.entries().items()):
            return False
        items = night.turns.items
        releases = [i for k, i in items.items() if "/release/" in k]
        waits = any(r.state in WAITING_RELEASE for r in releases)
        for name, i in items.items():
            if name in night.turns.out:
                continue
            if i.open_intent is not None:
                return False
            if "/ticket/" in name and not self._rests(i, waits):
                return False
            if "/attempt/" in name and i.state != "CLOSED":
                return False
            if "/release/" in name and not self._release_rests(i):
                return False
        director = items[f"{REPO}/director/{night.epoch}"]
        calm = director.state in ("MONITOR", "SELF_REVIEW") and night.clock.at - director.changed_at > 0
        return calm and self._looked(director)

    def _rests(self, i: Any, waits: bool) -> bool:
        if i.state == "LANDED":
            return waits
        if i.state == "REVIEWING":
            return bool(self.night.policy.required_review == "issue")
        if i.state == "WAITING":
            return False
        if i.state == "LANDING":
            still = self.night.process_clock.now() - i.changed_at > 300.0
            return waits or (self.people.meddled and still)
        return i.state in RESTING

    def _release_rests(self, i: Any) -> bool:
        if i.state == "OPEN":
            return True
        if i.state == "MERGING":
            return bool(i.data.waits) and self.people.meddled
        return i.state in ("PUBLISHED", "ABANDONED", "NEEDS_PERSON")

    def _looked(self, director: Any) -> bool:
        """It has had the time to see the world as it is now: the rest of a rhythm."""
        since = self.night.clock.at - max(self.weather.quiet_at, self.people.last_at)
        return bool(since > 3 * self.night.policy.interval_s + 60.0)

    def end(self, in_time: bool) -> None:
        if not in_time:
            states = {k: v for k, v in self.night.states().items() if "/director" not in k}
            self.say("it settles when the faults stop", f"{states}; {self.night.turns.ticker.waiting}"[:1500])
        for text in self.night.all_bugs()[:1]:
            self.say("no machine raises", text[-1500:])
        if self.thorough:
            self._journals()
        self._charges()
        self._refused()
        if in_time:
            self._issues()
            self._leftovers()
            self._lost()
        counts = self.night.forge.counts()
        if counts["write"] > WRITES_LIMIT:
            self.say("writes are bounded", str(counts["write"]))

    def _journals(self) -> None:
        for disk in (self.night.disk, *self.night.crew.disks.values()):
            for machine, records in disk.records.items():
                fault = check(records)
                if fault is not None:
                    self.say("journals verify", f"{machine} {fault}")
                other = replay(records, disk.blobs.get)
                if other is not None and not any(r.body.get("status") == "exception" for r in records):
                    self.say("journals replay", str(other)[:500])

    def _charges(self) -> None:
        p = self.night.policy
        bounds = {
            "agent": p.max_retries,
            "rework": p.rework_rounds + 1,
            "infra": p.infra_retries,
            "wait": p.wait_retries,
        }
        for disk in self.night.crew.disks.values():
            for records in disk.records.values():
                self._worker_charges(records, bounds)
        for machine, records in self.night.disk.records.items():
            if "/ticket/" in machine:
                self._ticket_charges(machine, records, bounds)
            elif "/attempt/" in machine:
                again = sum(
                    1
                    for r in records
                    if r.kind == "transition" and r.body["event"] in ("upgrade", "infra_lost")
                )
                if again > INCARNATIONS_LIMIT:
                    self.say("retries are bounded", f"{machine}: {again} incarnations")
        fresh = sum(
            1
            for rs in self.night.disk.records.values()
            for r in rs
            if r.body.get("event") == "person_retries"
        )
        for number in self.night.hub.issues:
            n = sum(1 for m in self.night.disk.records if f"/attempt/{number}." in m)
            if n > p.max_attempts * (1 + fresh) + len(self.people.touched):
                self.say("retries are bounded", f"#{number}: {n} attempts")

    def _worker_charges(self, records: Any, bounds: Mapping[str, int]) -> None:
        had: dict[str, int] = dict(records[0].body.get("start", {}).get("counters", {})) if records else {}
        for r in records:
            note = r.body.get("note", {}) if r.kind == "transition" else {}
            if "counters" not in note:
                continue
            grown = {k: n - had.get(k, 0) for k, n in note["counters"].items() if n != had.get(k, 0)}
            right = COUNTERS[note.get("failure", "internal_error")]
            if any(n and k != "nobody" and (k != right or n != 1) for k, n in grown.items()):
                self.say(
                    "charged to the right counter", f"{r.machine} #{r.seq} {note.get('failure')}: {grown}"
                )
            over = [k for k, n in note["counters"].items() if k in bounds and n > bounds[k] + 1]
            if over:
                self.say("retries are bounded", f"{r.machine}: {note['counters']}")
            had = dict(note["counters"])

    def _ticket_charges(self, machine: str, records: Any, bounds: Mapping[str, int]) -> None:
        had: dict[str, int] = {}
        for r in records:
            note = r.body.get("note", {}) if r.kind == "transition" else {}
            if r.body.get("event") == "person_retries":
                had = {}
            if "counters" not in note or r.body.get("event") == "person_retries":
                continue
            said = self._said(r.body.get("seen", {}))
            right = COUNTERS[note.get("failure") or "gone"]
            for k, n in note["counters"].items():
                more = n - max(had.get(k, 0), said.get(k, 0))
                if k != "nobody" and (more > 1 or (more > 0 and k != right)):
                    self.say(
                        "charged to the right counter",
                        f"{machine} #{r.seq} {note.get('failure')}: {k} +{more}",
                    )
                if k in bounds and n > bounds[k] + 1:
                    self.say("retries are bounded", f"{machine}: {note['counters']}")
            if right and note["counters"].get(right, 0) <= had.get(right, 0):
                self.say(
                    "charged to the right counter", f"{machine} #{r.seq} {note.get('failure')}: not charged"
                )
            had = dict(note["counters"])

    def _said(self, seen: Mapping[str, Any]) -> Mapping[str, int]:
        """What the worker says it used up, as the ticket was told."""
        import json

        for query, kept in seen.get("facts", {}).items():
            if query.startswith("item/"):
                value = kept["value"] if "value" in kept else json.loads(self.night.disk.blobs[kept["blob"]])
                return dict(value.get("data", {}).get("counters", {})) if isinstance(value, dict) else {}
        return {}

    def _refused(self) -> None:
        """After a person's no, and the time it takes to be heard, no attempt begins and nothing lands."""
        if {"clock", "slow", "poison"} & self.weather.classes:
            return
        for number, since in self.people.refused.items():
            heard = self._heard(since)
            for machine, records in self.night.disk.records.items():
                kind, _, code = machine.removeprefix(f"{REPO}/").partition("/")
                if (
                    kind == "attempt"
                    and code.split(".")[0].split("~")[0] == str(number)
                    and records[0].at > heard
                ):
                    self.say(
                        "a person's no counts", f"{machine} began {records[0].at - since:.0f} s after it"
                    )
                if kind == "ticket" and code.split("~")[0] == str(number):
                    for r in records:
                        if r.at > heard and r.body.get("event") == "landed":
                            self.say(
                                "a person's no counts", f"{machine} landed {r.at - since:.0f} s after it"
                            )

    def _heard(self, since: float) -> float:
        """When the director must have heard of it: it may be down, or the forge out of reach."""
        deaf = [(s.start, s.end) for s in self.weather.past if s.name in ("forge", "limits", "git", "disk")]
        deaf = sorted([*deaf, *self.night.downs])
        heard = since + HEARD_S
        for start, end in deaf:
            if start <= heard and end + HEARD_S > heard:
                heard = end + HEARD_S
        return heard

    # ------------------------------------------------------------ what became of the issues

    def _issues(self) -> None:
        items = self.night.turns.items
        for number in sorted(self.night.hub.issues):
            mine = [i for k, i in items.items() if "/ticket/" in k and i.data.issue == number]
            last = max(mine, key=lambda i: (i.data.offset, i.entered_at), default=None)
            self._explained(number, last)
            if number not in self.people.touched and number in self.innocent():
                self._good(number, last)

    def innocent(self) -> frozenset[int]:
        """Issues whose agent does well and whose night nobody but infrastructure disturbs."""
        unfair = {"clock", "poison"} & self.weather.classes
        if unfair or self.people.meddled:
            return frozenset()
        good = [
            n
            for n in self.night.hub.issues
            if all("write" in part and "ok" in part for part in self.night.play.get(n, ()))
        ]
        return frozenset(good)

    def _good(self, number: int, last: Any) -> None:
        state = last.state if last is not None else "never taken"
        releases = [i for k, i in self.night.turns.items.items() if "/release/" in k]
        held = any(r.state == "NEEDS_PERSON" for r in releases)
        if last is not None and last.data.failure == "review_changes" and state == "DEFERRED":
            return  # a reviewer who is never content
        if state != "RELEASED" and not (held and state in ("LANDED", "LANDING")):
            why = f"{last.data.failure}: {last.data.detail[:300]}" if last is not None else ""
            self.say("good work is released", f"#{number} {state} {why}")
        elif last is not None:
            wrong = {k: n for k, n in last.data.counters.items() if k in ("agent", "rework") and n}
            if wrong and self.night.policy.required_review == "none":
                self.say("nobody is charged for infrastructure", f"#{number} {wrong} {last.data.failure}")

    def _explained(self, number: int, last: Any) -> None:
        hub, marks = self.night.hub, self.night.marks
        issue = hub.issues[number]
        if last is None:
            if issue.open and issue.has("harness") and not self._reason(number):
                self.say("every candidate has a reason", f"#{number}")
            return
        if number in self.people.touched and (not issue.open or issue.locked or self.people.deleted_comments):
            return
        names = set()
        for n, c in hub.comments.values():
            mark = marks.read(c.body, f"issue/{number}") if n == number else None
            if mark is not None and mark.ours:
                names.add(mark.name.split("-")[0])
        if "status" not in names and last.state != "GONE":
            self.say("every end is explained", f"#{number} {last.state}: no status comment")
        if last.state == "BLOCKED" and "blocked" not in names:
            self.say("every end is explained", f"#{number} BLOCKED without a comment")
        if last.state in ("DEFERRED", "BLOCKED") and not (last.data.failure or last.data.detail):
            self.say("every end is explained", f"#{number} {last.state} without a reason")
        if (
            last.state not in ("GONE", "RELEASED")
            and issue.open
            and issue.has("harness")
            and not self._reason(number)
        ):
            self.say("every candidate has a reason", f"#{number}")

    def _reason(self, number: int) -> bool:
        director = self.night.turns.items[f"{REPO}/director/{self.night.epoch}"]
        return bool(director.data.reasons.get(str(number)))

    # ------------------------------------------------------------ what is left

    def _leftovers(self) -> None:
        night = self.night
        jobs = sorted(n for n in night.runtime.entries() if not n.startswith("prepare-"))
        folders = sorted(
            str(f.relative_to(night.data)) for f in night.repo.folders if "prepared" not in str(f)
        )
        waiting = any(
            i.state in ("NEEDS_PERSON", "MERGING") for k, i in night.turns.items.items() if "/release/" in k
        )
        if jobs and not waiting:
            self.say("nothing is left over", f"jobs {jobs}")
        if folders and not waiting:
            self.say("nothing is left over", f"clones {folders}")
        if night.gateway.desks:
            self.say("nothing is left over", f"sockets {sorted(night.gateway.desks)}")
        disk = (
            sorted(p.name for p in (night.data / "attempts").glob("*"))
            if (night.data / "attempts").is_dir()
            else []
        )
        if disk:
            self.say("nothing is left over", f"folders {disk}")
        for number, issue in night.hub.issues.items():
            last = [i for k, i in night.turns.items.items() if "/ticket/" in k and i.data.issue == number]
            ended = bool(last) and all(i.state in ("RELEASED", "DEFERRED", "BLOCKED", "LANDED") for i in last)
            if ended and issue.has("harness:working") and number not in self.people.touched:
                self.say("nothing is left over", f"#{number} is labelled as in work")
            tip = night.remote.refs.get(f"refs/heads/agent/{number}")
            if (
                tip
                and ended
                and all(i.state == "RELEASED" for i in last)
                and number not in self.people.touched
            ):
                self.say("nothing is left over", f"branch agent/{number}")

    def _lost(self) -> None:
        night = self.night
        kept = [*night.remote.refs.values(), *night.repo.refs.values()]
        everything = {**night.remote.commits, **night.repo.commits}
        safe = {c.sha for c in history(everything, kept, {})}
        for sha, ref in self.published.items():
            if sha not in safe:
                self.say("nothing published is lost", f"{ref} {sha[:12]}")
        for i in (i for k, i in night.turns.items.items() if "/ticket/" in k):
            release = night.turns.items.get(i.data.landed_in)
            if i.state in ("LANDED", "RELEASED") and i.data.landed_sha and release is not None:
                ref = "refs/heads/main" if i.state == "RELEASED" else f"refs/heads/{release.data.branch}"
                if not night.remote.is_ancestor(i.data.landed_sha, night.remote.refs.get(ref, "")):
                    self.say("nothing landed is lost", f"{i.id} {i.data.landed_sha[:12]}")
        for k, r in ((k, i) for k, i in night.turns.items.items() if "/release/" in k):
            if r.state == "PUBLISHED":
                tag = night.remote.refs.get(f"refs/tags/{r.data.tag}", "")
                if not tag or r.data.tag not in night.hub.releases:
                    self.say("a release is tagged and published", k)
                elif not night.remote.is_ancestor(tag, night.remote.refs["refs/heads/main"]):
                    self.say("a tag is on the default branch", k)
