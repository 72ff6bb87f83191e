"""The little language of the demo model.

    program   = round { "then" round }          rounds run one after the other
    round     = step { ("and" | newline) step } steps of a round run at once
    step      = "call" NAME [ json | key=value … ] | "read" PATH | "ask" QUESTION | "list tools" | "tools"

`ask` ends its turn; the next message is the answer, stands for `{answer}` in later arguments, and the rounds
after `ask` go on. Text that begins with anything else is no program.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from nanobot.llm.messages import JsonObject
from nanobot.llm.model import ToolSpec
from nanobot.llm.tool_names import wire_name

ANSWER: Final = "{answer}"

_STEP: Final = re.compile(
    r"(?P<tools>(?:list\s+)?tools)\b|call\s+(?P<tool>[^\s,;]+)|read\s+(?P<path>\S+?)(?=[,;]?(?:\s|$))"
    r"|ask\s+(?P<question>[^\n]+)",
    re.IGNORECASE,
)
_JOIN: Final = re.compile(r"(?:[\s,;]|\band\b|\bthen\b)+", re.IGNORECASE)
_PAIR: Final = re.compile(r"""\s*([\w.-]+)=("(?:[^"\\]|\\.)*"|'[^']*'|\{answer\}|\{|\[|[^\s,;]+)""")


@dataclass(frozen=True, slots=True)
class CallTool:
    """One call. `pairs` are `key=value` as written; `written` is JSON, or a path for `read`."""

    tool: str
    written: str = ""
    pairs: tuple[tuple[str, str], ...] = ()
    is_path: bool = False

    def arguments_for(self, tool: ToolSpec, answer: str) -> str | None:
        """The argument text for `tool`; None if what was written is no JSON object."""
        properties = cast("dict[str, Any]", tool.schema.get("properties") or {})
        if self.is_path:
            required = cast("Sequence[str]", tool.schema.get("required") or ())
            name = next(iter(required), None) or next(iter(properties), "path")
            return json.dumps({name: self.written})
        if self.pairs:
            filled = {k: _value(v.replace(ANSWER, answer), properties.get(k)) for k, v in self.pairs}
            return json.dumps(filled, ensure_ascii=False)
        if not self.written:
            return "{}"
        quoted = json.dumps(answer, ensure_ascii=False)[1:-1]
        text = self.written.replace(ANSWER, quoted)
        try:
            return text if isinstance(json.loads(text), dict) else None
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Program:
    """What a message asks for: rounds of calls, then perhaps a question, then `rest`."""

    rounds: tuple[tuple[CallTool, ...], ...] = ()
    question: str = ""
    lists_tools: bool = False
    rest: str = ""

    def after_question(self) -> Program:
        """What is to be done once the question was answered."""
        return parse(self.rest)


def parse(text: str) -> Program:
    """The program in `text`; an empty one if it is none, or not from beginning to end."""
    rounds: list[list[CallTool]] = [[]]
    at = len(text) - len(text.lstrip())
    while (step := _STEP.match(text, at)) is not None:
        at = step.end()
        if step["tools"]:
            return Program(lists_tools=not text[at:].strip(" .!?\n"))
        if step["question"]:
            question, rest = _cut_question(step["question"])
            return replace(_program(rounds), question=question, rest=rest + text[at:])
        if step["path"]:
            rounds[-1].append(CallTool("read", step["path"].strip("`\"'"), is_path=True))
        else:
            call, at = _call(step["tool"].strip("`"), text, at)
            rounds[-1].append(call)
        join = _JOIN.match(text, at)
        if join is None or not join[0].strip(" \t"):  # blanks alone join nothing
            break
        at = join.end()
        if "then" in join[0].lower():
            rounds.append([])
    return Program() if text[at:].strip(" .!\n") else _program(rounds)


def find_tool(name: str, tools: Sequence[ToolSpec]) -> ToolSpec | None:
    """The tool that `name` means: its name, or the published name it was made from, in any case."""
    wanted = {name, wire_name(name)}
    for tool in tools:
        if tool.name in wanted:
            return tool
    folded = {w.lower() for w in wanted}
    return next((t for t in tools if t.name.lower() in folded), None)


def _program(rounds: Sequence[Sequence[CallTool]]) -> Program:
    return Program(tuple(tuple(r) for r in rounds if r))


def _cut_question(text: str) -> tuple[str, str]:
    """The question, and the steps that follow it: only `then` and a step end a question."""
    for join in re.finditer(r"[\s,;]*\bthen\s+", text, re.IGNORECASE):
        if _STEP.match(text, join.end()):
            return text[: join.start()].strip(), text[join.end() :]
    return text.strip(), ""


def _call(tool: str, text: str, at: int) -> tuple[CallTool, int]:
    rest = text[at:].lstrip(" \t")
    start = len(text) - len(rest)
    if rest.startswith("{"):
        try:
            _, end = json.JSONDecoder().raw_decode(text, start)
        except ValueError:
            end = text.find("\n", start)
            end = len(text) if end < 0 else end
        return CallTool(tool, text[start:end].strip()), end
    pairs: list[tuple[str, str]] = []
    while (pair := _PAIR.match(text, at)) is not None:
        value, end = pair[2], pair.end()
        if value in ("{", "["):
            try:
                _, end = json.JSONDecoder().raw_decode(text, pair.start(2))
            except ValueError:
                end = len(text)
            value = text[pair.start(2) : end]
        pairs.append((pair[1], value))
        at = end
    return CallTool(tool, pairs=tuple(pairs)), at


def _value(written: str, schema: Any) -> Any:
    """The value that `written` stands for: text where the schema wants text, else JSON where it is JSON."""
    if written[:1] == '"' or written[:1] == "'":
        unquoted = written[1:-1]
        return unquoted.replace('\\"', '"') if written[0] == '"' else unquoted
    wanted = cast("JsonObject", schema).get("type") if isinstance(schema, dict) else None
    if wanted == "string":
        return written
    try:
        return json.loads(written)
    except ValueError:
        return written
