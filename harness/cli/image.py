"""`harness image`: make a worker image from any toolchain image, and check the one that is configured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from harness.cli.common import Failed, columns, config_option, emit, json_option, load_config

AGENTS = ("codex",)
SCRIPT = "scripts/build-image.sh"
PROBE = "import harness; print(harness.__version__)"
PROBE_S = 60.0


@click.group(help="Build or check the worker image.")
def command() -> None:
    pass


@command.command(
    help="A worker image from any that has git and Python 3.11 to 3.13. Run it in a clone of the harness."
)
@click.option(
    "--from",
    "base",
    metavar="IMAGE",
    default=None,
    help="The toolchain to start from (default: a small Debian).",
)
@click.option("--agent", type=click.Choice(AGENTS), default=None, help="Put this coding agent into it.")
@click.option(
    "--name",
    metavar="NAME:TAG",
    default=None,
    help="Its name (default: harness-worker:dev, or harness-worker:AGENT).",
)
@json_option
def build(base: str | None, agent: str | None, name: str | None, as_json: bool) -> int:
    script = Path(__file__).parents[2] / SCRIPT
    if not script.is_file():
        from harness import __version__

        raise Failed(
            "this is an installed harness, which has no build files: "
            f"run {SCRIPT} in a clone of version {__version__}"
        )
    given = [x for pair in (("--from", base), ("--agent", agent), ("--name", name)) if pair[1] for x in pair]
    done = subprocess.run(
        [str(script), *(str(x) for x in given)], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode == 2:
        return 2
    if done.returncode:
        raise Failed("the image was not built; what is said above names the reason")
    made = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""
    called = name or f"harness-worker:{agent or 'dev'}"
    emit(
        {"name": called, "id": made},
        as_json,
        f'{called} is {made[:19]}; now set containers.image = "{called}"',
    )
    return 0


@command.command(help="The configured worker image: its id, age, size and labels.")
@config_option
@json_option
def show(config: str | None, as_json: bool) -> int:
    attrs = _inspect(load_config(config))
    labels = (attrs.get("Config") or {}).get("Labels") or {}
    document = {
        "name": attrs["name"], "id": attrs["Id"], "created": attrs.get("Created", ""),
        "bytes": attrs.get("Size", 0), "labels": labels,
        "harness": labels.get("org.opencontainers.image.version", ""),
    }  # fmt: skip
    rows = [
        ("image", document["name"]), ("id", document["id"]), ("created", document["created"][:19]),
        ("size", f"{document['bytes'] >> 20} MiB"),
        ("harness", document["harness"] or "not built by `harness image build`"),
    ]  # fmt: skip
    emit(document, as_json, "\n".join(columns(rows, "")))
    return 0


@command.command(
    help="Start the configured image as a worker would be, and see whether the harness in it is this version."
)
@config_option
@json_option
def check(config: str | None, as_json: bool) -> int:
    from harness import __version__

    loaded = load_config(config)
    attrs = _inspect(loaded)
    there = _version_in(loaded, attrs["Id"])
    document = {"name": attrs["name"], "id": attrs["Id"], "harness": there, "ok": there == __version__}
    if not document["ok"]:
        what = f"has harness {there}, this is {__version__}" if there else "has no harness in /opt/harness"
        if as_json:
            emit(document, True)
            return 1
        raise Failed(f"image {attrs['name']} {what}: harness image build --from IMAGE makes a new one")
    emit(document, as_json, f"{attrs['name']} ({attrs['Id'][:19]}) has harness {there}")
    return 0


def _client(config: Any) -> Any:
    import os

    from harness.adapters import engine
    from harness.adapters.docker import DEFAULT_HOST

    host = config.containers.docker_host or os.environ.get("DOCKER_HOST") or DEFAULT_HOST
    return engine.sdk().DockerClient(base_url=host, timeout=int(PROBE_S))


def _inspect(config: Any) -> dict[str, Any]:
    """The engine's own words about the image. Raises Failed with what to do."""
    from harness.adapters import engine

    name = config.containers.image
    if not name:
        raise Failed("containers.image is not set: `harness image build --from IMAGE` makes one", 2)
    try:
        return {**_client(config).api.inspect_image(name), "name": name}
    except engine.sdk().errors.ImageNotFound as e:
        raise Failed(f"image {name} is not there: `harness image build --from IMAGE` makes one") from e
    except engine.errors() as e:
        raise Failed(f"no container engine answers: {' '.join(str(e).split())[:300]}") from e


def _version_in(config: Any, image: str) -> str:
    """What the harness inside says, started without network and as nobody; empty when it says nothing."""
    from harness.adapters import engine

    try:
        said = _client(config).containers.run(
            image, ["/opt/harness/bin/python", "-c", PROBE], network_mode="none", read_only=True, remove=True,
            user="65534:65534", cap_drop=["ALL"], security_opt=["no-new-privileges"],
            mem_limit="256m", pids_limit=64,
        )  # fmt: skip
    except engine.sdk().errors.ContainerError as e:
        print(f"harness image: {str(e)[:300]}", file=sys.stderr)
        return ""
    except engine.errors() as e:
        raise Failed(f"the image cannot be started: {' '.join(str(e).split())[:300]}") from e
    return str(said.decode("utf-8", "replace")).strip()
