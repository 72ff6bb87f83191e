"""What a turn emits while it runs. Every front door reads these and nothing else.

Order within a turn: `sequence` rises by one; `ToolStarted` before its `ToolFinished`; a complete
`MessageAdded` follows the deltas of its items and carries the same item ids; `TurnEnded` comes exactly once
and last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nanobot.llm.messages import Message, ToolCall, ToolOutput
from nanobot.llm.model import ArgumentsDelta, ReasoningDelta, RetryStatus, TextDelta, Usage

StopReason = Literal[
    "completed",
    "length",
    "refusal",
    "content_filter",
    "max_iterations",
    "loop_guard",
    "empty_final_response",
    "output_invalid",
    "context_too_large",
    "error",
    "cancelled",
]


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """The turn left the queue. `message` is the user's own message, already stored."""

    turn_id: str
    agent: str
    message: Message


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of the assistant message `message_id` that is being written."""

    message_id: str
    delta: TextDelta | ReasoningDelta | ArgumentsDelta


@dataclass(frozen=True, slots=True)
class Retrying:
    status: RetryStatus


@dataclass(frozen=True, slots=True)
class ToolStarted:
    message_id: str
    call: ToolCall
    """Call as it will be executed: published name, target server."""


@dataclass(frozen=True, slots=True)
class ToolProgress:
    call_id: str
    progress: float
    total: float | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class ToolFinished:
    message_id: str
    call: ToolCall
    output: ToolOutput
    ms: int


@dataclass(frozen=True, slots=True)
class MessageAdded:
    """A complete message, already in the store (or, for a one-shot turn, final)."""

    message: Message


@dataclass(frozen=True, slots=True)
class Condensed:
    """The model is sent less of the conversation from now on: estimated tokens `before` and `after`.

    `is_summarised` False: the oldest part was left out, because no summary of it could be had.
    """

    before: int
    after: int
    is_summarised: bool


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """`error` is one sentence for the person when `stop` is not `completed`, else ""."""

    turn_id: str
    stop: StopReason
    usage: Usage
    error: str = ""
    model: str = ""


Body = (
    TurnStarted
    | Delta
    | Retrying
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | MessageAdded
    | Condensed
    | TurnEnded
)


@dataclass(frozen=True, slots=True)
class Event:
    """`sequence` rises per thread as long as the process lives: readers resume after it."""

    sequence: int
    thread_id: str
    body: Body
