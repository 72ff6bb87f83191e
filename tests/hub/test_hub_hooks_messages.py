"""Hooks of a server's messages: what each answer leads to, in which order, how deep, and what is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.hub.hooks_world import Guard, Server, refs, world

from nanobot.errors import UpstreamUnavailable
from nanobot.hub.hooks.hook import REJECTED, HookRejected
from nanobot.wire.call import Audience, Call, Caller
from nanobot.wire.rpc import Payload, RpcError

pytestmark = pytest.mark.anyio
MUTATIONS = "ai.nanobot.hooks/mutations"


def echoed(result: Any) -> Any:
    """What the echoing server was sent."""
    return json.loads(result["content"][0]["text"])


def with_arguments(**arguments: Any) -> Any:
    def change(payload: dict[str, Any]) -> dict[str, Any]:
        message = payload["message"]
        params = {**message["params"], "arguments": arguments}
        return {"mutated": True, "message": {**message, "params": params}, "reason": "because"}

    return change


async def rejection(world: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    with pytest.raises(HookRejected) as refusal:
        await world.call(*args, **kwargs)
    assert refusal.value.rpc_code == REJECTED
    assert refusal.value.data is not None
    return refusal.value.data.value


async def test_a_guard_says_no_and_the_server_never_sees_the_call(tmp_path: Path) -> None:
    guard, pay = Guard(check={"accept": False, "reason": "over limit"}), Server("pay")
    key = "tools/call?direction=request&name=pay"
    async with world(tmp_path, {key: ["!mutate:guard/check"]}, guard.source, pay) as w:
        assert await rejection(w, "pay") == {
            "hook": key,
            "target": "!mutate:guard/check",
            "direction": "request",
            "reason": "over limit",
        }
        assert pay.asked == []
        assert echoed(await w.call("balance"))["name"] == "balance"
    [(_, payload)] = guard.seen
    assert payload["context"] == {
        "server": "pay",
        "session": "s-1",
        "account": "ada",
        "client": {"name": "probe"},
    }
    assert payload["message"]["method"] == "tools/call"
    assert (payload["accept"], payload["mutated"], payload["reason"]) == (True, False, "")


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        ("no objection", "ok", ""),
        ({}, "ok", ""),
        ({"accept": True, "reason": "fine"}, "ok", ""),
        ({"message": {"params": {"name": "x"}}}, "ok", ""),
        ({"mutated": True}, "mutated", ""),
        ({"accept": False}, "rejected", "rejected by hook 'guard/check'"),
        ({"accept": False, "reason": "no"}, "rejected", "no"),
        ({"accept": "yes"}, "failed", "its answer is not valid"),
        ({"mutated": True, "message": {"params": 3}}, "failed", "params that are no object"),
    ],
)
async def test_what_an_answer_to_a_request_leads_to(
    tmp_path: Path, answer: Any, status: str, reason: str
) -> None:
    guard = Guard(check=answer if isinstance(answer, str) else lambda _: dict(answer))
    async with world(tmp_path, {"tools/call?direction=request": "guard/check"}, guard.source) as w:
        if status in ("ok", "mutated"):
            result = await w.call("pay", {"amount": 3})
            assert echoed(result)["arguments"] == {"amount": 3}
        else:
            assert reason in (await rejection(w, "pay"))["reason"]
        assert w.statuses == [("guard/check", status)]


async def test_a_change_goes_to_the_server_and_leaves_a_trace(tmp_path: Path) -> None:
    guard = Guard(change=with_arguments(amount=1), sign=lambda p: {**p, "mutated": True, "reason": "signed"})
    hooks = {
        "tools/call?direction=request": ["guard/change"],
        "tools/call?direction=response": ["guard/sign"],
    }
    async with world(tmp_path, hooks, guard.source) as w:
        result = await w.call("pay", {"amount": 3})
        assert echoed(result)["arguments"] == {"amount": 1}
        assert result["_meta"][MUTATIONS] == {
            "request": {"mutated": True, "reasons": ["because"]},
            "response": {"mutated": True, "reasons": ["signed"]},
        }
        [record, _] = w.records
    assert record.name == "pay"
    assert record.original is not None
    assert record.final is not None
    assert json.loads(record.original)["params"]["arguments"] == {"amount": 3}
    assert json.loads(record.final)["params"]["arguments"] == {"amount": 1}


async def test_what_may_not_change_a_message_and_does_has_rejected_it(tmp_path: Path) -> None:
    guard = Guard(change=with_arguments(amount=1))
    async with world(tmp_path, {"tools/call?direction=request": "!mutate:guard/change"}, guard.source) as w:
        said = await rejection(w, "pay")
    assert said["reason"] == "because; mutation not allowed by hook configuration"


async def test_id_and_method_stay_whatever_a_hook_makes_of_them(tmp_path: Path) -> None:
    def forge(payload: dict[str, Any]) -> dict[str, Any]:
        message = {"jsonrpc": "1.0", "id": 99, "method": "resources/read", "params": {"name": "pay", "x": 1}}
        return {"mutated": True, "message": message}

    guard, pay = Guard(forge=forge, look=lambda p: p), Server("pay")
    hooks = {"tools/call?direction=request": ["guard/forge", "guard/look"]}
    async with world(tmp_path, hooks, guard.source, pay) as w:
        await w.call("pay")
    assert pay.asked == [("tools/call", {"name": "pay", "x": 1})]
    before, after = (payload["message"] for _, payload in guard.seen)
    assert {k: after[k] for k in ("jsonrpc", "id", "method")} == {
        k: before[k] for k in ("jsonrpc", "id", "method")
    }


async def test_keys_run_in_byte_order_and_targets_as_written(
    tmp_path: Path,
) -> None:
    def append(letter: str) -> Any:
        def change(payload: dict[str, Any]) -> dict[str, Any]:
            message = payload["message"]
            message["params"]["arguments"]["seen"] += letter
            return {"mutated": True, "message": message}

        return change

    guard = Guard(**{letter: append(letter) for letter in "abcd"})
    hooks = {
        "tools/call?direction=request": ["guard/d", "guard/c"],
        "tools/call?callOnError=false&direction=request": ["guard/b"],
        "*?direction=request": ["guard/a"],
    }
    async with world(tmp_path, hooks, guard.source) as w:
        result = await w.call("pay", {"seen": ""})
    assert echoed(result)["arguments"] == {"seen": "abdc"}


async def test_after_a_rejection_the_others_still_run(tmp_path: Path) -> None:
    guard = Guard(no={"accept": False, "reason": "first"}, too={"accept": False, "reason": "second"})
    hooks = {"tools/call?direction=request": ["guard/no", "guard/too"]}
    async with world(tmp_path, hooks, guard.source) as w:
        said = await rejection(w, "pay")
    assert said["target"] == "guard/no"
    assert said["reason"] == "first; second"
    assert w.statuses == [("guard/no", "rejected"), ("guard/too", "rejected")]


async def test_a_hook_that_fails_closes_the_way_unless_it_is_optional(tmp_path: Path) -> None:
    guard = Guard(fine={})
    for prefix in ("", "!mutate:"):
        hooks = {"tools/call?direction=request": [f"{prefix}guard/gone", "guard/fine"]}
        async with world(tmp_path, hooks, guard.source) as w:
            assert "unknown tool gone" in (await rejection(w, "pay"))["reason"]
    for prefix in ("!optional:", "!optional:!mutate:", "!mutate:!optional:"):
        hooks = {"tools/call?direction=request": [f"{prefix}guard/gone", "guard/fine"]}
        async with world(tmp_path, hooks, guard.source) as w:
            await w.call("pay")
            assert w.statuses == [(f"{prefix}guard/gone", "skipped"), ("guard/fine", "ok")]


async def test_a_hook_does_not_trigger_itself(tmp_path: Path) -> None:
    pay = Server("pay", tools=[{"name": "audit", "inputSchema": {"type": "object"}}])
    async with world(tmp_path, {"tools/call?direction=request": ["pay/audit"]}, pay) as w:
        await w.call("pay")
    assert [params["name"] for _, params in pay.asked] == ["audit", "pay"]


async def test_a_tool_of_the_server_itself_may_look_at_everything_of_it(tmp_path: Path) -> None:
    pay = Server("pay", tools=[{"name": "audit", "inputSchema": {"type": "object"}}])
    async with world(tmp_path, {"*": ["pay/audit"]}, pay) as w:
        listing = await w.hub.tools(refs("pay"))
        assert [item.name for item in listing.items] == ["audit"]
        await w.call("pay")
    assert [(m, p["name"]) for m, p in pay.asked][-3:] == [
        ("tools/call", name) for name in ("audit", "pay", "audit")
    ]


@pytest.mark.parametrize(
    ("settings", "target", "own"),
    [
        ({}, "check", "check"),
        ({"toolPrefix": "g_"}, "g_check", "check"),
        ({"toolPrefix": "g_"}, "check", None),
        ({"allowTools": ["other"]}, "check", None),
        ({"toolOverrides": {"own": {"name": "check"}}}, "check", "own"),
        ({"toolOverrides": {"own": {"name": "check"}}}, "own", None),
    ],
)
async def test_a_tool_is_named_as_it_is_published(
    tmp_path: Path, settings: Any, target: str, own: str | None
) -> None:
    guard = Server("guard")
    hooks = {"tools/call?direction=request": [f"guard/{target}"]}
    async with world(tmp_path, hooks, guard, servers={"guard": settings}) as w:
        if own is None:
            assert "leaves no such tool" in (await rejection(w, "pay"))["reason"]
        else:
            await w.call("pay")
            assert guard.asked[0][1]["name"] == own


async def test_hooks_within_hooks_end_at_the_third(tmp_path: Path) -> None:
    servers = [
        Server(name, tools=[{"name": "t", "inputSchema": {"type": "object"}}])
        for name in ("a", "b", "c", "d")
    ]
    of = {
        name: {"tools/call?direction=request": [f"{after}/t"]}
        for name, after in (("a", "b"), ("b", "c"), ("c", "d"))
    }
    async with world(tmp_path, {"tools/call?direction=request": ["a/t"]}, *servers, of=of) as w:
        assert "more than 3 deep" in (await rejection(w, "pay"))["reason"]
    assert all(server.asked == [] for server in servers)


async def test_errors_pass_hooks_also_when_no_answer_came(tmp_path: Path) -> None:
    class Down(Server):
        async def request(self, method: str, params: Payload, call: Call) -> Payload:
            raise UpstreamUnavailable("pay", "it crashed")

    def heal(payload: dict[str, Any]) -> dict[str, Any]:
        return {"mutated": True, "message": {"result": {"content": []}}, "reason": "healed"}

    guard = Guard(see={}, heal=heal)
    hooks = {"tools/call?callOnError=true": ["guard/see"]}
    async with world(tmp_path, hooks, guard.source, Down("pay")) as w:
        with pytest.raises(UpstreamUnavailable):
            await w.call("pay")
        assert guard.seen[-1][1]["message"]["error"]["code"] == -32001
    async with world(tmp_path, hooks, guard.source) as w:
        guard.seen.clear()
        await w.call("pay")
        assert guard.seen == []
    hooks = {"tools/call?direction=response&callOnError=true": ["guard/heal"]}
    async with world(tmp_path, hooks, guard.source, Down("pay")) as w:
        result = await w.call("pay")
    assert result["_meta"][MUTATIONS]["response"]["reasons"] == ["healed"]


async def test_an_error_of_the_server_can_become_another_one(tmp_path: Path) -> None:
    def soften(payload: dict[str, Any]) -> dict[str, Any]:
        return {"mutated": True, "message": {"error": {"code": -1, "message": "softly"}}}

    guard = Guard(soften=soften)
    async with world(tmp_path, {"prompts/get?callOnError=true": "guard/soften"}, guard.source) as w:
        with pytest.raises(RpcError, match="softly"):
            await w.ask("pay", "prompts/get", {"name": "p"})


async def test_lists_pass_hooks_as_one_message(tmp_path: Path) -> None:
    def hide(payload: dict[str, Any]) -> dict[str, Any]:
        message = payload["message"]
        message["result"]["tools"] = [t for t in message["result"]["tools"] if t["name"] != "secret"]
        return {"mutated": True, "message": message}

    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("open", "secret")]
    guard = Guard(hide=hide)
    async with world(
        tmp_path, {"tools/list?direction=response": "guard/hide"}, guard.source, Server("pay", tools=tools)
    ) as w:
        listing = await w.hub.tools(refs("pay"))
    assert [item.name for item in listing.items] == ["open"]


class Talking(Server):
    """Reports progress, asks its caller something, and answers with what it was told."""

    async def request(self, method: str, params: Payload, call: Call) -> Payload:
        assert call.notify is not None
        assert call.ask is not None
        for number in (1, 2, 3):
            call.notify("notifications/progress", Payload.of({"progress": number}))
        answer = await call.ask("elicitation/create", Payload.of({"message": "who?"}))
        return Payload.of({"content": [], "said": answer.value})


async def test_news_and_questions_of_the_server_pass_hooks_in_order(tmp_path: Path) -> None:
    def without_two(payload: dict[str, Any]) -> dict[str, Any]:
        progress = payload["message"]["params"]["progress"]
        return {"accept": progress != 2, "reason": "two"}

    def polite(payload: dict[str, Any]) -> dict[str, Any]:
        return {"mutated": True, "message": {"params": {"message": "who, please?"}}}

    def anonymous(payload: dict[str, Any]) -> dict[str, Any]:
        return {"mutated": True, "message": {"result": {"action": "decline"}}}

    guard = Guard(without_two=without_two, polite=polite, anonymous=anonymous)
    hooks = {
        "notifications/progress": "guard/without_two",
        "elicitation/create?direction=request": "guard/polite",
        "elicitation/create?direction=response": "guard/anonymous",
    }
    news: list[Any] = []
    asked: list[Any] = []

    async def ask(method: str, params: Payload) -> Payload:
        asked.append((method, params.value))
        return Payload.of({"action": "accept"})

    call = Call(caller=Caller(), notify=lambda m, p: news.append((m, p.value)), ask=ask, wants_progress=True)
    async with world(tmp_path, hooks, guard.source, Talking("pay")) as w:
        with anyio.fail_after(20):
            result = await w.call("pay", call=call)
    assert news == [("notifications/progress", {"progress": n}) for n in (1, 3)]
    assert asked == [("elicitation/create", {"message": "who, please?"})]
    assert result["said"] == {"action": "decline"}


async def test_what_a_server_says_on_its_own_passes_hooks(tmp_path: Path) -> None:
    def mask(payload: dict[str, Any]) -> Any:
        params = payload["message"]["params"]
        if params["data"] == "private":
            return {"accept": False, "reason": "private"}
        return {"mutated": True, "message": {"params": params | {"data": "***"}}}

    guard, pay = Guard(mask=mask), Server("pay")
    heard: list[tuple[str, Any, Audience]] = []
    has_heard = anyio.Event()

    def hear(server: str, method: str, params: Payload, whom: Audience) -> None:
        heard.append((method, params.object(), whom))
        has_heard.set()

    async with world(tmp_path, {"notifications/message": "guard/mask"}, guard.source, pay) as w:
        w.hub.hear(hear)
        ada = Audience("ada", "s-1")
        pay.says("notifications/message", ada, level="info", data="private")
        pay.says("notifications/message", ada, level="info", data="ann@example.com")
        with anyio.fail_after(10):
            await has_heard.wait()
        assert heard == [("notifications/message", {"level": "info", "data": "***"}, ada)]
        pay.says("notifications/resources/updated", uri="note://one")
        assert heard[-1][0] == "notifications/resources/updated"
    contexts = [payload["context"] for _, payload in guard.seen]
    assert [(context["account"], context["session"]) for context in contexts] == [("ada", "s-1")] * 2
