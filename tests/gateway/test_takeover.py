"""A gateway that is killed in the middle of a model call: the call is tried again, and counted once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from gateway_world import TOKEN, Place, until
from scripted_upstream import Answer, Upstream, anthropic_stream

from harness.gateway.forwarder import Forwarder
from harness.gateway.ledger import Ledger, file_load

# A director's gateway as a process of its own, so that it can be killed.
GATEWAY = """
import sys, time
from pathlib import Path
from harness.gateway.server import Gateway
from harness.gateway.settings import ModelSettings, Price
class Clock:
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
runtime, data, url, token = sys.argv[1:]
prices = {"claude": Price(1.0, 1.0, 0.0, 0.0)}
model = ModelSettings(url, "none", str, 4, 5.0, 0, 10.0, 0, prices, 30.0, 0.5)
gateway = Gateway(Path(runtime), Path(data), Clock(), model=model)
gateway.start()
print(gateway.open("12.1", token, 1), flush=True)
sys.stdin.read()
"""
BODY = {"model": "claude", "max_tokens": 100, "stream": True, "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.clean()


def start(place: Place, url: str) -> tuple[subprocess.Popen[str], Path]:
    command = [sys.executable, "-c", GATEWAY, str(place.runtime), str(place.data), url, TOKEN]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def ask(url: str) -> httpx.Response:
    return httpx.post(f"{url}/messages", json=BODY, timeout=60, trust_env=False)


@pytest.mark.timeout(120)
def test_a_call_in_flight_is_tried_again_and_counted_once(place: Place) -> None:
    asked, hold = threading.Event(), threading.Event()
    cut = Answer(before=lambda: (asked.set(), hold.wait(60))[1] and None)
    upstream = Upstream(cut, anthropic_stream(100, 20))
    first, folder = start(place, upstream.url)
    forwarder = Forwarder(folder / "gateway.sock", TOKEN, 1)
    forwarder.start()
    answers: list[httpx.Response] = []
    second = None
    try:
        caller = threading.Thread(target=lambda: answers.append(ask(forwarder.url)))
        caller.start()
        assert asked.wait(60)
        first.send_signal(signal.SIGKILL)
        first.communicate()
        caller.join(60)
        assert answers[0].status_code == 503 and answers[0].headers["retry-after"] == "1"
        assert forwarder.gaps == 1
        waiting = threading.Thread(target=lambda: answers.append(ask(forwarder.url)))
        waiting.start()  # nobody listens: the agent's next try is held
        until(lambda: forwarder.gaps == 2, "the second call is held", 30)
        second, _ = start(place, upstream.url)
        waiting.join(60)
        assert answers[1].status_code == 200 and "hello" in answers[1].text
        assert len(upstream.seen) == 2
        row = until(lambda: spent(place), "the second call is settled", 30)
        assert (
            row["requests"] == 2 and row["tokens_out"] == 120
        )  # what was reserved in full, and what was used
    finally:
        hold.set()
        forwarder.close()
        for process in (first, second):
            with suppress(ProcessLookupError, ValueError):
                if process is not None:
                    end(process)
        upstream.close()


def spent(place: Place) -> dict[str, int] | None:
    """The attempt's row, once nothing is reserved any more."""
    path = place.data / "model-ledger.json"
    kept = json.loads(path.read_text())
    ledger = Ledger(None, None, lambda: file_load(path), lambda state: None)  # type: ignore[arg-type]
    ledger.open()
    row = ledger.spent("12.1")
    return row if not kept["open"] and row["requests"] == 2 else None
