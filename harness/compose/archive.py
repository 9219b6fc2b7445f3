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
                attempt_lines=lines, redact=self.redact, within=self.data,
            )  # fmt: skip
            return Ok(audit)
        except AuditError as e:
            return Err(Failure.INFRA_KILLED, str(e))
        except OSError as e:
            full = e.errno in (errno.ENOSPC, errno.EDQUOT)
            return Err(Failure.DISK_FULL if full else Failure.INFRA_KILLED, f"{e.filename}: {e.strerror}")

    def _blob(self, folder: Path, sha: str) -> bytes | None:
        return self.store.get_blob(sha) or places.read(folder / "audit" / "blobs" / sha, JOURNAL_LIMIT_BYTES)


def _journal(folder: Path) -> bytes:
    witnessed = places.read(folder / "witness.jsonl", JOURNAL_LIMIT_BYTES) or b""
    own = places.read(folder / "audit" / "journal.jsonl", JOURNAL_LIMIT_BYTES) or b""
    return own if own.startswith(witnessed) else witnessed


def _logs(folder: Path, logs: Mapping[str, bytes]) -> dict[str, Path]:
    """build.log is what the containers said, agent.log and test.log what the runs inside printed,
    in order."""
    parts: dict[str, list[bytes]] = {"build.log": [], "agent.log": [], "test.log": []}
    for name, data in logs.items():
        parts["build.log"].append(f"== {name}\n".encode() + data)
    jobs = folder / "audit" / "jobs"
    runs = (
        sorted((p for p in jobs.iterdir() if p.is_dir()), key=lambda p: p.stat().st_mtime)
        if jobs.is_dir()
        else []
    )
    for run in runs[:RUNS_LIMIT]:
        data = places.read(run / "output.log", LOG_LIMIT_BYTES) or b""
        kind = "test.log" if (folder / "audit" / "runs" / run.name).is_dir() else "agent.log"
        parts[kind].append(f"== {run.name}\n".encode() + data)
    made: dict[str, Path] = {}
    for name, chunks in parts.items():
        if chunks:
            path = folder / "seal" / name
            places.write(path, b"\n".join(chunks))
            made[name] = path
    for name in ("ledger", "patches"):
        for source in (folder / "audit" / name, folder / name):
            if source.is_dir() and not source.is_symlink():
                made[name if source.parent == folder else f"{name}/worker" if name == "ledger" else name] = (
                    source
                )
    return made
