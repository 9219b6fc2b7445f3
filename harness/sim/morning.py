"""The morning after: what became of every issue, what was charged, what is left, and whether the journals hold.

The one rule: as in `invariants`, nothing here is shared with what decides.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.adapters.memory.commits import history
from harness.audit.replay import replay
from harness.core.journal import check
from harness.sim.night import REPO, Night
from harness.sim.people import People
from harness.sim.weather import Weather

WRITES_LIMIT = 600
HEARD_S = 75.0
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


@dataclass
class Morning:
    """`look` once, when the night is over. `published` are the commits that were seen on our branches, by ref."""

    night: Night
    weather: Weather
    people: People
    published: Mapping[str, str]
    say: Callable[[str, str], None]

    def look(self, in_time: bool, thorough: bool) -> None:
        """What must be true of every night; `in_time` says that it came to rest."""
        if thorough:
            self._journals()
        self._charges()
        self._refused(in_time)
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
        for query, kept in seen.get("facts", {}).items():
            if query.startswith("item/"):
                value = kept["value"] if "value" in kept else json.loads(self.night.disk.blobs[kept["blob"]])
                return dict(value.get("data", {}).get("counters", {})) if isinstance(value, dict) else {}
        return {}

    def _refused(self, in_time: bool) -> None:
        """After a person's no, and the time it takes to be heard, no attempt begins and nothing lands; what had
        not landed by then ends as gone."""
        if {"clock", "slow", "poison"} & self.weather.classes:
            return
        for number, since in self.people.refused.items():
            heard = self._heard(since)
            mine = [
                i for k, i in self.night.turns.items.items() if "/ticket/" in k and i.data.issue == number
            ]
            last = max(mine, key=lambda i: (i.data.offset, i.entered_at), default=None)
            if in_time and last is not None and last.state not in ("GONE", "RELEASED", "LANDED"):
                self.say("a person's no counts", f"{last.id} is {last.state} in the end")
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
        if last is not None and state == "DEFERRED" and self._killed(last) >= self.night.policy.infra_retries:
            return  # what killed its workers was no fault of ours, and tries are bounded
        if state != "RELEASED" and not (held and state in ("LANDED", "LANDING")):
            why = f"{last.data.failure}: {last.data.detail[:300]}" if last is not None else ""
            self.say("good work is released", f"#{number} {state} {why}")
        elif last is not None:
            wrong = {k: n for k, n in last.data.counters.items() if k in ("agent", "rework") and n}
            if wrong and self.night.policy.required_review == "none":
                self.say("nobody is charged for infrastructure", f"#{number} {wrong} {last.data.failure}")

    def _killed(self, ticket: Any) -> int:
        """How often a worker of the ticket's last attempt was lost, as its director saw it."""
        records = self.night.disk.records.get(ticket.data.attempt, ())
        return sum(1 for r in records if r.body.get("event") == "infra_lost")

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
        # What a cleanup that was denied leaves is swept up by a process's own retention, which no night has.
        denied = any(
            r.body.get("event") == "cleanup_denied" for rs in night.disk.records.values() for r in rs
        )
        if jobs and not (waiting or denied):
            self.say("nothing is left over", f"jobs {jobs}")
        if folders and not (waiting or denied):
            self.say("nothing is left over", f"clones {folders}")
        if night.gateway.desks and not denied:
            self.say("nothing is left over", f"sockets {sorted(night.gateway.desks)}")
        disk = (
            sorted(p.name for p in (night.data / "attempts").glob("*"))
            if (night.data / "attempts").is_dir()
            else []
        )
        if disk and not denied:
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
