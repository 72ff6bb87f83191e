"""What a server sends besides answers: notifications go to whom they concern, questions are answered."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from anyio.abc import TaskGroup

from nanobot.wire.client import Checkpoint, Denied, Heard, Hello
from nanobot.wire.notifications import ACKNOWLEDGED, LOG_MESSAGE, PROGRESS
from nanobot.wire.outgoing import Outgoing, answer, subscription_of, token_of, unexpected
from nanobot.wire.rpc import (
    EMPTY,
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
            concerned = concerned or self._only_one()
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
        self._group.start_soon(self._answer, question, concerned or self._only_one_to_ask())

    async def _answer(self, question: Request, concerned: Outgoing | None) -> None:
        try:
            if question.method == "ping" and self._checkpoint is not None:
                reply = await _pong(question, self._checkpoint)
            else:
                reply = await (answer(question, None) if concerned is None else concerned.answer(question))
        except Exception:  # boundary: one question of a server
            log.exception("question not answered", extra={"method": question.method})
            reply = encode_error(question.id, unexpected(question.method))
        finally:
            self._open -= 1
        await self._reply(reply)

    def _only_one_to_ask(self) -> Outgoing | None:
        """The one request under way that somebody can answer for; a list that we read ourselves is none."""
        able = [request for request in self.under_way.values() if request.call.ask is not None]
        return able[0] if len(able) == 1 else None

    def _only_one(self) -> Outgoing | None:
        """Whom a message without an address concerns: a request under way, if all are of one caller."""
        able = [request for request in self.under_way.values() if request.call.notify is not None]
        callers = {(request.call.caller.account, request.call.caller.session) for request in able}
        return able[0] if len(callers) == 1 else None


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
