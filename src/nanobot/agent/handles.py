"""What front doors get from the engine: a turn they asked for, a thread they read."""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio

from nanobot.agent.assignment import TurnResult
from nanobot.agent.broadcast import Reader
from nanobot.agent.events import Body, Event
from nanobot.agent.transcript import TURN
from nanobot.config.model import Agent
from nanobot.llm.messages import Message
from nanobot.llm.model import Usage
from nanobot.wire.call import Call

log = logging.getLogger(__name__)

OnEvent = Callable[[Body], None]


class Turn:
    """A turn that was accepted: its input is stored. `message_id` is the id of the input's message."""

    def __init__(
        self, thread_id: str, message: Message, agent: Agent, call: Call, on_event: OnEvent | None
    ) -> None:
        self.id = str((message.meta or {})[TURN])
        self.thread_id = thread_id
        self.message = message
        self.agent = agent
        self.call = call
        self.on_event = on_event
        """Told every event of the turn as it happens; None to be told nothing (any more)."""
        self.scope = anyio.CancelScope()
        self._ended = anyio.Event()
        self._result: TurnResult | None = None

    @property
    def message_id(self) -> str:
        return self.message.id

    async def wait(self) -> TurnResult:
        """How it ended. Giving up waiting does not stop the turn."""
        await self._ended.wait()
        assert self._result is not None
        return self._result

    def cancel(self, reason: str = "") -> None:
        """Stop it: at once if it runs, else when its turn comes. Stopping an ended turn does nothing."""
        log.info("a turn is to stop", extra={"turn": self.id, "reason": reason})
        self.scope.cancel()

    def end(self, result: TurnResult | None) -> None:
        """It is over; None if it never got to run because the program ends."""
        self._result = result or TurnResult(
            stop="cancelled",
            message=None,
            error="The turn was stopped because the program ends.",
            usage=Usage(requests=0),
            structured=None,
            model="",
            agent=self.agent.id,
        )
        self._ended.set()


class Attachment:
    """A thread as its reader sees it: what was said, what the running turn did so far, and then every event.

    `history` has all complete messages, those of the running turn (id `running`, else None) included; the
    `backlog` tells of these again, under the same ids. Iterating never holds up a turn: deltas that were not
    read in time come joined. It ends when the thread is deleted, or when the reader is thousands of events
    behind and has to attach again.
    """

    def __init__(self, history: tuple[Message, ...], running: str | None, reader: Reader) -> None:
        self.history = history
        self.running = running
        self._reader = reader
        self.backlog: list[Event] = []
        while (event := reader.next_ready()) is not None:
            self.backlog.append(event)

    def __aiter__(self) -> Attachment:
        return self

    async def __anext__(self) -> Event:
        return await self._reader.__anext__()

    def detach(self) -> None:
        """Read no more."""
        self._reader.leave()
