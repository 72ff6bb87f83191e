"""An agent of the model from its mapping in the document, with every reference checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nanobot.config import builtin
from nanobot.config.build_approvals import build_approvals
from nanobot.config.build_hooks import build_hooks
from nanobot.config.fields import object_schema
from nanobot.config.json_schema import check_schema
from nanobot.config.keys import MODES
from nanobot.config.model import Agent, Mode, OutputSchema, PromptRef, Reasoning
from nanobot.config.permissions import permits_tool
from nanobot.config.places import Reference
from nanobot.config.references import Known
from nanobot.config.view import View

LEAST_ROOM = 1024
"""Tokens of a window that stay free beside the longest answer; less is no room for a conversation."""
_ALWAYS = ("auto", "none", "required")


def build_agent(id_: str, agent: View, known: Known, folders: Mapping[str, Path]) -> Agent:
    """`folders`: directory of each document by its label, for paths in `hooks`."""
    tools = tuple(
        tool
        for name, at, place in agent.items("tools")
        if name != "inherit" and (tool := known.tool(name, at, place)) is not None  # always implied here
    )
    built = Agent(
        id=id_,
        name=agent.text("name"),
        short_name=agent.text("shortName"),
        description=agent.text("description"),
        icon=agent.text("icon"),
        icon_dark=agent.text("iconDark"),
        starter_messages=agent.names("starterMessages"),
        metadata=agent.value("metadata", {}),
        instructions=_instructions(agent, known),
        model=known.model(agent.text("model"), agent.origin("model"), agent.place.key("model")),
        fallbacks=agent.references("fallbacks", known.model),
        mcp_servers=agent.references("mcpServers", known.server),
        tools=tools,
        agents=agent.references("agents", known.agent),
        prompts=agent.references("prompts", known.prompt),
        resources=agent.references("resources", known.server),
        permissions=agent.value("permissions"),
        chat=agent.value("chat", True),
        tool_choice=agent.text("toolChoice") or None,
        parallel_tools=agent.text("parallelTools", "auto") == "auto",
        max_iterations=agent.value("maxIterations", 200),
        temperature=agent.value("temperature"),
        top_p=agent.value("topP"),
        reasoning=_reasoning(agent),
        max_tokens=agent.value("maxTokens"),
        context_window=agent.value("contextWindow"),
        truncation=agent.text("truncation") or None,
        aliases=agent.names("aliases"),
        cost=agent.value("cost", 0.0),
        speed=agent.value("speed", 0.0),
        intelligence=agent.value("intelligence", 0.0),
        output=_output(agent),
        tool_extensions=agent.value("toolExtensions", {}),
        mode=_mode(id_, agent),
        default=agent.value("default", False),
        hooks=build_hooks("agent", agent, folders, known),
        origin=agent.at,
    )
    _check_tool_choice(built, agent)
    approvals = build_approvals(agent, "toolApprovals", known, lambda target: _has(built, target))
    built = replace(built, tool_approvals=approvals)
    _check_window(built, agent)
    if built.temperature is not None and built.top_p is not None:
        message = "temperature and topP are both set; providers advise to set only one."
        agent.place.key("topP").warning("bad-value", agent.origin("topP"), message)
    return built


def _instructions(agent: View, known: Known) -> str | PromptRef | None:
    written = agent.value("instructions")
    if not isinstance(written, dict):
        return written or None
    instructions = agent.under("instructions")
    for key in ("mcpServer", "prompt"):
        if not instructions.has(key):
            message = f"Instructions from a prompt need `{key}`."
            instructions.place.key(key).error("missing-key", instructions.at, message)
    server, prompt = instructions.text("mcpServer"), instructions.text("prompt")
    place = instructions.place.key("mcpServer")
    if server:
        known.server(server, instructions.origin("mcpServer"), place)
    elif instructions.has("mcpServer") and prompt and prompt not in known.prompts:
        at = instructions.origin("prompt")
        instructions.place.key("prompt").error(
            "bad-reference", at, f"There is no prompt {prompt!r} under `prompts`."
        )
    return PromptRef(server=server, prompt=prompt, args=instructions.value("args", {}))


def _reasoning(agent: View) -> Reasoning | None:
    reasoning = agent.under("reasoning")
    if not agent.has("reasoning"):
        return None
    return Reasoning(effort=reasoning.value("effort"), summary=reasoning.value("summary"))


def _mode(id_: str, agent: View) -> Mode | None:
    mode = agent.text("mode")
    if mode not in MODES:
        shown = repr(mode) if len(mode) <= 40 else "this mode"
        message = f"The agent {id_!r} has an unknown mode, {shown}; known: {', '.join(filter(None, MODES))}."
        agent.place.key("mode").error("bad-mode", agent.origin("mode"), message)
        return None
    return mode or None


def _output(agent: View) -> OutputSchema | None:
    if not agent.has("output"):
        return None
    output = agent.under("output")
    if output.has("fields") == output.has("schema"):
        code = "bad-value" if output.has("fields") else "missing-key"
        output.place.error(code, output.at, "Output takes exactly one of `fields` and `schema`.")
    schema: dict[str, Any]
    if output.has("schema"):
        schema = output.value("schema")
        check_schema(schema, output.origin("schema"), output.place.key("schema"))
    else:
        schema = object_schema(output.entries("fields"), output.place.key("fields"))
    return OutputSchema(
        name=output.text("name", "output_schema"),
        description=output.text("description"),
        schema=schema,
        strict=output.value("strict", False),
    )


def _has(agent: Agent, target: Reference) -> bool:
    """Whether what `target` names is, as far as a document tells, among the tools of the agent."""
    if target.server in agent.agents:
        return True
    references: tuple[Reference, ...] = (*agent.tools, *agent.mcp_servers)
    if target.server == builtin.SYSTEM:
        names = builtin.SYSTEM_TOOLS.values() if target.tool is None else (target.tool,)
        return any(permits_tool(agent, name) for name in names)
    return any(
        one.server == target.server and (target.tool is None or one.tool in (None, target.tool))
        for one in references
    )


def _check_window(built: Agent, agent: View) -> None:
    size, answer = built.context_window, built.max_tokens
    if size is None:
        return
    needed = (answer or size // 8) + LEAST_ROOM
    if size <= needed:
        shown = f"`maxTokens` {answer}" if answer else "the answer"
        message = (
            f"A `contextWindow` of {size} tokens leaves no room beside {shown}; it must be over {needed}."
        )
        agent.place.key("contextWindow").error("bad-value", agent.origin("contextWindow"), message)


def _check_tool_choice(built: Agent, agent: View) -> None:
    """A tool to be called must be one the agent names. Of a whole server nobody knows the tools yet."""
    choice = built.tool_choice
    references: tuple[Reference, ...] = (*built.tools, *built.mcp_servers)
    if choice is None or choice in _ALWAYS or any(r.tool is None and r.alias is None for r in references):
        return
    offered = {r.alias or r.tool for r in references} | {builtin.chat_tool(a) for a in built.agents}
    if choice not in offered | set(builtin.SYSTEM_TOOLS.values()):
        message = f"The agent {built.id!r} must call the tool {choice!r}, which it is not given."
        agent.place.key("toolChoice").error("bad-tool-choice", agent.origin("toolChoice"), message)
