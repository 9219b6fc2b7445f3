"""What may be done with a database file before it is used: look, make, migrate, copy, set aside.

The one rule: a file that is damaged, newer, or not ours is never written to, and one that is missing or empty
where there was one before is never begun anew in silence.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from harness.adapters.store import places
from harness.adapters.store.errors import StoreError, StoreMissing
from harness.failures import Failure

MIGRATIONS = Path(__file__).with_name("migrations")
MAGIC = b"SQLite format 3\0"
BUSY_S = 10.0
WAL_KEPT_BYTES = 64 << 20
_REBUILD = "run `harness rebuild`"


def schemas(migrations: Path = MIGRATIONS) -> tuple[str, ...]:
    """The schemas that this version knows, oldest first: the four digits its migrations' names begin with."""
    return tuple(sorted(p.name[:4] for p in (migrations / "versions").glob("[0-9][0-9][0-9][0-9]_*.py")))


def marker(path: Path) -> Path:
    """The file beside a database that says: there is one. It outlives a lost database."""
    return path.with_suffix(".exists")


def backups(path: Path) -> list[Path]:
    """Copies of a database, newest last."""
    found = path.parent.glob(f"{path.stem}.backup-*.db")
    return sorted(found, key=lambda p: (p.stat().st_mtime, p.name))


def connect(path: Path, mode: str = "rw", busy_s: float = BUSY_S) -> sqlite3.Connection:
    """A connection that begins transactions only when told to, and never makes a file. `mode` is rw, ro or
    frozen (for a folder that cannot be written, where no one can be writing either)."""
    uri = f"file:{quote(str(path.absolute()))}?" + ("immutable=1" if mode == "frozen" else f"mode={mode}")
    db = sqlite3.connect(uri, uri=True, timeout=busy_s, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA synchronous=FULL")
    db.execute(f"PRAGMA journal_size_limit={WAL_KEPT_BYTES}")
    return db


def look(path: Path, *, check: bool = True, migrations: Path = MIGRATIONS) -> str:
    """The schema of a database file, "" when there is none and never was. Reads only.

    Raises StoreError with one line for people when the file cannot be used. `check` reads all of it.
    """
    if not path.exists():
        if marker(path).exists() or backups(path):
            raise StoreMissing(f"{path} is missing, but there was a store here: {_remedy(path)}")
        return ""
    head = _first_bytes(path, len(MAGIC))
    if head != MAGIC:
        what = "is not a database" if head else "is empty"
        raise _unusable(path, what)
    try:
        with open_for_reading(path) as db:
            if check and (found := db.execute("PRAGMA integrity_check(1)").fetchone()[0]) != "ok":
                raise _unusable(path, f"is damaged ({found.splitlines()[-1].strip()})")
            return _schema(path, db, migrations)
    except sqlite3.DatabaseError as e:
        raise unusable(path, e) from e


def _first_bytes(path: Path, count: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(count)
    except OSError as e:
        raise StoreError(f"{path} cannot be read: {e.strerror}") from e


@contextmanager
def open_for_reading(path: Path) -> Iterator[sqlite3.Connection]:
    db = connect(path, mode=reading_mode(path))
    try:
        yield db
    finally:
        db.close()


def reading_mode(path: Path) -> str:
    """SQLite needs a shared-memory file even to read. In a folder that we cannot write, and where no one has
    made it, the file cannot be in use either and is read as frozen."""
    shared = path.with_name(path.name + "-shm")
    return "ro" if shared.exists() or os.access(path.parent, os.W_OK) else "frozen"


def _schema(path: Path, db: sqlite3.Connection, migrations: Path) -> str:
    known = schemas(migrations)
    table = db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'alembic_version'").fetchone()[0]
    rows = db.execute("SELECT version_num FROM alembic_version").fetchall() if table else []
    if len(rows) != 1:
        raise _unusable(path, "says no schema version")
    schema = str(rows[0][0])
    if schema in known:
        return schema
    if schema.isdigit() and schema > known[-1]:
        text = f"{path} has schema {schema}, this version of harness knows up to {known[-1]}"
        raise StoreError(f"{text}: install the newer version again; the file was left as it is")
    raise _unusable(
        path, f"has the unknown schema {schema[:20]!r}, this version of harness needs {known[-1]}"
    )


def unusable(path: Path, error: sqlite3.Error) -> StoreError:
    """What an SQLite error in a call without a Result means."""
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreError(f"{path} is locked by another process: try again")
    if name == "SQLITE_FULL":
        return StoreError(f"{path}: the disk is full: make room", Failure.DISK_FULL)
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return _unusable(path, f"is damaged ({error})")
    return StoreError(f"{path} cannot be used ({name or 'error'}: {error}): look at its owner, mode and disk")


def _unusable(path: Path, what: str) -> StoreError:
    return StoreError(f"{path} {what}: {_remedy(path)}; the file was left as it is", Failure.INTERNAL_ERROR)


def _remedy(path: Path) -> str:
    copies = backups(path)
    return f"copy {copies[-1]} over it, or {_REBUILD}" if copies else _REBUILD


# ---------------------------------------------------------------- making and migrating


def create(path: Path, *, at: float, migrations: Path = MIGRATIONS) -> None:
    """Make an empty store. It takes its name only when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        new.unlink(missing_ok=True)
        os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        db = connect(new)
        try:
            _run(db, migrations)
            db.execute("INSERT INTO meta VALUES (1, 0, ?, ?)", (secrets.token_hex(4), at))
            # Last, so that nothing is left in a log of the file's first name: closing says nothing of an error.
            db.execute("PRAGMA journal_mode=WAL")
        finally:
            db.close()
        os.link(new, path)
        places.sync_folder(path.parent)
    except FileExistsError:
        # Another process was sooner; its store is as good.
        return
    except sqlite3.Error as e:
        raise unusable(path, e) from e
    finally:
        new.unlink(missing_ok=True)
    mark(path)


def mark(path: Path) -> None:
    if not marker(path).exists():
        places.write_file(
            marker(path), b"There is a store beside this file. If it is missing: harness rebuild\n"
        )


def upgrade(path: Path, schema: str, *, at: float, migrations: Path = MIGRATIONS) -> Path:
    """Bring an older file to the newest schema, in one transaction, after copying it; answers the copy."""
    stamp = datetime.fromtimestamp(at, UTC).strftime("%Y%m%dT%H%M%SZ")
    kept = path.with_name(f"{path.stem}.backup-{schema}-{stamp}.db")
    try:
        db = connect(path)
        try:
            copy(db, kept)
            _run(db, migrations)
        finally:
            db.close()
    except sqlite3.Error as e:
        raise unusable(path, e) from e
    return kept


def copy(db: sqlite3.Connection, target: Path) -> None:
    """A whole, consistent copy of a database, also while it is written to. Raises sqlite3.Error."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        other = sqlite3.connect(temporary, isolation_level=None)
        try:
            db.backup(other)
            other.execute("PRAGMA journal_mode=DELETE")
        finally:
            other.close()
        fd = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    places.sync_folder(target.parent)


def _run(db: sqlite3.Connection, migrations: Path) -> None:
    """Run the migrations that are missing, all of them or none."""
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import Connection, create_engine, event, exc
    from sqlalchemy.pool import StaticPool

    config = Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    engine = create_engine("sqlite://", creator=lambda: db, poolclass=StaticPool)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # The driver would begin only before a row is written, and leave the tables outside.
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    try:
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    except exc.DBAPIError as e:
        if isinstance(e.orig, sqlite3.Error):
            raise e.orig from e
        raise


def set_aside(path: Path) -> Path | None:
    """Make room for a rebuilt store: rename what is there (never delete it) and forget that there was one."""
    aside = None
    if path.exists():
        aside = places.free_name(path.with_name(path.name + ".damaged"))
        for suffix in ("", "-wal", "-shm"):
            old = path.with_name(path.name + suffix)
            if old.exists():
                os.rename(old, aside.with_name(aside.name + suffix))
    marker(path).unlink(missing_ok=True)
    places.sync_folder(path.parent)
    return aside
