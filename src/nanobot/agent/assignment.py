"""What a turn is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from anyio.abc import TaskGroup

from nanobot.agent.approval.gate import Gate
from nanobot.agent.context.tokens import Gauge
from nanobot.agent.events import Body, StopReason
from nanobot.agent.input import Input
from nanobot.config.model import Agent
from nanobot.llm.messages import Message
from nanobot.llm.model import Usage
from nanobot.wire.call import Call

if TYPE_CHECKING:
    from nanobot.agent.briefing import Briefs

FAILED: Final = frozenset({"error", "cancelled", "output_invalid", "context_too_large"})
"""Ways to stop that give no usable answer; after the others the last message is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """How a turn ended. `message` is the last assistant message; `error` is "" when `stop` is `completed`."""

    stop: StopReason
    message: Message | None
    error: str
    usage: Usage
    structured: Any
    model: str
    agent: str

    @property
    def is_error(self) -> bool:
        return self.stop in FAILED

    @property
    def text(self) -> str:
        """What to show: the answer, or else what went wrong."""
        said = self.message.text if self.message else ""
        return self.error or said if self.is_error and self.stop != "output_invalid" else said or self.error


class Consult(Protocol):
    """Have another agent answer `input`, for the agents `call.agents`, which wait for it.

    Whether they may is decided before (`delegation.refusal`).
    """

    async def __call__(
        self, agent: str, input: Input, *, call: Call, on_event: Callable[[Body], None] | None
    ) -> TurnResult: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a turn is about. `thread_id` is "" for one that is not stored.

    `files` is the folder for outputs that are too long for a model; it is made when the first one comes.
    """

    turn_id: str
    agent: Agent
    message: Message
    call: Call
    files: Path
    thread_id: str = ""
    folder: Path | None = None

    def call_for_tool(self) -> Call:
        """What goes along with a call this turn makes: its caller, thread and folder. Nobody listens yet."""
        origin = self.call
        return Call(
            caller=origin.caller,
            ask=origin.ask,
            thread=self.thread_id or origin.thread,
            folder=self.folder or origin.folder,
            agents=(*origin.agents, self.agent.id),
            hooks=origin.hooks,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnServices:
    """What every turn needs. `tool_tasks` runs tool calls and outlives turns; `now` is RFC 3339 in UTC."""

    briefings: Briefs
    gate: Gate
    gauge: Gauge
    tool_tasks: TaskGroup
    consult: Consult
    now: Callable[[], str]
