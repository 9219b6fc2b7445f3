"""Whatever ends a worker, what its agent had done by then is kept: a patch in the bundle, a ref in the mirror.

The one rule: only files, refs and processes are looked at, and a patch counts when real git applies it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from json import dumps
from pathlib import Path

import pytest
from demo_world import Stage, bare_of, bundles, events, git, journals, left_over, wait_for
from director_world import PERSON, World

from harness.audit.verify import verify_bundle
from harness.demo.run import REPO

pytestmark = pytest.mark.nightly

KILLED, LOST, IDLE, ENDLESS, CANCELLED, COMMITTED, BROKEN, STOPPED = range(1, 9)
TITLES = (
    "Lose the worker", "Lose its keeper", "Hang", "Never end", "Change a mind", "Commit and go on", "Break git",
)  # fmt: skip
# Text, bytes that are no text, a change, a removal, a folder, something staged and taken back: nothing of it
# is committed but what the sixth commits.
WORK = r"""
echo "half of $HARNESS_ISSUE" >half.txt; mkdir -p new/folder; printf 'a\r\nb\0\377' >new/folder/data.bin
echo more >>README.md; rm tests/__init__.py 2>/dev/null || git rm -q tests/test_tally.py
echo staged >staged.txt; git add staged.txt; echo later >>staged.txt; ln -s half.txt link
"""
AGENT = f"""
{WORK}
case $HARNESS_ISSUE in
{COMMITTED}) git add -A; git -c user.name=a -c user.email=a@a.example commit -q -m done; echo on >>half.txt ;;
esac
touch MARKS/$HARNESS_ISSUE
case $HARNESS_ISSUE in
{IDLE}) exec sleep 600 ;;
{COMMITTED}) exec sleep 600 ;;
{BROKEN}) rm -rf .git; exec sleep 600 ;;
*) while :; do echo still at it; echo x >>"$HOME/log"; sleep 0.3; done ;;
esac
"""


@dataclass
class Kept:
    world: World
    code: int
    told: str
    outcomes: dict[int, str] = field(default_factory=dict)


def _processes(attempt: str) -> list[int]:
    """The worker's own process: its agent does not bear the attempt's brief."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if (
                b"worker" in words
                and f"HARNESS_ATTEMPT={attempt}\0".encode() in (entry / "environ").read_bytes()
            ):
                found.append(int(entry.name))
        except OSError:
            continue  # it ended meanwhile
    return found


def _shim(world: World, attempt: str) -> int:
    import json

    end = f"-{attempt.replace('.', '-')}-i1"
    (folder,) = [p for p in (world.folder / "data" / "jobs").iterdir() if p.name.endswith(end)]
    return int(json.loads((folder / "started.json").read_text())["pid"])


def _open(world: World, title: str) -> None:
    body = dumps({"title": title, "body": "Please.", "labels": ["harness"]}).encode()
    request = urllib.request.Request(
        f"{world.forge.url}/repos/{REPO}/issues", data=body, headers={"Authorization": f"Bearer {PERSON}"}
    )
    urllib.request.urlopen(request, timeout=10).close()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """A worker killed, one whose keeper is killed, one that hangs, one that never ends, one that is cancelled,
    and one that is stopped with the director."""
    folder = tmp_path_factory.mktemp("saved")
    marks = folder / "marks"
    marks.mkdir()
    stage = Stage(folder)
    script = AGENT.replace("MARKS", str(marks)).replace("$", "$$")
    config = {
        "director": {"max_workers": 8, "max_retries": 1, "max_attempts": 1, "max_infra_retries": 1},
        "agent": {"kind": "command", "command": ["sh", "-c", script]},
        "timeouts": {"idle_seconds": 6, "worker_watchdog_seconds": 15, "stop_grace_seconds": 1},
    }
    with World(stage, folder / "world", "process", TITLES, config=config) as world:
        director = world.start("director")
        wait_for(lambda: len(list(marks.iterdir())) == len(TITLES), 60, "all agents are at it")
        for pid in wait_for(lambda: _processes(f"{KILLED}.1"), 20, "its process"):
            os.kill(pid, signal.SIGKILL)
        os.kill(_shim(world, f"{LOST}.1"), signal.SIGKILL)
        assert world.run("cancel", str(CANCELLED)).code == 0
        wait_for((world.folder / "audits").is_dir, 90, "the first bundle is there")
        wait_for(lambda: len(bundles(world.folder)) == len(TITLES), 90, "all bundles are there")
        _open(world, "Be stopped")
        wait_for((marks / str(STOPPED)).exists, 60, "the last agent is at it")
        stopped = world.run("stop", "--workers")
        assert stopped.code == 0, stopped.told
        wait_for(lambda: len(bundles(world.folder)) == STOPPED, 60, "its bundle is there")
        director.end(60)
        yield Kept(world, director.process.returncode, director.told())
    stage.close()


def _bundle(world: World, issue: int) -> Path:
    (found,) = [b for b in bundles(world.folder) if b.name.endswith(f"-{issue}.1")]
    return found


ENDS = {
    KILLED: "exited", LOST: "exited", IDLE: "exited", ENDLESS: "exited", CANCELLED: "stop",
    COMMITTED: "exited", STOPPED: "stop",
}  # fmt: skip


@pytest.mark.parametrize("issue", ENDS)
def test_what_was_done_is_kept_as_a_patch_that_applies_and_as_a_ref(
    issue: int, kept: Kept, tmp_path: Path
) -> None:
    world = kept.world
    attempts = {m.rsplit("/", 1)[1]: r for m, r in journals(world.folder, "/attempt/").items()}
    passed = events(attempts[f"{issue}.1"])
    assert passed[-3:] == [ENDS[issue], "harvested", "clean"] or passed[-3] in ("timed_out", ENDS[issue]), (
        passed
    )
    bundle = _bundle(world, issue)
    assert verify_bundle(bundle) == []
    patch = bundle / "patches" / "harvest.patch"

    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(bare_of(world.folder)), str(clone)], check=True, timeout=60)
    base = str(next(r.body["start"]["base_sha"] for r in attempts[f"{issue}.1"] if "start" in r.body))
    _git(clone, "checkout", "-q", base)
    _git(clone, "apply", "--index", str(patch))
    more = "on\n" if issue == COMMITTED else ""
    assert (clone / "half.txt").read_text() == f"half of {issue}\n{more}"
    assert (clone / "new/folder/data.bin").read_bytes() == b"a\r\nb\0\xff"
    assert (clone / "staged.txt").read_text() == "staged\nlater\n"
    assert (clone / "link").is_symlink() and (clone / "README.md").read_text().endswith("more\n")
    mirror = world.folder / "data" / "git" / "mirror.git"
    saved = git(mirror, "rev-parse", f"refs/harness/saved/{issue}.1^{{tree}}")
    assert _git(clone, "write-tree") == saved


def _git(clone: Path, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=clone, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, (args, done.stderr)
    return done.stdout.strip()


def test_a_clone_of_which_nothing_can_be_saved_is_kept_as_it_is(kept: Kept) -> None:
    assert not (_bundle(kept.world, BROKEN) / "patches" / "harvest.patch").exists()
    (aside,) = (kept.world.folder / "data" / "aside").iterdir()
    assert aside.name == f"{BROKEN}.1" and (aside / "half.txt").read_text() == f"half of {BROKEN}\n"
    assert (aside / "new/folder/data.bin").read_bytes() == b"a\r\nb\0\xff"


def test_saved_work_stays_with_us_and_nothing_else_does(kept: Kept) -> None:
    assert kept.code == 0, kept.told[-4000:]
    there = git(bare_of(kept.world.folder), "for-each-ref", "--format=%(refname)").split()
    assert not any("saved" in ref or "agent/" in ref for ref in there)
    assert left_over(kept.world.folder, "process") == []
