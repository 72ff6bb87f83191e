"""Two documents become one."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nanobot.config.diagnostics import Diagnostics
from nanobot.config.keys import DOCUMENT
from nanobot.config.merge import merge
from nanobot.config.nodes import Node, from_plain, plain, without_nulls
from nanobot.config.places import Origin
from nanobot.config.shapes import accept

NAMES = st.lists(st.sampled_from(["kb", "fs/read", "web"]), max_size=3)
AGENT = st.fixed_dictionaries(
    {},
    optional={
        "model": st.sampled_from(["m1", "m2", None]),
        "temperature": st.sampled_from([0, 0.5, None]),
        "chat": st.booleans() | st.none(),
        "instructions": st.sampled_from(["", "X", {"mcpServer": "kb", "prompt": "p"}]),
        "tools": NAMES | st.fixed_dictionaries({"$replace": NAMES}),
        "metadata": st.dictionaries(st.sampled_from("ab"), st.none() | st.integers(0, 2), max_size=2),
    },
)
WRITTEN = st.fixed_dictionaries(
    {}, optional={"agents": st.dictionaries(st.sampled_from("abc"), AGENT | st.none(), max_size=3)}
)


def normal(written: dict[str, Any]) -> Node:
    found = Diagnostics()
    node = accept(DOCUMENT, from_plain(written, Origin("x", 1)), found.root)
    assert node is not None
    assert found.sorted() == ()
    return node


def merged(*documents: dict[str, Any]) -> Any:
    result = normal({})
    for document in documents:
        result = merge(result, normal(document))
    return plain(without_nulls(result))


def test_the_overlay_wins_key_by_key_and_lists_grow() -> None:
    base = {"agents": {"a": {"model": "m1", "instructions": "X"}}, "publish": {"entrypoint": "a"}}
    overlay = {"agents": {"a": {"model": "m2"}, "b": {}}, "publish": {"entrypoint": ["b", "a"]}}
    assert merged(base, overlay) == {
        "agents": {"a": {"model": "m2", "instructions": "X"}, "b": {}},
        "publish": {"entrypoint": ["a", "b"]},
    }


def test_false_zero_and_empty_override() -> None:
    base = {"agents": {"a": {"temperature": 1, "chat": True, "model": "m", "tools": ["x"]}}}
    overlay = {"agents": {"a": {"temperature": 0, "chat": False, "model": "", "tools": {"$replace": ["kb"]}}}}
    assert merged(base, overlay) == {
        "agents": {"a": {"temperature": 0, "chat": False, "model": "", "tools": ["kb"]}}
    }


def test_null_removes_what_was_there_and_is_absent_otherwise() -> None:
    base = {"agents": {"old": {}, "a": {"model": "m", "temperature": None}}}
    assert merged(base, {"agents": {"old": None, "a": {"model": None}, "never": None}}) == {
        "agents": {"a": {}}
    }


def test_null_in_free_data_is_a_value() -> None:
    schema = {"type": "object", "default": None}
    document = {"agents": {"a": {"output": {"schema": schema}}}}
    assert merged(document) == document


def test_arguments_may_repeat_and_names_may_not() -> None:
    server = {"mcpServers": {"s": {"command": "x", "args": ["-v", "-v"], "allowTools": ["a", "a"]}}}
    overlay = {"mcpServers": {"s": {"args": ["-v"], "allowTools": ["b", "a"]}}}
    assert merged(server, overlay)["mcpServers"]["s"] == {
        "command": "x",
        "args": ["-v", "-v", "-v"],
        "allowTools": ["a", "b"],
    }


def test_a_prompt_replaces_text_and_prompts_merge() -> None:
    base = {"agents": {"a": {"instructions": "X"}}}
    prompt = {"agents": {"a": {"instructions": {"mcpServer": "s", "prompt": "p", "args": {"x": "1"}}}}}
    more = {"agents": {"a": {"instructions": {"prompt": "q", "args": {"y": "2"}}}}}
    assert merged(base, prompt, more)["agents"]["a"]["instructions"] == {
        "mcpServer": "s",
        "prompt": "q",
        "args": {"x": "1", "y": "2"},
    }


@given(WRITTEN, WRITTEN)
def test_merging_changes_neither_document(base: dict[str, Any], overlay: dict[str, Any]) -> None:
    one, two = normal(base), normal(overlay)
    before = repr((one, two))
    merge(one, two)
    assert repr((one, two)) == before


@given(WRITTEN)
def test_an_empty_overlay_changes_nothing(written: dict[str, Any]) -> None:
    assert merged(written, {}) == merged(written)


@given(WRITTEN)
def test_a_document_over_itself_is_itself(written: dict[str, Any]) -> None:
    assert merged(written, written) == merged(written)


@given(WRITTEN, WRITTEN)
def test_what_the_overlay_says_holds(base: dict[str, Any], overlay: dict[str, Any]) -> None:
    agents = merged(base, overlay).get("agents", {})
    for id_, agent in (overlay.get("agents") or {}).items():
        if agent is None:
            assert id_ not in agents
            continue
        for key in ("model", "temperature", "chat"):
            if key in agent:
                assert agents[id_].get(key) == agent[key]
        if isinstance(agent.get("tools"), dict):
            assert agents[id_]["tools"] == list(dict.fromkeys(agent["tools"]["$replace"]))
