"""Directories that the operator shows to MCP servers as roots, beside those of the client."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from nanobot.errors import UsageError
from nanobot.hub.around import Around
from nanobot.narrow import list_of, object_of
from nanobot.upstream.inputs import asks_only, completed
from nanobot.upstream.roots import Root
from nanobot.wire.call import Call
from nanobot.wire.questions import Unanswered
from nanobot.wire.rpc import METHOD_NOT_FOUND, Payload, RpcError
from nanobot.wire.source import Source

LIST: Final = "roots/list"
_ANSWERS: Final = b'"inputResponses"'

_WRITABLE: Final = ":rw"

Admits = Callable[[Any], Any]
"""A root of a client as the server is to see it; None: not at all."""


def read_roots(written: Sequence[str], folder: Path) -> list[Root]:
    """What `NAME:DIRECTORY` or `DIRECTORY` names, maybe with `:rw`; relative ones count from `folder`.

    Raises `UsageError` for one that does not exist.
    """
    return [_root(text, folder) for text in written]


def _root(text: str, folder: Path) -> Root:
    is_writable = text.endswith(_WRITABLE)
    name, colon, place = text.removesuffix(_WRITABLE).partition(":")
    is_drive = os.name == "nt" and len(name) == 1
    if not colon or is_drive or "/" in name or "\\" in name:
        name, place = "", text.removesuffix(_WRITABLE)
    path = (folder / Path(place).expanduser()).resolve()
    if not path.is_dir():
        raise UsageError(f"The root {text!r} is no directory: {path}.")
    return Root(path=path, name=name or path.name or str(path), is_writable=is_writable)


def within(roots: Sequence[Root]) -> Admits:
    """Admits what lies in one of `roots`, under the path that is no symbolic link."""

    def admit(root: Any) -> Any:
        try:
            address = urlsplit(str(object_of(root).get("uri")))
            path = Path(unquote(address.path)).resolve()
        except (OSError, ValueError, RuntimeError):
            return None
        if address.scheme != "file" or not any(path.is_relative_to(one.path) for one in roots):
            return None
        return {**object_of(root), "uri": path.as_uri()}

    return admit


def nothing(root: Any) -> Any:
    """Admits no root of any client."""
    return None


class Rooted(Around):
    """`inner`, which is shown the operator's `roots` after those of the client that `admits` lets through."""

    def __init__(self, inner: Source, roots: Sequence[Root], admits: Admits | None = None) -> None:
        super().__init__(inner)
        self._roots = [root.json() for root in roots]
        self._admits = admits

    async def request(self, method: str, params: Payload, call: Call) -> Payload:
        has_own = "roots" in call.caller.capabilities
        if has_own and call.caller.era == "modern" and _ANSWERS in params.raw:
            params = self._added(params)  # a modern client was asked by the server itself
        call = self._with_roots(call)
        result = await self._inner.request(method, params, call)
        if call.caller.era == "modern" and not has_own and asks_only(result, LIST):

            async def again(params: Payload) -> Payload:
                return await self._inner.request(method, params, call)

            return await completed(result, params, call, again)
        return result

    def _added(self, params: Payload) -> Payload:
        """`params` whose answers about roots name ours as well."""
        members = dict(params.members())
        answers: dict[str, Any] = dict(object_of(Payload.encoded(members["inputResponses"]).value))
        for key, answer in answers.items():
            if "roots" in object_of(answer):
                answers[key] = {**answer, "roots": self._after(answer["roots"])}
        members["inputResponses"] = msgspec.Raw(msgspec.json.encode(answers))
        return Payload.encoded(msgspec.json.encode(members))

    def _after(self, own: object) -> list[Any]:
        """The roots of a client, as far as they are admitted, and then ours."""
        admits, theirs = self._admits, list_of(own)
        if admits is not None:
            theirs = [seen for one in theirs if (seen := admits(one)) is not None]
        return [*theirs, *self._roots]

    def _with_roots(self, call: Call) -> Call:
        """`call` as of a caller that has roots, and is otherwise what it was."""
        ask, offered = call.ask, call.caller.capabilities
        has_own = ask is not None and "roots" in offered

        async def asked(method: str, params: Payload) -> Payload:
            if method == LIST:
                own: object = None
                if ask is not None and has_own:
                    with suppress(Unanswered):
                        own = (await ask(method, params)).object().get("roots")
                return Payload.of({"roots": self._after(own)})
            if ask is None:
                raise RpcError(METHOD_NOT_FOUND, f"nobody here answers {method}")
            return await ask(method, params)

        if ask is None and call.caller.era == "legacy":  # nobody can be asked anything else
            offered = {name: offered[name] for name in ("extensions",) if name in offered}
        return replace(call, caller=replace(call.caller, capabilities={**offered, "roots": {}}), ask=asked)
