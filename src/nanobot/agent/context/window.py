"""How much of a conversation fits, and when room has to be made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nanobot.config.build_agent import LEAST_ROOM
from nanobot.config.model import Agent

DEFAULT: Final = 200_000
_FULL: Final = 0.835
_ROOMY: Final = 0.6
_TAIL: Final = 0.2
_LONGEST_ANSWER: Final = 8192


@dataclass(frozen=True, slots=True)
class Window:
    """`size` of a model's window and what is kept free in it for the answer, in tokens."""

    size: int
    reserve: int

    @staticmethod
    def of(agent: Agent) -> Window:
        size = agent.context_window or DEFAULT
        return Window(size, agent.max_tokens or min(_LONGEST_ANSWER, size // 8))

    def narrowed(self, tokens: int) -> Window:
        """For a model that has refused a request of about `tokens`: it takes less than we thought."""
        size = min(self.size, tokens * 3 // 4)
        return Window(size, min(self.reserve, size // 8))

    @property
    def trigger(self) -> int:
        """A request of more tokens than this is not sent before room was made."""
        return min(int(_FULL * self.size), self.size - self.reserve - LEAST_ROOM)

    @property
    def target(self) -> int:
        """What a request should come down to then."""
        return int(_ROOMY * self.trigger)

    @property
    def tail(self) -> int:
        """How much of the newest is kept as it was said."""
        return int(_TAIL * self.trigger)
