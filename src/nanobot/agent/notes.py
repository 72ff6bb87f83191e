"""Sentences the engine puts into a conversation: some for the model alone, some for the person."""

from __future__ import annotations

from typing import Final

from nanobot.ids import new_id
from nanobot.llm.messages import Message, Text

MODEL_ERROR: Final = "[Assistant reply unavailable due to model error.]"
"""Stands in history where an answer failed. Exact: stored conversations are recognised by it."""
RESULT_LOST: Final = "[Tool result unavailable — call was interrupted or lost]"
TURN_INTERRUPTED: Final = "Error: Task interrupted before a response was generated."
CALL_INTERRUPTED: Final = "Error: Task interrupted before this tool finished."
CALL_UNKNOWN: Final = (
    "Error: The program stopped while this tool was running. Whether it took effect is unknown, and it was "
    "not repeated. Check before you call it again."
)
CALL_CANCELLED: Final = (
    "Error: This call was cancelled while it ran. Whether it took effect is unknown, and it was not repeated."
)
CALL_NOT_STARTED: Final = "Error: This call was cancelled before it started; it had no effect."
CALLS_DROPPED: Final = "Error: At most {limit} tool calls of one answer are run; this one was not."

ANSWER_CANCELLED: Final = "[This answer was stopped before it was complete.]"
CONTINUED: Final = "(conversation continued)"
EMPTY: Final = "(empty)"

ANSWER_NOW: Final = "Your last answer was empty. Answer now from what you already know, without using tools."
NAMELESS: Final = (
    "Your tool calls had no names and were not run. Call a tool by its exact name, or answer in text."
)
CALL_CUT_OFF: Final = (
    "Your tool call was cut off at the output limit and was not executed. Call it again with smaller "
    "arguments, for example in several steps."
)
GO_ON: Final = (
    "Your answer was cut off at the output limit. Continue exactly where it ends, without repeating anything "
    "and without any introduction. Already delivered, its last characters: {tail!r}"
)
ROUNDS_USED_UP: Final = (
    "You have used all {limit} rounds of this turn; no more tools can be called. State what was done, what "
    "is still open and what the next step would be. Do not claim that anything is complete without evidence."
)
GOING_ROUND: Final = (
    "You called {tool!r} {times} times in a row with the same arguments and the same result, so no more "
    "tools can be called in this turn. State what was done, what is still open and what to try instead."
)
REPAIR_OUTPUT: Final = (
    "Your answer does not have the required form: {problem}. Answer again with only the corrected JSON value "
    "that matches the schema."
)

REFUSED: Final = "The model declined to answer this."
FILTERED: Final = "The provider's content filter blocked this answer."
NO_ANSWER: Final = "The model gave no answer. Please ask again, or put the question differently."
OUT_OF_ROUNDS: Final = "The turn was stopped after {limit} rounds (`maxIterations`) without a final answer."
STOPPED_LOOP: Final = "The turn was stopped: {tool!r} was called {times} times in a row with the same result."


def note(text: str) -> Message:
    """`text` as a user message that only the model sees; it is never stored."""
    return Message(new_id("note"), "user", (Text(new_id("item"), text),))
