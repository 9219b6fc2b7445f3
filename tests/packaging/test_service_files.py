"""The system service, the compose file and the Dockerfiles say what the design promises."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from typing import Any

import pytest
import yaml
from checkout import CHECKOUT

UNIT = CHECKOUT / "docker" / "harness.service"
COMPOSE = CHECKOUT / "docker" / "compose.yaml"


def unit_settings() -> dict[str, list[str]]:
    """`Section.Key` to its values; a key may stand more than once."""
    found: dict[str, list[str]] = defaultdict(list)
    section = ""
    for line in UNIT.read_text().splitlines():
        if head := re.fullmatch(r"\[(\w+)\]", line):
            section = head.group(1)
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found[f"{section}.{key}"].append(value)
    return found


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("Service.Type", "notify"),
        ("Service.WatchdogSec", "60"),
        ("Service.KillMode", "process"),  # workers outlive the director
        ("Service.KillSignal", "SIGTERM"),
        ("Service.Restart", "on-failure"),
        ("Service.RestartPreventExitStatus", "2 4"),  # configuration; another director
        ("Service.RuntimeDirectoryPreserve", "yes"),  # so do their sockets
        ("Service.NoNewPrivileges", "yes"),
        ("Service.ProtectSystem", "strict"),
        ("Service.ProtectHome", "yes"),
        ("Service.CapabilityBoundingSet", ""),
        ("Service.UMask", "0077"),
    ],
)
def test_the_service_says(key: str, value: str) -> None:
    assert unit_settings()[key] == [value]


def test_the_service_gets_secrets_as_files_only() -> None:
    settings = unit_settings()
    assert any(value.startswith("github_token:/") for value in settings["Service.LoadCredential"])
    assert not any(re.search("TOKEN|KEY|SECRET", value) for value in settings["Service.Environment"])


def test_systemd_reads_the_service_without_complaint() -> None:
    if not (tool := shutil.which("systemd-analyze")):
        return  # its keys and values are compared above wherever there is no systemd
    done = subprocess.run([tool, "verify", str(UNIT)], capture_output=True, text=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if "harness.service" in line]
    # Only the program itself is not installed where the tests run.
    assert all("is not executable" in line for line in complaints), complaints


def director() -> dict[str, Any]:
    service: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]["director"]
    return service


def test_compose_starts_one_director_without_privilege() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    assert list(services) == ["director"]
    service = director()
    assert "privileged" not in service
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service["user"].startswith("0")
    assert service["restart"].startswith("on-failure")


def test_compose_mounts_data_where_the_engine_finds_it_too() -> None:
    mounts = {mount["target"]: mount for mount in director()["volumes"]}
    for name in ("HARNESS_DATA", "HARNESS_RUNTIME"):
        target = next(target for target in mounts if name in target)
        assert mounts[target]["source"] == target
    assert mounts["/etc/harness"]["read_only"] is True
    assert "/var/run/docker.sock" in mounts


def test_compose_asks_healthz_and_listens_for_this_machine_only() -> None:
    service = director()
    assert "/healthz" in service["healthcheck"]["test"][-1]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_compose_passes_no_secret_in_the_environment() -> None:
    service = director()
    assert not re.search("TOKEN|KEY|SECRET|PASSWORD", " ".join(service.get("environment", {})))
    assert service["secrets"] == ["github_token"]


@pytest.mark.parametrize("name", ["worker", "director"])
def test_an_image_of_ours_does_not_run_as_root(name: str) -> None:
    lines = (CHECKOUT / "docker" / f"{name}.Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("USER ")][-1] == "USER 1000:1000"


@pytest.mark.parametrize("name", ["worker", "director", "agent"])
def test_an_image_of_ours_is_built_from_files_alone(name: str) -> None:
    text = (CHECKOUT / "docker" / f"{name}.Dockerfile").read_text()
    assert not re.search(
        r"\b(curl|wget|apt-get|pip3? install|npm|git clone)\b", re.sub(r"(?m)^#.*$", "", text)
    )
