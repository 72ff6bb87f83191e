"""The one HTTP client: model providers, MCP upstreams and web pages all go through `Http`.

`aiohttp` is imported here and nowhere else, when the first client is opened. Redirects are never followed:
a 3xx answer goes to the caller, who knows whether its credentials may travel. TLS is always verified.
Policy (retries, authentication) belongs to the callers; this moves one request. `Http.guarded` is for
addresses that somebody else chose: it connects to none that `AddressRules` forbid.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from nanobot.addresses import AddressForbidden, AddressRules, find_addresses
from nanobot.errors import NanobotError

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.abc import AbstractResolver, ResolveResult

CONNECT_S: Final = 10.0
KEEP_ALIVE_S: Final = 60.0
MAX_BODY: Final = 64 * 1024 * 1024

ErrorKind = Literal["connect", "timeout", "closed", "tls", "too_large", "bad_url", "forbidden"]


class HttpError(NanobotError):
    """No (complete) answer. `sent`: the peer may have received the request, so it may have acted on it.

    `kind`: "connect" no connection · "timeout" nothing arrived in time · "closed" cut off ·
    "tls" the certificate was refused · "too_large" the answer is over the caller's limit · "bad_url" ·
    "forbidden" the address rules do not permit where it leads.
    """

    code = "http"

    def __init__(self, kind: ErrorKind, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.sent = sent


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A complete answer. Header names are looked up without regard to case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpStream:
    """An answer whose body is still arriving. Usable inside the `async with` block that gave it."""

    __slots__ = ("_host", "_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse, host: str) -> None:
        self._response = response
        self._host = host
        self.status: int = response.status
        self.headers: Mapping[str, str] = response.headers

    async def read(self, limit: int = 64 * 1024) -> bytes:
        """The rest of the body, at most `limit` bytes of it. Raises `HttpError`."""
        body = bytearray()
        with _Translated(self._host, sent=True):
            length = self._response.content_length
            if length is not None and length <= limit and "Content-Encoding" not in self.headers:
                return await self._response.content.read()  # a third of the price of what follows
            async for chunk in self._response.content.iter_any():
                body += chunk
                if len(body) >= limit:
                    break
        return bytes(body[:limit])

    async def chunks(self) -> AsyncGenerator[bytes]:
        """The body as it arrives, in pieces of any size. Raises `HttpError` when it is cut off or stalls."""
        with _Translated(self._host, sent=True):
            async for chunk in self._response.content.iter_any():
                yield chunk


class Http:
    """A connection pool. One per process, used by many tasks at once; made by `open_http`."""

    def __init__(self, sessions: _Sessions, rules: AddressRules | None = None) -> None:
        self._sessions = sessions
        self._direct, self._proxied = sessions.pair(rules)
        self._rules = rules
        self._guarded: dict[AddressRules, Http] = {}

    def guarded(self, rules: AddressRules) -> Http:
        """The same, connecting only where `rules` permit: connections of its own, closed together with these.

        Each name is judged when a connection is made, and the connection goes to the very address that was
        judged. Where a proxy has to be used, the name is judged before the proxy is asked for it.
        """
        if rules not in self._guarded:
            self._guarded[rules] = Http(self._sessions, rules)
        return self._guarded[rules]

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float = 30.0,
        max_bytes: int = MAX_BODY,
    ) -> HttpAnswer:
        """The whole answer, whatever its status, within `timeout_s` seconds. Raises `HttpError`."""
        host, session, timeout = self._prepare(url, total_s=timeout_s)
        with _Translated(host, sent=True):
            async with session.request(
                method, url, headers=headers, data=body, timeout=timeout, allow_redirects=False
            ) as response:
                content = bytearray()
                async for chunk in response.content.iter_any():
                    content += chunk
                    if len(content) > max_bytes:
                        raise HttpError(
                            "too_large", f"{host} answered more than {max_bytes} bytes.", sent=True
                        )
                return HttpAnswer(response.status, response.headers, bytes(content))

    def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        idle_s: float | None = 90.0,
    ) -> AbstractAsyncContextManager[HttpStream]:
        """Send and hand over the answer as soon as its headers are there. Leaving closes the connection.

        `idle_s` bounds the wait for the headers and every silence after them (None: for ever). A body read
        to its end gives the connection back to the pool. Raises `HttpError`.
        """
        from aiohttp import BytesPayload

        host, session, timeout = self._prepare(url, idle_s=idle_s)
        data = None if body is None else BytesPayload(body)  # looking up how to send bytes costs more
        return _Exchange(
            host,
            lambda: session.request(
                method, url, headers=headers, data=data, timeout=timeout, allow_redirects=False
            ),
        )

    def _prepare(
        self, url: str, *, total_s: float | None = None, idle_s: float | None = None
    ) -> tuple[str, aiohttp.ClientSession, aiohttp.ClientTimeout]:
        host = _host_in(url)
        if not host:
            raise HttpError(
                "bad_url", "An address must start with http:// or https:// and name a host.", sent=False
            )
        is_direct = is_local(host) or (self._rules is not None and not _goes_through_proxy(url, host))
        session = self._direct if is_direct else self._proxied
        return host, session, _timeout(total_s, idle_s)


class _Exchange:
    """One request and its streamed answer (a class because it is cheaper than a generator here)."""

    __slots__ = ("_host", "_response", "_send")

    def __init__(self, host: str, send: Callable[[], Awaitable[aiohttp.ClientResponse]]) -> None:
        self._host = host
        self._send = send
        self._response: aiohttp.ClientResponse | None = None

    async def __aenter__(self) -> HttpStream:
        with _Translated(self._host, sent=True):
            self._response = await self._send()
        return HttpStream(self._response, self._host)

    async def __aexit__(self, *_: object) -> None:
        if self._response is not None:
            self._response.close()


@lru_cache(maxsize=1024)
def _host_in(url: str) -> str:
    """The host that an address names; "" for what is no address of ours."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return ""
    return host if url.startswith(("http://", "https://")) else ""


@lru_cache(maxsize=64)
def _timeout(total_s: float | None, idle_s: float | None) -> aiohttp.ClientTimeout:
    import aiohttp

    return aiohttp.ClientTimeout(total=total_s, sock_connect=CONNECT_S, sock_read=idle_s)


def is_local(host: str) -> bool:
    """Whether `host` is this machine; such requests never go through a proxy."""
    return host in ("localhost", "::1", "host.docker.internal") or host.startswith("127.")


@asynccontextmanager
async def open_http() -> AsyncGenerator[Http]:
    """The client of this process; leaving closes every connection."""
    sessions = _Sessions()
    try:
        yield Http(sessions)
    finally:
        await sessions.close()


class _Sessions:
    """What has to be closed: connectors, and the sessions that use them."""

    def __init__(self) -> None:
        self._connector = self._connect(None)
        self._connectors = [self._connector]
        self._opened: list[aiohttp.ClientSession] = []
        names = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy")
        self._has_proxy = any(os.environ.get(name) for name in names)

    def pair(self, rules: AddressRules | None) -> tuple[aiohttp.ClientSession, aiohttp.ClientSession]:
        """The session that connects by itself and the one that uses a proxy, if there is any."""
        connector = self._connector
        if rules is not None:
            connector = self._connect(rules)
            self._connectors.append(connector)
        direct = self._session(connector, rules, trust_env=False)
        # A proxy is reached wherever it is; it is only the operator's word that names it.
        proxied = self._session(self._connector, rules, trust_env=True) if self._has_proxy else direct
        return direct, proxied

    async def close(self) -> None:
        for session in self._opened:
            await session.close()
        for connector in self._connectors:
            await connector.close()

    def _connect(self, rules: AddressRules | None) -> aiohttp.TCPConnector:
        import aiohttp

        # No limit for one host: each session may hold a stream there for as long as it lives, and requests
        # would wait for ever behind such streams. Whoever opens connections bounds them.
        return aiohttp.TCPConnector(
            limit=0,
            keepalive_timeout=KEEP_ALIVE_S,
            resolver=None if rules is None else _judging(rules),
            use_dns_cache=rules is None,
        )

    def _session(
        self, connector: aiohttp.TCPConnector, rules: AddressRules | None, *, trust_env: bool
    ) -> aiohttp.ClientSession:
        import aiohttp

        session = aiohttp.ClientSession(
            connector=connector,
            connector_owner=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=trust_env,
            max_line_size=64 * 1024,
            max_field_size=64 * 1024,
            middlewares=() if rules is None else (_judge_first(rules, needs_proxy=trust_env),),
        )
        self._opened.append(session)
        return session


def _judging(rules: AddressRules) -> AbstractResolver:
    """Looks names up for connections: what it finds is what is connected to."""
    from aiohttp.abc import AbstractResolver

    class Judging(AbstractResolver):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
        ) -> list[ResolveResult]:
            return [
                {
                    "hostname": host,
                    "host": str(address),
                    "port": port,
                    "family": socket.AF_INET6 if address.version == 6 else socket.AF_INET,
                    "proto": 0,
                    "flags": socket.AI_NUMERICHOST,
                }
                for address in await find_addresses(host, port, rules)
            ]

        async def close(self) -> None:
            pass

    return Judging()


def _judge_first(rules: AddressRules, *, needs_proxy: bool) -> aiohttp.ClientMiddlewareType:
    """Judges what the resolver never sees: addresses written as numbers, and names that a proxy looks up."""

    async def judge(
        request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        host = request.url.raw_host or ""
        if needs_proxy and request.proxy is None:  # nobody would judge the connection
            raise HttpError("forbidden", f"{host} is not reached through the proxy.", sent=False)
        if needs_proxy or ":" in host or host.replace(".", "").isdigit():
            try:
                await find_addresses(host, request.url.port or 0, rules)
            except AddressForbidden as e:
                raise HttpError("forbidden", f"{e}.", sent=False) from e
            except OSError as e:
                reason = f"Cannot connect to {host}: the name does not resolve."
                raise HttpError("connect", reason, sent=False) from e
        return await handler(request)

    return judge


def _goes_through_proxy(url: str, host: str) -> bool:
    return url.partition(":")[0] in getproxies() and not proxy_bypass(host)


class _Translated:
    """Turns the library's errors into ours (a class because every relayed call pays for two of these)."""

    __slots__ = ("_host", "_sent")

    def __init__(self, host: str, *, sent: bool) -> None:
        self._host = host
        self._sent = sent

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, failure: BaseException | None, trace: object) -> None:
        if failure is not None and (error := _ours(failure, self._host, sent=self._sent)) is not None:
            raise error from failure


def _ours(failure: BaseException, host: str, *, sent: bool) -> HttpError | None:
    """Our error for one of the library's, naming the host and never the URL (it may hold a secret)."""
    import aiohttp

    match failure:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return HttpError("tls", f"The certificate of {host} was refused.", sent=False)
        case aiohttp.ConnectionTimeoutError():
            words = f"{host} did not accept a connection within {CONNECT_S:g} s."
            return HttpError("connect", words, sent=False)
        case aiohttp.ClientConnectorError():
            if isinstance(failure.os_error, AddressForbidden):
                return HttpError("forbidden", f"{failure.os_error}.", sent=False)
            return HttpError("connect", f"Cannot connect to {host}: {_reason(failure)}.", sent=False)
        case aiohttp.ServerTimeoutError() | TimeoutError():
            return HttpError("timeout", f"{host} stayed silent for too long.", sent=sent)
        case aiohttp.InvalidURL():
            return HttpError("bad_url", "The address is not a valid URL.", sent=False)
        case aiohttp.ClientError() | ConnectionError():
            words = f"{host} closed the connection before its answer was complete."
            return HttpError("closed", words, sent=sent)
        case _:
            return None


def _reason(error: aiohttp.ClientConnectorError) -> str:
    return os.strerror(error.errno) if error.errno and error.errno > 0 else "the name does not resolve"
