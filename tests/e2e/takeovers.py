"""Containers that are taken over where the director's store is lost, and one that nobody can take over.

The one rule: as in `worlds`: played once a session, it tells what it saw; the tests say what must be.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo_world import Finished, Stage, docker, wait_for
from director_world import World

WORK = """
touch "$HOME/works"
while [ ! -e "$HOME/go" ]; do sleep 0.2; done
echo $HARNESS_ISSUE >work$HARNESS_ISSUE.txt
"""


@dataclass
class LostInDocker:
    """Two workers at work when the director was killed: one lives on, the other's container was removed.
    `before` and `after` are ids of containers by name, around the loss of the store."""

    folder: Path
    before: dict[str, str]
    after: dict[str, str]
    told: Finished
    last: Finished
    repo: dict[str, Any]


def lost_in_docker(stage: Stage) -> LostInDocker:
    config = {
        "director": {"max_infra_retries": 1},
        "agent": {"kind": "command", "command": ["sh", "-c", WORK.replace("$", "$$")]},
    }
    titles, image = ["Live on", "Be removed"], stage.images["dev"]
    with World(stage, stage.folder / "world", "docker", titles, config=config, image=image) as w:
        first = w.start("director")
        homes = [w.folder / "data" / "attempts" / f"{n}.1" / "home" for n in (1, 2)]
        wait_for(lambda: all((h / "works").exists() for h in homes), 200, "two agents at work")
        first.kill()
        before = {n: i for n, i in w.live().items() if n.endswith("-i1")}
        docker("rm", "-f", next(i for n, i in before.items() if "-2-1-" in n))
        for path in (w.folder / "data").glob("store.db*"):
            path.unlink()
        told = w.run("rebuild", "--json")
        second = w.start("director", "--until-idle", "--json")
        audits = w.folder / "audits"
        wait_for(lambda: list(audits.glob("*-2.1")), 200, "the removed worker's attempt is sealed")
        after = {n: i for n, i in w.live().items() if n.endswith("-i1")}
        (homes[0] / "go").touch()
        last = second.end()
        return LostInDocker(w.folder, before, after, told, last, w.repo())
