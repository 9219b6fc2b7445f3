"""`status` and `explain` on a night that is over: what a maintainer reads at three in the morning."""

from __future__ import annotations

import json
import os
import re

import pytest
from cli_world import start

from harness import __version__
from harness.adapters.store.sql import SqlStore
from harness.loop import SteadyClock

STATUS = """\
acme/tally: no director is running; the last one (epoch 1) ended in SELF_REVIEW without being shut down

Release v0.1.0: published AGE ago at SHA; landed: #1, #2, #4, #5
Workers: 0 of 3 in use

Tickets
  #3  DEFERRED  AGE  Count faster than light
      the tests are still red: python3 -m unittest discover --quiet --start-directory . exited 1

4 released or ended (--all shows them)
"""


def plain(text: str) -> str:
    """Without what differs from night to night."""
    text = re.sub(r"\d+ (?:s|min)\b(?! retries)", "AGE", text)
    return re.sub(r"\b[0-9a-f]{12}\b", "SHA", text)


def test_the_status_of_a_night_that_is_over(demo, harness):
    told = harness("status", "--config", demo.config)
    assert told.code == 0
    assert plain(told.out) == STATUS


def test_all_shows_what_is_over(demo, harness):
    told = harness("status", "--all", "--config", demo.config).out
    assert re.findall(r"#(\d)  (\w+)", told) == [
        ("1", "RELEASED"), ("2", "RELEASED"), ("3", "DEFERRED"), ("4", "RELEASED"), ("5", "RELEASED"),
    ]  # fmt: skip


def test_the_document(demo, harness):
    d = harness("status", "--json", "--config", demo.config).json
    assert d["repo"] == "acme/tally"
    assert (d["director"]["running"], d["director"]["epoch"], d["director"]["owner"]) == (False, 1, {})
    assert d["workers"] == {"used": 0, "of": 3, "waiting": []}
    assert d["release"]["tag"] == demo.document["release"]["tag"]
    assert d["release"]["landed"] == [1, 2, 4, 5]
    third = next(t for t in d["tickets"] if t["issue"] == 3)
    assert (third["state"], third["waits_for"]) == ("DEFERRED", "a person (harness retry 3)")
    assert (d["attempts"], d["held"], d["trouble"], d["limited"], d["paused"]) == ([], [], [], [], "")
    assert d["disk_free_bytes"] > 0


def test_it_changes_nothing(demo, harness):
    before = (demo.folder / "data/store.db").read_bytes()
    harness("status", "--config", demo.config)
    harness("explain", 3, "--config", demo.config)
    assert (demo.folder / "data/store.db").read_bytes() == before


def test_until_when_a_limit_lasts(copy, harness):
    """What the forge asked for is told, with the time of its end."""
    store = SqlStore.open(copy.folder / "data/store.db", clock=SteadyClock(), code=__version__, create=False)
    kept = store.get("governor/forge")
    until = SteadyClock().now() + 1465
    kept["resources"]["github.write"]["closed_until"] = until
    store.put("governor/forge", kept)
    store.close()
    told = harness("status", "--config", copy.config)
    assert re.search(r"github\.write: rate limited until \d\d:\d\d:\d\d UTC, 24 min from now", told.out)
    limited = harness("status", "--json", "--config", copy.config).json["limited"]
    assert [x["resource"] for x in limited] == ["github.write"]
    assert 1400 < limited[0]["left_s"] <= 1465


def test_a_pause_is_told(copy, harness):
    harness("pause", "--config", copy.config)
    told = harness("status", "--config", copy.config).out
    assert "Nothing new is taken: paused by a person (harness resume)" in told


def test_a_journal_that_cannot_be_read_is_trouble_of_its_own(copy, harness):
    store = SqlStore.open(copy.folder / "data/store.db", clock=SteadyClock(), code=__version__, create=False)
    store._db.execute(
        "UPDATE records SET line = X'7B7D' WHERE id IN (SELECT id << 32 | 1 FROM streams WHERE machine = 'acme/tally/ticket/2')"
    )
    store.close()
    told = harness("status", "--all", "--config", copy.config)
    assert told.code == 0
    assert "Trouble: acme/tally/ticket/2 cannot be read" in told.out
    assert "#1  RELEASED" in told.out


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is stopped by nothing")
def test_a_folder_that_cannot_be_written(copy, harness):
    """Reading needs no write: a backup on a read-only disk can be looked at."""
    data = copy.folder / "data"
    for p in (data / "store.db-wal", data / "store.db-shm"):
        p.unlink(missing_ok=True)
    data.chmod(0o555)
    try:
        assert harness("status", "--config", copy.config).code == 0
    finally:
        data.chmod(0o755)


def test_watch_shows_it_again(demo):
    watching = start("status", "--watch", "--config", demo.config, cwd=demo.folder)
    try:
        seen = 0
        while seen < 2:
            line = watching.stdout.readline()
            assert line, watching.stderr.read()
            seen += line.startswith("acme/tally")
    finally:
        watching.kill()
        watching.communicate()


def test_watch_is_for_people(demo, harness):
    told = harness("status", "--watch", "--json", "--config", demo.config)
    assert told.code == 2


# ---------------------------------------------------------------- explain


def test_why_an_issue_was_deferred(demo, harness):
    told = harness("explain", 3, "--config", demo.config)
    assert told.code == 0
    lines = told.out.splitlines()
    assert lines[0] == "Issue 3: Count faster than light"
    assert lines[2].startswith("It was deferred on ")
    assert (
        "python3 -m unittest discover --quiet --start-directory . exited 1 (rework retries used up)"
        in lines[3]
    )
    assert "run `harness retry 3`" in told.out
    assert "harness audit show" in told.out


def test_where_a_released_one_went(demo, harness):
    told = harness("explain", 4, "--config", demo.config)
    assert "It went out in v0.1.0, from pull #" in told.out
    assert "answered by ada: A tab, please" in told.out


def test_the_document_of_an_explanation(demo, harness):
    d = harness("explain", 3, "--json", "--config", demo.config).json
    assert (d["issue"], d["state"], d["failure"], d["known"]) == (3, "DEFERRED", "tests_failed", True)
    assert [a["attempt"] for a in d["attempts"]] == ["3.1"]


def test_what_nobody_knows_of_is_said_and_is_no_success(demo, harness):
    told = harness("explain", 77, "--config", demo.config)
    assert told.code == 1
    assert "Nothing is known of it" in told.out
    assert json.loads(harness("explain", 77, "--json", "--config", demo.config).out)["known"] is False


def test_a_number_that_is_none(demo, harness):
    assert harness("explain", "abc", "--config", demo.config).code == 2
    assert harness("explain", 0, "--config", demo.config).code == 2
