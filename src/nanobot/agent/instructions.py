"""An agent's system prompt as text: written in its document, or fetched from a prompt."""

from __future__ import annotations

import logging
from collections import ChainMap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nanobot.config.expand import UnsetVariable, expand
from nanobot.config.model import Agent, Config, PromptRef
from nanobot.errors import Busy, NanobotError, NotFound, UpstreamError
from nanobot.wire.call import Call
from nanobot.wire.rpc import Payload, RpcError

if TYPE_CHECKING:
    from nanobot.hub.hub import Hub

log = logging.getLogger(__name__)


class InstructionsFailed(NanobotError):
    """A prompt that an agent's instructions come from could not be had; no model was asked."""

    code = "instructions"


async def read_instructions(agent: Agent, *, config: Config, hub: Hub, call: Call) -> str:
    """The text with its `${…}` places filled in. Raises `InstructionsFailed` naming server and prompt."""
    match agent.instructions:
        case None:
            return ""
        case str(text):
            return expand_leniently(text, config.env)
        case PromptRef() as prompt:
            return await _from_prompt(prompt, config=config, hub=hub, call=call)


def expand_leniently(text: str, env: Mapping[str, str]) -> str:
    """`text` expanded; a reference without a value stays as it is written, and the turn goes on.

    Instructions quote shell scripts and templates: `${X}` in them need not be meant for us.
    """
    literal: dict[str, str] = {}
    known = ChainMap(literal, dict(env)) if "${" in text else env
    while True:
        try:
            return expand(text, known)
        except UnsetVariable as e:
            log.debug("reference left as it is", extra={"variable": e.name})
            literal[e.name] = f"${{{e.name}}}"


async def _from_prompt(prompt: PromptRef, *, config: Config, hub: Hub, call: Call) -> str:
    named = f"{prompt.server}/{prompt.prompt}" if prompt.server else prompt.prompt
    arguments = {name: expand_leniently(value, config.env) for name, value in prompt.args.items()}
    params = Payload.of({"name": prompt.prompt, "arguments": arguments})
    try:
        answer = (await hub.request(prompt.server, "prompts/get", params, call)).object()
    except (RpcError, UpstreamError, NotFound, Busy) as e:
        raise InstructionsFailed(f"The instructions could not be fetched from prompt {named!r}: {e}") from e
    messages: list[dict[str, Any]] = answer.get("messages") or []
    if len(messages) != 1:
        raise InstructionsFailed(f"prompt {named} returned {len(messages)} messages, expected 1")
    content: Mapping[str, Any] = messages[0].get("content") or {}
    if content.get("type") != "text":
        raise InstructionsFailed(f"prompt {named} returned no text but {content.get('type')!r}")
    return str(content.get("text") or "")
