"""A real coding agent carries an issue to a landed pull through the model proxy; the model is scripted.

As a process only where HARNESS_CODEX names the binary; in its container, where there is an engine.
"""

from __future__ import annotations

import json
import os

import pytest
from demo_world import bundles, left_over, repo_of
from scripted_model import TOKENS_IN, TOKENS_OUT
from worlds import Coded

RUNS = [
    pytest.param("codex_in_docker", marks=pytest.mark.docker),
    *(["codex_as_process"] if os.environ.get("HARNESS_CODEX") else []),
]


@pytest.fixture(params=RUNS)
def coded(request: pytest.FixtureRequest) -> Coded:
    found: Coded = request.getfixturevalue(request.param)
    assert found.finished.code == 0, found.finished.told[-4000:]
    return found


def test_the_issue_is_landed_and_released(coded: Coded) -> None:
    assert [t["state"] for t in coded.finished.document["tickets"]] == ["RELEASED"], coded.finished.out
    assert "agent.txt" in coded.tree
    heads = sorted((p["head_ref"], bool(p["merged"])) for p in repo_of(coded.folder)["pulls"])
    assert heads == [("agent/1", True), ("release/0.1.0", True)]


def test_every_call_went_through_the_proxy_with_the_real_key(coded: Coded) -> None:
    assert len(coded.requests) == 3
    assert {r.headers["authorization"] for r in coded.requests} == {f"Bearer {coded.key}"}
    assert not any(coded.key in json.dumps(r.body) for r in coded.requests)


def test_tokens_are_counted_in_the_bundle(coded: Coded) -> None:
    (bundle,) = bundles(coded.folder)
    cost = json.loads((bundle / "meta.json").read_text())["cost"]
    assert (cost["requests"], cost["tokens_in"], cost["tokens_out"]) == (3, 3 * TOKENS_IN, 3 * TOKENS_OUT)
    assert cost["usd"] > 0
    ledger = b"".join(p.read_bytes() for p in sorted((bundle / "ledger").rglob("*")) if p.is_file())
    assert b"I look around." in ledger
    whole = b"".join(p.read_bytes() for p in sorted(bundle.rglob("*")) if p.is_file())
    assert coded.key.encode() not in whole


def test_nothing_is_left_over(coded: Coded) -> None:
    assert left_over(coded.folder, "docker" if coded.containers else "process") == []


def test_the_agent_cannot_find_the_key_nor_a_way_out(codex_in_docker: Coded) -> None:
    said = json.dumps(codex_in_docker.requests[1].body)
    assert "found=0" in said and "files=0" in said and "links=lo," in said, said[-4000:]
    assert "who=0" not in said and "Read-only file system" in said
    assert codex_in_docker.containers
    for seen in codex_in_docker.containers:
        key = codex_in_docker.key.encode()
        texts = {**seen.files, "inspect": json.dumps(seen.attrs).encode()}
        texts |= {f"process {i}": p for i, p in enumerate(seen.processes)}
        assert [n for n, text in texts.items() if key in text] == []
