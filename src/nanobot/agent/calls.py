"""Running the calls of an answer: in order, side by side where that is safe, each at most once."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import anyio

from nanobot.agent import notes
from nanobot.agent.assignment import Assignment, TurnServices
from nanobot.agent.delegation import refusal
from nanobot.agent.errand import Errand
from nanobot.agent.events import Body, ToolFinished, ToolStarted
from nanobot.agent.guard import LoopGuard
from nanobot.agent.hook_notes import with_notes
from nanobot.agent.input import chat_input
from nanobot.agent.plan import Planned, Refused, Step, groups, plan
from nanobot.agent.progress import CallProgress
from nanobot.agent.recovery import Answer
from nanobot.agent.results import failed, normalised
from nanobot.agent.toolbox import Toolbox
from nanobot.agent.tools import ToolResult
from nanobot.agent.transcript import Transcript
from nanobot.agent.truncation import fit
from nanobot.config.model import Agent
from nanobot.errors import NanobotError
from nanobot.ids import new_id
from nanobot.llm.messages import Message, ToolCall, ToolOutput
from nanobot.llm.model import Usage

log = logging.getLogger(__name__)

_GRACE_S: Final = 2.0
"""How long a stopped turn waits for its tools to notice."""


@dataclass(slots=True, eq=False)
class _Running:
    """A step of the group that is being run. `output` is known when it was refused or has ended."""

    step: Step
    errand: Errand[ToolOutput] | None = None
    output: ToolOutput | None = None


class Calls:
    """The tool calls of one turn, answer by answer. `usage` is what agents that were asked have cost."""

    def __init__(
        self, task: Assignment, services: TurnServices, transcript: Transcript, emit: Callable[[Body], None]
    ) -> None:
        self._task = task
        self._services = services
        self._transcript = transcript
        self._emit = emit
        self._guard = LoopGuard()
        self._agent = task.agent
        self._message_id = ""
        self._running: deque[_Running] = deque()
        self._waiting: deque[list[Step]] = deque()
        self.usage: list[Usage] = []

    async def run(self, agent: Agent, toolbox: Toolbox, answer: Answer, message_id: str) -> ToolCall | None:
        """Record `answer` of `agent`, run its calls and record their results, in call order.

        Gives the call that was made once too often in a row, if one was. When this is left early, `give_up`
        says what became of the rest.
        """
        steps = plan(answer.calls, toolbox)
        as_planned = {step.call.call_id: step.call for step in steps}
        items = [as_planned[item.call_id] if isinstance(item, ToolCall) else item for item in answer.items]
        waiting = deque(groups(steps, parallel=agent.parallel_tools))
        message = self._transcript.message("assistant", items, id=message_id)
        await self._transcript.record([message], started=_to_run(waiting[0]))
        self._agent = agent
        self._message_id = message_id
        self._waiting = waiting
        repeated: ToolCall | None = None
        while waiting:
            self._running = deque([self._start(toolbox, step) for step in waiting.popleft()])
            while self._running:
                if first := self._running[0].errand:
                    await first.ended.wait()
                repeated = await self._record_ready() or repeated
        return repeated

    async def give_up(self) -> tuple[list[Message], list[ToolCall]]:
        """Stop what runs, wait briefly for it, and give a result for every call without one in the record."""
        for one in self._running:
            if one.errand is not None:
                one.errand.cancel()
        with anyio.move_on_after(_GRACE_S):
            for one in self._running:
                if one.errand is not None:
                    await one.errand.ended.wait()
        finished = [self._taken(one, notes.CALL_CANCELLED) for one in self._running]
        unstarted = [_Running(step) for group in self._waiting for step in group]
        finished += [self._taken(one, notes.CALL_NOT_STARTED) for one in unstarted]
        self._running.clear()
        self._waiting.clear()
        results = [self._transcript.message("user", (output,)) for _, output in finished]
        return results, [call for call, _ in finished]

    def _start(self, toolbox: Toolbox, step: Step) -> _Running:
        self._emit(ToolStarted(self._message_id, step.call))
        if isinstance(step, Refused):
            output = _output(step.call, ToolResult.text(step.reason, is_error=True))
            self._emit(ToolFinished(self._message_id, step.call, output, 0))
            return _Running(step, output=output)
        one = _Running(step)
        one.errand = Errand(lambda: self._carry_out(toolbox, step, one))
        self._services.tool_tasks.start_soon(one.errand.run)
        return one

    async def _carry_out(self, toolbox: Toolbox, step: Planned, one: _Running) -> ToolOutput:
        began = time.perf_counter()
        output = await self._perform(toolbox, step, one)
        ms = round((time.perf_counter() - began) * 1000)
        self._tell(one, ToolFinished(self._message_id, step.call, output, ms))
        one.output = output
        return output

    def _tell(self, one: _Running, news: Body) -> None:
        """Emit news of a step, unless the turn has ended without it."""
        if one in self._running:
            self._emit(news)

    async def _perform(self, toolbox: Toolbox, step: Planned, one: _Running) -> ToolOutput:
        """The boundary of one tool call: whatever fails in it is a result for the model."""
        call, tool = step.call, step.tool
        progress = CallProgress(call.call_id, lambda body: self._tell(one, body), self._task.call.notify)
        try:
            context = self._task.call_for_tool()
            reason = await self._services.gate.refusal(self._agent, tool, step.arguments, context)
            if reason is not None:
                return _output(call, ToolResult.text(reason, is_error=True))
            if tool.target_type == "agent":
                return await self._consult(step, progress)
            context.wants_progress = True
            context.notify = progress.notify
            result = await toolbox.call_tool(tool.name, step.arguments, context)
            return _output(call, await self._fit(step, result))
        except NanobotError as e:
            return _output(call, failed(tool.name, str(e)))
        except Exception:
            log.exception("tool call failed", extra={"tool": tool.name, "server": tool.target})
            return _output(call, failed(tool.name, "internal error; the log of nanobot has the details."))

    async def _consult(self, step: Planned, progress: CallProgress) -> ToolOutput:
        """Another agent's answer as a result. It sees its prompt and nothing of this thread."""
        context = self._task.call_for_tool()
        reason = refusal(context.agents, step.tool.target)
        if reason is not None:
            return _output(step.call, ToolResult.text(reason, is_error=True))
        answer = await self._services.consult(
            step.tool.target, chat_input(step.arguments), call=context, on_event=progress.of_agent
        )
        self.usage.append(answer.usage)
        content = [{"type": "text", "text": answer.text}]
        result = ToolResult(content=content, is_error=answer.is_error, structured=answer.structured)
        output = _output(step.call, await self._fit(step, result))
        return replace(output, agent=answer.agent, model=answer.model, stop_reason=answer.stop)

    async def _fit(self, step: Planned, result: ToolResult) -> ToolResult:
        name = step.tool.name
        trusted = step.tool.target.startswith("nanobot.")  # nobody else can have such a name
        result = with_notes(normalised(result, tool=name))
        return await fit(result, self._task.files, tool=name, call_id=step.call.call_id, trusted=trusted)

    async def _record_ready(self) -> ToolCall | None:
        """Record the results that are there; with the last of a group, that the next one starts."""
        ready: list[_Running] = []
        for one in self._running:
            if one.errand is not None and not one.errand.ended.is_set():
                break
            ready.append(one)
        finished = [self._taken(one, notes.CALL_CANCELLED) for one in ready]
        is_last = len(ready) == len(self._running)
        await self._transcript.record(
            [self._transcript.message("user", (output,)) for _, output in finished],
            started=_to_run(self._waiting[0]) if is_last and self._waiting else (),
            done=[call for call, _ in finished],
        )
        for _ in ready:
            self._running.popleft()
        repeated = [call for call, output in finished if self._guard.goes_round(call, output)]
        return repeated[-1] if repeated else None

    def _taken(self, one: _Running, otherwise: str) -> tuple[ToolCall, ToolOutput]:
        """The call and its output; `otherwise` is the error result if there is none."""
        if one.output is None:
            one.output = _output(one.step.call, ToolResult.text(otherwise, is_error=True))
            self._emit(ToolFinished(self._message_id, one.step.call, one.output, 0))
        return one.step.call, one.output


def _to_run(group: Sequence[Step]) -> list[ToolCall]:
    return [step.call for step in group if isinstance(step, Planned)]


def _output(call: ToolCall, result: ToolResult) -> ToolOutput:
    return ToolOutput(
        id=new_id("item"),
        call_id=call.call_id,
        content=result.content,
        is_error=result.is_error,
        structured=result.structured,
        meta=result.meta,
    )
