"""One call to a Docker engine: its client, its one deadline, and what its errors mean to us.

The one rule: an engine that hangs, dies or refuses is an `Err` with a class of the failure table before the
deadline has passed. No exception of the SDK, of requests or of urllib3 gets past here.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from harness.adapters import container
from harness.core.result import Err, Ok, Result
from harness.failures import Failure
from harness.ports import Clock

T = TypeVar("T")

_READ_BYTES = 64 << 10
_WRITE_SHARE = 0.7
# For a unix socket the SDK keeps an idle connection for each address that was asked, 25 of them, whatever
# `num_pools` says. Every container has addresses of its own, and each of our threads a client.
_IDLE_LINES = 4


class Line:
    """The way to one engine. A client for each thread: a requests session must not be shared."""

    def __init__(self, host: str, clock: Clock, timeout_s: float) -> None:
        self.host = host
        self._clock, self._timeout_s = clock, timeout_s
        self._local = threading.local()

    def attempt(self, what: str, ask: Callable[[Call], Result[T]], *, image: str = "") -> Result[T]:
        """Run one call with a deadline over all its requests, and turn the library's exceptions into Err."""
        call = Call(self._connect, self._clock, self._clock.monotonic() + self._timeout_s)
        try:
            return ask(call)
        except errors() as e:
            if _status_code(e) is None or "client version" in str(e):
                # The next engine may speak another version of the API: negotiate anew.
                self._local.client = None
            return _explain(e, f"cannot {what}", self.host, wrote=call.wrote, image=image)

    def _connect(self, timeout_s: float) -> Any:
        """This thread's client (a requests session must not be shared by threads)."""
        client = getattr(self._local, "client", None)
        if client is None:
            # Said explicitly: by default the SDK follows the command line's current context.
            given = sdk().utils.kwargs_from_env(environment={**os.environ, "DOCKER_HOST": self.host})
            oldest = sdk().constants.MINIMUM_DOCKER_API_VERSION
            with sdk().APIClient(**given, version=oldest, timeout=timeout_s) as asking:
                # Neither proxies nor REQUESTS_CA_BUNDLE of our environment are meant for the engine.
                asking.trust_env = False
                spoken = asking.version(api_version=False)["ApiVersion"]
            client = sdk().APIClient(**given, version=spoken, timeout=timeout_s)
            client.trust_env = False
            self._keep_few(client)
            self._local.client = client
        return client

    def _keep_few(self, client: Any) -> None:
        if self.host.startswith("unix://"):
            few = sdk().transport.UnixHTTPAdapter(
                sdk().utils.parse_host(self.host), client.timeout, pool_connections=_IDLE_LINES
            )
            client.mount("http+docker://", few)


@dataclass
class Call:
    """The requests of one call, and the one deadline over all of them."""

    connect: Callable[[float], Any]
    clock: Clock
    ends: float
    wrote: bool = False

    def left_s(self) -> float:
        left = self.ends - self.clock.monotonic()
        if left <= 0:
            raise TimeoutError("the time for this call is used up")
        return left

    def api(self) -> Any:
        """The client, with what is left of the time as its timeout (for connecting, and for each read)."""
        left = self.left_s()
        client = self.connect(left)
        client.timeout = left
        return client

    def write(self) -> Any:
        """The same for a request that changes something; it leaves time to look what became of it."""
        client = self.api()
        client.timeout *= _WRITE_SHARE
        self.wrote = True
        return client


class VanishedError(OSError):
    """A container that was just there is not there any more."""


def sdk() -> Any:
    """The docker SDK, imported at its first use: it takes 70 ms, which `harness --help` must not pay."""
    return importlib.import_module("docker")


def errors() -> tuple[type[Exception], ...]:
    """What the SDK and what is below it raise for the world's faults. (All of requests is an OSError.)"""
    from urllib3.exceptions import HTTPError

    return (OSError, sdk().errors.DockerException, HTTPError)


def _status_code(error: Exception) -> int | None:
    code = getattr(getattr(error, "response", None), "status_code", None)
    return code if isinstance(code, int) else None


def unless_missing(act: Callable[[], object]) -> Result[None]:
    try:
        act()
    except sdk().errors.NotFound:
        return Ok(None)
    return Ok(None)


def _explain(error: Exception, what: str, host: str, *, wrote: bool, image: str) -> Err:
    """One error to one class of the failure table. `maybe` only where a write was sent and not refused."""
    said = " ".join(str(getattr(error, "explanation", None) or error).split())[:400]
    low, code = said.lower(), _status_code(error)
    if image and isinstance(error, sdk().errors.ImageNotFound):
        return Err(
            Failure.IMAGE_UNAVAILABLE,
            f"image {image} is not on the engine at {host}; build or pull it there, or set containers.image",
        )
    if any(x in low for x in ("no space left on device", "disk quota exceeded")):
        return Err(Failure.DISK_FULL, f"{what}: {said}")
    if code is None and "permission denied" in low:
        return Err(
            Failure.CONFIG_INVALID,
            f"{what}: no permission to use {host}; add this user to the group of the socket",
        )
    if code in (400, 403, 406):
        return Err(Failure.CONFIG_INVALID, f"{what}: the engine refuses: {said}")
    if code is None and any(x in low for x in ("no such file", "connection refused")):
        return Err(Failure.INFRA_ENGINE, f"{what}: nothing listens at {host}; is the engine running?")
    if code is None and ("timed out" in low or isinstance(error, TimeoutError)):
        said = f"no answer in time from {host}; does the engine hang?"
    return Err(Failure.INFRA_ENGINE, f"{what}: {said}", maybe=wrote and (code is None or code >= 500))


def last_line_at(call: Call, cid: str) -> float:
    """When a container printed last, by the engine; 0 when it never did, or when its log cannot be read."""
    try:
        line = read_log(call, cid, 1, _READ_BYTES, timestamps=True)
    except errors() as e:
        if _status_code(e) is None:
            raise
        return 0.0
    return container.parse_time(line.partition(b" ")[0].decode("ascii", "replace")) or 0.0


def read_log(call: Call, cid: str, lines: int, tail_bytes: int, *, timestamps: bool = False) -> bytes:
    """The end of a log, never more than twice `tail_bytes` in memory. The SDK's own reader has no timeout."""
    api = call.api()
    url = f"{api.base_url}/v{api.api_version}/containers/{cid}/logs"
    asked = {"stdout": 1, "stderr": 1, "follow": 0, "tail": lines, "timestamps": int(timestamps)}
    frames, out = container.Demultiplexer(), bytearray()
    with api.get(url, params=asked, stream=True, timeout=api.timeout) as response:
        response.raise_for_status()
        for chunk in response.iter_content(_READ_BYTES):
            call.left_s()
            out += frames.feed(chunk)
            if len(out) > 2 * tail_bytes:
                del out[: len(out) - tail_bytes]
    out += frames.finish()
    return bytes(out[max(0, len(out) - tail_bytes) :])
