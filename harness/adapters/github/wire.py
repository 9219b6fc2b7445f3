"""One HTTP request with a deadline, through PyGithub's requester.

The one rule: one call, one request. Nothing here retries, sleeps, follows a redirect or keeps a connection
that two threads write to; what became of the request is told apart as answered, surely not sent, or lost.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import github
    import requests

ANSWER_LIMIT_BYTES = 64 << 20
CONNECT_TIMEOUT_S = 10.0
USER_AGENT = "dev-harness"
ACCEPT = "application/vnd.github+json"
API_VERSION = "2022-11-28"


class NotSentError(Exception):
    """The forge surely did not get the request: no name, no connection."""


class LostError(Exception):
    """The request may have been carried out; its answer did not arrive (whole)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    text: str

    def json(self) -> Any:
        """The body as plain values. Raises ValueError when it is not JSON."""
        return json.loads(self.text)


@dataclass(frozen=True, slots=True)
class Reply:
    """What PyGithub's requester sees of an answer: always 200, so that it follows and waits for nothing."""

    text: str
    status: int = 200

    def getheaders(self) -> Any:
        return {}.items()

    def read(self) -> str:
        return self.text


class Line:
    """A connection as PyGithub wants one (request, then getresponse), used for one request and then dropped.

    PyGithub keeps the request on a connection that all threads share, sleeps on a 202, replays any method
    on a 301 and logs the Authorization header unless it set that itself. None of this may happen to us."""

    def __init__(self, wire: Wire, token: str) -> None:
        self._wire = wire
        # A token read from a file often ends in a newline, which no header may hold.
        self._token = token.strip()
        self._asked: tuple[str, str, str | None, dict[str, str]] | None = None
        self.answer: Answer | None = None

    def request(
        self, verb: str, url: str, input: str | None, headers: dict[str, str], stream: bool = False
    ) -> None:
        self._asked = (verb, url, input, dict(headers))

    def getresponse(self) -> Reply:
        if self._asked is None:
            raise RuntimeError("getresponse before request")
        verb, path, body, headers = self._asked
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        self.answer = self._wire.exchange(verb, path, body, headers)
        return Reply("")

    def close(self) -> None:
        """Nothing to close: the thread's session outlives the request."""


class Wire:
    """Requests to one origin. `url` is the root of the REST API, such as https://api.github.com."""

    def __init__(self, url: str, timeout_s: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(
                f"forge.url {url!r} is no http(s) address; write https://api.github.com or your server's"
            )
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self._origin = f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port else "")
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._own = threading.local()
        self._github: github.Github | None = None
        self._lock = threading.Lock()

    def send(
        self,
        verb: str,
        path: str,
        *,
        token: str,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request; `path` is below the API's root, or an absolute address of it (from a Link header).

        Raises NotSentError or LostError."""
        line = Line(self, token)
        wanted = {"Accept": ACCEPT, "X-GitHub-Api-Version": API_VERSION, **(headers or {})}
        self._requester().requestJson(verb, path, dict(params or {}), wanted, body, line)
        if line.answer is None:
            raise LostError("no answer")
        return line.answer

    def exchange(self, verb: str, path: str, body: str | None, headers: Mapping[str, str]) -> Answer:
        """Send and read to the end, within the deadline and the size limit."""
        import requests

        ends = time.monotonic() + self._timeout_s
        wait = (min(CONNECT_TIMEOUT_S, self._timeout_s), self._timeout_s)
        try:
            with self._session().request(
                verb,
                self._origin + path,
                data=body.encode() if body is not None else None,
                headers=dict(headers),
                timeout=wait,
                allow_redirects=False,
                stream=True,
            ) as r:
                data = bytearray()
                for chunk in r.iter_content(65_536):
                    data += chunk
                    if len(data) > ANSWER_LIMIT_BYTES:
                        raise LostError(f"the answer is larger than {ANSWER_LIMIT_BYTES} bytes")
                    if time.monotonic() > ends:
                        raise LostError(f"no whole answer within {self._timeout_s:g} s")
                kept = {k.lower(): v for k, v in r.headers.items()}
                return Answer(r.status_code, kept, data.decode("utf-8", "replace"))
        except requests.exceptions.ConnectTimeout as e:
            raise NotSentError("no connection in time") from e
        except (requests.exceptions.RequestException, OSError) as e:
            if _never_connected(e):
                raise NotSentError("no connection") from e
            raise LostError(_short(e)) from e

    def _session(self) -> requests.Session:
        """One session a thread: requests does not promise that one may be shared."""
        kept: requests.Session | None = getattr(self._own, "session", None)
        if kept is None:
            import requests

            kept = requests.Session()
            # An Authorization of ours must win over a .netrc file.
            kept.auth = _leave_alone
            self._own.session = kept
        return kept

    def _requester(self) -> Any:
        with self._lock:
            if self._github is None:
                import github

                self._github = github.Github(
                    base_url=self._url,
                    retry=None,
                    seconds_between_requests=None,
                    seconds_between_writes=None,
                    timeout=max(1, int(self._timeout_s)),
                    user_agent=USER_AGENT,
                    per_page=100,
                )
            return self._github.requester


def _leave_alone(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _never_connected(error: BaseException) -> bool:
    """Whether the connection itself failed (no such host, refused): then nothing was sent."""
    from urllib3.exceptions import NewConnectionError

    seen: list[Any] = [error]
    for _ in range(6):
        last = seen[-1]
        if isinstance(last, NewConnectionError):
            return True
        inner = getattr(last, "reason", None) or (last.args[0] if getattr(last, "args", None) else None)
        if not isinstance(inner, BaseException):
            return False
        seen.append(inner)
    return False


def _short(error: BaseException) -> str:
    """The kind of a transport error without addresses and object ids, so that it reads the same each time."""
    from requests.exceptions import Timeout

    return "no answer in time" if isinstance(error, Timeout) else f"connection lost ({type(error).__name__})"
