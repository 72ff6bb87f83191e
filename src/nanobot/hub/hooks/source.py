"""A server with hooks: every message that passes between it and us goes through them, in both directions.

What holds a connection together (handshake, ping, cancellation) stays below this and is not seen here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Final

import msgspec

from nanobot.errors import Busy, NanobotError, UpstreamError
from nanobot.hub.around import Around
from nanobot.hub.hooks.answers import Direction
from nanobot.hub.hooks.hook import JsonObject
from nanobot.hub.hooks.messages import MessageHooks, Passed
from nanobot.hub.hooks.news import News
from nanobot.wire.call import NOBODY, Call, Caller
from nanobot.wire.rpc import TIMEOUT, Payload, RpcError
from nanobot.wire.source import Entry, Kind, Source

log = logging.getLogger(__name__)

MUTATIONS: Final = "ai.nanobot.hooks/mutations"
"""Member of a result's `_meta`: which directions were changed by hooks, and why."""

_LISTS: Final[dict[Kind, tuple[str, str, str]]] = {
    "tools": ("tools/list", "tools", "name"),
    "prompts": ("prompts/list", "prompts", "name"),
    "resources": ("resources/list", "resources", "uri"),
    "templates": ("resources/templates/list", "resourceTemplates", "uriTemplate"),
}
"""Method, member of the result, and what an entry is known by."""


class Hooked(Around):
    """`inner` with `hooks` in front."""

    def __init__(self, inner: Source, hooks: MessageHooks) -> None:
        super().__init__(inner)
        self._hooks = hooks
        self._ids = count(1)

    async def listing(self, kind: Kind, caller: Caller = NOBODY) -> Sequence[Entry]:
        """The whole list is one message to hooks, however many pages it came in."""
        method, member, key = _LISTS[kind]
        call = Call(caller=caller)
        request = self._request(method, {})
        await self._pass(method, "request", request, call, {})
        try:
            entries = await self._inner.listing(kind, caller)
        except (RpcError, UpstreamError, Busy) as e:
            passed = await self._pass(method, "response", _error(request, e), call, {})
            if not passed.is_mutated:
                raise
            result = _result_or_raise(passed.message)
        else:
            if not self._hooks.concern(method, "response"):
                return entries
            items = [entry.definition.value for entry in entries]
            answer = {"jsonrpc": "2.0", "id": request["id"], "result": {member: items}}
            passed = await self._pass(method, "response", answer, call, {})
            if not passed.is_mutated:
                return entries
            result = _result_or_raise(passed.message)
        return [Entry(str(item[key]), Payload.of(item)) for item in result.get(member) or () if key in item]

    async def request(self, method: str, params: Payload, call: Call) -> Payload:
        traces: JsonObject = {}
        about: JsonObject = {}
        request = self._request(method, about)
        if self._hooks.concern(method, "request") or self._hooks.concern(method, "response"):
            about = params.object()
            request = self._request(method, about)
        passed = await self._pass(method, "request", request, call, about)
        if passed.is_mutated:
            traces["request"] = passed.trace
            about = _params(passed)
            params = Payload.of(about)
            if "_meta" not in about:
                call = replace(call, meta={})  # or the wire would put back what a hook took out
        try:
            result = await self._answered(method, params, call)
        except (RpcError, UpstreamError, Busy) as e:
            passed = await self._pass(method, "response", _error(request, e), call, about)
            if not passed.is_mutated:
                raise
            traces["response"] = passed.trace
            return _traced(Payload.of(_result_or_raise(passed.message)), traces)
        if self._hooks.concern(method, "response"):
            answer = {"jsonrpc": "2.0", "id": request["id"], "result": result.object()}
            passed = await self._pass(method, "response", answer, call, about)
            if passed.is_mutated:
                traces["response"] = passed.trace
                result = Payload.of(_result_or_raise(passed.message))
        return _traced(result, traces) if traces else result

    async def _answered(self, method: str, params: Payload, call: Call) -> Payload:
        """The answer of the server; what it says and asks meanwhile goes through the hooks as well."""
        company = replace(call)
        if call.ask is not None:
            company.ask = self._asker(call)
        if call.notify is None or not self._hooks.hear_notifications:
            return await self._inner.request(method, params, company)
        async with News(self._hooks, call).passing_on() as notify:
            company.notify = notify
            try:
                outcome = await self._inner.request(method, params, company)
            except NanobotError as e:  # raised below, when the news before it has been told
                outcome = e
        if isinstance(outcome, NanobotError):
            raise outcome
        return outcome

    def _asker(self, call: Call) -> Callable[[str, Payload], Any]:
        """`call.ask`, with hooks on the question and on its answer."""
        ask = call.ask
        assert ask is not None

        async def asked(method: str, params: Payload) -> Payload:
            about = params.object()
            question = self._request(method, about)
            passed = await self._pass(method, "request", question, call, about)
            if passed.is_mutated:
                about = _params(passed)
                params = Payload.of(about)
            try:
                answer = await ask(method, params)
            except RpcError as e:
                passed = await self._pass(method, "response", _error(question, e), call, about)
                if not passed.is_mutated:
                    raise
                return Payload.of(_result_or_raise(passed.message))
            reply = {"jsonrpc": "2.0", "id": question["id"], "result": answer.object()}
            passed = await self._pass(method, "response", reply, call, about)
            return Payload.of(_result_or_raise(passed.message)) if passed.is_mutated else answer

        return asked

    def _request(self, method: str, params: JsonObject) -> JsonObject:
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}

    async def _pass(
        self, method: str, direction: Direction, message: JsonObject, call: Call, about: JsonObject
    ) -> Passed:
        if not self._hooks.concern(method, direction):
            return Passed(message)
        return await self._hooks.run(method, direction, message, call, about=about)


def _params(passed: Passed) -> JsonObject:
    return passed.message.get("params", {})


def _error(request: JsonObject, failure: RpcError | UpstreamError | Busy) -> JsonObject:
    """The answer a request failed with. Where none came there is one all the same: hooks see every end."""
    if isinstance(failure, RpcError):
        error: JsonObject = {"code": failure.rpc_code, "message": failure.message}
        if failure.data is not None:
            error["data"] = failure.data.value
    else:
        error = {"code": TIMEOUT, "message": str(failure)}
    return {"jsonrpc": "2.0", "id": request["id"], "error": error}


def _result_or_raise(message: JsonObject) -> JsonObject:
    """The result of an answer; raises the error that it is instead."""
    error = message.get("error")
    if error is None:
        return message["result"]
    data = Payload.of(error["data"]) if "data" in error else None
    raise RpcError(error["code"], error["message"], data)


def _traced(result: Payload, traces: JsonObject) -> Payload:
    """`result` with a note of what hooks changed; everything else in it stays as it is."""
    members: dict[str, Any] = dict(result.members())
    meta = Payload.encoded(members["_meta"]).value if "_meta" in members else None
    members["_meta"] = {**(meta if isinstance(meta, dict) else {}), MUTATIONS: traces}
    return Payload(msgspec.json.encode(members))
