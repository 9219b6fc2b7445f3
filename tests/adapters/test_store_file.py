"""The worker's store on real files: torn ends, broken middles, segments, a full disk, a killed writer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.adapters.store import lines, places
from harness.adapters.store.errors import StoreError
from harness.adapters.store.file import FileStore
from harness.core import journal
from harness.core.journal import Draft
from harness.core.result import Err
from harness.failures import Failure

M = "acme/widget/worker/12.1"


class Time:
    """A clock that stands still."""

    def now(self) -> float:
        return 1_700_000_000.0

    def monotonic(self) -> float:
        return 0.0


def opened(folder: Path, **more: object) -> FileStore:
    return FileStore.open(folder, clock=Time(), code="1", **more)  # type: ignore[arg-type]


def draft(n: int) -> Draft:
    return Draft("outcome", {"n": n, "text": "äöü " * 10})


def fill(store: FileStore, count: int, first: int = 1) -> None:
    for n in range(first, first + count):
        store.append(M, draft(n), expect_seq=n).unwrap()


def filled(folder: Path, count: int = 10, **more: object) -> bytes:
    store = opened(folder, **more)
    fill(store, count)
    store.close()
    return (folder / "journal.jsonl").read_bytes()


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.name != "journal.lock")


def test_the_file_is_the_journal(tmp_path: Path) -> None:
    data = filled(tmp_path)
    records, fault = journal.read(data)
    assert fault is None and [r.seq for r in records] == list(range(1, 11))
    assert b"".join(journal.line(r) for r in records) == data
    assert names(tmp_path) == ["journal.jsonl"]


@pytest.mark.parametrize("keep", range(1, 40))
def test_a_torn_last_line_is_cut_off_and_kept_aside(tmp_path: Path, keep: int) -> None:
    data = filled(tmp_path, 3)
    start = data.rindex(b"\n", 0, -1) + 1
    torn = data[start : min(start + keep * 8, len(data) - 1)]
    (tmp_path / "journal.jsonl").write_bytes(data[:start] + torn)
    reader = opened(tmp_path, read_only=True)
    assert [r.seq for r in reader.read(M)] == [1, 2]
    assert names(tmp_path) == ["journal.jsonl"], "a reader changes nothing"
    store = opened(tmp_path)
    assert [r.seq for r in store.read(M)] == [1, 2]
    assert (tmp_path / "journal.torn-1").read_bytes() == torn
    fill(store, 1, first=3)
    assert store.verify(M) is None
    store.close()
    assert (tmp_path / "journal.jsonl").read_bytes() == data


def test_a_journal_that_is_only_a_torn_line_begins_again(tmp_path: Path) -> None:
    data = filled(tmp_path, 1)
    (tmp_path / "journal.jsonl").write_bytes(data[:-1])
    store = opened(tmp_path)
    assert list(store.read(M)) == [] and list(store.machines()) == []
    fill(store, 1)
    store.close()


def test_a_broken_middle_is_set_aside_and_never_written_to(tmp_path: Path) -> None:
    data = filled(tmp_path)
    bad = data.replace(b'"n":5', b'"n":6')
    (tmp_path / "journal.jsonl").write_bytes(bad)
    with pytest.raises(StoreError, match=r"record 5 at byte \d+: its hash does not match"):
        opened(tmp_path, read_only=True)
    with pytest.raises(StoreError) as caught:
        opened(tmp_path)
    assert "journal.broken-1" in str(caught.value) and "\n" not in str(caught.value)
    assert (tmp_path / "journal.broken-1").read_bytes() == bad
    for _ in range(2):
        with pytest.raises(StoreError, match="start a new attempt"):
            opened(tmp_path)
    assert names(tmp_path) == ["journal.broken-1"], "it is not begun anew in silence"


def test_every_changed_byte_is_found(tmp_path: Path) -> None:
    data = filled(tmp_path, 3)
    store = opened(tmp_path)
    for at in range(0, len(data), 7):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        (tmp_path / "journal.jsonl").write_bytes(changed)
        assert store.verify(M) is not None, at
    (tmp_path / "journal.jsonl").write_bytes(data[: data.rindex(b"\n", 0, -1) + 1])
    fault = store.verify(M)
    assert fault is not None and fault.seq == 3 and "not there" in fault.what
    store.close()


def test_segments_are_sealed_and_one_chain_runs_through_them(tmp_path: Path) -> None:
    filled(tmp_path, 30, segment_bytes=1500)
    segments = sorted(tmp_path.glob("journal-*.jsonl"))
    assert len(segments) >= 3 and segments[0].name == "journal-000001.jsonl"
    whole = b"".join(p.read_bytes() for p in (*segments, tmp_path / "journal.jsonl"))
    assert journal.read(whole)[1] is None and len(journal.read(whole)[0]) == 30
    assert all(p.stat().st_size <= 1500 for p in segments)
    store = opened(tmp_path, segment_bytes=1500)
    assert [r.seq for r in store.read(M)] == list(range(1, 31))
    assert [r.seq for r in store.read(M, after=17)] == list(range(18, 31))
    fill(store, 5, first=31)
    assert store.verify(M) is None
    store.close()


def test_a_restart_between_two_segments_goes_on(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    os.rename(tmp_path / "journal.jsonl", tmp_path / "journal-000001.jsonl")
    store = opened(tmp_path)
    fill(store, 2, first=4)
    assert [r.seq for r in store.read(M)] == [1, 2, 3, 4, 5] and store.verify(M) is None
    store.close()


def test_expired_segments_leave_the_rest_readable(tmp_path: Path) -> None:
    filled(tmp_path, 30, segment_bytes=1500)
    (tmp_path / "journal-000001.jsonl").unlink()
    store = opened(tmp_path, segment_bytes=1500)
    found = [r.seq for r in store.read(M)]
    assert found[0] > 1 and found == list(range(found[0], 31)) and store.verify(M) is None
    fill(store, 1, first=31)
    store.close()


def test_a_segment_missing_in_the_middle_is_not_passed_over(tmp_path: Path) -> None:
    filled(tmp_path, 30, segment_bytes=1500)
    (tmp_path / "journal-000002.jsonl").unlink()
    with pytest.raises(StoreError, match="is broken"):
        opened(tmp_path)
    with pytest.raises(StoreError, match="was set aside"):
        opened(tmp_path)


def test_a_broken_sealed_segment_is_not_passed_over(tmp_path: Path) -> None:
    filled(tmp_path, 30, segment_bytes=1500)
    first = tmp_path / "journal-000001.jsonl"
    first.write_bytes(first.read_bytes()[:-1])
    for _ in range(2):
        with pytest.raises(StoreError):
            opened(tmp_path)
    assert (tmp_path / "journal-000001.broken-1").exists()


def test_one_machine_a_folder(tmp_path: Path) -> None:
    filled(tmp_path)
    with pytest.raises(StoreError, match=r"is the journal of acme/widget/worker/12[.]1, not of other"):
        opened(tmp_path, machine="other")
    empty = opened(tmp_path / "empty", machine=M)
    answer = empty.append("other", draft(1), expect_seq=1)
    assert isinstance(answer, Err) and answer.failure == Failure.INTERNAL_ERROR
    fill(empty, 1)
    empty.close()


def test_one_writer_a_folder(tmp_path: Path) -> None:
    store = opened(tmp_path)
    with pytest.raises(StoreError, match="written by another process"):
        opened(tmp_path)
    fill(store, 1)
    reader = opened(tmp_path, read_only=True)
    assert len(reader.read(M)) == 1
    assert isinstance(reader.append(M, draft(2), expect_seq=2), Err)
    for write in (lambda: reader.put("a", 1), lambda: reader.put_blob(b"x"), lambda: reader.control("x", {})):
        with pytest.raises(StoreError, match="for reading only"):
            write()
    store.close()
    answer = store.append(M, draft(2), expect_seq=2)
    assert isinstance(answer, Err) and "closed" in answer.detail
    opened(tmp_path).close()


def test_each_durable_line_is_handed_on(tmp_path: Path) -> None:
    seen: list[bytes] = []

    def take(line: bytes) -> None:
        assert (tmp_path / "journal.jsonl").read_bytes().endswith(line)
        seen.append(line)

    store = opened(tmp_path, on_append=take)
    fill(store, 3)
    assert b"".join(seen) == (tmp_path / "journal.jsonl").read_bytes()
    assert isinstance(store.append(M, draft(9), expect_seq=9), Err) and len(seen) == 3
    store.close()


FULL = """
import resource, signal, sys
from harness.adapters.store.errors import StoreError
from harness.adapters.store.file import FileStore
from harness.core.journal import Draft
from harness.core.result import Err
class Time:
    def now(self): return 1.0
    def monotonic(self): return 1.0
store = FileStore.open(sys.argv[1], clock=Time(), code="1")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
n, answer = 0, None
while not isinstance(answer, Err):
    n += 1
    answer = store.append("m", Draft("outcome", {"n": n, "pad": "x" * 700}), expect_seq=n)
assert answer.failure == "disk_full" and not answer.maybe, answer
size = (store.folder / "journal.jsonl").stat().st_size
assert size < 20_000 and store.verify("m") is None and len(store.read("m")) == n - 1
for write in (lambda: store.put_blob(b"x" * 30_000), lambda: store.put("k", "x" * 30_000)):
    try:
        write()
    except StoreError as e:
        assert e.failure == "disk_full", e
    else:
        raise AssertionError("written")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.append("m", Draft("outcome", {"n": n}), expect_seq=n).unwrap()
assert store.verify("m") is None
print("ok")
"""


def test_a_full_disk_is_an_answer_and_leaves_whole_lines(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.stdout == "ok\n", run.stderr
    assert [p.name for p in tmp_path.rglob("*.tmp")] == []


CHILD = """
import sys
from harness.adapters.store.file import FileStore
from harness.core.journal import Draft
class Time:
    def now(self): return 1.0
    def monotonic(self): return 1.0
store = FileStore.open(sys.argv[1], clock=Time(), code="1", segment_bytes=200_000)
n = len(store.read("m"))
while True:
    n += 1
    store.append("m", Draft("outcome", {"n": n, "pad": "x" * 5000}), expect_seq=n).unwrap()
    print(n, flush=True)
"""


def test_a_killed_writer_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    for count in (3, 60, 140):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        answered = [int(child.stdout.readline()) for _ in range(count)]
        child.send_signal(signal.SIGKILL)
        answered += [int(x) for x in child.stdout.read().split("\n")[:-1]]
        child.wait(10)
        child.stdout.close()
        store = opened(tmp_path)
        assert answered[-1] <= len(store.read("m")) <= answered[-1] + 1
        assert store.verify("m") is None
        store.close()


def test_after_a_failed_sync_it_goes_on_from_what_was_answered(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fill(store, 2)
    fd = store._fd
    assert fd is not None
    reading = os.open(tmp_path / "journal.jsonl", os.O_RDONLY)
    os.dup2(reading, fd)
    os.close(reading)
    answer = store.append(M, draft(3), expect_seq=3)
    assert isinstance(answer, Err) and answer.failure == Failure.INFRA_ENGINE and answer.maybe
    with (tmp_path / "journal.jsonl").open("ab") as f:
        f.write(b'{"half": "a line that could not be taken back"')
    fill(store, 2, first=3)
    assert store.verify(M) is None and [r.seq for r in store.read(M)] == [1, 2, 3, 4]
    store.close()
    answer = store.append(M, draft(5), expect_seq=5)
    assert isinstance(answer, Err) and "the store was closed" in answer.detail
    again = opened(tmp_path)
    assert [r.seq for r in again.read(M)] == [1, 2, 3, 4] and names(tmp_path) == ["journal.jsonl"]
    again.close()


# ---------------------------------------------------------------- what a hostile or damaged folder holds


def test_links_pipes_and_floods_are_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    for name, make in {
        "link": lambda p: p.symlink_to(secret),
        "pipe": os.mkfifo,
        "folder": lambda p: p.mkdir(),
        "flood": lambda p: (p.touch(), os.truncate(p, 1 << 40)),
    }.items():
        folder = tmp_path / name
        folder.mkdir()
        make(folder / "journal.jsonl")
        with pytest.raises(StoreError) as caught:
            opened(folder, read_only=True)
        assert str(folder / "journal.jsonl") in str(caught.value)


def test_damaged_facts_are_named(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.put("a", 1)
    for bad in (b"", b"{", b"[]", b'{"facts": 5, "controls": []}'):
        (tmp_path / "facts.json").write_bytes(bad)
        with pytest.raises(StoreError, match=r"facts.json is damaged: remove it"):
            store.get("a")
    store.close()


def test_a_blob_that_was_changed_is_not_handed_out(tmp_path: Path) -> None:
    store = opened(tmp_path)
    sha = store.put_blob(b"content")
    (tmp_path / "blobs" / sha).write_bytes(b"CONTENT")
    with pytest.raises(StoreError, match="does not have the content that its name says"):
        store.get_blob(sha)
    (tmp_path / "blobs" / sha).write_bytes(b"cut")
    assert store.put_blob(b"content") == sha and store.get_blob(sha) == b"content"
    store.close()


def test_lines_are_those_of_the_core() -> None:
    for body in (
        {"n": 1},
        {"a": {"hash": "#" * 64, "z": 1}},
        {"a": '"hash":"' + "#" * 64 + '",'},
        {"x": [1.5, 2.0, 1e-9, 1.5e300, -0.0, None, True, "🙂\u2028\x01"], "ключ": {"🙂": 1, "\ue000": 2}},
    ):
        head = {"machine": "m", "seq": 7, "at": 1.25, "epoch": 3, "code": "c", "prev": journal.GENESIS}
        record, line = lines.seal(Draft("outcome", body), **head)  # type: ignore[arg-type]
        assert record == journal.seal(Draft("outcome", body), **head)  # type: ignore[arg-type]
        assert line == journal.line(record)
        assert lines.load(line) == journal.parse(line[:-1])
    for number in (1e20, 2.0**53, -(2.0**53)):
        with pytest.raises(ValueError):
            lines.seal(Draft("outcome", {"x": [number]}), **head)  # type: ignore[arg-type]
    for bad in (b"{}", b"[]", line.replace(b'"seq":7', b'"seq":8'), b"nonsense"):
        with pytest.raises(ValueError):
            lines.load(bad)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "facts.json"
    places.write_file(target, b"one")
    with pytest.raises(OSError):
        places.write_file(tmp_path / "no" / "x", b"two")
    target.unlink()
    target.mkdir()
    with pytest.raises(OSError):
        places.write_file(target, b"two")
    assert names(tmp_path) == ["facts.json"]
    assert json.dumps(names(target)) == "[]"
