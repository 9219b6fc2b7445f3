"""Handing on: the same bytes for the same bundle, and what is unpacked verifies."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.audit.export import export
from harness.audit.files import AuditError
from harness.audit.verify import verify_bundle

Make = Callable[..., Path]


def test_an_exported_bundle_is_unpacked_by_tar_and_verifies(bundle: Make, tmp_path: Path) -> None:
    made = bundle()
    packed = export(made, tmp_path)
    assert packed == tmp_path / f"{made.name}.tar.gz"
    (tmp_path / "there").mkdir()
    subprocess.run(["tar", "xzf", str(packed), "-C", str(tmp_path / "there")], check=True)
    assert verify_bundle(tmp_path / "there" / made.name) == []


def test_the_same_bundle_gives_the_same_bytes(bundle: Make, tmp_path: Path) -> None:
    made = bundle()
    first = export(made, tmp_path / "a.tar.gz").read_bytes()
    other = tmp_path / "elsewhere" / made.name
    shutil.copytree(made, other)
    for n, path in enumerate(sorted(other.rglob("*"))):
        os.utime(path, (n, n))
        path.chmod(0o700)
    assert export(other, tmp_path / "b.tar.gz").read_bytes() == first


def test_the_archive_has_only_plain_files_below_the_bundles_name(bundle: Make, tmp_path: Path) -> None:
    made = bundle()
    with tarfile.open(export(made, tmp_path)) as tar:
        for entry in tar:
            assert entry.isreg() and entry.name.startswith(f"{made.name}/")
            assert (entry.mtime, entry.uid, entry.gid, entry.uname, entry.mode) == (0, 0, 0, "", 0o644)


def test_a_link_in_a_bundle_is_refused_and_nothing_is_left(bundle: Make, tmp_path: Path) -> None:
    made = bundle()
    (made / "x").symlink_to("/etc/passwd")
    (tmp_path / "out").mkdir()
    with pytest.raises(AuditError, match=r"has no place in a bundle \(a link\): verify the bundle first"):
        export(made, tmp_path / "out")
    assert os.listdir(tmp_path / "out") == []


def test_bad_places_are_one_clear_line(bundle: Make, tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="is not a bundle"):
        export(tmp_path / "none", tmp_path)
    with pytest.raises(AuditError, match="cannot be written: No such file or directory"):
        export(bundle(), tmp_path / "no" / "such" / "place.tar.gz")
