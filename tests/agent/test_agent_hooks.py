"""Hooks of an agent: a changed agent, a changed request, an answer that no model gave, a masked answer."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.agent.world import Choice, says_done, tool
from tests.hub.hooks_world import load
from tests.peers.recording_mcp import recording

from nanobot.agent.engine import Engine, Input, TurnResult
from nanobot.agent.events import Body, Delta
from nanobot.aio import task_group
from nanobot.app import open_app
from nanobot.builtin.server import BuiltinServer
from nanobot.config.model import McpServer
from nanobot.http import open_http
from nanobot.hub.guests import open_guests
from nanobot.hub.hooks.hooks import Hooks
from nanobot.hub.hooks.record import HookRecord
from nanobot.hub.hub import Hub
from nanobot.llm.messages import ToolOutput
from nanobot.llm.model import TextDelta
from nanobot.llm.scripted import ScriptedModel, Step, calls, says
from nanobot.store import open_store
from nanobot.upstream.connection import Upstream
from nanobot.wire.continuation import Continuation
from nanobot.wire.versions import Era

pytestmark = pytest.mark.anyio


@dataclass
class World:
    engine: Engine
    model: ScriptedModel
    records: list[HookRecord]
    events: list[Body] = field(default_factory=list[Body])

    async def ask(self, text: str = "Hello") -> TurnResult:
        thread = await self.engine.open_thread(key="test")
        turn = await self.engine.submit(thread.id, Input(text=text), on_event=self.events.append)
        with anyio.fail_after(20):
            return await turn.wait()

    @property
    def shown(self) -> str:
        """The text that a viewer saw arrive."""
        deltas = [e.delta for e in self.events if isinstance(e, Delta)]
        return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))

    def outputs(self) -> list[str]:
        """The texts of the tool results that the model was sent last."""
        messages = self.model.requests[-1].messages
        outputs = [i for m in messages for i in m.items if isinstance(i, ToolOutput)]
        return [block.get("text", "") for output in outputs for block in output.content]


@asynccontextmanager
async def world(
    home: Path,
    code: str,
    hooks: Mapping[str, Any],
    steps: Sequence[Step] = (),
    *,
    server_hooks: Mapping[str, Any] | None = None,
    trusts_guests: bool = True,
) -> AsyncGenerator[World]:
    """Agent `main` with `hooks`, whose functions are in `code` (Python, `./hooks.py`).

    `trusts_guests`: servers that hooks add are reached on loopback, too, where those of tests are.
    """
    (home / "hooks.py").write_text(code)
    main = {"model": "demo", "instructions": "Be kind.", "mcpServers": ["tools"], "hooks": dict(hooks)}
    servers = {"tools": {"command": "none", "hooks": dict(server_hooks or {})}}
    config = load(
        home, {"agents": {"main": main}, "mcpServers": servers, "publish": {"entrypoint": ["main"]}}
    )
    records: list[HookRecord] = []
    tools = BuiltinServer("tools", [tool("look", says_done), tool("touch", says_done)])
    model = ScriptedModel(steps)
    async with open_http() as http, open_store(home / "nanobot.db") as store, task_group() as owner:
        made = Hooks(config, http, audit=records.append)
        hub = Hub(config, made.around({"tools": tools}))
        made.connect(hub)
        choice = Choice(dict.fromkeys(config.agents, model))

        def connect(
            server: McpServer,
            account: str,
            last_era: Era | None,
            continuation: Continuation | None,
            with_apps: bool,
        ) -> Upstream:
            server = replace(server, is_trusted=trusts_guests)
            return Upstream(server, http=http, env={}, version="1", account=account, last_era=last_era)

        engine = Engine(
            config,
            threads=store.threads,
            models=choice,
            hub=hub,
            hooks=made.agents(),
            open_guests=functools.partial(open_guests, config=config, connect=connect, around=dict),
        )
        await owner.start(hub.run)
        await owner.start(engine.run)
        yield World(engine, model, records)
        owner.cancel_scope.cancel()
    model.check_used()


async def test_a_config_hook_changes_the_agent_for_the_turn(tmp_path: Path) -> None:
    code = """
def change(payload):
    agent = payload["agent"]
    agent["instructions"] += " And brief."
    agent["mcpServers"] = []
    agent["tools"] = ["tools/look"]
    agent["temperature"] = 0.5
    assert payload["sessionId"]
    return payload
"""
    async with world(tmp_path, code, {"config": "./hooks.py#change"}, [says("Hi."), says("Again.")]) as w:
        assert (await w.ask()).text == "Hi."
        assert (await w.ask()).text == "Again."
    first, second = w.model.requests
    assert first.instructions == "Be kind. And brief."
    assert [spec.name for spec in first.tools.tools] == ["look"]
    assert first.temperature == 0.5
    assert second.tools == first.tools


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ({"agent": {"temprature": 1}}, "temprature"),
        ({"agent": {"tools": ["nowhere/tool"]}}, "nowhere"),
        ({"agent": 3}, "without an agent"),
        ({"mcpServers": 3}, "that are not {name: {url, headers}}"),
        (
            {"mcpServers": {"extra": {"url": "https://example.com", "command": "sh"}}},
            "unknown field `command`",
        ),
        ({"mcpServers": {"extra": {"url": "ftp://example.com"}}}, "'extra' with a url that is no http(s)://"),
        ({"mcpServers": {"a/b": {"url": "https://example.com"}}}, "cannot be referred to"),
        ({"mcpServers": {"main": {"url": "https://example.com"}}}, "'main' is already an agent"),
        ({"mcpServers": {"nanobot.x": {"url": "https://example.com"}}}, "a name of the program"),
        (
            {"mcpServers": {"tools": {"url": "https://user:pw@example.com/x"}}},
            "adds the MCP server 'tools' at example.com, but 'tools' is already an MCP server",
        ),
        ({"mcpServers": {f"s{n}": {"url": "https://example.com"} for n in range(21)}}, "at most 20"),
        ({"accept": False, "reason": "not today"}, "'./hooks.py#change' of event 'config': not today"),
        ("text", "not an object"),
    ],
)
async def test_an_agent_made_unusable_ends_the_turn(tmp_path: Path, answer: Any, complaint: str) -> None:
    code = f"def change(payload): return {answer!r}"
    async with world(tmp_path, code, {"config": "./hooks.py#change"}) as w:
        result = await w.ask()
    assert result.stop == "error"
    assert complaint in result.error


async def test_all_hooks_of_an_event_run_and_their_complaints_are_joined(tmp_path: Path) -> None:
    code = """
def one(payload): raise ValueError("secret")
async def two(payload): return {"accept": False, "reason": "second"}
def three(payload): pass
"""
    targets = ["./hooks.py#one", "./hooks.py#two", "!optional:./hooks.py#gone", "./hooks.py#three"]
    async with world(tmp_path, code, {"config": targets}) as w:
        result = await w.ask()
    assert "raised ValueError" in result.error
    assert "second" in result.error
    assert "secret" not in result.error
    [record] = w.records
    assert [s.status for s in record.statuses] == ["failed", "failed", "skipped", "ok"]


async def test_a_request_hook_changes_what_the_model_is_asked(tmp_path: Path) -> None:
    code = """
def change(payload):
    request = payload["request"]
    request["instructions"] = "Whisper."
    request["messages"][-1]["items"][-1]["text"] += "!"
    request["tools"] = request["tools"][:1]
    return {"request": request}
"""
    async with world(tmp_path, code, {"request": "./hooks.py#change"}, [says("hi")]) as w:
        assert (await w.ask("Hello")).text == "hi"
    [request] = w.model.requests
    assert request.instructions == "Whisper."
    assert request.messages[-1].text == "Hello!"
    assert [spec.name for spec in request.tools.tools] == ["look"]


@pytest.mark.parametrize("member", ["model", "thread", "agent", "output"])
async def test_a_request_hook_cannot_change_who_is_asked(tmp_path: Path, member: str) -> None:
    code = f"def change(payload):\n    payload['request'][{member!r}] = 'other'\n    return payload"
    async with world(tmp_path, code, {"request": "./hooks.py#change"}) as w:
        result = await w.ask()
    assert result.stop == "error"
    assert f"cannot change {member!r}" in result.error


async def test_an_answer_of_a_request_hook_stands_for_the_model(tmp_path: Path) -> None:
    code = """
def canned(payload):
    asked = payload["request"]["messages"][-1]["items"][0]
    if asked.get("output"):
        return {"response": {"items": [{"type": "text", "text": "It is done."}]}}
    call = {"type": "tool", "name": "touch", "callID": "c1", "arguments": "{}"}
    return {"response": {"items": [call]}}
"""
    async with world(tmp_path, code, {"request": "./hooks.py#canned"}) as w:
        result = await w.ask()
    assert w.model.requests == []
    assert result.text == w.shown == "It is done."


async def test_a_response_hook_changes_the_answer_before_anybody_sees_it(tmp_path: Path) -> None:
    code = """
def mask(payload):
    for item in payload["response"]["items"]:
        item["text"] = item["text"].replace("secret", "***")
    return payload
"""
    async with world(
        tmp_path, code, {"response": "./hooks.py#mask"}, [says("A secret."), says("None.")]
    ) as w:
        assert (await w.ask()).text == "A ***."
        assert w.shown == "A ***."
        assert (await w.ask()).text == "None."
        assert w.shown == "A ***.None."


async def test_a_model_is_told_what_hooks_changed_around_a_tool(tmp_path: Path) -> None:
    code = """
def before(payload):
    return {**payload, "mutated": True, "reason": "a"}
def after(payload):
    return {**payload, "mutated": True, "reason": "b"}
"""
    hooks = {
        "tools/call?direction=request": ["./hooks.py#before"],
        "tools/call?direction=response": ["./hooks.py#after", "./hooks.py#before"],
    }
    async with world(tmp_path, code, {}, [calls("touch"), says("ok")], server_hooks=hooks) as w:
        await w.ask()
    assert w.outputs() == [
        "MCP request was mutated by hooks. Reasons: a",
        "done",
        "MCP response was mutated by hooks. Reasons: b; a",
    ]


async def test_a_rejected_call_is_an_error_for_the_model(tmp_path: Path) -> None:
    code = "def no(payload): return {'accept': False, 'reason': 'over limit'}"
    hooks = {"tools/call?direction=request&name=touch": "./hooks.py#no"}
    async with world(tmp_path, code, {}, [calls("touch"), says("ok")], server_hooks=hooks) as w:
        await w.ask()
    assert w.outputs() == ["Error calling touch: over limit"]


ADDING = """
def add(payload):
    guest = {{"url": {url!r}, "headers": {{"X-Key": "for the guest"}}}}
    return {{"mcpServers": {{"extra": guest}}}} if payload["sessionId"] else None
"""


async def test_a_config_hook_adds_servers_for_the_turn(tmp_path: Path) -> None:
    with recording() as peer:
        code = ADDING.format(url=peer.url)
        steps = [calls("note", text="hi"), says("Noted."), calls("note", text="ho"), says("Again.")]
        async with world(tmp_path, code, {"config": "./hooks.py#add"}, steps) as w:
            assert (await w.ask()).text == "Noted."
            assert (await w.ask()).text == "Again."
            assert w.outputs()[-1] == "noted"
    assert {spec.name for spec in w.model.requests[0].tools.tools} >= {"look", "touch", "note"}
    assert [(headers["x-key"], params["arguments"]["text"]) for headers, params in peer.calls] == [
        ("for the guest", "hi"),
        ("for the guest", "ho"),
    ]


async def test_an_agent_may_name_what_it_takes_of_an_added_server(tmp_path: Path) -> None:
    with recording() as peer:
        code = f"""
def add(payload):
    payload["agent"]["tools"] = ["extra/note:jot"]
    payload["mcpServers"] = {{"extra": {{"url": {peer.url!r}}}}}
    return payload
"""
        async with world(tmp_path, code, {"config": "./hooks.py#add"}, [calls("jot"), says("Ok.")]) as w:
            assert (await w.ask()).text == "Ok."
    assert [spec.name for spec in w.model.requests[0].tools.tools] == ["jot", "look", "touch"]
    assert len(peer.calls) == 1


async def test_an_added_server_is_not_reached_on_addresses_of_this_machine(tmp_path: Path) -> None:
    with recording() as peer:
        code = ADDING.format(url=peer.url)
        hooks = {"config": "./hooks.py#add"}
        async with world(tmp_path, code, hooks, [says("Alone.")], trusts_guests=False) as w:
            assert (await w.ask()).text == "Alone."
    assert [spec.name for spec in w.model.requests[0].tools.tools] == ["look", "touch"]
    assert "not available at the moment: extra" in w.model.requests[0].instructions
    assert peer.calls == []


async def test_an_added_server_is_told_no_variables_of_ours(tmp_path: Path) -> None:
    with recording() as peer:
        code = f"""
def add(payload):
    return {{"mcpServers": {{"extra": {{"url": {peer.url!r}, "headers": {{"X": "${{HOME}}"}}}}}}}}
"""
        async with world(tmp_path, code, {"config": "./hooks.py#add"}, [says("Alone.")]) as w:
            assert (await w.ask()).text == "Alone."
    assert "not available at the moment: extra" in w.model.requests[0].instructions


async def test_a_whole_installation_keeps_added_servers_away_from_this_machine(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with recording() as peer:
        (tmp_path / "hooks.py").write_text(
            f"def add(payload): return {{'mcpServers': {{'extra': {{'url': {peer.url!r}}}}}}}"
        )
        main = {"model": "demo", "hooks": {"config": "./hooks.py#add"}}
        config = load(tmp_path, {"agents": {"main": main}})
        async with open_app(config) as app:
            result = await app.engine.once("main", Input(text="Hello"))
            assert app.hub.names().count("extra") == 0
    assert result.stop == "completed"
    [refusal] = [record for record in caplog.records if record.message == "no connection"]
    assert "127.0.0.1" in vars(refusal)["reason"]
