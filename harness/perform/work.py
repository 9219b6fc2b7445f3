"""Effects inside a worker's container: its own clone, the agent's and the validation's runs,
and its requests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import effects as fx
from harness.core.result import Ok, Result
from harness.domain import Job
from harness.failures import Failure
from harness.perform import jobs, places
from harness.perform.outcome import Outcome, from_result
from harness.ports import Brief, World
from harness.texts.prompts import prompt

RUNS = "runs"


def _brief(world: World) -> Mapping[str, Any]:
    assert world.brief is not None
    return world.brief


def sync(e: fx.Sync, world: World) -> Outcome:
    assert world.clone is not None
    return from_result(world.clone.sync(e.base), world.clock.now(), dict)


def load_context(e: fx.LoadContext, world: World) -> Outcome:
    text, hidden = prompt(_brief(world))
    places.write(world.data / "ledger" / "prompt.md", world.redact(text).encode())
    return Outcome.done({"bytes": len(text.encode()), "hidden": hidden})


def start_agent(e: fx.StartAgent, world: World) -> Outcome:
    """The prompt goes by standard input or a file, never in an argument: those are limited and visible."""
    assert world.runtime is not None and world.agents is not None
    there = world.runtime.status(e.run)
    if isinstance(there, Ok) and there.value is not None:
        return Outcome.done({"adopted": True})
    brief = _brief(world)
    agent = world.agents.get(e.agent)
    if agent is None:
        return Outcome.failed(Failure.CONFIG_INVALID, f"no agent is called {e.agent}")
    feedback = e.feedback or brief.get("feedback", "")
    text, _ = prompt({**brief, "feedback": feedback, "conflicts": list(e.conflicts)})
    home = Path(brief["home"])
    launch = agent.build(
        Brief(
            run=e.run, prompt=text, workspace=brief["workspace"], home=str(home), model_url=world.model_url,
            issue=int(brief.get("issue", 0)), round=e.round + int(brief.get("round_offset", 0)),
            model=str(brief.get("model", "")), session=e.session, command=tuple(brief.get("command", ())),
            env={**brief.get("agent_env", {}), "HARNESS_ATTEMPT": str(brief.get("attempt", ""))},
        )
    )  # fmt: skip
    for name, content in launch.files.items():
        places.write(home / name, content.encode())
    places.write(world.data / "ledger" / f"{e.run}.prompt.md", world.redact(text).encode())
    job = Job(
        name=e.run, argv=launch.argv, role="agent", env=dict(launch.env), workdir=brief["workspace"],
        stdin=launch.stdin, limits=jobs.limits(world),
    )  # fmt: skip
    gaps = world.gaps()
    return from_result(world.runtime.start(job), world.clock.now(), lambda _: {"gaps": gaps})


def start_validation(e: fx.StartValidation, world: World) -> Outcome:
    assert world.runtime is not None and world.tools is not None
    there = world.runtime.status(e.run)
    if isinstance(there, Ok) and there.value is not None:
        return Outcome.done({"adopted": True})
    folder = world.data / RUNS / e.run
    places.write(folder / "commands.json", json.dumps(list(e.commands)).encode())
    argv = jobs.commands_argv(world.tools, str(folder / "result.json"), str(folder / "commands.json"))
    env = {
        "HOME": "/tmp",
        "HARNESS_PREPARED": str(_brief(world).get("prepared", "")),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    job = Job(
        name=e.run,
        argv=argv,
        role="gate",
        env=env,
        workdir=_brief(world)["workspace"],
        limits=jobs.limits(world),
    )
    return from_result(world.runtime.start(job), world.clock.now(), lambda _: {})


def commit(e: fx.Commit, world: World) -> Outcome:
    assert world.clone is not None
    return from_result(world.clone.commit(e.message, e.author, e.at, e.base_sha), world.clock.now(), dict)


def save_work(e: fx.SaveWork, world: World) -> Outcome:
    assert world.clone is not None
    return from_result(world.clone.save(e.name, _brief(world)["base_sha"]), world.clock.now(), dict)


def request(e: fx.Request, world: World) -> Outcome:
    """Ask, or look for the answer to what was asked before. A publish hands its bundle over first."""
    assert world.bus is not None
    args = dict(e.args)
    if e.kind == "publish":
        assert world.clone is not None
        handed = _hand_over(args["sha"], args["base_sha"], world)
        if not isinstance(handed, Ok):
            return from_result(handed, world.clock.now())
        args["bundle"] = handed.value
    answer = world.bus.request(e.name, e.kind, args)
    return from_result(answer, world.clock.now(), dict)


def _hand_over(sha: str, base_sha: str, world: World) -> Result[str]:
    """The bundle, made and uploaded once; asking again for the answer does not send it again."""
    known = world.store.get(f"uploaded/{sha}")
    if known:
        return Ok(str(known))
    assert world.clone is not None and world.bus is not None
    handed = world.clone.bundle(sha, base_sha).bind(world.bus.upload)
    if isinstance(handed, Ok):
        world.store.put(f"uploaded/{sha}", handed.value)
    return handed


def leave(e: fx.Exit, world: World) -> Outcome:
    """Already done where this process runs in the image that was left for: the one before it was ended
    between leaving and writing that down."""
    assert world.leave is not None
    if e.why and e.why == _brief(world).get("image"):
        return Outcome.done({"already": True})
    world.leave(e.code)
    return Outcome.done({})
