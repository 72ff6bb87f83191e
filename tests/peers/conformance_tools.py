"""The tools of the conformance suite: their definitions, and the answers of those that ask nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import mcp_types as types
from mcp.server.subscriptions import InMemorySubscriptionBus, PromptsListChanged, ToolsListChanged
from tests.peers.conformance_questions import ASKING, STRING, Answer, is_modern, say, text

IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
AUDIO = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
STEP_S = 0.05
"""A pause between two pieces of news, so that they are seen to come before the answer."""

CHANGES = InMemorySubscriptionBus()
LOG_LEVEL = "io.modelcontextprotocol/logLevel"


def picture() -> types.ImageContent:
    return types.ImageContent(type="image", data=IMAGE, mime_type="image/png")


def embedded(uri: str, kind: str, words: str) -> types.EmbeddedResource:
    contents = types.TextResourceContents(uri=uri, mime_type=kind, text=words)
    return types.EmbeddedResource(type="resource", resource=contents)


def fixed(*contents: Any, is_error: bool = False) -> Answer:
    async def tool(ctx: Any, params: Any) -> types.CallToolResult:
        return types.CallToolResult(content=list(contents), is_error=is_error)

    return tool


async def logging(ctx: Any, params: Any) -> types.CallToolResult:
    """Writes to the log of whoever wants to read it: a modern client says so with each request."""
    meta: Mapping[str, Any] = ctx.meta or {}
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        if not is_modern(ctx) or LOG_LEVEL in meta:
            await ctx.session.send_log_message("info", words, related_request_id=ctx.request_id)
        await anyio.sleep(STEP_S)
    return text("Tool with logging executed successfully")


async def progress(ctx: Any, params: Any) -> types.CallToolResult:
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100, f"Completed step {done} of 100")
        await anyio.sleep(STEP_S)
    return text("Tool with progress executed successfully")


async def reconnection(ctx: Any, params: Any) -> types.CallToolResult:
    """Cuts its own stream before it answers."""
    if not is_modern(ctx):
        await ctx.session.send_log_message("info", "before", related_request_id=ctx.request_id)
    if ctx.close_sse_stream:
        await ctx.close_sse_stream()
    await anyio.sleep(4 * STEP_S)
    return text("Reconnection test completed")


async def change_tools(ctx: Any, params: Any) -> types.CallToolResult:
    _toggle(
        TOOLS, types.Tool(name="test_that_comes_and_goes", description="now and then", input_schema=NOTHING)
    )
    await CHANGES.publish(ToolsListChanged())
    await ctx.session.send_tool_list_changed()
    return text("changed")


async def change_prompts(ctx: Any, params: Any) -> types.CallToolResult:
    _toggle(PROMPTS, types.Prompt(name="test_that_comes_and_goes", description="now and then"))
    await CHANGES.publish(PromptsListChanged())
    await ctx.session.send_prompt_list_changed()
    return text("changed")


def _toggle(entries: list[Any], entry: Any) -> None:
    if entry in entries:
        entries.remove(entry)
    else:
        entries.append(entry)


ANSWERS: Mapping[str, Answer] = {
    "test_simple_text": fixed(say("This is a simple text response for testing.")),
    "test_image_content": fixed(picture()),
    "test_audio_content": fixed(types.AudioContent(type="audio", data=AUDIO, mime_type="audio/wav")),
    "test_embedded_resource": fixed(
        embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ),
    "test_multiple_content_types": fixed(
        say("Multiple content types test:"),
        picture(),
        embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ),
    "test_error_handling": fixed(say("This tool intentionally returns an error for testing"), is_error=True),
    "test_tool_with_logging": logging,
    "test_logging_tool": logging,
    "test_tool_with_progress": progress,
    "test_reconnection": reconnection,
    "test_trigger_tool_change": change_tools,
    "test_trigger_prompt_change": change_prompts,
    "json_schema_2020_12_tool": fixed(say("valid")),
    "test_custom_headers": fixed(say("headers and arguments agree")),
    **ASKING,
}

NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
SCHEMAS: Mapping[str, dict[str, Any]] = {
    "test_sampling": {"type": "object", "properties": {"prompt": STRING}},
    "test_elicitation": {"type": "object", "properties": {"message": STRING}},
    "test_custom_headers": {
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "priority": {"type": "integer", "x-mcp-header": "Priority"},
        },
    },
    "json_schema_2020_12_tool": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": STRING, "city": STRING},
            }
        },
        "properties": {
            "name": STRING,
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": STRING,
            "email": STRING,
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
}
TOOLS = [
    types.Tool(name=name, description=name.replace("_", " "), input_schema=SCHEMAS.get(name, NOTHING))
    for name in ANSWERS
]

_ARGUMENTS = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
}
PROMPTS = [
    types.Prompt(
        name=name,
        description=name.replace("_", " "),
        arguments=[types.PromptArgument(name=each, required=True, description=each) for each in wanted],
    )
    for name, wanted in _ARGUMENTS.items()
]
