"""One live conversation: its history in memory, its queue of inputs, its one running turn, its readers.

A turn belongs to the engine. Whoever submitted it or reads along may go at any time; the turn goes on.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio

from nanobot.agent.assignment import Assignment, TurnServices
from nanobot.agent.broadcast import Broadcast, Reader
from nanobot.agent.context.summary import is_summary
from nanobot.agent.events import Body
from nanobot.agent.handles import Attachment, OnEvent, Turn
from nanobot.agent.input import Input, user_message
from nanobot.agent.loading import load
from nanobot.agent.model_history import ModelHistory
from nanobot.agent.slots import Slots
from nanobot.agent.transcript import TURN, Record
from nanobot.agent.turn import TurnRun
from nanobot.config.model import Agent
from nanobot.errors import Busy, NotFound, StoreError
from nanobot.ids import new_id
from nanobot.llm.messages import Message, ToolCall, encode_message
from nanobot.store.rows import CallState, LedgerEntry, StoredMessage, ThreadRow, TurnRow
from nanobot.store.threads import Threads
from nanobot.wire.call import Call

log = logging.getLogger(__name__)

MOST_WAITING: Final = 20
"""Inputs that may wait behind a running turn."""
_LONGEST_TITLE: Final = 60


class Conversation:
    """A thread in memory. `load` comes before anything else; `start` is called when there is work to own.

    Other processes may add to the thread while no turn of this one runs or waits in it. That is noticed
    when an input is accepted or a reader comes, and the thread is read again.
    """

    def __init__(
        self,
        row: ThreadRow,
        *,
        threads: Threads,
        services: TurnServices,
        slots: Slots,
        files: Path,
        sequence: int,
        start: Callable[[Conversation], None],
    ) -> None:
        self.row = row
        self.users = 0
        """Calls and readers that hold this object; with none and nothing to do it may be forgotten."""
        self.running: Turn | None = None
        self.broadcast = Broadcast(row.id, sequence)
        self.history: list[Message] = []
        self.model_history = ModelHistory()
        self.call_ids: set[str] = set()
        self._threads = threads
        self._services = services
        self._slots = slots
        self._files = files
        self._start = start
        self._queue: deque[Turn] = deque()
        self._accepting = anyio.Lock(fast_acquire=True)  # inputs are stored in the order they came
        self._is_working = False
        self._is_loaded = False  # what is in memory is what is on record
        self._last = ""  # the id of the message stored last, as far as we know
        self._is_deleted = False

    @property
    def is_idle(self) -> bool:
        return not self.users and not self._is_working

    @property
    def waiting(self) -> int:
        """How many inputs wait for the turns before them."""
        return len(self._queue)

    async def load(self) -> None:
        """Have the history in memory. A turn that a crash has interrupted is noticed and closed here.

        While a turn runs, what is in memory is left alone: nobody else adds to the thread then.
        """
        if self._is_loaded or self._is_working:
            return
        async with self._accepting:
            if not self._is_loaded and not self._is_working:
                await self._load()
                await self._make_folder()

    async def refresh(self) -> None:
        """`load`, and again if another process has added to the thread since."""
        if self._is_loaded and not self._is_working:
            async with self._accepting:
                if not self._is_working and await self._threads.last(self.row.id) != self._last:
                    self._is_loaded = False
        await self.load()

    async def _load(self) -> None:
        """Read the thread, but for the turns that are still to come."""
        coming = {turn.id for turn in (self.running, *self._queue) if turn is not None}
        loaded = await load(self._threads, self.row.id, self._services.now(), ahead=coming)
        self.history = [message for message in loaded.messages if not is_summary(message)]
        self.model_history = ModelHistory(loaded.messages)
        self.call_ids = {item.call_id for m in self.history for item in m.items if isinstance(item, ToolCall)}
        self._last, self._is_loaded = loaded.last, loaded.is_settled

    async def _catch_up(self) -> StoreError | None:
        """Have what another process has added in memory before a turn begins; why that is not possible."""
        if not self._is_loaded:
            try:
                async with self._accepting:
                    self.row = await self._threads.find(self.row.id, account=self.row.account) or self.row
                    await self._load()
            except StoreError as e:
                return e
        return None

    async def _make_folder(self) -> None:
        try:
            await anyio.Path(self.row.folder).mkdir(parents=True, exist_ok=True)
        except OSError as e:  # tools that need it will say so; talking goes on
            fields = {"thread_id": self.row.id, "folder": self.row.folder, "reason": e.strerror}
            log.warning("a thread has no working folder", extra=fields)

    async def submit(self, input: Input, agent: Agent, call: Call, on_event: OnEvent | None) -> Turn:
        """Store the input and queue its turn.

        Raises `Busy` when too many wait or another process has a turn here, `StoreError`, `NotFound`.
        """
        await self.load()
        async with self._accepting:
            if self._is_deleted:
                raise NotFound(f"There is no thread {self.row.id!r}.")
            if len(self._queue) >= MOST_WAITING:
                raise Busy(f"{MOST_WAITING} messages already wait in this conversation; try again later.")
            now = self._services.now()
            message = user_message(input, created=now, meta={TURN: new_id("turn")})
            turn = Turn(self.row.id, message, agent, call, on_event)
            row = TurnRow(id=turn.id, thread_id=self.row.id, agent=agent.id, started=now)
            with anyio.CancelScope(shield=True):  # stored and queued, or neither
                before = await self._threads.accept(self.row.id, _stored(message), row)
                self._is_loaded &= before == self._last
                self._last = message.id
            self._queue.append(turn)
        if not self._is_working:
            self._is_working = True
            self._start(self)
        return turn

    def attach(self) -> Attachment:
        """Look at the thread from now on, until `Attachment.detach`."""
        running = self.running.id if self.running else None
        return Attachment(tuple(self.history), running, Reader(self.broadcast))

    def stop(self, reason: str) -> bool:
        """Stop the running turn and drop those that wait. Whether there was one."""
        turns = [*([self.running] if self.running else []), *self._queue]
        for turn in turns:
            turn.cancel(reason)
        return bool(turns)

    async def close(self, reason: str) -> None:
        """Stop everything, refuse further inputs, and wait until all turns have ended."""
        self._is_deleted = True
        self.stop(reason)
        while (turn := self.running or (self._queue[0] if self._queue else None)) is not None:
            await turn.wait()

    def end_readers(self) -> None:
        """End all readers. Called once the thread is deleted, so that whoever attaches again is told so."""
        for reader in [*self.broadcast.readers]:
            reader.leave()

    async def work(self) -> None:
        """Carry out the turns that wait, one after the other. Run by the engine."""
        try:
            while self._queue:
                await self._carry_out(self._queue.popleft())
        finally:
            self._is_working = False
            while self._queue:  # the program ends; they are in the record
                self._queue.popleft().end(None)

    async def _carry_out(self, turn: Turn) -> None:
        self.running = turn
        run: TurnRun | None = None
        try:
            problem = await self._catch_up()
            run = self._run_of(turn, problem)
            if not self.row.title:
                await self._give_title(turn.message)
            self._remember(turn.message)
            with turn.scope:
                await run.carry_out()
        finally:
            self.running = None
            self.broadcast.cut()
            result = run.result if run else None
            if result is None or result.message is None:
                # Something was not stored: memory may differ from the record, and the record is right.
                self._is_loaded = False
            turn.end(result)

    def _run_of(self, turn: Turn, problem: StoreError | None) -> TurnRun:
        task = Assignment(
            turn_id=turn.id,
            agent=turn.agent,
            message=turn.message,
            call=turn.call,
            files=self._files / "truncated-outputs",
            thread_id=self.row.id,
            folder=Path(self.row.folder) if self.row.folder else None,
        )
        journal = _Stored(self, turn, problem)
        return TurnRun(task, self._services, journal, self._teller(turn), self._slots)

    def _teller(self, turn: Turn) -> OnEvent:
        broadcast = self.broadcast
        if turn.on_event is None:
            return broadcast.emit

        def tell(body: Body) -> None:
            broadcast.emit(body)
            if turn.on_event is not None:
                try:
                    turn.on_event(body)
                except Exception:
                    log.exception("a listener failed and is told no more", extra={"turn": turn.id})
                    turn.on_event = None

        return tell

    async def _give_title(self, message: Message) -> None:
        title = title_of(message.text)
        if not title or self._is_deleted:
            return
        try:
            await self._threads.rename(self.row.id, title)
        except (StoreError, NotFound) as e:
            log.warning("no title stored", extra={"thread_id": self.row.id, "reason": str(e)})
        self.row = replace(self.row, title=title)

    def _remember(self, message: Message) -> None:
        if not is_summary(message):  # for the model alone; people read what was said
            self.history.append(message)
        self.model_history.add(message)

    async def record(self, turn: Turn, new: Record) -> None:
        """Store what a turn has done in one transaction, then have it in memory."""
        entries = [self._entry(turn, call, "done") for call in new.done]
        entries += [self._entry(turn, call, "started") for call in new.started]
        row = None
        if new.stop is not None:
            row = TurnRow(
                id=turn.id,
                thread_id=self.row.id,
                agent=turn.agent.id,
                started=turn.message.created,
                stop=new.stop,
            )
        await self._threads.append(self.row.id, [_stored(m) for m in new.messages], calls=entries, turn=row)
        for message in new.messages:
            self._remember(message)
            self._last = message.id

    def _entry(self, turn: Turn, call: ToolCall, state: CallState) -> LedgerEntry:
        return LedgerEntry(
            thread_id=self.row.id,
            turn_id=turn.id,
            call_id=call.call_id,
            name=call.name,
            state=state,
            started=self._services.now() if state == "started" else "",  # "" keeps what is on record
        )


class _Stored:
    """The `Journal` of a turn of a stored conversation; `problem`: why its history is not known."""

    def __init__(self, conversation: Conversation, turn: Turn, problem: StoreError | None) -> None:
        self._conversation = conversation
        self._turn = turn
        self._problem = problem
        self.call_ids = conversation.call_ids

    @property
    def history(self) -> ModelHistory:
        if self._problem is not None:
            raise self._problem
        return self._conversation.model_history

    async def record(self, new: Record) -> None:
        await self._conversation.record(self._turn, new)


def title_of(text: str) -> str:
    """What a conversation is called that begins with `text`: its first words, on one line."""
    line = " ".join(text[: 4 * _LONGEST_TITLE].split())
    if len(line) <= _LONGEST_TITLE:
        return line
    cut = line[: _LONGEST_TITLE - 1]
    words = cut.rpartition(" ")[0]
    return (words or cut) + "…"


def _stored(message: Message) -> StoredMessage:
    return StoredMessage(message.id, encode_message(message))
