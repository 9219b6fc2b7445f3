"""Whatever ends a worker, what its agent had done by then is kept: a patch in the bundle, a ref in the mirror.

The one rule: only files, refs and processes are looked at, and a patch counts when real git applies it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from demo_world import bare_of, bundles, events, git, journals
from saves import BROKEN, CANCELLED, COMMITTED, ENDLESS, IDLE, KILLED, LOST, STOPPED, Kept

from harness.audit.verify import verify_bundle


def _bundle(folder: Path, issue: int) -> Path:
    (found,) = [b for b in bundles(folder) if b.name.endswith(f"-{issue}.1")]
    return found


ENDS = {
    KILLED: "exited", LOST: "exited", IDLE: "exited", ENDLESS: "exited", CANCELLED: "stop",
    COMMITTED: "exited", STOPPED: "stop",
}  # fmt: skip


@pytest.mark.parametrize("issue", ENDS)
def test_what_was_done_is_kept_as_a_patch_that_applies_and_as_a_ref(
    issue: int, kept: Kept, tmp_path: Path
) -> None:
    folder = kept.folder
    attempts = {m.rsplit("/", 1)[1]: r for m, r in journals(folder, "/attempt/").items()}
    passed = events(attempts[f"{issue}.1"])
    assert passed[-3:] == [ENDS[issue], "harvested", "clean"] or passed[-3] in ("timed_out", ENDS[issue]), (
        passed
    )
    bundle = _bundle(folder, issue)
    assert verify_bundle(bundle) == []
    patch = bundle / "patches" / "harvest.patch"

    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(bare_of(folder)), str(clone)], check=True, timeout=60)
    base = str(next(r.body["start"]["base_sha"] for r in attempts[f"{issue}.1"] if "start" in r.body))
    _git(clone, "checkout", "-q", base)
    _git(clone, "apply", "--index", str(patch))
    more = "on\n" if issue == COMMITTED else ""
    assert (clone / "half.txt").read_text() == f"half of {issue}\n{more}"
    assert (clone / "new/folder/data.bin").read_bytes() == b"a\r\nb\0\xff"
    assert (clone / "staged.txt").read_text() == "staged\nlater\n"
    assert (clone / "link").is_symlink() and (clone / "README.md").read_text().endswith("more\n")
    mirror = folder / "data" / "git" / "mirror.git"
    saved = git(mirror, "rev-parse", f"refs/harness/saved/{issue}.1^{{tree}}")
    assert _git(clone, "write-tree") == saved


def _git(clone: Path, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=clone, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, (args, done.stderr)
    return done.stdout.strip()


def test_a_clone_of_which_nothing_can_be_saved_is_kept_as_it_is(kept: Kept) -> None:
    assert not (_bundle(kept.folder, BROKEN) / "patches" / "harvest.patch").exists()
    (aside,) = (kept.folder / "data" / "aside").iterdir()
    assert aside.name == f"{BROKEN}.1" and (aside / "half.txt").read_text() == f"half of {BROKEN}\n"
    assert (aside / "new/folder/data.bin").read_bytes() == b"a\r\nb\0\xff"


def test_saved_work_stays_with_us_and_nothing_else_does(kept: Kept) -> None:
    assert kept.code == 0, kept.told[-4000:]
    there = git(bare_of(kept.folder), "for-each-ref", "--format=%(refname)").split()
    assert not any("saved" in ref or "agent/" in ref for ref in there)
    assert kept.left == []


def test_no_agent_outlives_its_worker(kept: Kept) -> None:
    """Also where the worker's keeper was killed: the agent would go on writing into what was saved."""
    assert kept.alive == []
