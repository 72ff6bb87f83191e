"""One turn: ask the model, run the tools it asks for, until it has answered.

`_converse` is the loop. What is asked again when an answer cannot stand is decided in `recovery`, what calls
become in `calls`, what is durable when in `transcript`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

import anyio
import anyio.lowlevel

from nanobot.agent import notes
from nanobot.agent.assignment import Assignment, TurnResult, TurnServices
from nanobot.agent.briefing import Briefing
from nanobot.agent.calls import Calls
from nanobot.agent.context.room import Room
from nanobot.agent.draft import Draft
from nanobot.agent.events import Body, Delta, Retrying, StopReason, TurnEnded, TurnStarted
from nanobot.agent.guard import TIMES
from nanobot.agent.model_history import CANCELLED
from nanobot.agent.output import Mismatch
from nanobot.agent.recovery import AS_PLANNED, Answer, Attempt, Recovery
from nanobot.agent.slots import Slots
from nanobot.agent.transcript import Journal, Transcript
from nanobot.errors import NanobotError
from nanobot.ids import new_id
from nanobot.llm.messages import Item, Message, Text
from nanobot.llm.model import Delta as ModelDelta
from nanobot.llm.model import ModelResponse, ProviderError, RetryStatus, Usage

log = logging.getLogger(__name__)

ERROR: Final = "ai.nanobot.meta/error"
"""Mark of a message that stands where an answer failed: kind, status, code and the id in the log."""
_SENTENCES: Final[Mapping[StopReason, str]] = {
    "length": "The answer was cut off at the output limit of the model.",
    "refusal": notes.REFUSED,
    "content_filter": notes.FILTERED,
    "empty_final_response": notes.NO_ANSWER,
}


@dataclass(frozen=True, slots=True)
class _Ending:
    stop: StopReason
    message: Message | None = None
    error: str = ""
    structured: Any = None


class TurnRun:
    """One turn being carried out. `result` is there once `carry_out` has returned or was cancelled."""

    def __init__(
        self,
        task: Assignment,
        services: TurnServices,
        journal: Journal,
        emit: Callable[[Body], None],
        slots: Slots,
    ) -> None:
        self._task = task
        self._services = services
        self._slots = slots
        self._journal = journal
        self._emit = emit
        self._transcript = Transcript(task, journal, emit, services.now)
        self._calls = Calls(task, services, self._transcript, emit)
        self._room = Room(task, journal, services.gauge, emit, services.now)
        self._draft: Draft | None = None
        self._usage: list[Usage] = []
        self._model = ""
        self.result: TurnResult | None = None

    async def carry_out(self) -> TurnResult:
        """Carry out the turn. Whatever happens there is one `TurnEnded`; only cancellation is raised."""
        task = self._task
        self._emit(TurnStarted(task.turn_id, task.agent.id, task.message))
        try:
            async with self._slots.held():
                return self._end(await self._converse_or_fail())
        except anyio.get_cancelled_exc_class():
            self._end(await self._close("cancelled", "The turn was stopped.", meta={CANCELLED: True}))
            raise

    async def _converse(self) -> _Ending:
        """The loop. A round is one answer of the model and the calls it asks for."""
        await anyio.lowlevel.checkpoint_if_cancelled()  # it may have been stopped while it waited
        async with AsyncExitStack() as company:
            call = self._task.call_for_tool()
            briefing = await self._services.briefings.prepare(self._task.agent, call, company)
            return await self._rounds(briefing)

    async def _rounds(self, briefing: Briefing) -> _Ending:
        agent = briefing.agent
        tool_choice = briefing.tool_choice
        for _ in range(agent.max_iterations):
            message_id = new_id("msg")
            answer = await self._answer(briefing, message_id, tool_choice)
            if not answer.calls:
                return await self._finish(briefing, message_id, answer)
            self._draft = None  # from here on `Calls` records it
            repeated = await self._calls.run(agent, briefing.toolbox, answer, message_id)
            if repeated is not None:
                names = {"tool": repeated.name, "times": TIMES}
                return await self._wind_up(
                    briefing, "loop_guard", notes.GOING_ROUND, notes.STOPPED_LOOP, names
                )
            tool_choice = None
        names = {"limit": agent.max_iterations}
        return await self._wind_up(
            briefing, "max_iterations", notes.ROUNDS_USED_UP, notes.OUT_OF_ROUNDS, names
        )

    async def _answer(self, briefing: Briefing, message_id: str, tool_choice: str | None) -> Answer:
        """One answer that can stand, however often the model has to be asked for it."""
        recovery = Recovery(self._journal.call_ids)
        attempt = AS_PLANNED
        while True:
            choice = tool_choice if attempt.as_planned else None
            response = await self._ask(briefing, message_id, attempt, recovery.kept, choice)
            began_call = self._draft is not None and self._draft.began_call
            verdict = recovery.judge(response, began_call=began_call)
            if isinstance(verdict, Answer):
                return verdict
            attempt = verdict

    async def _ask(
        self,
        briefing: Briefing,
        message_id: str,
        attempt: Attempt,
        before: Sequence[Item] = (),
        tool_choice: str | None = None,
    ) -> ModelResponse:
        """One model call; what arrives is emitted as it comes, as pieces of the message `message_id`."""
        history = self._journal.history
        history.close()
        await self._room.make(briefing)
        try:
            return await self._send(briefing, message_id, attempt, before, tool_choice)
        except ProviderError as e:
            if e.kind != "context_length" or e.shown or not await self._room.make(briefing, forced=True):
                raise
        return await self._send(briefing, message_id, attempt, before, tool_choice)

    async def _send(
        self,
        briefing: Briefing,
        message_id: str,
        attempt: Attempt,
        before: Sequence[Item],
        tool_choice: str | None,
    ) -> ModelResponse:
        history = self._journal.history
        count = len(history.messages)
        request = briefing.request(
            [*history.messages, *attempt.extra] if attempt.extra else history.messages,
            thread=self._task.thread_id,
            beginnings=history.beginnings,
            tool_choice=tool_choice,
            with_tools=attempt.with_tools,
            more_room=attempt.more_room,
        )
        draft = self._draft = Draft(message_id, [*before])
        emit, deltas = self._emit, draft.deltas

        def on_delta(delta: ModelDelta) -> None:
            if isinstance(delta, RetryStatus):
                emit(Retrying(delta))
            else:
                deltas.append(delta)
                emit(Delta(message_id, delta))

        response = await briefing.chosen.model.respond(request, on_delta)
        self._usage.append(response.usage)
        self._room.learn(briefing, count, response.usage)
        self._model = response.model
        return response

    async def _finish(self, briefing: Briefing, message_id: str, answer: Answer) -> _Ending:
        """Record the final answer, brought into the form its agent promises."""
        stop, error, structured = answer.stop, _SENTENCES.get(answer.stop, ""), None
        if briefing.output is not None and stop == "completed":
            try:
                answer, structured = await self._in_shape(briefing, message_id, answer)
            except Mismatch as e:
                stop, error = "output_invalid", f"The answer does not have the required form: {e}."
        message = self._transcript.message("assistant", answer.items, id=message_id)
        await self._transcript.record([message], stop=stop)
        return _Ending(stop, message, error, structured)

    async def _in_shape(self, briefing: Briefing, message_id: str, answer: Answer) -> tuple[Answer, Any]:
        """`answer`, or what the model makes of it when told what is wrong; its value. Raises `Mismatch`."""
        assert briefing.output is not None
        try:
            return answer, briefing.output.read(answer.text)
        except Mismatch as e:
            wish = notes.note(notes.REPAIR_OUTPUT.format(problem=e))
        said = self._transcript.message("assistant", answer.items)
        response = await self._ask(briefing, message_id, Attempt(extra=(said, wish), with_tools=False))
        second = Recovery(set()).judge(response)
        if isinstance(second, Attempt) or second.calls:
            raise Mismatch("the model did not repair it")
        return second, briefing.output.read(second.text)

    async def _wind_up(
        self, briefing: Briefing, stop: StopReason, wish: str, sentence: str, names: Mapping[str, object]
    ) -> _Ending:
        """No more tools: have the model say where things stand, or say ourselves why it ends here."""
        message_id, error = new_id("msg"), sentence.format(**names)
        attempt = Attempt(extra=(notes.note(wish.format(**names)),), with_tools=False)
        items: tuple[Item, ...] = ()
        try:
            verdict = Recovery(set()).judge(await self._ask(briefing, message_id, attempt))
            if isinstance(verdict, Answer) and not verdict.calls:
                items = verdict.items
        except ProviderError as e:
            log.warning("no closing words", extra={"turn": self._task.turn_id, "kind": e.kind})
        message = self._transcript.message(
            "assistant", items or (Text(new_id("item"), error),), id=message_id
        )
        await self._transcript.record([message], stop=stop)
        return _Ending(stop, message, error)

    async def _converse_or_fail(self) -> _Ending:
        """The boundary of one turn: every failure ends it with a sentence, remembered in the thread."""
        error_id = new_id("err", 8)
        where = {"turn": self._task.turn_id, "error": error_id}
        try:
            return await self._converse()
        except ProviderError as e:
            log.warning("model request failed", extra=where | {"kind": e.kind, "detail": e.detail})
            stop = "context_too_large" if e.kind == "context_length" else "error"
            mark = {"id": error_id, "kind": e.kind, "status": e.status, "code": e.provider_code}
            return await self._close(stop, f"{e} (error {error_id})", meta={ERROR: mark})
        except NanobotError as e:
            log.warning("turn failed", extra=where | {"code": e.code, "reason": str(e)})
            return await self._close("error", str(e), meta={ERROR: {"id": error_id, "code": e.code}})
        except Exception:
            log.exception("turn failed", extra=where)
            sentence = f"Something inside nanobot went wrong; its log has the details (error {error_id})."
            return await self._close("error", sentence, meta={ERROR: {"id": error_id, "code": "internal"}})

    async def _close(self, stop: StopReason, error: str, *, meta: Mapping[str, Any]) -> _Ending:
        """End early: every call gets a result, what was said is kept, and the record says why it ends."""
        draft, self._draft = self._draft, None
        items = [*draft.items()] if draft else []
        if stop != "cancelled":
            items.append(Text(new_id("item"), notes.MODEL_ERROR))
        message = self._transcript.message(
            "assistant", items, id=draft.message_id if draft else "", meta=meta
        )
        with anyio.CancelScope(shield=True):
            results, done = await self._calls.give_up()
            try:
                await self._transcript.record([*results, message], done=done, stop=stop)
            except NanobotError as e:
                fields = {"turn": self._task.turn_id, "reason": str(e)}
                log.error("the end of a turn was not stored", extra=fields)
                return _Ending(stop, None, error)
        return _Ending(stop, message, error)

    def _end(self, ending: _Ending) -> TurnResult:
        usage = [*self._usage, *self._calls.usage, *self._room.usage]
        total = sum(usage[1:], usage[0]) if usage else Usage(requests=0)
        self.result = TurnResult(
            stop=ending.stop,
            message=ending.message,
            error=ending.error,
            usage=total,
            structured=ending.structured,
            model=self._model,
            agent=self._task.agent.id,
        )
        self._emit(TurnEnded(self._task.turn_id, ending.stop, total, ending.error, self._model))
        return self.result
