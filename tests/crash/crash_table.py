"""The table of a sweep, counted from its outcomes.

The one rule: a figure here is a count of documents; nothing is rounded in anybody's favour, and what was not died at
is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from crash_kills import place_of
from crash_paths import ROUTES

KINDS = ("before an effect", "after an effect", "before an append", "after an append", "in a state")
COMMAND = "scripts/crash-matrix.py"
Document = Mapping[str, Any]
PARTS = (("director", "process"), ("worker", "process"), ("director", "docker"), ("worker", "docker"))
FLAGS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("director", "process"): (),
    ("worker", "process"): ("--who worker",),
    ("director", "docker"): ("--docker harness-worker:dev",),
    ("worker", "docker"): ("--who worker", "--docker harness-worker:dev"),
}
IN = {"process": "", "docker": ", in real containers"}
LEFT_LIMIT = 40  # of a sample they are not listed


def kind_of(boundary: str) -> str:
    """One of KINDS, of a boundary as it is written down: `after append outcome of ticket 1 LANDING Land`, or
    `in worker 1.1 CODING` of one that was killed from outside."""
    when, what, *_ = boundary.split()
    if when == "in":
        return KINDS[-1]
    return f"{when} an {'append' if what == 'append' else 'effect'}"


def effect_of(boundary: str) -> str:
    what = boundary.split()[1]
    return "" if what in ("append", "worker") else what


def rows(head: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    told = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    return "\n".join([*told, *(f"| {' | '.join(str(c) for c in line)} |" for line in lines)]) + "\n"


def table(documents: Sequence[Document]) -> str:
    """The whole file. `documents` are outcomes, calm ones among them."""
    parts = []
    for who, runtime in PARTS:
        theirs = [d for d in documents if (d["who"], d["runtime"]) == (who, runtime)]
        if any(d["kills"] for d in theirs):
            parts.append(_part(who, runtime, theirs))
    return HEAD + "\n".join(parts)


HEAD = f"""# The crash matrix

Made by `{COMMAND}`; not edited by hand. The command of a row makes that row again. Its zeros must
come out. Where all places are wanted, those of a calm run that none died at are few and listed, with those that come and
go with the speed of two machines of one world; a sample, or a part that was cut short, has many. `--table` makes this
file again from the outcomes that the runs wrote down in `.cache/crash-matrix.jsonl`.

A run is a world of its own: the embedded forge over HTTP, real git, SQLite and files, and directors, workers and gates
as processes; in the parts that say so, workers and gates are containers of a Docker engine. A process dies by SIGKILL, of itself, at a *boundary*: right before or after an append to a journal, or
right before or after an effect (after: before its outcome is appended). Another one is then started on the same
folder. At the end the world is compared with that of a run without a crash: issues, labels, comments, pulls, reviews,
statuses, releases, events, tags and their trees, the commits of the default branch, refs, where each machine ended,
what is left over of containers, processes, clones, sockets, locks and open intents, and, where that was counted, how
often each agent ran. A *duplicate* is something that is there once more than without a crash, a *loss* something that
is there once less; what is there but differs counts as both.

A *place* is a boundary together with the state of its machine and what that had begun, without numbers: "after Comment
of ticket N LANDED Comment". Each path has places of its own, and is killed at all of them: in a run of mode *cover*
every one dies at the first place that none of this path has died at yet, up to 40 in a run (3 for workers: more than
five deaths of one are given up, as they should be), and runs follow until one comes to its end without having been at a
place that none had died at. In mode *at ...* one dies at the first boundary of each of the kinds that are named, which
is what samples are made of. A worker that is a container is killed from outside, by its engine, at the first look that
finds its journal in a state that none of this path has died in yet; its boundaries and places are such states.

Not in it: deaths in the middle of an effect (between two requests of the same one), deaths of two processes at once,
and of gates.
"""


def _part(who: str, runtime: str, documents: Sequence[Document]) -> str:
    crashed = [d for d in documents if d["mode"] != "calm"]
    names = [r.name for r in ROUTES if any(d["route"] == r.name for d in crashed)]
    by_path = {n: [d for d in documents if d["route"] == n] for n in names}
    about = {r.name: r.about for r in ROUTES}
    kills = [k for d in crashed for k in d["kills"]]
    modes = sorted({d["mode"].split()[0] for d in crashed})
    counted = sum(map(_counted, crashed))
    agents = f" In {counted} of the runs it was counted how often each agent ran." if counted else ""
    sampled = ["--sample"] if modes == ["at"] else []
    command = " ".join([COMMAND, *FLAGS[who, runtime], *sampled])
    lines = [(n, about[n], *_counts(by_path[n]), f"`{command} --path {n}`") for n in names]
    head = ("path", "what happens on it", "boundaries of a calm run", "places of it", "died at", "other places died at",
            "places not died at", "runs", "kills", "duplicates", "losses", "without an end", "command")  # fmt: skip
    return "\n".join(
        (
            f"\n## The {who} dies{IN[runtime]}\n",
            f"{len(crashed)} runs ({', '.join(modes)}), {len(kills)} kills, "
            f"{sum(len(_died(by_path[n])) for n in names)} places of paths died at, "
            f"{sum(d['cpu_s'] for d in documents):.0f} s of processor time (without the workers' own)."
            f"{agents} All paths: `{command}`.\n",
            rows(head, lines),
            "Kills by kind of boundary:\n",
            rows(("path", *KINDS), [(n, *_kinds(by_path[n])) for n in names]),
            _effects(kills),
            _left(by_path),
            _bad(crashed),
        )
    )


def _counted(document: Document) -> bool:
    return any(fact.startswith("the agent of issue ") for fact in document["facts"])


def _calm(documents: Sequence[Document]) -> set[str]:
    """The places of the runs without a crash."""
    return {place_of(b) for d in documents if d["mode"] == "calm" for life in d["lives"] for b in life}


def _died(documents: Sequence[Document]) -> set[str]:
    return {place_of(k) for d in documents for k in d["kills"]}


def _counts(documents: Sequence[Document]) -> tuple[object, ...]:
    boundaries = max((sum(map(len, d["lives"])) for d in documents if d["mode"] == "calm"), default=0)
    places, died = _calm(documents), _died(documents)
    crashed = [d for d in documents if d["mode"] != "calm"]
    return (
        boundaries, len(places), len(places & died), len(died - places), len(_undied(documents)), len(crashed),
        sum(len(d["kills"]) for d in crashed), sum(len(d["duplicates"]) for d in crashed),
        sum(len(d["losses"]) for d in crashed), sum(1 for d in crashed if d["trouble"]),
    )  # fmt: skip


def _undied(documents: Sequence[Document]) -> set[str]:
    """Places that any run was at, calm or not, and none died at."""
    return {place_of(b) for d in documents for life in d["lives"] for b in life} - _died(documents)


def _left(by_path: Mapping[str, Sequence[Document]]) -> str:
    """By place: of which paths none died there."""
    left = {n: _undied(documents) for n, documents in by_path.items()}
    at = sorted(set().union(*left.values()))
    if not at or any(len(x) > LEFT_LIMIT for x in left.values()):
        return ""
    said = [f"* {place}: {', '.join(n for n in by_path if place in left[n])}" for place in at]
    return "\n".join(["Places that none died at:\n", *said]) + "\n"


def _kinds(documents: Sequence[Document]) -> list[int]:
    counted = Counter(kind_of(k) for d in documents for k in d["kills"])
    return [counted[k] for k in KINDS]


def _effects(kills: Sequence[str]) -> str:
    counted = Counter((effect_of(k), k.split()[0]) for k in kills if effect_of(k))
    names = sorted({e for e, _ in counted})
    if not names:
        return ""
    lines = [(e, counted[e, "before"], counted[e, "after"]) for e in names]
    return "Kills by effect, all paths:\n\n" + rows(("effect", "before it", "after it"), lines)


def _bad(crashed: Sequence[Document]) -> str:
    said = [
        f"* {d['route']}, {d['mode']}: {x}"
        for d in crashed
        for x in (
            *(f"one too many: {e}" for e in d["duplicates"]), *(f"one too few: {e}" for e in d["losses"]),
            *([f"no end: {d['trouble'].splitlines()[0]}"] if d["trouble"] else []),
        )
    ]  # fmt: skip
    return "\n".join(["What differed:\n", *said]) + "\n" if said else "Nothing differed.\n"
