"""Beside a director that runs: who it is, what it does, and the ways to end it and its workers."""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cli_world import Demo, run, start

WAIT_S = 90.0
SECOND_S = 2.0


def until(true: Callable[[], Any], what: str, wait_s: float = WAIT_S) -> Any:
    ends = time.monotonic() + wait_s
    while time.monotonic() < ends:
        found = true()
        if found:
            return found
        time.sleep(0.2)
    raise AssertionError(f"not within {wait_s} s: {what}")


def _spent() -> float:
    """CPU seconds of the children that have ended: what a busy machine does not add to."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def status(night: Demo) -> dict[str, Any]:
    return run("status", "--json", "--config", night.config, cwd=night.folder).json


def working(night: Demo) -> list[str]:
    return [a["attempt"] for a in status(night)["attempts"] if a["state"] == "RUNNING"]


def open_issue(night: Demo, url: str, title: str) -> int:
    token = json.loads((night.folder / "demo.json").read_text())["ada"]
    body = json.dumps({"title": title, "body": "", "labels": ["harness"]}).encode()
    request = urllib.request.Request(
        f"{url}/repos/acme/tally/issues", data=body, headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=10) as reply:
        return int(json.load(reply)["number"])


@pytest.fixture
def night(copy: Demo, forge: Any) -> Iterator[tuple[Demo, subprocess.Popen[str], int]]:
    """A director at work on one new issue, whose agent leaves a file and then takes for ever."""
    copy.change(agent={"kind": "command", "command": ["sh", "-c", "echo half > half.txt; exec sleep 600"]})
    issue = open_issue(copy, forge.url, "Something that takes long")
    process = start("director", "--config", copy.config, cwd=copy.folder)
    try:
        until(lambda: process.poll() is not None or working(copy), "a worker at work")
        assert process.poll() is None, process.stderr.read()
        yield copy, process, issue
    finally:
        run("stop", "--workers", "--config", copy.config, cwd=copy.folder)
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_it_is_seen_and_a_second_one_is_refused_at_once(night):
    demo, process, issue = night
    d = status(demo)
    assert d["director"]["running"] is True
    assert d["director"]["owner"]["pid"] == process.pid
    ticket = next(t for t in d["tickets"] if t["issue"] == issue)
    assert (ticket["state"], ticket["waits_for"]) == ("ATTEMPTING", f"attempt {issue}.1: running")
    text = run("status", "--config", demo.config, cwd=demo.folder).out
    assert text.startswith("acme/tally: the director runs, ")
    assert f"process {process.pid} on " in text and "Workers: 1 of 3 in use" in text

    took = []
    for _ in range(3):
        began = _spent()
        second = run("director", "--config", demo.config, cwd=demo.folder)
        took.append(_spent() - began)
        assert (second.code, second.out) == (4, "")
        assert re.fullmatch(
            rf"harness director: another director holds \S+/lock: process {process.pid} on \S+ since \S+; "
            r"stop it first \(`harness stop`\), or use another data folder\n",
            second.err,
        )
    assert min(took) < SECOND_S
    assert process.poll() is None


def test_stop_leaves_the_workers_and_stop_workers_saves_their_work(night):
    demo, process, issue = night
    began = time.monotonic()
    told = run("stop", "--config", demo.config, cwd=demo.folder)
    assert (told.code, told.out) == (0, "the director has ended\n")
    assert time.monotonic() - began < 15
    assert process.wait(timeout=5) == 0
    assert working(demo) == [f"{issue}.1"]
    assert status(demo)["director"]["state"] == "SHUTDOWN"

    told = run("stop", "--workers", "--json", "--config", demo.config, cwd=demo.folder)
    assert told.code == 0, told.err
    assert told.json == {"ok": True, "director_ended": False, "stopped": [f"{issue}.1"], "left": []}
    after = status(demo)
    assert (after["attempts"], after["director"]["running"]) == ([], False)
    assert next(t["state"] for t in after["tickets"] if t["issue"] == issue) == "ATTEMPTING"
    shown = run("audit", "show", f"{issue}.1", "--json", "--config", demo.config, cwd=demo.folder).json
    assert shown["meta"]["outcome"] == "stopped"
    assert "half.txt" in (demo.folder / "audits" / shown["audit"] / "patches/harvest.patch").read_text()
    assert list((demo.folder / "data/attempts").iterdir()) == []
    assert run("audit", "verify", "--store", "--config", demo.config, cwd=demo.folder).code == 0
    assert run("audit", "replay", "--store", "--config", demo.config, cwd=demo.folder).code == 0


def test_stop_workers_ends_both(night):
    demo, process, issue = night
    told = run("stop", "--workers", "--config", demo.config, cwd=demo.folder)
    assert told.code == 0, told.err
    assert told.out == f"the director has ended; stopped and saved: attempt {issue}.1\n"
    assert process.wait(timeout=5) == 0
    assert working(demo) == []


def test_cancel_ends_a_worker_and_drain_then_the_director(night):
    demo, process, issue = night
    draining = start("drain", "--wait", "--config", demo.config, cwd=demo.folder)
    until(lambda: status(demo)["paused"].startswith("draining"), "the drain")
    assert draining.poll() is None and process.poll() is None
    told = run("cancel", issue, "--config", demo.config, cwd=demo.folder)
    assert told.out == f"work on issue {issue} ends; take the label off, or it may be taken again\n"
    out, err = draining.communicate(timeout=WAIT_S)
    assert draining.returncode == 0, err
    assert out.startswith("draining: no new work is taken")
    assert f"waiting for attempt {issue}.1" in err
    assert process.wait(timeout=10) == 0
    assert next(t["state"] for t in status(demo)["tickets"] if t["issue"] == issue) == "GONE"
    again = run("director", "--once", "--config", demo.config, cwd=demo.folder)
    assert again.code == 0 and status(demo)["paused"] == "", "a drain is over with the director that it ended"


def test_a_signal_ends_it_within_ten_seconds(night):
    demo, process, issue = night
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == 0
    assert working(demo) == [f"{issue}.1"]


def test_what_keeps_a_release_from_being_planned_is_told(copy: Demo, forge: Any) -> None:
    """Dependencies cannot be made ready: nothing is begun, and whoever asks learns why."""
    copy.change(prepare={"commands": ["echo no such package; exit 1"]})
    open_issue(copy, forge.url, "One more thing")
    process = start("director", "--config", copy.config, cwd=copy.folder)
    try:
        held = until(lambda: status(copy)["director"]["waits_for"].startswith("base_red: "), "a reason")
        assert held and process.poll() is None
        text = run("status", "--config", copy.config, cwd=copy.folder).out
        assert re.search(r"\n  waits: base_red: .*tried \d+ times, again within \d+ s\n", text)
    finally:
        run("stop", "--config", copy.config, cwd=copy.folder)
        if process.poll() is None:
            process.kill()
        process.communicate()
    assert status(copy)["director"]["waits_for"] == ""
