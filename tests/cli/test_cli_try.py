"""`harness try N`: real work, and a forge on which nothing has changed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

from cli_world import run, start

PLAY = {
    "issues": {
        "3": [{"say": "Counting is constant now.", "write": {"SPEED.md": "It is as fast as light.\n"}}],
    }
}


def apply(patch: str, demo, folder: Path) -> None:
    """The patch fits what is on main now."""
    bare = demo.folder / "forge/repos/acme/tally.git"
    subprocess.run(["git", "clone", "-q", str(bare), str(folder)], check=True)
    subprocess.run(["git", "apply", "-"], cwd=folder, input=patch, text=True, check=True)


def test_it_ends_in_a_patch_and_changes_nothing(copy, forge, tmp_path):
    (copy.folder / "play.json").write_text(json.dumps(PLAY))
    kept = tmp_path / "kept"
    store = (copy.folder / "data/store.db").read_bytes()
    before = forge.dump()
    told = run("try", 3, "--json", "--keep", kept, "--config", copy.config, cwd=copy.folder)
    assert told.code == 0, told.err
    assert forge.dump() == before
    assert (copy.folder / "data/store.db").read_bytes() == store
    d = told.json
    assert (d["issue"], d["title"], d["cost_usd"]) == (3, "Count faster than light", 0)
    assert [(a["attempt"], a["outcome"]) for a in d["attempts"]] == [("3.1", "done")]
    apply(d["patch"], copy, tmp_path / "clone")
    assert (tmp_path / "clone/SPEED.md").read_text() == "It is as fast as light.\n"
    assert "Counting is constant now." in d["logs"]["agent.log"]
    would = {w["what"] for w in d["would"]}
    assert {"comment", "add labels", "open pull", "push"} <= would
    pull = next(w for w in d["would"] if w["what"] == "open pull")
    assert pull["title"] == "Count faster than light" and "Refs #3" in pull["body"]
    listed = run("audit", "list", "--audits", kept / "audits", "--json", cwd=copy.folder).json
    assert [x["attempt"] for x in listed] == ["3.1"]


def test_people_read_it_from_the_end(copy, forge):
    """What failed says so in the last lines; the folder is gone, since nobody asked to keep it."""
    before = forge.dump()
    told = run("try", 3, "--config", copy.config, cwd=copy.folder)
    assert told.code == 1, told.err
    assert forge.dump() == before
    assert told.out.endswith(
        "Issue 3: Count faster than light\n"
        "  attempt 3.1: failed (tests_failed)\n"
        "  came to DEFERRED: python3 -m unittest discover --quiet --start-directory . exited 1\n"
        "  model cost $0.00; nothing was written to the forge\n"
    )
    for part in (
        "What would have been written to the forge",
        "The end of test.log",
        "The patch",
        "+++ b/tests/test_speed.py",
    ):
        assert part in told.out
    assert "<!-- harness:" not in told.out


def test_an_issue_that_cannot_be_tried(copy, forge):
    closed = run("try", 1, "--config", copy.config, cwd=copy.folder)
    assert (closed.code, closed.out) == (1, "")
    assert closed.err == "harness try: issue 1 of acme/tally is closed: open it first\n"
    none = run("try", 99, "--config", copy.config, cwd=copy.folder)
    assert none.code == 1 and none.err.startswith("harness try: issue 99 of acme/tally: not found")


def test_a_red_base_is_the_answer(copy, forge, tmp_path):
    token = json.loads((copy.folder / "demo.json").read_text())["bot"]
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", forge.clone_url("acme/tally", token), str(clone)], check=True)
    (clone / "tests/test_red.py").write_text("raise SystemExit(1)\n")
    who = ("-c", "user.name=ada", "-c", "user.email=ada@example.org")
    for args in (("add", "-A"), (*who, "commit", "-q", "-m", "Break it"), ("push", "-q")):
        subprocess.run(["git", *args], cwd=clone, check=True)
    told = run("try", 3, "--config", copy.config, cwd=copy.folder)
    assert told.code == 1
    assert "came to nothing: base_red: main@" in told.out


def test_an_earlier_folder_is_not_taken(copy, forge, tmp_path):
    kept = tmp_path / "kept"
    shutil.copytree(copy.folder / "data", kept)
    told = run("try", 3, "--keep", kept, "--config", copy.config, cwd=copy.folder)
    assert told.code == 1
    assert told.err.endswith("holds an earlier try or a director's data: name a new folder\n")


def test_ctrl_c_ends_the_worker_and_saves_its_work(copy, forge, tmp_path):
    copy.change(agent={"kind": "command", "command": ["sh", "-c", "echo half > half.txt; exec sleep 600"]})
    kept = tmp_path / "kept"
    before = forge.dump()
    trying = start("try", 3, "--keep", kept, "--config", copy.config, cwd=copy.folder)
    for line in trying.stderr:
        if line.startswith("attempt/3.1 RUNNING"):
            break
    half = kept / "attempts/3.1/clone/half.txt"
    ends = time.monotonic() + 60
    while not half.exists() and time.monotonic() < ends:
        time.sleep(0.1)
    trying.send_signal(signal.SIGINT)
    out, err = trying.communicate(timeout=90)
    assert trying.returncode == 1, err
    assert "half.txt" in out and "attempt 3.1: stopped" in out
    assert list((kept / "attempts").iterdir()) == []
    assert forge.dump() == before
