"""`harness doctor`: one line each, with what to do; exit 1 for a problem, never for a warning."""

from __future__ import annotations

import json
import socket
import urllib.request

import pytest
from cli_world import run

from harness.forge import User, seed


def examined(demo, code: int, **more: str) -> dict[str, dict]:
    told = run("doctor", "--json", "--config", demo.config, cwd=demo.folder, **more)
    assert told.code == code, told.out + told.err
    assert told.json["ok"] is (code == 0)
    return {c["name"]: c for c in told.json["checks"]}


def test_all_is_well_enough(copy, forge):
    found = examined(copy, 0)
    assert {n for n, c in found.items() if c["level"] == "problem"} == set()
    assert found["config"]["text"] == f"{copy.config}, for acme/tally"
    assert found["engine"]["level"] == "warning" and "NOT isolated" in found["engine"]["text"]
    assert found["repository"]["level"] == "warning" and "admin" in found["repository"]["text"]
    assert found["protection"]["text"].startswith("main is not protected")
    assert found["director"]["text"] == "none is running"


def test_people_get_lines(copy, forge):
    told = run("doctor", "--config", copy.config, cwd=copy.folder)
    assert told.code == 0
    lines = told.out.splitlines()
    assert lines[0] == f"ok       config     {copy.config}, for acme/tally"
    assert lines[-1].startswith("no problems, ")


def test_a_broken_file_hides_nothing_else(copy):
    copy.config.write_text("[director]\nmax_worker = 2\n")
    found = examined(copy, 1)
    assert found["config"]["text"].endswith("unknown key; did you mean max_workers?")
    assert "git" in found


def test_a_token_that_is_not_set(copy):
    copy.change(forge={"token_file": "", "token_env": "NO_SUCH_TOKEN"})
    found = examined(copy, 1)
    assert found["credential"]["level"] == "problem"
    assert "NO_SUCH_TOKEN" in found["credential"]["text"] and found["credential"]["do"]


@pytest.mark.parametrize(
    ("scopes", "level", "words"),
    (
        ("repo", "ok", "scopes repo"),
        ("repo,workflow", "warning", "more than is needed: workflow"),
        ("admin:org,repo", "warning", "more than is needed: admin:org"),
        ("gist", "problem", "do not reach repositories"),
    ),
)
def test_the_scopes_of_the_token(scopes, level, words, copy, forge):
    seed(copy.folder / "forge", users=[User("scoped", "a" * 40, scopes=scopes)])
    (copy.folder / "token").write_text("a" * 40)
    found = examined(copy, 1)  # nobody gave it a role in the repository
    assert found["credential"]["level"] == level
    assert words in found["credential"]["text"]
    assert found["repository"]["level"] == "problem" and "needs write" in found["repository"]["text"]


def call(forge, demo, method: str, path: str, body: dict) -> None:
    token = json.loads((demo.folder / "demo.json").read_text())["bot"]
    request = urllib.request.Request(
        forge.url + path, json.dumps(body).encode(), {"Authorization": f"Bearer {token}"}, method=method
    )
    with urllib.request.urlopen(request, timeout=10):
        return


def test_a_merge_method_that_the_repository_forbids(copy, forge):
    """Found here, not at night in a loop of refusals."""
    call(
        forge, copy, "PATCH", "/repos/acme/tally", {"allow_merge_commit": False, "allow_rebase_merge": False}
    )
    found = examined(copy, 1)
    assert found["merging"]["text"] == "release.merge_method is merge, acme/tally allows only squash"
    assert found["merging"]["do"] == 'set release.merge_method = "squash"'


def test_protection_that_wants_a_person(copy, forge):
    rules = {"required_pull_request_reviews": {"required_approving_review_count": 1},
             "required_status_checks": {"strict": False, "contexts": ["ci"]}}  # fmt: skip
    call(forge, copy, "PUT", "/repos/acme/tally/branches/main/protection", rules)
    found = examined(copy, 0)
    assert found["protection"]["level"] == "warning"
    assert (
        found["protection"]["text"]
        == "main is protected: 1 approving review; checks ci; release.merge is auto"
    )


def test_an_image_that_is_not_there(copy, forge, engine):
    """Shown before any issue is claimed."""
    copy.change(containers={"runtime": "docker", "image": "harness-worker:nowhere"})
    found = examined(copy, 1)
    assert found["engine"]["level"] in ("ok", "warning") and found["engine"]["text"].startswith("docker ")
    if "live-restore off" in found["engine"]["text"]:
        assert "live-restore" in found["engine"]["do"]
    assert found["image"]["level"] == "problem" and "harness-worker:nowhere" in found["image"]["text"]


def test_a_port_in_use(copy, forge):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        copy.change(gateway={"listen": f"127.0.0.1:{taken.getsockname()[1]}"})
        assert examined(copy, 1)["port"]["level"] == "problem"


def test_a_disk_with_too_little_room(copy, forge):
    copy.change(director={"min_free": "1000t"})
    assert "are needed to start work" in examined(copy, 1)["disk"]["text"]


def test_a_model_without_key_or_cap(copy, forge):
    copy.change(budget={"model": {"upstream": forge.url, "key_env": "NO_SUCH_KEY"}})
    assert "NO_SUCH_KEY" in examined(copy, 1)["model"]["text"]
    assert examined(copy, 0, NO_SUCH_KEY="k")["model"]["level"] == "warning"


def test_it_changes_nothing(copy, forge):
    store = copy.folder / "data/store.db"
    before = (forge.dump(), store.read_bytes())
    examined(copy, 0)
    assert (forge.dump(), store.read_bytes()) == before
