"""The gate in front of every tool call of an agent with approvals: decide, ask where nobody has decided."""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import anyio
import msgspec
from anyio import to_thread

from nanobot.agent.approval.decision import Called, Decision, decide
from nanobot.agent.input import prompt_of
from nanobot.agent.tools import Tool
from nanobot.builtin.system.workspace import own_folder
from nanobot.config.builtin import AGENTS, chat_tool
from nanobot.config.model import Agent
from nanobot.wire.call import Call
from nanobot.wire.rpc import Payload, RpcError

WAIT_S: Final = 15 * 60.0
"""How long a person may think; then the call is refused."""
MOST_REMEMBERED: Final = 1000
_LONGEST_SHOWN: Final = 16_000
_LONGEST_VALUE: Final = 4000

log = logging.getLogger(__name__)


class Gate:
    """Of one engine. Remembers which calls somebody has allowed for the rest of a conversation."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._allowed: OrderedDict[bytes, None] = OrderedDict()

    async def refusal(self, agent: Agent, tool: Tool, arguments: Mapping[str, Any], call: Call) -> str | None:
        """Why this call must not run, as the model is told; None if it may. May ask the person of `call`."""
        if agent.tool_approvals is None:
            return None
        called = called_by(agent, tool, arguments, call.folder or own_folder(self._home, call))
        # A tangled command line, or a slow disk, must not hold up anybody else.
        decision = await to_thread.run_sync(decide, [agent.tool_approvals], called)
        if decision.verdict == "run":
            return None
        if decision.verdict == "refuse":
            return f"{tool.name!r} was not run: approval for it is refused. {decision.reason}"
        identity = _identity(agent, called, call)
        if identity in self._allowed:
            self._allowed.move_to_end(identity)
            return None
        return await self._ask(agent, tool, decision, arguments, call, identity)

    async def _ask(
        self,
        agent: Agent,
        tool: Tool,
        decision: Decision,
        arguments: Mapping[str, Any],
        call: Call,
        identity: bytes | None,
    ) -> str | None:
        if call.ask is None or not can_be_asked(call):
            return (
                f"{tool.name!r} was not run: it needs a person's approval, and nobody can be asked here. "
                "Do without it, or say what should be approved."
            )
        answer: Mapping[str, Any] = {}
        with anyio.move_on_after(WAIT_S):
            try:
                question = Payload.of(_question(agent, tool, decision, arguments, identity))
                answer = (await call.ask("elicitation/create", question)).object()
            except RpcError as e:
                log.warning("an approval could not be asked for", extra={"tool": tool.name, "reason": str(e)})
                return f"{tool.name!r} was not run: its approval could not be asked for."
        choice = _choice(answer)
        if choice not in ("once", "conversation"):
            return f"{tool.name!r} was not run: approval was refused."
        if choice == "conversation" and identity is not None:
            self._allowed[identity] = None
            if len(self._allowed) > MOST_REMEMBERED:
                self._allowed.popitem(last=False)
        return None


def called_by(agent: Agent, tool: Tool, arguments: Mapping[str, Any], folder: Path | None) -> Called:
    """The call as rules name it: without aliases, and an agent by its id, whichever way it was given."""
    name = tool.listed_as or tool.name
    server = tool.target
    if server == AGENTS:
        server = next((ref.server for ref in agent.tools if chat_tool(ref.server) == name), server)
    if tool.target_type == "agent" or server != tool.target:
        told = {**arguments, "prompt": prompt_of(arguments)}
        return Called(server=server, tool="", arguments=told, folder=folder)
    return Called(server=server, tool=name, own_name=tool.own_name, arguments=arguments, folder=folder)


def can_be_asked(call: Call) -> bool:
    """Whether the client behind `call` shows forms."""
    ways = call.caller.capabilities.get("elicitation")
    return isinstance(ways, dict) and ("form" in ways or not ways)


def _choice(answer: Mapping[str, Any]) -> str:
    """What was chosen of the words in `_question`; "" when the question was turned away."""
    content = answer.get("content")
    if answer.get("action") != "accept" or not isinstance(content, Mapping):
        return ""
    return str(cast("Mapping[str, Any]", content).get("decision") or "")


def _question(
    agent: Agent, tool: Tool, decision: Decision, arguments: Mapping[str, Any], identity: bytes | None
) -> dict[str, Any]:
    again = {"conversation": "Yes, and the same call again in this conversation"}
    answers = {"once": "Yes, once", **(again if identity is not None else {}), "no": "No"}
    asked = f"{agent.display_name} wants to run {_legible(tool.name)}. {decision.reason}"
    return {
        "message": f"{asked}\n\n{_shown(tool, arguments)}",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "decision": {
                    "type": "string",
                    "title": "Run it?",
                    "enum": [*answers],
                    "enumNames": [*answers.values()],
                }
            },
            "required": ["decision"],
        },
    }


def _shown(tool: Tool, arguments: Mapping[str, Any]) -> str:
    """The arguments for a person, those the tool knows first, so that none is hidden behind another.

    Whoever wants to hide something makes it long: what is left out is said before anything else.
    """
    known = [name for name in tool.schema.get("properties") or () if name in arguments]
    lines: list[str] = []
    left_out: list[str] = []
    room = _LONGEST_SHOWN
    for name in dict.fromkeys([*known, *arguments]):
        text = msgspec.json.format(msgspec.json.encode(arguments[name]), indent=2).decode()
        if len(text) > _LONGEST_VALUE:
            left_out.append(f"{len(text) - _LONGEST_VALUE} characters of {name[:40]!r}")
            text = f"{text[: _LONGEST_VALUE // 2]} … {text[-_LONGEST_VALUE // 2 :]}"
        line = _legible(f"{msgspec.json.encode(name[:200]).decode()}: {text}")
        room -= len(line)
        if room < 0:
            left_out.append(f"{len(arguments) - len(lines)} whole arguments")
            break
        lines.append(line)
    warning = f"NOT SHOWN are {', '.join(left_out)}.\n\n" if left_out else ""
    return warning + "\n".join(lines)


def _legible(text: str) -> str:
    """Characters that would not be seen, or change how others are, as `\\u…`."""
    return "".join(c if c.isprintable() or c == "\n" else f"\\u{ord(c):04x}" for c in text)


def _identity(agent: Agent, called: Called, call: Call) -> bytes | None:
    """What an approval for a conversation is bound to: who, where, the tool and its exact arguments.

    None where there is no conversation: of such a caller nobody could say to whom it was given.
    """
    if not call.caller.session and not call.thread:
        return None
    where = [call.caller.account, call.caller.session, call.thread, str(called.folder), agent.id]
    what = [called.server, called.tool, called.arguments]
    return hashlib.sha256(msgspec.json.encode([where, what], order="sorted")).digest()
