"""Handing a bundle on: one tar.gz, the same bytes for the same bundle, with nothing in it but regular files.

The one rule: what is packed is what `verify` would read: no link is followed, and no owner or time is told.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path

from harness.audit.files import AuditError, LeftOut, gather, read_at, sync_folder

FILES_LIMIT = 100_000


def export(folder: Path, target: Path) -> Path:
    """Write the bundle as a tar.gz, whole or not at all; answers where (inside `target` when that is a
    folder). Raises AuditError for a bundle that has something else than regular files in it."""
    if folder.is_symlink() or not folder.is_dir():
        raise AuditError(f"{folder} is not a bundle: there is no such folder")
    path = target / f"{folder.name}.tar.gz" if target.is_dir() else target
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with open(temporary, "xb") as raw:
            with gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
                _pack(folder, packed)
            raw.flush()
            os.fsync(raw.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as e:
        temporary.unlink(missing_ok=True)
        raise AuditError(f"{path} cannot be written: {e.strerror or e}", e.errno or 0) from e
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path


def _pack(folder: Path, packed: gzip.GzipFile) -> None:
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for f in gather(folder, limit=FILES_LIMIT):
            if isinstance(f, LeftOut):
                odd = f"{folder / f.name} has no place in a bundle ({f.why})"
                raise AuditError(f"{odd}: verify the bundle first")
            data = read_at(f.fd, 0, f.size)
            entry = tarfile.TarInfo(f"{folder.name}/{f.name}")
            entry.size, entry.mode, entry.mtime = len(data), 0o644, 0
            tar.addfile(entry, io.BytesIO(data))
