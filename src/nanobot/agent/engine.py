"""The engine: owner of every turn, and the one way into conversations for all front doors."""

from __future__ import annotations

import logging
import shutil
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup, TaskStatus

from nanobot.agent.approval.gate import Gate
from nanobot.agent.assignment import Assignment, TurnResult, TurnServices
from nanobot.agent.briefing import Briefings, ModelChoice
from nanobot.agent.context.tokens import Gauge
from nanobot.agent.conversation import Conversation
from nanobot.agent.handles import Attachment, OnEvent, Turn
from nanobot.agent.input import Input, user_message
from nanobot.agent.slots import Slots
from nanobot.agent.tools import Tool
from nanobot.agent.transcript import Unstored
from nanobot.agent.turn import TurnRun
from nanobot.agent.turn_hooks import HookedBriefings
from nanobot.aio import task_group
from nanobot.config.home import files_of
from nanobot.config.model import Agent, Config
from nanobot.errors import Duplicate, NotFound
from nanobot.ids import new_id, new_uuid
from nanobot.store.rows import ThreadRow
from nanobot.wire.call import Call

if TYPE_CHECKING:
    from collections.abc import Generator

    from nanobot.hub.guests import OpenGuests
    from nanobot.hub.hooks.events import EventHooks
    from nanobot.hub.hub import Hub
    from nanobot.store.threads import Threads

__all__ = ["Attachment", "Engine", "Input", "Turn", "TurnResult"]

log = logging.getLogger(__name__)

MOST_IDLE: Final = 256
"""Conversations that stay in memory while nothing happens in them."""


def utc_now() -> str:
    """RFC 3339 in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Engine:
    """All conversations and turns of one process. `run` has to be running for anything to happen.

    `max_turns` bounds the turns that run at once, over all front doors; None: any number. `hooks` are those
    of agents, by id; `open_guests` connects the servers that they add.
    """

    def __init__(
        self,
        config: Config,
        *,
        threads: Threads,
        models: ModelChoice,
        hub: Hub,
        max_turns: int | None = None,
        hooks: Mapping[str, EventHooks] = MappingProxyType({}),
        open_guests: OpenGuests | None = None,
        now: Callable[[], str] = utc_now,
    ) -> None:
        self._config = config
        self._threads = threads
        briefings = Briefings(config, models, hub)
        self._briefings = HookedBriefings(briefings, hooks, config, open_guests) if hooks else briefings
        self._gate = Gate(config.home)
        self._gauge = Gauge()
        self._slots = Slots(max_turns)
        self._now = now
        self._owner: TaskGroup | None = None
        self._conversations: dict[str, Conversation] = {}  # the longest unused first
        self._sequence = 0  # the highest of conversations no longer in memory
        self._opening = anyio.Lock(fast_acquire=True)  # so that a key is given to one thread only

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own the turns until cancelled; before this returns each is stopped and what it did is stored."""
        async with task_group() as owner:
            self._owner = owner
            try:
                task_status.started()
                await anyio.sleep_forever()
            finally:
                self._owner = None

    async def open_thread(
        self,
        *,
        id: str | None = None,
        key: str | None = None,
        account: str = "",
        agent: str = "",
        kind: str = "chat",
        folder: Path | None = None,
        title: str = "",
    ) -> ThreadRow:
        """The thread of `account` with this `id`, else the one with this `key`, made if there is none.

        `id` may also be a key; an unknown one is `NotFound`. With neither it is a new thread.
        `agent`, `kind`, `folder` and `title` are those of a new thread; without `folder` it works in its own
        folder under the home. Raises `NotFound` for an unknown agent, `StoreError`.
        """
        if agent:
            self._agent(agent)
        if id is not None:
            return await self._row(id, account)
        if key is None:
            return await self._create(key, account, agent, kind, folder, title)
        async with self._opening:
            row = await self._threads.find(key, account=account)
            try:
                return row or await self._create(key, account, agent, kind, folder, title)
            except Duplicate:  # another process has just made it
                return await self._row(key, account)

    def load(self) -> tuple[int, int]:
        """How many turns of stored threads are under way, and how many inputs wait for their turn."""
        conversations = self._conversations.values()
        return sum(one.running is not None for one in conversations), sum(
            one.waiting for one in conversations
        )

    async def has_thread(self, id: str, account: str) -> bool:
        """Whether `account` has a thread with this id (or key). Raises `StoreError`."""
        return await self._threads.find(id, account=account) is not None

    async def submit(
        self,
        thread_id: str,
        input: Input,
        *,
        agent: str = "",
        call: Call | None = None,
        on_event: OnEvent | None = None,
    ) -> Turn:
        """Accept an input. It is stored when this returns; its turn runs when those before it have ended.

        `agent` "" is that of the thread, else the default one. `on_event` is told the events of this turn as
        they happen; it must not block. Raises `NotFound`, `StoreError`, and `Busy` when too many inputs wait
        or another process is answering in this thread; then nothing is stored.
        """
        call = call or Call()
        conversation = await self._conversation(thread_id, call.caller.account)
        chosen = self._agent(agent or conversation.row.agent)
        with self._using(conversation):
            return await conversation.submit(input, chosen, call, on_event)

    async def once(
        self, agent: str, input: Input, *, call: Call | None = None, on_event: OnEvent | None = None
    ) -> TurnResult:
        """A turn that belongs to no thread and is not stored. It ends with its caller."""
        call = call or Call()
        chosen = self._agent(agent)
        turn_id = new_id("turn")
        message = user_message(input, created=self._now())
        task = Assignment(
            turn_id=turn_id,
            agent=chosen,
            message=message,
            call=call,
            files=files_of(self._config.home, call.thread or turn_id) / "truncated-outputs",
        )
        slots = Slots() if call.agents else self._slots  # inside a turn its slot is used
        run = TurnRun(task, self._services(), Unstored(message), on_event or _nobody, slots)
        return await run.carry_out()

    @asynccontextmanager
    async def attach(
        self, thread_id: str, *, account: str = "", events_only: bool = False
    ) -> AsyncGenerator[Attachment]:
        """Read a thread from now on; nothing falls between its history and its events. Raises `NotFound`.

        With `events_only` the database is not asked what other processes have added to the history.
        """
        conversation = await self._conversation(thread_id, account)
        with self._using(conversation):
            await (conversation.load() if events_only else conversation.refresh())
            attachment = conversation.attach()
            try:
                yield attachment
            finally:
                attachment.detach()

    async def refusal(self, agent: str, tool: Tool, arguments: Mapping[str, Any], call: Call) -> str | None:
        """Why a call that nobody's turn makes must not run in the thread of `agent`; None if it may.

        What the approvals of that agent say counts as in its turns: the person of `call` may be asked.
        Raises `NotFound` for an unknown agent.
        """
        return await self._gate.refusal(self._agent(agent), tool, arguments, call)

    def stop(self, thread_id: str, reason: str = "") -> bool:
        """Stop the running turn and drop those that wait. Whether there was one.

        Takes an id alone and looks at no account: whoever calls it has opened the thread.
        """
        conversation = self._conversations.get(thread_id)
        return conversation is not None and conversation.stop(reason)

    async def threads(self, *, account: str = "", limit: int = 50) -> list[ThreadRow]:
        """The threads of `account`, the last changed first."""
        return await self._threads.recent(account=account, limit=limit)

    async def rename_thread(self, id: str, title: str, *, account: str = "") -> ThreadRow:
        """Give the thread with this id or key a title; the thread as it is then. Raises `NotFound`."""
        row = await self._row(id, account)
        await self._threads.rename(row.id, title)
        if (conversation := self._conversations.get(row.id)) is not None:
            conversation.row = replace(conversation.row, title=title)
        return replace(row, title=title)

    async def delete_thread(self, id: str, *, account: str = "") -> None:
        """Stop what runs in the thread with this id or key, and forget it with the files made for it.

        Raises `NotFound`.
        """
        row = await self._row(id, account)
        conversation = self._conversations.get(row.id)
        if conversation is not None:
            await conversation.close("the thread was deleted")
        await self._threads.delete(row.id)
        self._conversations.pop(row.id, None)
        if conversation is not None:
            conversation.end_readers()
        await anyio.to_thread.run_sync(
            lambda: shutil.rmtree(files_of(self._config.home, row.id), ignore_errors=True)
        )

    def _agent(self, id: str) -> Agent:
        if not id:
            return self._config.default_agent
        agent = self._config.agents.get(id)
        if agent is None:
            known = ", ".join(self._config.agents)
            raise NotFound(f"There is no agent {id!r}; known: {known}.")
        return agent

    async def _row(self, id: str, account: str) -> ThreadRow:
        row = await self._threads.find(id, account=account)
        if row is None:
            raise NotFound(f"There is no thread {id!r}.")
        return row

    async def _create(
        self, key: str | None, account: str, agent: str, kind: str, folder: Path | None, title: str
    ) -> ThreadRow:
        id = new_uuid()
        own = folder or files_of(self._config.home, id)
        return await self._threads.create(
            ThreadRow(id=id, key=key, account=account, agent=agent, kind=kind, folder=str(own), title=title)
        )

    async def _conversation(self, thread_id: str, account: str) -> Conversation:
        conversation = self._conversations.pop(thread_id, None)
        if conversation is None:
            row = await self._row(thread_id, account)
            conversation = self._conversations.pop(row.id, None) or self._new_conversation(row)
        self._conversations[conversation.row.id] = conversation
        if len(self._conversations) > MOST_IDLE:
            self._forget_idle(conversation)
        return conversation

    def _new_conversation(self, row: ThreadRow) -> Conversation:
        return Conversation(
            row,
            threads=self._threads,
            services=self._services(),
            slots=self._slots,
            files=files_of(self._config.home, row.id),
            sequence=self._sequence,
            start=self._start,
        )

    def _start(self, conversation: Conversation) -> None:
        self._group().start_soon(conversation.work)

    def _forget_idle(self, wanted: Conversation) -> None:
        for id, conversation in [*self._conversations.items()]:
            if len(self._conversations) <= MOST_IDLE:
                return
            if conversation is not wanted and conversation.is_idle:
                self._sequence = max(self._sequence, conversation.broadcast.sequence)
                del self._conversations[id]

    @contextmanager
    def _using(self, conversation: Conversation) -> Generator[None]:
        conversation.users += 1
        try:
            yield
        finally:
            conversation.users -= 1

    def _services(self) -> TurnServices:
        return TurnServices(
            briefings=self._briefings,
            gate=self._gate,
            gauge=self._gauge,
            tool_tasks=self._group(),
            consult=self.once,
            now=self._now,
        )

    def _group(self) -> TaskGroup:
        if self._owner is None:
            raise RuntimeError("the engine is not running")
        return self._owner


def _nobody(_: object) -> None:
    """Nobody is told the events."""
