"""The director's store on real files: damage, loss, schemas, locks, a full disk, several processes."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from harness.adapters.store import schema
from harness.adapters.store.errors import StoreError
from harness.adapters.store.sql import SqlStore
from harness.core import journal
from harness.core.journal import Draft, Kind
from harness.core.result import Err
from harness.failures import Failure

M = "acme/widget/ticket/12"
FIRST = schema.schemas()[0]


class Time:
    """A clock that stands still."""

    def now(self) -> float:
        return 1_700_000_000.0

    def monotonic(self) -> float:
        return 0.0


def draft(n: int = 1, kind: Kind = "transition") -> Draft:
    return Draft(
        kind, {"from": "A", "event": "go", "to": "B", "reason": f"step {n}", "seen": {}, "intents": []}
    )


def opened(path: Path | str, **more: object) -> SqlStore:
    return SqlStore.open(path, clock=Time(), code="1", **more)  # type: ignore[arg-type]


def filled(path: Path, count: int = 50) -> None:
    store = opened(path)
    for n in range(1, count + 1):
        store.append(M, draft(n), expect_seq=n).unwrap()
    store.close()


def refused(path: Path | str, **more: object) -> str:
    with pytest.raises(StoreError) as caught:
        opened(path, **more)
    line = str(caught.value)
    assert "\n" not in line and str(path) in line
    return line


def fingerprint(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# ---------------------------------------------------------------- opening


def test_a_new_store_is_durable_and_private(tmp_path: Path) -> None:
    path = tmp_path / "data" / "store.db"
    store = opened(path)
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert path.stat().st_mode & 0o077 == 0
    assert schema.marker(path).exists()
    assert len(store.instance) == 8 and store.instance == opened(path).instance
    assert [p.name for p in path.parent.iterdir() if p.name.startswith(".")] == []
    db.close()
    store.close()


def test_a_url_names_a_file_and_other_kinds_are_refused(tmp_path: Path) -> None:
    opened(f"sqlite:///{tmp_path}/a b%20?c#d.db").close()
    assert (tmp_path / "a b%20?c#d.db").exists()
    with pytest.raises(StoreError, match="write sqlite:///path"):
        opened("postgresql://host/db")
    with pytest.raises(StoreError, match="write sqlite:///path"):
        opened("sqlite://")


def test_a_closed_store_leaves_one_file(tmp_path: Path) -> None:
    filled(tmp_path / "store.db")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["store.db", "store.exists"]


def test_the_status_can_be_read_while_a_director_writes(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    writer = opened(path)
    writer.append(M, draft(), expect_seq=1).unwrap()
    reader = opened(path, read_only=True)
    assert len(reader.read(M)) == 1
    writer.append(M, draft(), expect_seq=2).unwrap()
    assert len(reader.read(M)) == 2
    answer = reader.append(M, draft(), expect_seq=3)
    assert isinstance(answer, Err) and "readonly" in answer.detail
    with pytest.raises(StoreError):
        reader.put("key", 1)
    reader.close()
    writer.close()


def test_reading_never_makes_a_store(tmp_path: Path) -> None:
    for more in ({"read_only": True}, {"create": False}):
        assert "no director has run" in refused(tmp_path / "store.db", **more)
    assert list(tmp_path.iterdir()) == []


def test_the_status_can_be_read_from_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    filled(path, 3)
    assert schema.reading_mode(path) == "ro"
    before = fingerprint(path)
    with schema.open_for_reading(path) as db:
        assert db.execute("SELECT count(*) FROM records").fetchone() == (3,)
    frozen = schema.connect(path, "frozen")
    assert frozen.execute("SELECT count(*) FROM records").fetchone() == (3,)
    with pytest.raises(sqlite3.OperationalError):
        frozen.execute("DELETE FROM records")
    frozen.close()
    assert fingerprint(path) == before


# ---------------------------------------------------------------- damage and loss


def test_a_file_cut_in_half_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    filled(path, 200)
    os.truncate(path, path.stat().st_size // 2)
    before = fingerprint(path)
    line = refused(path)
    assert "is damaged" in line and "harness rebuild" in line and "left as it is" in line
    assert fingerprint(path) == before


def test_every_kind_of_garbage_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    filled(path, 200)
    good = path.read_bytes()
    for name, bad in {
        "text": b"hello",
        "header only": good[:16],
        "another header": b"X" + good[1:],
        "zeros in the middle": good[:8192] + b"\0" * 8192 + good[16384:],
        "noise in the middle": good[:8192] + os.urandom(8192) + good[16384:],
    }.items():
        path.write_bytes(bad)
        before = fingerprint(path)
        assert "harness rebuild" in refused(path), name
        assert fingerprint(path) == before, name
    path.write_bytes(good)
    opened(path).close()


def test_an_empty_file_is_never_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    filled(path)
    store = opened(path)
    store.backup(tmp_path / "store.backup-mine.db")
    store.close()
    path.write_bytes(b"")
    line = refused(path)
    assert "is empty" in line and "store.backup-mine.db" in line
    assert path.stat().st_size == 0
    (tmp_path / "store.backup-mine.db").unlink()
    schema.marker(path).unlink()
    assert "is empty" in refused(path)


def test_a_store_that_is_gone_is_not_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    filled(path)
    path.unlink()
    line = refused(path)
    assert "is missing" in line and "harness rebuild" in line
    assert refused(path, read_only=True) == line
    assert not path.exists()


def test_a_backup_is_whole_and_can_take_the_stores_place(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = opened(path)
    for n in range(1, 20):
        store.append(M, draft(n), expect_seq=n).unwrap()
    store.backup(tmp_path / "copy.db")
    written = list(store.read(M))
    store.close()
    path.unlink()
    shutil.copy(tmp_path / "copy.db", path)
    again = opened(path)
    assert list(again.read(M)) == written and again.verify(M) is None
    again.append(M, draft(), expect_seq=20).unwrap()
    again.close()


def test_a_rebuild_sets_the_damaged_store_aside_and_deletes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"garbage")
    schema.marker(path).touch()
    aside = schema.set_aside(path)
    assert aside is not None and aside.read_bytes() == b"garbage" and not path.exists()
    opened(path).close()
    assert schema.set_aside(tmp_path / "none.db") is None


def test_damage_that_shows_up_later_is_said_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    filled(path, 2000)
    store = opened(path)
    with path.open("r+b") as file:
        file.seek(4096 * 2)
        file.write(os.urandom(4096 * 60))
    with pytest.raises(StoreError, match="is damaged"):
        store.read(M)
    store.close()


# ---------------------------------------------------------------- schemas


def migrations(tmp_path: Path, name: str = "0002", body: str = "") -> Path:
    """A copy of the migrations with one more."""
    folder = tmp_path / "migrations"
    shutil.copytree(schema.MIGRATIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    body = body or 'op.add_column("controls", sa.Column("by", sa.Text))'
    (folder / "versions" / f"{name}_more.py").write_text(
        f"import sqlalchemy as sa\nfrom alembic import op\nrevision = {name!r}\ndown_revision = {FIRST!r}\n"
        f"def upgrade():\n    {body}\n"
    )
    return folder


def test_an_older_schema_is_migrated_after_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    filled(path)
    newer = migrations(tmp_path)
    for _ in range(2):
        store = opened(path, migrations=newer)
        assert len(store.read(M)) == 50 and store.verify(M) is None
        assert store._db.execute("SELECT version_num FROM alembic_version").fetchone() == ("0002",)
        store.control("pause", {})
        store.close()
        copies = schema.backups(path)
        assert [c.name for c in copies] == [f"store.backup-{FIRST}-20231114T221320Z.db"], "once, not twice"
    copy = sqlite3.connect(copies[0])
    assert copy.execute("SELECT version_num FROM alembic_version").fetchone() == (FIRST,)
    assert copy.execute("SELECT count(*) FROM records").fetchone() == (50,)
    copy.close()


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    filled(path)
    broken = migrations(
        tmp_path,
        body='op.add_column("controls", sa.Column("by", sa.Text)); op.execute("SELECT * FROM nowhere")',
    )
    assert "nowhere" in refused(path, migrations=broken)
    store = opened(path)
    columns = [row[1] for row in store._db.execute("PRAGMA table_info(controls)")]
    assert columns == ["id", "at", "verb", "args"] and len(store.read(M)) == 50
    store.close()


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("0002", "install the newer version again"),
        ("9999", "install the newer version again"),
        ("abc", "has the unknown schema 'abc'"),
        ("", "has the unknown schema ''"),
        (None, "says no schema version"),
    ],
)
def test_a_schema_that_is_not_ours_is_refused_unchanged(
    tmp_path: Path, version: str | None, text: str
) -> None:
    path = tmp_path / "store.db"
    filled(path)
    db = sqlite3.connect(path)
    if version is None:
        db.execute("DROP TABLE alembic_version")
    else:
        db.execute("UPDATE alembic_version SET version_num = ?", (version,))
    db.commit()
    db.close()
    before = fingerprint(path)
    line = refused(path)
    assert text in line and refused(path, read_only=True) == line
    assert fingerprint(path) == before and schema.backups(path) == []


def test_an_older_schema_is_not_migrated_by_a_reader(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    filled(path)
    newer = migrations(tmp_path)
    before = fingerprint(path)
    assert f"older schema {FIRST}" in refused(path, read_only=True, migrations=newer)
    assert f"older schema {FIRST}" in refused(path, create=False, migrations=newer)
    assert fingerprint(path) == before


def test_another_database_is_not_taken_for_ours(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE people (name)")
    db.commit()
    db.close()
    before = fingerprint(path)
    assert "says no schema version" in refused(path)
    assert fingerprint(path) == before


# ---------------------------------------------------------------- failures while it runs


def test_a_full_disk_is_an_answer_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = opened(path, limit_bytes=200_000)
    seq, answer = 0, None
    while not isinstance(answer, Err):
        seq += 1
        answer = store.append(M, Draft("outcome", {"log": "x" * 2000}), expect_seq=seq)
    assert answer.failure == Failure.DISK_FULL and str(path) in answer.detail and not answer.maybe
    with pytest.raises(StoreError) as caught:
        store.put_blob(os.urandom(100_000))
    assert caught.value.failure == Failure.DISK_FULL
    assert len(store.read(M)) == seq - 1 and store.verify(M) is None
    store.close()
    again = opened(path)
    again.append(M, draft(), expect_seq=seq).unwrap()
    assert again.verify(M) is None
    again.close()


def test_what_decisions_saw_is_kept_small(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = opened(path)
    entries = [{"issue": n, "title": f"Issue {n}", "state": "LANDED", "detail": ""} for n in range(500)]
    data = journal.canonical(entries)
    sha = store.put_blob(data)
    assert store.get_blob(sha) == data
    store.close()
    with sqlite3.connect(path) as db:
        ((size,),) = db.execute("SELECT length(data) FROM blobs").fetchall()
        assert size < len(data) / 4
        # An earlier version kept it as it is.
        db.execute("UPDATE blobs SET data = ?", (data,))
    again = opened(path)
    assert again.get_blob(sha) == data == again.get_blob(again.put_blob(data))
    again.close()


def test_a_lock_that_is_held_too_long_is_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = opened(path)
    store._db.execute("PRAGMA busy_timeout = 100")
    other = schema.connect(path)
    other.execute("BEGIN IMMEDIATE")
    answer = store.append(M, draft(), expect_seq=1)
    assert isinstance(answer, Err) and answer.failure == Failure.INFRA_ENGINE and "locked" in answer.detail
    with pytest.raises(StoreError, match="locked by another process"):
        store.put("a", 1)
    assert len(store.read(M)) == 0, "readers are not held up"
    other.execute("ROLLBACK")
    store.append(M, draft(), expect_seq=1).unwrap()
    other.close()
    store.close()


def test_an_io_error_is_an_answer_that_may_have_happened(tmp_path: Path) -> None:
    store = opened(tmp_path / "store.db")
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = "SQLITE_IOERR_FSYNC"  # type: ignore[misc]
    answer = store._err(error)
    assert (answer.failure, answer.maybe) == (Failure.INFRA_ENGINE, True)
    store.close()


# ---------------------------------------------------------------- several at once


def test_threads_and_handles_number_without_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    stores = [opened(path) for _ in range(3)]
    wins: list[int] = []

    def work(store: SqlStore) -> None:
        done = 0
        while done < 40:
            seq = len(store.read(M)) + 1
            answer = store.append(M, draft(seq), expect_seq=seq)
            if not isinstance(answer, Err):
                wins.append(seq)
                done += 1

    threads = [threading.Thread(target=work, args=(s,)) for s in (*stores, *stores)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(wins) == list(range(1, 241))
    assert stores[0].verify(M) is None and len(stores[1].read(M)) == 240
    for s in stores:
        s.close()


def test_many_machines_at_once_stay_apart(tmp_path: Path) -> None:
    store = opened(tmp_path / "store.db")
    names = [f"acme/widget/ticket/{n}" for n in range(8)]

    def work(name: str) -> None:
        for n in range(1, 31):
            store.append(name, draft(n, "snapshot" if n == 20 else "transition"), expect_seq=n).unwrap()

    threads = [threading.Thread(target=work, args=(n,)) for n in names]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for name in names:
        assert store.verify(name) is None
        assert [r.seq for r in store.since_snapshot(name)] == list(range(20, 31))
    store.close()


CHILD = """
import sys
from harness.adapters.store.sql import SqlStore
from harness.core.journal import Draft
class Time:
    def now(self): return 1.0
    def monotonic(self): return 1.0
store = SqlStore.open(sys.argv[1], clock=Time(), code="1")
n = len(store.read("m"))
while True:
    n += 1
    store.append("m", Draft("outcome", {"n": n, "pad": "x" * 3000}), expect_seq=n).unwrap()
    print(n, flush=True)
"""


def test_a_killed_writer_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    answered = 0
    for wait_s in (0.05, 0.2, 0.4):
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        answered = int(child.stdout.readline())
        time.sleep(wait_s)
        child.send_signal(signal.SIGKILL)
        answered = max([answered, *(int(x) for x in child.stdout.read().split("\n")[:-1])])
        child.wait(10)
        child.stdout.close()
        store = opened(path)
        assert answered <= len(store.read("m")) <= answered + 1
        assert store.verify("m") is None
        store.close()


# ---------------------------------------------------------------- verify and export


def test_each_change_by_hand_is_found(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    filled(path, 12)
    good = path.read_bytes()
    for what, statement, seq in (
        (
            "a changed record",
            "UPDATE records SET line = replace(line, 'step 5', 'step 6') WHERE id & 255 = 5",
            5,
        ),
        ("a dropped record", "DELETE FROM records WHERE id & 255 = 7", 7),
        ("a cut tail", "DELETE FROM records WHERE id & 255 > 9", 10),
        ("swapped records", "UPDATE records SET id = id + 1000 WHERE id & 255 = 3", 3),
        ("another counter", "UPDATE streams SET seq = 13", 13),
        ("another head", "UPDATE streams SET head = 'x'", 13),
    ):
        path.write_bytes(good)
        db = sqlite3.connect(path)
        db.execute(statement)
        db.commit()
        db.close()
        store = opened(path)
        fault = store.verify(M)
        assert fault is not None and fault.seq == seq, what
        if what == "a changed record":
            with pytest.raises(StoreError, match="changed by hand"):
                store.read(M)
        store.close()


def test_a_record_of_another_machine_is_found(tmp_path: Path) -> None:
    store = opened(tmp_path / "store.db")
    store.append(M, draft(), expect_seq=1).unwrap()
    store._db.execute("UPDATE streams SET machine = 'acme/widget/ticket/13'")
    fault = store.verify("acme/widget/ticket/13")
    assert fault is not None and M in fault.what
    store.close()


def test_a_journal_is_exported_as_it_is(tmp_path: Path) -> None:
    store = opened(tmp_path / "store.db")
    written = [store.append(M, draft(n), expect_seq=n).unwrap() for n in range(1, 2101)]
    target = tmp_path / "journal.jsonl"
    assert store.export(M, target) == 2100
    records, fault = journal.read(target.read_bytes())
    assert fault is None and records == written
    assert target.read_bytes() == b"".join(journal.line(r) for r in written)
    assert store.export("nobody", tmp_path / "none.jsonl") == 0
    with pytest.raises(StoreError):
        store.export(M, tmp_path / "no" / "folder.jsonl")
    store.close()


def test_a_network_file_system_is_refused(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    share = tmp_path / "my share"
    share.mkdir()
    escaped = str(share).replace(" ", "\\040")
    mounts.write_text(
        "1 0 8:1 / / rw shared:1 - ext4 /dev/sda rw\n"
        f"2 1 0:5 / {escaped} rw,relatime shared:2 - nfs4 host:/x rw\n"
        f"3 1 0:6 / {escaped}/local rw - tmpfs tmpfs rw\nbroken line\n"
    )
    with pytest.raises(
        StoreError, match=r"network file system \(nfs4\): put the data folder on a local disk"
    ):
        schema.places.refuse_network(share / "data", mounts)
    for fine in (tmp_path, share / "local" / "data", tmp_path / "my share2"):
        schema.places.refuse_network(fine, mounts)
    schema.places.refuse_network(share, tmp_path / "no-such-file")
    assert schema.places.network_filesystem(tmp_path) is None
