"""`harness rebuild`: a damaged store is set aside, never deleted, and the director starts again."""

from __future__ import annotations

from cli_world import run


def damage(copy) -> bytes:
    path = copy.folder / "data/store.db"
    for p in (path.with_name("store.db-wal"), path.with_name("store.db-shm")):
        p.unlink(missing_ok=True)
    raw = bytearray(path.read_bytes())
    raw[100:4096] = b"\xff" * 3996
    path.write_bytes(raw)
    return bytes(raw)


def test_after_a_rebuild_the_director_starts_again(copy, forge):
    raw = damage(copy)
    assert run("director", "--once", "--config", copy.config, cwd=copy.folder).code == 1
    (copy.folder / "audits/index.jsonl").unlink()
    told = run("rebuild", "--json", "--config", copy.config, cwd=copy.folder)
    assert told.code == 0, told.err
    aside = copy.folder / "data/store.db.damaged-1"
    assert told.json["aside"] == str(aside) and aside.read_bytes() == raw
    assert told.json["bundles"] == 6
    started = run("director", "--once", "--json", "--config", copy.config, cwd=copy.folder)
    assert started.code == 0, started.err
    assert started.json["epoch"] == 2  # the forge knows of the first
    assert run("audit", "verify", "--config", copy.config, cwd=copy.folder).code == 0


def test_a_lost_store(copy):
    for p in (copy.folder / "data").glob("store.db*"):
        p.unlink()
    assert "there was a store here" in run("status", "--config", copy.config, cwd=copy.folder).err
    told = run("rebuild", "--config", copy.config, cwd=copy.folder)
    assert told.code == 0 and "there was no file to set aside" in told.out
    assert run("status", "--config", copy.config, cwd=copy.folder).code == 0


def test_a_good_store_is_left_alone(copy, harness):
    told = harness("rebuild", "--config", copy.config)
    assert told.code == 1 and "is not damaged, so there is nothing to rebuild" in told.err
    assert harness("audit", "verify", "--store", "--config", copy.config).code == 0
