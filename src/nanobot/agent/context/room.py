"""Keeping a turn's requests within the model's window: when room is made, by which means, in which order."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import anyio

from nanobot.agent.assignment import Assignment
from nanobot.agent.briefing import Briefing
from nanobot.agent.context.compaction import condense, cut_of, stub_results
from nanobot.agent.context.summary import NoSummary
from nanobot.agent.context.tokens import Gauge, is_plausible, of_text, of_tools
from nanobot.agent.context.window import Window
from nanobot.agent.events import Body, Condensed
from nanobot.agent.model_history import Measured, ModelHistory
from nanobot.agent.transcript import TURN, Journal, Record
from nanobot.llm.model import ProviderError, Usage

log = logging.getLogger(__name__)

REST_ROUNDS: Final = 3
"""Rounds without another attempt after a summary could not be had."""
_SENTENCE: Final = (
    "The conversation is longer than the model's window of {window} tokens and could not be shortened "
    "enough. Begin a new conversation, or use a model with a larger window."
)


class Room:
    """Of one turn. `usage` is what its summaries have cost."""

    def __init__(
        self,
        task: Assignment,
        journal: Journal,
        gauge: Gauge,
        emit: Callable[[Body], None],
        now: Callable[[], str],
    ) -> None:
        self._task = task
        self._journal = journal
        self._gauge = gauge
        self._emit = emit
        self._now = now
        self._rest = 0
        self._shared: tuple[Briefing, int] | None = None
        self.usage: list[Usage] = []

    async def make(self, briefing: Briefing, *, forced: bool = False) -> bool:
        """Have the next request fit; whether the history was changed for that.

        `forced`: the provider has said that the last request did not fit.
        Raises `ProviderError` (`context_length`) when it cannot be, `StoreError`.
        """
        history, window = self._journal.history, Window.of(briefing.agent)
        before = self._estimate(briefing, history)
        if forced:
            window = window.narrowed(before)
        elif before <= window.trigger:
            return False
        if await stub_results(history, self._task.files) and not forced:
            if self._estimate(briefing, history) <= window.target:
                return True
        is_summarised = await self._summarise(briefing, history, window)
        if not is_summarised:
            self._drop(history, window)
        after = self._estimate(briefing, history)
        if after >= before and forced:
            return False
        log.info(
            "conversation condensed", extra={"turn": self._task.turn_id, "before": before, "after": after}
        )
        self._emit(Condensed(before, after, is_summarised))
        if after > window.size - window.reserve and not forced:
            raise ProviderError("context_length", _SENTENCE.format(window=window.size))
        return True

    def learn(self, briefing: Briefing, count: int, usage: Usage) -> None:
        """Take note of what a request over the first `count` messages has weighed, by its provider."""
        history = self._journal.history
        estimated = self._fixed(briefing) + history.size - sum(history.sizes[count:])
        if usage.source == "reported" and is_plausible(usage.input_tokens, estimated):
            self._gauge.learn(briefing.chosen.scope, reported=usage.input_tokens, estimated=estimated)
            history.measured = Measured(self._key(briefing), count, usage.input_tokens)

    def _estimate(self, briefing: Briefing, history: ModelHistory) -> int:
        """Tokens of a request over the whole history: what was measured, and an estimate of the rest."""
        ratio = self._gauge.ratio(briefing.chosen.scope)
        measured = history.measured
        if measured is not None and measured.key == self._key(briefing):
            return measured.tokens + round(ratio * sum(history.sizes[measured.count :]))
        return round(ratio * (self._fixed(briefing) + history.size))

    def _fixed(self, briefing: Briefing) -> int:
        """What every request of the turn has besides messages."""
        if self._shared is None or self._shared[0] is not briefing:
            self._shared = briefing, of_text(briefing.instructions) + of_tools(briefing.toolbox.specs)
        return self._shared[1]

    def _key(self, briefing: Briefing) -> object:
        return briefing.chosen.scope, briefing.agent.id

    async def _summarise(self, briefing: Briefing, history: ModelHistory, window: Window) -> bool:
        cut = cut_of(history, self._task.message.id, window)
        if self._rest > 0:
            self._rest -= 1
            return False
        if cut is None:
            return False
        chosen = briefing.chosen
        mark = {TURN: self._task.turn_id} if self._task.thread_id else {}
        try:
            done = await condense(
                history, cut, chosen.model, chosen.name, window, created=self._now(), mark=mark
            )
        except NoSummary as e:
            log.warning("no summary", extra={"turn": self._task.turn_id, "reason": str(e)})
            self._rest = REST_ROUNDS
            return False
        self.usage.append(done.usage)
        with anyio.CancelScope(shield=True):  # memory and record tell the same story
            await self._journal.record(Record(messages=[done.message]))
        return True

    def _drop(self, history: ModelHistory, window: Window) -> None:
        """Leave out the oldest, for this run of the program alone."""
        cut = cut_of(history, self._task.message.id, window)
        if cut is not None:
            history.drop(cut.start, cut.keep)
