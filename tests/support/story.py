"""A night in memory, told: every record, every write to the forge and every act of a person, in order.

The one rule: what is told is what was recorded. SHAs get the names c1, c2 … (commits), t1, t2 … (trees) and
g1, g2 … (gates) in the order in which they appear, so that a story changes only when what happens changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from harness.core.codec import TAG
from harness.core.journal import Record
from harness.core.result import Ok
from harness.domain import Job
from harness.machines.all import CODEC
from harness.policy import Policy
from harness.sim.crew import Green, Play
from harness.sim.night import REPO, Night, no_bug

WRITES = frozenset(
    {
        "comment",
        "edit_comment",
        "close_issue",
        "add_labels",
        "remove_label",
        "open_pull",
        "edit_pull",
        "merge_pull",
        "set_status",
        "create_release",
        "ensure_labels",
    }
)
MARKER = re.compile(r"\s*<!-- harness:v1 [^>]*-->")
SHA = re.compile(r"\b[0-9a-f]{40}\b|(?<=[@ ])[0-9a-f]{12}\b|^[0-9a-f]{12}\b")
GATE = re.compile(r"\b(?:gate|prepare)-[0-9a-f]{20}\b")
DIGEST = re.compile(r"\b(?:sha256:)?[0-9a-f]{64}\b|sha256:[0-9a-f]{12}\b")


def policy(**changed: Any) -> Policy:
    """Of a night: quick looks, one command, merged by us."""
    night = {
        "repo": REPO,
        "instance": "night",
        "commands": ("test",),
        "image": "img",
        "merge": "auto",
        "interval_s": 5.0,
        "min_free_bytes": 0,
    }
    return Policy(**{**night, **changed})


class Story(Night):
    """A night that remembers the order of things."""

    def __init__(
        self,
        play: Play | None = None,
        green: Green = no_bug,
        **changed: Any,
    ) -> None:
        self.lines: list[str] = []
        self.names: dict[str, str] = {}
        self.told: dict[str, int] = {}
        self.began = 0.0
        self.when = ""
        self.now: dict[str, list[str]] = {}
        self.written: list[str] = []
        super().__init__(policy(**changed), play or {}, green)
        self.forge.after = self._wrote

    # ------------------------------------------------------------ listening

    def start(self) -> None:
        if not self.began:
            self.began = self.clock.now()
            spawn = self.crew._spawn

            def spawned(job: Job) -> None:
                spawn(job)
                self._listen(self.crew.living[job.env["HARNESS_ATTEMPT"]].turns.ticker.world.store)

            self.crew._spawn = spawned  # type: ignore[method-assign]
        else:
            self.says("The director starts again.")
        super().start()
        self._listen(self.store)

    def wait(self, seconds: float) -> None:
        """Time passes."""
        until = self.clock.at + seconds
        self.due = lambda: (until,)
        self.run(lambda n: n.clock.at >= until)
        self.due = tuple

    def _listen(self, store: Any) -> None:
        for machine in store.machines():
            for record in store.read(machine, self.told.get(machine, 0)):
                self._record(record)
        store.after = self._record

    # ------------------------------------------------------------ telling

    def says(self, text: str) -> None:
        """A line of the narrator."""
        self._flush()
        self.lines += ["", f"{self._time()}  ## {text}"]

    def _time(self) -> str:
        s = int(self.clock.now() - self.began)
        return f"{s // 3600}:{s // 60 % 60:02}:{s % 60:02}"

    def _flush(self) -> None:
        """What happened in the second that is over, machine by machine."""
        for machine, lines in self.now.items():
            self.lines += ["", f"{self.when}  {machine.removeprefix(REPO + '/')}", *lines]
        self.now.clear()

    def _line(self, machine: str, text: str) -> None:
        if self._time() != self.when:
            self._flush()
            self.when = self._time()
        self.now.setdefault(machine, []).append(self.named(text).rstrip())

    def named(self, text: str) -> str:
        text = GATE.sub(lambda m: self._name(m[0], "g"), text)
        text = DIGEST.sub("sha256:…", text)
        return SHA.sub(lambda m: self._sha(m[0]), text)

    def _sha(self, sha: str) -> str:
        known = {**self.repo._everything(), **self.remote.commits}
        trees = {c.tree_sha for c in known.values()}
        if len(sha) == 12:
            sha = next((x for x in (*known, *trees) if x.startswith(sha)), sha)
        return self._name(sha, "t" if sha in trees else "c")

    def _name(self, key: str, prefix: str) -> str:
        if key not in self.names:
            self.names[key] = f"{prefix}{sum(1 for n in self.names.values() if n.startswith(prefix)) + 1}"
        return self.names[key]

    def _record(self, r: Record) -> None:
        self.told[r.machine] = r.seq
        if r.kind == "snapshot":
            return
        m, b = r.machine, r.body
        if r.kind == "outcome":
            self._outcome(m, b)
            return
        why = " / ".join(x.strip() for x in b["reason"].splitlines() if x.strip())
        if b["event"] is None and b["from"] == "":
            self._line(m, f"  -> (start) {b['to']}")
        elif b["event"] is None:
            self._line(m, f"  .. {b['to']}   {why}")
        else:
            self._line(m, f"  -> {b['from']} --{b['event']}--> {b['to']}   {why}")
        for raw in b["intents"]:
            self._line(m, f"     i {raw[TAG]} {self._key(raw)}")

    def _key(self, raw: Mapping[str, Any]) -> str:
        return " ".join(str(CODEC.decode(dict(raw)).key).split())

    def _outcome(self, machine: str, b: Mapping[str, Any]) -> None:
        for line in self.written:
            self._line(machine, line)
        self.written.clear()
        if b["status"] == "exception":
            self._line(machine, f"  !! exception: {b['detail'].splitlines()[0]}")
            return
        value = b.get("value")
        said = {k: v for k, v in value.items() if v not in ("", [], {}, None)} if value else {}
        text = "" if b["status"] == "done" else f" {b.get('failure', '')} {b.get('detail', '')}".rstrip()
        facts = ", ".join(f"{k}={v}" for k, v in sorted(said.items()))
        self._line(machine, f"  o  {b['effect']} {b['status']}{text}{'   ' + facts if facts else ''}")

    def _wrote(self, name: str, args: Mapping[str, Any], done: Any) -> None:
        if name not in WRITES:
            return
        if not isinstance(done, Ok):
            self.written.append(f"       > {name}: {done.failure} {done.detail}")
            return
        self.written.append(f"       > {name} {self._said(name, args)}")

    def _said(self, name: str, args: Mapping[str, Any]) -> str:
        shown = {k: v for k, v in args.items() if v not in (None, "", False)}
        if name == "ensure_labels":
            return ", ".join(sorted(shown["labels"]))
        parts = []
        for k, v in shown.items():
            text = MARKER.sub("", v) if isinstance(v, str) else str(v)
            if k == "body":
                parts.append(f"“{' / '.join(x.strip() for x in text.splitlines() if x.strip())}”")
            elif k in ("number", "comment_id"):
                parts.append(f"#{v}")
            else:
                parts.append(text if k in ("label", "state") else f"{k}={text}")
        return " ".join(parts)

    # ------------------------------------------------------------ the end

    def end(self) -> str:
        """The whole story, and what the forge holds in the end."""
        self._flush()
        lines = [*self.lines, "", f"{self._time()}  ## In the end", ""]
        for k, state in sorted(self.states().items()):
            lines.append(f"  {k}: {state}")
        lines.append("")
        for n, issue in sorted(self.hub.issues.items()):
            labels = ", ".join(issue.labels) or "no label"
            lines.append(f"  issue #{n} “{issue.title}”: {'open' if issue.open else 'closed'}, {labels}")
            lines += self._comments(n)
        for n, pull in sorted(self.hub.pulls.items()):
            state = "merged" if pull.merged else "open" if pull.open else "closed"
            lines.append(self.named(f"  pull #{n} {pull.head} into {pull.base}: {state}"))
            lines += [f"      | {x}" for x in MARKER.sub("", pull.body).strip().splitlines()]
            lines += self._comments(n)
        for ref, sha in sorted(self.remote.refs.items()):
            lines.append(self.named(f"  {ref} {sha}"))
        for tag, text in sorted(self.hub.release_texts.items()):
            lines.append(self.named(f"  release {tag}: {text['name']}"))
            lines += [self.named(f"      | {x}".rstrip()) for x in text["body"].strip().splitlines()]
        return "\n".join(x.rstrip() for x in lines) + "\n"

    def _comments(self, number: int) -> list[str]:
        lines = []
        for _, (n, c) in sorted(self.hub.comments.items()):
            if n == number:
                text = MARKER.sub("", c.body).strip().splitlines()
                lines.append(f"    {c.author}:")
                lines += [f"      | {x}" for x in text]
        return lines
