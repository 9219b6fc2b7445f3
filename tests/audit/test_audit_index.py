"""The index: appended to, read in spite of damage, and made anew from the bundles."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Play

from harness.audit.files import AuditError
from harness.audit.index import find, list_bundles, read_index, rebuild_index, show

Make = Callable[..., Path]


def several(bundle: Make, play: Play) -> list[Path]:
    made = []
    for n, (code, issue) in enumerate((("12.1", 12), ("12.2", 12), ("21.1", 21))):
        meta = {
            **play.given["meta"],
            "attempt": code,
            "issue": issue,
            "machine": f"acme/widget/attempt/{code}",
        }
        made.append(bundle(meta=meta, at=play.given["at"] + 60 * n))
    return made


def test_each_bundle_has_a_line_in_the_order_of_sealing(bundle: Make, play: Play, tmp_path: Path) -> None:
    made = several(bundle, play)
    lines = [json.loads(x) for x in (tmp_path / "audits" / "index.jsonl").read_text().splitlines()]
    assert [x["audit"] for x in lines] == [p.name for p in made]
    assert lines[0] | {"manifest": ""} == {
        "audit": "20261127-0230-12.1", "at": "2026-11-27T02:30:00.000000+00:00",
        "machine": "acme/widget/attempt/12.1", "issue": 12, "attempt": "12.1",
        "title": "Widget forgets its colour", "outcome": "done", "failure": "", "cost_usd": 0.44,
        "manifest": "",
    }  # fmt: skip


def test_the_index_is_made_anew_as_it_was(bundle: Make, play: Play, tmp_path: Path) -> None:
    several(bundle, play)
    path = tmp_path / "audits" / "index.jsonl"
    before = path.read_bytes()
    path.unlink()
    assert len(rebuild_index(tmp_path / "audits")) == 3 and path.read_bytes() == before
    path.write_bytes(b"garbage\n" + before[:50])
    rebuild_index(tmp_path / "audits")
    assert path.read_bytes() == before


def test_a_torn_line_is_cut_off_by_the_next_sealing(bundle: Make, play: Play, tmp_path: Path) -> None:
    first = bundle()
    path = tmp_path / "audits" / "index.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"audit":"20261127-0231-9')
    other = bundle(meta={**play.given["meta"], "machine": "m/attempt/12.2", "attempt": "12.2"})
    assert path.read_bytes().startswith(whole) and path.read_bytes().count(b"\n") == 2
    assert list(read_index(tmp_path / "audits")) == [first.name, other.name]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{}",
        "[]",
        "null",
        '{"audit":7}',
        '{"audit":"x","at":3,"issue":"no","cost_usd":[]}',
        "\x00",
        "[" * 9999,
    ],
)
def test_what_is_no_line_is_passed_over(bundle: Make, line: str, tmp_path: Path) -> None:
    made = bundle()
    path = tmp_path / "audits" / "index.jsonl"
    path.write_bytes(path.read_bytes() + line.encode() + b"\n")
    assert [x.audit for x in list_bundles(tmp_path / "audits")] == [made.name]
    assert find(tmp_path / "audits", "12.1") == made


def test_bundles_are_listed_from_the_disk_also_without_an_index(
    bundle: Make, play: Play, tmp_path: Path
) -> None:
    made = several(bundle, play)
    (tmp_path / "audits" / "index.jsonl").unlink()
    shutil.rmtree(made[1])
    assert [x.audit for x in list_bundles(tmp_path / "audits")] == [made[0].name, made[2].name]
    assert list_bundles(tmp_path / "nothing") == []


def test_a_bundle_is_found_by_id_attempt_or_beginning(bundle: Make, play: Play, tmp_path: Path) -> None:
    made = several(bundle, play)
    audits = tmp_path / "audits"
    assert find(audits, made[1].name) == find(audits, "12.2") == find(audits, "20261127-0231") == made[1]
    assert find(audits, "acme/widget/attempt/21.1") == made[2]
    with pytest.raises(AuditError, match=r"names 3 bundles in .*: say which one"):
        find(audits, "20261127")
    with pytest.raises(
        AuditError, match=r"there is no bundle 99\.1 in .*; the newest is 20261127-0232-21\.1"
    ):
        find(audits, "99.1")
    with pytest.raises(AuditError, match="and none at all"):
        find(tmp_path / "nothing", "x")


def test_a_bundle_is_shown_as_one_document(bundle: Make, tmp_path: Path) -> None:
    made = bundle()
    document = show(tmp_path / "audits", "12.1")
    assert json.loads(json.dumps(document)) == document
    assert document["audit"] == made.name and document["meta"]["outcome"] == "done"
    assert (
        document["journals"]["journal.jsonl"]["records"] == 24 and "delivered pull #31" in document["summary"]
    )
    assert document["files"]["journal.jsonl"] == (made / "journal.jsonl").stat().st_size


def test_a_ruined_bundle_is_shown_as_one_clear_line(bundle: Make, tmp_path: Path) -> None:
    made = bundle()
    (made / "meta.json").write_text("{")
    with pytest.raises(AuditError, match=r"meta\.json is not JSON"):
        show(tmp_path / "audits", made.name)
