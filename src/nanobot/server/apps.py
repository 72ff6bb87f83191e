"""MCP Apps on the chat page: which app belongs to a call, its page, and what it asks of its server.

An app runs in a frame of the chat page that can reach nobody (`app_policy`). It talks to the chat page, which
asks here on its behalf as the person who looks at it.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from nanobot import __version__
from nanobot.agent.engine import Attachment, Engine
from nanobot.agent.events import ToolFinished
from nanobot.agent.toolbox import APP
from nanobot.agent.tools import Tool
from nanobot.config.places import Reference
from nanobot.errors import NanobotError, NotFound, UpstreamError
from nanobot.hub.apps import is_for_apps
from nanobot.hub.hub import Hub, object_text
from nanobot.hub.published import Published
from nanobot.llm.messages import JsonObject, ToolCall, ToolOutput
from nanobot.narrow import object_of, objects_of
from nanobot.server.app_policy import app_headers
from nanobot.server.app_tickets import App, Tickets
from nanobot.server.exchange import Exchange
from nanobot.server.problems import Header, describe_error
from nanobot.store.rows import ThreadRow
from nanobot.wire.call import Call, Caller
from nanobot.wire.explain import explain
from nanobot.wire.extensions import APP_TYPE, SHOWS_APPS
from nanobot.wire.rpc import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, Payload, RpcError

LARGEST_PAGE: Final = 5 * 1024 * 1024
LARGEST_REQUEST: Final = 64 * 1024
LARGEST_RESULT: Final = 1024 * 1024
"""Bytes of an app's page, of what it asks, and of what it is answered."""

QUESTION: Final = "approval"
"""Under which key a call that needs a person's approval asks for it."""

_HOST: Final = {"name": "nanobot", "version": __version__}
_PLAIN: Final[tuple[Header, ...]] = (
    (b"content-type", b"text/plain; charset=utf-8"),
    (b"content-security-policy", b"sandbox; default-src 'none'; frame-ancestors 'self'"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)


class _Opening(msgspec.Struct, forbid_unknown_fields=True):
    call: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class _Params(msgspec.Struct):
    name: str = ""
    uri: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b"{}")
    inputResponses: dict[str, Any] = {}


class _Request(msgspec.Struct):
    method: str
    id: int | str
    params: _Params = msgspec.field(default_factory=_Params)


_opening = msgspec.json.Decoder(_Opening)
_request = msgspec.json.Decoder(_Request)


class _Asks(Exception):
    """The person has to be asked `params` (of `elicitation/create`) first."""

    def __init__(self, params: Payload) -> None:
        self.params = params


class AppsApi:
    """Handlers of `/api/threads/{id}/apps`, `/mcp-app/{ticket}` and `/api/apps/{ticket}`."""

    def __init__(self, engine: Engine, hub: Hub, tickets: Tickets) -> None:
        self._engine = engine
        self._hub = hub
        self._tickets = tickets

    async def open(self, http: Exchange, thread_id: str) -> None:
        """`POST /api/threads/{id}/apps {call}`: the app of a call made in the thread.

        `{id, server, tool, host}`: its page is at `/mcp-app/{id}`; `tool` is the definition of the tool that
        was called, null if its server has none of that name any more; `host` is us, as apps are told.
        404 for a call without an app.
        """
        wanted = await http.read_json(_opening, LARGEST_REQUEST)
        row = await self._engine.open_thread(id=thread_id, account=http.account)
        async with self._engine.attach(row.id, account=http.account) as attachment:
            call, mark = _marked(attachment, wanted.call)
        app = App(row.id, str(mark.get("agent")), call.target, str(mark.get("uri")))
        tools = await self._tools(app, self._call(http, row))
        tool = next((one for one in tools if one.own_name == mark.get("tool")), None)
        definition = None if tool is None else {**tool.definition.object(), "name": tool.own_name}
        ticket = self._tickets.seal(app, http.account)
        body: JsonObject = {"id": ticket, "server": app.server, "tool": definition, "host": _HOST}
        await http.answer_json(body)

    async def show(self, http: Exchange, ticket: str) -> None:
        """`GET /mcp-app/{ticket}`: the page of an app, for a frame. Problems are told there as text."""
        try:
            app, row = await self._find(http, ticket)
            page, csp = await self._page(app, self._call(http, row))
        except NanobotError as e:
            status, body, _ = describe_error(e)
            await http.answer(status, _PLAIN, body["message"].encode())
        else:
            await http.answer(200, app_headers(csp), page)

    async def act(self, http: Exchange, ticket: str) -> None:
        """`POST /api/apps/{ticket}`: a JSON-RPC request of the app, answered as JSON-RPC.

        `tools/call` and `resources/read`, of the server that the app belongs to alone. A call that a person
        has to approve is answered `{resultType: "input_required", inputRequests: {approval}}`; sent again
        with `inputResponses` it runs.
        """
        app, row = await self._find(http, ticket)
        # For the audit log: the name of a tool alone tells nothing.
        http.scope["state"]["server"] = app.server
        request = await http.read_json(_request, LARGEST_REQUEST)
        answer: JsonObject = {"jsonrpc": "2.0", "id": request.id}
        try:
            result = await self._result(app, request, self._call(http, row))
            if len(result.raw) > LARGEST_RESULT:
                raise RpcError(
                    INTERNAL_ERROR, f"the answer is longer than the {LARGEST_RESULT} bytes apps may get"
                )
            answer["result"] = msgspec.Raw(result.raw)
        except RpcError as e:
            answer["error"] = e.body()
        except NanobotError as e:
            answer["error"] = explain(e).body()
        await http.answer_json(answer)

    async def _find(self, http: Exchange, ticket: str) -> tuple[App, ThreadRow]:
        app = self._tickets.open(ticket, http.account)
        return app, await self._engine.open_thread(id=app.thread, account=http.account)

    def _call(self, http: Exchange, row: ThreadRow) -> Call:
        caller = Caller(account=http.account, values=http.values, capabilities={"extensions": SHOWS_APPS})
        return Call(caller=caller, thread=row.id, folder=Path(row.folder))

    async def _tools(self, app: App, call: Call) -> Sequence[Published]:
        return (await self._hub.tools([Reference(app.server)], call.caller)).items

    # What an app asks for

    async def _result(self, app: App, request: _Request, call: Call) -> Payload:
        match request.method:
            case "tools/call":
                return await self._run(app, request.params, call)
            case "resources/read":
                return await self._read(app, request.params.uri, call)
            case _:
                raise RpcError(METHOD_NOT_FOUND, f"apps may not use {request.method!r}")

    async def _run(self, app: App, params: _Params, call: Call) -> Payload:
        tools = await self._tools(app, call)
        tool = next((one for one in tools if one.own_name == params.name), None)
        if tool is None or not is_for_apps(tool.definition):
            raise RpcError(INVALID_PARAMS, f"server {app.server!r} has no tool {params.name!r} for its apps")
        arguments = Payload(object_text(bytes(params.arguments)))
        try:
            reason = await self._refusal(app, tool, arguments, params.inputResponses, call)
        except _Asks as e:
            question = {"method": "elicitation/create", "params": msgspec.Raw(e.params.raw)}
            return Payload(
                msgspec.json.encode({"resultType": "input_required", "inputRequests": {QUESTION: question}})
            )
        if reason is not None:
            return Payload.of({"content": [{"type": "text", "text": reason}], "isError": True})
        return await self._hub.call(tool, arguments, call)

    async def _refusal(
        self, app: App, tool: Published, arguments: Payload, answers: Mapping[str, Any], call: Call
    ) -> str | None:
        """Why the approvals of the agent forbid the call; None if they do not. Raises `_Asks`."""

        async def ask(method: str, params: Payload) -> Payload:
            if QUESTION not in answers:
                raise _Asks(params)
            return Payload.of(object_of(answers[QUESTION]))

        # Only approval can be asked for: what the server itself would ask, nobody here can show.
        caller = replace(call.caller, capabilities={"elicitation": {"form": {}}})
        return await self._engine.refusal(
            app.agent,
            Tool(name=tool.name, target=tool.server),
            arguments.object(),
            replace(call, caller=caller, ask=ask),
        )

    async def _read(self, app: App, uri: str, call: Call) -> Payload:
        return await self._hub.request(app.server, "resources/read", Payload.of({"uri": uri}), call)

    # The page

    async def _page(self, app: App, call: Call) -> tuple[bytes, Mapping[str, Any]]:
        """The page and what it declares to need. Raises `UpstreamError` for a resource that is no page."""
        read = await self._read(app, app.uri, call)
        if len(read.raw) > 2 * LARGEST_PAGE:
            raise _no_page(app, f"is longer than {LARGEST_PAGE} bytes")
        content = object_of(next(iter(objects_of(read.object().get("contents"))), None))
        kind = str(content.get("mimeType") or "").replace(" ", "").lower()
        if kind != APP_TYPE:
            raise _no_page(app, f"is {kind or 'of no declared type'}, not {APP_TYPE}")
        page = _bytes_of(content)
        if not page:
            raise _no_page(app, "is empty")
        if len(page) > LARGEST_PAGE:
            raise _no_page(app, f"is longer than {LARGEST_PAGE} bytes")
        needs = _needs(content) or await self._listed_needs(app, call)
        return page, object_of(needs.get("csp"))

    async def _listed_needs(self, app: App, call: Call) -> Mapping[str, Any]:
        listing = await self._hub.resources([Reference(app.server)], call.caller)
        entry = listing.by_name.get(app.uri)
        return {} if entry is None else _needs(entry.definition.object())


def _marked(thread: Attachment, call_id: str) -> tuple[ToolCall, Mapping[str, Any]]:
    """The call and the mark of its app. Raises `NotFound`."""
    for call, output in _finished(thread):
        if call.call_id == call_id and (mark := object_of((output.meta or {}).get(APP))):
            return call, mark
    raise NotFound(f"There is no call {call_id!r} with an app in this conversation.")


def _finished(thread: Attachment) -> Iterator[tuple[ToolCall, ToolOutput]]:
    """Calls with their outputs: those of the running turn, told before they are stored, then others."""
    for event in thread.backlog:
        if isinstance(event.body, ToolFinished):
            yield event.body.call, event.body.output
    calls: dict[str, ToolCall] = {}
    for message in thread.history:
        for item in message.items:
            if isinstance(item, ToolCall):
                calls[item.call_id] = item
            elif isinstance(item, ToolOutput) and item.call_id in calls:
                yield calls[item.call_id], item


def _needs(thing: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a resource, or the entry that lists it, says of the page it is."""
    return object_of(object_of(thing.get("_meta")).get("ui"))


def _bytes_of(content: Mapping[str, Any]) -> bytes:
    text, blob = content.get("text"), content.get("blob")
    if isinstance(text, str):
        return text.encode(errors="replace")
    try:
        return b64decode(blob) if isinstance(blob, str) else b""
    except binascii.Error:
        return b""


def _no_page(app: App, what: str) -> UpstreamError:
    return UpstreamError(
        app.server, f"The app {app.uri!r} of server {app.server!r} cannot be shown: it {what}."
    )
