"""Which runtime runs the workers, said in one line."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from harness.compose.epoch import why
from harness.compose.errors import StartError
from harness.config.models import Config
from harness.core.result import Err, Ok, Result
from harness.failures import Failure
from harness.loop import SteadyClock
from harness.ports import Runtime, Tools

if TYPE_CHECKING:
    from harness.adapters.docker import DockerRuntime

LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})


def local(url: str) -> bool:
    return (urlsplit(url).hostname or "") in LOCAL_HOSTS or url.startswith("file:")


def pick_runtime(
    config: Config, data: Path, instance: str, clock: SteadyClock, env: Mapping[str, str]
) -> tuple[Runtime, str, str]:
    """The runtime, its name, and one line about it. `auto` is docker when an engine answers and an image is named;
    one that is there and does not answer now is no reason to run workers as processes, and the workers that run
    in it would count as gone."""
    wanted = config.containers.runtime
    if wanted in ("auto", "docker"):
        from harness.adapters.docker import DockerRuntime

        host = Path(config.containers.host_data_dir) if config.containers.host_data_dir else None
        docker = DockerRuntime(
            data=data, host_data=host, instance=instance, repo_key=config.forge.repo.lower(), clock=clock,
            docker_host=config.containers.docker_host or None,
        )  # fmt: skip
        probed = docker.probe()
        if isinstance(probed, Ok) and (config.containers.image or wanted == "docker"):
            return docker, "docker", probed.value
        if wanted == "docker" or (config.containers.image and silent(docker, probed)):
            raise StartError(
                f"no container engine answers: {why(probed)}; start one, or set containers.runtime"
            )
    from harness.adapters.process import ProcessRuntime

    if not local(config.forge.url) and not env.get("HARNESS_UNSAFE_PROCESS"):
        raise StartError(
            "containers.runtime: without a container engine workers are not isolated, and the forge is "
            "not local; install Docker, or set HARNESS_UNSAFE_PROCESS=1 when you trust every issue and "
            "every agent"
        )
    process = ProcessRuntime(data / "jobs", data=data, clock=clock)
    return process, "process", "workers run as processes and are NOT isolated"


def silent(docker: DockerRuntime, probed: Result[str]) -> bool:
    """Whether there is an engine, and it does not answer now."""
    return isinstance(probed, Err) and probed.failure == Failure.INFRA_ENGINE and docker.placed


def tools_of(runtime: str) -> Tools:
    if runtime == "docker":
        return Tools("/opt/harness/bin/python", "/opt/harness/app/harness", ("harness",))
    package = str(Path(__file__).parents[1])
    # -P: the working folder is the clone, and a project may well have a package of that name.
    return Tools(sys.executable, package, (sys.executable, "-P", "-m", "harness"))


def image_of(runtime: Runtime, config: Config, name: str) -> str:
    """The digest that the configured name stands for now; the name itself while it is not there."""
    found = runtime.image(config.containers.image)
    if isinstance(found, Ok):
        return found.value
    if name == "docker":
        raise StartError(why(found) or f"image {config.containers.image} is not there")
    return config.containers.image
