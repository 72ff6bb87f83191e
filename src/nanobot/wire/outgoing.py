"""One request of ours while it is under way: its clock, what is reported about it, what it asks."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Hashable, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import msgspec

from nanobot.wire.call import Call
from nanobot.wire.extensions import APPS, TASKS, declares
from nanobot.wire.notifications import PROGRESS
from nanobot.wire.questions import Unanswered
from nanobot.wire.rpc import (
    EMPTY,
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    Payload,
    Request,
    RpcError,
    encode_error,
    encode_response,
)
from nanobot.wire.versions import META_PREFIX, META_SUBSCRIPTION

LONGEST_S: Final = 3600.0
"""A request that keeps reporting progress ends after this time all the same."""

META_CLIENT: Final = "ai.nanobot/client"
"""Who our own client is, for servers that care; to them, the client is us."""
ASKS_PERSON: Final = "elicitation/create"
QUESTIONS: Final[Mapping[str, str]] = {
    "roots/list": "roots",
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
}
"""What servers may ask, and the capability of a client that can answer."""

_OURS: Final[Mapping[str, Any]] = {TASKS: {}}
"""Extensions that servers may use for whomever we ask: we come back for the results of tasks ourselves."""
_encode = msgspec.json.Encoder().encode


class Outgoing:
    """A request that waits for its answer. `id` is also its progress token.

    Wait for it inside `async with outgoing.clock`, which raises `TimeoutError` when its time is over.
    Progress starts the time again, as the answer to a question of the server does. A question to a person
    stops it, one to the client's model does not. `timeout_s` None: no limit.
    """

    __slots__ = ("_begun", "_questions", "call", "clock", "id", "timeout_s")

    def __init__(self, id: int, call: Call, timeout_s: float | None) -> None:
        now = asyncio.get_running_loop().time()
        self.id = id
        self.call = call
        self.timeout_s = timeout_s
        self._begun = now
        self._questions = 0
        # Half the price of an anyio scope, and every relayed call pays it.
        self.clock = asyncio.timeout_at(None if timeout_s is None else now + timeout_s)

    def hear(self, method: str, params: Payload) -> None:
        """Pass on a notification that belongs to this request; progress winds its clock up again."""
        if method == PROGRESS:
            self.wind_up()
            params = without_token(params)
        if self.call.notify is not None:
            self.call.notify(method, params)

    async def answer(self, question: Request) -> bytes:
        """The encoded answer to a request of the server, put to whoever made this one."""
        with self.asking(question.method):
            return await answer(question, self.call)

    @contextmanager
    def asking(self, method: str) -> Generator[None]:
        """While its caller is asked, its clock stands still if that may take as long as it takes.

        So it does for a person, and for whoever answers in a time of its own.
        """
        if method == "roots/list":
            stops = self.call.caller.era == "legacy"
        else:
            stops = method == ASKS_PERSON or method in self.call.answered_here
        if stops:
            self._questions += 1
            self._wind(None)
        try:
            yield
        finally:
            if stops:
                self._questions -= 1
            self.wind_up()

    @property
    def owner(self) -> Hashable:
        """Whose request this is: equal for those of one client or one conversation, None for our own.

        Modern clients without a session look all the same: each request of theirs has an owner of its own,
        shared only by what is asked on its behalf.
        """
        call, caller = self.call, self.call.caller
        if caller.era == "legacy" and (caller.session is not None or caller.client):
            return caller.account, caller.session
        if call.thread is not None:
            return caller.account, "thread", call.thread
        if call.ask is not None:
            return call.ask
        return self if caller.era == "modern" or call.notify is not None else None

    def wind_up(self) -> None:
        """The server gave a sign of life: its time begins again."""
        if not self._questions and self.timeout_s is not None:
            latest = self._begun + max(LONGEST_S, self.timeout_s)
            self._wind(min(asyncio.get_running_loop().time() + self.timeout_s, latest))

    def _wind(self, until: float | None) -> None:
        with suppress(RuntimeError):  # its time is over, or nobody waits any more
            self.clock.reschedule(until)


def stamped(params: Payload, call: Call, *, token: int | None, envelope: Mapping[str, Any]) -> Payload:
    """`params` as they go out: the caller's `_meta` without what belongs to another hop, plus our own.

    Every other member keeps its bytes. `token` asks for progress under it; `envelope` is empty for
    legacy servers.
    """
    members: dict[str, Any] = dict(params.members())
    own = members.pop("_meta", None)
    given = call.meta if own is None else _object(own)
    meta = {k: v for k, v in given.items() if k != "progressToken" and not k.startswith(META_PREFIX)}
    if token is not None:
        meta["progressToken"] = token
    if call.caller.client:
        meta[META_CLIENT] = {k: call.caller.client.get(k, "") for k in ("name", "version")}
    meta.update(envelope)
    if meta:
        members["_meta"] = meta
    elif own is None:
        return params
    return Payload.encoded(_encode(members))


def answerable(call: Call, own: Mapping[str, Any]) -> Mapping[str, Any]:
    """The client capabilities that a modern server may count on for this request alone.

    `own` are those that we declare to legacy servers: of these, extensions are there whoever asks.
    """
    offered = call.caller.capabilities
    extensions = offered.get("extensions")
    able: dict[str, Any] = {"extensions": _OURS}
    if extensions and isinstance(extensions, dict) and APPS in extensions:
        able["extensions"] = {**_OURS, APPS: extensions[APPS]}
    elif declares(own, APPS):
        able["extensions"] = {**_OURS, APPS: own["extensions"][APPS]}
    if call.ask is not None or call.caller.era == "modern":
        able |= {name: offered[name] for name in ("roots", "sampling", "elicitation") if name in offered}
    return able


def without_token(params: Payload) -> Payload:
    """Progress without its token, which is ours and means nothing beyond this hop."""
    members: dict[str, Any] = dict(params.members())
    members.pop("progressToken", None)
    return Payload.encoded(_encode(members))


def token_of(params: Payload) -> int | None:
    """The progress token of a notification if it is one that we could have given."""
    try:
        token = Payload.encoded(params.members().get("progressToken", b"null")).value
    except RpcError:
        return None
    return token if type(token) is int else None  # True equals 1, and is no token


def subscription_of(params: Payload) -> int | None:
    """The subscription to which a notification belongs, if it is one that we could have asked for."""
    try:
        meta = params.object().get("_meta")
    except RpcError:
        return None
    id = meta.get(META_SUBSCRIPTION) if isinstance(meta, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return id if type(id) is int else None  # pyright: ignore[reportUnknownArgumentType]


async def answer(question: Request, call: Call | None) -> bytes:
    """The encoded answer to a server's request that came while `call` was under way.

    Without anybody to ask, an elicitation is cancelled and there are no roots; anything else is refused.
    A client that does not say what its roots are has none.
    """
    if question.method == "ping":
        return encode_response(question.id, EMPTY)
    if question.method not in QUESTIONS:
        return encode_error(question.id, RpcError(METHOD_NOT_FOUND, f"unknown method {question.method!r}"))
    if call is not None and call.ask is not None and QUESTIONS[question.method] in call.caller.capabilities:
        try:
            return encode_response(question.id, await call.ask(question.method, question.params))
        except Unanswered as silence:
            if question.method != "roots/list":
                return encode_error(question.id, silence)
        except RpcError as refusal:
            return encode_error(question.id, refusal)
    match question.method:
        case "roots/list":
            return encode_response(question.id, Payload.of({"roots": []}))
        case "elicitation/create":
            return encode_response(question.id, Payload.of({"action": "cancel"}))
        case _:
            return encode_error(question.id, RpcError(METHOD_NOT_FOUND, "nobody here answers sampling"))


def unexpected(method: str) -> RpcError:
    """What a server is told when its question could not be put to anybody because of a fault of ours."""
    return RpcError(INTERNAL_ERROR, f"{method} could not be answered")


def _object(raw: msgspec.Raw) -> Mapping[str, Any]:
    value = Payload.encoded(raw).value
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]
