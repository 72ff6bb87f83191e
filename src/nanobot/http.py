"""The one HTTP client: model providers, MCP upstreams and web pages all go through `Http`.

`aiohttp` is imported here and nowhere else, when the first client is opened. Redirects are never followed:
a 3xx answer goes to the caller, who knows whether its credentials may travel. TLS is always verified.
Policy (retries, authentication, address rules) belongs to the callers; this moves one request.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

from nanobot.errors import NanobotError

if TYPE_CHECKING:
    import aiohttp

CONNECT_S: Final = 10.0
POOL_SIZE: Final = 100
KEEP_ALIVE_S: Final = 60.0
MAX_BODY: Final = 64 * 1024 * 1024

ErrorKind = Literal["connect", "timeout", "closed", "tls", "too_large", "bad_url"]


class HttpError(NanobotError):
    """No (complete) answer. `sent`: the peer may have received the request, so it may have acted on it.

    `kind`: "connect" no connection · "timeout" nothing arrived in time · "closed" cut off ·
    "tls" the certificate was refused · "too_large" the answer is over the caller's limit · "bad_url".
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

    def __init__(self, direct: aiohttp.ClientSession, proxied: aiohttp.ClientSession) -> None:
        self._direct = direct
        self._proxied = proxied

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
        session = self._direct if is_local(host) else self._proxied
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
    import aiohttp

    connector = aiohttp.TCPConnector(limit=0, limit_per_host=POOL_SIZE, keepalive_timeout=KEEP_ALIVE_S)
    has_proxy = any(
        os.environ.get(name) for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy")
    )

    def session(*, trust_env: bool) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=connector,
            connector_owner=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=trust_env,
            max_line_size=64 * 1024,
            max_field_size=64 * 1024,
        )

    direct = session(trust_env=False)
    proxied = session(trust_env=True) if has_proxy else direct
    try:
        yield Http(direct, proxied)
    finally:
        await direct.close()
        await proxied.close()
        await connector.close()


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
