"""A forge's odd answers, while a director works: each changes what it must and nothing else.

The one rule: the forge is the real embedded one with its fault plans, what a person does goes over its HTTP, and
only what is on it, in journals and in bundles afterwards is looked at.
"""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from demo_world import (
    Finished,
    Stage,
    bare_of,
    bundles,
    done,
    events,
    git,
    journals,
    left_over,
    terminate,
    wait_for,
)
from director_world import BOT, PERSON, World

from harness.core.journal import posix
from harness.demo.run import REPO
from harness.forge.state import hash_token

LONG, DELETED, LOCKED, EMPTY, RELABELLED, GOOD = range(1, 7)
TITLES = ("Tell much", "Be deleted", "Be locked", "Change nothing but history", "Lose a label", "Behave")
SAID = "All done. ```python\nprint('open fence')\n" + "x\N{GRINNING FACE}" * 60_000
SECOND = "5ec0" * 10
TOO_LONG = 65_536
AGENT = f"""
wait_go() {{ until [ -e MARKS/go ]; do echo waits; sleep 0.2; done; }}
touch MARKS/$HARNESS_ISSUE
case $HARNESS_ISSUE in
{LONG}) echo long >long.txt; cp MARKS/said.json "$HARNESS_RESULT_FILE" ;;
{DELETED}) echo half >half.txt; while :; do echo on; sleep 0.3; done ;;
{EMPTY}) git -c user.name=a -c user.email=a@a.example commit -q --allow-empty -m nothing ;;
*) echo x >f$HARNESS_ISSUE.txt; wait_go ;;
esac
"""
# What was made just now is not there yet, twice; lists lag; one answer in a while is lost.
ODD = (
    {
        "match": "^POST .*/(pulls|labels|releases|comments)$",
        "kind": "not-found-after-create",
        "times": 0,
        "n": 2,
    },
    {"match": "^POST .*/pulls$", "kind": "status-before", "status": 504, "times": 1},
    {"match": "^POST .*/pulls$", "kind": "drop-after", "times": 1, "skip": 1},
    {"match": "^GET .*/issues$", "kind": "status-before", "status": 502, "times": 1, "skip": 3},
)


def call(world: World, method: str, path: str, body: Any = None, token: str = PERSON) -> Any:
    request = urllib.request.Request(
        f"{world.forge.url}/repos/{REPO}{path}", method=method,
        data=None if body is None else json.dumps(body).encode(), headers={"Authorization": f"Bearer {token}"},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=10) as reply:
        raw = reply.read()
    return json.loads(raw) if raw else None


def requests(world: World, since: float, path: str, method: str = "%") -> int:
    sql = "SELECT count(*) AS n FROM requests WHERE at > ? AND method LIKE ? AND path LIKE ?"
    with world.forge.state.lock:
        return int(world.forge.state.db.one(sql, since, method, path)["n"])


@dataclass
class Night:
    world: World
    ended: Finished
    deleted_at: float
    repo: dict[str, Any]
    attempts: dict[str, Any]
    limited: dict[str, Any] = field(default_factory=dict)

    def ticket(self, number: int) -> str:
        return str(next(t["state"] for t in self.ended.document["tickets"] if t["issue"] == number))


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    folder = tmp_path_factory.mktemp("api")
    marks = folder / "marks"
    marks.mkdir()
    (marks / "said.json").write_text(json.dumps({"status": "done", "message": SAID}))
    config = {
        "director": {"max_workers": 6, "max_retries": 1, "max_attempts": 1},
        "agent": {
            "kind": "command", "command": ["sh", "-c", AGENT.replace("MARKS", str(marks)).replace("$", "$$")],
        },
        "validation": {"commands": ["true"]},
        "timeouts": {"worker_heartbeat_ttl_seconds": 20},
    }  # fmt: skip
    stage = Stage(folder)
    with World(
        stage, folder / "world", "process", TITLES, config=config, env={"TZ": "Pacific/Auckland"}
    ) as world:
        call(world, "POST", "/labels", {"name": "Harness:Working", "color": "ededed"})
        world.forge.set_faults(*ODD)
        director = world.start("director", "--until-idle", "--json")
        wait_for(lambda: len(list(marks.glob("[1-6]"))) == 6, 90, "all agents are at it")
        world.forge.delete_issue(REPO, DELETED)
        deleted_at = time.time()
        call(world, "PUT", f"/issues/{LOCKED}/lock", {"lock_reason": "resolved"})
        call(world, "PATCH", "/labels/Harness%3AWorking", {"new_name": "somebody:working"})
        _new_token(world)
        (marks / "go").touch()
        ended = director.end(150)
        repo = world.repo()
        found = {m.rsplit("/", 1)[1]: r for m, r in journals(world.folder, "/attempt/").items()}
        yield Night(world, ended, deleted_at, repo, found)
    stage.close()


def _new_token(world: World) -> None:
    """The token that the director has is refused from now on; what its file holds is another one."""
    state = world.forge.state
    with state.lock, state.db.transaction():
        state.db.run(
            "INSERT INTO tokens (hash, user_id, cap, kind, scopes, expires_at) "
            "SELECT ?, user_id, cap, kind, scopes, expires_at FROM tokens WHERE hash = ?",
            hash_token(SECOND), hash_token(BOT),
        )  # fmt: skip
    (world.folder / "token").write_text(SECOND)
    world.forge.revoke(BOT)


def test_the_night_ends_and_what_can_be_done_is_released(night: Night) -> None:
    assert night.ended.code == 0, night.ended.told[-4000:]
    assert "Traceback" not in night.ended.told
    for number in (LONG, RELABELLED, GOOD):
        assert night.ticket(number) == "RELEASED", night.world.comments(number)
    heads = Counter(p["head_ref"] for p in night.repo["pulls"])
    assert set(heads.values()) == {1} and f"agent/{EMPTY}" not in heads and f"agent/{DELETED}" not in heads
    keys = Counter(
        (c["issue"], k) for c in night.repo["comments"] for k in re.findall(r"key=(\S+)", c["body"])
    )
    assert [k for k, n in keys.items() if n > 1] == []
    assert left_over(night.world.folder, "process") == []


def test_every_agent_ran_once_whatever_the_forge_said(night: Night) -> None:
    assert sorted(night.attempts) == [f"{n}.1" for n in range(1, 7)]
    for code, records in night.attempts.items():
        assert len(done(records, "StartWorker")) == 1, code


def test_a_long_report_is_cut_where_people_read_it_and_whole_in_the_evidence(night: Night) -> None:
    (pull,) = [p for p in night.repo["pulls"] if p["head_ref"] == f"agent/{LONG}"]
    body = call(night.world, "GET", f"/pulls/{pull['number']}")["body"]
    texts = [body, *night.world.comments(LONG)]
    assert all(len(text) <= TOO_LONG - 536 for text in texts)
    assert f"#{LONG}" in texts[0]
    for text in texts:
        assert len(re.findall(r"(?m)^ {0,3}```", text)) % 2 == 0
    (bundle,) = [b for b in bundles(night.world.folder) if b.name.endswith(f"-{LONG}.1")]
    kept = sum(p.read_bytes().count("\N{GRINNING FACE}".encode()) for p in bundle.rglob("*") if p.is_file())
    shown = b"".join(p.read_bytes() for p in bundle.rglob("*") if p.is_file()).count(b"\\ud83d\\ude00")
    assert kept + shown > 10_000, "the report is nowhere whole"


def test_an_issue_that_is_deleted_ends_its_worker_and_is_asked_for_no_more(night: Night) -> None:
    assert night.ticket(DELETED) == "GONE"
    records = night.attempts[f"{DELETED}.1"]
    assert events(records)[-3:] == ["stop", "harvested", "clean"]
    (stop,) = [r for r in records if r.body.get("event") == "stop"]
    assert stop.at - night.deleted_at < 60
    (bundle,) = [b for b in bundles(night.world.folder) if b.name.endswith(f"-{DELETED}.1")]
    assert b"half.txt" in (bundle / "patches" / "harvest.patch").read_bytes()
    asked = requests(night.world, records[-1].at + 2, f"%/issues/{DELETED}%")
    assert asked <= 2, "a deleted issue is asked for again and again"


def test_a_locked_conversation_costs_a_word_and_nothing_else(night: Night) -> None:
    assert night.ticket(LOCKED) == "RELEASED"
    assert f"f{LOCKED}.txt" in git(bare_of(night.world.folder), "ls-tree", "-r", "--name-only", "main")
    tried = requests(night.world, night.deleted_at, f"%/issues/{LOCKED}/comments", "POST")
    assert tried <= 6, "a refused comment is sent again and again"


def test_history_without_a_change_is_no_work(night: Night) -> None:
    assert night.ticket(EMPTY) == "BLOCKED"
    assert "without changing anything" in "\n".join(night.world.comments(EMPTY))


def test_a_label_that_is_there_in_another_case_is_used_and_one_that_is_renamed_is_made_again(
    night: Night,
) -> None:
    names = Counter(label["name"].lower() for label in night.repo["labels"])
    assert names["somebody:working"] == 1 and set(names.values()) == {1}
    for number in (LONG, RELABELLED, GOOD):
        assert night.world.issue(number)["state"] == "closed"


def test_a_new_token_is_used_and_stands_nowhere(night: Night) -> None:
    for path in night.world.folder.rglob("*"):
        if (
            path.is_file()
            and path.name != "token"
            and "forge" not in path.relative_to(night.world.folder).parts
        ):
            raw = path.read_bytes()
            assert SECOND.encode() not in raw and BOT.encode() not in raw, path
    assert SECOND not in night.ended.told and BOT not in night.ended.told


def test_times_are_told_with_their_zone(night: Night) -> None:
    for bundle in bundles(night.world.folder):
        for name in ("attempt.jsonl", "journal.jsonl"):
            at = [json.loads(line)["at"] for line in (bundle / name).read_bytes().splitlines()]
            assert all(re.search(r"(Z|[+-]\d\d:\d\d)$", x) for x in at), bundle
            assert all(abs(posix(x) - night.deleted_at) < 600 for x in at)


def test_a_quota_that_is_used_up_stops_no_worker_and_no_end(tmp_path: Path) -> None:
    """The forge's quota is used up for 24 minutes."""
    stage = Stage(tmp_path)
    script = f"touch {tmp_path}/on; until [ -e {tmp_path}/go ]; do echo on; sleep 0.2; done; echo x >x.txt"
    config = {
        "agent": {"kind": "command", "command": ["sh", "-c", script]},
        "validation": {"commands": ["true"]},
    }
    with World(stage, tmp_path / "world", "process", ["Do it"], config=config) as world:
        director = world.start("director", "--json")
        wait_for((tmp_path / "on").exists, 60, "the agent is at it")
        rule = {
            "match": "^(GET|POST|PATCH|PUT) /repos/",
            "kind": "primary-limit",
            "times": 0,
            "reset_s": 1465,
        }
        world.forge.set_faults(rule)

        def limited() -> dict[str, Any] | None:
            found = json.loads(world.run("status", "--json").out)
            return found if found.get("limited") else None

        status = wait_for(limited, 60, "the limit is told")
        assert "rate limited until" in world.run("status").out
        left = max(x["left_s"] for x in status["limited"])
        assert 1200 < left < 1560
        began = time.time()
        time.sleep(4)
        assert requests(world, began, "/repos/%") <= 1, "asked while limited"
        assert list(world.states("/attempt/").values()) == ["RUNNING"]
        assert terminate(director, 30) < 15 and director.process.returncode == 0
        assert "Traceback" not in director.told()
    stage.close()
