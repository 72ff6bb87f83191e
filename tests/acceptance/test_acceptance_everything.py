"""A large real server gives the same answers through nanobot as it gives directly."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from tests.peers.nodes import everything
from tests.peers.programs import clean_env, free_port, serving, started

pytestmark = [pytest.mark.anyio, pytest.mark.node]

ARGUMENTS: dict[str, dict[str, Any]] = {
    "echo": {"message": "héllo"},
    "get-annotated-message": {"messageType": "error", "includeImage": True},
    "get-resource-links": {"count": 3},
    "get-resource-reference": {"resourceType": "Text", "resourceId": 7},
    "get-structured-content": {"location": "New York"},
    "get-sum": {"a": 2, "b": 3},
    "get-tiny-image": {},
    "trigger-long-running-operation": {"duration": 0.2, "steps": 2},
}
CLOCK = re.compile(r"\d{1,2}:\d\d:\d\d")
"""The server writes the time of day into what it makes."""
PROMPT_ARGUMENTS = {
    "args-prompt": {"city": "Oslo", "state": "x"},
    "completable-prompt": {"department": "Engineering", "name": "Alice"},
    "resource-prompt": {"resourceType": "Text", "resourceId": "1"},
}


@asynccontextmanager
async def over_stdio(tmp_path: Path) -> AsyncGenerator[tuple[Client, dict[str, Any]]]:
    command, *args = everything("stdio")
    direct = stdio_client(StdioServerParameters(command=command, args=args))
    async with Client(direct, mode="legacy") as client:
        yield client, {"command": command, "args": args}


@asynccontextmanager
async def over_http(tmp_path: Path) -> AsyncGenerator[tuple[Client, dict[str, Any]]]:
    port = free_port()
    env = clean_env(tmp_path, PORT=str(port))
    with started(
        everything("streamableHttp"), env=env, cwd=tmp_path, announces="listening on port",
        url=f"http://127.0.0.1:{port}/mcp",
    ) as running:  # fmt: skip
        async with Client(running.url, mode="legacy") as client:
            yield client, {"url": running.url}


@asynccontextmanager
async def over_sse(tmp_path: Path) -> AsyncGenerator[tuple[Client, dict[str, Any]]]:
    port = free_port()
    env = clean_env(tmp_path, PORT=str(port))
    with started(
        everything("sse"), env=env, cwd=tmp_path, announces="running on port",
        url=f"http://127.0.0.1:{port}/sse",
    ) as running:  # fmt: skip
        async with Client(sse_client(running.url), mode="legacy") as client:
            yield client, {"url": running.url}


def plain(value: Any) -> Any:
    """A result as comparable JSON, without what may differ from call to call."""
    body = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    for transient in ("_meta", "resultType", "ttlMs", "cacheScope"):
        body.pop(transient, None)
    return json.loads(CLOCK.sub("<time>", json.dumps(body)))


def by(key: str, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(entries, key=lambda entry: entry[key])


@pytest.mark.parametrize(
    "connect", [over_stdio, over_http, over_sse], ids=["stdio", "streamable-http", "http-sse"]
)
async def test_everything_is_the_same_through_nanobot(connect: Any, tmp_path: Path) -> None:
    async with connect(tmp_path) as (direct, definition):
        config = tmp_path / "nanobot.yaml"
        publish = dict.fromkeys(("mcpServers", "prompts", "resources", "resourceTemplates"), "all")
        config.write_text(json.dumps({"mcpServers": {"all": definition}, "publish": publish}))
        with serving(str(config), "--default-model", "demo", home=tmp_path) as server:
            async with Client(server.url + "/mcp", mode="legacy") as through:
                await compare_lists(direct, through)
                await compare_answers(direct, through)


async def compare_lists(direct: Client, through: Client) -> None:
    ours = {tool.name: plain(tool) for tool in (await through.list_tools()).tools}
    theirs = {tool.name: plain(tool) for tool in (await direct.list_tools()).tools}
    del theirs["simulate-research-query"]["execution"]  # it needs a task there, and none with us
    chat = {name for name in ours if name.startswith("chat-with-")}
    # Some tools are offered only to clients that declare a capability; both see the same set here or more.
    assert set(theirs) <= set(ours) - chat
    assert {name: ours[name] for name in theirs} == theirs
    prompts = [by("name", plain(await c.list_prompts())["prompts"]) for c in (direct, through)]
    assert prompts[0] == prompts[1] != []
    resources = [by("uri", plain(await c.list_resources())["resources"]) for c in (direct, through)]
    relayed = [one for one in resources[1] if one["uri"] != "nanobot://servers"]  # the host's own
    assert resources[0] == relayed != []
    templates = [
        by("uriTemplate", plain(await c.list_resource_templates())["resourceTemplates"])
        for c in (direct, through)
    ]
    assert templates[0] == templates[1] != []


async def compare_answers(direct: Client, through: Client) -> None:
    for name, arguments in ARGUMENTS.items():
        steps: list[list[float]] = [[], []]
        answers: list[Any] = []
        for client, seen in zip((direct, through), steps, strict=True):

            async def note(
                progress: float, total: float | None, message: str | None, seen: list[float] = seen
            ) -> None:
                seen.append(progress)

            answers.append(plain(await client.call_tool(name, arguments, progress_callback=note)))
        assert answers[0] == answers[1], name
        assert steps[0] == steps[1], name
    for prompt in (await direct.list_prompts()).prompts:
        arguments = PROMPT_ARGUMENTS.get(prompt.name, {})
        assert await outcome(direct.get_prompt(prompt.name, arguments)) == await outcome(
            through.get_prompt(prompt.name, arguments)
        ), prompt.name
    for resource in (await direct.list_resources()).resources:
        assert plain(await direct.read_resource(resource.uri)) == plain(
            await through.read_resource(resource.uri)
        )
    dynamic = "demo://resource/dynamic/text/5"
    got = [plain(await c.read_resource(dynamic))["contents"][0] for c in (direct, through)]
    assert [c["uri"] for c in got] == [dynamic, dynamic]
    assert got[0].keys() == got[1].keys()
    report = plain(await through.call_tool("simulate-research-query", {"topic": "owls"}))
    assert "owls" in report["content"][0]["text"]
    wrong = await outcome(direct.call_tool("get-sum", {"a": "x"}))
    assert wrong == await outcome(through.call_tool("get-sum", {"a": "x"}))


async def outcome(call: Any) -> Any:
    """The result, or the code and message of the error."""
    try:
        return plain(await call)
    except MCPError as e:
        return e.error.code, e.error.message
