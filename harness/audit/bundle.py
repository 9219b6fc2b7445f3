"""Sealing: everything that an attempt leaves behind becomes one folder that never changes again.

The one rule: a bundle appears whole, by one rename, and once. What goes into it from a worker's reach is read
without following anything, redacted, and capped; the manifest says what was left out.

    AUDITS/20261127-0207-12.1/
      meta.json       what the attempt was and came to
      journal.jsonl   the worker's journal: its testimony          attempt.jsonl   the director's own records
      blobs/SHA256    what decisions were given, where it is large
      ledger/ patches/ build.log test.log agent.log                summary.md
      manifest.json   the SHA-256 of each file, and where each journal ends
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness import __version__
from harness.audit import index
from harness.audit.files import (
    AuditError,
    Found,
    LeftOut,
    Redact,
    gather,
    safe_name,
    sample,
    sync_folder,
    write_new,
)
from harness.audit.index import MANIFEST, META, rebuild_index
from harness.audit.prose import summary
from harness.core.journal import GENESIS, Fault, Record, canonical, digest, iso, scan

VERSION = 1
WORKER, ATTEMPT, BLOBS, SUMMARY = "journal.jsonl", "attempt.jsonl", "blobs", "summary.md"
JOURNALS = (WORKER, ATTEMPT)
OWN = frozenset({META, MANIFEST, WORKER, ATTEMPT, BLOBS})
_SHA = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Caps:
    """`log_bytes` bounds a *.log, of which head and tail are kept; `file_bytes` any other file;
    `bundle_bytes` and `files` all of them together. Journals and their blobs are evidence and never cut."""

    log_bytes: int = 5 << 20
    file_bytes: int = 16 << 20
    bundle_bytes: int = 200 << 20
    files: int = 2000


@dataclass
class Draft:
    """A bundle while it is written."""

    folder: Path
    caps: Caps
    redact: Redact | None
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    left_out: list[dict[str, str]] = field(default_factory=list)
    cut: list[dict[str, Any]] = field(default_factory=list)
    size: int = 0

    def write(self, name: str, data: bytes) -> None:
        write_new(self.folder / name, data)
        self.files[name] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        self.size += len(data)

    def leave(self, name: str, why: str) -> None:
        self.left_out.append({"name": name, "why": why})


def seal(
    audits: Path,
    *,
    meta: Mapping[str, Any],
    journal_lines: bytes,
    blobs: Mapping[str, bytes],
    extra: Mapping[str, Path],
    at: float,
    attempt_lines: bytes = b"",
    caps: Caps = Caps(),
    redact: Redact | None = None,
    within: Path | None = None,
    cut: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Write `AUDITS/<audit id>/` and its line in the index; answers the id. The same attempt
    (`meta["machine"]`) again: the id that it has.

    `journal_lines` is the worker's journal, `attempt_lines` the director's of this attempt; `blobs` by
    SHA-256; `extra` maps a name in the bundle to a file or a folder, what matters most first: the cap of the
    bundle leaves out what comes last. `within` is a trusted folder, below which no part of a source's path
    may be a link. `cut` (name, bytes, kept) is what was cut of the sources before. `at` is POSIX seconds.
    Raises AuditError, and leaves nothing half done behind then.
    """
    try:
        with index.locked(audits):
            machine = str(meta.get("machine", ""))
            before = index.sealed_before(audits, machine) if machine else ""
            return before or _seal(
                audits, meta, (journal_lines, attempt_lines), blobs, extra, at, caps, redact, within, cut
            )
    except OSError as e:
        what = f"a bundle cannot be written to {audits}: {e.strerror or e}"
        raise AuditError(what, e.errno or 0) from e


def _seal(
    audits: Path,
    meta: Mapping[str, Any],
    journals: tuple[bytes, bytes],
    blobs: Mapping[str, bytes],
    extra: Mapping[str, Path],
    at: float,
    caps: Caps,
    redact: Redact | None,
    within: Path | None,
    cut: Sequence[Mapping[str, Any]],
) -> str:
    for name in os.listdir(audits):
        if name.startswith(".") and name.endswith(".sealing"):  # of a process that died: we hold the lock
            shutil.rmtree(audits / name)
    audit_id = _free_id(audits, str(meta.get("attempt", "")), at)
    draft = Draft(audits / f".{audit_id}.sealing", caps, redact, cut=[dict(x) for x in cut])
    try:
        draft.folder.mkdir()
        ends = {name: _journal(draft, name, data) for name, data in zip(JOURNALS, journals, strict=True)}
        _blobs(draft, blobs)
        ours = {"v": VERSION, "audit_id": audit_id, "sealed_at": iso(at), "harness": __version__}
        whole = {**_redacted(meta, redact), **ours}
        draft.write(META, json.dumps(whole, ensure_ascii=False, indent=2, sort_keys=True).encode() + b"\n")
        for target, source in extra.items():
            _take(draft, target, source, within)
        if SUMMARY not in draft.files:
            draft.write(SUMMARY, summary(whole, ends, draft.left_out).encode())
        manifest = _manifest(draft, audit_id, ends)
        write_new(draft.folder / MANIFEST, manifest)
        for folder, _, _ in os.walk(draft.folder):
            sync_folder(Path(folder))
        os.rename(draft.folder, audits / audit_id)
    except BaseException:
        shutil.rmtree(draft.folder, ignore_errors=True)
        raise
    sync_folder(audits)
    index.append_line(audits, index.line_of(whole, manifest))
    return audit_id


def _free_id(audits: Path, attempt: str, at: float) -> str:
    """`20261127-0207-12.1`, with a number behind it when that name is taken."""
    plain = re.sub(r"[^A-Za-z0-9._~-]+", "-", attempt).strip("-.") or "attempt"
    name = f"{datetime.fromtimestamp(at, UTC):%Y%m%d-%H%M}-{plain[:80]}"
    taken, number = index.read_index(audits), 1
    free = name
    while free in taken or os.path.lexists(audits / free):
        number += 1
        free = f"{name}-{number}"
    return free


def _journal(draft: Draft, name: str, data: bytes) -> dict[str, Any]:
    """Write a journal as it is, without a torn last line; answers where it ends. A broken one is kept for
    `verify` to name: it may be the evidence."""
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        draft.leave(
            name, f"its torn last line of {len(data) - len(whole)} bytes, which was never acknowledged"
        )
    end: dict[str, Any] = {"machine": "", "records": 0, "head": GENESIS, "fault": ""}
    for found in scan(whole):
        if isinstance(found, Fault):
            end["fault"] = f"record {found.seq}: {found.what}"
        else:
            end |= {"machine": found.machine, "records": found.seq, "head": found.hash}
    draft.write(name, whole)
    return end


def _blobs(draft: Draft, blobs: Mapping[str, bytes]) -> None:
    for sha, data in sorted(blobs.items()):
        if not _SHA.fullmatch(sha) or hashlib.sha256(data).hexdigest() != sha:
            draft.leave(f"{BLOBS}/{ascii(sha)[1:-1][:64]}", "it does not have the content that its name says")
            continue
        draft.write(f"{BLOBS}/{sha}", data)


def _take(draft: Draft, target: str, source: Path, within: Path | None) -> None:
    """One file or folder of the attempt."""
    if not safe_name(target) or target.split("/")[0] in OWN:
        raise AuditError(f"{target!r} cannot be a name in a bundle")
    for found in gather(source, within, draft.caps.files - len(draft.files)):
        name = f"{target}/{found.name}" if found.name else target
        if isinstance(found, LeftOut):
            if found.name or found.why != "not there":
                draft.leave(name, found.why)
        elif draft.size >= draft.caps.bundle_bytes:
            draft.leave(name, f"the bundle has {draft.size} bytes already")
        else:
            _copy(draft, name, found)


def _copy(draft: Draft, name: str, found: Found) -> None:
    caps = draft.caps
    limit = caps.log_bytes if name.endswith(".log") else caps.file_bytes
    limit = max(min(limit, caps.bundle_bytes - draft.size), 4096)
    kept = sample(found.fd, limit, draft.redact)
    if kept.cut:
        draft.cut.append({"name": name, "bytes": kept.size, "kept": len(kept.data)})
    draft.write(name, kept.data)


def _redacted(value: Any, redact: Redact | None) -> Any:
    """A JSON value with every text in it redacted; keys are ours."""
    if redact is None:
        return value
    if isinstance(value, str):
        return redact(value.encode(errors="replace")).decode(errors="replace")
    if isinstance(value, Mapping):
        return {k: _redacted(v, redact) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(v, redact) for v in value]
    return value


def _manifest(draft: Draft, audit_id: str, ends: Mapping[str, Any]) -> bytes:
    """In canonical form and with a hash of its own, so that no byte of it can change unseen."""
    whole = {
        "v": VERSION,
        "audit_id": audit_id,
        "files": draft.files,
        "journals": ends,
        "left_out": draft.left_out,
        "cut": draft.cut,
    }
    return canonical({**whole, "hash": digest(whole)}) + b"\n"


def blobs_of(records: Iterable[Record]) -> list[str]:
    """The blobs that these records need to be replayed, each once, in order of first use. What is no SHA-256
    is none: a worker may have written anything into its journal."""
    return list(dict.fromkeys(s for r in records for s in blob_names(r) if _SHA.fullmatch(s)))


def blob_names(record: Record) -> list[str]:
    """The blobs that one record refers to."""
    seen = record.body.get("seen")
    if not isinstance(seen, Mapping):
        return []
    facts = seen.get("facts")
    parts = [seen.get("policy"), *(facts.values() if isinstance(facts, Mapping) else ())]
    return [str(p["blob"]) for p in parts if isinstance(p, Mapping) and "blob" in p]


__all__ = ["Caps", "blob_names", "blobs_of", "rebuild_index", "seal"]
