"""One attempt and its worker, played once; tests seal what is left of it in folders of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from audit_stage import REPO, START, Stage, begun, closed, director, lines, worker

from harness.audit.bundle import blobs_of, seal
from harness.policy import Policy

MACHINE = f"{REPO}/attempt/12.1"


@dataclass(frozen=True)
class Play:
    """The director's stage, the worker's, and what `seal` is given of them."""

    director: Stage
    worker: Stage
    given: dict[str, Any]


@pytest.fixture(scope="session")
def play() -> Play:
    testimony = worker()
    stage = Stage(policy=Policy(commands=("scripts/test.sh",), image="sha256:41d0", max_workers=2))
    director(stage)
    stage.at("02:07:00")
    begun(stage)
    closed(stage, testimony)
    last = testimony.records("worker/12.1")[-1]
    blobs: dict[str, bytes] = {}
    for s, name in ((testimony, "worker/12.1"), (stage, "attempt/12.1")):
        assert s.store is not None
        blobs |= {sha: s.store.disk.blobs[sha] for sha in blobs_of(s.records(name))}
    meta = {
        "machine": MACHINE, "attempt": "12.1", "issue": 12, "title": "Widget forgets its colour",
        "branch": "agent/12", "base_sha": "9f3c2a", "outcome": "done", "failure": "", "detail": "",
        "pull": 31, "worker_head": last.hash, "worker_seq": last.seq, "cost": {"usd": 0.44}, "exit": 0,
    }  # fmt: skip
    given = {
        "meta": meta, "journal_lines": lines(testimony, "worker/12.1"),
        "attempt_lines": lines(stage, "attempt/12.1"), "blobs": blobs, "extra": {}, "at": START + 1400,
    }  # fmt: skip
    return Play(stage, testimony, given)


@pytest.fixture
def bundle(play: Play, tmp_path: Path) -> Callable[..., Path]:
    """Seals the attempt in `tmp_path/audits`, with whatever a test gives it instead."""

    def make(**other: Any) -> Path:
        audits = other.pop("audits", tmp_path / "audits")
        return audits / seal(audits, **{**play.given, **other})

    return make
