"""Where audit bundles are made: what lies in an attempt's folder, sealed by the audit package.

The one rule: what a worker could have written is read as untrusted (regular files, capped, no links), and the
journal that counts is the one the director witnessed; the worker's own file is taken only where it goes on
from it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.audit.bundle import Caps, blobs_of, seal
from harness.audit.files import AuditError, read_files, shorten
from harness.core import journal
from harness.core.result import Err, Ok, Result
from harness.failures import Failure
from harness.perform import places
from harness.ports import Clock, Store

JOURNAL_LIMIT_BYTES = 64 << 20
SEGMENTS_LIMIT = 64
RUNS_LIMIT = 200
PART_BYTES = 4096
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# A run whose shim was killed has its newest output beside its log.
OUTPUT = ("output.log", "output.log.tail-old", "output.log.tail")


@dataclass
class Archive:
    """Bundles go to `audits`; `data` holds the attempts' folders, `store` the director's records of them.
    `caps` are asked for at each sealing."""

    audits: Path
    data: Path
    store: Store
    clock: Clock
    redact: Callable[[bytes], bytes]
    caps: Callable[[], Caps] = Caps

    def seal(
        self, attempt: str, machine: str, meta: Mapping[str, Any], logs: Mapping[str, bytes]
    ) -> Result[str]:
        folder, caps = places.attempt_dir(self.data, attempt), self.caps()
        worker = _journal(folder)
        records = self.store.read(machine)
        lines = b"".join(journal.line(r) for r in records)
        wanted = [*blobs_of(records), *blobs_of(journal.read(worker)[0])]
        blobs = {sha: data for sha in wanted if (data := self._blob(folder, sha)) is not None}
        try:
            joined = _logs(folder, logs, caps.log_bytes, self.redact)
            audit = seal(
                self.audits, meta=meta, journal_lines=worker, blobs=blobs, extra=joined.files,
                at=self.clock.now(), attempt_lines=lines, caps=caps, redact=self.redact,
                within=self.data.resolve(), cut=joined.cut,
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
    """The witnessed journal, or the worker's own where it goes on from there: its sealed segments and the one
    that was written last."""
    witnessed = places.read(folder / "witness.jsonl", JOURNAL_LIMIT_BYTES) or b""
    audit = folder / "audit"
    sealed = sorted(audit.glob("journal-[0-9]*.jsonl"))[:SEGMENTS_LIMIT] if _plain(audit) else []
    own = bytearray()
    for path in (*sealed, audit / "journal.jsonl"):
        own += places.read(path, JOURNAL_LIMIT_BYTES - len(own)) or b""
    return bytes(own) if own.startswith(witnessed) else witnessed


def _plain(path: Path) -> bool:
    """No part of the path is a link: a worker may have put one where a folder should be."""
    return path.resolve() == path


# ---------------------------------------------------------------- logs


@dataclass
class Joined:
    """What goes into a bundle beside its journals, what matters most first; `cut` what was cut of the logs."""

    files: dict[str, Path] = field(default_factory=dict)
    cut: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Part:
    """One run's output: in memory, or in files that follow each other."""

    name: str
    size: int
    data: bytes = b""
    paths: tuple[Path, ...] = ()


def _logs(
    folder: Path, logs: Mapping[str, bytes], limit_bytes: int, redact: Callable[[bytes], bytes]
) -> Joined:
    """build.log is what the containers said, agent.log and test.log what the runs inside printed, in order.
    Each has at most `limit_bytes`: of what is longer than its share, head and tail."""
    folder = folder.resolve()
    parts: dict[str, list[Part]] = {"test.log": [], "agent.log": [], "build.log": []}
    for name, data in logs.items():
        parts["build.log"].append(Part(name, len(data), data))
    tests = folder / "audit" / "runs"
    for run in _runs(folder / "audit" / "jobs"):
        paths = tuple(run / name for name in OUTPUT)
        kind = "test.log" if (tests / run.name).is_dir() else "agent.log"
        parts[kind].append(Part(run.name, sum(_size(p) for p in paths), paths=paths))
    joined = Joined()
    patches = folder / "audit" / "patches"
    if _plain(patches) and patches.is_dir():
        joined.files["patches"] = patches
    for name, found in parts.items():
        if found:
            _join(folder / "seal" / name, found, limit_bytes, redact, joined)
    sources = {"ledger": folder / "ledger", "ledger/worker": folder / "audit" / "ledger"}
    joined.files |= {n: source for n, source in sources.items() if _plain(source) and source.is_dir()}
    return joined


def _runs(jobs: Path) -> list[Path]:
    """Folders of the runs inside a worker, oldest first; the newest where there are too many."""
    found = [p for p in jobs.iterdir() if _plain(p) and p.is_dir()] if _plain(jobs) and jobs.is_dir() else []
    return sorted(found, key=lambda p: p.stat().st_mtime)[-RUNS_LIMIT:]


def _size(path: Path) -> int:
    return path.lstat().st_size if path.is_file() and not path.is_symlink() else 0


def _join(
    target: Path, parts: list[Part], limit_bytes: int, redact: Callable[[bytes], bytes], joined: Joined
) -> None:
    """Write the parts one after the other; no more than one of them is in memory."""
    heads = [f"== {p.name}\n".encode() for p in parts]
    room = limit_bytes - sum(len(h) + 128 for h in heads)  # a note on what was cut takes less than 128
    most = share([p.size for p in parts], max(room, PART_BYTES * len(parts)))
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(target.name + ".new")
    total = kept = 0
    try:
        with open(new, "wb") as f:
            for head, part in zip(heads, parts, strict=True):
                text = _text(part, most, redact)
                f.write(head + text + (b"" if text.endswith(b"\n") else b"\n"))
                total, kept = total + part.size, kept + min(part.size, len(text))
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)
    joined.files[target.name] = target
    if any(p.size > most for p in parts):
        joined.cut.append({"name": target.name, "bytes": total, "kept": kept})


def share(sizes: list[int], limit_bytes: int) -> int:
    """How much each may keep, so that all together keep at most the limit: what is small is kept as a whole,
    and what it leaves goes to the others."""
    left = sorted(sizes)
    while left and left[0] <= limit_bytes // len(left):
        limit_bytes -= left.pop(0)
    return limit_bytes // len(left) if left else max(sizes, default=0)


def _text(part: Part, limit_bytes: int, redact: Callable[[bytes], bytes]) -> bytes:
    def read(offset: int, count: int) -> bytes:
        return part.data[offset : offset + count] or read_files(part.paths, offset, count)

    return shorten(read, part.size, limit_bytes, redact).data
