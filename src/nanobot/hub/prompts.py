"""The prompts written in the configuration, offered like those of a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from nanobot.config.expand import UnsetVariable, expand
from nanobot.config.model import Prompt
from nanobot.wire.call import NOBODY, Call, Caller
from nanobot.wire.rpc import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, Payload, RpcError
from nanobot.wire.source import Changed, Entry, Kind, Told

INLINE_PROMPTS: Final = "nanobot.prompts"
"""Name of the source that holds the inline prompts."""


class InlinePrompts:
    """The inline prompts as a `Source`; rendering needs no server."""

    name = INLINE_PROMPTS

    def __init__(self, prompts: Mapping[str, Prompt], env: Mapping[str, str]) -> None:
        self._prompts = prompts
        self._env = env

    async def listing(self, kind: Kind, caller: Caller = NOBODY) -> Sequence[Entry]:
        if kind != "prompts":
            return ()
        return [Entry(prompt.name, Payload.of(_definition(prompt))) for prompt in self._prompts.values()]

    async def request(self, method: str, params: Payload, call: Call) -> Payload:
        if method != "prompts/get":
            raise RpcError(METHOD_NOT_FOUND, f"{method}: inline prompts have no such method")
        members = params.object()
        prompt = self._prompts.get(members.get("name", ""))
        if prompt is None:
            raise RpcError(INVALID_PARAMS, f"unknown prompt {members.get('name')!r}")
        text = render(prompt, prompt_arguments(prompt.name, params), self._env)
        message = {"role": "user", "content": {"type": "text", "text": text}}
        result: dict[str, Any] = {"messages": [message]}
        if prompt.description:
            result["description"] = prompt.description
        return Payload.of(result)

    def watch(self, changed: Changed) -> Callable[[], None]:
        return lambda: None  # the configuration is immutable

    def hear(self, told: Told) -> Callable[[], None]:
        return lambda: None


def prompt_arguments(name: str, params: Payload) -> dict[str, str]:
    """The `arguments` of a `prompts/get`; `RpcError` (-32602) unless they are an object of strings."""
    try:
        return _get.decode(params.raw).arguments or {}
    except msgspec.DecodeError as e:
        raise RpcError(INVALID_PARAMS, f"arguments of prompt {name!r} must be strings: {e}") from e


def render(prompt: Prompt, arguments: Mapping[str, str], env: Mapping[str, str]) -> str:
    """The template with its `${name}` replaced by arguments or else by variables of `env`.

    An optional argument that is not given is empty, whatever `env` holds under its name. Raises `RpcError`:
    -32602 naming a required argument that is missing, -32603 for a name that is neither.
    """
    for field in prompt.input:
        if field.required and field.name not in arguments:
            raise RpcError(INVALID_PARAMS, f"prompt {prompt.name!r} needs the argument {field.name!r}")
    absent = {field.name: "" for field in prompt.input}
    try:
        return expand(prompt.template, {**env, **absent, **arguments})
    except UnsetVariable as e:
        message = (
            f"the template of prompt {prompt.name!r} names {e.name!r}, neither an argument nor a variable"
        )
        raise RpcError(INTERNAL_ERROR, message) from e


def _definition(prompt: Prompt) -> dict[str, Any]:
    definition: dict[str, Any] = {"name": prompt.name}
    if prompt.description:
        definition["description"] = prompt.description
    if prompt.input:
        definition["arguments"] = [
            {"name": field.name, "description": field.description, "required": field.required}
            for field in prompt.input
        ]
    return definition


class _Get(msgspec.Struct):
    arguments: dict[str, str] | None = None


_get = msgspec.json.Decoder(_Get)
