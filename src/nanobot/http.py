"""The one HTTP client: model providers, MCP upstreams and web pages all go through `Http`.

`aiohttp` is imported here and nowhere else, when the first client is opened. Redirects are never followed:
a 3xx answer goes to the caller, who knows whether its credentials may travel. TLS is always verified.
Policy (retries, authentication) belongs to the callers; this moves one request. `Http.guarded` is for
addresses that somebody else chose: it connects to none that `AddressRules` forbid.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
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
        with _translated(self._host, sent=True):
            async for chunk in self._response.content.iter_any():
                body += chunk
                if len(body) >= limit:
                    break
        return bytes(body[:limit])

    async def chunks(self) -> AsyncGenerator[bytes]:
        """The body as it arrives, in pieces of any size. Raises `HttpError` when it is cut off or stalls."""
        with _translated(self._host, sent=True):
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
        with _translated(host, sent=True):
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
        host, session, timeout = self._prepare(url, idle_s=idle_s)
        return _Exchange(
            host,
            lambda: session.request(
                method, url, headers=headers, data=body, timeout=timeout, allow_redirects=False
            ),
        )

    def _prepare(
        self, url: str, *, total_s: float | None = None, idle_s: float | None = None
    ) -> tuple[str, aiohttp.ClientSession, aiohttp.ClientTimeout]:
        import aiohttp

        try:
            host = urlsplit(url).hostname or ""
        except ValueError:
            host = ""
        if not host or not url.startswith(("http://", "https://")):
            raise HttpError(
                "bad_url", "An address must start with http:// or https:// and name a host.", sent=False
            )
        is_direct = is_local(host) or (self._rules is not None and not _goes_through_proxy(url, host))
        session = self._direct if is_direct else self._proxied
        timeout = aiohttp.ClientTimeout(total=total_s, sock_connect=CONNECT_S, sock_read=idle_s)
        return host, session, timeout


class _Exchange:
    """One request and its streamed answer (a class because it is cheaper than a generator here)."""

    __slots__ = ("_host", "_response", "_send")

    def __init__(self, host: str, send: Callable[[], Awaitable[aiohttp.ClientResponse]]) -> None:
        self._host = host
        self._send = send
        self._response: aiohttp.ClientResponse | None = None

    async def __aenter__(self) -> HttpStream:
        with _translated(self._host, sent=True):
            self._response = await self._send()
        return HttpStream(self._response, self._host)

    async def __aexit__(self, *_: object) -> None:
        if self._response is not None:
            self._response.close()


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


@contextmanager
def _translated(host: str, *, sent: bool) -> Generator[None]:
    """Turn the library's errors into ours, naming the host and never the URL (it may hold a secret)."""
    import aiohttp

    try:
        yield
    except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError) as e:
        raise HttpError("tls", f"The certificate of {host} was refused.", sent=False) from e
    except aiohttp.ConnectionTimeoutError as e:
        raise HttpError(
            "connect", f"{host} did not accept a connection within {CONNECT_S:g} s.", sent=False
        ) from e
    except aiohttp.ClientConnectorError as e:
        if isinstance(e.os_error, AddressForbidden):
            raise HttpError("forbidden", f"{e.os_error}.", sent=False) from e
        raise HttpError("connect", f"Cannot connect to {host}: {_reason(e)}.", sent=False) from e
    except (aiohttp.ServerTimeoutError, TimeoutError) as e:
        raise HttpError("timeout", f"{host} stayed silent for too long.", sent=sent) from e
    except aiohttp.InvalidURL as e:
        raise HttpError("bad_url", "The address is not a valid URL.", sent=False) from e
    except (aiohttp.ClientError, ConnectionError) as e:
        raise HttpError(
            "closed", f"{host} closed the connection before its answer was complete.", sent=sent
        ) from e


def _reason(error: aiohttp.ClientConnectorError) -> str:
    return os.strerror(error.errno) if error.errno and error.errno > 0 else "the name does not resolve"
