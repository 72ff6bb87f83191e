"""A server with hooks: every message that passes between it and us goes through them, in both directions.

What holds a connection together stays below this: its handshake and its pings pass `handshake.py`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Final

import anyio
import msgspec

from nanobot.errors import Busy, NanobotError, UpstreamError
from nanobot.hub.around import Around
from nanobot.hub.hooks.answers import Direction
from nanobot.hub.hooks.hook import JsonObject
from nanobot.hub.hooks.messages import MessageHooks, Passed
from nanobot.hub.hooks.news import MOST_WAITING, News, passed_on
from nanobot.hub.hooks.outcome import error_answer, result_or_raise
from nanobot.wire.call import NOBODY, Audience, Call, Caller
from nanobot.wire.rpc import Payload, RpcError
from nanobot.wire.source import Entry, Kind, Source, Told

log = logging.getLogger(__name__)

MUTATIONS: Final = "ai.nanobot.hooks/mutations"
"""Member of a result's `_meta`: which directions were changed by hooks, and why."""

_Said = tuple[str, Payload, Audience, Told]

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
        self._said: deque[_Said] = deque()
        self._has_said = anyio.Event()

    def hear(self, told: Told) -> Callable[[], None]:
        """As `Source`; what the server says on its own passes hooks while `run` is running."""
        if not self._hooks.hear_notifications:
            return self._inner.hear(told)

        def note(method: str, params: Payload, audience: Audience) -> None:
            if not self._hooks.concern(method, "request"):
                told(method, params, audience)
                return
            if len(self._said) >= MOST_WAITING:
                log.warning("news dropped: hooks are too slow", extra={"server": self.name, "method": method})
                return
            self._said.append((method, params, audience, told))
            self._has_said.set()

        return self._inner.hear(note)

    async def run(self) -> None:
        """Pass on what the server says on its own, one by one, until cancelled."""
        while True:
            if not self._said:
                self._has_said = anyio.Event()
                await self._has_said.wait()
            method, params, audience, told = self._said.popleft()
            call = Call(caller=Caller(account=audience.account or "", session=audience.session))
            try:
                params = await passed_on(self._hooks, method, params, call)
                told(method, params, audience)
            except RpcError as e:
                log.info("notification dropped", extra={"method": method, "reason": e.message})

    async def listing(self, kind: Kind, caller: Caller = NOBODY) -> Sequence[Entry]:
        """The whole list is one message to hooks, however many pages it came in."""
        method, member, key = _LISTS[kind]
        call = Call(caller=caller)
        request = self._request(method, {})
        await self._pass(method, "request", request, call, {})
        try:
            entries = await self._inner.listing(kind, caller)
        except (RpcError, UpstreamError, Busy) as e:
            passed = await self._pass(method, "response", error_answer(request, e), call, {})
            if not passed.is_mutated:
                raise
            result = result_or_raise(passed.message)
        else:
            if not self._hooks.concern(method, "response"):
                return entries
            items = [entry.definition.value for entry in entries]
            answer = {"jsonrpc": "2.0", "id": request["id"], "result": {member: items}}
            passed = await self._pass(method, "response", answer, call, {})
            if not passed.is_mutated:
                return entries
            result = result_or_raise(passed.message)
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
            passed = await self._pass(method, "response", error_answer(request, e), call, about)
            if not passed.is_mutated:
                raise
            traces["response"] = passed.trace
            return _traced(Payload.of(result_or_raise(passed.message)), traces)
        if self._hooks.concern(method, "response"):
            answer = {"jsonrpc": "2.0", "id": request["id"], "result": result.object()}
            passed = await self._pass(method, "response", answer, call, about)
            if passed.is_mutated:
                traces["response"] = passed.trace
                result = Payload.of(result_or_raise(passed.message))
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
                passed = await self._pass(method, "response", error_answer(question, e), call, about)
                if not passed.is_mutated:
                    raise
                return Payload.of(result_or_raise(passed.message))
            reply = {"jsonrpc": "2.0", "id": question["id"], "result": answer.object()}
            passed = await self._pass(method, "response", reply, call, about)
            return Payload.of(result_or_raise(passed.message)) if passed.is_mutated else answer

        return asked

    def _request(self, method: str, params: JsonObject) -> JsonObject:
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}

    async def _pass(
        self, method: str, direction: Direction, message: JsonObject, call: Call, about: JsonObject
    ) -> Passed:
        return await self._hooks.pass_on(method, direction, message, call, about=about)


def _params(passed: Passed) -> JsonObject:
    return passed.message.get("params", {})


def _traced(result: Payload, traces: JsonObject) -> Payload:
    """`result` with a note of what hooks changed; everything else in it stays as it is."""
    members: dict[str, Any] = dict(result.members())
    meta = Payload.encoded(members["_meta"]).value if "_meta" in members else None
    members["_meta"] = {**(meta if isinstance(meta, dict) else {}), MUTATIONS: traces}
    return Payload(msgspec.json.encode(members))
