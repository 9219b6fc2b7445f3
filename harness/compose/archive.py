"""Where audit bundles are made: what lies in an attempt's folder, sealed by the audit package.

The one rule: what a worker could have written is read as untrusted (regular files, capped, no links), and the
journal that counts is the one the director witnessed; the worker's own file is taken only where it goes on
from it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core import journal
from harness.core.result import Err, Ok, Result
from harness.failures import Failure
from harness.perform import places
from harness.ports import Clock, Store

JOURNAL_LIMIT_BYTES = 64 << 20
LOG_LIMIT_BYTES = 4 << 20
RUNS_LIMIT = 200
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass
class Archive:
    """Bundles go to `audits`; `data` holds the attempts' folders, `store` the director's records of them."""

    audits: Path
    data: Path
    store: Store
    clock: Clock
    redact: Callable[[bytes], bytes]

    def seal(
        self, attempt: str, machine: str, meta: Mapping[str, Any], logs: Mapping[str, bytes]
    ) -> Result[str]:
        from harness.audit.bundle import blobs_of, seal
        from harness.audit.files import AuditError

        folder = places.attempt_dir(self.data, attempt)
        worker = _journal(folder)
        records = self.store.read(machine)
        lines = b"".join(journal.line(r) for r in records)
        wanted = [*blobs_of(records), *blobs_of(journal.read(worker)[0])]
        blobs = {sha: data for sha in wanted if (data := self._blob(folder, sha)) is not None}
        try:
            extra = _logs(folder, logs)
            audit = seal(
                self.audits, meta=meta, journal_lines=worker, blobs=blobs, extra=extra, at=self.clock.now(),
                attempt_lines=lines, redact=self.redact, within=self.data.resolve(),
            )  # fmt: skip
            return Ok(audit)
        except AuditError as e:
            full = e.errno in FULL
            return Err(Failure.DISK_FULL if full else Failure.INFRA_KILLED, str(e))
        except OSError as e:
            full = e.errno in FULL
            return Err(Failure.DISK_FULL if full else Failure.INFRA_KILLED, f"{e.filename}: {e.strerror}")

    def _blob(self, folder: Path, sha: str) -> bytes | None:
        return self.store.get_blob(sha) or places.read(folder / "audit" / "blobs" / sha, JOURNAL_LIMIT_BYTES)


def _journal(folder: Path) -> bytes:
    witnessed = places.read(folder / "witness.jsonl", JOURNAL_LIMIT_BYTES) or b""
    own = places.read(folder / "audit" / "journal.jsonl", JOURNAL_LIMIT_BYTES) or b""
    return own if own.startswith(witnessed) else witnessed


def _plain(path: Path) -> bool:
    """No part of the path is a link: a worker may have put one where a folder should be."""
    return path.resolve() == path


def _logs(folder: Path, logs: Mapping[str, bytes]) -> dict[str, Path]:
    """build.log is what the containers said, agent.log and test.log what the runs inside printed, in order."""
    folder = folder.resolve()
    parts: dict[str, list[bytes]] = {"build.log": [], "agent.log": [], "test.log": []}
    for name, data in logs.items():
        parts["build.log"].append(f"== {name}\n".encode() + data)
    jobs, tests = folder / "audit" / "jobs", folder / "audit" / "runs"
    found = [p for p in jobs.iterdir() if _plain(p) and p.is_dir()] if _plain(jobs) and jobs.is_dir() else []
    for run in sorted(found, key=lambda p: p.stat().st_mtime)[:RUNS_LIMIT]:
        data = places.read(run / "output.log", LOG_LIMIT_BYTES) or b""
        kind = "test.log" if (tests / run.name).is_dir() else "agent.log"
        parts[kind].append(f"== {run.name}\n".encode() + data)
    made: dict[str, Path] = {}
    for name, chunks in parts.items():
        if chunks:
            path = folder / "seal" / name
            places.write(path, b"\n".join(chunks))
            made[name] = path
    sources = {
        "ledger": folder / "ledger",
        "ledger/worker": folder / "audit" / "ledger",
        "patches": folder / "audit" / "patches",
    }
    return made | {name: source for name, source in sources.items() if _plain(source) and source.is_dir()}
