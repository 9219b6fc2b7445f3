"""Sealing: whole, once, and with nothing in it that a worker could smuggle in."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import MACHINE, Play

from harness.audit import index
from harness.audit.bundle import Caps, blobs_of, seal
from harness.audit.files import AuditError, sample
from harness.audit.verify import verify_bundle
from harness.core.journal import read

Make = Callable[..., Path]
TOKEN = b"ghp_" + b"x" * 36


def hide(data: bytes) -> bytes:
    return data.replace(TOKEN, b"[token]")


def names(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir()}


def manifest(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
    return found


def left_out(folder: Path) -> dict[str, str]:
    return {x["name"]: x["why"] for x in manifest(folder)["left_out"]}


def test_a_bundle_holds_what_the_specification_names(bundle: Make, play: Play, tmp_path: Path) -> None:
    ledger, patches = tmp_path / "ledger", tmp_path / "patches"
    for folder, name in ((ledger, "0001.json"), (patches, "harvest.patch")):
        folder.mkdir()
        (folder / name).write_text("{}")
    for log in ("build.log", "test.log", "agent.log"):
        (tmp_path / log).write_text(f"this is {log}\n")
    logs = {log: tmp_path / log for log in ("build.log", "test.log", "agent.log")}
    made = bundle(extra={"ledger": ledger, "patches": patches, **logs})
    blobs = {f"blobs/{sha}" for sha in play.given["blobs"]}
    assert made.name == "20261127-0230-12.1"
    assert names(made) == blobs | {
        "meta.json", "journal.jsonl", "attempt.jsonl", "ledger/0001.json", "patches/harvest.patch",
        "build.log", "test.log", "agent.log", "summary.md", "manifest.json",
    }  # fmt: skip
    assert (made / "journal.jsonl").read_bytes() == play.given["journal_lines"]
    meta = json.loads((made / "meta.json").read_text())
    assert meta["machine"] == MACHINE and meta["audit_id"] == made.name and meta["issue"] == 12
    assert meta["sealed_at"] == "2026-11-27T02:30:00.000000+00:00"
    assert blobs and verify_bundle(made) == []


def test_the_summary_is_for_people(bundle: Make) -> None:
    text = (bundle() / "summary.md").read_text()
    assert text.startswith(
        "# Attempt 12.1 of issue 12: Widget forgets its colour\n\nIt delivered pull #31.\n"
    )
    assert "* model cost: $0.44" in text and "* journal.jsonl: 24 records" in text


def test_the_summary_of_a_failure_says_why(bundle: Make, play: Play) -> None:
    meta = {
        **play.given["meta"],
        "outcome": "failed",
        "failure": "tests_failed",
        "detail": "x exited 1\n3 failed",
    }
    text = (bundle(meta=meta) / "summary.md").read_text()
    assert "The tests are still red: x exited 1.\n" in text and "```\n3 failed\n```" in text


def test_the_same_attempt_again_is_the_same_bundle(bundle: Make, tmp_path: Path) -> None:
    first = bundle()
    before = (first / "manifest.json").read_bytes()
    again = bundle(at=1_800_000_000.0, journal_lines=b"")
    assert again == first and (first / "manifest.json").read_bytes() == before
    assert len(index.list_bundles(tmp_path / "audits")) == 1


def test_a_bundle_that_has_no_line_yet_is_found_and_gets_it(bundle: Make, tmp_path: Path) -> None:
    """The director died between the rename and the line."""
    first = bundle()
    (tmp_path / "audits" / "index.jsonl").unlink()
    assert bundle(at=1_800_000_000.0) == first
    assert [x.audit for x in index.read_index(tmp_path / "audits").values()] == [first.name]


def test_another_attempt_of_the_same_minute_gets_a_number(bundle: Make, play: Play) -> None:
    first = bundle()
    other = bundle(meta={**play.given["meta"], "machine": "other/repo/attempt/12.1"})
    assert other.name == f"{first.name}-2"


@pytest.mark.parametrize("attempt", ["../../etc", "a/b", "", ".hidden", "x\n\x00", "é" * 300])
def test_no_attempt_name_leads_out_of_the_folder(
    bundle: Make, play: Play, attempt: str, tmp_path: Path
) -> None:
    made = bundle(meta={**play.given["meta"], "attempt": attempt})
    assert made.parent == tmp_path / "audits" and made.is_dir() and len(made.name) < 120
    assert not made.name.startswith(".")


@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", "a/../../x", "meta.json", "manifest.json", "blobs/x", "", "a//b"]
)
def test_no_extra_takes_another_place(bundle: Make, name: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    with pytest.raises(AuditError, match="cannot be a name in a bundle"):
        bundle(extra={name: tmp_path / "f"})
    assert os.listdir(tmp_path / "audits") == [".lock"]


# ---------------------------------------------------------------- what a worker may have put there


def test_links_pipes_and_sockets_are_left_out_by_name(bundle: Make, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("root:x:0:0")
    ledger = tmp_path / "ledger"
    (ledger / "deep").mkdir(parents=True)
    (ledger / "good.json").write_text("{}")
    (ledger / "link.json").symlink_to(secret)
    (ledger / "folder").symlink_to(tmp_path)
    os.mkfifo(ledger / "pipe")
    os.mkfifo(ledger / "deep" / "pipe.log")
    (tmp_path / "agent.log").symlink_to(secret)
    made = bundle(extra={"ledger": ledger, "agent.log": tmp_path / "agent.log", "patches": tmp_path / "none"})
    assert not any(b"root:x" in (made / n).read_bytes() for n in names(made))
    assert {"ledger/link.json", "ledger/folder", "ledger/pipe", "ledger/deep/pipe.log", "agent.log"} == set(
        left_out(made)
    )
    assert "ledger/good.json" in names(made) and verify_bundle(made) == []
    assert "`ledger/link.json`: a link" in (made / "summary.md").read_text()


def test_a_link_in_the_middle_of_a_path_is_not_followed(bundle: Make, tmp_path: Path) -> None:
    """The worker makes its audit folder a link to another attempt's."""
    other, data = tmp_path / "other", tmp_path / "data"
    (other / "ledger").mkdir(parents=True)
    (other / "ledger" / "1.json").write_text("other people's prompts")
    data.mkdir()
    (data / "audit").symlink_to(other)
    made = bundle(extra={"ledger": data / "audit" / "ledger"}, within=data)
    assert not any(n.startswith("ledger") for n in names(made)) and left_out(made) == {"ledger": "a link"}
    for n, outside in enumerate((data / ".." / "other", other, tmp_path)):
        made = bundle(extra={"ledger": outside}, within=data, audits=tmp_path / f"audits-{n}")
        assert left_out(made) == {"ledger": f"not below {data}"}


def test_a_sparse_terabyte_costs_nothing(bundle: Make, tmp_path: Path) -> None:
    with open(tmp_path / "agent.log", "wb") as f:
        f.write(b"begin\n" * 10)
        f.truncate(1 << 40)
    made = bundle(extra={"agent.log": tmp_path / "agent.log"}, caps=Caps(log_bytes=1 << 16))
    data = (made / "agent.log").read_bytes()
    assert data.startswith(b"begin\n") and b"bytes of 1099511627776 left out here" in data
    assert len(data) < (1 << 16) + 200
    assert manifest(made)["cut"] == [{"name": "agent.log", "bytes": 1 << 40, "kept": len(data)}]


def test_a_long_log_keeps_its_head_and_its_tail_in_whole_lines(bundle: Make, tmp_path: Path) -> None:
    (tmp_path / "test.log").write_bytes(b"".join(b"line %d\n" % n for n in range(100_000)))
    made = bundle(extra={"test.log": tmp_path / "test.log"}, caps=Caps(log_bytes=100_000))
    kept = (made / "test.log").read_bytes().splitlines()
    assert kept[0] == b"line 0" and kept[-1] == b"line 99999"
    odd = [x for x in kept if not x.startswith(b"line ") and x]
    assert len(odd) == 1 and odd[0].startswith(b"[about ")


def test_the_number_and_the_size_of_files_are_bounded(bundle: Make, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    ledger.mkdir()
    for n in range(300):
        (ledger / f"{n:04}.json").write_bytes(b"x" * 10_000)
    few = bundle(extra={"ledger": ledger}, caps=Caps(files=50), audits=tmp_path / "few")
    assert len(names(few)) < 60 and "more files than are kept" in left_out(few).values()
    small = bundle(extra={"ledger": ledger}, caps=Caps(bundle_bytes=200_000), audits=tmp_path / "small")
    assert sum((small / n).stat().st_size for n in names(small)) < 400_000
    assert any("the bundle has" in why for why in left_out(small).values())
    assert verify_bundle(few) == verify_bundle(small) == []


def test_names_that_are_no_text_are_left_out(bundle: Make, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    ledger.mkdir()
    for name in (b"bad\xff.json", b"new\nline", b"esc\x1b[31m", "ok-é.json".encode()):
        with open(os.fsencode(ledger) + b"/" + name, "wb") as f:
            f.write(b"{}")
    made = bundle(extra={"ledger": ledger})
    assert [n for n in names(made) if n.startswith("ledger/")] == ["ledger/ok-é.json"]
    assert len(left_out(made)) == 3 and all(n.isprintable() for n in left_out(made))
    assert verify_bundle(made) == []


def test_folders_without_end_are_left_out(bundle: Make, tmp_path: Path) -> None:
    deep = tmp_path / "ledger"
    for _ in range(30):
        deep = deep / "d"
    deep.mkdir(parents=True)
    made = bundle(extra={"ledger": tmp_path / "ledger"})
    assert list(left_out(made).values()) == ["more than 8 folders deep"]


# ---------------------------------------------------------------- secrets


def test_every_text_but_the_journals_is_redacted(bundle: Make, play: Play, tmp_path: Path) -> None:
    (tmp_path / "agent.log").write_bytes(b"a\x00b " + TOKEN + b"\xff\n")
    (tmp_path / "x.patch").write_bytes(b"+token = " + TOKEN)
    meta = {**play.given["meta"], "title": f"use {TOKEN.decode()}", "cost": {"note": [TOKEN.decode()]}}
    made = bundle(
        meta=meta, extra={"agent.log": tmp_path / "agent.log", "p": tmp_path / "x.patch"}, redact=hide
    )
    assert not any(TOKEN in (made / n).read_bytes() for n in names(made))
    assert (made / "agent.log").read_bytes() == b"a\x00b [token]\xff\n"
    assert (made / "journal.jsonl").read_bytes() == play.given["journal_lines"]


@pytest.mark.parametrize("shift", range(0, 44, 3))
def test_a_secret_that_a_cut_would_halve_leaves_no_half(tmp_path: Path, shift: int) -> None:
    """No line ends anywhere, and a secret on both edges of what is left out."""
    limit = 64_000
    head, tail = limit // 4, limit - limit // 4
    data = bytearray(b"." * 400_000)
    for place in (head - shift, len(data) - tail - shift):
        data[place : place + len(TOKEN)] = TOKEN
    (tmp_path / "x.log").write_bytes(data)
    fd = os.open(tmp_path / "x.log", os.O_RDONLY)
    try:
        kept = sample(fd, limit, hide)
    finally:
        os.close(fd)
    assert kept.cut and b"ghp_" not in kept.data and b"xxxx" not in kept.data


# ---------------------------------------------------------------- journals as they come


def test_a_torn_last_line_goes_and_is_mentioned(bundle: Make, play: Play) -> None:
    torn = play.given["journal_lines"] + b'{"v":1,"seq":25,"at":"20'
    made = bundle(journal_lines=torn)
    assert (made / "journal.jsonl").read_bytes() == play.given["journal_lines"]
    assert "torn last line of 24 bytes" in left_out(made)["journal.jsonl"]
    assert verify_bundle(made) == []


def test_a_journal_that_the_worker_broke_is_sealed_as_evidence(bundle: Make, play: Play) -> None:
    broken = play.given["journal_lines"].replace(b"did it", b"DID it", 1)
    made = bundle(journal_lines=broken)
    assert (made / "journal.jsonl").read_bytes() == broken
    assert [str(f) for f in verify_bundle(made)] == [
        "record 9 of acme/widget/worker/12.1: its hash does not match its content"
    ]
    assert "broken: record 9" in (made / "summary.md").read_text()


def test_an_attempt_whose_worker_never_wrote(bundle: Make, play: Play) -> None:
    meta = {**play.given["meta"], "worker_head": "", "worker_seq": 0, "outcome": "", "failure": ""}
    made = bundle(meta=meta, journal_lines=b"", attempt_lines=b"", blobs={})
    assert verify_bundle(made) == []


def test_a_blob_that_is_not_what_it_says_is_left_out(bundle: Make, play: Play) -> None:
    made = bundle(blobs={**play.given["blobs"], "0" * 64: b"other", "../../x": b"y"})
    assert set(left_out(made)) == {"blobs/" + "0" * 64, "blobs/../../x"}
    assert verify_bundle(made) == []


def test_only_hashes_are_taken_for_blobs(play: Play) -> None:
    records, _ = read(play.given["journal_lines"])
    assert len(blobs_of(records)) == 2  # the policy and one large fact
    hostile = {"seen": {"policy": {"blob": "../../../etc/passwd"}, "facts": {"x": {"blob": 7}, "y": 3}}}
    changed = [type(r)(r.machine, r.seq, r.at, 1, "", "transition", hostile, "", "") for r in records]
    assert blobs_of(changed) == []


# ---------------------------------------------------------------- all or nothing


def test_a_full_disk_leaves_nothing_behind(play: Play, tmp_path: Path) -> None:
    """In a process of its own, whose files may not grow: for the code that is what a full disk is."""
    script = f"""
import resource, signal, sys, pickle, pathlib
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from harness.audit.bundle import seal
from harness.audit.files import AuditError
given = pickle.loads(pathlib.Path({str(tmp_path / "given")!r}).read_bytes())
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
try:
    seal(pathlib.Path({str(tmp_path / "audits")!r}), **given)
except AuditError as e:
    print(e.errno, e)
"""
    import pickle

    (tmp_path / "given").write_bytes(pickle.dumps(play.given))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{errno.EFBIG} a bundle cannot be written to {tmp_path / 'audits'}: ")
    assert os.listdir(tmp_path / "audits") == [".lock"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 3000


def test_what_a_dead_process_left_is_cleared_away(bundle: Make, tmp_path: Path) -> None:
    half = tmp_path / "audits" / ".20261127-0230-12.1.sealing" / "ledger"
    half.mkdir(parents=True)
    (half / "x").write_text("half")
    made = bundle()
    assert sorted(os.listdir(tmp_path / "audits")) == sorted([".lock", "index.jsonl", made.name])
    assert verify_bundle(made) == []


def test_two_processes_that_seal_the_same_attempt_agree(play: Play, tmp_path: Path) -> None:
    import pickle

    (tmp_path / "given").write_bytes(pickle.dumps(play.given))
    script = f"""
import pathlib, pickle
from harness.audit.bundle import seal
given = pickle.loads(pathlib.Path({str(tmp_path / "given")!r}).read_bytes())
print(seal(pathlib.Path({str(tmp_path / "audits")!r}), **given))
"""
    both = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    said = {p.communicate()[0].strip() for p in both}
    assert said == {"20261127-0230-12.1"} and len(index.list_bundles(tmp_path / "audits")) == 1


def test_a_folder_that_cannot_be_written_is_one_clear_line(play: Play, tmp_path: Path) -> None:
    (tmp_path / "audits").write_text("a file")
    with pytest.raises(AuditError, match=r"a bundle cannot be written to .*audits: File exists"):
        seal(tmp_path / "audits", **play.given)
