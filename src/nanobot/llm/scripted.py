"""A model that plays a script, strictly: for tests, and for `scripted` in a configuration.

    with ScriptedModel([calls("divide", a=1, b=0), says("That has no answer.")]) as model:
        ...

A request beyond the script fails, and so does leaving the block with steps unused.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from nanobot.errors import ConfigError
from nanobot.llm.assemble import Assembly
from nanobot.llm.model import (
    Emit,
    ErrorKind,
    FinishReason,
    ModelRequest,
    ModelResponse,
    ProviderError,
    Usage,
)
from nanobot.llm.words import words

_USAGE: Final = Usage(input_tokens=10, output_tokens=5)


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A call to ask for. `arguments` is the text the model writes."""

    name: str
    arguments: str
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One answer. It is streamed word by word; then it fails, if there is a `failure`."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    finish: FinishReason = "stop"
    failure: ErrorKind | None = None
    message: str = "The script says so."
    retry_after: float | None = None
    before: Callable[[], Awaitable[object]] | None = None
    """Awaited before the first word."""
    usage: Usage = _USAGE


def says(text: str, *, reasoning: str = "", finish: FinishReason = "stop") -> Step:
    """A plain answer."""
    return Step(text=text, reasoning=reasoning, finish=finish)


def calls(tool: str, /, **arguments: Any) -> Step:
    """One tool call."""
    return Step(calls=(ScriptedCall(tool, json.dumps(arguments)),), finish="tool_calls")


def all_call(*several: ScriptedCall | tuple[str, dict[str, Any]], text: str = "") -> Step:
    """Several tool calls in one answer; a tuple is (tool, arguments)."""
    made = tuple(c if isinstance(c, ScriptedCall) else ScriptedCall(c[0], json.dumps(c[1])) for c in several)
    return Step(text=text, calls=made, finish="tool_calls")


def fails(kind: ErrorKind, message: str = "The script says so.", *, retry_after: float | None = None) -> Step:
    """A failure before anything was said."""
    return Step(failure=kind, message=message, retry_after=retry_after)


def cut_off(text: str, *, kind: ErrorKind = "connection") -> Step:
    """A failure after `text` was said."""
    return Step(text=text, failure=kind, message="The answer ended in the middle.")


def slow(step: Step, before: Callable[[], Awaitable[object]]) -> Step:
    """`step`, once `before` was awaited: an event's `wait` holds an answer back."""
    return replace(step, before=before)


class ScriptUsedUp(AssertionError):
    """A request came for which the script has no step."""


class ScriptNotUsed(AssertionError):
    """Steps of the script were never asked for."""


class ScriptedModel:
    """Answers with its steps in order. `requests` are copies of what was asked."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.requests: list[ModelRequest] = []
        self._steps = list(steps)

    def __enter__(self) -> ScriptedModel:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.check_used()

    def check_used(self) -> None:
        """Raises `ScriptNotUsed` if steps are left."""
        if self._steps:
            raise ScriptNotUsed(
                f"{len(self._steps)} steps of the script were not used; next: {self._steps[0]}"
            )

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        self.requests.append(copy.deepcopy(request))
        if not self._steps:
            raise ScriptUsedUp(f"The script has no step for request {len(self.requests)}.")
        step = self._steps.pop(0)
        if step.before:
            await step.before()
        into = Assembly(emit, kind="scripted", scope="scripted")
        if step.reasoning:
            into.reasoning("reasoning", step.reasoning)
        for word in words(step.text):
            into.text("text", word)
        if step.failure:
            raise ProviderError(
                step.failure,
                step.message,
                retry_after=step.retry_after,
                retryable=step.failure in ("timeout", "connection", "rate_limit", "server"),
                shown=into.shown,
            )
        for number, call in enumerate(step.calls):
            into.call(number, call_id=call.id, name=call.name, piece=call.arguments)
        return ModelResponse(
            id=into.id,
            model=request.model,
            items=into.items(step.finish),
            finish=step.finish,
            usage=step.usage,
        )


def load_script(path: Path) -> ScriptedModel:
    """The script in a JSON file: a list of steps, each `{"says"?, "reasoning"?, "calls"?, "fails"?}`.

    `calls` is a list of `{"name", "arguments"?}`; `says` with `fails` is an answer that is cut off.
    Raises `ConfigError`.
    """
    try:
        written = msgspec.json.decode(path.read_bytes(), type=list[_WrittenStep])
    except OSError as e:
        raise ConfigError(f"The script {str(path)!r} cannot be read: {e.strerror}.") from e
    except msgspec.DecodeError as e:
        raise ConfigError(f"The script {str(path)!r} is no list of steps: {e}.") from e
    return ScriptedModel([_step(w) for w in written])


class _WrittenCall(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] = {}


class _WrittenStep(msgspec.Struct, forbid_unknown_fields=True):
    says: str = ""
    reasoning: str = ""
    calls: list[_WrittenCall] = []
    fails: ErrorKind | None = None
    finish: FinishReason | None = None


def _step(written: _WrittenStep) -> Step:
    natural: FinishReason = "tool_calls" if written.calls else "stop"
    return Step(
        text=written.says,
        reasoning=written.reasoning,
        calls=tuple(ScriptedCall(c.name, json.dumps(c.arguments)) for c in written.calls),
        finish=written.finish or natural,
        failure=written.fails,
    )
