"""The model endpoint: an agent's calls go to one upstream with the real key, within every cap.

The one rule: a call is paid for before it is made. Its estimate is reserved and on the disk first; what
it came to replaces it whatever end the call takes: answered, refused, cut by the agent, by the upstream
or by us.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect, Request

from harness.core.budget import Budget, Limits
from harness.gateway import meter, upstream
from harness.gateway.calls import Call, CallFolder
from harness.gateway.desk import Desk
from harness.gateway.ledger import Capped, Cost, Ledger
from harness.gateway.settings import ModelSettings
from harness.gateway.upstream import Refusal, asked, parsed, refuse
from harness.ports import Clock

if TYPE_CHECKING:
    import httpx

CALLS_OF_ONE_ATTEMPT = 16
CONNECT_S = 10.0
COOLDOWN_MAX_S = 3600.0
EXTEND_TOKENS = 4096
REPLY_LIMIT_BYTES = 32 << 20
log = logging.getLogger(__name__)


class ModelProxy:
    """Raw ASGI, because a call must notice at once that its agent is gone. Lives in the server's loop."""

    def __init__(
        self,
        settings: ModelSettings | None,
        ledger: Ledger,
        data: Path,
        clock: Clock,
        redact: Callable[[str], str],
    ) -> None:
        self.settings = settings or ModelSettings("http://unset.invalid")
        self.configured = settings is not None
        self.base = upstream.base_of(self.settings)
        self.ledger = ledger
        self.data = data
        self.clock = clock
        self.redact = redact
        self.places = asyncio.Semaphore(self.settings.max_concurrent)
        self.saving = asyncio.Lock()
        self.closing = asyncio.Event()
        s = self.settings
        self.budget = Budget(
            "model.request", Limits(gap_s=s.gap_s, cooldown_s=s.cooldown_s, cooldown_max_s=COOLDOWN_MAX_S)
        )
        self._folders: dict[str, CallFolder] = {}
        self._client: httpx.AsyncClient | None = None

    def end(self) -> None:
        """End the calls that run: agents see an error and come again."""
        self.closing.set()

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    def _http(self) -> httpx.AsyncClient:
        if self._client is None:
            import httpx

            read_s = self.settings.request_timeout_s
            self._client = httpx.AsyncClient(
                timeout=httpx.Timeout(connect=CONNECT_S, read=read_s, write=read_s, pool=read_s),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=8),
                follow_redirects=False,  # the key goes to no other host
                trust_env=False,  # neither .netrc nor a proxy that nobody configured
                proxy=self.settings.proxy,
            )
        return self._client

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        path = "/" + scope["path_params"]["path"]
        desk: Desk = scope["desk"]
        desk.calling += 1
        try:
            call = await self._read(desk, path, request)
            gone = asyncio.create_task(_disconnected(receive))
            ended = asyncio.create_task(self.closing.wait())
            work = asyncio.create_task(self._queue(call, send))
            try:
                await asyncio.wait({work, gone, ended}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (gone, ended, work):
                    task.cancel()
                await asyncio.wait({gone, ended, work})
            if work.cancelled():
                if self.closing.is_set():
                    await self._farewell(call, send)
                return
            if error := work.exception():
                raise error
        except ClientDisconnect:
            return
        except Refusal as e:
            await refuse(send, path, e)
        finally:
            desk.calling -= 1

    async def _farewell(self, call: Call, send: Any) -> None:
        """A stream that has begun ends without its end, so that nobody takes it for a whole reply."""
        if not call.begun:
            refusal = Refusal(503, "upstream", "restarting", "the director restarts", 1)
            await refuse(send, call.path, refusal)

    # ---------------------------------------------------------------- before the call

    async def _read(self, desk: Desk, path: str, request: Request) -> Call:
        method, paid = upstream.PATHS.get(path, ("", False))
        if method != request.method:
            raise Refusal(404, "path", "path", f"{request.method} {path} is not served")
        if not self.configured:
            raise Refusal(503, "upstream", "no_model", "no model is configured")
        if desk.calling > CALLS_OF_ONE_ATTEMPT:
            raise Refusal(429, "limit", "too_many_calls", "too many calls at once", 1)
        self._rate(desk)
        if request.headers.get("content-encoding", "identity") != "identity":
            raise Refusal(415, "request", "encoding", "a packed request cannot be read")
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > self.settings.body_limit_bytes:
                raise Refusal(
                    413, "size", "size", f"a request may have {self.settings.body_limit_bytes} bytes"
                )
        query = request.url.query[: upstream.QUERY_LIMIT]
        call = Call(desk, path, query, bytes(body), list(request.headers.items()), paid=paid)
        call.request.feed(call.body)
        if method == "POST":
            said = asked(call.body)
            call.model = str(said.get("model", ""))[:200]
            call.streams = said.get("stream") is True
        return call

    def _rate(self, desk: Desk) -> None:
        """An agent in a hot loop makes hundreds of calls a minute; that must not reach the provider."""
        now = self.clock.now()
        if desk.rate.limits.per_minute != self.settings.per_minute:
            desk.rate = Budget("model.request", Limits(per_minute=self.settings.per_minute))
        desk.rate, not_before = desk.rate.take(now, priority=0)
        if not_before is not None:
            why = f"more than {self.settings.per_minute} calls a minute"
            raise Refusal(429, "limit", "rate_guard", why, not_before - now)

    async def _queue(self, call: Call, send: Any) -> None:
        """Wait for a place among all calls, then make the call."""
        try:
            async with asyncio.timeout(self.settings.queue_s):
                await self.places.acquire()
        except TimeoutError:
            raise Refusal(429, "limit", "busy", "all places for calls are taken", 5) from None
        try:
            await self._open(call)
            await self._make(call, send)
        finally:
            self.places.release()

    async def _open(self, call: Call) -> None:
        """The upstream's own limits, then the caps; reserve, and have it on the disk."""
        now = self.clock.now()
        self.budget, not_before = self.budget.take(now, priority=0)
        while not_before is not None:
            if not_before - now > min(self.settings.gap_s, self.settings.queue_s):
                raise Refusal(429, "limit", "cooldown", "the provider asked to slow down", not_before - now)
            await asyncio.sleep(not_before - now)
            now = self.clock.now()
            self.budget, not_before = self.budget.take(now, priority=0)
        call.began = now
        try:
            call.secret = self.settings.key() if self.settings.auth != "none" else ""
        except (OSError, KeyError, ValueError) as e:
            raise Refusal(503, "upstream", "no_key", f"the model's key cannot be read: {e}") from e
        if not call.paid:
            return
        said = asked(call.body)
        cost = meter.estimate(self.settings, call.model, said, len(call.body))
        key = self.ledger.reserve(call.desk.attempt, cost)
        if isinstance(key, Capped):
            raise Refusal(429, "limit", "budget_exhausted", key.why)
        call.key, call.reserved = key, cost.tokens_out
        try:
            await self._save()
            await self._note(call, None)
        except asyncio.CancelledError:
            self.ledger.settle(key, None)
            raise
        except Exception as e:  # whatever keeps the ledger: without it no call is made
            self.ledger.settle(key, None)
            log.error("a call of %s could not be recorded: %s", call.desk.attempt, e)
            raise Refusal(503, "upstream", "not_recorded", "the call cannot be recorded", 30) from e

    # ---------------------------------------------------------------- the call

    async def _make(self, call: Call, send: Any) -> None:
        try:
            if call.streams:
                await self._stream(call, send)
            else:
                await self._whole(call, send)
        except Refusal as e:
            call.status, call.reason = e.status, e.reason
            raise
        except asyncio.CancelledError:
            call.reason, call.spent = ("restarting" if self.closing.is_set() else "agent_gone"), True
            raise
        finally:
            await asyncio.shield(self._settle(call))

    def _request(self, call: Call) -> Any:
        method = upstream.PATHS[call.path][0]
        url = self.base + call.path + (f"?{call.query}" if call.query else "")
        headers = upstream.request_headers(self.settings, call.secret, call.headers)
        content = call.body if method == "POST" else None
        return self._http().stream(method, url, content=content, headers=headers)

    async def _whole(self, call: Call, send: Any) -> None:
        import httpx

        body = bytearray()
        try:
            async with self._request(call) as reply:
                call.status = reply.status_code
                async for chunk in reply.aiter_raw():
                    body += chunk
                    if len(body) > REPLY_LIMIT_BYTES:
                        raise Refusal(502, "upstream", "upstream", "the provider's reply is too long")
        except httpx.HTTPError as e:
            raise self._failed(call, e) from e
        await self._give(call, reply, bytes(body), send)

    async def _give(self, call: Call, reply: httpx.Response, body: bytes, send: Any) -> None:
        self._heed(reply)
        if 300 <= reply.status_code < 400:
            raise Refusal(502, "upstream", "redirect", "the provider's address redirects elsewhere")
        call.spent = reply.status_code < 300
        if call.spent and (usage := meter.usage_of(parsed(body))) is not None:
            call.cost = meter.cost_of(self.settings, call.model, usage)
        scrub = upstream.Scrub(call.secret)
        clean = scrub.feed(body) + scrub.end()
        call.reply.feed(clean)
        headers = upstream.reply_headers(reply.headers.items(), call.secret)
        headers.append((b"content-length", str(len(clean)).encode()))
        await send({"type": "http.response.start", "status": reply.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": clean, "more_body": False})

    async def _stream(self, call: Call, send: Any) -> None:
        import httpx

        try:
            async with self._request(call) as reply:
                kind = reply.headers.get("content-type", "")
                if reply.status_code >= 300 or not kind.startswith("text/event-stream"):
                    call.status = reply.status_code
                    body = bytearray()
                    async for chunk in reply.aiter_raw():
                        body += chunk
                        if len(body) > REPLY_LIMIT_BYTES:
                            raise Refusal(502, "upstream", "upstream", "the provider's reply is too long")
                    await self._give(call, reply, bytes(body), send)
                    return
                self._heed(reply)
                await self._pipe(call, reply, send)
        except httpx.HTTPError as e:
            if not call.begun:
                raise self._failed(call, e) from e
            await self._cut(call, send, "upstream", f"the provider's stream broke: {_name(e)}")

    async def _pipe(self, call: Call, reply: httpx.Response, send: Any) -> None:
        scrub = upstream.Scrub(call.secret)
        headers = upstream.reply_headers(reply.headers.items(), call.secret)
        call.status, call.spent, call.begun = reply.status_code, True, True
        await send({"type": "http.response.start", "status": reply.status_code, "headers": headers})
        async for chunk in reply.aiter_raw():
            call.meter.feed(chunk)
            if self._beyond(call):
                await self._cut(call, send, "budget_exhausted", self.ledger.capped(call.desk.attempt))
                return
            if clean := scrub.feed(chunk):
                call.reply.feed(clean)
                await send({"type": "http.response.body", "body": clean, "more_body": True})
        rest = scrub.end()
        call.reply.feed(rest)
        if call.meter.usage is not None:
            call.cost = meter.cost_of(self.settings, call.model, call.meter.usage)
        await send({"type": "http.response.body", "body": rest, "more_body": False})

    def _beyond(self, call: Call) -> bool:
        """Whether the output has outgrown what is reserved, and a cap forbids to reserve more."""
        if not call.paid or call.meter.output <= call.reserved:
            return False
        price = meter.price_of(self.settings, call.model)
        usd = EXTEND_TOKENS * price.output_usd / 1e6 if price else 0.0
        if not self.ledger.extend(call.key, Cost(0, EXTEND_TOKENS, usd)):
            return True
        call.reserved += EXTEND_TOKENS
        return False

    async def _cut(self, call: Call, send: Any, reason: str, why: str) -> None:
        call.reason = reason
        event = upstream.error_event(call.path, why)
        call.reply.feed(event)
        await send({"type": "http.response.body", "body": event, "more_body": False})

    # ---------------------------------------------------------------- after the call

    def _heed(self, reply: httpx.Response) -> None:
        """Nobody calls while the provider asked for a pause."""
        if reply.status_code == 429:
            given = _seconds(reply.headers.get("retry-after"))
            self.budget = self.budget.penalty(self.clock.now(), retry_after_s=given)
        elif reply.status_code < 300:
            self.budget = self.budget.success()

    def _failed(self, call: Call, e: httpx.HTTPError) -> Refusal:
        import httpx

        # What was never sent cost nothing; after that nobody can tell.
        call.spent = not isinstance(e, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
        if isinstance(e, httpx.TimeoutException):
            return Refusal(504, "upstream", "upstream", f"the provider does not answer: {_name(e)}", 5)
        return Refusal(502, "upstream", "upstream", f"the provider cannot be reached: {_name(e)}", 5)

    async def _settle(self, call: Call) -> None:
        """Whatever the end was: the reservation becomes a cost, the call's file gets its last form."""
        if not call.paid:
            return
        if call.cost is None and call.spent:
            call.cost = meter.guess(
                self.settings, call.model, len(call.body), call.meter.output, call.meter.usage
            )
        self.ledger.settle(call.key, call.cost)
        try:
            await self._save()
            await self._note(call, call.status or 499)
        except Exception as e:  # the next reservation needs the same disk, and refuses the call
            log.error("the end of a call of %s could not be recorded: %s", call.desk.attempt, e)

    async def _save(self) -> None:
        async with self.saving:
            await asyncio.to_thread(self.ledger.persist)

    async def _note(self, call: Call, status: int | None) -> None:
        folder = self._folder(call.desk.attempt)
        call.number = call.number or folder.next()
        facts = call.facts(status, self.clock.now())
        await folder.write(call.number, facts, call.request, call.reply if status is not None else None)

    def _folder(self, attempt: str) -> CallFolder:
        if attempt not in self._folders:
            self._folders[attempt] = CallFolder(self.data / "attempts" / attempt / "ledger", self.redact)
            while len(self._folders) > 1000:
                self._folders.pop(next(iter(self._folders)))
        return self._folders[attempt]


async def _disconnected(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _seconds(retry_after: str | None) -> float | None:
    """Retry-After in seconds, an hour at most; None for a date or nonsense (the cool-down stands in)."""
    try:
        return min(max(float(retry_after or ""), 0.0), COOLDOWN_MAX_S)
    except ValueError:
        return None


def _name(e: BaseException) -> str:
    return str(e) or type(e).__name__
