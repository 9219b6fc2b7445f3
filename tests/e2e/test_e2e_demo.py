"""A whole release on a small project, with workers in containers and with workers as processes."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from demo_world import REPO, bare_of, bundles, done, git, journals, left_over, repo_of, store_of
from scenes import Played

from harness.audit.replay import replay_bundle, replay_store
from harness.audit.verify import Finding, verify_audits, verify_bundle, verify_store
from harness.cli import main

LANDED = {1, 2, 4, 5}


@pytest.fixture(params=["process_demo", pytest.param("docker_demo", marks=pytest.mark.docker)])
def demo(request: pytest.FixtureRequest) -> Played:
    found: Played = request.getfixturevalue(request.param)
    assert found.finished.code == 0, found.finished.told[-4000:]
    return found


def test_it_says_what_came_of_each_issue(demo: Played) -> None:
    d = demo.document
    assert (d["ok"], d["runtime"], d["left_over"]) == (True, demo.runtime, [])
    assert set(d["release"]["landed"]) == LANDED
    (deferred,) = d["release"]["deferred"]
    assert deferred["issue"] == 3 and "exited 1" in deferred["reason"]
    assert {(w["attempt"], w["final"]) for w in d["workers"]} == {
        ("1.1", "done"), ("2.1", "done"), ("3.1", "failed"), ("4.1", "question"), ("4.2", "done"),
        ("5.1", "done"),
    }  # fmt: skip
    assert [q["by"] for q in d["questions"]] == ["ada"]
    assert d["requests"]["github.write"] > 0


def test_the_tag_is_on_the_default_branch_and_its_tree_passes(demo: Played, tmp_path: Path) -> None:
    bare, release = bare_of(demo.folder), demo.document["release"]
    sha = git(bare, "rev-parse", f"refs/tags/{release['tag']}^{{commit}}")
    assert sha == release["main_sha"] == git(bare, "rev-parse", "refs/heads/main")
    tree = tmp_path / "tree"
    subprocess.run(["git", "clone", "-q", str(bare), str(tree)], check=True, capture_output=True, timeout=60)
    for name in ("tally/longest.py", "tally/report.py", "tests/test_case.py"):
        assert (tree / name).is_file()
    assert not (tree / "tests" / "test_speed.py").exists()
    tests = [sys.executable, "-m", "unittest", "discover", "--start-directory", "."]
    ran = subprocess.run(tests, cwd=tree, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0 and "Ran 0 tests" not in ran.stderr, ran.stderr
    assert [r["tag_name"] for r in repo_of(demo.folder)["releases"]] == [release["tag"]]


def test_issues_pulls_and_comments_are_there_exactly_once(demo: Played) -> None:
    repo, release = repo_of(demo.folder), demo.document["release"]
    issues = {i["number"]: i for i in repo["issues"] if not i["is_pull"]}
    assert {n for n, i in issues.items() if i["state"] == "closed"} == LANDED
    assert issues[3]["state"] == "open" and "harness:deferred" in issues[3]["labels"]
    heads = sorted(p["head_ref"] for p in repo["pulls"])
    assert heads == sorted([*(f"agent/{n}" for n in LANDED), "release/0.1.0"])
    assert all(p["merged"] for p in repo["pulls"])
    assert next(p["base_ref"] for p in repo["pulls"] if p["number"] == release["pr"]) == "main"
    keys = {n: sorted(_keys(repo, n)) for n in issues}
    assert {n: k for n, k in keys.items() if n != 4} == {n: ["status"] for n in (1, 2, 3, 5)}
    assert len(keys[4]) == 2 and keys[4][0].startswith("question-") and keys[4][1] == "status"


def _keys(repo: dict[str, Any], issue: int) -> Iterator[str]:
    for c in repo["comments"]:
        if c["issue"] == issue and c["user"] != "ada":
            assert "key=" in c["body"], c["body"]
            yield c["body"].split("key=", 1)[1].split()[0]


def test_nothing_of_ours_is_left_over(demo: Played) -> None:
    assert left_over(demo.folder, demo.runtime) == []
    branches = git(bare_of(demo.folder), "for-each-ref", "--format=%(refname)", "refs/heads").split()
    assert branches == ["refs/heads/main"]


def test_every_bundle_and_the_store_verify_and_replay(demo: Played) -> None:
    made = bundles(demo.folder)
    assert sorted(b.name.rsplit("-", 1)[1] for b in made) == ["1.1", "2.1", "3.1", "4.1", "4.2", "5.1"]
    assert verify_audits(demo.folder / "audits") == []
    assert {b.name: [str(d) for d in replay_bundle(b)] for b in made} == {b.name: [] for b in made}
    with store_of(demo.folder) as store:
        assert verify_store(store) == []
        assert [str(d) for d in replay_store(store)] == []


def test_no_effect_was_done_twice(demo: Played) -> None:
    for machine, records in journals(demo.folder, "/attempt/").items():
        assert len(done(records, "StartWorker")) == 1, machine
        assert len(done(records, "SealBundle")) == 1, machine
    assert len(done(journals(demo.folder, "/release/")[f"{REPO}/release/0.1.0"], "Tag")) == 1


def test_one_flipped_byte_is_found_and_its_record_named(demo: Played, tmp_path: Path) -> None:
    """One byte of every record of every journal, each alone."""
    dice = random.Random(7)
    for bundle in bundles(demo.folder):
        for name in ("journal.jsonl", "attempt.jsonl"):
            copy = tmp_path / "audits" / bundle.name
            shutil.copytree(bundle, copy)
            raw = (bundle / name).read_bytes()
            ends = [i for i, b in enumerate(raw) if b == 10]
            begins = [0, *(e + 1 for e in ends[:-1])]
            for seq, (begin, end) in enumerate(zip(begins, ends, strict=True), 1):
                at = dice.randrange(begin, end)
                damaged = bytearray(raw)
                damaged[at] ^= 1 << dice.randrange(7)
                (copy / name).write_bytes(damaged)
                found: list[Finding] = verify_bundle(copy)
                assert found and found[0].seq == seq, (bundle.name, name, seq, at, found[:2])
            shutil.rmtree(copy)


@pytest.mark.parametrize("what", ["verify", "replay"])
@pytest.mark.parametrize("more", [(), ("--store",)])
def test_the_commands_find_nothing_wrong(demo: Played, what: str, more: tuple[str, ...]) -> None:
    assert main(["audit", what, *more, "--config", str(demo.folder / "harness.toml")]) == 0


def test_the_command_names_the_changed_record_of_a_bundle(
    demo: Played, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    audits = tmp_path / "audits"
    shutil.copytree(demo.folder / "audits", audits)
    journal = next(audits.glob("*-2.1")) / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[4] = lines[4].replace(b'"kind"', b'"kinD"', 1)
    journal.write_bytes(b"".join(lines))
    assert main(["audit", "verify", "--audits", str(audits)]) == 1
    told = "".join(capfd.readouterr())
    assert f"record 5 of {REPO}/worker/2.1" in told, told


def test_the_command_names_the_changed_record_of_the_director(
    demo: Played, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for path in (demo.folder / "data").glob("store*"):
        shutil.copy(path, data)
    config = tmp_path / "harness.toml"
    config.write_text((demo.folder / "harness.toml").read_text().replace(str(demo.folder), str(tmp_path)))
    with sqlite3.connect(data / "store.db") as db:
        (stream,) = db.execute("SELECT id FROM streams WHERE machine = ?", (f"{REPO}/director/1",)).fetchone()
        seventh = stream << 32 | 7
        (line,) = db.execute("SELECT line FROM records WHERE id = ?", (seventh,)).fetchone()
        changed = line.replace(b'"kind"', b'"kinD"', 1)
        db.execute("UPDATE records SET line = ? WHERE id = ?", (changed, seventh))
    db.close()
    assert changed != line
    assert main(["audit", "verify", "--store", "--config", str(config)]) == 1
    told = "".join(capfd.readouterr())
    assert f"record 7 of {REPO}/director/1" in told, told
