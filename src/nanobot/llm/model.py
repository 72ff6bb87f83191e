"""The seam to language models: what a request is, what comes back, and the Protocol between.

A dialect translates, nothing more. Retry, fallback, concurrency and idle limits are models around a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec

from nanobot.errors import NanobotError
from nanobot.llm.messages import Item, Message

FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "refusal"]
ErrorKind = Literal[
    "timeout",
    "connection",
    "rate_limit",
    "server",
    "billing",
    "authentication",
    "context_length",
    "content",
    "not_found",
    "invalid_request",
    "tls",
]


class ProviderError(NanobotError):
    """A provider refused or failed. `retry_after` is in seconds, None if the provider did not say.

    `shown` is True once text of the failed answer was emitted: such a request is never simply repeated.
    `detail` is what the provider itself said, cut and without secrets: for logs and programs, not for people.
    """

    code = "provider"

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        status: int | None = None,
        provider_code: str = "",
        retry_after: float | None = None,
        retryable: bool = False,
        shown: bool = False,
        detail: str = "",
    ) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.status = status
        self.provider_code = provider_code
        self.retry_after = retry_after
        self.retryable = retryable
        self.shown = shown
        self.detail = detail


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model sees it. `name` is the wire name (`^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$`)."""

    name: str
    description: str
    schema: Mapping[str, Any]
    extensions: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ToolSet:
    """The tools of a request, in order. `forms` caches their encoded forms, by key: reuse the object."""

    tools: tuple[ToolSpec, ...] = ()
    forms: dict[str, bytes] = field(default_factory=dict[str, bytes], compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFormat:
    """Structured output asked for: a JSON Schema the answer must match."""

    name: str
    schema: Mapping[str, Any]
    description: str = ""
    strict: bool = False


@dataclass(slots=True)
class Beginning:
    """The encoded start of a conversation, which nothing that comes later can change.

    `form` is that of the first `count` messages; `first` and `last` are the outermost of them, to tell a
    conversation that grew from one that was rewritten. `call_ids` are all in it.
    """

    count: int
    first: Message
    last: Message
    form: bytes
    call_ids: set[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """Everything one model call needs. `model` is the provider's own name, without our provider prefix.

    `messages` is oldest first and well formed: starts with a user message, every call has its result.
    `tool_choice`: "auto", "none", "required" or a wire name; None leaves it to the provider.
    """

    model: str
    messages: Sequence[Message]
    instructions: str = ""
    tools: ToolSet = ToolSet()
    tool_choice: str | None = None
    output: OutputFormat | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: Sequence[str] = ()
    effort: str | None = None
    reasoning_summary: str | None = None
    truncation: str | None = None
    thread: str = ""
    """Opaque id of the conversation, for prompt caches and affinity; "" for one-shot calls."""
    beginnings: dict[str, Beginning] = field(default_factory=dict[str, Beginning], compare=False, repr=False)
    """What dialects keep of a growing `messages`, by form. Belongs to whoever owns the list: pass the same
    mapping with every request over it, and a request costs what is new, not what was said before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one or more calls. None: the provider did not say; 0: it said zero."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    requests: int = 1
    source: Literal["reported", "estimated", "mixed"] = "reported"

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        def both(a: int | None, b: int | None) -> int | None:
            return None if a is None or b is None else a + b

        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=both(self.cache_read_tokens, other.cache_read_tokens),
            cache_write_tokens=both(self.cache_write_tokens, other.cache_write_tokens),
            reasoning_tokens=both(self.reasoning_tokens, other.reasoning_tokens),
            requests=self.requests + other.requests,
            source=self.source if self.source == other.source else "mixed",
        )


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """More text of item `item_id`."""

    item_id: str
    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, gc=False):
    item_id: str
    text: str


class ArgumentsDelta(msgspec.Struct, frozen=True, gc=False):
    """More argument text of a tool call that is being written."""

    item_id: str
    call_id: str
    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryStatus:
    """A wrapper waits before the next try, or is done with waiting."""

    state: Literal["waiting", "recovered", "exhausted"]
    attempt: int
    kind: ErrorKind
    wait_s: float = 0.0


Delta = TextDelta | ReasoningDelta | ArgumentsDelta | RetryStatus
Emit = Callable[[Delta], None]
"""Receives deltas as they arrive. Never blocks and never raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResponse:
    """A complete answer. Item ids are those of the deltas. `model` is who really answered."""

    id: str
    model: str
    items: tuple[Item, ...]
    finish: FinishReason
    usage: Usage


class Model(Protocol):
    """Something that answers. Holds no state of a turn; used by many turns at once.

    Raises `ProviderError`. Cancelling the call closes the connection to the provider at once.
    """

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse: ...
