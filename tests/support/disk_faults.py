"""Stores and bundles that are written while one system call fails: the n-th write, sync or rename.

The one rule: the fault is the kernel's answer, made by strace; the code under test is not touched and does not
know. A run is a child process of its own: strace counts calls by process, so a child first makes as many
calls that lead nowhere as bring the count to where its own n-th call is the one that fails.

As a program, under `strace -e inject=CALLS:error=E:when=400[+]`: `disk_faults.py SCENARIO CALL FOLDER LASTING STEP`
plays n = 1, 1 + STEP, ... each in FOLDER/n, until a run is over before its fault; `FOLDER/n/told` has what the
run said. scripts/disk-faults.py and the tests start that with `play`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from disk_world import Time

from harness.adapters.store.errors import StoreError
from harness.adapters.store.file import FileStore
from harness.adapters.store.sql import SqlStore
from harness.audit import index
from harness.audit.bundle import seal
from harness.audit.files import AuditError
from harness.audit.verify import verify_audits
from harness.core.journal import Draft
from harness.core.result import Err, Ok

FIRST_CALL = 400
TRIES = 4
RECORDS = 12
POINTS_LIMIT = 200
MACHINE = "acme/widget/worker/1.1"
SOURCE = Path(__file__).parent / "bench.py"  # any small file
NOWHERE = 1 << 20  # no file has that number
BIG = b"large part " * 3000

# How each call is made so that it leads nowhere.
CALLS: dict[str, Callable[[], object]] = {
    "write": lambda: os.write(NOWHERE, b"x"),
    "pwrite64": lambda: os.pwrite(NOWHERE, b"x", 0),
    "fsync": lambda: os.fsync(NOWHERE),
    "fdatasync": lambda: os.fdatasync(NOWHERE),
    "ftruncate": lambda: os.ftruncate(NOWHERE, 0),
    "rename": lambda: os.rename("/nonexistent/a", "/nonexistent/b"),
}


class Say:
    """Tells what a run did, line by line, by a call that never fails here."""

    def __init__(self, folder: Path) -> None:
        self.errors = 0
        self.fd = os.open(folder / "told", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def __call__(self, what: str, value: Any = "") -> None:
        self.errors += what in ("error", "crash")
        os.writev(self.fd, [json.dumps([what, value]).encode() + b"\n"])


def attempt(say: Say, what: str, do: Callable[[], Any]) -> Any:
    """Do it, again after a failure as whoever uses it would; None where it fails for good."""
    for _ in range(TRIES):
        try:
            found = do()
        except (StoreError, AuditError) as e:
            say("error", str(e))
            continue
        if not isinstance(found, Err):
            return found.value if isinstance(found, Ok) else found
        say("error", f"{found.failure}: {found.detail}")
    say("given up", what)
    return None


# ---------------------------------------------------------------- what is played


def append(store: SqlStore | FileStore, n: int, say: Say) -> None:
    """One record, the way a tick does it: after an error the journal is asked whether it is there."""

    def do() -> Any:
        answer = store.append(MACHINE, Draft("outcome", {"n": n, "pad": "x" * 300}), expect_seq=n)
        if isinstance(answer, Err):
            there = store.read(MACHINE, n - 1)
            return answer if not there else Ok(there[0])
        return answer

    done = attempt(say, f"record {n}", do)
    if done is not None:
        say("record", [n, done.hash])


def fill(store: SqlStore | FileStore, say: Say) -> None:
    n = 0
    for _ in range(RECORDS):
        at = n + 1
        append(store, at, say)
        found = attempt(say, "read", lambda: [r.seq for r in store.read(MACHINE)])
        n = max(found or [n])
        if at == 6:
            sha = attempt(say, "blob", lambda: store.put_blob(BIG))
            say("blob", sha or "")
        if at in (4, 8) and attempt(say, "fact", lambda n=at: store.put("key", n) or True):
            say("fact", at)


def sql(folder: Path, say: Say) -> None:
    store = attempt(say, "open", lambda: SqlStore.open(folder / "store.db", clock=Time(), code="1"))
    if store is not None:
        if store.stored_epoch() < 1:
            attempt(say, "epoch", lambda: store.set_epoch(1))
        fill(store, say)
        store.close()


def file(folder: Path, say: Say) -> None:
    store = attempt(say, "open", lambda: opened(folder))
    if store is not None:
        fill(store, say)
        store.close()


def opened(folder: Path) -> FileStore:
    return FileStore.open(folder / "journal", clock=Time(), code="1", segment_bytes=2000)


def sealed(audits: Path, code: str) -> str:
    meta = {"machine": f"acme/widget/attempt/{code}", "attempt": code}
    return seal(audits, meta=meta, journal_lines=b"", blobs={}, extra={"ledger": SOURCE}, at=1.0)


def audit(folder: Path, say: Say) -> None:
    """Three bundles are sealed, the index made anew, the first bundle removed."""
    audits = folder / "audits"

    def remove(name: str) -> str:
        try:
            with index.locked(audits):
                if os.path.lexists(audits / name):
                    index.remove_bundle(audits, name, "removed by retention", 2.0)
                index.end_removals(audits, "removed by retention", 2.0)
        except OSError as e:
            raise AuditError(f"{audits / name} cannot be removed: {e.strerror}", e.errno or 0) from e
        return name

    names = []
    for code in ("1.1", "2.1", "3.1"):
        name = attempt(say, code, partial(sealed, audits, code))
        if name:
            names.append(name)
            say("sealed", name)
    attempt(say, "rebuild", lambda: len(index.rebuild_index(audits)) or True)
    if names and attempt(say, "remove", lambda: remove(names[0])):
        say("removed", names[0])


SCENARIOS: dict[str, Callable[[Path, Say], None]] = {"sql": sql, "file": file, "audit": audit}


def _child(scenario: str, call: str, folder: Path, n: int, lasting: bool) -> int:
    """Answers 0, or 3 where the run ended before its fault."""
    say = Say(folder)
    for _ in range(FIRST_CALL - n):
        _dummy(call)
    try:
        SCENARIOS[scenario](folder, say)
    except BaseException:
        say("crash", traceback.format_exc())
    if lasting:
        return 0 if say.errors else 3
    return 3 if any(_dummy(call) for _ in range(FIRST_CALL)) else 0


def _dummy(call: str) -> bool:
    """Whether the fault came instead of what such a call answers by itself."""
    try:
        CALLS[call]()
    except OSError as e:
        return e.strerror in (os.strerror(28), os.strerror(5))
    return False


def run(scenario: str, call: str, root: Path, lasting: bool, step: int) -> None:
    warm = root / "warm"  # what is loaded on first use is loaded before it is counted
    warm.mkdir()
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    SCENARIOS[scenario](warm, Say(warm))
    for n in range(1, POINTS_LIMIT, step):
        folder = root / str(n)
        folder.mkdir()
        pid = os.fork()
        if not pid:
            code = 9
            try:
                code = _child(scenario, call, folder, n, lasting)
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code == 3:
            return
        if code:
            raise SystemExit(f"run {n} of {scenario} ended with {code}")
    raise SystemExit(f"{scenario}: more than {POINTS_LIMIT} calls of {call}")


# ---------------------------------------------------------------- what came of it

# What each scenario asks of the kernel.
ASKED = {
    "sql": ("pwrite64", "fdatasync", "fsync", "rename", "ftruncate", "write"),
    "file": ("write", "fdatasync", "fsync", "rename"),
    "audit": ("write", "fsync", "rename"),
}


@dataclass
class Played:
    """One run. `records` are hashes by number, `blobs`, `facts` what was acknowledged in that order."""

    folder: Path
    scenario: str
    records: dict[int, str] = field(default_factory=dict)
    told: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def errors(self) -> list[str]:
        return [str(e) for e in self.told.get("error", [])]


def play(
    scenario: str, call: str, error: str, root: Path, *, lasting: bool = False, step: int = 1
) -> list[Played]:
    """Every run of a scenario in which the n-th call fails (`lasting`: all from the n-th on); of them each
    `step`-th."""
    root.mkdir(parents=True)
    inject = f"inject={call}:error={error}:when={FIRST_CALL}{'+' if lasting else ''}"
    here = Path(__file__).resolve()
    env = {**os.environ, "PYTHONPATH": f"{here.parents[2]}:{here.parent}", "PYTHONDONTWRITEBYTECODE": "1"}
    argv = ["strace", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject]
    argv += [sys.executable, str(here), scenario, call, str(root), str(int(lasting)), str(step)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(argv)}: {done.stdout}{done.stderr}")
    folders = sorted((p for p in root.iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
    return [_read(scenario, p) for p in folders]


def _read(scenario: str, folder: Path) -> Played:
    played = Played(folder, scenario)
    for raw in (folder / "told").read_text().splitlines():
        what, value = json.loads(raw)
        if what == "record":
            played.records[value[0]] = value[1]
        played.told.setdefault(what, []).append(value)
    return played


def faults(played: Played, *, lasting: bool) -> Iterator[str]:
    """What is wrong with what a run left, asked without any fault: nothing, where all is well."""
    yield from (f"it crashed: {x}" for x in played.told.get("crash", []))
    yield from (f"not one line: {e!r}" for e in played.errors if "\n" in e or "Traceback" in e)
    yield from (f"no place named: {e!r}" for e in played.errors if str(played.folder) not in e)
    if not lasting:
        yield from (f"it did not recover: {x}" for x in played.told.get("given up", []))
        if len(played.errors) > 1:
            yield f"more than one failure from one fault: {played.errors}"
    yield from (_audit_faults if played.scenario == "audit" else _store_faults)(played)


def _store_faults(played: Played) -> Iterator[str]:
    where = played.folder / ("store.db" if played.scenario == "sql" else "journal")
    if not where.exists() and not played.records:
        return
    try:
        store: SqlStore | FileStore = (
            SqlStore.open(where, clock=Time(), code="1", epoch=1)
            if played.scenario == "sql"
            else opened(played.folder)
        )
    except StoreError as e:
        yield f"it cannot be opened: {e}"
        return
    try:
        found = {r.seq: r.hash for r in store.read(MACHINE)}
        fault = store.verify(MACHINE)
        if fault is not None:
            yield f"its journal is broken: {fault}"
        if lost := {n: h for n, h in played.records.items() if found.get(n) != h}:
            yield f"lost or changed after it was answered: {lost}"
        if more := sorted(found.keys() - played.records.keys())[1:]:
            yield f"records that nobody was told of: {more}"
        if any(store.get_blob(sha) != BIG for sha in played.told.get("blob", []) if sha):
            yield "a blob was lost"
        facts = played.told.get("fact", [])
        if facts and (store.get("key") or 0) < facts[-1]:
            yield f"a fact was lost: {store.get('key')}, not {facts[-1]}"
        if isinstance(store, SqlStore) and store.stored_epoch() < 1:
            store.set_epoch(1)
        append_answer = store.append(MACHINE, Draft("outcome", {"more": 1}), expect_seq=len(found) + 1)
        if isinstance(append_answer, Err):
            yield f"it cannot go on: {append_answer.detail}"
    finally:
        store.close()


def _audit_faults(played: Played) -> Iterator[str]:
    audits = played.folder / "audits"
    if not audits.exists():
        return
    there_once, removed = set(played.told.get("sealed", [])), set(played.told.get("removed", []))
    there = set(index.bundles_on_disk(audits))
    yield from (f"verify: {f}" for f in verify_audits(audits))
    if there_once - removed - there - {n for n in there_once if index.being_removed(audits, n)}:
        yield f"lost: {there_once - removed - there}"
    with index.locked(audits):
        index.end_removals(audits, "removed by retention", 3.0)
    index.rebuild_index(audits)
    lines = index.read_index(audits)
    if set(lines) != there | {n for n, x in lines.items() if x.removed}:
        yield f"index: {sorted(lines)}"
    for code in ("1.1", "2.1", "3.1"):
        try:
            sealed(audits, code)
        except AuditError as e:
            yield f"it cannot go on: {e}"
    if len(index.read_index(audits)) != 3:
        yield f"sealed twice: {sorted(index.read_index(audits))}"
    yield from (f"left behind: {p.name}" for p in audits.iterdir() if p.name[0] == "." and p.name != ".lock")


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4] == "1", int(sys.argv[5]))
