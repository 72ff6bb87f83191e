"""The chat API: threads, their messages, and turns as a stream of events or as one answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated, Final

import msgspec

from nanobot.agent.engine import Engine, Input, Turn, TurnResult
from nanobot.agent.events import Event, TurnEnded, TurnStarted
from nanobot.config.model import Config
from nanobot.llm.messages import JsonObject
from nanobot.server.chat_json import body_sse, history_json, usage_json
from nanobot.server.event_stream import Closing, event_stream
from nanobot.server.exchange import Exchange
from nanobot.server.problems import BadRequest
from nanobot.store.rows import ThreadRow
from nanobot.wire.call import Call, Caller

MOST_LISTED: Final = 500

Title = Annotated[str, msgspec.Meta(max_length=200)]
Key = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class _NewThread(msgspec.Struct, forbid_unknown_fields=True):
    agent: str = ""
    title: Title = ""
    key: Key | None = None


class _Changes(msgspec.Struct, forbid_unknown_fields=True):
    title: Title


class _NewMessage(msgspec.Struct, forbid_unknown_fields=True):
    text: Annotated[str, msgspec.Meta(min_length=1)]
    agent: str = ""


_new_thread = msgspec.json.Decoder(_NewThread)
_changes = msgspec.json.Decoder(_Changes)
_new_message = msgspec.json.Decoder(_NewMessage)


class ThreadsApi:
    """Handlers of `/api/threads…`. Turns belong to the engine: a client that leaves stops none."""

    def __init__(self, engine: Engine, config: Config, giving_up: Closing) -> None:
        """`giving_up` ends the streams of turns that take longer than the program has time to stop."""
        self._engine = engine
        self._giving_up = giving_up
        self._config = config
        self._body_limit = config.server.max_body_bytes

    async def listing(self, http: Exchange) -> None:
        """`GET /api/threads[?limit=50]`: the most recently used first."""
        limit = http.query.get("limit", "50")
        if not limit.isdecimal() or not 1 <= int(limit) <= MOST_LISTED:
            raise BadRequest(
                422, "invalid_field", f"`limit` is a number from 1 to {MOST_LISTED}.", field="limit"
            )
        rows = await self._engine.threads(account=http.account, limit=int(limit))
        await http.answer_json({"threads": [_row_json(row) for row in rows]})

    async def create(self, http: Exchange) -> None:
        """`POST /api/threads {agent?, title?, key?}`: 201 with the thread, the one that has `key` if any."""
        wanted = await http.read_json(_new_thread, self._body_limit)
        self._check_agent(wanted.agent)
        row = await self._engine.open_thread(key=wanted.key, account=http.account, agent=wanted.agent)
        if wanted.title and not row.title:
            row = await self._engine.rename_thread(row.id, wanted.title, account=http.account)
        location = (b"location", f"/api/threads/{row.id}".encode())
        await http.answer_json(_row_json(row), status=201, headers=[location])

    async def show(self, http: Exchange, thread_id: str) -> None:
        """`GET /api/threads/{id}`: the thread, its messages, and the id of the turn that runs."""
        row = await self._engine.open_thread(id=thread_id, account=http.account)
        async with self._engine.attach(row.id, account=http.account) as attachment:
            history, running = attachment.history, attachment.running
        await http.answer_json({**_row_json(row), "running": running, "messages": history_json(history)})

    async def change(self, http: Exchange, thread_id: str) -> None:
        """`PATCH /api/threads/{id} {title}`."""
        changes = await http.read_json(_changes, self._body_limit)
        row = await self._engine.rename_thread(thread_id, changes.title, account=http.account)
        await http.answer_json(_row_json(row))

    async def delete(self, http: Exchange, thread_id: str) -> None:
        """`DELETE /api/threads/{id}`: stops its turn and forgets it."""
        await self._engine.delete_thread(thread_id, account=http.account)
        await http.answer(204, ())

    async def stop(self, http: Exchange, thread_id: str) -> None:
        """`POST /api/threads/{id}/stop`: `{"stopped": whether a turn was running}`."""
        row = await self._engine.open_thread(id=thread_id, account=http.account)
        await http.answer_json({"stopped": self._engine.stop(row.id, "stopped over HTTP")})

    async def send(self, http: Exchange, thread_id: str) -> None:
        """`POST /api/threads/{id}/messages {text, agent?}`: start a turn.

        With `Accept: text/event-stream` its events until it ends; with `?wait=false` 202 at once; otherwise
        its result when it has ended. The message is stored before any of these answers.
        """
        message = await http.read_json(_new_message, self._body_limit)
        self._check_agent(message.agent)
        if b"text/event-stream" in http.header(b"accept"):
            await self._stream_turn(http, thread_id, message)
            return
        turn = await self._submit(http, thread_id, message)
        if http.query.get("wait", "true") in ("false", "0"):
            await http.answer_json({"turn": turn.id, "message": turn.message_id}, status=202)
        else:
            await http.answer_json(_result_json(turn, await turn.wait()))

    async def _stream_turn(self, http: Exchange, thread_id: str, message: _NewMessage) -> None:
        attaching = self._engine.attach(thread_id, account=http.account, events_only=True)
        async with attaching as attachment:
            turn = await self._submit(http, thread_id, message)
            async with event_stream(http, closing=self._giving_up) as write:
                async for event in _events_of(turn.id, attachment):
                    if told := body_sse(event.body, str(event.sequence)):
                        await write(told)

    async def _submit(self, http: Exchange, thread_id: str, message: _NewMessage) -> Turn:
        call = Call(caller=Caller(account=http.account, values=http.values))
        return await self._engine.submit(thread_id, Input(text=message.text), agent=message.agent, call=call)

    def _check_agent(self, name: str) -> None:
        if name and name not in self._config.agents:
            known = ", ".join(self._config.publish.entrypoint)
            raise BadRequest(
                422, "unknown_agent", f"There is no agent {name!r}; known: {known}.", field="agent"
            )


async def _events_of(turn_id: str, events: AsyncIterator[Event]) -> AsyncIterator[Event]:
    """The events of one turn, of a thread that may be busy with an earlier one."""
    has_begun = False
    async for event in events:
        body = event.body
        has_begun = has_begun or (isinstance(body, TurnStarted) and body.turn_id == turn_id)
        is_end = isinstance(body, TurnEnded) and body.turn_id == turn_id
        if has_begun or is_end:
            yield event
        if is_end:
            return


def _row_json(row: ThreadRow) -> JsonObject:
    body = asdict(row)
    del body["account"], body["folder"]
    return body


def _result_json(turn: Turn, result: TurnResult) -> JsonObject:
    body: JsonObject = {
        "turn": turn.id,
        "stop": result.stop,
        "agent": result.agent,
        "model": result.model,
        "message": result.message.json() if result.message else None,
        "usage": usage_json(result.usage),
        "error": result.error or None,
    }
    if result.structured is not None:
        body["structured"] = result.structured
    return body
