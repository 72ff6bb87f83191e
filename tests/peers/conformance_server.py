"""The MCP server that the official conformance suite expects to find, made with the official SDK, both eras.

Run as `python -m tests.peers.conformance_server`; it prints the address it serves. `conformance_tools.py` has
its tools, `conformance_questions.py` those of them that ask the client.
"""

from __future__ import annotations

import json
import socket
import sys
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import EventMessage, EventStore
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError
from tests.peers.conformance_questions import STRING, answer, asked, form, is_modern, say
from tests.peers.conformance_tools import ANSWERS, CHANGES, IMAGE, PROMPTS, TOOLS, embedded, picture

RETRY_MS = 100
RESOURCE_NOT_FOUND = -32002


class Events(EventStore):
    """Everything that was sent, so that a client may take a stream up again."""

    def __init__(self) -> None:
        self._events: list[tuple[str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events) - 1)

    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        if not last_event_id.isdigit() or int(last_event_id) >= len(self._events):
            return None
        stream = self._events[int(last_event_id)][0]
        for number, (owner, message) in enumerate(tuple(self._events)):
            if owner == stream and number > int(last_event_id) and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=TOOLS)


async def call_tool(ctx: Any, params: Any) -> Any:
    answer = ANSWERS.get(params.name)
    if answer is None:
        raise MCPError(types.INVALID_PARAMS, f"unknown tool {params.name!r}")
    return await answer(ctx, params)


async def list_resources(ctx: Any, params: Any) -> types.ListResourcesResult:
    kinds = {"static-text": "text/plain", "static-binary": "image/png", "watched-resource": "text/plain"}
    resources = [
        types.Resource(uri=f"test://{name}", name=name, mime_type=kind) for name, kind in kinds.items()
    ]
    return types.ListResourcesResult(resources=resources)


async def list_templates(ctx: Any, params: Any) -> types.ListResourceTemplatesResult:
    template = types.ResourceTemplate(
        uri_template="test://template/{id}/data", name="template", mime_type="application/json"
    )
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(ctx: Any, params: Any) -> types.ReadResourceResult:
    uri = str(params.uri)
    match uri.removeprefix("test://").split("/"):
        case ["static-text"]:
            return text_resource(uri, "This is the content of the static text resource.")
        case ["watched-resource"]:
            return text_resource(uri, "It may change.")
        case ["static-binary"]:
            blob = types.BlobResourceContents(uri=uri, mime_type="image/png", blob=IMAGE)
            return types.ReadResourceResult(contents=[blob])
        case ["template", id, "data"]:
            body = {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}
            return text_resource(uri, json.dumps(body), "application/json")
        case _:
            code = types.INVALID_PARAMS if is_modern(ctx) else RESOURCE_NOT_FOUND
            raise MCPError(code, "no such resource", {"uri": uri})


def text_resource(uri: str, text: str, kind: str = "text/plain") -> types.ReadResourceResult:
    contents = types.TextResourceContents(uri=uri, mime_type=kind, text=text)
    return types.ReadResourceResult(contents=[contents])


async def list_prompts(ctx: Any, params: Any) -> types.ListPromptsResult:
    return types.ListPromptsResult(prompts=PROMPTS)


async def get_prompt(ctx: Any, params: Any) -> Any:
    given: dict[str, str] = params.arguments or {}
    match params.name:
        case "test_simple_prompt":
            return prompt(say("This is a simple prompt for testing."))
        case "test_prompt_with_arguments":
            return prompt(say(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'"))
        case "test_prompt_with_embedded_resource":
            resource = embedded(given["resourceUri"], "text/plain", "Embedded resource content for testing.")
            return prompt(resource, say("Please process the embedded resource above."))
        case "test_prompt_with_image":
            return prompt(picture(), say("Please analyze the image above."))
        case "test_input_required_result_prompt":
            question = form("What context should I use?", context=STRING)
            said = await answer(ctx, params, "user_context", question)
            return asked({"user_context": question}) if said is None else prompt(say("Thank you."))
        case name:
            raise MCPError(types.INVALID_PARAMS, f"unknown prompt {name!r}")


def prompt(*contents: Any) -> types.GetPromptResult:
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=c) for c in contents])


async def complete(ctx: Any, params: Any) -> types.CompleteResult:
    return types.CompleteResult(
        completion=types.Completion(values=["paris", "park"], total=2, has_more=False)
    )


async def accept(ctx: Any, params: Any) -> types.EmptyResult:
    return types.EmptyResult()


def main() -> None:
    import uvicorn

    server = Server(  # pyright: ignore[reportDeprecated]  # both eras: logging is of the older one
        "conformance",
        version="1.0.0",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
        on_set_logging_level=accept,
        on_subscribe_resource=accept,
        on_unsubscribe_resource=accept,
        on_subscriptions_listen=ListenHandler(CHANGES),
    )
    app = server.streamable_http_app(event_store=Events(), retry_interval=RETRY_MS)
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"serving http://127.0.0.1:{listener.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
