"""What people see: health, metrics, the page; on loopback only, and escaped."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from gateway_world import TOKEN, Place

from harness.gateway.settings import GatewayError

STATUS: dict[str, Any] = {
    "ok": True,
    "state": "MONITOR",
    "workers": {"live": 2, "slots": 3},
    "tickets": [{"issue": 12, "title": "<script>alert(1)</script>"}, {"issue": 13, "waits": "since & now"}],
    "notes": ["one", "two"],
    "release": None,
}


def serve(place: Place, status: Any = lambda: STATUS) -> tuple[Any, httpx.Client]:
    gateway = place.gateway(status=status, listen=("127.0.0.1", 0))
    return gateway, httpx.Client(base_url=f"http://127.0.0.1:{gateway.port}", trust_env=False)


def test_health_is_what_the_status_says(place: Place) -> None:
    now: dict[str, Any] = dict(STATUS)
    _, c = serve(place, lambda: now)
    assert c.get("/healthz").status_code == 200
    assert c.get("/healthz").json()["status"] == "ok" and c.get("/healthz").json()["state"] == "MONITOR"
    now["ok"] = False
    assert c.get("/healthz").status_code == 503 and c.get("/healthz").json()["status"] == "degraded"
    assert "degraded" in c.get("/").text


def test_a_status_that_cannot_be_told_is_degraded(place: Place) -> None:
    def broken() -> Mapping[str, Any]:
        raise RuntimeError("no state")

    _, c = serve(place, broken)
    reply = c.get("/healthz")
    assert reply.status_code == 503 and "RuntimeError: no state" in reply.json()["problem"]
    assert c.get("/").status_code == 200 and c.get("/metrics").status_code == 200


def test_metrics_are_the_numbers(place: Place) -> None:
    gateway, c = serve(place)
    gateway.open("12.1", TOKEN, 1)
    reply = c.get("/metrics")
    found = dict(x.rsplit(" ", 1) for x in reply.text.splitlines() if x and not x.startswith("#"))
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert found["harness_workers_live"] == "2.0" and found["harness_tickets_count"] == "2.0"
    assert found["harness_ok"] == "1.0" and found["harness_gateway_attempts_open"] == "1.0"
    assert found["harness_model_today_usd"] == "0.0" and "harness_state" not in found


def test_the_page_escapes_everything(place: Place) -> None:
    _, c = serve(place)
    reply = c.get("/")
    assert reply.status_code == 200 and "<script>" not in reply.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in reply.text and "since &amp; now" in reply.text
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert c.post("/").status_code == 405 and c.get("/other").status_code == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "", "localhost.evil.example"])
def test_another_name_for_loopback_is_turned_away(place: Place, host: str) -> None:
    gateway, c = serve(place)
    assert c.get("/", headers={"host": host}).status_code == 421
    assert c.get("/", headers={"host": f"localhost:{gateway.port}"}).status_code == 200
    assert c.get("/", headers={"host": f"[::1]:{gateway.port}"}).status_code == 200


def test_the_attempts_endpoints_are_not_there(place: Place) -> None:
    _, c = serve(place)
    for path in ("/bus", "/git/bundle", "/model/v1/models"):
        assert c.get(path).status_code == 404


def test_a_port_in_use_is_one_clear_line(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(GatewayError) as e:
            place.gateway(listen=("127.0.0.1", port))
    assert str(port) in str(e.value) and "\n" not in str(e.value) and "choose another" in str(e.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "example.org", "::"])
def test_only_loopback_is_listened_on(place: Place, host: str) -> None:
    with pytest.raises(GatewayError, match="is not a loopback address"):
        place.gateway(listen=(host, 0))
