"""The forge's tables and the one small door to them.

Times are UTC text ("2026-01-31T12:00:00Z"), so that they sort and compare as text. One connection, used
under the state's lock; every request that writes is one transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

SCHEMA = Path(__file__).with_name("schema.sql")


class Db:
    """One SQLite connection. Callers hold the state's lock."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        target = f"file:{quote(str(path))}" + ("?mode=ro" if read_only else "")
        self.conn = sqlite3.connect(
            target, uri=True, check_same_thread=False, isolation_level=None, timeout=30
        )
        self.conn.row_factory = sqlite3.Row
        if not read_only:
            self.conn.execute("PRAGMA journal_mode=WAL")
            self.conn.execute("PRAGMA synchronous=NORMAL")
            self.conn.executescript(SCHEMA.read_text(encoding="utf-8"))

    def one(self, sql: str, *args: Any) -> sqlite3.Row | None:
        row: sqlite3.Row | None = self.conn.execute(sql, args).fetchone()
        return row

    def must(self, sql: str, *args: Any) -> sqlite3.Row:
        """The one row that has to be there; anything else is a bug."""
        row = self.one(sql, *args)
        if row is None:
            raise LookupError(f"no row for {sql} {args}")
        return row

    def all(self, sql: str, *args: Any) -> list[sqlite3.Row]:
        return self.conn.execute(sql, args).fetchall()

    def run(self, sql: str, *args: Any) -> int:
        """Execute; give the id of the row that was inserted (0 when none was)."""
        return self.conn.execute(sql, args).lastrowid or 0

    def insert(self, table: str, **values: Any) -> int:
        """Add one row; give its id."""
        marks = ",".join("?" * len(values))
        return self.run(f"INSERT INTO {table} ({','.join(values)}) VALUES ({marks})", *values.values())

    def update(self, table: str, row_id: int, **values: Any) -> None:
        """Change columns of the row with that id."""
        sets = ", ".join(f"{name} = ?" for name in values)
        self.run(f"UPDATE {table} SET {sets} WHERE id = ?", *values.values(), row_id)

    def changed(self, sql: str, *args: Any) -> int:
        """Execute; give the number of rows that it touched."""
        return self.conn.execute(sql, args).rowcount

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.conn.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.conn.execute("ROLLBACK")
            raise
        self.conn.execute("COMMIT")

    def close(self) -> None:
        self.conn.close()
