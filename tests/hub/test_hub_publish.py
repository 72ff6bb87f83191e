"""What a client of the published server sees."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from tests.hub.world import Client, Server, config, publishing, refs, running, tool

from nanobot.config.model import Agent, McpServer, Prompt, PromptField, Publish, ToolOverride
from nanobot.errors import ConfigError, UpstreamUnavailable
from nanobot.hub.publish import Publisher
from nanobot.wire.call import NOBODY, Audience, Call, Caller
from nanobot.wire.client import Connected
from nanobot.wire.rpc import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    Payload,
    RpcError,
)

pytestmark = pytest.mark.anyio


async def test_tools_of_all_published_servers_appear_sorted_with_every_field_they_came_with() -> None:
    odd = tool("zeta", title="Z", **{"x-unknown": {"deep": [1.0, None]}, "_meta": {"a/b": True}})
    one, two = Server("one", [odd]), Server("two", [tool("alpha")])
    async with publishing(Publish(mcp_servers=refs("one", "two")), one, two) as client:
        listed = await client.ask("tools/list")
    assert listed == {"tools": [tool("alpha"), odd]}


async def test_a_call_reaches_its_server_under_its_own_name_without_listing_again() -> None:
    server = Server("files", [tool("read")])
    settings = {
        "files": McpServer(
            name="files", tool_prefix="fs_", tool_overrides={"read": ToolOverride(name="open")}
        )
    }
    async with publishing(Publish(mcp_servers=refs("files")), server, mcp_servers=settings) as client:
        assert await client.names() == ["fs_open"]
        await client.ask("tools/call", name="fs_open", arguments={"path": "a"})
        await client.ask("tools/call", name="fs_open")
    arguments = [asked["arguments"] for _, asked in server.asked]
    assert [asked["name"] for _, asked in server.asked] == ["read", "read"]
    assert arguments == [{"path": "a"}, {}]
    assert server.listed.count("tools") == 1


async def test_a_name_the_pipeline_hides_cannot_be_called() -> None:
    server = Server("files", [tool("read"), tool("delete")])
    settings = {"files": McpServer(name="files", allow_tools=("read",), tool_prefix="fs_")}
    async with publishing(Publish(mcp_servers=refs("files")), server, mcp_servers=settings) as client:
        for hidden in ("delete", "fs_delete", "read"):
            with pytest.raises(RpcError, match=f"unknown tool '{hidden}'") as refused:
                await client.ask("tools/call", name=hidden)
            assert refused.value.rpc_code == INVALID_PARAMS
    assert server.asked == []


@pytest.mark.parametrize(
    "params", [{}, {"name": 3}, {"name": "t", "arguments": []}, {"name": "t", "arguments": "x"}]
)
async def test_a_malformed_call_is_refused_as_bad_params(params: dict[str, Any]) -> None:
    server = Server("s", [tool("t")])
    async with publishing(Publish(mcp_servers=refs("s")), server) as client:
        with pytest.raises(RpcError) as refused:
            await client.ask("tools/call", **params)
    assert refused.value.rpc_code == INVALID_PARAMS
    assert server.asked == []


async def test_meta_goes_on_without_what_belongs_to_the_connection() -> None:
    server = Server("s", [tool("t")])
    meta = {"progressToken": 7, "io.modelcontextprotocol/logLevel": "debug", "com.example/trace": [1]}
    async with publishing(Publish(mcp_servers=refs("s")), server) as client:
        await client.ask("tools/call", name="t", arguments={}, _meta=meta, requestState="s1")
        await client.ask("tools/call", name="t", _meta={"progressToken": 7})
    assert server.asked[0][1]["_meta"] == {"com.example/trace": [1]}
    assert server.asked[0][1]["requestState"] == "s1"
    assert "_meta" not in server.asked[1][1]


async def test_an_error_a_server_answers_is_relayed_as_it_is() -> None:
    class Refusing(Server):
        async def request(self, method: str, params: Payload, call: Call) -> Payload:
            raise RpcError(-31999, "no", Payload(b'{"why":1}'))

    async with publishing(Publish(mcp_servers=refs("s")), Refusing("s", [tool("t")])) as client:
        with pytest.raises(RpcError, match=r"^no$") as refused:
            await client.ask("tools/call", name="t")
    assert (refused.value.rpc_code, refused.value.data and refused.value.data.value) == (-31999, {"why": 1})


async def test_an_alias_names_one_tool_and_a_later_reference_wins_a_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, two = Server("one", [tool("t"), tool("u")]), Server("two", [tool("t")])
    publish = Publish(mcp_servers=refs("one"), tools=refs("two/t", "one/t:first"))
    async with publishing(publish, one, two) as client:
        assert await client.names() == ["first", "t", "u"]
        await client.names()
        await client.ask("tools/call", name="t")
        await client.ask("tools/call", name="first")
    assert [asked["name"] for _, asked in two.asked] == ["t"]
    assert [asked["name"] for _, asked in one.asked] == ["t"]
    assert [r.message for r in caplog.records] == ["two servers offer one name"]


async def test_a_reference_that_leads_nowhere_is_reported_beside_the_rest() -> None:
    publish = Publish(tools=refs("s/t", "s/none", "gone/x", "s:both"))
    async with publishing(publish, Server("s", [tool("t"), tool("u")])) as client:
        listed = await client.ask("tools/list")
    assert [one["name"] for one in listed["tools"]] == ["t"]
    errors = {one["code"]: one["message"] for one in listed["_meta"]["ai.nanobot/errors"]}
    assert errors["not_found"] in ("MCP server 's' has no tool 'none'.", "There is no MCP server 'gone'.")
    assert errors["reference"] == "'s:both' gives the one name 'both' to 2 tools; write s/<name>:both."


async def test_each_entrypoint_agent_is_a_tool() -> None:
    agents = {"main": Agent(id="main"), "ops/deploy": Agent(id="ops/deploy")}
    chats = Server(
        "nanobot.agent", [tool("chat-with-main"), tool("chat-with-ops-deploy"), tool("chat-with-other")]
    )
    publish = Publish(entrypoint=("main", "ops/deploy"))
    async with publishing(publish, chats, agents=agents) as client:
        assert await client.names() == ["chat-with-main", "chat-with-ops-deploy"]


async def test_a_dead_server_is_named_and_takes_nothing_away() -> None:
    dead, alive = Server("dead", is_down=True), Server("alive", [tool("t")])
    async with publishing(Publish(mcp_servers=refs("dead", "alive")), dead, alive) as client:
        listed = await client.ask("tools/list")
    assert [one["name"] for one in listed["tools"]] == ["t"]
    assert listed["_meta"]["ai.nanobot/errors"] == [
        {
            "server": "dead",
            "code": "upstream.unavailable",
            "message": "MCP server 'dead' is not available: it crashed",
        }
    ]


async def test_a_name_that_a_server_without_a_list_may_have_is_not_called_unknown() -> None:
    dead, alive = Server("dead", is_down=True), Server("alive", [tool("t")])
    asked = [
        ("tools/call", {"name": "x"}),
        ("prompts/get", {"name": "x"}),
        ("resources/read", {"uri": "x://y"}),
        ("resources/subscribe", {"uri": "x://y"}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "x"}, "argument": {}}),
        ("completion/complete", {"ref": {"type": "ref/resource", "uri": "x://{y}"}, "argument": {}}),
    ]
    servers = {"dead": McpServer(name="dead"), "alive": McpServer(name="alive")}
    both = Publish(mcp_servers=refs("dead", "alive"))
    async with publishing(
        Publish(mcp_servers=refs("dead", "alive")), dead, alive, mcp_servers=servers
    ) as client:
        for method, params in asked:
            with pytest.raises(RpcError, match=r"could not be looked up: .*'dead'.* it crashed") as refused:
                await client.ask(method, **params)
            assert refused.value.rpc_code == INTERNAL_ERROR
            assert refused.value.data is not None
            assert refused.value.data.value["server"] == "dead"
            assert refused.value.data.value["retryable"] is True
    elsewhere = servers | {"dead": McpServer(name="dead", tool_prefix="d_")}
    async with publishing(both, dead, alive, mcp_servers=elsewhere) as client:
        with pytest.raises(RpcError, match="unknown tool 'x'"):  # it would be called d_x
            await client.ask("tools/call", name="x")
        with pytest.raises(RpcError, match="tool 'd_x' could not be looked up"):
            await client.ask("tools/call", name="d_x")


async def test_a_list_with_nothing_but_failures_is_an_error_that_names_each() -> None:
    servers = Server("a", is_down=True), Server("b", is_down=True)
    async with publishing(Publish(mcp_servers=refs("a", "b")), *servers) as client:
        with pytest.raises(RpcError, match=r"'a'.*'b'") as refused:
            await client.ask("tools/list")
        assert refused.value.rpc_code == INTERNAL_ERROR
        servers[0].is_down = False
        servers[0].says_changed("tools")
        servers[0].tools.append(tool("t"))
        assert await client.hears() == "notifications/tools/list_changed"
        assert await client.names() == ["t"]


async def test_an_introduction_with_an_unset_variable_stops_the_start() -> None:
    with pytest.raises(ConfigError, match=r"publish\.introduction.*'WHO'"):
        async with publishing(Publish(introduction="I am ${WHO}")):
            pass


async def test_what_a_failing_server_had_stays_and_can_be_called() -> None:
    server = Server("s", [tool("t")])
    async with publishing(Publish(mcp_servers=refs("s")), server) as client:
        assert await client.names() == ["t"]
        server.is_down = True
        server.says_changed("tools")
        await anyio.wait_all_tasks_blocked()
        assert await client.names() == ["t"]
        await client.ask("tools/call", name="t")


async def test_a_changed_list_is_announced_once_and_then_served() -> None:
    server, other = Server("s", [tool("t")]), Server("other", [tool("o")])
    async with publishing(Publish(mcp_servers=refs("s")), server, other) as client:
        assert await client.names() == ["t"]
        server.tools.append(tool("u"))
        for _ in range(5):
            server.says_changed("tools")
        assert await client.hears() == "notifications/tools/list_changed"
        assert await client.names() == ["t", "u"]
        assert client.news == []


async def test_a_change_that_nobody_can_see_is_not_announced() -> None:
    server = Server("s", [tool("t"), tool("hidden")], resources=[{"uri": "a:1", "name": "1"}])
    publish = Publish(tools=refs("s/t"), resources=refs("s"))
    async with publishing(publish, server) as client:
        await client.names()
        await client.names("resources/list", "resources", "uri")
        server.tools.pop()
        server.says_changed("tools")
        server.resources.append({"uri": "a:2", "name": "2"})
        server.says_changed("resources")
        assert await client.hears() == "notifications/resources/list_changed"
        assert client.news == []


async def test_a_tool_that_has_just_appeared_can_be_called_before_its_server_said_so() -> None:
    server = Server("s", [tool("t")])
    async with publishing(Publish(mcp_servers=refs("s")), server) as client:
        await client.names()
        server.tools.append(tool("u"))
        server.says_changed("tools")  # the listing this causes has not run yet
        await client.ask("tools/call", name="u")
    assert server.asked[0][1]["name"] == "u"


async def test_long_lists_come_in_pages_and_a_cursor_dies_with_its_list() -> None:
    server = Server("s", [tool(f"t{n:04}") for n in range(1201)])
    async with publishing(Publish(mcp_servers=refs("s")), server) as client:
        first = await client.ask("tools/list")
        second = await client.ask("tools/list", cursor=first["nextCursor"])
        third = await client.ask("tools/list", cursor=second["nextCursor"])
        names = [one["name"] for page in (first, second, third) for one in page["tools"]]
        assert names == [f"t{n:04}" for n in range(1201)]
        assert "nextCursor" not in third
        server.tools.pop()
        server.says_changed("tools")
        await client.hears()
        for bad in (first["nextCursor"], "AAAA", "", "…"):
            with pytest.raises(RpcError, match="cursor") as refused:
                await client.ask("tools/list", cursor=bad)
            assert refused.value.rpc_code == INVALID_PARAMS
        with pytest.raises(RpcError):
            await client.ask("tools/list", cursor=5)


async def test_inline_prompts_are_rendered_here_and_others_by_their_server() -> None:
    inline = Prompt(
        name="greet",
        description="Says hello",
        template="Dear ${name}, $${kept} ${FROM:-me}${note}",
        input=(PromptField(name="name"), PromptField(name="note", required=False)),
    )
    theirs = {"description": "x", "messages": [{"role": "user", "content": {"type": "new-type", "n": 1}}]}
    server = Server("s", prompts=[{"name": "p", "odd": 1}], answers={"prompts/get": theirs})
    publish = Publish(prompts=refs("greet", "s/p:q"))
    async with publishing(
        publish, server, prompts={"greet": inline}, env={"FROM": "us", "NOTE": "no"}
    ) as client:
        assert (await client.ask("prompts/list"))["prompts"] == [
            {
                "name": "greet",
                "description": "Says hello",
                "arguments": [
                    {"name": "name", "description": "", "required": True},
                    {"name": "note", "description": "", "required": False},
                ],
            },
            {"name": "q", "odd": 1},
        ]
        greeting = await client.ask("prompts/get", name="greet", arguments={"name": "${note}"})
        assert greeting["messages"][0]["content"]["text"] == "Dear ${note}, ${kept} us"
        assert await client.ask("prompts/get", name="q", arguments={"a": "1"}) == theirs
        assert server.asked == [("prompts/get", {"name": "p", "arguments": {"a": "1"}})]
        for name, arguments in (("greet", {}), ("greet", {"name": 1}), ("q", {"a": 1}), ("nope", {})):
            with pytest.raises(RpcError, match=f"'{name}'") as refused:
                await client.ask("prompts/get", name=name, arguments=arguments)
            assert refused.value.rpc_code == INVALID_PARAMS


async def test_a_resource_is_read_from_its_server_or_from_the_template_that_fits_best() -> None:
    answer = {"contents": [{"uri": "x", "text": "y"}]}
    one = Server("one", resources=[{"uri": "doc:///a/b", "name": "b"}], answers={"resources/read": answer})
    two = Server(
        "two",
        templates=[{"uriTemplate": "doc:///{+path}", "name": "all"}],
        answers={"resources/read": answer},
    )
    three = Server(
        "three",
        templates=[{"uriTemplate": "doc:///a/{id}", "name": "a"}],
        answers={"resources/read": answer},
    )
    servers = refs("one", "two", "three")
    async with publishing(Publish(mcp_servers=servers), one, two, three) as client:
        for uri in ("doc:///a/b", "doc:///a/c", "doc:///b/c"):
            assert await client.ask("resources/read", uri=uri) == answer
        with pytest.raises(RpcError) as refused:
            await client.ask("resources/read", uri="other:///x")
    asked = {server.name: [params["uri"] for _, params in server.asked] for server in (one, two, three)}
    assert asked == {"one": ["doc:///a/b"], "two": ["doc:///b/c"], "three": ["doc:///a/c"]}
    assert refused.value.rpc_code == RESOURCE_NOT_FOUND
    assert refused.value.data is not None
    assert refused.value.data.value == {"uri": "other:///x"}


async def test_a_resource_reference_may_be_limited_to_a_prefix_and_the_first_owner_of_a_uri_keeps_it() -> (
    None
):
    one = Server("one", resources=[{"uri": "file:///a", "name": "1"}, {"uri": "mail:///a", "name": "1"}])
    two = Server("two", resources=[{"uri": "file:///a", "name": "2"}])
    publish = Publish(resources=refs("one/file:///", "two"))
    async with publishing(publish, one, two) as client:
        listed = await client.ask("resources/list")
    assert listed["resources"] == [{"uri": "file:///a", "name": "1"}]


async def test_completion_is_asked_from_the_owner_and_empty_if_it_cannot() -> None:
    answer = {"completion": {"values": ["a"], "total": 1, "new": True}}
    able = Server("able", prompts=[{"name": "p"}], answers={"completion/complete": answer})
    plain = Server("plain", templates=[{"uriTemplate": "x:///{id}", "name": "x"}])
    argument = {"name": "a", "value": ""}
    publish = Publish(prompts=refs("able/p:q"), resource_templates=refs("plain"))
    async with publishing(publish, able, plain) as client:
        prompt = {"type": "ref/prompt", "name": "q"}
        assert await client.ask("completion/complete", ref=prompt, argument=argument) == answer
        template = {"type": "ref/resource", "uri": "x:///{id}"}
        empty = await client.ask("completion/complete", ref=template, argument=argument)
        assert empty == {"completion": {"values": [], "hasMore": False, "total": 0}}
        for ref in ({"type": "ref/prompt", "name": "p"}, {"type": "ref/odd", "name": "q"}, None, 3):
            with pytest.raises(RpcError) as refused:
                await client.ask("completion/complete", ref=ref, argument=argument)
            assert refused.value.rpc_code == INVALID_PARAMS
    assert able.asked[0][1] == {"ref": {"type": "ref/prompt", "name": "p"}, "argument": argument}


async def test_the_description_comes_at_once_and_has_lists_prepared_meanwhile() -> None:
    server = Server("s", [tool("t")]).hangs()
    publish = Publish(mcp_servers=refs("s"), instructions="Be kind.", introduction="Hello")
    async with publishing(publish, server) as client:
        description = await client.publisher.describe(NOBODY)
        await anyio.wait_all_tasks_blocked()
        assert set(server.listed) == {"tools", "prompts", "resources", "templates"}
    assert description.server_info == {"name": "nanobot", "version": "1.2.3"}
    assert description.instructions == "Be kind."
    assert description.capabilities["experimental"] == {"ai.nanobot": {"intro": "Hello"}}
    assert description.capabilities["tools"] == {"listChanged": True}


async def test_an_unknown_method_is_named() -> None:
    async with publishing(Publish()) as client:
        with pytest.raises(RpcError, match="'tools/fly'") as refused:
            await client.ask("tools/fly")
    assert refused.value.rpc_code == METHOD_NOT_FOUND


async def test_r9_answers_of_two_hundred_clients_never_mix() -> None:
    """Every client sends equal names at once; each answer holds what that client sent."""
    server = Server("s", [tool("t")])
    settings = config(publish=Publish(mcp_servers=refs("s")))
    async with running(settings, server) as hub, anyio.create_task_group() as group:
        publisher = Publisher(settings, hub, version="1")

        async def talk(n: int) -> None:
            client = Client(publisher)
            for turn in range(10):
                result = await client.ask("tools/call", name="t", arguments={"n": n, "turn": turn})
                assert json.loads(result["content"][0]["text"])["arguments"] == {"n": n, "turn": turn}

        for n in range(200):
            group.start_soon(talk, n)


async def test_a_server_published_alone_is_relayed_as_itself() -> None:
    class Remote(Server):
        async def ready(self, caller: Caller) -> Connected:
            if self.is_down:
                raise UpstreamUnavailable(self.name, "it is down")
            return Connected(
                era="legacy",
                version="2025-11-25",
                server_info={"name": "theirs", "version": "9"},
                capabilities={"tools": {}, "resources": {"subscribe": True}, "extensions": {}},
                instructions="Ask nicely.",
            )

    server = Remote("s", [tool("t")], answers={"x/special": {"odd": 1}})
    async with publishing(Publish(mcp_servers=refs("s")), server) as client:
        description = await client.publisher.describe(NOBODY)
        assert description.server_info == {"name": "theirs", "version": "9"}
        assert description.instructions == "Ask nicely."
        assert description.capabilities == {
            "tools": {"listChanged": True},
            "resources": {"listChanged": True, "subscribe": True},
        }
        assert await client.ask("x/special", a=1, _meta={"progressToken": 1}) == {"odd": 1}
        assert server.asked == [("x/special", {"a": 1})]
        server.is_down = True
        with pytest.raises(UpstreamUnavailable):
            await client.publisher.describe(NOBODY)


async def test_an_argument_that_is_marked_for_a_header_must_stand_there_as_it_stands_in_the_body() -> None:
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    server = Server("one", [tool("locate", inputSchema=schema), tool("plain")])
    async with publishing(Publish(mcp_servers=refs("one")), server, era="modern") as client:
        client.call.headers = {b"mcp-param-region": b"us"}
        await client.ask("tools/call", name="locate", arguments={"region": "us"})
        await client.ask("tools/call", name="plain", arguments={"region": "eu"})
        with pytest.raises(RpcError, match="mcp-param-region does not match argument region") as refused:
            await client.ask("tools/call", name="locate", arguments={"region": "eu"})
        client.call.headers = None  # on a pipe there are none
        await client.ask("tools/call", name="locate", arguments={"region": "eu"})
    assert refused.value.rpc_code == HEADER_MISMATCH
    assert len(server.asked) == 3


async def test_updates_of_a_resource_come_from_the_server_that_owns_it() -> None:
    class Remote(Server):
        async def ready(self, caller: Caller) -> Connected:
            raise UpstreamUnavailable(self.name, "it is down")

    answers: dict[str, Any] = {"resources/subscribe": {}, "resources/unsubscribe": {}}
    owner = Remote("owner", resources=[{"uri": "a:1", "name": "one"}], answers=answers)
    other = Remote("other", resources=[{"uri": "b:1", "name": "two"}], answers=answers)
    async with publishing(Publish(mcp_servers=refs("owner", "other")), owner, other) as client:
        owner.says("notifications/resources/updated", uri="a:1")
        assert client.news == []
        assert await client.ask("resources/subscribe", uri="a:1") == {}
        other.says("notifications/resources/updated", uri="a:1")
        owner.says("notifications/resources/updated", Audience("somebody else"), uri="a:1")
        owner.says("notifications/resources/updated", Audience("", "another session"), uri="a:1")
        owner.says("notifications/resources/updated", uri=["senseless"])
        assert client.news == []
        owner.says("notifications/resources/updated", Audience(""), uri="a:1")
        assert await client.hears() == "notifications/resources/updated"
        owner.resources.clear()
        owner.says_changed("resources")
        assert await client.ask("resources/unsubscribe", uri="a:1") == {}
        assert await client.ask("resources/unsubscribe", uri="a:1") == {}
        assert [method for method, _ in owner.asked] == ["resources/subscribe", "resources/unsubscribe"]
        assert other.asked == []
        with pytest.raises(RpcError, match="unknown resource 'c:1'"):
            await client.ask("resources/subscribe", uri="c:1")


async def test_resources_of_this_process_can_be_followed_without_asking() -> None:
    server = Server("inside", resources=[{"uri": "a:1", "name": "one"}])
    async with publishing(Publish(mcp_servers=refs("inside")), server) as client:
        assert await client.ask("resources/subscribe", uri="a:1") == {}
        assert server.asked == []
        server.says("notifications/resources/updated", uri="a:1")
        assert await client.hears() == "notifications/resources/updated"


async def test_what_servers_say_on_their_own_reaches_those_whom_it_concerns() -> None:
    one, two = Server("one"), Server("two")
    async with publishing(Publish(mcp_servers=refs("one", "two")), one, two) as client:
        two.says("notifications/message", level="info", data=1)
        assert await client.hears() == "notifications/message"
        one.says("notifications/elicitation/complete", elicitationId="e")  # whose it is cannot be known
        one.says("notifications/x/special", a=1)
        assert client.news == []
        one.says("notifications/elicitation/complete", Audience("", ""), elicitationId="e")
        assert await client.hears() == "notifications/elicitation/complete"
    async with publishing(Publish(mcp_servers=refs("one")), one) as client:
        one.says("notifications/x/special", a=1)  # extensions of a server published alone just work
        assert await client.hears() == "notifications/x/special"
