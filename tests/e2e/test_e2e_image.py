"""Images and memory: a worker moves to a newer image at its next checkpoint, and what does not fit is told."""

from __future__ import annotations

import pytest
from demo_world import bundles, done, events, journals, left_over
from worlds import Starved, Upgraded

from harness.audit.replay import replay_bundle
from harness.audit.verify import verify_bundle
from harness.core.journal import read


@pytest.fixture
def upgraded(upgrade: Upgraded) -> Upgraded:
    assert upgrade.finished.code == 0, upgrade.finished.told[-4000:]
    return upgrade


@pytest.mark.docker
def test_it_leaves_with_75_and_goes_on_in_the_new_image(upgraded: Upgraded) -> None:
    working, ended = upgraded.first
    assert upgraded.old != upgraded.new
    assert working["Image"] == ended["Image"] == upgraded.old and working["Id"] == ended["Id"]
    assert (ended["State"]["Running"], ended["State"]["ExitCode"]) == (False, 75)
    assert upgraded.second["Image"] == upgraded.new and upgraded.second["State"]["Running"]


@pytest.mark.docker
def test_clone_home_and_journal_are_the_same(upgraded: Upgraded) -> None:
    first, second = (
        {m["Destination"]: m["Source"] for m in c["Mounts"]} for c in (upgraded.first[0], upgraded.second)
    )
    for place in ("/workspace", "/home/agent", "/audit"):
        assert first[place] == second[place]
    assert upgraded.note == "from the first incarnation"
    (bundle,) = [b for b in bundles(upgraded.folder) if b.name.endswith("-2.1")]
    records, fault = read((bundle / "journal.jsonl").read_bytes())
    assert fault is None and {r.epoch for r in records} == {1, 2}
    assert verify_bundle(bundle) == [] and replay_bundle(bundle) == []
    assert {"kept.txt", "two.txt", "one.txt"} <= set(upgraded.tree)


@pytest.mark.docker
def test_one_digest_is_one_upgrade_of_one_attempt(upgraded: Upgraded) -> None:
    attempts = {m.rsplit("/", 1)[1]: r for m, r in journals(upgraded.folder, "/attempt/").items()}
    assert sorted(attempts) == ["1.1", "2.1"]
    assert events(attempts["2.1"]).count("upgrade") == 1 and "infra_lost" not in events(attempts["2.1"])
    assert [v["image"] for v in done(attempts["2.1"], "StartWorker")] == [upgraded.old, upgraded.new]
    assert len(done(attempts["1.1"], "StartWorker")) == 1


@pytest.mark.docker
def test_each_is_in_the_release_that_it_was_ready_for(upgraded: Upgraded) -> None:
    assert upgraded.cut.code == 0, upgraded.cut.told
    assert [r["tag_name"] for r in upgraded.repo["releases"]] == ["v0.1.0", "v0.2.0"]
    assert all(i["state"] == "closed" for i in upgraded.repo["issues"])
    assert [p["base_ref"] for p in upgraded.repo["pulls"] if p["head_ref"] == "agent/2"] == ["release/0.2.0"]
    assert left_over(upgraded.folder, "docker") == []


@pytest.mark.docker
@pytest.mark.parametrize("who", ["worker", "agent"])
def test_too_little_memory_is_told_as_that(starved: Starved, who: str) -> None:
    ended = starved.worker if who == "worker" else starved.agent
    assert ended.code == 0, ended.told[-4000:]
    (ticket,) = ended.document["tickets"]
    assert ticket["state"] == "BLOCKED", ended.out
    assert "memory limit was reached" in starved.comments[who]
    assert "containers.memory" in starved.comments[who]
    failures = {r.body["note"]["failure"] for r in starved.reasons[who] if r.body.get("event") == "exited"}
    assert failures == {"oom"}


@pytest.mark.docker
def test_what_was_done_before_the_memory_ran_out_is_kept(starved: Starved) -> None:
    assert starved.patches["agent"] and all("half.txt" in p for p in starved.patches["agent"])
    assert starved.patches["worker"] == []
