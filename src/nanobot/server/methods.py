"""What can be done at a path, and answering a request accordingly."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from nanobot.server.exchange import Exchange
from nanobot.server.problems import BadRequest

Handler = Callable[[Exchange], Awaitable[None]]
Methods = Mapping[str, Handler]


async def answer_by_method(http: Exchange, methods: Methods | None) -> None:
    """Have the right handler answer. Raises `BadRequest`: 404 without `methods`, 405 for another method."""
    path: str = http.scope["path"]
    if methods is None:
        raise BadRequest(404, "not_found", f"There is nothing at {path[:200]!r}.")
    method = "GET" if http.method == "HEAD" else http.method
    handler = methods.get(method)
    if handler is not None:
        await handler(http)
        return
    allow = (b"allow", ", ".join((*methods, "OPTIONS")).encode())
    if method != "OPTIONS":
        known = ", ".join(methods)
        raise BadRequest(405, "method", f"{path[:200]!r} takes {known}, not {method}.", headers=[allow])
    await http.answer(204, [allow])
