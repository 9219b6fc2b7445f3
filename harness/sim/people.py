"""People: those who work with the harness (they answer, review and merge), and those who get in its way.

The one rule: whatever a person does is allowed; whom it touches is noted, so that the checker knows what the
harness may no longer be blamed for.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from harness.core.result import Ok
from harness.domain import Pull
from harness.sim.night import OURS, REPO, Night
from harness.sim.weather import Weather

ADA = "ada"


@dataclass
class People:
    """`touched` are issues that a person interfered with; `meddled` says that somebody touched the release."""

    night: Night
    weather: Weather
    rng: random.Random
    answers: bool = True
    touched: set[int] = field(default_factory=set)
    meddled: bool = False
    acting: bool = False
    commits: set[str] = field(default_factory=set)
    refused: dict[int, float] = field(default_factory=dict)
    deleted_comments: int = 0
    done: set[str] = field(default_factory=set)
    planned: list[tuple[float, str, Callable[[], None]]] = field(default_factory=list)
    seen: tuple[int, str] = (-1, "")
    last_at: float = 0.0

    # ------------------------------------------------------------ working together

    def turn(self) -> None:
        """What people planned happens; what they see makes them plan."""
        while self.planned and self.planned[0][0] <= self.night.clock.at:
            _, what, do = self.planned.pop(0)
            self._act(what, do)
        shown = (self.night.hub.version, self._waits())
        if self.seen != shown:
            self.seen = shown
            self._look()

    def due(self) -> list[float]:
        return [self.planned[0][0]] if self.planned else []

    def _act(self, what: str, do: Callable[[], None]) -> None:
        self.night.tell(f"a person: {what}")
        self.last_at = self.night.clock.at
        self.acting = True
        try:
            do()
        finally:
            self.acting = False

    def _plan(self, key: str, what: str, do: Callable[[], None]) -> None:
        if key not in self.done:
            self.done.add(key)
            self.planned.append((self.night.clock.at + self.rng.uniform(5.0, 300.0), what, do))
            self.planned.sort(key=lambda p: p[0])

    def _look(self) -> None:
        hub, policy = self.night.hub, self.night.policy
        for cid, (number, c) in list(hub.comments.items()):
            mark = self.night.marks.read(c.body, f"issue/{number}")
            if self.answers and mark is not None and mark.ours and mark.name.startswith("question-"):
                self._plan(
                    f"answer {cid}", f"answers on #{number}", partial(self._say, number, "Use this one.")
                )
        for pull in list(hub.pulls.values()):
            if not pull.open or pull.author != OURS:
                continue
            if pull.head.startswith("release/") and policy.merge == "person":
                self._plan(
                    f"merge {pull.number} {self._waits()}",
                    f"merges #{pull.number}",
                    partial(self._merge, pull),
                )
            elif pull.head.startswith("agent/") and policy.required_review == "issue":
                state = "CHANGES_REQUESTED" if self.rng.random() < 0.2 else "APPROVED"
                key = f"review {pull.number} {pull.head_sha}"
                self._plan(key, f"reviews #{pull.number}: {state}", partial(self._review, pull, state))

    def _waits(self) -> str:
        """Which release waits for a merge now, so that a person merges once for each time it does."""
        waiting = [
            i
            for k, i in self.night.turns.items.items()
            if "/release/" in k and i.state == "MERGING" and i.data.waits
        ]
        return f"{waiting[0].id} {waiting[0].entry}" if waiting else "-"

    def _review(self, pull: Pull, state: str) -> None:
        now = self.night.hub.pulls[pull.number]
        if now.open:
            self.night.hub.person_reviews(ADA, pull.number, state, "Please look at the names.")

    def _say(self, number: int, text: str) -> None:
        if number in self.night.hub.issues and self.night.hub.issues[number].open:
            self.night.hub.person_comments(ADA, number, text)

    def _merge(self, pull: Pull) -> None:
        """The button: only where the release asks for it, as a maintainer would."""
        hub = self.night.hub
        now = hub.pulls[pull.number]
        waiting = any(
            i.state == "MERGING" and i.data.waits
            for k, i in self.night.turns.items.items()
            if "/release/" in k
        )
        if now.open and waiting:
            self._button(now)
        elif now.open:
            self.done = {d for d in self.done if not d.startswith(f"merge {pull.number}")}

    def _button(self, pull: Pull) -> None:
        hub = self.night.hub
        self.acting = True
        head, base = hub.tip(pull.head), hub.tip(pull.base)
        merged = (
            self.night.remote.merge(base, head, "merge by hand", self.night.clock.at)
            if head and base
            else None
        )
        if merged is not None:
            self.commits.add(merged)
            self.night.remote.set(f"refs/heads/{pull.base}", merged)
            hub.settle()

    # ------------------------------------------------------------ getting in the way

    def draw(self) -> None:
        """What people will do at random moments of this night."""
        if "base" in self.weather.classes:
            self._draw_base()
        if "people" in self.weather.classes:
            for _ in range(self.rng.randint(1, 4)):
                self._draw_one()

    def _later(self, what: str, do: Callable[[], None], when: float | None = None) -> None:
        self.weather.at(f"somebody {what}", lambda: self._act(what, do), when)

    def _draw_base(self) -> None:
        for n in range(self.rng.randint(1, 3)):
            kind = self.rng.choice(("plain", "plain", "red", "clash"))
            path = (
                f"main-{n}"
                if kind != "clash"
                else f"file-{self.rng.randint(1, max(1, len(self.night.hub.issues)))}"
            )
            text = "BUG" if kind == "red" else f"by a person {n}"
            self._later(f"moves main ({kind})", partial(self._push, "main", path, text))
            if kind == "red":
                when = self.weather.began + 550.0
                self._later("mends main", partial(self._push, "main", path, "mended"), when)
            if kind == "clash":
                self.touched.add(int(path.split("-")[1]))

    def _push(self, branch: str, path: str, text: str) -> None:
        if f"refs/heads/{branch}" in self.night.remote.refs:
            sha = self.night.remote.write(
                f"refs/heads/{branch}", {path: text}, "by a person", self.night.clock.at
            )
            self.commits.add(sha)

    def _draw_one(self) -> None:
        hub, n = self.night.hub, self.rng.randint(1, max(1, len(self.night.hub.issues)))
        acts: dict[str, Callable[[], None]] = {
            f"closes #{n}": lambda: hub.person_closes(n),
            f"reopens #{n}": lambda: hub.person_reopens(n),
            f"takes the label off #{n}": lambda: hub.person_unlabels(n, "harness"),
            f"labels #{n} again": lambda: hub.person_labels(n, "harness"),
            f"takes all our labels off #{n}": lambda: hub.person_unlabels(
                n, "harness:working", "harness:deferred", "harness:needs-you", "harness:review"
            ),
            f"edits #{n}": lambda: hub.person_edits(n, body="Another text.", title="Another title"),
            f"deletes #{n}": lambda: hub.person_deletes(n),
            f"locks #{n}": lambda: hub.person_locks(n),
            f"comments on #{n}": lambda: self._say(n, "Any news?"),
            f"closes the pull of #{n}": lambda: self._on_pull(
                f"agent/{n}", lambda p: hub.person_closes(p.number)
            ),
            f"merges the pull of #{n}": lambda: self._on_pull(f"agent/{n}", self._button),
            f"deletes the branch of #{n}": lambda: self._delete(f"agent/{n}"),
            f"pushes to the branch of #{n}": lambda: self._push(f"agent/{n}", f"person-{n}", "by hand"),
            f"deletes our comments on #{n}": lambda: self._uncomment(n),
            f"asks for another try of #{n}": lambda: self._control("retry", {"issue": n}),
            f"cancels #{n}": lambda: self._control("cancel", {"issue": n}),
            "pauses": self._pause,
            "pushes to the release branch": lambda: self._release("pushes"),
            "closes the release's pull": lambda: self._release("closes"),
            "merges the release's pull": lambda: self._release("merges"),
            "cuts the release": lambda: self._control("release-cut", {}),
        }
        # A no is told often, and while there is work that it can stop.
        soon = self.rng.random() < 0.3
        noes = [f"closes #{n}", f"takes the label off #{n}", f"cancels #{n}"]
        what = self.rng.choice(noes if soon else sorted(acts))
        when = self.weather.began + self.rng.uniform(5.0, 150.0) if soon else None
        self.touched.add(n)
        self.meddled = self.meddled or "release" in what or "pauses" in what
        self._later(what, lambda: self._do(n, what, acts[what]), when)

    def _do(self, n: int, what: str, act: Callable[[], None]) -> None:
        if n not in self.night.hub.issues and "release" not in what:
            return
        if what.startswith("cancels") and not self._in_work(n):
            return  # the command refuses what can have no effect
        act()
        if what.startswith(("closes #", "takes the label off", "cancels")):
            self.refused[n] = self.night.clock.at
        elif what in (f"reopens #{n}", f"labels #{n} again", f"asks for another try of #{n}"):
            self.refused.pop(n, None)

    def _in_work(self, n: int) -> bool:
        mine = [i for k, i in self.night.turns.items.items() if "/ticket/" in k and i.data.issue == n]
        return any(i.state not in ("LANDED", "RELEASED", "GONE") for i in mine)

    def _on_pull(self, head: str, do: Callable[[Pull], None]) -> None:
        for p in list(self.night.hub.pulls.values()):
            if p.open and p.head == head:
                do(p)

    def _delete(self, branch: str) -> None:
        if f"refs/heads/{branch}" in self.night.remote.refs:
            self.night.remote.set(f"refs/heads/{branch}", "")
            self.night.hub.settle()

    def _uncomment(self, number: int) -> None:
        for cid, (n, c) in list(self.night.hub.comments.items()):
            if n == number and c.author == OURS:
                self.night.hub.person_deletes_comment(cid)
                self.deleted_comments += 1

    def _control(self, verb: str, args: dict[str, int]) -> None:
        self.night.store.control(verb, args)

    def _pause(self) -> None:
        self._control("pause", {})
        self.planned.append((self.night.clock.at + 200.0, "resumes", lambda: self._control("resume", {})))
        self.planned.sort(key=lambda p: p[0])

    def _release(self, how: str) -> None:
        if how == "pushes":
            for ref in sorted(self.night.remote.refs):
                if ref.startswith("refs/heads/release/"):
                    self._push(ref.removeprefix("refs/heads/"), "person-release", "by hand")
            return
        for p in list(self.night.hub.pulls.values()):
            if p.open and p.head.startswith("release/"):
                if how == "closes":
                    self.night.hub.person_closes(p.number)
                else:
                    self._button(p)


__all__ = ["ADA", "REPO", "Ok", "People"]
