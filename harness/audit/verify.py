"""Verifying: is every byte, every record and every end of a journal what it was when it was written?

The one rule: whatever was changed, dropped, swapped or cut is named, the first of it by its record. A
journal's own chain cannot show that its end is missing; anchors outside it do: the manifest, the attempt's
record of what it witnessed, the successor of a director, the counter of the store.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.audit import index
from harness.audit.bundle import ATTEMPT, BLOBS, JOURNALS, WORKER, blob_names
from harness.audit.files import AuditError, Found, LeftOut, gather, read_at, read_own
from harness.audit.index import MANIFEST, META, SMALL_LIMIT_BYTES
from harness.core.journal import GENESIS, Fault, Record, canonical, check, digest, scan
from harness.ports import Store

JOURNAL_LIMIT_BYTES = 1 << 30
FILES_LIMIT = 100_000
DETAIL_LIMIT = 20
GetBlob = Callable[[str], bytes | None]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it was written. `seq` is 0 where it is not about a record."""

    where: str
    what: str
    machine: str = ""
    seq: int = 0

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True, slots=True)
class Anchor:
    """What somebody outside a journal knows of its end. `who` says who; `exact`: nothing may follow."""

    seq: int
    head: str
    who: str
    exact: bool = False


def about(machine: str, seq: int, what: str) -> Finding:
    return Finding(f"record {seq} of {machine}", what, machine, seq)


# ---------------------------------------------------------------- one journal


def verify_journal(
    journal: bytes | Sequence[Record],
    *,
    machine: str = "",
    anchors: Sequence[Anchor] = (),
    blob: GetBlob | None = None,
) -> list[Finding]:
    """What is wrong with one machine's journal, as bytes or as records already read: at most one break of its
    chain (what follows one proves nothing), the anchors that do not hold, and missing blobs when `blob` is
    given. `machine` is whose journal it should be, and its name where no record can be read."""
    return _contents(_each(journal), machine, anchors, blob)


def _contents(
    found_records: Iterable[Record | Fault], machine: str, anchors: Sequence[Anchor], blob: GetBlob | None
) -> list[Finding]:
    """The same for records whose chain was checked, up to the fault in it if there is one."""
    hashes: list[str] = []
    blobs: dict[str, int] = {}
    owner = ""
    fault: Fault | None = None
    for found in found_records:
        if isinstance(found, Fault):
            fault = found
        else:
            owner = owner or found.machine
            hashes.append(found.hash)
            for sha in blob_names(found) if blob is not None else ():
                blobs.setdefault(sha, found.seq)
    name = owner or machine or "an unknown machine"
    findings: list[Finding] = []
    if machine and owner and owner != machine:
        findings.append(about(owner, 1, f"it stands in the journal of {machine}"))
    if fault is not None:
        findings.append(about(name, fault.seq, fault.what))
    findings += _anchored(machine or name, hashes, anchors, fault is not None)
    if blob is not None:
        findings += _blobs(name, blobs, blob)
    return findings


def _each(journal: bytes | Sequence[Record]) -> Iterable[Record | Fault]:
    if isinstance(journal, bytes):
        return scan(journal)
    fault = check(journal)
    good = journal if fault is None else journal[: fault.seq - 1]
    return (*good, *(() if fault is None else (fault,)))


def _anchored(name: str, hashes: list[str], anchors: Sequence[Anchor], broken: bool) -> list[Finding]:
    findings: list[Finding] = []
    for a in anchors:
        there = len(hashes)
        if a.seq > there:
            if not broken:  # else the break is the news, and the first missing record is behind it
                findings.append(about(name, there + 1, f"it is missing: {a.who} knows {a.seq} records"))
        elif (hashes[a.seq - 1] if a.seq else GENESIS) != a.head:
            findings.append(about(name, a.seq, f"it is not the one that {a.who} knows"))
        elif a.exact and there > a.seq:
            findings.append(about(name, a.seq + 1, f"it was added: {a.who} knows {a.seq} records"))
    return findings[:1]


def _blobs(name: str, wanted: Mapping[str, int], blob: GetBlob) -> list[Finding]:
    findings = []
    for sha, seq in wanted.items():
        data = blob(sha)
        if data is None:
            findings.append(about(name, seq, f"its blob {sha[:12]} is missing"))
        elif hashlib.sha256(data).hexdigest() != sha:
            findings.append(about(name, seq, f"its blob {sha[:12]} has another content"))
    return findings[:DETAIL_LIMIT]


# ---------------------------------------------------------------- a sealed bundle


def verify_bundle(folder: Path) -> list[Finding]:
    """Everything that is wrong with a bundle; what concerns a record comes first. It needs nothing but the
    folder; an index beside it is one anchor more. Raises AuditError when there is no such folder."""
    if folder.is_symlink() or not folder.is_dir():
        raise AuditError(f"{folder} is not a bundle: there is no such folder")
    try:
        manifest, findings = _manifest(folder)
        meta, trouble = _meta(folder)
        found, odd = _files(folder)
        findings += trouble + odd
        records = _journals(folder, manifest, meta)
        named = {f for f, x in records.items() if x}
        findings += _against(manifest, found, named)
        return [x for name in JOURNALS for x in records[name]] + findings
    except OSError as e:
        raise AuditError(f"{folder} cannot be read: {e.strerror or e}", e.errno or 0) from e


def _manifest(folder: Path) -> tuple[dict[str, Any], list[Finding]]:
    raw = read_own(folder / MANIFEST, SMALL_LIMIT_BYTES)
    if raw is None:
        return {}, [Finding(MANIFEST, "it is missing")]
    try:
        found = json.loads(raw)
        if not isinstance(found, dict) or canonical(found) + b"\n" != raw:
            raise ValueError
        if digest({k: v for k, v in found.items() if k != "hash"}) != found["hash"]:
            raise ValueError
        parts = [found["files"], found["journals"], *found["files"].values(), *found["journals"].values()]
        if not all(isinstance(p, dict) for p in parts):
            raise ValueError
    except (ValueError, KeyError, AttributeError, RecursionError):
        return {}, [Finding(MANIFEST, "it was changed: it is not what a sealing writes")]
    findings = []
    if found.get("audit_id") != folder.name:
        findings.append(
            Finding(MANIFEST, f"it is that of {found.get('audit_id')}, in the folder {folder.name}")
        )
    line = index.read_index(folder.parent).get(folder.name)
    if line is not None and line.manifest and line.manifest != hashlib.sha256(raw).hexdigest():
        findings.append(Finding(MANIFEST, "it was changed: the index knows another one"))
    return found, findings


def _meta(folder: Path) -> tuple[dict[str, Any], list[Finding]]:
    try:
        return index.read_json(folder / META), []
    except AuditError as e:
        return {}, [Finding(META, str(e).removeprefix(f"{folder / META} "))]


def _files(folder: Path) -> tuple[dict[str, str], list[Finding]]:
    """SHA-256 by name of all that is in the folder, and what has no place there."""
    shas: dict[str, str] = {}
    findings: list[Finding] = []
    for f in gather(folder, limit=FILES_LIMIT):
        if isinstance(f, LeftOut):
            findings.append(Finding(f.name or folder.name, f"it has no place in a bundle: {f.why}"))
        elif f.name != MANIFEST:
            shas[f.name] = _sha(f)
    return shas, findings


def _sha(f: Found) -> str:
    made, offset = hashlib.sha256(), 0
    while part := read_at(f.fd, offset, 1 << 20):
        made.update(part)
        offset += len(part)
    return made.hexdigest()


def _against(manifest: Mapping[str, Any], found: Mapping[str, str], named: set[str]) -> list[Finding]:
    """The manifest's files against those found. A journal of which a record was named is not named again."""
    if not manifest:
        return []
    sealed: Mapping[str, Any] = manifest["files"]
    findings = [Finding(n, "it is missing") for n in sealed if n not in found and n not in named]
    for name, sha in found.items():
        if name not in sealed:
            findings.append(Finding(name, "it was added after the sealing"))
        elif sealed[name].get("sha256") != sha and name not in named:
            findings.append(Finding(name, "it was changed after the sealing"))
    return findings


def _journals(folder: Path, manifest: Mapping[str, Any], meta: Mapping[str, Any]) -> dict[str, list[Finding]]:
    attempt = str(meta.get("machine", ""))
    worker = attempt.replace("/attempt/", "/worker/")
    director = read_own(folder / ATTEMPT, JOURNAL_LIMIT_BYTES) or b""
    witnessed = _witnessed(scan(director))

    def blob(sha: str) -> bytes | None:
        return read_own(folder / BLOBS / sha, SMALL_LIMIT_BYTES) if sha.isalnum() else None

    ends = manifest.get("journals", {})
    testimony = read_own(folder / WORKER, JOURNAL_LIMIT_BYTES) or b""
    anchors = [*_end(ends, WORKER), *witnessed, *_told(meta)]
    return {
        WORKER: verify_journal(testimony, machine=worker, anchors=anchors, blob=blob),
        ATTEMPT: verify_journal(director, machine=attempt, anchors=_end(ends, ATTEMPT), blob=blob),
    }


def _end(ends: Mapping[str, Any], name: str) -> list[Anchor]:
    end = ends.get(name)
    if not isinstance(end, Mapping) or end.get("fault"):
        return []
    return [Anchor(_int(end.get("records")), str(end.get("head")), "the manifest", exact=True)]


def _told(meta: Mapping[str, Any]) -> list[Anchor]:
    seq = _int(meta.get("worker_seq"))
    return [Anchor(seq, str(meta.get("worker_head")), META)] if seq else []


def _witnessed(records: Iterable[Record | Fault]) -> list[Anchor]:
    """What an attempt's own records say of its worker's journal, the last word of them."""
    last: list[Anchor] = []
    for r in records:
        note = r.body.get("note") if isinstance(r, Record) else None
        if isinstance(r, Record) and isinstance(note, Mapping) and note.get("witnessed"):
            seq = _int(note.get("witnessed_seq"))
            last = [Anchor(seq, str(note["witnessed"]), f"record {r.seq} of {r.machine}")] if seq else []
    return last


def _int(value: Any) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def verify_audits(audits: Path) -> list[Finding]:
    """Every bundle of an audit folder, and every line of its index whose bundle is gone and was not removed
    on purpose."""
    findings: list[Finding] = []
    there = index.bundles_on_disk(audits)
    for name in there:
        for f in verify_bundle(audits / name):
            findings.append(Finding(f"{name}, {f.where}", f.what, f.machine, f.seq))
    for name, line in index.read_index(audits).items():
        on_purpose = line.removed or index.being_removed(audits, name)
        if name not in there and not on_purpose and not os.path.lexists(audits / name):
            findings.append(Finding(name, "its bundle is missing: the index has a line for it"))
    return findings


# ---------------------------------------------------------------- a store


def verify_store(
    store: Store, prefix: str = "", tell: Callable[[str], None] = lambda m: None
) -> list[Finding]:
    """Every machine of a director's store: chains, blobs, each director's predecessor, and that what was
    opened is there. `tell` is called with each machine before it is read."""
    machines = list(store.machines(prefix))
    findings: list[Finding] = []
    heads: dict[str, tuple[str, ...]] = {}
    firsts: dict[str, Record] = {}
    opened: dict[str, tuple[str, int]] = {}
    for machine in machines:
        tell(machine)
        fault = store.verify(machine)
        if fault is not None:
            findings.append(about(machine, fault.seq, fault.what))
            continue
        records = store.read(machine)
        findings += _contents(records, machine, (), store.get_blob)
        if records and _is_director(machine):
            firsts[machine] = records[0]
            heads[machine] = tuple(r.hash for r in records)
        opened |= _opened(records)
    findings += _predecessors(firsts, heads, set(machines))
    gone = {m: who for m, who in opened.items() if m not in machines and m.startswith(prefix)}
    return findings + [
        about(m, 1, f"it is missing: record {n} of {who} opened it") for m, (who, n) in gone.items()
    ]


def _is_director(machine: str) -> bool:
    return machine.rsplit("/", 2)[-2:-1] == ["director"]


def _opened(records: Sequence[Record]) -> dict[str, tuple[str, int]]:
    """The machines that these records say were opened."""
    found: dict[str, tuple[str, int]] = {}
    for r in records:
        value = r.body.get("value")
        if (
            r.body.get("effect") == "OpenMachine"
            and r.body.get("status") == "done"
            and isinstance(value, Mapping)
        ):
            found[str(value.get("machine"))] = (r.machine, r.seq)
    return found


def _predecessors(
    firsts: Mapping[str, Record], heads: Mapping[str, tuple[str, ...]], machines: set[str]
) -> list[Finding]:
    """Each director's first record names the one before it and where that one's journal ended."""
    findings: list[Finding] = []
    order = sorted(firsts, key=lambda m: (m.rsplit("/", 1)[0], firsts[m].epoch))
    for before, machine in zip(["", *order], order, strict=False):
        start = firsts[machine].body.get("start")
        named = str(start.get("predecessor", "")) if isinstance(start, Mapping) else ""
        head = str(start.get("predecessor_head", "")) if isinstance(start, Mapping) else ""
        same = before.rsplit("/", 1)[0] == machine.rsplit("/", 1)[0]
        if named and named not in machines:
            findings.append(about(named, 1, f"it is missing: record 1 of {machine} names it"))
        elif named in heads:
            findings += _ended(named, heads[named], head, machine)
        elif not named and same:
            findings.append(about(machine, 1, f"it names no director before it, but there is {before}"))
        if named in heads and same and named != before:
            findings.append(about(machine, 1, f"it follows {named}, but there is {before}"))
    return findings


def _ended(machine: str, hashes: tuple[str, ...], head: str, after: str) -> list[Finding]:
    if hashes[-1] == head:
        return []
    if head in hashes:
        n = hashes.index(head) + 1
        return [about(machine, n + 1, f"it was added after {after} had taken over from record {n}")]
    return [about(machine, len(hashes) + 1, f"it is missing: {after} took over from a later one")]


def verify_against(store: Store, folder: Path) -> list[Finding]:
    """A bundle beside the store that it came from: the director's records in it are the store's, and the
    worker's journal holds what the store says was witnessed. Finds a bundle made anew from end to end."""
    machine = str(index.read_json(folder / META).get("machine", ""))
    kept = store.read(machine)
    if not kept:
        return [Finding(META, f"the store has no records of {machine}")]
    findings: list[Finding] = []
    by_seq = {r.seq: r.hash for r in kept}
    sealed = [
        r for r in scan(read_own(folder / ATTEMPT, JOURNAL_LIMIT_BYTES) or b"") if isinstance(r, Record)
    ]
    wrong = next((r for r in sealed if by_seq.get(r.seq) != r.hash), None)
    if wrong is not None:
        findings.append(about(machine, wrong.seq, "it is not the one in the store"))
    if not sealed:
        findings.append(about(machine, 1, f"it is missing in {ATTEMPT}"))
    worker = machine.replace("/attempt/", "/worker/")
    testimony = read_own(folder / WORKER, JOURNAL_LIMIT_BYTES) or b""
    return verify_journal(testimony, machine=worker, anchors=_witnessed(kept)) + findings
