"""MCP Apps over HTTP: which call has one, what its page may do, and what it may ask of its server."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import time
from typing import Any

import anyio
import pytest
from tests.server.world import Answer, Served, served

from nanobot.config.approvals import Approvals, Equals, Rule
from nanobot.config.model import Agent, ApiKey, AuthSettings, Config, McpServer
from nanobot.config.places import Reference
from nanobot.server.app_tickets import LIFETIME_S, App, Tickets
from nanobot.testing.model_server import Reply, ScriptedCall

pytestmark = pytest.mark.anyio

PEER = str(Path(__file__).parents[1] / "peers" / "app_server.py")
ANN, BOB = "nb-ann-CANARYaaaaaaaa", "nb-bob-CANARYbbbbbbbb"
KEYS = AuthSettings(
    api_keys=tuple(
        ApiKey(name=name, sha256=hashlib.sha256(key.encode()).hexdigest())
        for name, key in (("ann", ANN), ("bob", BOB))
    )
)


def clock(name: str = "clock", **more: Any) -> McpServer:
    return McpServer(name=name, command=sys.executable, args=(PEER,), sandbox=None, **more)


def keeper(**more: Any) -> Agent:
    """An agent with the clock and another server."""
    servers = (Reference(server="clock"), Reference(server="other"))
    return Agent(id="keeper", model="script/m", mcp_servers=servers, **more)


def with_servers(*servers: McpServer) -> Callable[[Config], Config]:
    return lambda config: replace(config, mcp_servers={one.name: one for one in servers})


@dataclass
class Person:
    """Somebody at the chat page, in one thread."""

    nanobot: Served
    thread: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    async def ask(self, method: str, path: str, body: Any = None) -> Answer:
        return await self.nanobot.ask(method, path, body, self.headers)

    async def have_called(self, tool: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The item of a call that the model makes because of a message."""
        call = ScriptedCall(tool, dict(arguments or {}))
        self.nanobot.model.queue(Reply(calls=(call,)), Reply(text="Done."))
        sent = await self.ask("POST", f"/api/threads/{self.thread}/messages", {"text": "go"})
        assert sent.json["stop"] == "completed", sent.json
        shown = await self.ask("GET", f"/api/threads/{self.thread}")
        items = [item for message in shown.json["messages"] for item in message["items"]]
        return next(item for item in reversed(items) if item.get("name") == tool)

    async def open(self, call: Mapping[str, Any]) -> Answer:
        return await self.ask("POST", f"/api/threads/{self.thread}/apps", {"call": call["callID"]})

    async def app(self, tool: str = "clock", **arguments: Any) -> str:
        """The id of the app of a fresh call."""
        answer = await self.open(await self.have_called(tool, arguments))
        assert answer.status == 200, answer.body
        return answer.json["id"]

    async def act(self, app: str, method: str, **params: Any) -> Any:
        """What the app is answered."""
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        answer = await self.ask("POST", f"/api/apps/{app}", body)
        assert answer.status == 200, answer.body
        assert (answer.json["jsonrpc"], answer.json["id"]) == ("2.0", 7)
        return answer.json


@asynccontextmanager
async def somebody(
    home: Path, *servers: McpServer, agent: Agent | None = None, **more: Any
) -> AsyncGenerator[Person]:
    adjust = with_servers(*(servers or (clock(), clock("other", tool_prefix="other_"))))
    async with served(home, first=(agent or keeper(),), adjust=adjust, **more) as nanobot:
        yield Person(nanobot, "" if more.get("auth") else await nanobot.thread(agent="keeper"))


def text_of(answer: Any) -> str:
    return answer["result"]["content"][0]["text"]


async def test_a_call_of_a_tool_with_a_page_is_marked_and_the_page_is_opened(tmp_path: Path) -> None:
    async with somebody(tmp_path) as person:
        call = await person.have_called("clock", {"zone": "CET"})
        mark = {"uri": "ui://clock/page.html", "tool": "clock", "agent": "keeper"}
        assert call["output"]["_meta"]["ai.nanobot.meta/app"] == mark
        opened = (await person.open(call)).json
        assert (opened["server"], opened["tool"]["name"]) == ("clock", "clock")
        assert person.thread not in opened["id"]
        page = await person.ask("GET", f"/mcp-app/{opened['id']}")
        assert page.status == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert b"It is what the clock says." in page.body


async def test_the_page_may_do_what_its_server_declares_and_no_more(tmp_path: Path) -> None:
    async with somebody(tmp_path) as person:
        page = await person.ask("GET", f"/mcp-app/{await person.app()}")
        assert page.headers["content-security-policy"] == (
            "sandbox allow-scripts allow-forms; default-src 'none'; "
            "script-src 'unsafe-inline' https://*.example.org:8443; "
            "style-src 'unsafe-inline' https://*.example.org:8443; "
            "img-src data: blob: https://*.example.org:8443; font-src data: https://*.example.org:8443; "
            "media-src data: blob: https://*.example.org:8443; connect-src https://api.example.com; "
            "frame-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
        )
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["x-content-type-options"] == "nosniff"
        plain = await person.ask("GET", f"/mcp-app/{await person.app('plain')}")
        assert "connect-src 'none'" in plain.headers["content-security-policy"]
        assert "http" not in plain.headers["content-security-policy"]
        chat = await person.ask("GET", "/")
        assert "frame-src 'self'" in chat.headers["content-security-policy"]


async def test_the_older_way_to_name_a_page_counts_and_no_other_scheme_does(tmp_path: Path) -> None:
    async with somebody(tmp_path) as person:
        assert (await person.ask("GET", f"/mcp-app/{await person.app('older')}")).status == 200
        call = await person.have_called("wrong")
        assert "_meta" not in call["output"]
        assert (await person.open(call)).status == 404


@pytest.mark.parametrize(("tool", "why"), [("textual", "is text/plain, not"), ("huge", "is longer than")])
async def test_what_is_no_page_is_said_where_it_would_be(tool: str, why: str, tmp_path: Path) -> None:
    async with somebody(tmp_path) as person:
        page = await person.ask("GET", f"/mcp-app/{await person.app(tool)}")
        assert page.status == 502
        assert page.headers["content-type"].startswith("text/plain")
        assert why in page.body.decode()


async def test_an_app_calls_tools_of_its_own_server_that_are_for_apps(tmp_path: Path) -> None:
    async with somebody(tmp_path) as person:
        app = await person.app()
        assert text_of(await person.act(app, "tools/call", name="wind", arguments={"turns": 3})) == (
            "wound 3 times"
        )
        assert text_of(await person.act(app, "tools/call", name="clock")) == "noon in UTC"
        for foreign in ("secret", "other_clock", "read", "chat-with-main", ""):
            refused = await person.act(app, "tools/call", name=foreign)
            assert refused["error"] == {
                "code": -32602,
                "message": f"server 'clock' has no tool {foreign!r} for its apps",
            }
        broken = await person.act(app, "tools/call", name="wind", arguments=[1])
        assert broken["error"]["code"] == -32602


async def test_an_app_sees_of_its_server_what_the_configuration_leaves(tmp_path: Path) -> None:
    few = clock(allow_tools=("clock", "declared"), tool_prefix="my_")
    async with somebody(tmp_path, few, clock("other", tool_prefix="other_")) as person:
        app = await person.app("my_clock")
        assert text_of(await person.act(app, "tools/call", name="declared")) == "yes"
        refused = await person.act(app, "tools/call", name="wind", arguments={"turns": 1})
        assert "no tool 'wind'" in refused["error"]["message"]


async def test_an_app_reads_resources_of_its_server_and_asks_for_nothing_else(tmp_path: Path) -> None:
    async with somebody(tmp_path) as person:
        app = await person.app()
        read = await person.act(app, "resources/read", uri="note://text")
        assert read["result"]["contents"][0]["text"] == "remember"
        missing = await person.act(app, "resources/read", uri="note://nothing")
        assert "error" in missing
        for method in ("tools/list", "prompts/get", "sampling/createMessage", "logging/setLevel"):
            assert (await person.act(app, method))["error"]["code"] == -32601
        too_long = await person.act(app, "tools/call", name="long")
        assert "longer than" in too_long["error"]["message"]


async def test_requests_of_an_app_are_bounded(tmp_path: Path) -> None:
    async with somebody(tmp_path) as person:
        app = await person.app()
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x" * 70_000}}
        assert (await person.ask("POST", f"/api/apps/{app}", body)).status == 413
        assert (await person.ask("POST", f"/api/apps/{app}", {"method": 1})).status == 422


async def test_an_app_belongs_to_its_account_and_its_thread(tmp_path: Path) -> None:
    async with somebody(tmp_path, auth=KEYS) as person:
        ann, bob = (replace(person, headers={"Authorization": f"Bearer {key}"}) for key in (ANN, BOB))
        ann.thread = (await ann.ask("POST", "/api/threads", {"agent": "keeper"})).json["id"]
        bob.thread = (await bob.ask("POST", "/api/threads", {"agent": "keeper"})).json["id"]
        call = await ann.have_called("clock")
        app = (await ann.open(call)).json["id"]
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "clock"}}
        assert (await ann.ask("GET", f"/mcp-app/{app}")).status == 200
        assert (await bob.ask("GET", f"/mcp-app/{app}")).status == 404
        assert (await bob.ask("POST", f"/api/apps/{app}", body)).status == 404
        assert (await replace(bob, thread=ann.thread).open(call)).status == 404
        assert (await bob.open(call)).status == 404
        assert (await person.ask("GET", f"/mcp-app/{app}")).status == 401
        for wrong in (app[:-4] + "AAA=", app[:40], "x", "%00", "enc.v1.aa.bb"):
            assert (await ann.ask("GET", f"/mcp-app/{wrong}")).status == 404
        assert (await ann.ask("DELETE", f"/api/threads/{ann.thread}")).status == 204
        assert (await ann.ask("GET", f"/mcp-app/{app}")).status == 404
        assert (await ann.ask("POST", f"/api/apps/{app}", body)).status == 404


async def test_an_app_expires(tmp_path: Path) -> None:
    async with somebody(tmp_path) as person:
        sealer = person.nanobot.app.store.sealer()
        for age, status in ((LIFETIME_S - 60, 200), (LIFETIME_S + 60, 404)):
            app = App(person.thread, "keeper", "clock", "ui://clock/page.html")
            ticket = Tickets(sealer, now=lambda age=age: time() - age).seal(app, "")
            assert (await person.ask("GET", f"/mcp-app/{ticket}")).status == status


async def test_without_the_page_there_are_no_apps_and_servers_are_not_told_of_any(tmp_path: Path) -> None:
    async with somebody(tmp_path, ui=False) as person:
        call = await person.have_called("declared")
        assert call["output"]["content"][0]["text"] == "no"
        assert (await person.open(call)).status == 404


@pytest.mark.parametrize("protocol", ["legacy", "modern"])
async def test_servers_are_told_that_apps_are_shown(protocol: Any, tmp_path: Path) -> None:
    servers = (clock(protocol=protocol), clock("other", tool_prefix="other_"))
    async with somebody(tmp_path, *servers) as person:
        call = await person.have_called("declared")
        assert call["output"]["content"][0]["text"] == "yes"


async def test_approvals_of_the_agent_count_for_its_apps(tmp_path: Path) -> None:
    rules = Approvals(
        rules=(
            Rule(target=Reference("clock", "clock"), allow=True),
            Rule(target=Reference("clock", "wind"), when={"turns": Equals(13)}, allow=False),
        )
    )
    async with somebody(tmp_path, agent=keeper(tool_approvals=rules)) as person:
        app = await person.app()
        assert text_of(await person.act(app, "tools/call", name="clock")) == "noon in UTC"
        refused = await person.act(app, "tools/call", name="wind", arguments={"turns": 13})
        assert refused["result"]["isError"] is True
        assert "approval for it is refused" in text_of(refused)

        wind: dict[str, Any] = {"name": "wind", "arguments": {"turns": 1}}
        asked = (await person.act(app, "tools/call", **wind))["result"]
        assert asked["resultType"] == "input_required"
        question = asked["inputRequests"]["approval"]
        assert question["method"] == "elicitation/create"
        assert '"turns": 1' in question["params"]["message"]

        def answered(choice: str) -> dict[str, Any]:
            return {"approval": {"action": "accept", "content": {"decision": choice}}}

        no = await person.act(app, "tools/call", **wind, inputResponses=answered("no"))
        assert "approval was refused" in text_of(no)
        yes = await person.act(app, "tools/call", **wind, inputResponses=answered("conversation"))
        assert text_of(yes) == "wound 1 times"
        assert text_of(await person.act(app, "tools/call", **wind)) == "wound 1 times"
        other = await person.act(app, "tools/call", name="wind", arguments={"turns": 2})
        assert other["result"]["resultType"] == "input_required"


async def test_the_approvals_that_count_are_those_of_the_agent_that_called(tmp_path: Path) -> None:
    strict = replace(
        keeper(tool_approvals=Approvals(rules=(Rule(target=Reference("clock", "clock"), allow=True),)))
    )
    async with somebody(tmp_path, agent=strict) as person:
        person.thread = await person.nanobot.thread(agent="main")
        person.nanobot.model.queue(Reply(calls=(ScriptedCall("clock"),)), Reply(text="Done."))
        await person.ask("POST", f"/api/threads/{person.thread}/messages", {"text": "x", "agent": "keeper"})
        shown = await person.ask("GET", f"/api/threads/{person.thread}")
        call = next(i for m in shown.json["messages"] for i in m["items"] if i.get("name") == "clock")
        app = (await person.open(call)).json["id"]
        asked = await person.act(app, "tools/call", name="wind", arguments={"turns": 1})
        assert asked["result"]["resultType"] == "input_required"


async def test_an_app_is_there_as_soon_as_its_call_has_ended(tmp_path: Path) -> None:
    done = tmp_path / "done"
    async with somebody(tmp_path) as person:
        calls = (ScriptedCall("hold", {"until": str(done)}), ScriptedCall("clock"))
        person.nanobot.model.queue(Reply(calls=calls), Reply(text="Done."))
        async with person.nanobot.events(f"/api/events/{person.thread}") as events:
            await events.until("history-end")
            path = f"/api/threads/{person.thread}/messages?wait=false"
            assert (await person.ask("POST", path, {"text": "go"})).status == 202
            ended: list[dict[str, Any]] = []
            with anyio.fail_after(20):
                while not ended and (event := await events.next()) is not None:
                    ended = [item for item in json.loads(event.data).get("items", ()) if "output" in item]
            assert [item["name"] for item in ended] == ["clock"]  # the other one still runs
            assert (await person.open(ended[0])).status == 200
            done.touch()
            await events.until("chat-done")
        assert (await person.open(ended[0])).status == 200
