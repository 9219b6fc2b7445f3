"""Caps on what goes into a bundle: each log, each bundle; what matters most is kept, what was cut is said."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from disk_world import Time
from hypothesis import given
from hypothesis import strategies as st

from harness.adapters.memory.store import MemoryStore
from harness.audit.bundle import Caps
from harness.audit.verify import verify_bundle
from harness.compose.archive import Archive, share
from harness.core import journal

TOKEN = b"ghp_" + b"x" * 36
MACHINE = "acme/widget/attempt/12.1"


def hide(data: bytes) -> bytes:
    return data.replace(TOKEN, b"[token]")


class Attempt:
    """An attempt's folder, and an archive that seals it."""

    def __init__(self, root: Path, caps: Caps) -> None:
        self.folder = root / "data" / "attempts" / "12.1"
        clock = Time()
        self.archive = Archive(
            root / "audits", root / "data", MemoryStore(clock, code="1"), clock, hide, lambda: caps
        )

    def run(self, name: str, text: bytes, at: float, *, test: bool = False, tails: bytes = b"") -> None:
        job = self.folder / "audit" / "jobs" / name
        job.mkdir(parents=True)
        (job / "output.log").write_bytes(text)
        if tails:
            (job / "output.log.tail").write_bytes(tails)
        if test:
            (self.folder / "audit" / "runs" / name).mkdir(parents=True)
        os.utime(job, (at, at))

    def seal(self, logs: dict[str, bytes] | None = None) -> Path:
        meta = {"machine": MACHINE, "attempt": "12.1", "issue": 12}
        made = self.archive.audits / self.archive.seal("12.1", MACHINE, meta, logs or {}).unwrap()
        assert verify_bundle(made) == []
        return made


def manifest(made: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((made / "manifest.json").read_bytes())
    return found


def lines(name: str, count: int) -> bytes:
    return b"".join(b"%s line %07d\n" % (name.encode(), n) for n in range(count))


def test_a_log_below_its_cap_is_whole(tmp_path: Path) -> None:
    a = Attempt(tmp_path, Caps(log_bytes=100_000))
    a.run("run-1", lines("one", 100), 1)
    a.run("run-2", lines("two", 100), 2)
    a.run("validate-2", b"green\n", 3, test=True)
    made = a.seal({"h-worker": b"began\n"})
    assert (made / "agent.log").read_bytes() == (
        b"== run-1\n" + lines("one", 100) + b"== run-2\n" + lines("two", 100)
    )
    assert (made / "test.log").read_bytes() == b"== validate-2\ngreen\n"
    assert (made / "build.log").read_bytes() == b"== h-worker\nbegan\n"
    assert manifest(made)["cut"] == []


def test_a_log_above_its_cap_keeps_head_and_tail_of_each_run(tmp_path: Path) -> None:
    a = Attempt(tmp_path, Caps(log_bytes=100_000))
    a.run("run-1", lines("one", 200_000), 1)
    a.run("run-2", lines("two", 20), 2)
    a.run("run-3", lines("three", 200_000), 3)
    made = a.seal()
    text = (made / "agent.log").read_bytes()
    assert 90_000 < len(text) <= 100_000
    for name in ("one", "three"):
        assert f"{name} line 0000000\n{name} line 0000001\n".encode() in text
        assert f"{name} line 0199998\n{name} line 0199999\n".encode() in text
    assert lines("two", 20) in text, "what is small is whole"
    assert text.count(b"bytes of ") == 2 and b" left out here]\n" in text
    (cut,) = manifest(made)["cut"]
    assert cut["name"] == "agent.log" and cut["bytes"] > 7_000_000 and 90_000 < cut["kept"] <= 100_000


def test_the_newest_output_of_a_run_whose_shim_was_killed_is_in_it(tmp_path: Path) -> None:
    a = Attempt(tmp_path, Caps())
    a.run("run-1", b"head\n", 1, tails=b"its last words\n")
    assert (a.seal() / "agent.log").read_bytes() == b"== run-1\nhead\nits last words\n"


def test_no_secret_survives_a_cut(tmp_path: Path) -> None:
    """Wherever the edges of what is kept fall, no part of a token that is long enough to matter is left."""
    for shift in range(0, 60, 7):
        a = Attempt(tmp_path / str(shift), Caps(log_bytes=20_000))
        a.run("run-1", b"." * shift + (TOKEN + b" and a word on it\n" * 20) * 900, 1)
        text = (a.seal() / "agent.log").read_bytes()
        assert b"[token]" in text and b"ghp_" not in text and b"xxxxx" not in text
        assert 10_000 < len(text) <= 20_000


def test_the_cap_of_a_bundle_leaves_out_what_matters_least(tmp_path: Path) -> None:
    a = Attempt(tmp_path, Caps(log_bytes=50_000, bundle_bytes=120_000))
    a.run("run-1", lines("one", 100_000), 1)
    a.run("validate-2", lines("red", 100_000), 2, test=True)
    for folder, name in (
        ("audit/patches", "harvest.patch"),
        ("ledger", "0001.json"),
        ("ledger", "0002.json"),
    ):
        (a.folder / folder).mkdir(parents=True, exist_ok=True)
        (a.folder / folder / name).write_bytes(b"p" * 30_000)
    made = a.seal()
    size = sum(p.stat().st_size for p in made.rglob("*") if p.is_file() and p.name != "manifest.json")
    assert size <= 120_000 + 3 * 4096
    assert (made / "patches" / "harvest.patch").stat().st_size == 30_000
    assert (made / "test.log").stat().st_size > 40_000
    assert [x["name"] for x in manifest(made)["left_out"]] == ["ledger/0002.json"] or not (
        made / "ledger" / "0001.json"
    ).exists()


def test_journals_are_never_cut(tmp_path: Path) -> None:
    a = Attempt(tmp_path, Caps(log_bytes=4096, bundle_bytes=4096))
    worker = MACHINE.replace("/attempt/", "/worker/")
    store = MemoryStore(Time(), code="1")
    for n in range(1, 200):
        store.append(worker, journal.Draft("outcome", {"n": n, "pad": "x" * 100}), expect_seq=n).unwrap()
    whole = b"".join(journal.line(r) for r in store.read(worker))
    (a.folder / "audit").mkdir(parents=True)
    # As the worker leaves it: a sealed segment and the one that it wrote last.
    half = whole.index(b"\n", len(whole) // 2) + 1
    (a.folder / "audit" / "journal-000001.jsonl").write_bytes(whole[:half])
    (a.folder / "audit" / "journal.jsonl").write_bytes(whole[half:])
    (a.folder / "witness.jsonl").write_bytes(whole[:half])
    a.run("run-1", lines("one", 1000), 1)
    made = a.seal()
    assert (made / "journal.jsonl").read_bytes() == whole
    assert not (made / "agent.log").exists() or (made / "agent.log").stat().st_size <= 4096


def test_only_the_newest_of_very_many_runs_are_told(tmp_path: Path) -> None:
    a = Attempt(tmp_path, Caps())
    for n in range(203):
        a.run(f"run-{n}", b"x\n", n + 1)
    text = (a.seal() / "agent.log").read_text()
    assert text.count("== run-") == 200 and "== run-202\n" in text and "== run-2\n" not in text


def test_what_is_no_plain_file_is_not_read(tmp_path: Path) -> None:
    a = Attempt(tmp_path, Caps())
    (tmp_path / "secret").write_text("secret")
    a.run("run-1", b"good\n", 1)
    for n, make in enumerate((os.mkfifo, lambda p: os.symlink(tmp_path / "secret", p), os.mkdir)):
        job = a.folder / "audit" / "jobs" / f"bad-{n}"
        job.mkdir()
        make(job / "output.log")
    os.symlink(tmp_path, a.folder / "audit" / "jobs" / "link")
    text = (a.seal() / "agent.log").read_text()
    assert "good" in text and "secret" not in text


@pytest.mark.parametrize("sizes", [[], [5], [0, 0], [10, 10, 10], [1, 2, 1000]])
def test_shares(sizes: list[int]) -> None:
    most = share(sizes, 30)
    assert sum(min(s, most) for s in sizes) <= 30


@given(st.lists(st.integers(0, 1000), max_size=20), st.integers(0, 5000))
def test_a_share_is_as_large_as_it_can_be(sizes: list[int], limit: int) -> None:
    most = share(sizes, limit)
    assert sum(min(s, most) for s in sizes) <= limit
    if any(s > most for s in sizes):
        assert sum(min(s, most + 1) for s in sizes) > limit
