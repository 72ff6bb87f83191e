"""Questions that come up while an agent works, put to whoever sits at the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import anyio

from nanobot.cli.text import visible
from nanobot.narrow import list_of, object_of, objects_of
from nanobot.wire.rpc import METHOD_NOT_FOUND, Payload, RpcError

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

    from nanobot.cli.screen import Screen

CAPABILITIES: Final[Mapping[str, Any]] = {"elicitation": {"form": {}, "url": {}}}
"""What somebody at a terminal can be asked."""
_CANCELLED: Final = {"action": "cancel"}
_YES: Final = frozenset({"y", "yes", "true", "1"})


class NotUsable(Exception):
    """What was typed is no answer; the message says why."""


@dataclass(frozen=True, slots=True)
class Field:
    """One thing to be asked. `choices` are (value, what is shown), for a field that has some."""

    name: str
    title: str
    schema: Mapping[str, Any]
    choices: Sequence[tuple[Any, str]]
    is_required: bool

    @property
    def hint(self) -> str:
        """What Enter alone means."""
        if "default" in self.schema:
            return f" [{visible(str(self.schema['default']))}]"
        return "" if self.is_required else " [leave out]"

    def read(self, text: str) -> Any:
        """The value of what was typed; None: leave it out. Raises `NotUsable`."""
        if not text:
            if "default" in self.schema:
                return self.schema["default"]
            if self.is_required:
                raise NotUsable("An answer is needed.")
            return None
        if self.schema.get("type") == "array":
            return [self._choice(part.strip()) for part in text.split(",") if part.strip()]
        if self.choices:
            return self._choice(text)
        return _read(text, self.schema)

    def _choice(self, text: str) -> Any:
        if text.isdecimal() and 1 <= int(text) <= len(self.choices):
            return self.choices[int(text) - 1][0]
        for value, shown in self.choices:
            if text.lower() in (str(value).lower(), shown.lower()):
                return value
        raise NotUsable(f"Type a number from 1 to {len(self.choices)}.")


class TerminalQuestions:
    """Asks one question at a time, however many come at once. Satisfies `wire.call.Ask` with `ask`."""

    def __init__(self, prompt: PromptSession[str], screen: Screen) -> None:
        self._prompt = prompt
        self._screen = screen
        self._one_at_a_time = anyio.Lock()

    async def ask(self, method: str, params: Payload) -> Payload:
        """The answer to `elicitation/create`. Ctrl-C and Ctrl-D cancel. Raises `RpcError` for others."""
        if method != "elicitation/create":
            raise RpcError(METHOD_NOT_FOUND, f"a terminal cannot be asked {method}")
        question = params.object()
        async with self._one_at_a_time:
            self._screen.ask(str(question.get("message", "")))
            try:
                if question.get("mode") == "url":
                    return Payload.of(await self._open(str(question.get("url", ""))))
                return Payload.of(await self._fill_in(object_of(question.get("requestedSchema"))))
            except (KeyboardInterrupt, EOFError):
                return Payload.of(_CANCELLED)

    async def _open(self, url: str) -> Mapping[str, Any]:
        host = urlsplit(url).hostname or "?"
        self._screen.ask(f"Open this address (at {host}) in your browser:\n{url}")
        answer = await self._type("Will you? [y/N] ")
        return {"action": "accept" if answer.lower() in _YES else "decline"}

    async def _fill_in(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        fields = fields_of(schema)
        if not fields:
            answer = await self._type("Do you agree? [y/N] ")
            return {"action": "accept", "content": {}} if answer.lower() in _YES else {"action": "decline"}
        content: dict[str, Any] = {}
        for field in fields:
            if (value := await self._value(field)) is not None:
                content[field.name] = value
        return {"action": "accept", "content": content}

    async def _value(self, field: Field) -> Any:
        for number, (_, shown) in enumerate(field.choices, 1):
            self._screen.ask(f"  {number}. {shown}")
        while True:
            text = await self._type(f"{visible(field.title)}{field.hint} ")
            try:
                return field.read(text)
            except NotUsable as e:
                self._screen.note(str(e))

    async def _type(self, label: str) -> str:
        return (await self._prompt.prompt_async(label)).strip()


def fields_of(schema: Mapping[str, Any]) -> list[Field]:
    """The fields of a form, in the order of its schema."""
    required = list_of(schema.get("required"))
    return [
        Field(
            name,
            str(object_of(written).get("title") or object_of(written).get("description") or name),
            object_of(written),
            _choices(object_of(written)),
            name in required,
        )
        for name, written in object_of(schema.get("properties")).items()
    ]


def _choices(schema: Mapping[str, Any]) -> list[tuple[Any, str]]:
    """The choices in any of the ways a form may write them."""
    if schema.get("type") == "array":
        return _choices(object_of(schema.get("items")))
    if schema.get("type") == "boolean":
        return [(True, "Yes"), (False, "No")]
    for key in ("oneOf", "anyOf"):
        if titled := [one for one in objects_of(schema.get(key)) if "const" in one]:
            return [(one["const"], visible(str(one.get("title") or one["const"]))) for one in titled]
    values, names = list_of(schema.get("enum")), list_of(schema.get("enumNames"))
    return [(v, visible(str(names[i] if i < len(names) else v))) for i, v in enumerate(values)]


def _read(text: str, schema: Mapping[str, Any]) -> Any:
    match schema.get("type"):
        case "integer" | "number" as kind:
            try:
                number = int(text) if kind == "integer" else float(text)
            except ValueError:
                raise NotUsable(f"Type a{'n integer' if kind == 'integer' else ' number'}.") from None
            low, high = schema.get("minimum"), schema.get("maximum")
            if (low is not None and number < low) or (high is not None and number > high):
                raise NotUsable(f"It must be between {low} and {high}.")
            return number
        case _:
            shortest, longest = schema.get("minLength", 0), schema.get("maxLength")
            if len(text) < shortest or (longest is not None and len(text) > longest):
                raise NotUsable(f"It must have {shortest} to {longest or 'any number of'} characters.")
            return text
