"""A director that dies with `kill -9` again and again: its successors adopt what runs and end the release."""

from __future__ import annotations

import pytest
from demo_world import bundles, done, events, journals, left_over, store_of
from scenes import DOCKER_KILLS, PROCESS_KILLS, Chain, Played

from harness.audit.replay import replay_bundle, replay_store
from harness.audit.verify import verify_audits, verify_store
from harness.demo.crash import compare, world

CHAINS = {"crashed_process_demo": "process", "crashed_docker_demo": "docker"}


@pytest.fixture(
    params=["crashed_process_demo", pytest.param("crashed_docker_demo", marks=pytest.mark.docker)]
)
def chain(request: pytest.FixtureRequest) -> Chain:
    found: Chain = request.getfixturevalue(request.param)
    assert found.finished.code == 0, found.finished.told[-4000:]
    return found


def _runtime(chain: Chain) -> str:
    return str(chain.finished.document["runtime"])


def test_it_was_killed_as_often_as_planned_and_ends_the_release(chain: Chain) -> None:
    planned = PROCESS_KILLS if _runtime(chain) == "process" else DOCKER_KILLS
    assert chain.kills == len(planned)
    d = chain.finished.document
    assert (d["ok"], set(d["release"]["landed"]), len(d["release"]["deferred"])) == (True, {1, 2, 4, 5}, 1)
    assert left_over(chain.folder, _runtime(chain)) == []


def test_the_world_is_that_of_an_undisturbed_run(chain: Chain, process_demo: Played) -> None:
    assert compare(world(process_demo.folder), world(chain.folder)) == []


def test_workers_outlive_their_director_and_are_adopted(chain: Chain) -> None:
    assert any(chain.at_kill), "no kill found a worker at work"
    assert {n: len(lives) for n, lives in chain.lives.items() if len(lives) > 1} == {}
    adopted = {n for r in journals(chain.folder, "/director/").values() for n in _adopted(r)}
    assert {n for names in chain.at_kill for n in names} & adopted
    for machine, records in journals(chain.folder, "/attempt/").items():
        assert "infra_lost" not in events(records), machine
        assert len(done(records, "StartWorker")) == 1, machine


def _adopted(records: tuple[object, ...]) -> list[str]:
    notes = [r.body.get("note", {}) for r in records]  # type: ignore[attr-defined]
    return [name for n in notes for name in n.get("adopted", ())]


def test_each_start_is_an_epoch_and_every_journal_verifies(chain: Chain) -> None:
    epochs = sorted(int(m.rsplit("/", 1)[1]) for m in journals(chain.folder, "/director/"))
    assert len(epochs) > chain.kills // 2 and epochs == sorted(set(epochs))
    assert verify_audits(chain.folder / "audits") == []
    assert {b.name: [str(d) for d in replay_bundle(b)] for b in bundles(chain.folder)} == {
        b.name: [] for b in bundles(chain.folder)
    }
    with store_of(chain.folder) as store:
        assert verify_store(store) == []
        assert [str(d) for d in replay_store(store)] == []
