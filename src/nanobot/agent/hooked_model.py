"""A model with hooks: before it is asked, and after it has answered.

What a `response` hook may still change is not shown before it has looked: text then arrives at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nanobot.agent.model_json import (
    changed_request,
    changed_response,
    new_response,
    request_json,
    response_json,
)
from nanobot.hub.hooks.events import EventHooks
from nanobot.llm.messages import Reasoning, Text, ToolCall
from nanobot.llm.model import (
    ArgumentsDelta,
    Delta,
    Emit,
    ModelRequest,
    ModelResponse,
    ReasoningDelta,
    RetryStatus,
    TextDelta,
)
from nanobot.wire.call import Call

if TYPE_CHECKING:
    from nanobot.llm.router import Chosen


class HookedModel:
    """Satisfies `Model` with the model of `chosen` and the `request` and `response` hooks of an agent."""

    def __init__(self, chosen: Chosen, hooks: EventHooks, agent: str, call: Call) -> None:
        self._chosen = chosen
        self._hooks = hooks
        self._agent = agent
        self._call = call

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """As the model, and `HooksFailed` or `BadHookAnswer` when a hook did not do its part."""
        response: ModelResponse | None = None
        if self._hooks.has("request"):
            request, response = await self._before(request)
        if not self._hooks.has("response"):
            if response is None:
                return await self._chosen.model.respond(request, emit)
            _show(response, emit)
            return response
        held: list[Delta] = []

        def hold(delta: Delta) -> None:
            emit(delta) if isinstance(delta, RetryStatus) else held.append(delta)

        if response is None:
            response = await self._chosen.model.respond(request, hold)
        after = await self._after(request, response)
        if held and after is response:
            for delta in held:
                emit(delta)
        else:
            _show(after, emit)
        return after

    async def _before(self, request: ModelRequest) -> tuple[ModelRequest, ModelResponse | None]:
        """The request as the hooks want it sent, and the answer if they gave one."""
        shown = request_json(request, model=self._chosen.label, agent=self._agent)
        payload: dict[str, Any] = {"request": shown, "response": None}
        after = await self._hooks.run("request", payload, self._call)
        if after.get("request") != shown:
            request = changed_request(request, shown, after.get("request"))
        given = after.get("response")
        return request, None if given is None else new_response(given, request.model)

    async def _after(self, request: ModelRequest, response: ModelResponse) -> ModelResponse:
        sent = request_json(request, model=self._chosen.label, agent=self._agent)
        shown = response_json(response)
        after = await self._hooks.run("response", {"request": sent, "response": shown}, self._call)
        if after.get("response") == shown:
            return response
        return changed_response(response, shown, after.get("response"))


def _show(response: ModelResponse, emit: Emit) -> None:
    """Emit a whole answer as if it had just arrived."""
    for item in response.items:
        match item:
            case Text(id, text):
                emit(TextDelta(id, text))
            case Reasoning(id=id, summary=summary) if summary:
                emit(ReasoningDelta(id, "\n".join(summary)))
            case ToolCall():
                emit(ArgumentsDelta(item.id, item.call_id, item.name, item.arguments))
            case _:
                pass
