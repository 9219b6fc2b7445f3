"""The checker: looks at the world and at the journals, and says what must never be.

The one rule: it shares no code with what decides. What is right is written down here a second time, from the
specification; it reads the hub, the refs, the engine, the gateway and journal records, never a decision.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from harness.adapters.memory.commits import history
from harness.sim.morning import Morning
from harness.sim.night import OURS, REPO, Night
from harness.sim.people import People
from harness.sim.weather import Weather

SETTLE_S = 36_000.0
RESTING = frozenset({"RELEASED", "GONE", "DEFERRED", "BLOCKED", "WAITING", "REVIEWING", "LANDED"})
WAITING_RELEASE = frozenset({"NEEDS_PERSON", "MERGING"})
TIDIES_S = 70.0  # a director that has come to rest looks twice for jobs that nobody owns


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
        for sha, said in hub.statuses.items():
            if len(said) > 1 and said[-1] == said[-2]:
                self.say("one status a key", f"{sha[:12]} {said[-1].name} {said[-1].state}")
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
        calm_s = night.process_clock.now() - director.changed_at
        return director.state in ("MONITOR", "SELF_REVIEW") and calm_s > TIDIES_S and self._looked(director)

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
        """It has had the time to see the world as it is now: the rest of a rhythm, since it is there."""
        back = max((end for _, end in self.night.downs), default=0.0)
        since = self.night.clock.at - max(self.weather.quiet_at, self.people.last_at, back)
        return bool(since > 3 * self.night.policy.interval_s + 60.0)

    def end(self, in_time: bool) -> None:
        if not in_time:
            states = {k: v for k, v in self.night.states().items() if "/director" not in k}
            self.say("it settles when the faults stop", f"{states}; {self.night.turns.ticker.waiting}"[:1500])
        for text in self.night.all_bugs()[:1]:
            self.say("no machine raises", text[-1500:])
        Morning(self.night, self.weather, self.people, self.published, self.say).look(in_time, self.thorough)
