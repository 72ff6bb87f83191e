"""What a server sends besides answers: notifications go to whom they concern, questions are answered."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack
from typing import Final

import msgspec
from anyio.abc import TaskGroup

from nanobot.wire.client import Checkpoint, Denied, Heard, Hello
from nanobot.wire.notifications import ACKNOWLEDGED, LOG_MESSAGE, PROGRESS
from nanobot.wire.outgoing import QUESTIONS, Outgoing, answer, subscription_of, token_of, unexpected
from nanobot.wire.rpc import (
    EMPTY,
    INTERNAL_ERROR,
    Notification,
    Payload,
    Request,
    RpcError,
    encode_error,
    encode_response,
)

log = logging.getLogger(__name__)

MAX_QUESTIONS: Final = 64
"""Requests of a server that may be open at once; further ones are dropped."""

_AMBIGUOUS: Final = (
    "several clients use this connection, and this does not say whom it is for; ask again later"
)

FOR_ALL: Final = ("/list_changed", "/updated", "/acknowledged")
"""Endings of the methods that concern the connection, on whichever stream they come."""


class Inbound:
    """Belongs to one connection. `reply` sends an encoded answer and raises nothing."""

    def __init__(
        self,
        heard: Heard,
        group: TaskGroup,
        reply: Callable[[bytes], Awaitable[None]],
        hello: Hello,
    ) -> None:
        self._discretion = hello.discretion
        self._called = hello.called
        self._checkpoint = hello.checkpoint
        self._heard = heard
        self._group = group
        self._reply = reply
        self._open = 0
        self.under_way: dict[int, Outgoing] = {}
        """The requests that callers wait for, by id. The connection keeps it."""
        self.acknowledged: dict[int, Callable[[Payload], None]] = {}
        """Who takes the acknowledgement of a subscription, by the id of its request. Kept likewise."""

    def hear(self, news: Notification, concerned: Outgoing | None = None) -> None:
        """Pass on `news`. `concerned`: the request on whose stream it came, if it came on one."""
        if news.method == PROGRESS:
            token = token_of(news.params)
            concerned = None if token is None else self.under_way.get(token)
            if concerned is not None:
                concerned.hear(news.method, news.params)
            return
        if news.method == ACKNOWLEDGED and self.acknowledged:
            subscription = subscription_of(news.params)
            if subscription is not None and (take := self.acknowledged.get(subscription)) is not None:
                take(news.params)
                return
        if news.method == LOG_MESSAGE:
            if concerned is None:
                owners = list(self._owners().values())
                if len({requests[0].call.caller.account for requests in owners}) > 1:
                    return  # it is for one account, and not for the eyes of the others
                if len(owners) == 1:
                    concerned = owners[0][0]
            params = self._discretion.hide_in_json(news.params)
            news = Notification(LOG_MESSAGE, signed(params, self._called) if self._called else params)
        if concerned is None or news.method.endswith(FOR_ALL):
            self._heard(news.method, news.params)
        else:
            concerned.hear(news.method, news.params)

    def ask(self, question: Request, concerned: Outgoing | None = None) -> None:
        """Have `question` answered, by the caller of the request that it concerns if that is known."""
        if self._open >= MAX_QUESTIONS:
            log.warning("question dropped: too many are open", extra={"method": question.method})
            return
        self._open += 1
        owners = [[concerned]] if concerned is not None else list(self._owners().values())
        self._group.start_soon(self._answer, question, owners)

    async def _answer(self, question: Request, owners: Sequence[Sequence[Outgoing]]) -> None:
        """`owners`: the requests that may have made the server ask, by whose they are."""
        try:
            if question.method == "ping" and self._checkpoint is not None:
                reply = await _pong(question, self._checkpoint)
            else:
                reply = await _answered(question, owners)
        except Exception:  # boundary: one question of a server
            log.exception("question not answered", extra={"method": question.method})
            reply = encode_error(question.id, unexpected(question.method))
        finally:
            self._open -= 1
        await self._reply(reply)

    def _owners(self) -> Mapping[Hashable, list[Outgoing]]:
        """The requests under way by whose they are; what we ask for ourselves, such as lists, is nobody's."""
        owners: dict[Hashable, list[Outgoing]] = {}
        for request in self.under_way.values():
            if (owner := request.owner) is not None:
                owners.setdefault(owner, []).append(request)
        return owners


async def _answered(question: Request, owners: Sequence[Sequence[Outgoing]]) -> bytes:
    """The encoded answer to a question that concerns one of `owners`, who are asked only if it is clear whom.

    To ask somebody else would show them what is not theirs, and take their answer for another's.
    """
    if not owners or question.method not in QUESTIONS:
        return await answer(question, None)
    if len(owners) > 1:
        return encode_error(question.id, RpcError(INTERNAL_ERROR, _AMBIGUOUS))
    requests = owners[0]
    able = next((request for request in requests if request.call.ask is not None), requests[0])
    with ExitStack() as stack:
        for request in requests:  # any of them may be the one that waits for a person
            stack.enter_context(request.asking(question.method))
        return await answer(question, able.call)


async def _pong(ping: Request, checkpoint: Checkpoint) -> bytes:
    """The encoded answer to a ping of the server, as far as `checkpoint` lets it have one."""

    async def answer(params: Payload) -> Payload:
        del params  # a ping asks for nothing but a sign of life
        return EMPTY

    try:
        return encode_response(ping.id, await checkpoint.exchange(ping.method, ping.params, answer))
    except Denied as e:
        return encode_error(ping.id, e.refusal)
    except RpcError as e:  # what a checkpoint made of the answer
        return encode_error(ping.id, e)


def signed(params: Payload, server: str) -> Payload:
    """A log message with the name of its `server` beside its data, whatever that is."""
    try:
        members = params.members()
    except RpcError:
        return params
    data = {"server": server, "data": members.get("data", msgspec.Raw(b"null"))}
    return Payload.encoded(msgspec.json.encode({**members, "data": data}))
