"""The table of a sweep, counted from its outcomes.

The one rule: a figure here is a count of documents; nothing is rounded in anybody's favour, and what was not died at
is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from crash_case import place_of
from crash_paths import ROUTES

KINDS = ("before an effect", "after an effect", "before an append", "after an append")
COMMAND = "scripts/crash-matrix.py"
Document = Mapping[str, Any]


def kind_of(boundary: str) -> str:
    """One of KINDS, of a boundary as it is written down: `after append outcome of ticket 1 LANDING Land`."""
    when, what, *_ = boundary.split()
    return f"{when} an {'append' if what == 'append' else 'effect'}"


def effect_of(boundary: str) -> str:
    what = boundary.split()[1]
    return "" if what == "append" else what


def rows(head: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    told = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    return "\n".join([*told, *(f"| {' | '.join(str(c) for c in line)} |" for line in lines)]) + "\n"


def table(documents: Sequence[Document]) -> str:
    """The whole file. `documents` are outcomes, calm ones among them."""
    found = []
    for who in ("director", "worker"):
        theirs = [d for d in documents if d["who"] == who]
        if any(d["kills"] for d in theirs):
            found.append(_part(who, theirs))
    return HEAD + "\n".join(found)


HEAD = f"""# The crash matrix

Made by `{COMMAND}` (`--table` makes this file again from what the runs wrote down); not edited by hand.

A run is a world of its own: the embedded forge over HTTP, real git, SQLite and files, and directors, workers and gates
as processes. A process dies by SIGKILL, of itself, at a *boundary*: right before or after an append to a journal, or
right before or after an effect (after: before its outcome is appended). Another director is then started on the same
folder. At the end the world is compared with that of a run without a crash: issues, labels, comments, pulls, reviews,
statuses, releases, events, tags and their trees, the commits of the default branch, refs, where each machine ended, and
what is left over of containers, processes, clones, sockets, locks and open intents. A *duplicate* is something that is
there once more than without a crash, a *loss* something that is there once less; what is there but differs counts as
both.

A *place* is a boundary together with where its machine was and what that had begun, without numbers: "after Comment of
ticket LANDED". In a run of mode *cover* every director dies at the first place that none has died at yet, on any path,
until one comes to the end; in mode *steps n* at the n-th boundary from where the world has moved on in its life; in mode
*stairs* the n-th director dies at its own n-th boundary; in mode *single n* only the first one dies.
"""


def _part(who: str, documents: Sequence[Document]) -> str:
    names = [r.name for r in ROUTES if any(d["route"] == r.name for d in documents)]
    by_path = {n: [d for d in documents if d["route"] == n] for n in names}
    about = {r.name: r.about for r in ROUTES}
    crashed = [d for d in documents if d["mode"] != "calm"]
    kills = [k for d in crashed for k in d["kills"]]
    everywhere = {place_of(k) for k in kills}
    modes = sorted({d["mode"].split()[0] for d in crashed})
    flag = "" if who == "director" else f" --who {who}"
    lines = [
        (n, about[n], *_counts(by_path[n], everywhere), f"`{COMMAND}{flag} --path {n}`") for n in names
    ]  # fmt: skip
    head = ("path", "what happens on it", "boundaries of a calm run", "places of it", "died at here",
            "died at on any path", "runs", "kills", "duplicates", "losses", "without an end", "command")  # fmt: skip
    return "\n".join(
        (
            f"\n## The {who} dies\n",
            f"{len(crashed)} runs ({', '.join(modes)}), {len(kills)} kills, "
            f"{len(everywhere)} places died at, {sum(d['cpu_s'] for d in crashed):.0f} s of processor time (without the "
            "workers' own).\n",
            rows(head, lines),
            "Kills by kind of boundary:\n",
            rows(("path", *KINDS), [(n, *_kinds(by_path[n])) for n in names]),
            _effects(kills),
            _bad(crashed),
        )
    )


def _counts(documents: Sequence[Document], everywhere: set[str]) -> tuple[object, ...]:
    calm = next((d for d in documents if d["mode"] == "calm"), None)
    crossed = [b for life in calm["lives"] for b in life] if calm else []
    places = {place_of(b) for b in crossed}
    crashed = [d for d in documents if d["mode"] != "calm"]
    died = {place_of(k) for d in crashed for k in d["kills"]}
    return (
        len(crossed), len(places), len(places & died), len(places & everywhere), len(crashed), sum(len(d["kills"]) for d in crashed),
        sum(len(d["duplicates"]) for d in crashed), sum(len(d["losses"]) for d in crashed),
        sum(1 for d in crashed if d["trouble"]),
    )  # fmt: skip


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
