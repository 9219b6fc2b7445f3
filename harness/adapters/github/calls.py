"""Governed, conditional, paged requests: what every operation of the forge is made of.

The one rule: no request without the governor's leave, and each one is counted. A list is read by following
Link headers to the end; a page that has not changed costs a 304 and is answered from memory.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from harness.adapters.github import refusals
from harness.adapters.github.wire import Answer, LostError, NotSentError, Wire
from harness.adapters.governor import READ, WRITE, Governor
from harness.core.result import Err, Ok, Result
from harness.failures import Failure
from harness.ports import Clock

T = TypeVar("T")

PAGES_LIMIT = 1_000
REMEMBERED_PAGES = 1_024
REMEMBERED_BYTES = 32 << 20
REMEMBERED_S = 3600.0
"""A page that nobody asked for in this time is forgotten: most belong to issues and pulls that are over."""
_NEXT = re.compile(r'<([^>]+)>\s*;[^,]*\brel="?next"?')


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page: `value` as parsed, `next` the following page's address or "", `fresh` False for a 304,
    `date` the forge's clock (POSIX seconds) or None."""

    value: T
    next: str
    fresh: bool
    date: float | None


@dataclass(frozen=True, slots=True)
class _Kept:
    etag: str
    value: Any
    next: str
    size: int
    asked_at: float


class Calls:
    """Requests of one credential to one forge."""

    def __init__(
        self,
        wire: Wire,
        governor: Governor,
        clock: Clock,
        token: Callable[[], str],
        renew: Callable[[], str] | None = None,
    ) -> None:
        self._wire = wire
        self._governor = governor
        self._clock = clock
        self._token = token
        self._renew = renew or token
        self._lock = threading.Lock()
        self._counts = {"read": 0, "write": 0, "not_modified": 0}
        self._pages: OrderedDict[str, _Kept] = OrderedDict()
        self._pages_bytes = 0

    def counts(self) -> Mapping[str, int]:
        """Requests sent: `read` holds all reads, `not_modified` how many of them were 304, `write` the
        rest."""
        with self._lock:
            return dict(self._counts)

    # ------------------------------------------------------------ one request

    def ask(
        self,
        verb: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        priority: int = 1,
        etag: str = "",
    ) -> Result[Answer]:
        """One governed request; Ok whatever the status, except for what means the same everywhere: a lost
        answer, a rate limit, a 5xx, a refused credential (renewed once). Those are Err."""
        token = self._token()
        sent = self._send(verb, path, token, params, body, priority, etag)
        if not isinstance(sent, Ok) or sent.value.status != 401:
            return sent
        fresh = self._renew()
        if fresh == token:
            return refusals.refuse(sent.value, verb != "GET", self._clock.now())
        again = self._send(verb, path, fresh, params, body, priority, etag)
        if isinstance(again, Ok) and again.value.status == 401:
            return refusals.refuse(again.value, verb != "GET", self._clock.now())
        return again

    def _send(
        self,
        verb: str,
        path: str,
        token: str,
        params: Mapping[str, Any] | None,
        body: Any,
        priority: int,
        etag: str,
    ) -> Result[Answer]:
        write = verb != "GET"
        resource = WRITE if write else READ
        leave = self._governor.enter(resource, priority)
        if not isinstance(leave, Ok):
            return leave
        grant = leave.value
        try:
            with self._lock:
                self._counts["write" if write else "read"] += 1
            headers = {"If-None-Match": etag} if etag else {}
            answer = self._wire.send(verb, path, token=token, params=params, body=body, headers=headers)
        except NotSentError as e:
            return refusals.lost(str(e), False)
        except LostError as e:
            return refusals.lost(str(e), write)
        finally:
            self._governor.leave(grant)
        return self._judge(answer, resource, write, grant.at)

    def _judge(self, answer: Answer, resource: str, write: bool, began: float) -> Result[Answer]:
        now = self._clock.now()
        limit = refusals.limit_in(answer, now)
        if limit is not None:
            # Whatever was refused, reads are shut as well: to go on "while you are rate limited may result in
            # the banning of your integration" (GitHub's best practices).
            until = self._governor.penalty((READ, WRITE), limit.retry_after_s, limit.reset_at, began)
            kind = "primary" if limit.primary else "secondary"
            return Err(Failure.FORGE_RATE_LIMITED, f"forge: {kind} rate limit", not_before=until)
        if answer.status >= 500 or answer.status == 408:
            return refusals.refuse(answer, write, now)
        if answer.headers.get("x-ratelimit-remaining") == "0":
            # The next request would be refused, and refused requests are what GitHub bans for.
            self._governor.penalty((READ, WRITE), None, refusals.reset_of(answer, now), began)
        else:
            self._governor.success(resource, began)
        return Ok(answer)

    # ------------------------------------------------------------ reading

    def get(
        self, path: str, parse: Callable[[Any], T], *, priority: int = 1, remember: bool = True
    ) -> Result[Page[T]]:
        """A conditional GET of one address (path with its query, or an absolute one). Any status but 200 and
        304 is an Err by the table."""
        with self._lock:
            kept = self._pages.get(path) if remember else None
            if kept is not None:
                self._pages[path] = replace(kept, asked_at=self._clock.monotonic())
                self._pages.move_to_end(path)
        asked = self.ask("GET", path, priority=priority, etag=kept.etag if kept else "")
        if not isinstance(asked, Ok):
            return asked
        answer = asked.value
        date = refusals.date_of(answer)
        if answer.status == 304 and kept is not None:
            with self._lock:
                self._counts["not_modified"] += 1
            return Ok(Page(kept.value, kept.next, False, date))
        if answer.status != 200:
            return refusals.refuse(answer, False, self._clock.now())
        try:
            value = parse(answer.json())
        except (ValueError, KeyError, TypeError, AttributeError):
            return refusals.unreadable(False)
        link = next_of(answer)
        if remember:
            etag, now = answer.headers.get("etag", ""), self._clock.monotonic()
            self._keep(path, _Kept(etag, value, link, len(answer.text), now))
        return Ok(Page(value, link, True, date))

    def get_all(
        self, path: str, parse: Callable[[Any], tuple[T, ...]], *, priority: int = 1, remember: bool = True
    ) -> Result[tuple[T, ...]]:
        """Every page of a list, by Link headers: the length of a page says nothing about the next one."""
        found: list[T] = []
        seen: set[str] = set()
        at = path
        while at and at not in seen:
            if len(seen) == PAGES_LIMIT:
                return Err(Failure.INTERNAL_ERROR, f"a list of more than {PAGES_LIMIT} pages")
            seen.add(at)
            r = self.get(at, parse, priority=priority, remember=remember)
            if not isinstance(r, Ok):
                return r
            found.extend(r.value.value)
            at = r.value.next
        return Ok(tuple(found))

    def forget(self, paths: Iterable[str]) -> None:
        """These addresses will not be asked again."""
        with self._lock:
            for path in paths:
                self._drop(path)

    def _drop(self, path: str) -> None:
        old = self._pages.pop(path, None)
        self._pages_bytes -= old.size if old else 0

    def _keep(self, path: str, kept: _Kept) -> None:
        with self._lock:
            self._drop(path)
            if kept.etag and kept.size <= REMEMBERED_BYTES:
                self._pages[path] = kept
                self._pages_bytes += kept.size
            while self._pages:
                oldest, first = next(iter(self._pages.items()))
                many = len(self._pages) > REMEMBERED_PAGES or self._pages_bytes > REMEMBERED_BYTES
                if not many and kept.asked_at - first.asked_at < REMEMBERED_S:
                    break
                self._drop(oldest)

    # ------------------------------------------------------------ writing

    def put(
        self, verb: str, path: str, body: Any, parse: Callable[[Any], T], *, priority: int = 0
    ) -> Result[T]:
        """A write whose 2xx answer is parsed. Any other status is an Err by the table."""
        asked = self.ask(verb, path, body=body, priority=priority)
        if not isinstance(asked, Ok):
            return asked
        return self.read_written(asked.value, parse)

    def read_written(self, answer: Answer, parse: Callable[[Any], T]) -> Result[T]:
        """The value in a write's answer, or the Err that the answer is."""
        if not 200 <= answer.status < 300:
            return refusals.refuse(answer, True, self._clock.now())
        try:
            return Ok(parse(answer.json() if answer.text.strip() else None))
        except (ValueError, KeyError, TypeError, AttributeError):
            return refusals.unreadable(True)


def next_of(answer: Answer) -> str:
    """The address of the next page in a Link header (RFC 8288), or ""."""
    m = _NEXT.search(answer.headers.get("link", ""))
    return m.group(1) if m else ""


def with_query(path: str, **params: Any) -> str:
    """`path` with a query, in a fixed order: an address is also the key of what is remembered."""
    wanted = sorted((k, v) for k, v in params.items() if v is not None)
    return f"{path}?{urlencode(wanted)}" if wanted else path
