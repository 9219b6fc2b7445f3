"""The demo on a forge with faults, as a process of its own: `python faulty_demo.py FOLDER SETTINGS.json`.

SETTINGS is {"faults": [rule, …], "config": {…} laid over the demo's, "protected": whether the default branch
takes pull requests with an approval only (the demo's person then approves the release's), "penalty_s": length
of a penalty that names no time}. It prints one JSON document: the demo's own, the forge's report, its rules
with how often each fired. The one rule: the demo's own code runs, with nothing in it replaced but the person.
"""

from __future__ import annotations

import json
import os
import sys
import time
import tomllib
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w
from director_world import merged

from harness.demo.result import result
from harness.demo.run import REPO, Demo

PROTECTION = {
    "required_pull_request_reviews": {"required_approving_review_count": 1},
    "enforce_admins": True,
    "required_status_checks": None,
    "restrictions": None,
}


@dataclass
class Protected(Demo):
    """A demo whose person also approves the release's pull request, once."""

    approved: bool = False

    def answer(self) -> None:
        due = time.monotonic() - self.looked >= 0.5
        super().answer()
        if due and not self.approved:
            try:
                pulls = self._call(f"/repos/{REPO}/pulls?state=open&base=main")
                for pull in pulls:
                    self._call(f"/repos/{REPO}/pulls/{pull['number']}/reviews", {"event": "APPROVE"})
                    self.approved = True
            except OSError:
                return  # a fault meant for somebody else; the next look comes soon


def protect(demo: Demo) -> None:
    request = urllib.request.Request(
        f"{demo.forge.url}/repos/{REPO}/branches/main/protection",
        data=json.dumps(PROTECTION).encode(),
        headers={"Authorization": f"Bearer {demo.state['bot']}"},
        method="PUT",
    )
    with urllib.request.urlopen(request, timeout=10) as reply:
        assert reply.status == 200


def play(folder: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    kind = Protected if settings.get("protected") else Demo
    began = time.monotonic()
    demo = kind(folder, "process", "", lambda text: print(text, file=sys.stderr, flush=True))
    demo.open()
    try:
        state = demo.forge.state
        state.settings = replace(state.settings, secondary_penalty_s=float(settings["penalty_s"]))
        if settings.get("protected"):
            protect(demo)
        path = folder / "harness.toml"
        path.write_text(tomli_w.dumps(merged(tomllib.loads(path.read_text()), settings["config"])))
        demo.forge.set_faults(*settings["faults"])
        running = demo.run()
        try:
            return {
                "demo": result(demo, running, time.monotonic() - began),
                "report": demo.forge.report(),
                "rules": demo.forge.faults.show(),
            }
        finally:
            running.close()
    finally:
        demo.close()


if __name__ == "__main__":
    document = play(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()))
    print(json.dumps(document))
    sys.exit(os.EX_OK if document["demo"]["ok"] else 1)
