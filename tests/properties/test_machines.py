"""Whatever a machine sees, its handlers answer, and what they answer is a move of its own table.

Facts are drawn as the looks would deliver them: of the right kind, in any combination, or not read at all.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
from handlers import NOW, POLICY, REPO
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.core.fsm import Move, Stay, step
from harness.core.item import Intent, Item
from harness.core.result import Err, Ok, Pass
from harness.domain import (
    Absent,
    AgentResult,
    Ask,
    Beat,
    Candidate,
    Check,
    Control,
    Entry,
    Gone,
    Issue,
    Lane,
    Limited,
    News,
    Pull,
    Reply,
    Review,
    Run,
    Slots,
    Status,
    Unknown,
    WorkTree,
)
from harness.effects import EndGate, EnsureLabels, Land, LoadContext, OpenMachine, StartAgent, Sync
from harness.failures import Failure
from harness.judgement import begin, decide
from harness.machines.all import CODEC, KINDS
from harness.machines.kind import Gate, Peer, Seen

settings.register_profile("machines", deadline=None, suppress_health_check=[HealthCheck.too_slow])

SHAS = st.sampled_from(["a" * 40, "b" * 40, "c" * 40])
TIMES = st.sampled_from([0.0, NOW - 10**7, NOW - 100, NOW - 1, NOW, NOW + 100])
WORDS = st.sampled_from(["", "x", "3 failed of 44\nmore", "> quoted", "ada", "harness"])
LABELS = st.lists(
    st.sampled_from(["harness", "harness:working", "harness:deferred", "priority:high"]), max_size=3
).map(tuple)
FAILURES = st.sampled_from(["", *Failure])
TICKET, RELEASE, ATTEMPT = f"{REPO}/ticket/12", f"{REPO}/release/0.4.0", f"{REPO}/attempt/12.1"
MERGE = st.fixed_dictionaries({"sha": SHAS, "tree": SHAS, "base": SHAS, "head": SHAS})

ISSUES = st.builds(
    Issue,
    number=st.just(12),
    title=WORDS,
    body=WORDS,
    author=WORDS,
    author_kind=st.sampled_from(["User", "Bot"]),
    labels=LABELS,
    open=st.booleans(),
    locked=st.booleans(),
    created_at=TIMES,
    updated_at=TIMES,
)
PULLS = st.builds(
    Pull,
    number=st.just(31),
    head=st.just("agent/12"),
    base=st.sampled_from(["release/0.4.0", "main"]),
    head_sha=SHAS,
    open=st.booleans(),
    merged=st.booleans(),
    merge_sha=SHAS,
)
REPLIES = st.lists(
    st.builds(
        Reply,
        id=st.integers(1, 9),
        author=WORDS,
        body=WORDS,
        created_at=TIMES,
        name=st.sampled_from(["", "status", "question-7"]),
        instance=WORDS,
        ours=st.booleans(),
        trusted=st.booleans(),
    ),
    max_size=4,
).map(tuple)
REVIEWS = st.lists(
    st.builds(
        Review,
        id=st.integers(1, 9),
        author=WORDS,
        state=st.sampled_from(["APPROVED", "CHANGES_REQUESTED", "COMMENTED", "DISMISSED"]),
        body=WORDS,
        sha=SHAS,
        at=TIMES,
    ),
    max_size=3,
).map(tuple)
STATUSES = st.builds(
    Status,
    name=st.just("job"),
    phase=st.sampled_from(["PENDING", "RUNNING", "EXITED", "LOST", "REJECTED"]),
    exit=st.sampled_from([None, 0, 1, 2, 10, 11, 70, 75, 125, 126, 127, 137, 139, 143, 255]),
    oom=st.booleans(),
    signal=st.sampled_from([None, 9, 15]),
    engine=st.sampled_from(["", "e1", "e2"]),
    progress_at=TIMES,
)
BEATS = st.builds(
    Beat,
    at=TIMES,
    state=st.sampled_from(["CODE", "DONE", "BLOCKED"]),
    incarnation=st.integers(1, 2),
    final=st.sampled_from(["", "DONE", "BLOCKED"]),
    reason=WORDS,
    failure=st.one_of(FAILURES, st.just("no such class")),
    counters=st.dictionaries(st.sampled_from(["agent", "rework"]), st.integers(0, 5)),
)
RUNS = st.builds(
    Run,
    name=st.just("run-7"),
    running=st.booleans(),
    exit=st.sampled_from([None, 0, 1]),
    lost=st.booleans(),
    progress_at=TIMES,
    started_at=TIMES,
    commands_run=st.integers(0, 2),
    log_tail=WORDS,
    result=st.one_of(
        st.none(),
        st.builds(
            AgentResult,
            status=st.sampled_from(["done", "error", "quota", "rate_limited", "looped", "new"]),
            question=st.sampled_from(["", "Which?"]),
            retry_after_s=st.sampled_from([None, 5.0]),
        ),
    ),
)
TREES = st.builds(WorkTree, SHAS, SHAS, st.integers(0, 2), ahead=st.integers(0, 1), merging=st.booleans())
ASKS = st.lists(
    st.builds(
        Ask,
        key=st.sampled_from(["k1", "k2"]),
        kind=st.sampled_from(["publish", "open_pull", "ask", "review", "unheard of"]),
        args=st.fixed_dictionaries(
            {"sha": SHAS, "base_sha": SHAS, "bundle": st.just("f" * 64), "question": WORDS}
        ),
    ),
    max_size=2,
).map(tuple)
CONTROLS = st.lists(
    st.builds(
        Control,
        id=st.integers(1, 9),
        at=TIMES,
        verb=st.sampled_from(
            ["pause", "resume", "drain", "retry", "cancel", "stop-workers", "release-cut", "release-abandon"]
        ),
        args=st.sampled_from([{}, {"issue": 12}, {"version": "0.4.0"}]),
    ),
    max_size=3,
).map(tuple)
ENTRIES = st.lists(
    st.builds(
        Entry,
        machine=st.just(TICKET),
        issue=st.integers(11, 13),
        title=WORDS,
        state=st.sampled_from(KINDS["ticket"].table.states),
        entered_at=TIMES,
        pull=st.sampled_from([0, 31]),
        landed_in=st.sampled_from(["", RELEASE]),
        failure=FAILURES,
        detail=WORDS,
    ),
    max_size=3,
).map(tuple)


@lru_cache
def data_of(kind: str) -> st.SearchStrategy[Any]:
    """Plausible data of a machine: what handlers read, in any combination that a journal could hold."""
    cls = KINDS[kind].data
    fields: dict[str, dict[str, Any]] = {
        "director": {
            "repo": st.just(REPO),
            "base_sha": SHAS,
            "gate": WORDS,
            "release": st.sampled_from(["", RELEASE]),
            "chosen": st.sampled_from([(), (12,)]),
            "cooldown_until": TIMES,
        },
        "ticket": {
            "repo": st.just(REPO),
            "issue": st.just(12),
            "lands": st.sampled_from(["lane", "person"]),
            "attempts": st.integers(0, 11),
            "attempt": st.just(ATTEMPT),
            "spawned": st.sampled_from([0, 7]),
            "counters": st.dictionaries(st.sampled_from(["agent", "rework", "infra"]), st.integers(0, 6)),
            "not_before": TIMES,
            "failure": FAILURES,
            "detail": WORDS,
            "feedback": WORDS,
            "head": SHAS,
            "pull": st.just(31),
            "merge": st.one_of(st.just({}), MERGE),
            "gate": WORDS,
            "gate_tries": st.integers(0, 4),
            "turn": st.sampled_from(["", f"{RELEASE} 7"]),
            "landed_in": st.just(RELEASE),
            "came_from": st.sampled_from(["CLAIMING", "ATTEMPTING", "REVIEWING", "LANDING", "WAITING"]),
        },
        "attempt": {
            "code": st.just("12.1"),
            "ticket": st.just(TICKET),
            "issue": st.just(12),
            "purpose": st.sampled_from(["issue", "merge"]),
            "prepare": st.sampled_from(["", "prepare-1"]),
            "incarnation": st.integers(1, 2),
            "infra": st.integers(0, 6),
            "engine": st.sampled_from(["", "e1"]),
            "answers": st.sampled_from([{}, {"k1": {"ok": True}}]),
            "head": st.one_of(st.just(""), SHAS),
            "pull": st.sampled_from([0, 31]),
            "question": WORDS,
            "failure": FAILURES,
            "detail": WORDS,
        },
        "release": {
            "repo": st.just(REPO),
            "version": st.just("0.4.0"),
            "branch": st.just("release/0.4.0"),
            "base": st.just("main"),
            "tag": st.just("v0.4.0"),
            "pull": st.just(31),
            "body_hash": WORDS,
            "merge": st.one_of(st.just({}), MERGE),
            "gate": WORDS,
            "gated": st.one_of(st.just(""), SHAS),
            "merge_sha": st.one_of(st.just(""), SHAS),
            "tip": SHAS,
            "base_tip": SHAS,
            "resolves": st.integers(0, 3),
            "attempt": st.sampled_from(["", ATTEMPT]),
            "landed": st.sampled_from([(), (12,)]),
            "waits": WORDS,
            "detail": WORDS,
            "failure": FAILURES,
        },
        "worker": {
            "issue": st.just(12),
            "image": st.sampled_from(["img1", "img2"]),
            "checked": st.sampled_from(["", "img2"]),
            "tag": st.sampled_from(["", "v1"]),
            "back": st.sampled_from(["retry_upgrade", "retry_code", "retry_pr"]),
            "not_before": TIMES,
            "counters": st.dictionaries(st.sampled_from(["agent", "rework", "infra"]), st.integers(0, 6)),
            "pull": st.sampled_from([0, 31]),
            "sha": SHAS,
            "base_sha": SHAS,
            "question": WORDS,
        },
    }
    return st.builds(cls, **fields[kind])


@lru_cache
def peer_of(name: str) -> st.SearchStrategy[Any]:
    kind = name.split("/")[-2]
    states = st.sampled_from(KINDS[kind].table.states)
    return st.builds(Peer, st.just(name), states, TIMES, st.just(7), data_of(kind))


@lru_cache
def fact(query: str) -> st.SearchStrategy[Any]:
    """What the look of this query may deliver."""
    head, _, rest = query.partition("/")
    refs = st.dictionaries(
        st.sampled_from(
            ["refs/heads/main", "refs/heads/release/0.4.0", "refs/heads/agent/12", "refs/tags/v0.3.0"]
        ),
        SHAS,
    )
    known: dict[str, Any] = {
        "candidates": st.lists(st.builds(Candidate, ISSUES, st.booleans()), max_size=2).map(tuple),
        "issue": st.one_of(ISSUES, st.builds(Gone, WORDS)),
        "closed": st.one_of(ISSUES, st.builds(Gone, WORDS)),
        "replies": REPLIES,
        "pull": PULLS,
        "reviews": REVIEWS,
        "checks": st.lists(
            st.builds(
                Check,
                st.sampled_from(["ci", "harness/release"]),
                st.sampled_from(["success", "pending", "failure", "cancelled", "skipped"]),
            ),
            max_size=2,
        ).map(tuple),
        "repository": st.just("repository"),
        "default": st.just("main"),
        "refs": refs,
        "tree": SHAS if rest else TREES,
        "preflight": st.just(True),
        "image": st.just("img"),
        "ours": st.lists(STATUSES, max_size=2).map(tuple),
        "job": st.one_of(STATUSES, st.builds(Absent, WORDS)),
        "gate": st.builds(
            Gate, st.just(rest), st.sampled_from(["running", "green", "red", "lost"]), WORDS, st.just(1)
        ),
        "disk": st.sampled_from([0, 1 << 40]),
        "run": RUNS,
        "entries": ENTRIES,
        "slots": st.builds(Slots, st.integers(0, 4), st.sampled_from([(), (TICKET,)])),
        "lane": st.sampled_from([Lane(), Lane(RELEASE, "0.4.0", "release/0.4.0", TICKET)]),
        "controls": CONTROLS,
        "signal": st.sampled_from(["", "", "SIGTERM"]),
        "limits": st.lists(
            st.builds(Limited, st.sampled_from(["github.read", "model.request"]), TIMES), max_size=1
        ).map(tuple),
        "beat": BEATS,
        "words": BEATS,
        "asked": ASKS,
        "capped": st.sampled_from(["", "the budget is used up"]),
        "news": st.builds(
            News, st.sampled_from(["", "v1", "v2"]), st.just(""), st.sampled_from(["", "img1", "img2"]),
            stop=st.booleans(),
        ),
    }  # fmt: skip
    if head == "item":
        return peer_of(rest) if rest.count("/") >= 3 else st.just(Unknown("not opened yet"))
    if head == "releases":
        return st.lists(peer_of(RELEASE), max_size=2).map(tuple)
    if head == "director":
        return peer_of(f"{REPO}/director/1")
    return known[head]


@lru_cache
def looked(query: str) -> st.SearchStrategy[Any]:
    return st.one_of(st.just(Unknown("not read")), fact(query))


def done(effect: Any, value: Any) -> Intent:
    return Intent(0, CODEC.encode(effect), "done", value=value)


BEGUN = {
    "SYNC_MAIN": st.sampled_from(
        [
            done(Sync("main"), {"what": "merged", "base_sha": "b" * 40, "conflicts": ["x"]}),
            done(Sync("main"), {"what": "up_to_date", "base_sha": "b" * 40}),
        ]
    ),
    "CONTEXT_LOAD": st.just(done(LoadContext(12), {"bytes": 1, "hidden": 0})),
    "CODE": st.just(done(StartAgent("run-7", "scripted", 1), {"gaps": 0})),
    "BOOT": st.just(done(EnsureLabels(()), {"created": 0})),
    "GATING": st.just(done(EndGate("gate-1"), {})),
    "RESOLVING": st.just(done(Land("b", "a" * 40, "b" * 40), {"landed": True, "why": ""})),
}
FAILED = st.builds(
    Intent,
    st.just(0),
    st.just(CODEC.encode(OpenMachine("m", {}))),
    st.just("failed"),
    failure=st.sampled_from(list(Failure)),
    detail=WORDS,
)


def intents_of(state: str, data: Any) -> st.SearchStrategy[tuple[Intent, ...]]:
    choices = [st.just(()), FAILED.map(lambda i: (i,))]
    if state in BEGUN:
        choices.append(BEGUN[state].map(lambda i: (i,)))
    if state in ("LANDING", "MERGING") and data.merge:
        land = Land("b", data.merge["sha"], data.merge["base"])
        answers = [
            {"landed": True, "why": ""},
            {"landed": False, "why": "moved"},
            {"landed": False, "why": "protected"},
        ]
        choices.append(st.sampled_from([(done(land, a),) for a in answers]))
    return st.one_of(choices)


POLICIES = st.sampled_from(
    [
        {},
        {"merge": "person"},
        {"gates": "checks"},
        {"required_review": "issue"},
        {"required_review": "release"},
        {"mode": "pulls"},
        {"commands": ()},
        {"prepare": ("install",)},
        {"when": "asked"},
    ]
)


CASES = [(k, s) for k, kind in KINDS.items() for s in kind.table.states if s not in kind.table.final]


@pytest.mark.parametrize(("name", "state"), CASES, ids=[f"{k}-{s}" for k, s in CASES])
@settings(settings.get_profile("machines"), max_examples=60)
@given(draw=st.data())
def test_handlers_never_raise_and_move_only_as_their_table_says(name: str, state: str, draw: Any) -> None:
    kind = KINDS[name]
    data = draw.draw(data_of(name))
    entered = draw.draw(TIMES)
    it: Item[Any] = Item(
        f"{REPO}/{name}/12", state, data, entered, 7, 9, "h", entered, draw.draw(intents_of(state, data))
    )
    p = replace(POLICY, **draw.draw(POLICIES))
    wants = dict.fromkeys((*kind.wants(it, p), *kind.alarms(it, p)))
    facts = {q: draw.draw(looked(q)) for q in wants}
    sn = Seen(NOW, p, draw.draw(TIMES), facts)
    alarm = kind.alarm(it, sn)
    result = Ok(alarm) if alarm is not None else decide(it, kind, sn)
    if isinstance(result, Err):
        result = Ok(kind.fails(it, sn, result))
    if isinstance(result, Pass):
        assert result.message
        return
    answer = result.value
    CODEC.encode(dict(answer.note))
    if isinstance(answer, Stay):
        for effect in answer.intents:
            assert CODEC.decode(CODEC.encode(effect)) is not None and effect.key
        return
    assert isinstance(answer, Move)
    assert answer.event in kind.table.targets(state), answer
    to = step(kind.table, state, answer.event).unwrap()
    for effect in begin(it, kind, sn, answer, to):
        assert effect.key


@pytest.mark.parametrize("name", KINDS)
def test_no_row_names_an_illegal_move(name: str) -> None:
    t = KINDS[name].table
    for frm, event, to in t.moves():
        assert to in t.states
        for state in [frm] if frm != "*" else [s for s in t.states if s not in t.final]:
            assert step(t, state, event) == Ok(t.rows[state].moves.get(event, to))
