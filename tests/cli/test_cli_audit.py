"""`harness audit`: evidence that holds, and evidence that somebody touched."""

from __future__ import annotations

import json
import tarfile

from harness import __version__
from harness.adapters.store.sql import SqlStore
from harness.loop import SteadyClock


def attempt(demo, code: str) -> str:
    return next(w["audit"] for w in demo.document["workers"] if w["attempt"] == code)


def test_the_list(demo, harness):
    told = harness("audit", "list", "--config", demo.config)
    assert len(told.out.splitlines()) == len(demo.document["workers"])
    d = harness("audit", "list", "--json", "--config", demo.config).json
    assert {x["audit"] for x in d} == {w["audit"] for w in demo.document["workers"]}


def test_the_folder_can_be_named(demo, harness):
    """What the demo's last words tell to run."""
    assert harness("audit", "list", "--audits", demo.folder / "audits").code == 0
    missing = harness("audit", "list", "--audits", demo.folder / "nowhere")
    assert missing.code == 1 and "is not there" in missing.err


def test_one_is_shown_by_its_attempt(demo, harness):
    told = harness("audit", "show", "3.1", "--config", demo.config)
    assert "Count faster than light" in told.out
    assert "journal.jsonl" in told.out
    none = harness("audit", "show", "nope", "--config", demo.config)
    assert none.code == 1 and none.err.startswith("harness audit: there is no bundle nope in ")


def test_what_nobody_touched_verifies_and_replays(demo, harness):
    bundles = len(demo.document["workers"])
    for what, end in (("verify", "nothing was changed"), ("replay", "every decision is reached again")):
        told = harness("audit", what, "--config", demo.config)
        assert (told.code, told.out) == (0, f"{bundles} bundles in {demo.folder / 'audits'}: {end}\n"), (
            told.err
        )
        store = harness("audit", what, "--store", "--config", demo.config)
        assert store.code == 0 and store.out.endswith(f"journals of acme/tally: {end}\n"), store.err
        one = harness("audit", what, "1.1", "--config", demo.config)
        assert one.out == f"bundle {attempt(demo, '1.1')}: {end}\n"


def test_a_changed_record_is_named_first(demo, copy, harness):
    name = attempt(demo, "1.1")
    path = copy.folder / "audits" / name / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[4] = lines[4].replace(b'"reason":"', b'"reason":"Not ', 1)
    path.write_bytes(b"".join(lines))
    told = harness("audit", "verify", "1.1", "--config", copy.config)
    assert (told.code, told.out) == (1, "")
    assert told.err.startswith("harness audit: record 5 of acme/tally/worker/1.1: ")
    d = harness("audit", "verify", "1.1", "--json", "--config", copy.config)
    assert d.code == 1
    assert (d.json["ok"], d.json["findings"][0]["record"]) == (False, 5)
    whole = harness("audit", "verify", "--config", copy.config)
    assert whole.err.startswith(f"harness audit: {name}, record 5 of acme/tally/worker/1.1: ")


def test_a_changed_store_is_named(copy, harness):
    store = SqlStore.open(copy.folder / "data/store.db", clock=SteadyClock(), code=__version__, create=False)
    store._db.execute(
        "UPDATE records SET line = replace(CAST(line AS TEXT), 'claim_held', 'claim_lost') WHERE id IN "
        "(SELECT id << 32 | 3 FROM streams WHERE machine = 'acme/tally/ticket/2') OR id IN "
        "(SELECT id << 32 | 4 FROM streams WHERE machine = 'acme/tally/ticket/2')"
    )
    store.close()
    told = harness("audit", "verify", "--store", "--config", copy.config)
    assert told.code == 1
    assert told.err.startswith("harness audit: record 4 of acme/tally/ticket/2: ")


def test_a_decision_that_the_code_would_not_reach_is_named(demo, copy, harness):
    """Whoever mends the chain after a change is found by the replay."""
    from harness.core import journal

    path = copy.folder / "audits" / attempt(demo, "2.1") / "attempt.jsonl"
    records, _ = journal.read(path.read_bytes())
    lines, prev = [], journal.GENESIS
    for r in records:
        raw = json.loads(journal.line(r))
        if raw.get("event") == "exited":
            raw["to"] = "CLEANING"
        raw["prev"] = prev
        raw.pop("hash")
        prev = journal.digest(journal.canonical(raw))
        lines.append(journal.canonical(raw | {"hash": prev}) + b"\n")
    path.write_bytes(b"".join(lines))
    told = harness("audit", "replay", "2.1", "--config", copy.config)
    assert told.code == 1
    assert "of acme/tally/attempt/2.1: must have to HARVESTING, the journal has CLEANING" in told.err


def test_where_two_differ(demo, harness):
    same = harness("audit", "diff", "1.1", "5.1", "--config", demo.config)
    assert (same.code, same.out) == (0, "both decide the same\n")
    other = harness("audit", "diff", "1.1", "3.1", "--config", demo.config)
    assert other.code == 1
    assert other.out.startswith("journal.jsonl: the move differs: record ")
    assert harness("audit", "diff", "1.1", "3.1", "--json", "--config", demo.config).json["same"] is False


def test_handing_on(demo, harness, tmp_path):
    first, second = tmp_path / "a.tar.gz", tmp_path / "b.tar.gz"
    assert harness("audit", "export", "1.1", first, "--config", demo.config).out == f"{first}\n"
    d = harness("audit", "export", "1.1", second, "--json", "--config", demo.config).json
    assert d == {"path": str(second), "bytes": second.stat().st_size}
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as tar:
        assert f"{attempt(demo, '1.1')}/manifest.json" in tar.getnames()


def test_a_machines_journal_as_a_file(demo, harness, tmp_path):
    told = harness("audit", "export", "--journal", "ticket/3", tmp_path, "--config", demo.config)
    path = tmp_path / "acme-tally-ticket-3.jsonl"
    assert told.out == f"{path}\n"
    assert json.loads(path.read_text().splitlines()[0])["machine"] == "acme/tally/ticket/3"
    none = harness("audit", "export", "--journal", "ticket/99", tmp_path, "--config", demo.config)
    assert none.code == 1 and none.err == "harness audit: the store has no journal of acme/tally/ticket/99\n"


def test_store_and_bundle_exclude_each_other(demo, harness):
    assert harness("audit", "verify", "1.1", "--store", "--config", demo.config).code == 2
