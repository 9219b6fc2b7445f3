"""The director's store: journals, blobs, controls and facts in one SQLite file.

The one rule: a record, its number, its link and the check of the epoch are one transaction, and it is on the
disk when `append` answers. Writers wait for each other at `BEGIN IMMEDIATE`, never in the middle.

The statements of a write run on one held driver connection: SQLAlchemy's own execution costs as much again as
SQLite's. Reads go through its pool, so that a long one holds up no writer.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, exc
from sqlalchemy.pool import QueuePool

from harness.adapters.store import lines, places, schema
from harness.adapters.store.errors import StoreError
from harness.core import journal
from harness.core.journal import Draft, Fault, Record
from harness.core.result import Err, Ok, Result
from harness.domain import Control
from harness.failures import Failure
from harness.ports import Clock

BLOB_LEVEL = 1  # the fastest: what decisions saw repeats itself, and takes a fifth of its size already
_HEAD = """SELECT meta.epoch, streams.id, streams.seq, streams.head
FROM meta LEFT JOIN streams ON streams.machine = ?"""
_BEGIN = "INSERT INTO streams (machine, seq, head, snapshot_seq) VALUES (?, 0, ?, 0)"
_ADVANCE = """UPDATE streams SET seq = ?, head = ?, snapshot_seq = coalesce(?, snapshot_seq)
WHERE id = ? AND seq = ? AND head = ? AND (SELECT epoch FROM meta) = ?"""
_INSERT = "INSERT INTO records (id, at, epoch, kind, line) VALUES (?, ?, ?, ?, ?)"
# A line that was edited by hand may have become text.
_LINES = """SELECT CAST(line AS BLOB) FROM records, (SELECT id << 32 AS first FROM streams WHERE machine = ?)
WHERE records.id > first + ? AND records.id < first + (1 << 32) ORDER BY records.id LIMIT ?"""
_KEEP = "INSERT INTO facts (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"

_VERIFY_AT_ONCE = 1000
_HEADS_MAX = 10_000
_ALL = -1


class SqlStore:
    """Open one with `SqlStore.open`. Safe to use from several threads and beside other processes."""

    def __init__(self, path: Path, clock: Clock, code: str, epoch: int, read_only: bool) -> None:
        self.path = path
        self.clock = clock
        self.code = code
        self.read_only = read_only
        self._epoch = epoch
        self._lock = threading.RLock()
        self._heads: dict[str, tuple[int, int, str]] = {}
        mode = schema.reading_mode(path) if read_only else "rw"
        self._engine = create_engine(
            "sqlite://",
            creator=lambda: schema.connect(path, mode),
            poolclass=QueuePool,
            pool_size=4,
            isolation_level="AUTOCOMMIT",
        )
        self._held = self._engine.raw_connection()
        self._db: sqlite3.Connection = self._held.driver_connection  # type: ignore[assignment]

    @classmethod
    def open(
        cls,
        url_or_path: str | Path,
        *,
        clock: Clock,
        code: str,
        epoch: int = 0,
        read_only: bool = False,
        create: bool = True,
        check: bool | None = None,
        limit_bytes: int = 0,
        migrations: Path = schema.MIGRATIONS,
    ) -> SqlStore:
        """Open the store, made first where there never was one and migrated (after a copy) where it is older.

        `epoch` is what this handle writes in; another than the store's is refused by `append` until
        `set_epoch`. `check` reads the whole file for damage (default: when opened for writing). `limit_bytes`
        bounds the file (0: the disk). Raises StoreError with one line that says what to do.
        """
        path = _path(url_or_path)
        places.refuse_network(path.parent)
        found = schema.look(path, check=not read_only if check is None else check, migrations=migrations)
        newest = schema.schemas(migrations)[-1]
        if read_only or not create:
            if not found:
                raise StoreError(f"{path} is not there: no director has run with this data folder yet")
            if found != newest:
                raise StoreError(
                    f"{path} has the older schema {found}: the next start of the director migrates it"
                )
        try:
            if not read_only and create and not found:
                schema.create(path, at=clock.now(), migrations=migrations)
            elif not read_only and create and found != newest:
                schema.upgrade(path, found, at=clock.now(), migrations=migrations)
            if not read_only:
                schema.mark(path)
        except OSError as e:
            full = Failure.DISK_FULL if e.errno in places.FULL else Failure.INFRA_ENGINE
            raise StoreError(f"{path} cannot be written: {e.strerror}", full) from e
        try:
            store = cls(path, clock, code, epoch, read_only)
            store._limit(limit_bytes)
        except exc.DBAPIError as e:
            raise _store_error(path, e) from e
        except sqlite3.Error as e:
            raise schema.unusable(path, e) from e
        return store

    def _limit(self, limit_bytes: int) -> None:
        if limit_bytes:
            page = self._db.execute("PRAGMA page_size").fetchone()[0]
            self._db.execute(f"PRAGMA max_page_count = {max(1, limit_bytes // page)}")

    def close(self) -> None:
        """The last one to close puts the write-ahead log into the file. A closed store raises."""
        with self._lock:
            self._held.close()
            self._engine.dispose()

    # ------------------------------------------------------------ epochs

    @property
    def epoch(self) -> int:
        """The epoch that this handle writes in."""
        return self._epoch

    @property
    def instance(self) -> str:
        """A random name that this store got when it was made."""
        return str(self._rows("SELECT instance FROM meta")[0][0])

    def stored_epoch(self) -> int:
        """The newest epoch that the store knows."""
        return int(self._rows("SELECT epoch FROM meta")[0][0])

    def set_epoch(self, epoch: int) -> Result[None]:
        """Begin a newer epoch; every other handle is fenced from here on."""
        try:
            with self._writing() as db:
                if not db.execute("UPDATE meta SET epoch = ? WHERE epoch < ?", (epoch, epoch)).rowcount:
                    stored = db.execute("SELECT epoch FROM meta").fetchone()[0]
                    return Err(Failure.AUTH_FAILED, f"epoch {epoch} is not newer than {stored}")
        except sqlite3.Error as e:
            return self._err(e)
        self._epoch = epoch
        return Ok(None)

    # ------------------------------------------------------------ journals

    def append(self, machine: str, draft: Draft, *, expect_seq: int) -> Result[Record]:
        try:
            with self._lock:
                db = self._db
                db.execute("BEGIN IMMEDIATE")
                try:
                    return self._append(db, machine, draft, expect_seq)
                finally:
                    if db.in_transaction:
                        db.execute("ROLLBACK")
        except sqlite3.Error as e:
            return self._err(e)

    def _append(self, db: sqlite3.Connection, machine: str, draft: Draft, expect_seq: int) -> Result[Record]:
        """The transaction of an append but for its beginning; what has not reached COMMIT is rolled back."""
        known = self._heads.pop(machine, None)
        if known is None or known[1] != expect_seq - 1:
            found = self._find(db, machine, expect_seq)
            if isinstance(found, Err):
                return found
            known = found
        stream, seq, head = known
        record, line = lines.seal(
            draft,
            machine=machine,
            seq=expect_seq,
            at=self.clock.now(),
            epoch=self._epoch,
            code=self.code,
            prev=head,
        )
        snapshot = expect_seq if record.kind == "snapshot" else None
        advance = (expect_seq, record.hash, snapshot, stream, seq, head, self._epoch)
        if db.execute(_ADVANCE, advance).rowcount != 1:
            # What was remembered is not so any more: another handle wrote. The row itself is asked now.
            return self._append(db, machine, draft, expect_seq)
        db.execute(_INSERT, (stream << 32 | expect_seq, record.at, record.epoch, record.kind, line))
        db.execute("COMMIT")
        self._heads[machine] = (stream, expect_seq, record.hash)
        return Ok(record)

    def _find(self, db: sqlite3.Connection, machine: str, expect_seq: int) -> tuple[int, int, str] | Err:
        """A machine's stream, last number and last hash; a new machine gets its stream."""
        if len(self._heads) >= _HEADS_MAX:
            self._heads.clear()
        epoch, stream, seq, head = db.execute(_HEAD, (machine,)).fetchone()
        if epoch != self._epoch:
            return Err(Failure.AUTH_FAILED, f"a newer director has epoch {epoch}, this one has {self._epoch}")
        if expect_seq != (seq or 0) + 1:
            return Err(
                Failure.INTERNAL_ERROR, f"{machine}: the next record is {(seq or 0) + 1}, not {expect_seq}"
            )
        if stream is None:
            return db.execute(_BEGIN, (machine, journal.GENESIS)).lastrowid or 0, 0, journal.GENESIS
        return stream, seq, head

    def read(self, machine: str, after: int = 0) -> Sequence[Record]:
        return self._records(self._rows(_LINES, (machine, after, _ALL)))

    def since_snapshot(self, machine: str) -> Sequence[Record]:
        found = self._rows("SELECT snapshot_seq FROM streams WHERE machine = ?", (machine,))
        return self.read(machine, max(0, found[0][0] - 1)) if found else []

    def _records(self, rows: Sequence[Any]) -> list[Record]:
        try:
            return [lines.load(row[0]) for row in rows]
        except ValueError as e:
            raise StoreError(f"{self.path} was changed by hand: {e}", Failure.INTERNAL_ERROR) from e

    def machines(self, prefix: str = "") -> Sequence[str]:
        text = "SELECT machine FROM streams WHERE machine >= ? AND substr(machine, 1, ?) = ? ORDER BY machine"
        return [row[0] for row in self._rows(text, (prefix, len(prefix), prefix))]

    def verify(self, machine: str) -> Fault | None:
        """Check every byte of a journal, and that it ends where the store's counter says. The offset is that
        in the exported file."""
        seq, offset, prev = 0, 0, journal.GENESIS
        while rows := self._rows(_LINES, (machine, seq, _VERIFY_AT_ONCE)):
            data = b"".join(row[0] for row in rows)
            records, fault = journal.read(data, prev=prev, first=seq + 1)
            if records and records[0].machine != machine:
                return Fault(seq + 1, offset, f"it belongs to {records[0].machine}")
            if fault is not None:
                return Fault(fault.seq, offset + fault.offset, fault.what, fault.torn)
            seq, prev, offset = records[-1].seq, records[-1].hash, offset + len(data)
        kept = self._rows("SELECT seq, head FROM streams WHERE machine = ?", (machine,))
        if kept and tuple(kept[0]) != (seq, prev):
            return Fault(seq + 1, offset, f"it ends at record {seq}, the store wrote {kept[0][0]}")
        return None

    def export(self, machine: str, path: Path) -> int:
        """Write a machine's journal as a file of lines, as they are; answers how many."""
        rows = self._rows(_LINES, (machine, 0, _ALL))
        try:
            places.write_file(path, b"".join(row[0] for row in rows))
        except OSError as e:
            raise StoreError(f"{path}: {e.strerror}") from e
        return len(rows)

    def backup(self, target: Path) -> None:
        """A whole copy of the store in one file, also while it is written to."""
        try:
            with schema.open_for_reading(self.path) as db:
                schema.copy(db, target)
        except sqlite3.Error as e:
            raise schema.unusable(target, e) from e

    # ------------------------------------------------------------ blobs, controls and facts

    def put_blob(self, data: bytes) -> str:
        sha = hashlib.sha256(data).hexdigest()
        if not self._rows("SELECT 1 FROM blobs WHERE sha256 = ?", (sha,)):
            packed = zlib.compress(data, BLOB_LEVEL)
            self._run("INSERT OR IGNORE INTO blobs (sha256, data) VALUES (?, ?)", (sha, packed))
        return sha

    def get_blob(self, sha256: str) -> bytes | None:
        found = self._rows("SELECT data FROM blobs WHERE sha256 = ?", (sha256,))
        return _unpacked(bytes(found[0][0])) if found else None

    def control(self, verb: str, args: Mapping[str, Any]) -> int:
        row = (self.clock.now(), verb, json.dumps(dict(args)))
        return self._run("INSERT INTO controls (at, verb, args) VALUES (?, ?, ?)", row)

    def controls(self, after: int = 0) -> Sequence[Control]:
        rows = self._rows("SELECT id, at, verb, args FROM controls WHERE id > ? ORDER BY id", (after,))
        return [Control(row[0], row[1], row[2], json.loads(row[3])) for row in rows]

    def get(self, key: str) -> Any | None:
        found = self._rows("SELECT value FROM facts WHERE key = ?", (key,))
        return json.loads(found[0][0]) if found else None

    def put(self, key: str, value: Any) -> None:
        """Keep a JSON value; None forgets the key."""
        if value is None:
            self._run("DELETE FROM facts WHERE key = ?", (key,))
        else:
            self._run(_KEEP, (key, json.dumps(value)))

    # ------------------------------------------------------------ connections

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction. Leaving it by an answer or an exception before its end changes nothing."""
        with self._lock:
            db = self._db
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            finally:
                # SQLite has rolled back by itself after a full disk or an I/O error.
                if db.in_transaction:
                    db.execute("ROLLBACK")

    def _run(self, statement: str, parameters: tuple[Any, ...]) -> int:
        """Run one write; answers the number of the row it made."""
        try:
            with self._writing() as db:
                return db.execute(statement, parameters).lastrowid or 0
        except sqlite3.Error as e:
            raise schema.unusable(self.path, e) from e

    def _rows(self, statement: str, parameters: tuple[Any, ...] = ()) -> Sequence[Any]:
        try:
            with self._engine.connect() as connection:
                return connection.exec_driver_sql(statement, parameters).fetchall()
        except exc.DBAPIError as e:
            raise _store_error(self.path, e) from e

    def _err(self, error: sqlite3.Error) -> Err:
        """What an SQLite error in a write means. After an I/O error the record may be there all the same."""
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            raise schema.unusable(self.path, error) from error
        failure = Failure.DISK_FULL if name == "SQLITE_FULL" else Failure.INFRA_ENGINE
        return Err(failure, f"{self.path}: {error} ({name})", maybe=name.startswith("SQLITE_IOERR"))


def _path(url_or_path: str | Path) -> Path:
    text = str(url_or_path)
    kind, mark, rest = text.partition("://")
    if not mark:
        return Path(text)
    if kind != "sqlite" or not rest.startswith("/") or not rest.strip("/"):
        raise StoreError(
            f"{kind}://… is no store that this version can use: write sqlite:///path/to/store.db"
        )
    return Path(rest[1:])


def _store_error(path: Path, error: exc.DBAPIError) -> StoreError:
    cause = error.orig
    if not isinstance(cause, sqlite3.Error):
        raise error
    return schema.unusable(path, cause)


def _unpacked(stored: bytes) -> bytes:
    """A blob as it was put. What is not packed is JSON of an earlier version, or damaged, which its hash tells."""
    try:
        return zlib.decompress(stored)
    except zlib.error:
        return stored
