"""`demo`: a stand-in for a language model that runs anywhere and says what it is.

It understands a few commands (`demo_commands`) and can call every tool, so that the whole program can be
tried without a key or a network. What it answers follows from the request alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from nanobot.llm.assemble import Assembly
from nanobot.llm.demo_commands import CallTool, Program, find_tool, parse
from nanobot.llm.demo_sample import sample
from nanobot.llm.messages import Message, ToolCall, ToolOutput
from nanobot.llm.model import Emit, ModelRequest, ModelResponse, ToolSpec
from nanobot.llm.usage import estimated
from nanobot.llm.words import words

NAME: Final = "demo"
QUOTED: Final = 4000
"""Characters of a tool result that are quoted."""
_LISTED: Final = 60
_ASKED_BACK: Final = 20
"""Earlier questions that are looked back at."""

INTRODUCTION: Final = (
    "I am the demo model: a stand-in without a language model, so I do not understand free text. "
    "Set an API key or name a `model` to talk to a real one."
)
ABILITIES: Final = (
    "I understand `list tools`, `call NAME {json}`, `call NAME key=value`, `read PATH` and `ask QUESTION`. "
    "Join steps with `then` (one after the other) or `and` (at once)."
)


class DemoModel:
    """Deterministic and offline."""

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        into = Assembly(emit, kind=NAME, scope=NAME)
        act = _next_act(request)
        for word in words(act.text):
            into.text("text", word)
        for number, call in enumerate(act.calls):
            into.call(number, name=call.name, piece=call.arguments)
        finish = "tool_calls" if act.calls else "stop"
        items = into.items(finish)
        return ModelResponse(
            id=into.id, model=NAME, items=items, finish=finish, usage=estimated(request, items)
        )


@dataclass(frozen=True, slots=True)
class _Act:
    """What to say, and what to call after it."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()


def _next_act(request: ModelRequest) -> _Act:
    newest = _newest_input(request.messages)
    text = request.messages[newest].text if newest >= 0 else ""
    program, answer = _program(request.messages, newest)
    done = request.messages[newest + 1 :]
    rounds = sum(1 for m in done if m.calls)
    opening = "" if _has_spoken(request.messages) else INTRODUCTION + "\n\n"
    if request.output and not program.rounds:
        return _Act(msgspec.json.encode(sample(request.output.schema)).decode())
    if rounds < len(program.rounds) and request.tools.tools:
        return _round(program.rounds[rounds], request.tools.tools, answer, opening)
    results = _quoted(done)
    if program.question:
        return _Act("\n\n".join(p for p in (results, opening + program.question) if p))
    if program.rounds:
        return _Act(results or opening + "No tools are offered to me here, so I cannot call any.")
    if program.lists_tools:
        return _Act(opening + _listing(request.tools.tools))
    if answer:
        return _Act(f"Your answer is: {answer}")
    said = f"You said: {text.strip()[:QUOTED]}" if text.strip() else "You said nothing."
    return _Act(f"{opening}{said}\n\n{ABILITIES}")


def _round(calls: Sequence[CallTool], tools: Sequence[ToolSpec], answer: str, opening: str) -> _Act:
    """The calls of one round, or what is wrong with them."""
    made: list[ToolCall] = []
    for call in calls:
        tool = find_tool(call.tool, tools)
        if tool is None:
            names = ", ".join(t.name for t in tools[:_LISTED])
            return _Act(f"{opening}There is no tool `{call.tool}`. I can call: {names}.")
        arguments = call.arguments_for(tool, answer)
        if arguments is None:
            return _Act(f"{opening}The arguments of `{call.tool}` are no JSON object: {call.written}")
        made.append(ToolCall("", "", tool.name, arguments))
    return _Act(opening.strip(), tuple(made))


def _program(messages: Sequence[Message], newest: int) -> tuple[Program, str]:
    """What the newest message asks for, and the answer it gives if it is one.

    A message after `ask` is the answer to it, and the steps after `ask` go on.
    """
    if newest < 0:
        return Program(), ""
    chain = [newest]
    while len(chain) < _ASKED_BACK:
        earlier = _newest_input(messages[: chain[0]])
        if earlier < 0 or parse(messages[earlier].text).question == "":
            break
        chain.insert(0, earlier)
    program = parse(messages[chain[0]].text)
    answer = ""
    for position in chain[1:]:
        if program.question:
            answer = messages[position].text.strip()
            program = program.after_question()
        else:
            answer = ""
            program = parse(messages[position].text)
    return program, answer


def _newest_input(messages: Sequence[Message]) -> int:
    """The position of the newest message of a person; -1 if there is none."""
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        if message.role == "user" and not any(isinstance(i, ToolOutput) for i in message.items):
            return at
    return -1


def _has_spoken(messages: Sequence[Message]) -> bool:
    return any(m.role == "assistant" and m.text for m in messages)


def _quoted(messages: Sequence[Message]) -> str:
    """The results in `messages`, each under the name of its tool."""
    names = {c.call_id: c.name for m in messages for c in m.calls}
    outputs = (i for m in messages for i in m.items if isinstance(i, ToolOutput))
    return "\n\n".join(_quote(names.get(o.call_id, "a tool"), o) for o in outputs)


def _quote(tool: str, output: ToolOutput) -> str:
    said = "\n".join(str(b.get("text") or f"[{b.get('type')}]") for b in output.content)
    if len(said) > QUOTED:
        said = said[:QUOTED] + "…"
    lines = "\n".join(f"> {line}" for line in said.splitlines() or [""])
    return f"`{tool}` {'failed' if output.is_error else 'gave'}:\n{lines}"


def _listing(tools: Sequence[ToolSpec]) -> str:
    if not tools:
        return "No tools are offered to me here."
    lines = [f"- `{t.name}`: {_first_sentence(t.description)}" for t in tools[:_LISTED]]
    if len(tools) > _LISTED:
        lines.append(f"- and {len(tools) - _LISTED} more")
    return f"I can call {len(tools)} tools:\n" + "\n".join(lines)


def _first_sentence(text: str) -> str:
    line = next(iter(text.strip().splitlines()), "")
    return line if len(line) <= 120 else line[:119] + "…"
