"""The index of all bundles: one line each in `index.jsonl`, appended to, and made anew from the bundles.

The one rule: the bundles are the truth. A line that is torn or missing loses nothing: `rebuild_index` writes
the same again. A bundle that retention removed has a second line, which says so: it is gone, and not missing.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.audit.files import AuditError, read_own, sync_folder
from harness.core.journal import canonical, iso

INDEX, LOCK, META, MANIFEST = "index.jsonl", ".lock", "meta.json", "manifest.json"
SMALL_LIMIT_BYTES = 16 << 20
INDEX_LIMIT_BYTES = 256 << 20
REMOVING = ".removing"


@dataclass(frozen=True, slots=True)
class Line:
    """A bundle in short. `at` is ISO 8601; `manifest` the SHA-256 of its manifest, which covers the rest.
    `removed` (ISO 8601) and `why` only where it was removed on purpose."""

    audit: str
    at: str = ""
    machine: str = ""
    issue: int = 0
    attempt: str = ""
    title: str = ""
    outcome: str = ""
    failure: str = ""
    cost_usd: float = 0.0
    manifest: str = ""
    removed: str = ""
    why: str = ""


@contextmanager
def locked(audits: Path) -> Iterator[None]:
    """One writer at a time. The folder is made if it is missing. Raises OSError."""
    audits.mkdir(parents=True, exist_ok=True)
    fd = os.open(audits / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def line_of(meta: Mapping[str, Any], manifest: bytes) -> Line:
    """A bundle's line, from what is in it."""
    cost = meta.get("cost")
    usd = cost.get("usd", 0.0) if isinstance(cost, Mapping) else meta.get("cost_usd", 0.0)
    return Line(
        audit=_text(meta, "audit_id"),
        at=_text(meta, "sealed_at"),
        machine=_text(meta, "machine"),
        issue=_number(meta.get("issue")),
        attempt=_text(meta, "attempt"),
        title=_text(meta, "title")[:200],
        outcome=_text(meta, "outcome"),
        failure=_text(meta, "failure"),
        cost_usd=float(usd) if isinstance(usd, int | float) else 0.0,
        manifest=hashlib.sha256(manifest).hexdigest(),
    )


def _text(meta: Mapping[str, Any], key: str) -> str:
    value = meta.get(key, "")
    return value if isinstance(value, str) else ""


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _bytes(line: Line) -> bytes:
    shown = {name: getattr(line, name) for name in Line.__dataclass_fields__}
    if not line.removed:
        del shown["removed"], shown["why"]
    return canonical(shown) + b"\n"


def read_index(audits: Path) -> dict[str, Line]:
    """The last line of each audit id. A line that is none of ours is passed over: the bundle itself is still
    there."""
    data = read_own(audits / INDEX, INDEX_LIMIT_BYTES) or b""
    lines: dict[str, Line] = {}
    for raw in data.split(b"\n"):
        try:
            found = json.loads(raw) if raw else None
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and isinstance(found.get("audit"), str):
            lines[found["audit"]] = _line(found)
    return lines


def _line(found: Mapping[str, Any]) -> Line:
    """What somebody wrote into a line by hand and has another type than it should is taken as not written."""
    kept: dict[str, Any] = {}
    for name, spec in Line.__dataclass_fields__.items():
        value = found.get(name)
        wanted = (int, float) if spec.type == "float" else (int,) if spec.type == "int" else (str,)
        if isinstance(value, wanted):
            kept[name] = value
    return Line(**kept)


def append_line(audits: Path, line: Line) -> None:
    """Append durably. A torn last line was never durable and is cut off first. Raises OSError."""
    path = audits / INDEX
    new = not os.path.lexists(path)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        size = os.fstat(fd).st_size
        tail = os.pread(fd, min(size, 1 << 16), max(0, size - (1 << 16)))
        if tail and not tail.endswith(b"\n"):
            os.ftruncate(fd, size - len(tail) + tail.rfind(b"\n") + 1)
            size = os.fstat(fd).st_size
        data = _bytes(line)
        try:
            if os.write(fd, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            os.fsync(fd)
        except OSError:
            os.ftruncate(fd, size)
            raise
    finally:
        os.close(fd)
    if new:
        sync_folder(audits)


def bundles_on_disk(audits: Path) -> list[str]:
    """Names of the folders that hold a bundle, in order."""
    if not audits.is_dir():
        return []
    found = [
        e.name for e in os.scandir(audits) if e.is_dir(follow_symlinks=False) and not e.name.startswith(".")
    ]
    return sorted(name for name in found if os.path.lexists(audits / name / META))


def read_json(path: Path, limit_bytes: int = SMALL_LIMIT_BYTES) -> dict[str, Any]:
    """A JSON object. Raises AuditError when it is not there or not one."""
    raw = read_own(path, limit_bytes)
    if raw is None:
        raise AuditError(f"{path} is not there")
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as e:
        raise AuditError(f"{path} is not JSON") from e
    if not isinstance(found, dict):
        raise AuditError(f"{path} is not a JSON object")
    return found


def sealed_before(audits: Path, machine: str) -> str:
    """The bundle of this attempt, from the index or from a bundle that has no line yet; empty when there is
    none. Raises OSError."""
    lines = read_index(audits)
    for line in lines.values():
        if line.machine == machine:
            return line.audit
    for name in bundles_on_disk(audits):
        if name not in lines and _read_meta(audits / name).get("machine") == machine:
            append_line(audits, _line_of_folder(audits / name))
            return name
    return ""


def _read_meta(folder: Path) -> dict[str, Any]:
    """Its meta.json, or nothing where that is unreadable: such a bundle is for `verify` to name."""
    try:
        return read_json(folder / META)
    except AuditError:
        return {}


def _line_of_folder(folder: Path) -> Line:
    manifest = read_own(folder / MANIFEST, SMALL_LIMIT_BYTES) or b""
    return line_of({**_read_meta(folder), "audit_id": folder.name}, manifest)


def rebuild_index(audits: Path) -> list[Line]:
    """Write the index anew from the bundles on disk, oldest first; answers its lines. Lines of bundles that
    are not there any more are dropped, but for those of bundles that were removed on purpose: nothing else
    knows of them. Raises AuditError."""
    try:
        with locked(audits):
            there = bundles_on_disk(audits)
            lines = [_line_of_folder(audits / name) for name in there]
            lines += [x for x in read_index(audits).values() if x.removed and x.audit not in there]
            lines.sort(key=lambda x: (x.at, x.audit))
            temporary = audits / f".{INDEX}.new"
            try:
                with open(temporary, "wb") as f:
                    f.write(b"".join(_bytes(x) for x in lines))
                    f.flush()
                    os.fsync(f.fileno())
                os.replace(temporary, audits / INDEX)
            finally:
                temporary.unlink(missing_ok=True)
            sync_folder(audits)
            return lines
    except OSError as e:
        raise AuditError(f"{audits / INDEX} cannot be written: {e.strerror}", e.errno or 0) from e


# ---------------------------------------------------------------- removing


def remove_bundle(audits: Path, audit: str, why: str, at: float) -> None:
    """Take a bundle away and write down that it was done: `why` is shown by `find`. The index is locked by
    the caller. Raises OSError; what was begun is ended by `end_removals`.

    It is renamed first and emptied before its line is written, so that it can be done on a disk that is full;
    what the line needs goes last.
    """
    aside = audits / f".{audit}{REMOVING}"
    os.rename(audits / audit, aside)
    sync_folder(audits)
    _end_removal(audits, aside, why, at)


def end_removals(audits: Path, why: str, at: float) -> None:
    """End what a process that died had begun to remove. The index is locked by the caller. Raises OSError."""
    for name in sorted(os.listdir(audits)):
        if name.startswith(".") and name.endswith(REMOVING):
            _end_removal(audits, audits / name, why, at)


def _end_removal(audits: Path, aside: Path, why: str, at: float) -> None:
    audit = aside.name[1 : -len(REMOVING)]
    for name in os.listdir(aside):
        if name not in (META, MANIFEST):
            path = aside / name
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    known = read_index(audits).get(audit)
    if known is None or not known.removed:
        line = known or replace(_line_of_folder(aside), audit=audit)
        append_line(audits, replace(line, removed=iso(at), why=why))
    shutil.rmtree(aside)
    sync_folder(audits)


def being_removed(audits: Path, audit: str) -> bool:
    """Whether somebody has begun to remove it, and not ended."""
    return os.path.lexists(audits / f".{audit}{REMOVING}")


# ---------------------------------------------------------------- asked by people


def list_bundles(audits: Path) -> list[Line]:
    """Every bundle, oldest first: what the index says, and what is on disk without a line in it."""
    lines = read_index(audits)
    there = bundles_on_disk(audits)
    found = [lines[n] if n in lines else _line_of_folder(audits / n) for n in there]
    return sorted(found, key=lambda x: (x.at, x.audit))


def find(audits: Path, name: str) -> Path:
    """A bundle's folder by its id, by a beginning of it, or by its attempt (`12.1`). Raises AuditError."""
    lines = list_bundles(audits)
    hits = [x for x in lines if x.audit == name] or [x for x in lines if name in (x.attempt, x.machine)]
    hits = hits or [x for x in lines if name and x.audit.startswith(name)]
    if len(hits) == 1:
        return audits / hits[0].audit
    if hits:
        names = ", ".join(x.audit for x in hits[:5])
        raise AuditError(f"{name} names {len(hits)} bundles in {audits} ({names}): say which one")
    gone = [x for x in read_index(audits).values() if x.removed and name in (x.audit, x.attempt, x.machine)]
    if gone:
        raise AuditError(
            f"{gone[-1].audit} in {audits} was removed on {gone[-1].removed[:10]}: {gone[-1].why}"
        )
    known = f"; the newest is {lines[-1].audit}" if lines else ", and none at all"
    raise AuditError(f"there is no bundle {name} in {audits}{known}")


def show(audits: Path, name: str) -> dict[str, Any]:
    """One bundle as a JSON document: its meta, its summary, its files with their sizes, what was left out."""
    folder = find(audits, name)
    manifest = read_json(folder / MANIFEST)
    summary = read_own(folder / "summary.md", SMALL_LIMIT_BYTES) or b""
    return {
        "audit": folder.name,
        "folder": str(folder),
        "meta": read_json(folder / META),
        "summary": summary.decode(errors="replace"),
        "journals": manifest.get("journals", {}),
        "files": {k: v.get("bytes") for k, v in manifest.get("files", {}).items() if isinstance(v, dict)},
        "cut": manifest.get("cut", []),
        "left_out": manifest.get("left_out", []),
    }
