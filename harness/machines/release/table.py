"""The release's table."""

from __future__ import annotations

from harness.core.fsm import Row, table
from harness.core.item import Item
from harness.machines.kind import Kind
from harness.machines.release import ending, landing, opening
from harness.machines.release.states import E, Release, S, fold
from harness.policy import Policy

TABLE = table(
    "release",
    S,
    S.OPEN,
    {
        S.OPEN: Row(opening.begin, opening.watch, {E.SETTLED: S.GATING}),
        S.GATING: Row(None, landing.watch_gating, {E.GREEN: S.MERGING, E.RED: S.NEEDS_PERSON}),
        S.MERGING: Row(
            None,
            landing.watch_merging,
            {E.MERGED: S.TAGGING, E.TREE_DIFFERS: S.GATING, E.CONFLICT: S.RESOLVING},
        ),
        S.RESOLVING: Row(None, ending.watch_resolving, {E.RESOLVED: S.GATING, E.GAVE_UP: S.NEEDS_PERSON}),
        S.TAGGING: Row(
            ending.begin_tagging,
            ending.watch_tagging,
            {E.TAGGED: S.PUBLISHING, E.TAG_CONFLICT: S.NEEDS_PERSON},
        ),
        S.PUBLISHING: Row(ending.begin_publishing, ending.watch_publishing, {E.PUBLISHED: S.PUBLISHED}),
        S.NEEDS_PERSON: Row(ending.begin_needs_person, ending.watch_needs_person, {E.PERSON_ACTED: S.GATING}),
        S.PUBLISHED: Row(),
        S.ABANDONED: Row(ending.begin_ended),
    },
    final=(S.PUBLISHED, S.ABANDONED),
    anywhere={E.ABANDONED: S.ABANDONED},
)


def wants(item: Item[Release], policy: Policy) -> tuple[str, ...]:
    if item.state == S.OPEN:
        return opening.wants(item, policy)
    if item.state == S.GATING:
        return landing.wants_gating(item, policy)
    if item.state == S.MERGING:
        return landing.wants_merging(item, policy)
    return ending.wants(item, policy)


KIND = Kind("release", TABLE, Release, fold, wants, ending.fails, ending.alarms, ending.alarm)
