"""`GET /api/events/{thread}`: everything said in a thread, then everything that happens in it."""

from __future__ import annotations

from typing import Final

import anyio

from nanobot.agent.engine import Attachment, Engine
from nanobot.agent.events import Delta, Event
from nanobot.errors import NotFound
from nanobot.ids import new_id
from nanobot.server.chat_json import backlog_sse, body_sse, history_json, sse
from nanobot.server.event_stream import Closing, Write, event_stream
from nanobot.server.exchange import Exchange

PACE_S: Final = 0.04
"""Least time between two sendings of streamed text; what comes meanwhile is sent together."""

RETRY_MS: Final = 1000


class EventsApi:
    """Handler of `/api/events/{thread}`, for any number of readers; none of them slows a turn.

    Event ids are `<process>.<sequence>`. A client that comes back with one of this process and of the turn
    that still runs is told the running turn only; any other gets the history again. Both may repeat what it
    knows, under the same ids, and nothing is left out.
    """

    def __init__(self, engine: Engine, closing: Closing) -> None:
        self._engine = engine
        self._closing = closing
        self._process = new_id("p", 8)

    async def watch(self, http: Exchange, thread_id: str) -> None:
        async with (
            self._engine.attach(thread_id, account=http.account) as attachment,
            event_stream(http, closing=self._closing) as write,
        ):
            await write(self._past(attachment, self._last_seen(http)))
            await self._follow(attachment, write)
            if not await self._exists(thread_id, http.account):
                await write(sse({}, event="deleted"))

    async def _exists(self, thread_id: str, account: str) -> bool:
        """Whether a stream that ended may be opened again: a reader too far behind is let go as well."""
        try:
            await self._engine.open_thread(id=thread_id, account=account)
        except NotFound:
            return False
        return True

    def _past(self, attachment: Attachment, last_seen: int | None) -> bytes:
        backlog = attachment.backlog
        told = b"retry: %d\n\n" % RETRY_MS
        known: set[str] = set()
        if last_seen is None or not backlog or last_seen < backlog[0].sequence:
            known = {m.id for m in attachment.history}
            told += sse({}, event="history-start")
            told += b"".join(sse(m) for m in history_json(attachment.history))
            told += sse({}, event="history-end")
        return told + backlog_sse(backlog, known)

    async def _follow(self, attachment: Attachment, write: Write) -> None:
        async for event in attachment:
            if told := body_sse(event.body, self._id(event)):
                await write(told)
            if isinstance(event.body, Delta):
                await anyio.sleep(PACE_S)  # the attachment joins the deltas that come meanwhile

    def _id(self, event: Event) -> str:
        return f"{self._process}.{event.sequence}"

    def _last_seen(self, http: Exchange) -> int | None:
        """The sequence in `Last-Event-ID`; None for a new reader or an id of another process."""
        process, _, sequence = http.header(b"last-event-id").decode("latin-1").partition(".")
        return int(sequence) if process == self._process and sequence.isdecimal() else None
