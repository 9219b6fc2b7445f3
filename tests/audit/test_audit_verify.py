"""Verifying: whatever is done to a bundle or a store afterwards is found, and the record is named."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from audit_stage import REPO, Clock, Stage, director
from conftest import MACHINE, Play
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.adapters.memory.store import MemoryStore
from harness.adapters.store.sql import SqlStore
from harness.audit import index
from harness.audit.bundle import seal
from harness.audit.files import AuditError
from harness.audit.verify import (
    Anchor,
    verify_against,
    verify_audits,
    verify_bundle,
    verify_journal,
    verify_store,
)
from harness.core import journal
from harness.core.journal import Draft, Record
from harness.machines.director.states import Director

Make = Callable[..., Path]
WORKER = f"{REPO}/worker/12.1"
SLOW = settings(deadline=None, max_examples=60)


@pytest.fixture(scope="module")
def sealed(play: Play) -> Iterator[Path]:
    """A bundle that no test changes: tests that change one copy it."""
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "test.log"
        log.write_text("3 failed\n" * 20)
        yield (
            Path(name) / "audits" / seal(Path(name) / "audits", **{**play.given, "extra": {"test.log": log}})
        )


@pytest.fixture
def copy(sealed: Path, tmp_path: Path) -> Path:
    shutil.copytree(sealed.parent, tmp_path / "audits")
    return tmp_path / "audits" / sealed.name


def said(folder: Path) -> list[str]:
    return [str(f) for f in verify_bundle(folder)]


def records_of(play: Play, name: str) -> list[Record]:
    return (play.worker if name.startswith("worker") else play.director).records(name)


# ---------------------------------------------------------------- one journal


def test_a_good_journal_has_no_findings_as_bytes_and_as_records(play: Play) -> None:
    records = records_of(play, "worker/12.1")
    last = records[-1]
    anchors = [
        Anchor(last.seq, last.hash, "x", exact=True),
        Anchor(5, records[4].hash, "y"),
        Anchor(0, "0" * 64, "z"),
    ]
    for form in (records, play.given["journal_lines"]):
        assert verify_journal(form, machine=WORKER, anchors=anchors, blob=play.given["blobs"].get) == []


def test_a_cut_tail_is_found_by_its_anchor_and_named(play: Play) -> None:
    records = records_of(play, "worker/12.1")
    anchor = Anchor(24, records[-1].hash, "the director")
    for left in range(24):
        (found,) = verify_journal(records[:left], machine=WORKER, anchors=[anchor])
        assert (found.machine, found.seq) == (WORKER, left + 1)
        assert str(found) == f"record {left + 1} of {WORKER}: it is missing: the director knows 24 records"


def test_a_journal_written_anew_is_found_by_its_anchor(play: Play) -> None:
    """Every hash is right, since everything from record 9 on was sealed again."""
    records = records_of(play, "worker/12.1")
    anew, prev = list(records[:8]), records[7].hash
    for r in records[8:]:
        draft = Draft("transition", {**r.body, "reason": "all is well"})
        anew.append(
            journal.seal(draft, machine=r.machine, seq=r.seq, at=r.at, epoch=1, code=r.code, prev=prev)
        )
        prev = anew[-1].hash
    assert verify_journal(anew, machine=WORKER) == []
    found = verify_journal(anew, machine=WORKER, anchors=[Anchor(24, records[-1].hash, "the director")])
    assert [str(f) for f in found] == [f"record 24 of {WORKER}: it is not the one that the director knows"]


def test_records_added_after_the_end_are_found(play: Play) -> None:
    records = records_of(play, "worker/12.1")
    anchor = Anchor(20, records[19].hash, "the manifest", exact=True)
    (found,) = verify_journal(records, anchors=[anchor])
    assert str(found) == f"record 21 of {WORKER}: it was added: the manifest knows 20 records"
    assert verify_journal(records, anchors=[replace(anchor, exact=False)]) == []


def test_another_machines_journal_is_named(play: Play) -> None:
    (found,) = verify_journal(play.given["journal_lines"], machine=f"{REPO}/worker/9.9")
    assert str(found) == f"record 1 of {WORKER}: it stands in the journal of {REPO}/worker/9.9"


def test_blobs_that_are_missing_or_changed_are_named_with_their_record(play: Play) -> None:
    lines = play.given["journal_lines"]
    missing = verify_journal(lines, machine=WORKER, blob=lambda sha: None)
    assert [f.seq for f in missing] == [1, 3], "the policy, and a tree that is large"
    assert all("is missing" in f.what for f in missing)
    changed = verify_journal(lines, machine=WORKER, blob=lambda sha: b"other")
    assert [f.seq for f in changed] == [1, 3] and all("has another content" in f.what for f in changed)


# ---------------------------------------------------------------- a bundle, damaged in every way


def test_a_good_bundle_verifies(sealed: Path) -> None:
    assert said(sealed) == [] and verify_audits(sealed.parent) == []


FILES = ["journal.jsonl", "attempt.jsonl", "manifest.json", "meta.json", "summary.md", "test.log", "blob"]


def place(folder: Path, name: str) -> Path:
    return next(folder.glob("blobs/*")) if name == "blob" else folder / name


@SLOW
@given(st.sampled_from(FILES), st.floats(0, 1, exclude_max=True), st.integers(1, 255))
def test_a_changed_byte_anywhere_is_found_and_named(sealed: Path, name: str, where: float, mask: int) -> None:
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp) / sealed.name
        shutil.copytree(sealed, folder)
        path = place(folder, name)
        data = bytearray(path.read_bytes())
        offset = int(len(data) * where)
        data[offset] ^= mask
        path.write_bytes(data)
        findings = verify_bundle(folder)
        assert findings
        if name.endswith(".jsonl"):
            seq = path.read_bytes()[:offset].count(b"\n") + 1
            machine = WORKER if name == "journal.jsonl" else MACHINE
            assert (findings[0].machine, findings[0].seq) == (machine, seq)
        elif name == "blob":
            assert findings[0].seq in (1, 3) and str(path.relative_to(folder)) in {f.where for f in findings}
        else:
            assert name in {f.where for f in findings}


@SLOW
@given(st.sampled_from(["journal.jsonl", "attempt.jsonl"]), st.data())
def test_a_dropped_swapped_or_cut_record_is_found_and_named(sealed: Path, name: str, data: Any) -> None:
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp) / sealed.name
        shutil.copytree(sealed, folder)
        lines = (folder / name).read_bytes().splitlines(keepends=True)
        a = data.draw(st.integers(0, len(lines) - 1))
        how = data.draw(st.sampled_from(["drop", "swap", "cut", "twice"]))
        expected = a + 1
        if how == "drop":
            changed = lines[:a] + lines[a + 1 :]
        elif how == "cut":
            changed = lines[:a]
        elif how == "twice":
            changed, expected = [*lines[: a + 1], *lines[a:]], a + 2
        else:
            b = data.draw(st.integers(0, len(lines) - 1).filter(lambda n: n != a))
            changed, expected = list(lines), min(a, b) + 1
            changed[a], changed[b] = lines[b], lines[a]
        (folder / name).write_bytes(b"".join(changed))
        found = verify_bundle(folder)[0]
        assert (found.machine, found.seq) == (WORKER if name == "journal.jsonl" else MACHINE, expected)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(copy: Path, name: str) -> None:
    path = place(copy, name)
    path.unlink()
    findings = said(copy)
    if name == "journal.jsonl":
        assert findings[0] == f"record 1 of {WORKER}: it is missing: the manifest knows 24 records"
    elif name == "attempt.jsonl":
        assert findings[0] == f"record 1 of {MACHINE}: it is missing: the manifest knows 23 records"
    else:
        assert any(
            (f.startswith(f"{path.relative_to(copy)}: ") and "is missing" in f) or "not there" in f
            for f in findings
        )


def test_an_added_file_is_named(copy: Path) -> None:
    (copy / "ledger").mkdir()
    (copy / "ledger" / "9.json").write_text("{}")
    assert said(copy) == ["ledger/9.json: it was added after the sealing"]


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_is_no_file_is_named_and_not_waited_for(copy: Path, kind: str, tmp_path: Path) -> None:
    shutil.copy(copy / "test.log", tmp_path / "elsewhere.log")
    (copy / "test.log").unlink()
    if kind == "link":
        (copy / "test.log").symlink_to(tmp_path / "elsewhere.log")
    else:
        os.mkfifo(copy / "test.log")
    findings = said(copy)
    assert any(f.startswith("test.log: it has no place in a bundle") for f in findings)
    assert "test.log: it is missing" in findings


def test_a_bundle_under_another_name_is_found(copy: Path) -> None:
    """Somebody else's good bundle in the place of this one."""
    copy.rename(copy.parent / "20261127-0230-21.1")
    findings = said(copy.parent / "20261127-0230-21.1")
    assert findings == ["manifest.json: it is that of 20261127-0230-12.1, in the folder 20261127-0230-21.1"]


def reseal(folder: Path, name: str, data: bytes) -> None:
    """What somebody does who knows how a bundle is made: change a file, and the manifest with it."""
    (folder / name).write_bytes(data)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest["files"][name] = {"sha256": journal.digest(data), "bytes": len(data)}
    records = journal.read(data)[0] if name.endswith(".jsonl") else []
    if name.endswith(".jsonl"):
        end = {"records": len(records), "head": records[-1].hash if records else journal.GENESIS}
        manifest["journals"][name] |= end
    del manifest["hash"]
    manifest["hash"] = journal.digest(manifest)
    (folder / "manifest.json").write_bytes(journal.canonical(manifest) + b"\n")


def test_a_forged_manifest_is_found_by_the_index(copy: Path) -> None:
    reseal(copy, "test.log", b"44 passed\n")
    assert said(copy) == ["manifest.json: it was changed: the index knows another one"]


def test_a_cut_journal_under_a_forged_manifest_is_found_by_what_was_witnessed(copy: Path) -> None:
    lines = (copy / "journal.jsonl").read_bytes().splitlines(keepends=True)
    reseal(copy, "journal.jsonl", b"".join(lines[:20]))
    (copy.parent / "index.jsonl").unlink()
    director_side = journal.read((copy / "attempt.jsonl").read_bytes())[0]
    witness = next(r for r in director_side if "witnessed" in r.body.get("note", {}))
    assert said(copy) == [
        f"record 21 of {WORKER}: it is missing: record {witness.seq} of {MACHINE} knows 24 records"
    ]


def test_a_bundle_forged_from_end_to_end_is_found_by_the_store(copy: Path, play: Play) -> None:
    """The worker's last records cut, the attempt's witness changed and sealed again, the index made anew."""
    lines = (copy / "journal.jsonl").read_bytes().splitlines(keepends=True)
    cut = journal.read(b"".join(lines[:20]))[0][-1]
    prev, forged = journal.GENESIS, []
    for r in journal.read((copy / "attempt.jsonl").read_bytes())[0]:
        body = dict(r.body)
        if "witnessed" in body.get("note", {}):
            body["note"] = {**body["note"], "witnessed": cut.hash, "witnessed_seq": 20}
        made = journal.seal(
            Draft(r.kind, body), machine=r.machine, seq=r.seq, at=r.at, epoch=r.epoch, code=r.code, prev=prev
        )  # type: ignore[arg-type]
        forged.append(made)
        prev = made.hash
    meta = json.loads((copy / "meta.json").read_text()) | {"worker_head": cut.hash, "worker_seq": 20}
    reseal(copy, "meta.json", json.dumps(meta).encode())
    reseal(copy, "journal.jsonl", b"".join(lines[:20]))
    reseal(copy, "attempt.jsonl", b"".join(journal.line(r) for r in forged))
    index.rebuild_index(copy.parent)
    assert said(copy) == []
    assert play.director.store is not None
    found = [str(f) for f in verify_against(play.director.store, copy)]
    first = next(r for r in forged if "witnessed" in r.body.get("note", {})).seq
    assert found[0].startswith(f"record 21 of {WORKER}: it is missing: ")
    assert found[1] == f"record {first} of {MACHINE}: it is not the one in the store"


def test_a_good_bundle_agrees_with_its_store(sealed: Path, play: Play) -> None:
    assert play.director.store is not None
    assert verify_against(play.director.store, sealed) == []
    (found,) = verify_against(MemoryStore(Clock()), sealed)
    assert "the store has no records of" in str(found)


def test_no_bundle_there_is_one_clear_line(tmp_path: Path, copy: Path) -> None:
    with pytest.raises(AuditError, match="is not a bundle: there is no such folder"):
        verify_bundle(tmp_path / "none")
    (tmp_path / "link").symlink_to(copy)
    with pytest.raises(AuditError, match="is not a bundle"):
        verify_bundle(tmp_path / "link")


@pytest.mark.parametrize(
    "manifest", [b"", b"[]", b"{}", b"\xff", b'{"files":3,"journals":{}}', b"[" * 100_000]
)
def test_a_ruined_manifest_is_a_finding_and_no_crash(copy: Path, manifest: bytes) -> None:
    (copy / "manifest.json").write_bytes(manifest)
    assert said(copy) == ["manifest.json: it was changed: it is not what a sealing writes"]


def test_a_line_of_the_index_whose_bundle_is_gone_is_named(copy: Path) -> None:
    shutil.rmtree(copy)
    (found,) = verify_audits(copy.parent)
    assert str(found) == f"{copy.name}: its bundle is missing: the index has a line for it"


# ---------------------------------------------------------------- a store


@pytest.fixture
def store(play: Play) -> MemoryStore:
    """Two directors' store, a copy that a test may damage."""
    assert play.director.store is not None
    kept = play.director.store.clone()
    kept.set_epoch(8)
    later = Stage(policy=play.director.policy, epoch=8, store=kept)
    later.items |= play.director.items
    director(later)
    return kept


def findings(store: MemoryStore) -> list[str]:
    return [str(f) for f in verify_store(store)]


def test_a_good_store_verifies_and_tells_what_it_reads(store: MemoryStore) -> None:
    told: list[str] = []
    assert verify_store(store, tell=told.append) == []
    assert told == list(store.machines()) and len(told) > 5
    assert verify_store(store, prefix=f"{REPO}/ticket/") == []


def test_a_changed_record_of_a_store_is_named(store: MemoryStore) -> None:
    machine = f"{REPO}/ticket/12"
    records = store.disk.records[machine]
    records[3] = replace(records[3], body={**records[3].body, "reason": "other"})
    assert findings(store) == [f"record 4 of {machine}: its hash does not match its content"]


def test_a_cut_predecessor_is_named(store: MemoryStore) -> None:
    records = store.disk.records[f"{REPO}/director/7"]
    del records[-2:]
    n = len(records) + 1
    assert findings(store) == [
        f"record {n} of {REPO}/director/7: it is missing: {REPO}/director/8 took over from a later one"
    ]


def test_a_record_added_to_a_dead_director_is_named(store: MemoryStore) -> None:
    records = store.disk.records[f"{REPO}/director/7"]
    last = records[-1]
    draft = Draft("transition", {**last.body, "reason": "never happened"})
    head = {"machine": last.machine, "seq": last.seq + 1, "at": last.at, "epoch": 7, "code": last.code}
    records.append(journal.seal(draft, **head, prev=last.hash))
    assert findings(store) == [
        f"record {last.seq + 1} of {REPO}/director/7: it was added after {REPO}/director/8 had taken over "
        f"from record {last.seq}"
    ]


def test_a_whole_director_that_is_missing_is_named(store: MemoryStore) -> None:
    del store.disk.records[f"{REPO}/director/7"]
    assert findings(store) == [
        f"record 1 of {REPO}/director/7: it is missing: record 1 of {REPO}/director/8 names it"
    ]


def test_a_machine_that_was_opened_and_is_missing_is_named(store: MemoryStore) -> None:
    del store.disk.records[f"{REPO}/ticket/21"]
    (found,) = findings(store)
    assert found.startswith(f"record 1 of {REPO}/ticket/21: it is missing: record ")
    assert found.endswith(f"of {REPO}/director/7 opened it")


def test_a_director_that_hides_its_predecessor_is_named(store: MemoryStore) -> None:
    store.set_epoch(9)
    Stage(epoch=9, store=store).open("director/9", Director(REPO))
    assert (
        f"record 1 of {REPO}/director/9: it names no director before it, but there is {REPO}/director/8"
        in (findings(store))
    )


def test_a_directors_missing_blob_is_named(store: MemoryStore) -> None:
    big: Mapping[str, Any] = {"value": None, "blob": "ab" * 32}
    draft = Draft("transition", {"from": "A", "event": None, "to": "A", "seen": {"policy": big, "facts": {}}})
    store.append(f"{REPO}/ticket/77", draft, expect_seq=1).unwrap()
    assert findings(store) == [f"record 1 of {REPO}/ticket/77: its blob {'ab' * 6} is missing"]


def test_a_store_on_disk_that_somebody_edited_is_named(store: MemoryStore, tmp_path: Path) -> None:
    """The same records in SQLite; one line is changed with the tools that anybody has."""
    path = tmp_path / "store.db"
    sql = SqlStore.open(path, clock=Clock(), code="0")
    for machine in store.machines():
        for n, r in enumerate(store.read(machine), start=1):
            sql.append(machine, Draft(r.kind, r.body), expect_seq=n).unwrap()  # type: ignore[arg-type]
    for data in store.disk.blobs.values():
        sql.put_blob(data)
    heads = [f for f in verify_store(sql) if "director/8 took over" not in f.what]
    assert heads == []
    sql.close()
    db = sqlite3.connect(path)
    db.execute(
        "UPDATE records SET line = CAST(replace(CAST(line AS TEXT), 'claim_held', 'claim_lost') AS BLOB)"
    )
    db.commit()
    db.close()
    sql = SqlStore.open(path, clock=Clock(), code="0", read_only=True)
    named = {f.machine for f in verify_store(sql) if "hash does not match" in f.what}
    held = {r.machine for m in store.machines() for r in store.read(m) if r.body.get("event") == "claim_held"}
    assert named == held and len(held) >= 2
    sql.close()
