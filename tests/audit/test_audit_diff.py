"""Comparing: two runs of the same night have no difference; different decisions are shown side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from audit_stage import lines, worker
from conftest import Play

from harness.audit.diff import diff_bundles, diff_journals
from harness.audit.files import AuditError

Make = Callable[..., Path]


def test_the_same_work_at_another_time_has_no_difference(play: Play, bundle: Make, tmp_path: Path) -> None:
    later = worker()
    first = play.worker.records("worker/12.1")
    moved = [replace(r, at=r.at + 5000, epoch=9, hash="x", prev="y") for r in later.records("worker/12.1")]
    assert diff_journals(first, moved) is None and diff_journals(first, moved, strict=True) is None
    again = bundle(audits=tmp_path / "again", journal_lines=lines(later, "worker/12.1"))
    assert diff_bundles(bundle(), again) == []


def test_the_first_decision_that_differs_is_shown_with_what_was_seen_differently(play: Play) -> None:
    a = play.worker.records("worker/12.1")
    b = list(a)
    seen = a[10].body["seen"]
    facts = {**seen["facts"], "news": {"value": {"$": "News", "tag": "v9"}}}
    other = {
        **a[10].body,
        "event": "validated",
        "to": "COMMIT",
        "reason": "44 passed",
        "seen": {**seen, "facts": facts},
    }
    b[10] = replace(a[10], body=other)
    found = diff_journals(a, b, name="journal.jsonl")
    assert found is not None and found.what == "move" and found.facts == ("news",)
    text = str(found)
    assert text.startswith(
        "journal.jsonl: the move differs: record 11: VALIDATE --retryable--> RETRY_WAIT (the tests"
    )
    assert "against record 11: VALIDATE --validated--> COMMIT (44 passed)" in text
    assert text.endswith("; seen differently: news")


def test_a_shorter_journal_has_ended(play: Play) -> None:
    a = play.worker.records("worker/12.1")
    found = diff_journals(a, a[:20])
    assert found is not None and found.what == "length" and found.b is None
    assert str(found).endswith("against the journal has ended")


def test_reasons_and_notes_count_only_when_strict(play: Play) -> None:
    a = play.worker.records("worker/12.1")
    b = list(a)
    b[4] = replace(a[4], body={**a[4].body, "reason": "otherwise"})
    assert diff_journals(a, b) is None
    found = diff_journals(a, b, strict=True)
    assert found is not None and (found.what, found.a, found.b) == ("reason", a[4], b[4])


def test_other_effects_are_a_difference(play: Play) -> None:
    a = play.worker.records("worker/12.1")
    b = list(a)
    b[4] = replace(a[4], body={**a[4].body, "intents": [*a[4].body["intents"], {"$": "Exit"}]})
    found = diff_journals(a, b)
    assert found is not None and found.what == "list of effects"
    assert "begins LoadContext" in str(found) and "begins LoadContext, Exit" in str(found)


def test_a_bundle_without_a_journal_is_one_clear_line(bundle: Make) -> None:
    made = bundle()
    (made / "journal.jsonl").unlink()
    with pytest.raises(AuditError, match=r"journal\.jsonl is not there"):
        diff_bundles(made, made)
