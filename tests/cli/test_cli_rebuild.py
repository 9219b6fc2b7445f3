"""`harness rebuild` after a whole release: all is found as it was, nothing is done again, nothing is deleted."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cli_world import Demo, Ran, run

from harness.adapters.store.lease import Lease
from harness.forge import Forge, dump
from harness.loop import SteadyClock


def store_of(copy: Demo) -> Path:
    path = copy.folder / "data" / "store.db"
    for name in ("store.db-wal", "store.db-shm"):
        path.with_name(name).unlink(missing_ok=True)
    return path


def damage(copy: Demo) -> bytes:
    path = store_of(copy)
    raw = bytearray(path.read_bytes())
    raw[100:] = b"\xff" * (len(raw) - 100)
    path.write_bytes(raw)
    return bytes(raw)


def seen(copy: Demo) -> Any:
    """All that the forge shows but the epoch, which every start advances."""
    repo = dump(copy.folder / "forge", times=False)["repos"]["acme/tally"]
    return {**repo, "refs": {k: v for k, v in repo["refs"].items() if "harness/epoch" not in k}}


def test_all_is_found_as_it_was_and_nothing_is_done_again(copy: Demo, forge: Forge) -> None:
    before, raw = seen(copy), damage(copy)
    (copy.folder / "audits/index.jsonl").unlink()
    refused = run("director", "--once", "--config", copy.config, cwd=copy.folder)
    assert refused.code == 1 and "harness rebuild" in refused.err and len(refused.err.splitlines()) == 1
    told = run("rebuild", "--json", "--config", copy.config, cwd=copy.folder)
    assert told.code == 0, told.err
    aside = copy.folder / "data/store.db.damaged-1"
    assert told.json["aside"] == str(aside) and aside.read_bytes() == raw
    states = {m["machine"].split("/", 2)[2]: m["state"] for m in told.json["machines"]}
    assert states == {
        "release/0.1.0": "PUBLISHED", "ticket/1": "RELEASED", "ticket/2": "RELEASED",
        "ticket/3": "DEFERRED", "ticket/4": "RELEASED", "ticket/5": "RELEASED",
    }  # fmt: skip
    assert (copy.folder / "audits/index.jsonl").exists()
    ended = run("director", "--until-idle", "--json", "--config", copy.config, cwd=copy.folder)
    assert ended.code == 0, ended.err
    assert ended.json["epoch"] == 3 and seen(copy) == before
    for what in ("verify", "replay"):
        assert run("audit", what, "--store", "--config", copy.config, cwd=copy.folder).code == 0
    explained = run("explain", "3", "--config", copy.config, cwd=copy.folder)
    assert explained.code == 0 and "deferred" in explained.out.lower()
    assert run("status", "--config", copy.config, cwd=copy.folder).code == 0


def test_a_preview_changes_nothing(copy: Demo, forge: Forge, harness: Callable[..., Ran]) -> None:
    store_of(copy).unlink()
    refs = forge.dump()["repos"]["acme/tally"]["refs"]
    told = harness("rebuild", "--dry-run", "--config", copy.config)
    assert told.code == 0, told.err
    assert "ticket/3" in told.out and "Nothing was changed" in told.out
    assert not list((copy.folder / "data").glob("store.db*"))
    assert forge.dump()["repos"]["acme/tally"]["refs"] == refs


def test_a_lost_secret_is_said_and_nothing_is_taken_for_ours(
    copy: Demo, forge: Forge, harness: Callable[..., Ran]
) -> None:
    store_of(copy).unlink()
    (copy.folder / "data/secret").unlink()
    told = harness("rebuild", "--dry-run", "--json", "--config", copy.config)
    assert told.code == 0, told.err
    assert any("secret is missing" in note for note in told.json["notes"]) and told.json["not_ours"]


def test_a_good_store_is_left_alone(copy: Demo, harness: Callable[..., Ran]) -> None:
    told = harness("rebuild", "--config", copy.config)
    assert told.code == 1 and "is not damaged, so there is nothing to rebuild" in told.err
    assert harness("audit", "verify", "--store", "--config", copy.config).code == 0


def test_a_newer_store_is_not_rebuilt(copy: Demo, harness: Callable[..., Ran]) -> None:
    with sqlite3.connect(store_of(copy)) as db:
        db.execute("UPDATE alembic_version SET version_num = '9999'")
    told = harness("rebuild", "--config", copy.config)
    assert told.code == 1 and "install the newer version again" in told.err


def test_a_store_that_never_was(copy: Demo, harness: Callable[..., Ran]) -> None:
    store_of(copy).unlink()
    (copy.folder / "data/store.exists").unlink()
    told = harness("rebuild", "--config", copy.config)
    assert told.code == 1 and "never was" in told.err


def test_not_beside_a_director(copy: Demo, harness: Callable[..., Ran]) -> None:
    store_of(copy).unlink()
    lease = Lease.take(copy.folder / "data", clock=SteadyClock())
    try:
        assert harness("rebuild", "--config", copy.config).code == 4
    finally:
        lease.release()


def test_a_forge_that_does_not_answer_ends_it_and_changes_nothing(
    copy: Demo, harness: Callable[..., Ran]
) -> None:
    raw = damage(copy)
    copy.change(forge={"url": "http://127.0.0.1:9"})
    told = harness("rebuild", "--config", copy.config)
    assert told.code == 1 and len(told.err.strip().splitlines()) == 1
    assert (copy.folder / "data/store.db").read_bytes() == raw
    assert not list((copy.folder / "data").glob("*rebuilding*"))


def test_a_start_whose_store_is_gone_finds_all_again_by_itself(copy: Demo, forge: Forge) -> None:
    before = seen(copy)
    store_of(copy).unlink()
    shown = run("status", "--config", copy.config, cwd=copy.folder)
    assert shown.code == 1 and "is missing" in shown.err
    ended = run("director", "--until-idle", "--json", "--config", copy.config, cwd=copy.folder)
    assert ended.code == 0, ended.err
    assert (ended.json["epoch"], seen(copy)) == (3, before)
    rebuilt = [line for line in ended.err.splitlines() if '"rebuilt"' in line]
    assert len(rebuilt) == 7 and any("ticket/3" in x and "DEFERRED" in x for x in rebuilt)
    assert "is missing" in rebuilt[-1]
