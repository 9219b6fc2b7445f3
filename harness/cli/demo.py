"""`harness demo`: watch a release being made."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import click

from harness.cli.common import Failed, emit, json_option

IMAGE = "harness-worker:dev"


@click.command(help="A release with five issues on a small project: no token, no model key, no network.")
@click.option(
    "--runtime", type=click.Choice(["auto", "docker", "process"]), default="auto", show_default=True
)
@click.option(
    "--keep", metavar="DIR", default=None, help="Use this folder, and go on with the demo that is in it."
)
@click.option("--image", default=IMAGE, show_default=True, help="Worker image for --runtime docker.")
@click.option(
    "--crash",
    is_flag=True,
    help="Kill it at random moments, go on each time, compare with an undisturbed run.",
)
@click.option("--kills", default=6, show_default=True, help="How often --crash kills.")
@click.option("--seed", default=None, type=int, help="Seed of --crash; a new one each time when not given.")
@json_option
def command(
    runtime: str, keep: str | None, image: str, crash: bool, kills: int, seed: int | None, as_json: bool
) -> int:
    chosen, why = choose(runtime, image)
    click.echo(f"harness demo: {why}", err=True)
    folder = Path(keep).absolute() if keep else Path(tempfile.mkdtemp(prefix="harness-demo-"))
    if crash:
        from harness.demo.crash import crash_run

        return crash_run(folder, chosen, image, kills, seed, as_json)
    return play(folder, chosen, image, as_json)


def choose(runtime: str, image: str) -> tuple[str, str]:
    """Docker when an engine answers and the image is there, else processes: said in one line."""
    if runtime == "process":
        return "process", "workers run as processes: NOT isolated (fine here, the demo's agent is scripted)"
    from harness.adapters.docker import DockerRuntime
    from harness.core.result import Err, Ok
    from harness.loop import SteadyClock

    docker = DockerRuntime(
        data=Path("/nonexistent"), instance="demo", repo_key="acme/tally", clock=SteadyClock()
    )
    probed = docker.probe()
    found = docker.image(image) if isinstance(probed, Ok) else probed
    if isinstance(found, Ok):
        return "docker", f"workers run in hardened containers of {image}"
    reason = found.detail if isinstance(found, Err) else "no answer"
    if runtime == "docker":
        raise Failed(f"docker cannot be used: {reason}")
    return "process", f"workers run as processes, NOT isolated, because docker cannot be used: {reason}"


def play(folder: Path, runtime: str, image: str, as_json: bool) -> int:
    import os

    from harness.demo.crash import boundary
    from harness.demo.result import result
    from harness.demo.run import Demo

    began = time.monotonic()

    def say(text: str) -> None:
        click.echo(f"{time.monotonic() - began:6.1f} s  {text}", err=True)

    demo = Demo(folder, runtime, image if runtime == "docker" else "", say, boundary(os.environ))
    demo.open()
    try:
        running = demo.run()
        try:
            document = result(demo, running, time.monotonic() - began)
        finally:
            running.close()
    except KeyboardInterrupt:
        click.echo(f"harness demo: stopped; go on with: harness demo --keep {folder}", err=True)
        return 130
    finally:
        demo.close()
    emit(document, as_json, prose(document))
    return 0 if document["ok"] else 1


def prose(d: dict[str, object]) -> str:
    release: dict[str, object] = d["release"]  # type: ignore[assignment]
    deferred: list[dict[str, object]] = release["deferred"]  # type: ignore[assignment]
    landed = ", ".join(f"#{n}" for n in release["landed"])  # type: ignore[attr-defined]
    lines = [
        "",
        f"Released {release['tag']} at {str(release['main_sha'])[:12]} on main: {landed}.",
        *(f"Not in it: #{x['issue']}: {x['reason']}" for x in deferred),
        f"Evidence: {d['data']}/audits (harness audit list --audits {d['data']}/audits)",
        f"Forge:    {d['data']}/forge",
    ]
    left: list[str] = d["left_over"]  # type: ignore[assignment]
    if left:
        lines.append(f"Left over, and should not be: {', '.join(left)}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(command())
